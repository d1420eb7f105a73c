//! `cp.reduce.async.bulk` into global memory. All blocks of a grid reduce to the same place where
//! the order does not matter.

use super::{declare_barriers, declare_pool, fill, kernel, preset, publish};
use crate::case::Rule;
use crate::kernel::Kernel;
use crate::random::Random;
use crate::values::Values;

/// Operations, the values on which they work, and whether their order matters.
pub(super) const OPERATIONS: [(&str, Values, bool); 26] = [
    ("add.u32", Values::B32, false),
    ("add.s32", Values::B32, false),
    ("add.u64", Values::B64, false),
    ("add.noftz.f16", Values::F16x2, true),
    ("add.noftz.bf16", Values::Bf16x2, true),
    ("add.f32", Values::F32, true),
    ("add.f64", Values::F64, true),
    ("min.u32", Values::B32, false),
    ("min.s32", Values::B32, false),
    ("min.u64", Values::B64, false),
    ("min.s64", Values::B64, false),
    ("min.f16", Values::F16x2, true),
    ("min.bf16", Values::Bf16x2, true),
    ("max.u32", Values::B32, false),
    ("max.s32", Values::B32, false),
    ("max.u64", Values::B64, false),
    ("max.s64", Values::B64, false),
    ("max.f16", Values::F16x2, true),
    ("max.bf16", Values::Bf16x2, true),
    ("inc.u32", Values::B32, true),
    ("dec.u32", Values::B32, true),
    ("and.b32", Values::B32, false),
    ("or.b64", Values::B64, false),
    ("xor.b32", Values::B32, false),
    ("and.b64", Values::B64, false),
    ("xor.b64", Values::B64, false),
];

/// Bytes that are reduced.
const BYTES: usize = 1024;

pub(super) fn write(random: &mut Random) -> Kernel {
    let (operation, values, ordered) = *random.pick(&OPERATIONS);
    let (grid, block) = (if ordered { 1 } else { 1 + random.below(4) as u32 }, 128);
    let mut kernel = kernel(grid, 1, block);
    declare_pool(&mut kernel, BYTES);
    declare_barriers(&mut kernel, 1, 1);
    fill(&mut kernel, block, BYTES / 4, Some(values));
    publish(&mut kernel);
    let slot = kernel.slot("reduced", values, BYTES / values.bytes(), Rule::AnyNan);
    if ordered {
        preset(&mut kernel, (block, values), slot, BYTES);
    }
    let bytes = super::size(random, BYTES);
    let from = 16 * random.below((BYTES - bytes) / 16 + 1);
    let to = slot + 16 * random.below((BYTES - bytes) / 16 + 1);
    kernel.line(format!(
        "@first cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [out+{to}], [pool+{from}], {bytes};\n\
         @first cp.async.bulk.commit_group;\n@first cp.async.bulk.wait_group 0;"
    ));
    kernel
}
