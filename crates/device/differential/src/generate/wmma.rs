//! `wmma`: fragments loaded from memory, multiplied, and the result stored.
//!
//! The layout of fragments is undefined, so one program holds the whole of loading, multiplying and
//! storing. As for `mma`, there are small integers, whose sums are exact in any order, and numbers
//! between -1 and 1 within a bound.

use super::matrices::{braces, is_float, operand, result};
use crate::case::Case;
use crate::kernel::Kernel;
use crate::values::Values;

/// `wmma` forms: types of A and B, of C and D; registers of A, of B, of C and D for each shape.
const WMMA: [(&str, &str, &str, [usize; 3]); 20] = [
    ("m16n16k16", "f16", "f32", [8, 8, 8]),
    ("m32n8k16", "f16", "f32", [8, 8, 8]),
    ("m8n32k16", "f16", "f32", [8, 8, 8]),
    ("m16n16k16", "f16", "f16", [8, 8, 4]),
    ("m32n8k16", "f16", "f16", [8, 8, 4]),
    ("m8n32k16", "f16", "f16", [8, 8, 4]),
    ("m16n16k16", "bf16", "f32", [4, 4, 8]),
    ("m32n8k16", "bf16", "f32", [8, 2, 8]),
    ("m8n32k16", "bf16", "f32", [2, 8, 8]),
    ("m16n16k8", "tf32", "f32", [4, 4, 8]),
    ("m8n8k4", "f64", "f64", [1, 1, 2]),
    ("m16n16k16", "s8", "s32", [2, 2, 8]),
    ("m32n8k16", "s8", "s32", [4, 1, 8]),
    ("m8n32k16", "s8", "s32", [1, 4, 8]),
    ("m16n16k16", "u8", "s32", [2, 2, 8]),
    ("m32n8k16", "u8", "s32", [4, 1, 8]),
    ("m8n32k16", "u8", "s32", [1, 4, 8]),
    ("m8n8k32", "s4", "s32", [1, 1, 2]),
    ("m8n8k32", "u4", "s32", [1, 1, 2]),
    ("m8n8k128", "b1", "s32", [1, 1, 2]),
];

pub(super) fn generate(cases: &mut Vec<Case>) {
    for (shape, ab, cd, registers) in WMMA {
        let plain = Wmma { shape, ab, c: cd, d: cd, registers, ..PLAIN };
        for (a_layout, b_layout) in LAYOUTS {
            let packed = matches!(ab, "s4" | "u4" | "b1");
            if packed && (a_layout, b_layout) != ("row", "col") {
                continue;
            }
            let plain = Wmma { a_layout, b_layout, ..plain };
            variants(&plain, cases);
        }
    }
    cases.dedup_by(|a, b| a.name == b.name);
}

/// The program of a form with other places, layouts, accumulators and endings.
fn variants(plain: &Wmma, cases: &mut Vec<Case>) {
    let mut add = |wmma: Wmma, exact: bool| cases.push(wmma.case(exact));
    add(*plain, true);
    let float = is_float(plain.ab);
    if float {
        add(*plain, false);
    }
    add(Wmma { cd_layout: "col", ..*plain }, true);
    for (space, cd_layout) in
        [("shared", "row"), ("shared", "col"), ("shared::cta", "row"), ("shared::cta", "col")]
            .into_iter()
            .chain([("", "row"), ("", "col")])
    {
        add(Wmma { space, cd_layout, strides: cd_layout == "row", ..*plain }, true);
    }
    if plain.ab == "f16" {
        // Each accumulator's registers are as many as its type needs.
        let other = if plain.d == "f16" { "f32" } else { "f16" };
        for exact in [true, false] {
            add(Wmma { c: other, ..*plain }, exact);
        }
    }
    match plain.ab {
        "f64" => {
            for ending in ["", ".rz", ".rm", ".rp"] {
                add(Wmma { ending, ..*plain }, true);
                add(Wmma { ending, ..*plain }, false);
            }
        }
        "b1" => add(Wmma { ending: "and", ..*plain }, true),
        "s8" | "u8" | "s4" | "u4" => add(Wmma { ending: ".satfinite", ..*plain }, true),
        _ => {}
    }
}

