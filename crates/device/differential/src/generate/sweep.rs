//! Every form of loads, stores, atomics and reductions. There are tens of thousands, most of which
//! differ only in qualifiers that have no effect for a thread with private memory. A program
//! therefore contains many forms, and a result is a digest of all values that a thread gets from a
//! group of instructions.
//!
//! A thread works on 16 private bytes with random contents, in the state space of the form.

use crate::case::{Case, Rule};
use crate::coverage::is_there;
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;
use ptx::forms::{self, Instance, Kind};
use ptx::{ScalarType, StateSpace};
use std::collections::{BTreeMap, HashSet};

const BLOCK: u32 = 32;

/// Instructions that one result sums up, and instructions of a program.
const GROUP: usize = 32;
const PROGRAM: usize = 64;

pub(super) fn generate(cases: &mut Vec<Case>) {
    for opcode in ["ld", "ldu", "st", "atom", "red"] {
        // By what the code around the instruction depends on. Loads of what nobody writes are a
        // kind of their own.
        let mut kinds: BTreeMap<String, Vec<Access>> = BTreeMap::new();
        let mut seen = HashSet::new();
        let instances = forms::of_opcode(opcode).iter().flat_map(|form| form.instances());
        for access in instances.filter(|instance| is_there(&instance.needs)).filter_map(Access::of) {
            if seen.insert(access.instance.mnemonic.clone()) {
                let kind = format!("sweep: {opcode} {}", access.window.name());
                kinds.entry(kind).or_default().push(access);
            }
        }
        for (kind, accesses) in kinds {
            for (number, accesses) in accesses.chunks(PROGRAM).enumerate() {
                let program = if accesses[0].window == Window::Param { parameters } else { program };
                cases.push(program(format!("{kind}/{number}"), accesses));
            }
        }
    }
}

/// The place of the thread's 16 bytes.
#[derive(Clone, Copy, PartialEq)]
enum Window {
    Global,
    /// Global memory that is only read.
    Input,
    Generic,
    Shared,
    Local,
    Const,
    /// The parameter of a function.
    Param,
    /// The parameter of the kernel.
    Entry,
}

impl Window {
    fn of(space: Option<StateSpace>) -> Option<Window> {
        Some(match space {
            None => Window::Generic,
            Some(StateSpace::Global) => Window::Global,
            Some(StateSpace::Local) => Window::Local,
            Some(StateSpace::Const) => Window::Const,
            Some(StateSpace::Param) => Window::Param,
            Some(space) if format!("{space:?}").starts_with("Shared") => Window::Shared,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Window::Global => "global",
            Window::Input => "input",
            Window::Generic => "generic",
            Window::Shared => "shared",
            Window::Local => "local",
            Window::Const => "const",
            Window::Param => "param",
            Window::Entry => "kernel parameter",
        }
    }

    /// The space of plain loads and stores there.
    fn space(self) -> &'static str {
        match self {
            Window::Global | Window::Input => ".global",
            Window::Generic => "",
            Window::Shared => ".shared",
            Window::Local => ".local",
            Window::Const => ".const",
            Window::Param | Window::Entry => ".param",
        }
    }
}

/// An instruction, taken apart.
struct Access {
    instance: Instance,
    window: Window,
    ty: ScalarType,
    elements: usize,
}

impl Access {
    fn of(instance: Instance) -> Option<Access> {
        let data = |kind: &Kind| match kind {
            Kind::Value { ty, .. } => Some((*ty, 1)),
            Kind::Vector(element, count) => match **element {
                Kind::Value { ty, .. } => Some((ty, *count)),
                _ => None,
            },
            _ => None,
        };
        let (ty, elements) = instance.operands.iter().find_map(|operand| data(&operand.kind))?;
        let space = instance.operands.iter().find_map(|operand| match &operand.kind {
            Kind::Address { space, .. } => Some(*space),
            _ => None,
        })?;
        // What is asynchronous has a program of its own.
        let plain = !instance.mnemonic.contains(".async");
        let entry = instance.mnemonic.contains("param::entry");
        let is_cached = instance.mnemonic.contains(".nc") || instance.mnemonic.starts_with("ldu");
        let window = match Window::of(space)? {
            _ if entry => Window::Entry,
            Window::Global if is_cached => Window::Input,
            window => window,
        };
        plain.then_some(Access { instance, window, ty, elements })
    }

