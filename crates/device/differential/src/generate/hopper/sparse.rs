//! Products in which A has two of each four elements, or one of each two: `mma.sp` and `wgmma.sp`.

use super::super::matrices::{braces, operand, result};
use super::groups::Layout;
use super::{declare_pool, fill, kernel, publish};
use crate::case::Rule;
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;

/// Products of a warp: shape, types, registers of A and B, of C and D, and the largest selector of
/// the lanes that hold the metadata.
const WARPS: [(&str, &[&str], usize, usize, usize); 18] = [
    ("m16n8k16", &["f16", "f16", "f16", "f16"], 2, 2, 1),
    ("m16n8k16", &["f32", "f16", "f16", "f32"], 2, 4, 1),
    ("m16n8k16", &["f32", "bf16", "bf16", "f32"], 2, 4, 1),
    ("m16n8k32", &["f16", "f16", "f16", "f16"], 4, 2, 1),
    ("m16n8k32", &["f32", "f16", "f16", "f32"], 4, 4, 1),
    ("m16n8k32", &["f32", "bf16", "bf16", "f32"], 4, 4, 1),
    ("m16n8k8", &["f32", "tf32", "tf32", "f32"], 2, 4, 1),
    ("m16n8k16", &["f32", "tf32", "tf32", "f32"], 4, 4, 1),
    ("m16n8k32", &["s32", "s8", "u8", "s32"], 2, 4, 1),
    ("m16n8k64", &["s32", "u8", "s8", "s32"], 4, 4, 0),
    ("m16n8k64", &["s32", "s4", "u4", "s32"], 2, 4, 1),
    ("m16n8k128", &["s32", "u4", "s4", "s32"], 4, 4, 0),
    ("m16n8k64", &["f32", "e4m3", "e5m2", "f32"], 4, 4, 0),
    ("m16n8k64", &["f32", "e5m2", "e4m3", "f32"], 4, 4, 0),
    ("m16n8k32", &["s32", "s8", "s8", "s32"], 2, 4, 1),
    ("m16n8k64", &["s32", "s8", "s8", "s32"], 4, 4, 0),
    ("m16n8k64", &["s32", "s4", "s4", "s32"], 2, 4, 1),
    ("m16n8k128", &["s32", "s4", "s4", "s32"], 4, 4, 0),
];

/// Products of a warp group: elements of a line of B, types of the sum, A and B, bits of an
/// element, and the largest selector.
const GROUPS: [(usize, &str, &str, &str, usize, usize); 9] = [
    (32, "f32", "f16", "f16", 16, 1),
    (32, "f16", "f16", "f16", 16, 1),
    (32, "f32", "bf16", "bf16", 16, 1),
    (16, "f32", "tf32", "tf32", 32, 1),
    (64, "f32", "e4m3", "e5m2", 8, 0),
    (64, "f16", "e5m2", "e4m3", 8, 0),
    (64, "s32", "s8", "s8", 8, 0),
    (64, "s32", "u8", "u8", 8, 0),
    (64, "s32", "s8", "u8", 8, 0),
];

/// The metadata of a type of A.
fn places(ty: &str) -> Values {
    if ty == "tf32" { Values::Sparse1of2 } else { Values::Sparse2of4 }
}

/// What is compared of a sum: every bit, but NaNs are alike.
fn sum(ty: &str) -> (Values, Rule) {
    let (values, _) = result(ty, true);
    (values, if ty == "s32" { Rule::Exact } else { Rule::AnyNan })
}

pub(super) fn write(random: &mut Random) -> Kernel {
    if random.below(2) == 0 { warp(random) } else { group(random) }
}

