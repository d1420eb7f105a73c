//! Matrix instructions: `mma`, and the loads, stores and transposes of its fragments.
//!
//! The order in which a matrix instruction adds is open. Each form runs on small integers, whose
//! sums are exact in any order, and, where it computes in floating point, on numbers between -1 and
//! 1 within an absolute bound: at most 17 terms of magnitude at most 1, each off by no more than
//! the rounding that the ISA states for the accumulator.

use super::expand;
use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::values::Values;

/// `mma` forms: pattern; registers of A, of B, of C and D; target.
const MMA: [(&str, usize, usize, usize, &str); 29] = [
    ("m16n8k8.row.col.f32.f16.f16.f32", 2, 1, 4, "sm_80"),
    ("m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4, "sm_80"),
    ("m16n8k8.row.col.f16.f16.f16.f16", 2, 1, 2, "sm_80"),
    ("m16n8k16.row.col.f16.f16.f16.f16", 4, 2, 2, "sm_80"),
    ("m16n8k8.row.col.f32.bf16.bf16.f32", 2, 1, 4, "sm_80"),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, 4, "sm_80"),
    ("m16n8k4.row.col.f32.tf32.tf32.f32", 2, 1, 4, "sm_80"),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, 4, "sm_80"),
    ("m8n8k4.{row,col}.{row,col}.f16.f16.f16.f16", 2, 2, 4, "sm_80"),
    ("m8n8k4.{row,col}.{row,col}.f32.f16.f16.f32", 2, 2, 8, "sm_80"),
    ("m8n8k4.row.col.f64.f64.f64.f64", 1, 1, 2, "sm_80"),
    ("m16n8k4.row.col.f64.f64.f64.f64", 2, 1, 4, "sm_90"),
    ("m16n8k8.row.col.f64.f64.f64.f64", 4, 2, 4, "sm_90"),
    ("m16n8k16.row.col.f64.f64.f64.f64", 8, 4, 4, "sm_90"),
    ("m8n8k16.row.col{.satfinite,}.s32.{s8,u8}.{s8,u8}.s32", 1, 1, 2, "sm_80"),
    ("m16n8k16.row.col{.satfinite,}.s32.{s8,u8}.{s8,u8}.s32", 2, 1, 4, "sm_80"),
    ("m16n8k32.row.col{.satfinite,}.s32.{s8,u8}.{s8,u8}.s32", 4, 2, 4, "sm_80"),
    ("m8n8k32.row.col{.satfinite,}.s32.{s4,u4}.{s4,u4}.s32", 1, 1, 2, "sm_80"),
    ("m16n8k32.row.col{.satfinite,}.s32.{s4,u4}.{s4,u4}.s32", 2, 1, 4, "sm_80"),
    ("m16n8k64.row.col{.satfinite,}.s32.{s4,u4}.{s4,u4}.s32", 4, 2, 4, "sm_80"),
    ("m8n8k128.row.col.s32.b1.b1.s32.{xor,and}.popc", 1, 1, 2, "sm_80"),
    ("m16n8k128.row.col.s32.b1.b1.s32.{xor,and}.popc", 2, 1, 4, "sm_80"),
    ("m16n8k256.row.col.s32.b1.b1.s32.{xor,and}.popc", 4, 2, 4, "sm_80"),
    ("m8n8k4.row.col.{rn,rz,rm,rp}.f64.f64.f64.f64", 1, 1, 2, "sm_80"),
    ("m16n8k4.row.col.{rn,rz,rm,rp}.f64.f64.f64.f64", 2, 1, 4, "sm_90"),
    ("m16n8k8.row.col.{rn,rz,rm,rp}.f64.f64.f64.f64", 4, 2, 4, "sm_90"),
    ("m16n8k16.row.col.{rn,rz,rm,rp}.f64.f64.f64.f64", 8, 4, 4, "sm_90"),
    ("m16n8k16.row.col.f32.{e4m3,e5m2}.{e4m3,e5m2}.f32", 2, 1, 4, "sm_90"),
    ("m16n8k32.row.col.f32.{e4m3,e5m2}.{e4m3,e5m2}.f32", 4, 2, 4, "sm_90"),
];

