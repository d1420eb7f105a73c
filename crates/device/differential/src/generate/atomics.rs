//! Atomics and reductions: alone on a cell, where old and new value are compared, and many threads
//! on few cells, where the operation commutes and only what is left counts.

use super::expand;
use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::values::Values;

const BLOCK: u32 = 64;

/// Cells that threads contend for.
const CELLS: usize = 8;

/// Operations with their types; what is needed beyond `sm_80` follows the `@`.
const OPERATIONS: [&str; 12] = [
    "add.{u32,s32,u64,f32,f64}",
    "add.noftz.{f16,f16x2}",
    "add.noftz.{bf16,bf16x2}@sm_90",
    "min.{u32,s32,u64,s64}",
    "max.{u32,s32,u64,s64}",
    "and.{b32,b64}",
    "or.{b32,b64}",
    "xor.{b32,b64}",
    "inc.u32",
    "dec.u32",
    "exch.{b32,b64}",
    "cas.{b16,b32,b64}",
];

pub(super) fn generate(cases: &mut Vec<Case>) {
    for line in OPERATIONS {
        let (pattern, target) = line.split_once('@').unwrap_or((line, "sm_80"));
        for operation in expand(pattern) {
            for space in ["global", "shared", ""] {
                cases.push(alone(&operation, space, "", target));
                cases.push(many(&operation, space, target));
            }
        }
    }
    for order in expand("{.relaxed,.acquire,.release,.acq_rel}{.cta,.gpu,.sys}") {
        for operation in ["add.u32", "cas.b64", "exch.b32"] {
            cases.push(alone(operation, "global", &order, "sm_80"));
        }
    }
    for operation in
        expand("add.{v2,v4}.f32").into_iter().chain(expand("{add,min,max}.noftz.{v2,v4,v8}.{f16,bf16}"))
    {
        cases.push(vector(&operation));
    }
    for operation in expand("{add,min,max}.noftz.{v2,v4}.{f16x2,bf16x2}") {
        cases.push(vector(&operation));
    }
    for space in ["global", "shared", ""] {
        cases.extend([quad("exch", space), quad("cas", space)]);
    }
    cases.retain(|case| !case.ptx.is_empty());
}

/// The type of an operation's cells: contended floating-point sums have operands whose sums are
/// exact.
fn values(operation: &str, exact: bool) -> Values {
    match operation.rsplit('.').next().unwrap_or("") {
        "f32" if exact => Values::SmallF32,
        "f64" if exact => Values::SmallF64,
        "f16x2" if exact => Values::SmallF16x2,
        "bf16x2" if exact => Values::SmallBf16x2,
        "f32" => Values::F32,
        "f64" => Values::F64,
        "f16" => Values::F16,
        "bf16" => Values::Bf16,
        "f16x2" => Values::F16x2,
        "bf16x2" => Values::Bf16x2,
        "b16" => Values::B16,
        "u64" | "s64" | "b64" => Values::B64,
        _ => Values::B32,
    }
}

fn dotted(space: &str) -> String {
    if space.is_empty() { String::new() } else { format!(".{space}") }
}

/// Each thread on a cell of its own: the value before, and the one after.
fn alone(operation: &str, space: &str, order: &str, target: &'static str) -> Case {
    let mut kernel = Kernel::new(2, BLOCK);
    kernel.set_target("8.0", target);
    let values = values(operation, false);
    let width = values.bytes();
    let rule = if matches!(values, Values::F64) { Rule::AnyNan } else { Rule::Exact };
    let (start, operand) = (kernel.load(values), kernel.load(values));
    let operands = match operation.starts_with("cas") {
        true => format!("{operand}, {}", kernel.load(values)),
        false => operand,
    };
    let slot = kernel.slot("after", values, kernel.threads(), rule);
    let cell = kernel.register(64);
    match space {
        "shared" => {
            kernel.declarations += &format!(".shared .align 8 .b8 pool[{}];\n", 8 * BLOCK);
            kernel.line(format!("mov.u64 {cell}, pool;\nmad.wide.u32 {cell}, thread, {width}, {cell};"));
        }
        _ => kernel.line(format!("mad.wide.u32 {cell}, row, {width}, out;\nadd.u64 {cell}, {cell}, {slot};")),
    }
    if space.is_empty() {
        kernel.line(format!("cvta.global.u64 {cell}, {cell};"));
    }
    let (old, after) = (kernel.register(8 * width), kernel.register(8 * width));
    let (bits, dot) = (8 * width, dotted(space));
    kernel.line(format!(
        "st{dot}.b{bits} [{cell}], {start};\natom{order}{dot}.{operation} {old}, [{cell}], {operands};\nld{dot}.b{bits} \
         {after}, [{cell}];"
    ));
    let register = kernel.register(64);
    kernel.line(format!(
        "mad.wide.u32 {register}, row, {width}, out;\nadd.u64 {register}, {register}, {slot};\nst.global.b{bits} \
         [{register}], {after};"
    ));
    kernel.store("before", values, rule, &old);
    kernel.finish(format!("atom{order}{dot}.{operation}/0"))
}

