//! `wgmma`: products of warp groups on any factors in shared memory or registers.
//!
//! The order in which the sums are added is open; within the formats it is what an H200 does that
//! is compared, bit by bit, as for `mma`.

use super::{declare_pool, fill, kernel, publish};
use crate::case::Rule;
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;

/// Bytes of shared memory.
const ROOM: usize = 40 << 10;

/// Types: of the sum, of A and B, elements of a line of both, bits of an element, and the values of
/// factors (the first are drawn more often).
struct Types {
    sum: &'static str,
    factors: &'static [(&'static str, &'static [Values])],
    k: usize,
    bits: usize,
    /// What the shape says of k, and the modifiers at the end.
    shape_k: usize,
    end: &'static str,
}

const HALVES: &[Values] = &[Values::UnitF16x2, Values::UnitF16x2, Values::SmallF16x2, Values::F16x2];
const BRAINS: &[Values] = &[Values::UnitBf16x2, Values::UnitBf16x2, Values::SmallBf16x2, Values::Bf16x2];
const TENSORS: &[Values] =
    &[Values::UnitTf32, Values::UnitTf32, Values::SmallTf32, Values::Tf32, Values::UnitF32];
const E4M3: &[Values] = &[Values::UnitE4m3x4, Values::UnitE4m3x4, Values::SmallE4m3x4, Values::B32];
const E5M2: &[Values] = &[Values::UnitE5m2x4, Values::UnitE5m2x4, Values::SmallE5m2x4, Values::B32];
const BYTES: &[Values] = &[Values::B32];

const TYPES: [Types; 9] = [
    Types { sum: "f32", factors: &[("f16", HALVES)], k: 16, bits: 16, shape_k: 16, end: "" },
    Types { sum: "f16", factors: &[("f16", HALVES)], k: 16, bits: 16, shape_k: 16, end: "" },
    Types { sum: "f32", factors: &[("bf16", BRAINS)], k: 16, bits: 16, shape_k: 16, end: "" },
    Types { sum: "f32", factors: &[("tf32", TENSORS)], k: 8, bits: 32, shape_k: 8, end: "" },
    Types { sum: "f32", factors: &[("e4m3", E4M3), ("e5m2", E5M2)], k: 32, bits: 8, shape_k: 32, end: "" },
    Types { sum: "f16", factors: &[("e4m3", E4M3), ("e5m2", E5M2)], k: 32, bits: 8, shape_k: 32, end: "" },
    Types { sum: "s32", factors: &[("s8", BYTES), ("u8", BYTES)], k: 32, bits: 8, shape_k: 32, end: "" },
    Types {
        sum: "s32",
        factors: &[("s8", BYTES), ("u8", BYTES)],
        k: 32,
        bits: 8,
        shape_k: 32,
        end: ".satfinite",
    },
    // 32 bytes of bits.
    Types { sum: "s32", factors: &[("b1", BYTES)], k: 32, bits: 8, shape_k: 256, end: ".and.popc" },
];

/// A factor in shared memory: how it lies there.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Lines: rows of A, columns of B.
    pub(super) lines: usize,
    /// Elements along k of all steps.
    pub(super) length: usize,
    pub(super) bytes: usize,
    /// Bytes of a line of the permutation: 16 without.
    pub(super) width: usize,
    /// Whether the elements along k are apart.
    pub(super) across: bool,
    /// Where it begins in the pool.
    pub(super) start: usize,
}

