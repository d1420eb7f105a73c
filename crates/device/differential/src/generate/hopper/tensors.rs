//! `cp.async.bulk.tensor` of boxes into shared memory, to one block or to several.

use super::{POOL, declare_barriers, declare_pool, dump, fill, kernel, meet, publish, wait};
use crate::kernel::Kernel;
use crate::random::Random;
use crate::tensor::{Buffer, Element, Tensor};
use crate::values::Values;

/// Bytes of a tensor at most.
const MOST: usize = 16 << 10;

/// Bytes of a box at most.
pub(super) const BOX: usize = 2048;

/// Types of elements. The last ones change what they copy.
const ELEMENTS: [Element; 13] = [
    Element::U8,
    Element::U16,
    Element::U32,
    Element::S32,
    Element::U64,
    Element::S64,
    Element::F16,
    Element::Bf16,
    Element::F32,
    Element::F64,
    Element::F32Ftz,
    Element::Tf32,
    Element::Tf32Ftz,
];

/// The values of a tensor's elements in cells of the input.
pub(super) fn values(element: Element) -> Values {
    match element {
        Element::F16 => Values::F16x2,
        Element::Bf16 => Values::Bf16x2,
        Element::F32 | Element::F32Ftz | Element::Tf32 | Element::Tf32Ftz => Values::F32,
        Element::F64 => Values::F64,
        Element::U64 | Element::S64 => Values::B64,
        _ => Values::B32,
    }
}

/// Any tensor of at most [`MOST`] bytes at the start of the inputs.
pub(super) fn any(random: &mut Random, element: Element) -> Tensor {
    let (rank, swizzle) = (1 + random.below(5), random.below(4));
    let line = super::size(random, [256, 32, 64, 128][swizzle]);
    let line = line.min(256 * element.bytes());
    let mut spans = vec![(line / element.bytes()) as u32];
    // With a swizzle, a line takes all the bytes that this permutes.
    let mut room = BOX / [line, 32, 64, 128][swizzle];
    for _ in 1..rank {
        let span = 1 + random.below(room.min(9));
        room = (room / span).max(1);
        spans.push(span as u32);
    }
    let steps = (0..rank).map(|axis| match axis {
        0 if random.once_in(24) => 2,
        1.. if random.once_in(4) => 1 + random.below(3) as u32,
        _ => 1,
    });
    let steps = steps.collect();
    let mut tensor = Tensor {
        buffer: Buffer::Inputs,
        offset: 0,
        element,
        sizes: Vec::new(),
        strides: Vec::new(),
        spans,
        steps,
        swizzle: swizzle as u32,
        nan: element.is_float() && random.below(2) == 0,
        corners: None,
    };
    sizes(random, &mut tensor);
    tensor
}

/// Gives a tensor sizes beyond and below those of its box, and strides.
fn sizes(random: &mut Random, tensor: &mut Tensor) {
    let (rank, width) = (tensor.spans.len(), tensor.element.bytes());
    let mut bytes = width;
    for axis in 0..rank {
        let span = tensor.spans[axis] as usize;
        let most = (MOST / bytes / (1 << (rank - axis - 1))).clamp(1, 2 * span);
        let size = 1 + random.below(most);
        tensor.sizes.push(size as u64);
        bytes *= size;
        if axis + 1 < rank {
            bytes = bytes.next_multiple_of(16) + 16 * usize::from(random.once_in(3));
            tensor.strides.push(bytes as u64);
        }
    }
}

/// Bytes that a tensor has in memory.
pub(super) fn bytes(tensor: &Tensor) -> usize {
    let outer = tensor.strides.iter().zip(&tensor.sizes[1..]);
    let end: u64 = outer.map(|(stride, size)| stride * (size - 1)).sum();
    end as usize + tensor.sizes[0] as usize * tensor.element.bytes()
}

