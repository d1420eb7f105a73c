//! Matrix instructions: `mma`, `wmma`, and the loads, stores and transposes of their fragments.
//!
//! The order in which a matrix instruction adds is open. Each form runs on small integers, whose sums are exact in any
//! order, and, where it computes in floating point, on numbers between -1 and 1 within an absolute bound: at most 17
//! terms of magnitude at most 1, each off by no more than the rounding that the ISA states for the accumulator.

use super::expand;
use crate::case::{Case, Rule};
use crate::kernel::Kernel;
use crate::values::Values;

/// `mma` forms: pattern; registers of A, of B, of C and D; target.
const MMA: [(&str, usize, usize, usize, &str); 23] = [
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
];

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

/// Warps in the grid: two blocks of two.
const WARPS: usize = 4;

pub(super) fn generate(cases: &mut Vec<Case>) {
    for (pattern, a, b, c, target) in MMA {
        for form in expand(&format!("mma.sync.aligned.{pattern}")) {
            cases.push(mma(&form, [a, b, c], target, true));
            if is_float(&form) {
                cases.push(mma(&form, [a, b, c], target, false));
            }
        }
    }
    for (shape, ab, cd, registers) in WMMA {
        for form in expand(&format!("{{row,col}}.{{row,col}}.{shape}")) {
            let packed = matches!(ab, "s4" | "u4" | "b1");
            if packed && !form.starts_with("row.col") {
                continue;
            }
            cases.push(wmma(&form, shape, ab, cd, registers, true));
            if is_float(ab) {
                cases.push(wmma(&form, shape, ab, cd, registers, false));
            }
        }
    }
    for form in expand("ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans,}.shared.b16") {
        cases.push(load_matrix(&form));
    }
    for form in expand("stmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans,}.shared.b16") {
        cases.push(store_matrix(&form));
    }
    cases.push(transpose());
    cases.dedup_by(|a, b| a.name == b.name);
}

fn is_float(form: &str) -> bool {
    form.contains("f16") || form.contains("tf32") || form.contains("f64")
}

/// What fragments of a type are filled with.
fn operand(ty: &str, exact: bool) -> Values {
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
        _ => Values::B32,
    }
}