pub(super) fn generate(cases: &mut Vec<Case>) {
    for (pattern, a, b, c, target) in MMA {
        for form in expand(&format!("mma.sync.aligned.{pattern}")) {
            cases.push(mma(&form, [a, b, c], target, true));
            if is_float(&form) {
                cases.push(mma(&form, [a, b, c], target, false));
            }
        }
    }
    for pattern in [
        "m16n8k16.row.col.f16.{e4m3,e5m2}.{e4m3,e5m2}.f16",
        "m16n8k32.row.col.f16.{e4m3,e5m2}.{e4m3,e5m2}.f16",
    ] {
        let [a, b] = if pattern.starts_with("m16n8k16") { [2, 1] } else { [4, 2] };
        for form in expand(&format!("mma.sync.aligned.{pattern}")) {
            cases.extend([true, false].map(|exact| mma(&form, [a, b, 2], "sm_90", exact)));
        }
    }
    for form in expand("mma.sync.aligned.m8n8k4.{row,col}.{row,col}.f32.f16.f16.f16") {
        cases.extend([true, false].map(|exact| mma(&form, [2, 2, 4], "sm_80", exact)));
    }
    for form in expand("ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans,}{.shared,.shared::cta,}.b16") {
        cases.push(load_matrix(&form));
    }
    for form in expand("stmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans,}{.shared,.shared::cta,}.b16") {
        cases.push(store_matrix(&form));
    }
    cases.push(transpose());
    cases.dedup_by(|a, b| a.name == b.name);
}

pub(super) fn is_float(form: &str) -> bool {
    ["f16", "tf32", "f64", "e4m3", "e5m2"].iter().any(|ty| form.contains(ty))
}

/// Returns the values with which fragments of a type are filled.
pub(super) fn operand(ty: &str, exact: bool) -> Values {
    match (ty, exact) {
        ("f16", true) => Values::SmallF16x2,
        ("f16", false) => Values::UnitF16x2,
        ("bf16", true) => Values::SmallBf16x2,
        ("bf16", false) => Values::UnitBf16x2,
        ("tf32", true) => Values::SmallTf32,
        ("tf32", false) => Values::UnitTf32,
        ("f32", true) => Values::SmallF32,
        ("f32", false) => Values::UnitF32,
        ("f64", true) => Values::SmallF64,
        ("f64", false) => Values::UnitF64,
        ("e4m3", true) => Values::SmallE4m3x4,
        ("e4m3", false) => Values::UnitE4m3x4,
        ("e5m2", true) => Values::SmallE5m2x4,
        ("e5m2", false) => Values::UnitE5m2x4,
        _ => Values::B32,
    }
}

/// Returns the values of results of a type, and their allowed difference.
pub(super) fn result(ty: &str, exact: bool) -> (Values, Rule) {
    let (values, absolute) = match ty {
        // Sums below 18; the largest step of the format there is 2^-6.
        "f16" => (Values::F16x2, 2f64.powi(-6)),
        "f32" => (Values::F32, 2f64.powi(-18)),
        "f64" => (Values::F64, 2f64.powi(-47)),
        _ => (Values::B32, 0.0),
    };
    match absolute {
        0.0 => (values, Rule::Exact),
        // Sums of small integers are exact but for the sign of zero, which is open.
        absolute => (values, Rule::Near { relative: 0.0, absolute: if exact { 0.0 } else { absolute } }),
    }
}

pub(super) fn braces(registers: &[String]) -> String {
    format!("{{{}}}", registers.join(", "))
}

fn mma(form: &str, [a, b, c]: [usize; 3], target: &'static str, exact: bool) -> Case {
    let mut kernel = Kernel::new(2, 64);
    let version = if form.contains(".e4m3") || form.contains(".e5m2") { "8.7" } else { "8.0" };
    kernel.set_target(version, target);
    let types: Vec<&str> = form
        .split('.')
        .skip(3)
        .filter(|word| !["satfinite", "xor", "and", "popc", "rn", "rz", "rm", "rp"].contains(word))
        .collect();
    let [.., d_type, a_type, b_type, c_type] = types.as_slice() else {
        unreachable!("{form} has four types")
    };
    let mut fragment = |ty: &str, count: usize| -> Vec<String> {
        (0..count).map(|_| kernel.load(operand(ty, exact))).collect()
    };
    let (a, b, c) = (fragment(a_type, a), fragment(b_type, b), fragment(c_type, c));
    let (values, rule) = result(d_type, exact);
    // Two halves to a register in `.f16`.
    let registers = if c_type != d_type { 2 * c.len() } else { c.len() };
    let d: Vec<String> = (0..registers).map(|_| kernel.register(8 * values.bytes())).collect();
    kernel.line(format!("{form} {}, {}, {}, {};", braces(&d), braces(&a), braces(&b), braces(&c)));
    for (index, register) in d.iter().enumerate() {
        kernel.store(&format!("d{index}"), values, rule, register);
    }
    if c_type != d_type {
        return kernel.finish(format!("{form}/{}", if exact { "integers" } else { "units" }));
    }
    // The result takes the place of the accumulator.
    kernel.line(format!("{form} {}, {}, {}, {};", braces(&c), braces(&a), braces(&b), braces(&c)));
    for (index, register) in c.iter().enumerate() {
        kernel.store(&format!("in place: d{index}"), values, rule, register);
    }
    kernel.finish(format!("{form}/{}", if exact { "integers" } else { "units" }))
}