    /// Registers of the elements: their declared type and prefix.
    fn class(&self) -> (&'static str, &'static str) {
        match self.ty.bytes() {
            1 | 2 => ("b16", "%h"),
            4 => ("b32", "%r"),
            8 => ("b64", "%d"),
            _ => ("b128", "%q"),
        }
    }
}

/// The program's registers that [`Kernel`] does not count: for elements, and what they are summed
/// up in.
const REGISTERS: &str = ".reg .b64 address, sum, low, high, first, second, more, policy;\n\
    .reg .b128 quad, q0, q1, q2;\n.reg .b64 d0, d1, d2, d3, e0, e1, e2, e3, f0;\n\
    .reg .b32 r0, r1, r2, r3, s0, s1, s2, s3, t0;\n\
    .reg .b16 h0, h1, h2, h3, h4, h5, h6, h7, i0, i1, i2, i3, i4, i5, i6, i7, j0;\n";

fn program(name: String, accesses: &[Access]) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.set_target("9.0", "sm_90");
    kernel.declarations += REGISTERS;
    let window = accesses[0].window;
    place(&mut kernel, window);
    kernel.line("createpolicy.fractional.L2::evict_last.b64 policy, 1.0;");
    for (number, group) in accesses.chunks(GROUP).enumerate() {
        kernel.line("mov.b64 sum, 0;");
        for access in group {
            write(&mut kernel, access);
        }
        kernel.store(&format!("from {}", GROUP * number), Values::B64, Rule::Exact, "sum");
    }
    kernel.finish(name)
}

/// Puts the address of the thread's 16 bytes into `address`, and random bits into `first`, `second`
/// and the bytes.
fn place(kernel: &mut Kernel, window: Window) {
    let inputs = [0, 1].map(|_| kernel.load(Values::B64));
    kernel
        .line(format!("mov.b64 first, {};\nmov.b64 second, {};\nmov.b64 more, first;", inputs[0], inputs[1]));
    match window {
        Window::Param => return,
        Window::Input => {
            let column = kernel.column(Values::B64, 2 * BLOCK as usize);
            return kernel
                .line(format!("mad.wide.u32 address, row, 16, in;\nadd.u64 address, address, {column};"));
        }
        Window::Entry => {
            let mut random = Random::named("given");
            kernel.give([random.next(), random.next()]);
            return kernel.line("mov.u64 address, given;");
        }
        Window::Global | Window::Generic => {
            // A column that only this program looks at.
            let slot = kernel.slot("16 bytes", Values::B64, 2 * BLOCK as usize, Rule::Exact);
            kernel.line(format!("mad.wide.u32 address, row, 16, out;\nadd.u64 address, address, {slot};"));
            if window == Window::Generic {
                kernel.line("cvta.global.u64 address, address;");
            }
        }
        Window::Shared => {
            kernel.declarations += &format!(".shared .align 16 .b8 pool[{}];\n", 16 * BLOCK);
            kernel.line("mov.u64 address, pool;\nmad.wide.u32 address, thread, 16, address;");
        }
        Window::Local => {
            kernel.declarations += ".local .align 16 .b8 own[16];\n";
            kernel.line("mov.u64 address, own;");
        }
        Window::Const => {
            let mut random = Random::named("sweep");
            let bytes: Vec<String> = (0..16 * BLOCK).map(|_| (random.next() as u8).to_string()).collect();
            kernel.module +=
                &format!(".const .align 16 .b8 pool[{}] = {{{}}};\n", 16 * BLOCK, bytes.join(", "));
            kernel.line("mov.u64 address, pool;\nmad.wide.u32 address, thread, 16, address;");
        }
    }
    if window != Window::Const {
        kernel.line(format!("st{}.v2.b64 [address], {{first, second}};", window.space()));
    }
}

/// Adds a value to the sum, in which its place among others counts.
const SUM: &str = "mad.lo.u64 sum, sum, 6364136223846793005, low;";