fn warp(random: &mut Random) -> Kernel {
    let (shape, types, factors, sums, selector) = *random.pick(&WARPS);
    let [d, a, b, c] = types else { unreachable!("a product has four types") };
    let mut kernel = kernel(1, 1, 64);
    let exact = random.once_in(3);
    let mut fragment = |ty: &str, count: usize| -> Vec<String> {
        (0..count).map(|_| kernel.load(operand(ty, exact))).collect()
    };
    let (a_registers, b_registers, c_registers) =
        (fragment(a, factors), fragment(b, factors), fragment(c, sums));
    let metadata = kernel.load(places(a));
    let sparse = *random.pick(&["sp", "sp::ordered_metadata"]);
    let saturates = if *d == "s32" && random.below(2) == 0 { ".satfinite" } else { "" };
    let (values, rule) = sum(d);
    let results: Vec<String> = (0..sums).map(|_| kernel.register(32)).collect();
    kernel.line(format!(
        "mma.{sparse}.sync.aligned.{shape}.row.col{saturates}.{d}.{a}.{b}.{c} {}, {}, {}, {}, {metadata}, {};",
        braces(&results),
        braces(&a_registers),
        braces(&b_registers),
        braces(&c_registers),
        random.below(selector + 1)
    ));
    for (at, register) in results.iter().enumerate() {
        kernel.store(&format!("d{at}"), values, rule, register);
    }
    kernel
}

/// Any layout of this many lines of this many elements at `start`.
fn layout(random: &mut Random, bits: usize, (lines, length): (usize, usize), start: usize) -> Layout {
    let bytes = bits / 8;
    let across = bits == 16 && random.below(2) == 0;
    let line = if across { lines } else { length } * bytes;
    // Without `across`, a line lies in one permutation, or in parts of 16 bytes.
    let fits = |width: &usize| line.is_multiple_of(*width) && (across || *width == 16 || *width >= line);
    let widths: Vec<usize> = [16, 32, 64, 128].into_iter().filter(fits).collect();
    Layout { lines, length, bytes, width: *random.pick(&widths), across, start }
}

fn group(random: &mut Random) -> Kernel {
    let (k, d, a, b, bits, selector) = *random.pick(&GROUPS);
    let exact = random.once_in(3);
    let n = 8 * *random.pick(&[1, 2, 4, 8]);
    let mut kernel = kernel(1, 1, 128);
    let in_registers = random.once_in(3);
    let first = layout(random, bits, (64, k / 2), 0);
    let behind = if in_registers { 0 } else { first.bytes().next_multiple_of(1024) };
    let second = layout(random, bits, (n, k), behind);
    let room = (second.start + second.bytes()).next_multiple_of(1024);
    declare_pool(&mut kernel, room);
    let values = operand(if random.below(2) == 0 { a } else { b }, exact);
    fill(&mut kernel, 128, room / 4, Some(values));
    publish(&mut kernel);
    let (sum_values, rule) = sum(d);
    let registers: Vec<String> =
        (0..if d == "f16" { n / 4 } else { n / 2 }).map(|_| kernel.load(operand(d, exact))).collect();
    let given: Vec<String> = (0..if in_registers { 4 } else { 0 }).map(|_| kernel.load(values)).collect();
    let metadata = kernel.load(places(a));
    let ((a_fields, a_start), (b_fields, b_start)) = (first.descriptor(k / 2, 0), second.descriptor(k, 0));
    kernel.declarations += ".reg .b64 base, da, db;\n.reg .b32 base32;\n.reg .pred adds;\n";
    let source = if in_registers { braces(&given) } else { "da".to_owned() };
    let flags = match (d, bits, in_registers) {
        ("s32", ..) => String::new(),
        (_, 16, true) => format!(", 1, 1, {}", u8::from(second.across)),
        (_, 16, false) => format!(", 1, 1, {}, {}", u8::from(first.across), u8::from(second.across)),
        _ => ", 1, 1".to_owned(),
    };
    kernel.line(format!(
        "mov.u32 base32, pool;\nand.b32 base32, base32, 0x3ffff;\nshr.u32 base32, base32, 4;\ncvt.u64.u32 base, base32;\n\
         wgmma.fence.sync.aligned;\nadd.u64 da, base, {};\nor.b64 da, da, {a_fields:#x};\nadd.u64 db, base, {};\nor.b64 db, db, \
         {b_fields:#x};\nsetp.ne.u32 adds, {}, 0;\nwgmma.mma_async.sp.sync.aligned.m64n{n}k{k}.{d}.{a}.{b} {}, {source}, db, \
         {metadata}, {}, adds{flags};\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;",
        a_start / 16,
        b_start / 16,
        random.below(2),
        braces(&registers),
        random.below(selector + 1)
    ));
    for (at, register) in registers.iter().enumerate() {
        kernel.store(&format!("d{at}"), sum_values, rule, register);
    }
    kernel
}
