//! `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor` of boxes to global memory. A GPU traps
//! on coordinates below 0, and on pixels (`im2col_no_offs`).

use super::tensors::{BOX, any, bytes, coordinates, place, values};
use super::{POOL, declare_barriers, declare_pool, fill, kernel, preset, publish};
use crate::case::Rule;
use crate::kernel::Kernel;
use crate::random::Random;
use crate::tensor::{Buffer, Element, Tensor};

/// Types of elements, and the operations that reductions have on them.
const ELEMENTS: [(Element, &[&str]); 10] = [
    (Element::U8, &[]),
    (Element::U16, &[]),
    (Element::U32, &["add", "min", "max", "inc", "dec", "and", "or", "xor"]),
    (Element::S32, &["add", "min", "max", "and", "or", "xor"]),
    (Element::U64, &["add", "min", "max", "and", "or", "xor"]),
    (Element::S64, &["min", "max"]),
    (Element::F16, &["add", "min", "max"]),
    (Element::Bf16, &["add", "min", "max"]),
    (Element::F32, &["add"]),
    (Element::F64, &[]),
];

pub(super) fn write(random: &mut Random) -> Kernel {
    let (element, operations) = *random.pick(&ELEMENTS);
    let block = 128;
    let mut kernel = kernel(1, 1, block);
    let tensor = any(random, element);
    let values = values(element);
    let rows = bytes(&tensor).next_multiple_of(16) / values.bytes();
    declare_pool(&mut kernel, POOL);
    declare_barriers(&mut kernel, 1, 1);
    fill(&mut kernel, block, POOL / 4, Some(values));
    publish(&mut kernel);
    let slot = kernel.slot("tensor", values, rows, Rule::AnyNan);
    preset(&mut kernel, (block, values), slot, rows * values.bytes());
    let tensor = Tensor { buffer: Buffer::Results, offset: slot, nan: false, ..tensor };
    let map = kernel.tensor(tensor.clone());
    for copy in 0..1 + random.below(2) {
        let from = place(random, copy * POOL / 2, (copy + 1) * POOL / 2 - BOX + 128);
        let from = from.min((copy + 1) * POOL / 2 - BOX);
        let at = coordinates(random, &tensor, 0);
        store(&mut kernel, random, (from, operations), &format!("{map}, {{{at}}}"));
        // The next one may reach the same elements.
        kernel.line("@first cp.async.bulk.wait_group 0;");
    }
    kernel
}

/// A copy or a reduction of what lies at `from` in the pool, in a group of its own.
fn store(kernel: &mut Kernel, random: &mut Random, (from, operations): (usize, &[&str]), to: &str) {
    let rank = to.matches(',').count();
    let mode = *random.pick(&["", ".tile"]);
    let form = match operations {
        [_, ..] if random.below(3) > 0 => {
            let operation = *random.pick(operations);
            format!("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}{mode}.bulk_group")
        }
        _ => format!("cp.async.bulk.tensor.{rank}d.global.shared::cta{mode}.bulk_group"),
    };
    kernel.line(format!("@first {form} [{to}], [pool+{from}];\n@first cp.async.bulk.commit_group;"));
}