impl Layout {
    /// The descriptor of a step without its start, and its start.
    pub(super) fn descriptor(&self, k: usize, step: usize) -> (u64, usize) {
        let (width, eight) = (self.width, 8 * self.width);
        // Bytes of a part: all lines of one width.
        let part = if self.across { self.length * width } else { self.lines * width };
        let along = step * k * self.bytes;
        let (start, leading, stride) = match (self.across, width) {
            (false, 16) => (along / 16 * part, part, eight),
            (false, _) => (along / width * part + along % width, 16, eight),
            (true, 16) => (step * k * width, eight, part),
            (true, _) => (step * k * width, part, eight),
        };
        let swizzle = match width {
            128 => 1u64,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        let fields = swizzle << 62 | (stride as u64 / 16) << 32 | (leading as u64 / 16) << 16;
        (fields, self.start + start)
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        let (across, along) = if self.across { (self.lines, self.length) } else { (self.length, self.lines) };
        (across * self.bytes).next_multiple_of(self.width) * along.next_multiple_of(8)
    }
}

/// Any layout of this many lines at `start`.
fn layout(random: &mut Random, types: &Types, lines: usize, steps: usize, start: usize) -> Layout {
    let (bytes, length) = (types.bits / 8, types.k * steps);
    let across = types.bits == 16 && random.below(2) == 0;
    let most = if across { lines * bytes } else { length * bytes };
    let widths: Vec<usize> =
        [16, 32, 64, 128].into_iter().filter(|width| most.is_multiple_of(*width)).collect();
    let width = *random.pick(&widths);
    Layout { lines, length, bytes, width, across, start }
}

pub(super) fn write(random: &mut Random) -> Kernel {
    let types = random.pick(&TYPES);
    let is_integer = types.sum == "s32";
    let multiples = if is_integer {
        &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32][..]
    } else {
        &[1, 2, 3, 4, 5, 7, 8, 11, 16, 32][..]
    };
    // Small ones more often.
    let n = 8 * multiples[random.below(multiples.len()).min(random.below(multiples.len()))];
    let most = (ROOM / 2 / (n.max(64) * types.k * types.bits / 8)).min(4);
    let steps = 1 + random.below(most.max(1));
    let (a_type, a_values) = *random.pick(types.factors);
    let (b_type, b_values) = *random.pick(types.factors);
    let choices = if random.below(2) == 0 { a_values } else { b_values };
    let values = *random.pick(choices);
    let block = 128 * (1 + u32::from(random.once_in(8)));
    let mut kernel = kernel(1, 1, block);
    let in_registers = random.once_in(3);
    let a = layout(random, types, 64, steps, 0);
    let behind = if in_registers { 0 } else { a.bytes() };
    let b = layout(random, types, n, steps, behind.next_multiple_of(1024));
    declare_pool(&mut kernel, ROOM);
    fill(&mut kernel, block, (b.start + b.bytes()).div_ceil(4).next_multiple_of(2), Some(values));
    publish(&mut kernel);
    let registers = if types.sum == "f16" { n / 4 } else { n / 2 };
    let sum = sums(&mut kernel, random, types, registers);
    products(&mut kernel, random, types, (a_type, b_type), n, steps, (a, b, in_registers, values), &sum);
    let (values, rule) = match types.sum {
        "f32" => (Values::F32, Rule::AnyNan),
        "f16" => (Values::F16x2, Rule::AnyNan),
        _ => (Values::B32, Rule::Exact),
    };
    for (at, register) in sum.iter().enumerate() {
        kernel.store(&format!("d{at}"), values, rule, register);
    }
    kernel
}

/// The registers of the sum with what is in them before.
fn sums(kernel: &mut Kernel, random: &mut Random, types: &Types, count: usize) -> Vec<String> {
    let values = match types.sum {
        "f32" => *random.pick(&[Values::UnitF32, Values::SmallF32, Values::F32]),
        "f16" => *random.pick(&[Values::UnitF16x2, Values::SmallF16x2, Values::F16x2]),
        _ => Values::B32,
    };
    let registers: Vec<String> = (0..count).map(|_| kernel.register(32)).collect();
    let rows = kernel.threads();
    let start = kernel.column(values, rows * 2);
    for (at, register) in registers.iter().enumerate() {
        kernel.line(format!("ld.global.b32 {register}, [in4+{}];", start + 4 * (at * 7 % rows)));
    }
    registers
}

#[allow(clippy::too_many_arguments, reason = "an instruction has as many choices")]
fn products(
    kernel: &mut Kernel,
    random: &mut Random,
    types: &Types,
    (a_type, b_type): (&str, &str),
    n: usize,
    steps: usize,
    (a, b, in_registers, values): (Layout, Layout, bool, Values),
    sum: &[String],
) {
    let given: Vec<String> =
        (0..if in_registers { 4 * steps } else { 0 }).map(|_| kernel.load(values)).collect();
    kernel.declarations += ".reg .b64 base, da, db;\n.reg .b32 base32;\n.reg .pred adds;\n";
    kernel.line(
        "mov.u32 base32, pool;\nand.b32 base32, base32, 0x3ffff;\nshr.u32 base32, base32, 4;\ncvt.u64.u32 base, base32;\n\
         wgmma.fence.sync.aligned;",
    );
    for step in 0..steps {
        let (a_fields, a_start) = a.descriptor(types.k, step);
        let (b_fields, b_start) = b.descriptor(types.k, step);
        let adds = u8::from(step > 0 || random.below(2) == 0);
        kernel.line(format!(
            "add.u64 da, base, {};\nor.b64 da, da, {a_fields:#x};\nadd.u64 db, base, {};\nor.b64 db, db, {b_fields:#x};\nsetp.ne.u32 \
             adds, {adds}, 0;",
            a_start / 16,
            b_start / 16
        ));
        let first = match in_registers {
            true => super::super::matrices::braces(&given[4 * step..4 * step + 4]),
            false => "da".to_owned(),
        };
        let flags = flags(random, types, (&a, &b, in_registers));
        kernel.line(format!(
            "wgmma.mma_async.sync.aligned.m64n{n}k{}.{}.{a_type}.{b_type}{} {}, {first}, db, adds{flags};",
            types.shape_k,
            types.sum,
            types.end,
            super::super::matrices::braces(sum)
        ));
    }
    kernel.line("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
}

/// The operands at the end: signs of A and B, and which of them lies across.
fn flags(random: &mut Random, types: &Types, (a, b, in_registers): (&Layout, &Layout, bool)) -> String {
    let sign = |random: &mut Random| if random.once_in(4) { "-1" } else { "1" };
    let mut flags = String::new();
    if types.sum != "s32" {
        flags += &format!(", {}, {}", sign(random), sign(random));
    }
    if types.bits == 16 {
        if !in_registers {
            flags += &format!(", {}", u8::from(a.across));
        }
        flags += &format!(", {}", u8::from(b.across));
    }
    flags
}