const LAYOUTS: [(&str, &str); 4] = [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")];

/// A program: what is multiplied, and where it lies.
#[derive(Clone, Copy)]
struct Wmma {
    shape: &'static str,
    /// Type of A and B, and of both accumulators.
    ab: &'static str,
    c: &'static str,
    d: &'static str,
    /// Registers of A, of B, and of an accumulator of type `d`.
    registers: [usize; 3],
    a_layout: &'static str,
    b_layout: &'static str,
    cd_layout: &'static str,
    /// `global`, `shared`, `shared::cta`, or nothing for generic addresses.
    space: &'static str,
    /// Whether loads and stores say how far rows are apart.
    strides: bool,
    /// Rounding, saturation, or the operation on bits.
    ending: &'static str,
}

const PLAIN: Wmma = Wmma {
    shape: "",
    ab: "",
    c: "",
    d: "",
    registers: [0; 3],
    a_layout: "row",
    b_layout: "col",
    cd_layout: "row",
    space: "global",
    strides: true,
    ending: "plain",
};

fn bits(ty: &str) -> usize {
    match ty {
        "b1" => 1,
        "s4" | "u4" => 4,
        "s8" | "u8" => 8,
        "f16" | "bf16" => 16,
        "f64" => 64,
        _ => 32,
    }
}

fn registers(kernel: &mut Kernel, ty: &str, count: usize) -> Vec<String> {
    (0..count).map(|_| kernel.register(if ty == "f64" { 64 } else { 32 })).collect()
}

impl Wmma {
    /// The multiplication's mnemonic.
    fn operation(&self) -> String {
        let Wmma { shape, ab, c, d, a_layout, b_layout, ending, .. } = *self;
        let start = format!("wmma.mma.sync.aligned.{a_layout}.{b_layout}.{shape}");
        let ending = if ending == "plain" { "" } else { ending };
        match ab {
            "b1" => {
                let operation = if ending.is_empty() { "xor" } else { ending };
                format!("wmma.mma.{operation}.popc.sync.aligned.row.col.{shape}.s32.b1.b1.s32")
            }
            "f16" => format!("{start}.{d}.{c}"),
            "f64" if self.ending == "plain" => format!("{start}.rn.f64.f64.f64.f64"),
            "f64" => format!("{start}{ending}.f64.f64.f64.f64"),
            _ => format!("{start}.{d}.{ab}.{ab}.{c}{ending}"),
        }
    }

    fn name(&self, exact: bool) -> String {
        let place = match (self.space, self.cd_layout) {
            ("global", "row") => String::new(),
            ("", layout) => format!(", generic {layout}"),
            (space, layout) => format!(", {space} {layout}"),
        };
        format!("{}/{}{place}", self.operation(), if exact { "integers" } else { "units" })
    }

    /// Returns the values of the columns of A, B, C and D, and the bytes of each matrix.
    fn matrices(&self, exact: bool) -> [(Values, usize); 4] {
        let [m, n, k] = sizes(self.shape);
        let accumulator = |ty| if ty == "s32" { Values::B32 } else { operand(ty, exact) };
        [
            (operand(self.ab, exact), m * k * bits(self.ab) / 8),
            (operand(self.ab, exact), k * n * bits(self.ab) / 8),
            (accumulator(self.c), m * n * bits(self.c) / 8),
            (result(self.d, exact).0, m * n * bits(self.d) / 8),
        ]
    }

    fn case(&self, exact: bool) -> Case {
        // Two blocks of two warps, or one where it is about loads and stores.
        let mut kernel =
            Kernel::new(if (self.space, self.cd_layout) == ("global", "row") { 2 } else { 1 }, 64);
        let warps = kernel.threads() / 32;
        let [m, n, k] = sizes(self.shape);
        let matrices = self.matrices(exact);
        let mut starts: Vec<(&str, usize)> = matrices[..3]
            .iter()
            .map(|(values, bytes)| ("in", kernel.column(*values, warps * bytes / values.bytes())))
            .collect();
        let (values, bytes) = matrices[3];
        starts
            .push(("out", kernel.slot("D", values, warps * bytes / values.bytes(), result(self.d, exact).1)));
        let warp = kernel.register(32);
        let addresses = [0, 1, 2, 3].map(|_| kernel.register(64));
        kernel.line(format!("shr.u32 {warp}, row, 5;"));
        for ((address, (base, start)), (_, bytes)) in addresses.iter().zip(&starts).zip(matrices) {
            kernel.line(format!(
                "mad.wide.u32 {address}, {warp}, {bytes}, {base};\nadd.u64 {address}, {address}, {start};"
            ));
        }
        let near = self.near(&mut kernel, &addresses, &matrices);
        let [a, b] = [(self.ab, self.registers[0]), (self.ab, self.registers[1])]
            .map(|(ty, count)| registers(&mut kernel, ty, count));
        let count = |ty: &str| self.registers[2] * bits(ty) / bits(self.d);
        let [c, d] = [self.c, self.d].map(|ty| registers(&mut kernel, ty, count(ty)));
        let Wmma { shape, ab, a_layout, b_layout, cd_layout, .. } = *self;
        let dot = if self.space.is_empty() { String::new() } else { format!(".{}", self.space) };
        let stride = |count: usize| if self.strides { format!(", {count}") } else { String::new() };
        kernel.line(format!(
            "wmma.load.a.sync.aligned.{a_layout}.{shape}{dot}.{ab} {}, [{}]{};",
            braces(&a),
            near[0],
            stride(if a_layout == "row" { k } else { m })
        ));
        kernel.line(format!(
            "wmma.load.b.sync.aligned.{b_layout}.{shape}{dot}.{ab} {}, [{}]{};",
            braces(&b),
            near[1],
            stride(if b_layout == "row" { n } else { k })
        ));
        let cd_stride = stride(if cd_layout == "row" { n } else { m });
        kernel.line(format!(
            "wmma.load.c.sync.aligned.{cd_layout}.{shape}{dot}.{} {}, [{}]{cd_stride};\n{} {}, {}, {}, \
             {};\nwmma.store.d.sync.aligned.{cd_layout}.{shape}{dot}.{} [{}], {}{cd_stride};",
            self.c,
            braces(&c),
            near[2],
            self.operation(),
            braces(&d),
            braces(&a),
            braces(&b),
            braces(&c),
            self.d,
            near[3],
            braces(&d),
        ));
        if near[3] != addresses[3] && self.space.starts_with("shared") {
            kernel.line("bar.warp.sync -1;");
            copy(&mut kernel, &near[3], &addresses[3], matrices[3].1, ("shared", "global"));
        }
        kernel.finish(self.name(exact))
    }

    /// Addresses of the matrices in the space of the form; in shared memory they are copied there.
    fn near(&self, kernel: &mut Kernel, far: &[String; 4], matrices: &[(Values, usize); 4]) -> [String; 4] {
        if self.space == "global" {
            return far.clone();
        }
        let near = [0, 1, 2, 3].map(|_| kernel.register(64));
        if self.space.is_empty() {
            for (near, far) in near.iter().zip(far) {
                kernel.line(format!("cvta.global.u64 {near}, {far};"));
            }
            return near;
        }
        let warp: usize = matrices.iter().map(|(_, bytes)| bytes.next_multiple_of(32)).sum();
        kernel.declarations += &format!(".shared .align 32 .b8 pool[{}];\n", 2 * warp);
        let own = kernel.register(32);
        let mut start = 0;
        kernel.line(format!("shr.u32 {own}, thread, 5;"));
        for (index, (near, (_, bytes))) in near.iter().zip(matrices).enumerate() {
            kernel.line(format!("mov.u64 {near}, pool;\nmad.wide.u32 {near}, {own}, {warp}, {near};"));
            kernel.line(format!("add.u64 {near}, {near}, {start};"));
            start += bytes.next_multiple_of(32);
            if index < 3 {
                copy(kernel, &far[index], near, *bytes, ("global", "shared"));
            }
        }
        kernel.line("bar.warp.sync -1;");
        near
    }
}

/// Copies `bytes` bytes from one space to another, a warp together.
fn copy(kernel: &mut Kernel, from: &str, to: &str, bytes: usize, (read, written): (&str, &str)) {
    let (source, target, word) = (kernel.register(64), kernel.register(64), kernel.register(32));
    let takes_part = kernel.register(1);
    kernel.line(format!(
        "mad.wide.u32 {source}, lane, 4, {from};\nmad.wide.u32 {target}, lane, 4, {to};\nsetp.lt.u32 {takes_part}, lane, {};",
        bytes / 4
    ));
    for start in (0..bytes).step_by(128) {
        kernel.line(format!(
            "@{takes_part} ld.{read}.u32 {word}, [{source}+{start}];\n@{takes_part} st.{written}.u32 [{target}+{start}], \
             {word};"
        ));
    }
}

/// Rows, columns and depth of a shape.
fn sizes(shape: &str) -> [usize; 3] {
    let mut numbers = shape.split(['m', 'n', 'k']).skip(1).map(|number| number.parse().unwrap_or(0));
    [0; 3].map(|_| numbers.next().unwrap_or(0))
}