/// Returns the number of matrices that a form moves.
fn matrices(form: &str) -> usize {
    [1, 2, 4].into_iter().find(|count| form.contains(&format!(".x{count}"))).unwrap_or(1)
}

const ROWS: usize = 32;

/// Each warp loads from 32 rows of 16 bytes in shared memory, in an order of its own.
fn load_matrix(form: &str) -> Case {
    let mut kernel = Kernel::new(2, 64);
    kernel.declarations += &format!(".shared .align 16 .b8 pool[{}];\n", 2 * 16 * ROWS);
    let column = kernel.column(Values::B64, 2 * kernel.threads());
    let [from, to] = [0, 1].map(|_| kernel.register(64));
    let [low, high] = [0, 1].map(|_| kernel.register(64));
    let index = kernel.register(32);
    kernel.line(format!(
        "mad.wide.u32 {from}, row, 16, in;\nadd.u64 {from}, {from}, {column};\nmov.u64 {to}, pool;\nmad.wide.u32 {to}, \
         thread, 16, {to};\nld.global.v2.b64 {{{low}, {high}}}, [{from}];\nst.shared.v2.b64 [{to}], {{{low}, \
         {high}}};\nbar.sync 0;\nmad.lo.u32 {index}, thread, 29, 7;\nand.b32 {index}, {index}, 63;\nmov.u64 {to}, \
         pool;\nmad.wide.u32 {to}, {index}, 16, {to};"
    ));
    if !form.contains(".shared") {
        kernel.line(format!("cvta.shared.u64 {to}, {to};"));
    }
    let registers: Vec<String> = (0..matrices(form)).map(|_| kernel.register(32)).collect();
    kernel.line(format!("{form} {}, [{to}];", braces(&registers)));
    for (index, register) in registers.iter().enumerate() {
        kernel.store(&format!("matrix {index}"), Values::B32, Rule::Exact, register);
    }
    kernel.finish(format!("{form}/0"))
}

fn store_matrix(form: &str) -> Case {
    let mut kernel = Kernel::new(2, 64);
    kernel.set_target("8.0", "sm_90");
    kernel.declarations += &format!(".shared .align 16 .b8 pool[{}];\n", 2 * 16 * ROWS);
    let registers: Vec<String> = (0..matrices(form)).map(|_| kernel.load(Values::B32)).collect();
    let slot = kernel.slot("rows", Values::B64, 2 * kernel.threads(), Rule::Exact);
    let [to, mine] = [0, 1].map(|_| kernel.register(64));
    let [low, high] = [0, 1].map(|_| kernel.register(64));
    let index = kernel.register(32);
    let generic =
        if form.contains(".shared") { String::new() } else { format!("cvta.shared.u64 {to}, {to};\n") };
    kernel.line(format!(
        "mov.u64 {mine}, pool;\nmad.wide.u32 {mine}, thread, 16, {mine};\nmov.b64 {low}, -1;\nst.shared.v2.b64 [{mine}], \
         {{{low}, {low}}};\nbar.sync 0;\nxor.b32 {index}, thread, 21;\nmov.u64 {to}, pool;\nmad.wide.u32 {to}, {index}, 16, \
         {to};\n{generic}{form} [{to}], {};\nbar.sync 0;\nld.shared.v2.b64 {{{low}, {high}}}, [{mine}];\nmad.wide.u32 {to}, row, 16, \
         out;\nst.global.v2.b64 [{to}+{slot}], {{{low}, {high}}};",
        braces(&registers)
    ));
    kernel.finish(format!("{form}/0"))
}

fn transpose() -> Case {
    let mut kernel = Kernel::new(2, 64);
    let value = kernel.load(Values::B32);
    let moved = kernel.register(32);
    let form = "movmatrix.sync.aligned.m8n8.trans.b16";
    kernel.line(format!("{form} {moved}, {value};"));
    kernel.store("transposed", Values::B32, Rule::Exact, &moved);
    kernel.finish(format!("{form}/0"))
}