/// Writes an instruction, and what shows its effect.
fn write(kernel: &mut Kernel, access: &Access) {
    let mnemonic = &access.instance.mnemonic;
    let is_load = mnemonic.starts_with("ld");
    if !is_load {
        operands(kernel, access);
    }
    let mut texts = Vec::new();
    let mut sources = ["1", "2"].into_iter();
    for operand in access.instance.operands.iter().filter(|operand| !operand.optional) {
        texts.push(match &operand.kind {
            Kind::Address { .. } => "[address]".to_owned(),
            Kind::Value { ty: ScalarType::B64, .. } if operand.name == "p" => "policy".to_owned(),
            _ if operand.is_written() => elements(access, "0"),
            _ => elements(access, sources.next().unwrap_or("2")),
        });
    }
    kernel.line(format!("{mnemonic} {};", texts.join(", ")));
    if mnemonic.starts_with("ld") || mnemonic.starts_with("atom") {
        add_elements(kernel, access);
    }
    if !is_load {
        kernel.line(format!(
            "ld{}.v2.b64 {{low, high}}, [address];\n{SUM}\nmov.b64 low, high;\n{SUM}",
            access.window.space()
        ));
    }
}

/// Names of the registers of a set: `0` is what is read, `1` and `2` are operands.
fn names(access: &Access, set: &str) -> Vec<String> {
    let letter = match (access.class().0, set) {
        ("b16", "0") => "h",
        ("b16", "1") => "i",
        ("b16", _) => "j",
        ("b32", "0") => "r",
        ("b32", "1") => "s",
        ("b32", _) => "t",
        ("b64", "0") => "d",
        ("b64", "1") => "e",
        ("b64", _) => "f",
        _ => return vec![format!("q{set}")],
    };
    (0..access.elements).map(|index| format!("{letter}{index}")).collect()
}

fn elements(access: &Access, set: &str) -> String {
    match names(access, set).as_slice() {
        [one] => one.clone(),
        several => format!("{{{}}}", several.join(", ")),
    }
}

/// Gives operands values that depend on the thread's and change from instruction to instruction.
/// Operands of floating-point sums are small integers, so that no NaN comes up: the 16 bytes are
/// set to such, too.
fn operands(kernel: &mut Kernel, access: &Access) {
    let space = access.window.space();
    kernel.line("mul.lo.u64 more, more, 6364136223846793005;\nadd.u64 more, more, 1442695040888963407;");
    let sets: &[&str] = if access.elements == 1 { &["1", "2"] } else { &["1"] };
    let computes =
        access.instance.mnemonic.starts_with("atom") || access.instance.mnemonic.starts_with("red");
    if computes && !is_whole(access.ty) {
        let (shift, cell) = small(access.ty);
        kernel.line(format!("st{space}.v2.b64 [address], {{{cell}, {cell}}};"));
        for (index, name) in names(access, "1").iter().enumerate() {
            kernel.line(format!("shr.u64 low, more, {};\nand.b64 low, low, {shift};", 8 + index));
            kernel.line(format!("or.b64 low, low, {cell};"));
            narrow(kernel, access, name);
        }
        return;
    }
    for set in sets {
        for (index, name) in names(access, set).iter().enumerate() {
            let (shift, mask) = (3 * index + 1, if *set == "1" { "first" } else { "second" });
            kernel.line(format!("shr.u64 low, more, {shift};\nxor.b64 low, low, {mask};"));
            narrow(kernel, access, name);
        }
    }
    // Every second time a comparison finds what it is looking for.
    if access.instance.mnemonic.contains(".cas") {
        let register = &names(access, "1")[0];
        kernel.line(format!(
            "{{ .reg .pred even; .reg .b64 odd;\nand.b64 odd, more, 65536;\nsetp.eq.u64 even, odd, 0;\n@even \
             ld{space}.b{} {register}, [address];\n}}",
            8 * access.ty.bytes()
        ));
    }
}

fn is_whole(ty: ScalarType) -> bool {
    use ScalarType::*;
    !matches!(ty, F16 | F16x2 | Bf16 | Bf16x2 | F32 | F64)
}

/// Small numbers of a floating-point type: the bits that may vary, and a number that has none of
/// them, over 64 bits.
fn small(ty: ScalarType) -> (&'static str, &'static str) {
    use ScalarType::*;
    match ty {
        // 1 to 1.875 in steps of 1/8, and negative.
        F16 | F16x2 => ("0x8380838083808380", "0x3c003c003c003c00"),
        Bf16 | Bf16x2 => ("0x8070807080708070", "0x3f803f803f803f80"),
        F32 => ("0x8070000080700000", "0x3f8000003f800000"),
        _ => ("0x800e000000000000", "0x3ff0000000000000"),
    }
}