/// All threads of a block on few cells, by `red`. An empty program where the outcome would depend
/// on the order.
fn many(operation: &str, space: &str, target: &'static str) -> Case {
    let mut kernel = Kernel::new(1, 2 * BLOCK);
    kernel.set_target("8.0", target);
    let values = values(operation, true);
    let dot = dotted(space);
    let name = format!("red{dot}.{operation}/0");
    let commutes = !operation.starts_with("exch") && !operation.starts_with("cas");
    if !commutes || matches!(values, Values::F16 | Values::Bf16) {
        return Case { ptx: String::new(), ..kernel.finish(name) };
    }
    let (width, bits) = (values.bytes(), 8 * values.bytes());
    // Counters wrap at the same bound for all.
    let operand = match operation.starts_with("inc") || operation.starts_with("dec") {
        true => "5".to_owned(),
        false => kernel.load(values),
    };
    let choice = kernel.load(Values::Cell);
    let initial = kernel.column(values, CELLS);
    let slot = kernel.slot("cells", values, CELLS, Rule::Exact);
    let [cell, first, mine] = [0, 1, 2].map(|_| kernel.register(64));
    let is_owner = kernel.register(1);
    let value = kernel.register(bits);
    match space {
        "shared" => {
            kernel.declarations += &format!(".shared .align 8 .b8 pool[{}];\n", 8 * CELLS);
            kernel.line(format!("mov.u64 {first}, pool;"));
        }
        "" => kernel.line(format!("add.u64 {first}, out, {slot};\ncvta.global.u64 {first}, {first};")),
        _ => kernel.line(format!("add.u64 {first}, out, {slot};")),
    }
    kernel.line(format!(
        "setp.lt.u32 {is_owner}, thread, {CELLS};\nmad.wide.u32 {mine}, thread, {width}, in;\n@{is_owner} ld.global.b{bits} \
         {value}, [{mine}+{initial}];\nmad.wide.u32 {cell}, thread, {width}, {first};\n@{is_owner} st{dot}.b{bits} [{cell}], \
         {value};\nbar.sync 0;\nshr.u32 {choice}, {choice}, 2;\nand.b32 {choice}, {choice}, {};\nmad.wide.u32 {mine}, \
         {choice}, {width}, {first};\nred{dot}.{operation} [{mine}], {operand};\nbar.sync 0;\n@{is_owner} ld{dot}.b{bits} \
         {value}, [{cell}];\nmad.wide.u32 {mine}, thread, {width}, out;\n@{is_owner} st.global.b{bits} [{mine}+{slot}], \
         {value};",
        CELLS - 1
    ));
    kernel.finish(name)
}

/// Each thread on a vector of its own, with any bits: the values before, and those after.
fn vector(operation: &str) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.set_target("8.1", "sm_90");
    let values = values(operation, false);
    let bits = 8 * values.bytes();
    let count =
        [2usize, 4, 8].into_iter().find(|count| operation.contains(&format!(".v{count}"))).unwrap_or(1);
    let (starts, operands): (Vec<_>, Vec<_>) =
        (0..count).map(|_| (kernel.load(values), kernel.load(values))).unzip();
    let slot = kernel.slot("after", values, count * BLOCK as usize, Rule::Exact);
    let cell = kernel.register(64);
    kernel.line(format!(
        "mad.wide.u32 {cell}, row, {}, out;\nadd.u64 {cell}, {cell}, {slot};",
        count * bits / 8
    ));
    for (index, start) in starts.iter().enumerate() {
        kernel.line(format!("st.global.b{bits} [{cell}+{}], {start};", index * bits / 8));
    }
    let old: Vec<String> = (0..count).map(|_| kernel.register(bits)).collect();
    kernel.line(format!(
        "atom.global.{operation} {{{}}}, [{cell}], {{{}}};",
        old.join(", "),
        operands.join(", ")
    ));
    for (index, register) in old.iter().enumerate() {
        kernel.store(&format!("before: {index}"), values, Rule::Exact, register);
    }
    kernel.finish(format!("atom.global.{operation}/0"))
}

/// 128 bits at once; every second comparison finds what it is looking for.
fn quad(operation: &str, space: &str) -> Case {
    let mut kernel = Kernel::new(1, BLOCK);
    kernel.set_target("8.4", "sm_90");
    kernel.declarations += ".reg .b128 start, given, other, old;\n";
    let halves: Vec<String> = (0..6).map(|_| kernel.load(Values::B64)).collect();
    let slot = kernel.slot("after", Values::B64, 2 * BLOCK as usize, Rule::Exact);
    let [cell, place, low, high] = [0, 1, 2, 3].map(|_| kernel.register(64));
    let (odd, bit) = (kernel.register(1), kernel.register(32));
    kernel.line(format!(
        "mov.b128 start, {{{}, {}}};\nmov.b128 given, {{{}, {}}};\nmov.b128 other, {{{}, {}}};\nand.b32 {bit}, thread, \
         1;\nsetp.ne.u32 {odd}, {bit}, 0;\n@{odd} mov.b128 given, start;\nmad.wide.u32 {place}, row, 16, out;\nadd.u64 \
         {place}, {place}, {slot};",
        halves[0], halves[1], halves[2], halves[3], halves[4], halves[5]
    ));
    match space {
        "shared" => {
            kernel.declarations += &format!(".shared .align 16 .b8 pool[{}];\n", 16 * BLOCK);
            kernel.line(format!("mov.u64 {cell}, pool;\nmad.wide.u32 {cell}, thread, 16, {cell};"));
        }
        "global" => kernel.line(format!("mov.u64 {cell}, {place};")),
        _ => kernel.line(format!("cvta.global.u64 {cell}, {place};")),
    }
    let dot = dotted(space);
    let operands = if operation == "cas" { "given, other" } else { "given" };
    kernel.line(format!(
        "st{dot}.b128 [{cell}], start;\natom{dot}.{operation}.b128 old, [{cell}], {operands};\nld{dot}.v2.b64 {{{low}, \
         {high}}}, [{cell}];\nst.global.v2.b64 [{place}], {{{low}, {high}}};\nmov.b128 {{{low}, {high}}}, old;"
    ));
    kernel.store("before: low", Values::B64, Rule::Exact, &low);
    kernel.store("before: high", Values::B64, Rule::Exact, &high);
    kernel.finish(format!("atom{dot}.{operation}.b128/0"))
}