/// The coordinates of a box, none of them below `least`: inside, across a bound, and outside. The
/// first one is a multiple of 16 bytes; a GPU traps on others.
pub(super) fn coordinates(random: &mut Random, tensor: &Tensor, least: i64) -> String {
    let along = |axis: usize, random: &mut Random| {
        let (span, size) = (i64::from(tensor.spans[axis]), tensor.sizes[axis] as i64);
        let at = match random.below(4) {
            0 => 0,
            1 => random.below(size as usize) as i64,
            _ => random.below((span + size) as usize) as i64 - span,
        };
        let unit = if axis == 0 { 16 / tensor.element.bytes() as i64 } else { 1 };
        at.max(least).div_euclid(unit) * unit
    };
    let all: Vec<String> = (0..tensor.sizes.len()).map(|axis| along(axis, random).to_string()).collect();
    all.join(", ")
}

/// Where a box may lie in the pool.
pub(super) fn place(random: &mut Random, from: usize, to: usize) -> usize {
    let line = if random.below(2) == 0 { 128 } else { 1024 };
    let room = (to - from.next_multiple_of(line)) / line;
    from.next_multiple_of(line) + line * random.below(room)
}

pub(super) fn write(random: &mut Random) -> Kernel {
    let cluster = *random.pick(&[1, 1, 2]);
    let (grid, block) = (cluster, 128);
    let mut kernel = kernel(grid, cluster, block);
    let element = *random.pick(&ELEMENTS);
    let tensor = Tensor { offset: 0, ..any(random, element) };
    let values = values(element);
    let offset = kernel.column(values, bytes(&tensor).div_ceil(values.bytes()));
    let tensor = Tensor { offset, ..tensor };
    let map = kernel.tensor(tensor.clone());
    let copies = 1 + random.below(2);
    declare_pool(&mut kernel, POOL);
    declare_barriers(&mut kernel, copies, 1);
    fill(&mut kernel, block, POOL / 4, None);
    publish(&mut kernel);
    meet(&mut kernel, cluster);
    for copy in 0..copies {
        let place = place(random, copy * POOL / 2, (copy + 1) * POOL / 2 - BOX + 128);
        let to = place.min((copy + 1) * POOL / 2 - BOX);
        let (at, bytes) = (coordinates(random, &tensor, i64::MIN), tensor.box_bytes());
        load(&mut kernel, random, cluster, (copy, to, bytes), &format!("{map}, {{{at}}}"), "tile");
    }
    for copy in 0..copies {
        wait(&mut kernel, random, copy, 0);
    }
    meet(&mut kernel, cluster);
    dump(&mut kernel, (grid, block), POOL / 4, "pool");
    kernel
}

/// A copy of `bytes` bytes into the pool, from a map and coordinates, which the mbarrier `copy`
/// counts in all blocks that get it.
pub(super) fn load(
    kernel: &mut Kernel,
    random: &mut Random,
    cluster: u32,
    (copy, to, bytes): (usize, usize, usize),
    from: &str,
    mode: &str,
) {
    let rank = from.matches(',').count();
    let (offsets, from) = from.split_once(';').map_or(("", from), |(from, offsets)| (offsets, from));
    let rank = if offsets.is_empty() { rank } else { from.matches(',').count() };
    let bar = 8 * copy;
    let head = "{\n.reg .pred p, q;\n.reg .b32 a, b;\n.reg .b16 k;\nmov.u32 a, %cluster_ctarank;";
    let expect = format!("@p mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars+{bar}], {bytes};");
    let mode = if mode == "tile" && random.below(2) == 0 { String::new() } else { format!(".{mode}") };
    let form =
        format!("cp.async.bulk.tensor.{rank}d.shared::cluster.global{mode}.mbarrier::complete_tx::bytes");
    let body = if cluster > 1 && random.below(3) > 0 {
        let mask = 1 + random.below((1 << cluster) - 1);
        format!(
            "shr.u32 b, {mask}, a;\nand.b32 b, b, 1;\nsetp.ne.and.u32 p, b, 0, first;\nsetp.eq.and.u32 q, b, 0, first;\n{expect}\n@q \
             mbarrier.arrive.shared::cta.b64 _, [bars+{bar}];\nsetp.eq.and.u32 p, a, {}, first;\nmov.u16 k, {mask};\n@p \
             {form}.multicast::cluster [pool+{to}], [{from}], [bars+{bar}]{offsets}, k;",
            random.below(cluster as usize)
        )
    } else {
        format!("mov.pred p, first;\n{expect}\n@p {form} [pool+{to}], [{from}], [bars+{bar}]{offsets};")
    };
    kernel.line(format!("{head}\n{body}\n}}"));
}