/// Moves the bits in `low` to a register of an operand.
fn narrow(kernel: &mut Kernel, access: &Access, name: &str) {
    kernel.line(match access.class().0 {
        "b16" => format!("cvt.u16.u64 {name}, low;"),
        "b32" => format!("cvt.u32.u64 {name}, low;"),
        "b64" => format!("mov.b64 {name}, low;"),
        _ => format!("mov.b128 {name}, {{low, more}};"),
    });
}

/// Adds what was read to the sum.
fn add_elements(kernel: &mut Kernel, access: &Access) {
    for name in names(access, "0") {
        match access.class().0 {
            "b16" => kernel.line(format!("cvt.u64.u16 low, {name};\n{SUM}")),
            "b32" => kernel.line(format!("cvt.u64.u32 low, {name};\n{SUM}")),
            "b64" => kernel.line(format!("mov.b64 low, {name};\n{SUM}")),
            _ => kernel.line(format!("mov.b128 {{low, high}}, {name};\n{SUM}\nmov.b64 low, high;\n{SUM}")),
        }
    }
}

/// Loads by functions from their parameter, and stores by the kernel to the parameter of a function
/// that returns it.
fn parameters(name: String, accesses: &[Access]) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.set_target("9.0", "sm_90");
    kernel.declarations += REGISTERS;
    place(&mut kernel, Window::Param);
    let is_load = accesses[0].instance.mnemonic.starts_with("ld");
    if !is_load {
        kernel.module += "\
            .func (.param .align 16 .b8 given[16]) echo(.param .align 16 .b8 taken[16])\n{\n.reg .b64 low, \
            high;\nld.param.v2.b64 {low, high}, [taken];\nst.param.v2.b64 [given], {low, high};\nret;\n}\n";
    }
    for (number, group) in accesses.chunks(GROUP).enumerate() {
        kernel.line("mov.b64 sum, 0;");
        if is_load {
            kernel.module += &loader(number, group);
            kernel.line(format!(
                "{{\n.param .align 16 .b8 passed[16];\n.param .b64 got;\nst.param.v2.b64 [passed], {{first, second}};\ncall \
                 (got), load{number}, (passed);\nld.param.b64 sum, [got];\n}}"
            ));
        } else {
            group.iter().for_each(|access| store_parameter(&mut kernel, access));
        }
        kernel.store(&format!("from {}", GROUP * number), Values::B64, Rule::Exact, "sum");
    }
    kernel.finish(name)
}

/// A function that sums up what the forms of a group load from its parameter.
fn loader(number: usize, group: &[Access]) -> String {
    let mut body = Kernel::new(1, BLOCK);
    for access in group {
        body.line(format!("{} {}, [taken];", access.instance.mnemonic, elements(access, "0")));
        add_elements(&mut body, access);
    }
    format!(
        ".func (.param .b64 given) load{number}(.param .align 16 .b8 taken[16])\n{{\n{REGISTERS}mov.b64 sum, \
         0;\n{}st.param.b64 [given], sum;\nret;\n}}\n",
        body.body()
    )
}

fn store_parameter(kernel: &mut Kernel, access: &Access) {
    kernel.line("mul.lo.u64 more, more, 6364136223846793005;\nadd.u64 more, more, 1442695040888963407;");
    let names = names(access, "1");
    for (index, name) in names.iter().enumerate() {
        kernel.line(format!("shr.u64 low, more, {};", 3 * index + 1));
        narrow(kernel, access, name);
    }
    // No two stores overlap: what is left of the first would be nobody's promise. What the form
    // leaves of the lower half is masked.
    let bits = 8 * access.ty.bytes() * access.elements as u64;
    let rest = if bits < 128 { "st.param.b64 [passed+8], second;\n" } else { "" };
    let mask = if bits < 64 { format!("and.b64 low, low, {};\n", (1u64 << bits) - 1) } else { String::new() };
    kernel.line(format!(
        "{{\n.param .align 16 .b8 passed[16];\n.param .align 16 .b8 got[16];\n{rest}{} [passed], {};\ncall (got), echo, \
         (passed);\nld.param.v2.b64 {{low, high}}, [got];\n}}\n{mask}{SUM}\nmov.b64 low, high;\n{SUM}",
        access.instance.mnemonic,
        elements(access, "1")
    ));
}
