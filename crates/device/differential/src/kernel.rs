//! Writes the PTX of a case: declares registers, loads operands, stores results.
//!
//! Registers are untyped (`.b16`, `.b32`, `.b64`), which every instruction of their width takes.

use crate::case::{Case, Column, KERNEL, Rule, Slot};
use crate::image::Image;
use crate::tensor::Tensor;
use crate::values::Values;
use std::fmt::Write;

/// A kernel that is being written.
pub struct Kernel {
    /// Lines before the kernel: variables and functions of the module.
    pub module: String,
    /// Lines of the kernel that declare what is not a register.
    pub declarations: String,
    /// Directives of the kernel, such as `.reqnctapercluster 2`.
    pub directives: String,
    version: String,
    target: String,
    grid: u32,
    block: u32,
    inputs: Vec<Column>,
    results: Vec<Slot>,
    images: Vec<Image>,
    tensors: Vec<Tensor>,
    given: Option<[u64; 2]>,
    body: String,
    /// The number of registers of `.pred`, `.b16`, `.b32` and `.b64`.
    registers: [usize; 4],
}

/// Width of a register in bits; 1 for predicates.
pub type Width = usize;

const CLASSES: [(Width, &str, &str); 4] =
    [(1, "%p", ".pred"), (16, "%h", ".b16"), (32, "%r", ".b32"), (64, "%d", ".b64")];

impl Kernel {
    /// Creates a kernel for `sm_80`, launched with a grid of `grid` blocks of `block` threads.
    pub fn new(grid: u32, block: u32) -> Kernel {
        Kernel {
            module: String::new(),
            declarations: String::new(),
            directives: String::new(),
            version: "8.0".to_owned(),
            target: "sm_80".to_owned(),
            grid,
            block,
            inputs: Vec::new(),
            results: Vec::new(),
            images: Vec::new(),
            tensors: Vec::new(),
            given: None,
            body: String::new(),
            registers: [0; 4],
        }
    }

    /// Asks for another version of PTX and another target.
    pub fn set_target(&mut self, version: impl Into<String>, target: impl Into<String>) {
        (self.version, self.target) = (version.into(), target.into());
    }

    /// Threads of the grid.
    pub fn threads(&self) -> usize {
        (self.grid * self.block) as usize
    }

    /// A new register.
    pub fn register(&mut self, width: Width) -> String {
        let class = CLASSES.iter().position(|class| class.0 == width).expect("a width of registers");
        self.registers[class] += 1;
        format!("{}{}", CLASSES[class].1, self.registers[class] - 1)
    }

    /// Adds lines to the body.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.body.push_str(text.as_ref());
        self.body.push('\n');
    }

    /// The lines so far.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Adds a column of `rows` cells to the input; returns its start, from `in` on.
    pub fn column(&mut self, values: Values, rows: usize) -> usize {
        let start = self
            .inputs
            .iter()
            .fold(0usize, |end, column| end.next_multiple_of(16) + column.rows * column.values.bytes());
        self.inputs.push(Column { values, rows });
        start.next_multiple_of(16)
    }

    /// Adds a column with a cell for each thread to the input, and loads the thread's cell into a
    /// register. Bytes come in registers of 16 bits, zero-extended; [`Values::Pred`] comes in a
    /// predicate.
    pub fn load(&mut self, values: Values) -> String {
        let start = self.column(values, self.threads());
        let width = values.bytes();
        let register = self.register((8 * width).max(16));
        let ty = if width == 1 { "u8" } else { &format!("b{}", 8 * width) };
        self.line(format!("ld.global.{ty} {register}, [in{width}+{start}];"));
        if values != Values::Pred {
            return register;
        }
        let predicate = self.register(1);
        self.line(format!("setp.ne.u32 {predicate}, {register}, 0;"));
        predicate
    }

    /// Adds a column of `rows` cells to the results; returns its start, from `out` on.
    pub fn slot(&mut self, name: &str, values: Values, rows: usize, rule: Rule) -> usize {
        let start = self
            .results
            .iter()
            .fold(0usize, |end, slot| end.next_multiple_of(16) + slot.rows * slot.values.bytes());
        self.results.push(Slot { name: name.to_owned(), values, rows, rule });
        start.next_multiple_of(16)
    }

    /// Adds a column with a cell for each thread to the results, and stores a register to the
    /// thread's cell.
    pub fn store(&mut self, name: &str, values: Values, rule: Rule, register: &str) {
        let start = self.slot(name, values, self.threads(), rule);
        let width = values.bytes();
        if values != Values::Pred {
            return self.line(format!("st.global.b{} [out{width}+{start}], {register};", 8 * width));
        }
        let word = self.register(32);
        self.line(format!("selp.u32 {word}, 1, 0, {register};\nst.global.u32 [out{width}+{start}], {word};"));
    }

    /// Adds an image, and loads the handle of its object into a register.
    pub fn image(&mut self, image: Image) -> String {
        let register = self.register(64);
        self.line(format!("ld.param.u64 {register}, [image{}];", self.images.len()));
        self.images.push(image);
        register
    }

    /// Adds a tensor, and puts the generic address of its map into a register.
    pub fn tensor(&mut self, tensor: Tensor) -> String {
        let register = self.register(64);
        let map = self.tensors.len();
        self.line(format!("mov.b64 {register}, map{map};\ncvta.param.u64 {register}, {register};"));
        self.tensors.push(tensor);
        register
    }

    /// Gives the kernel a last parameter `given` of 16 bytes.
    pub fn give(&mut self, bytes: [u64; 2]) {
        self.given = Some(bytes);
    }

    /// The case with this name.
    pub fn finish(self, name: String) -> Case {
        let mut more: String =
            (0..self.images.len()).map(|index| format!(", .param .u64 image{index}")).collect();
        (0..self.tensors.len()).for_each(|map| {
            let _ = write!(more, ", .param .align 64 .b8 map{map}[128]");
        });
        if self.given.is_some() {
            more += ", .param .align 16 .b8 given[16]";
        }
        let mut ptx = format!(
            ".version {}\n.target {}\n.address_size 64\n{}.visible .entry {KERNEL}(.param .u64 inputs, .param .u64 \
             results{more}){}\n{{\n{}",
            self.version, self.target, self.module, self.directives, self.declarations
        );
        for ((_, prefix, class), count) in CLASSES.iter().zip(self.registers) {
            if count > 0 {
                let _ = writeln!(ptx, ".reg {class} {prefix}<{count}>;");
            }
        }
        ptx += ".reg .b64 in, out;\n.reg .b32 thread, row, lane;\n\
                ld.param.u64 in, [inputs];\ncvta.to.global.u64 in, in;\n\
                ld.param.u64 out, [results];\ncvta.to.global.u64 out, out;\n\
                mov.u32 thread, %tid.x;\nmov.u32 lane, %laneid;\n\
                mov.u32 row, %ctaid.x;\n";
        let _ = writeln!(ptx, "mad.lo.u32 row, row, {}, thread;", self.block);
        for base in ["in", "out"] {
            for width in [1, 2, 4, 8, 16] {
                if self.body.contains(&format!("[{base}{width}")) {
                    let _ = writeln!(
                        ptx,
                        ".reg .b64 {base}{width};\nmad.wide.u32 {base}{width}, row, {width}, {base};"
                    );
                }
            }
        }
        ptx += &self.body;
        ptx += "ret;\n}\n";
        let Kernel { grid, block, inputs, results, images, tensors, given, .. } = self;
        Case { name, ptx, grid, block, inputs, results, given, images, tensors }
    }
}