/// What results of a type are, and how far apart they may be.
fn result(ty: &str, exact: bool) -> (Values, Rule) {
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

fn braces(registers: &[String]) -> String {
    format!("{{{}}}", registers.join(", "))
}

fn mma(form: &str, [a, b, c]: [usize; 3], target: &'static str, exact: bool) -> Case {
    let mut kernel = Kernel::new(2, 64);
    kernel.set_target("8.0", target);
    let types: Vec<&str> = form
        .split('.')
        .skip(3)
        .filter(|word| *word != "satfinite" && *word != "xor" && *word != "and" && *word != "popc")
        .collect();
    let [.., d_type, a_type, b_type, c_type] = types.as_slice() else {
        unreachable!("{form} has four types")
    };
    let mut fragment = |ty: &str, count: usize| -> Vec<String> {
        (0..count).map(|_| kernel.load(operand(ty, exact))).collect()
    };
    let (a, b, c) = (fragment(a_type, a), fragment(b_type, b), fragment(c_type, c));
    let (values, rule) = result(d_type, exact);
    let d: Vec<String> = c.iter().map(|_| kernel.register(8 * values.bytes())).collect();
    kernel.line(format!("{form} {}, {}, {}, {};", braces(&d), braces(&a), braces(&b), braces(&c)));
    // The result takes the place of the accumulator.
    kernel.line(format!("{form} {}, {}, {}, {};", braces(&c), braces(&a), braces(&b), braces(&c)));
    for (index, register) in d.iter().enumerate() {
        kernel.store(&format!("d{index}"), values, rule, register);
    }
    for (index, register) in c.iter().enumerate() {
        kernel.store(&format!("in place: d{index}"), values, rule, register);
    }
    kernel.finish(format!("{form}/{}", if exact { "integers" } else { "units" }))
}

/// Rows, columns and depth of a shape.
fn sizes(shape: &str) -> [usize; 3] {
    let mut numbers = shape.split(['m', 'n', 'k']).skip(1).map(|number| number.parse().unwrap_or(0));
    [0; 3].map(|_| numbers.next().unwrap_or(0))
}

/// Loads fragments from global memory, multiplies, stores the result: what fragments look like inside is nobody's
/// business.
fn wmma(form: &str, shape: &str, ab: &str, cd: &str, registers: [usize; 3], exact: bool) -> Case {
    let mut kernel = Kernel::new(2, 64);
    let [m, n, k] = sizes(shape);
    let mut layouts = form.split('.');
    let (a_layout, b_layout) = (layouts.next().unwrap_or("row"), layouts.next().unwrap_or("col"));
    let bits = match ab {
        "b1" => 1,
        "s4" | "u4" => 4,
        "s8" | "u8" => 8,
        "f16" | "bf16" => 16,
        "tf32" => 32,
        _ => 64,
    };
    let width = if ab == "f64" { 64 } else { 32 };
    let (values, rule) = result(cd, exact);
    let accumulator = operand(cd, exact);
    let accumulator = if cd == "s32" { Values::B32 } else { accumulator };
    let columns = [
        kernel.column(operand(ab, exact), WARPS * m * k * bits / width),
        kernel.column(operand(ab, exact), WARPS * k * n * bits / width),
        // Two halves to a cell in `.f16`.
        kernel.column(accumulator, WARPS * m * n / if cd == "f16" { 2 } else { 1 }),
    ];
    let cd_bytes = match cd {
        "f16" => 2,
        "f64" => 8,
        _ => 4,
    };
    let slot = kernel.slot("D", values, WARPS * m * n * cd_bytes / values.bytes(), rule);
    let warp = kernel.register(32);
    let addresses = [0, 1, 2, 3].map(|_| kernel.register(64));
    kernel.line(format!("shr.u32 {warp}, row, 5;"));
    for (address, (base, start, bytes)) in addresses.iter().zip([
        ("in", columns[0], m * k * bits / 8),
        ("in", columns[1], k * n * bits / 8),
        ("in", columns[2], m * n * cd_bytes),
        ("out", slot, m * n * cd_bytes),
    ]) {
        kernel.line(format!(
            "mad.wide.u32 {address}, {warp}, {bytes}, {base};\nadd.u64 {address}, {address}, {start};"
        ));
    }
    let fragment_width = |ty: &str| if ty == "f64" { 64 } else { 32 };
    let mut fragment = |ty: &str, count: usize| -> Vec<String> {
        (0..count).map(|_| kernel.register(fragment_width(ty))).collect()
    };
    let [a, b] = [fragment(ab, registers[0]), fragment(ab, registers[1])];
    let [c, d] = [fragment(cd, registers[2]), fragment(cd, registers[2])];
    let (a_stride, b_stride) = (if a_layout == "row" { k } else { m }, if b_layout == "row" { n } else { k });
    let operation = match ab {
        "b1" => format!("wmma.mma.xor.popc.sync.aligned.row.col.{shape}.s32.b1.b1.s32"),
        "f16" => format!("wmma.mma.sync.aligned.{a_layout}.{b_layout}.{shape}.{cd}.{cd}"),
        "f64" => format!("wmma.mma.sync.aligned.{a_layout}.{b_layout}.{shape}.rn.f64.f64.f64.f64"),
        _ => format!("wmma.mma.sync.aligned.{a_layout}.{b_layout}.{shape}.{cd}.{ab}.{ab}.{cd}"),
    };
    kernel.line(format!(
        "wmma.load.a.sync.aligned.{a_layout}.{shape}.global.{ab} {}, [{}], {a_stride};\nwmma.load.b.sync.aligned.\
         {b_layout}.{shape}.global.{ab} {}, [{}], {b_stride};\nwmma.load.c.sync.aligned.row.{shape}.global.{cd} {}, [{}], \
         {n};\n{operation} {}, {}, {}, {};\nwmma.store.d.sync.aligned.row.{shape}.global.{cd} [{}], {}, {n};",
        braces(&a), addresses[0], braces(&b), addresses[1], braces(&c), addresses[2], braces(&d), braces(&a), braces(&b),
        braces(&c), addresses[3], braces(&d),
    ));
    kernel.finish(format!("{operation}/{}", if exact { "integers" } else { "units" }))
}

/// How many matrices a form moves.
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
    kernel.line(format!(
        "mov.u64 {mine}, pool;\nmad.wide.u32 {mine}, thread, 16, {mine};\nmov.b64 {low}, -1;\nst.shared.v2.b64 [{mine}], \
         {{{low}, {low}}};\nbar.sync 0;\nxor.b32 {index}, thread, 21;\nmov.u64 {to}, pool;\nmad.wide.u32 {to}, {index}, 16, \
         {to};\n{form} [{to}], {};\nbar.sync 0;\nld.shared.v2.b64 {{{low}, {high}}}, [{mine}];\nmad.wide.u32 {to}, row, 16, \
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
