//! `cp.async.bulk.tensor` of pixels (`im2col`) into shared memory.

use super::tensors::{BOX, bytes, load, values};
use super::{POOL, declare_barriers, declare_pool, dump, fill, kernel, meet, publish, wait};
use crate::kernel::Kernel;
use crate::random::Random;
use crate::tensor::{Buffer, Element, Tensor};

/// Any images, at the start of the inputs.
fn images(random: &mut Random) -> Tensor {
    let element = *random.pick(&[Element::U8, Element::U16, Element::U32, Element::F16, Element::F32]);
    let (inner, swizzle) = (1 + random.below(3), random.below(4));
    let line = super::size(random, [256, 32, 64, 128][swizzle]).min(256 * element.bytes());
    let channels = line / element.bytes();
    let pixels = 1 + random.below((BOX / [line, 32, 64, 128][swizzle]).min(40));
    let mut sizes = vec![1 + random.below(2 * channels) as u64];
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    for _ in 0..inner {
        let size = 3 + random.below(3);
        sizes.push(size as u64);
        lower.push(random.below(4) as i32 - 2);
        // At least one pixel lies between the corners.
        upper.push((random.below(4) as i32 - 2).max(lower[lower.len() - 1] + 1 - size as i32));
    }
    sizes.push(1 + random.below(3) as u64);
    let mut strides = Vec::new();
    let mut bytes = element.bytes() as u64;
    for size in &sizes[..sizes.len() - 1] {
        bytes = (bytes * size).next_multiple_of(16) + 16 * u64::from(random.once_in(4));
        strides.push(bytes);
    }
    let step = |random: &mut Random| if random.once_in(3) { 2 } else { 1 };
    let steps = (0..inner + 2).map(|axis| if axis == 0 || axis > inner { 1 } else { step(random) });
    Tensor {
        buffer: Buffer::Inputs,
        offset: 0,
        element,
        steps: steps.collect(),
        sizes,
        strides,
        spans: vec![channels as u32, pixels as u32],
        swizzle: swizzle as u32,
        nan: element.is_float() && random.below(2) == 0,
        corners: Some([lower, upper]),
    }
}

/// The coordinates of the first pixel, which lies between the corners.
fn coordinates(random: &mut Random, images: &Tensor) -> String {
    let Some([lower, upper]) = &images.corners else { unreachable!("images have corners") };
    // A multiple of 16 bytes.
    let unit = 16 / images.element.bytes() as i64;
    let channel = random.below(images.sizes[0] as usize) as i64 - unit;
    let mut at = vec![if random.once_in(3) { channel.div_euclid(unit) * unit } else { 0 }];
    for (axis, (lower, upper)) in lower.iter().zip(upper).enumerate() {
        let count = images.sizes[axis + 1] as i64 + i64::from(upper - lower);
        let step = i64::from(images.steps[axis + 1]);
        at.push(i64::from(*lower) + step * random.below(((count + step - 1) / step) as usize) as i64);
    }
    at.push(random.below(images.sizes[images.sizes.len() - 1] as usize) as i64);
    at.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn write(random: &mut Random) -> Kernel {
    let images = images(random);
    let cluster = *random.pick(&[1, 1, 1, 2]);
    let (grid, block) = (cluster, 64);
    let mut kernel = kernel(grid, cluster, block);
    let values = values(images.element);
    let offset = kernel.column(values, bytes(&images).div_ceil(values.bytes()));
    let images = Tensor { offset, ..images };
    let map = kernel.tensor(images.clone());
    declare_pool(&mut kernel, POOL / 2);
    declare_barriers(&mut kernel, 1, 1);
    fill(&mut kernel, block, POOL / 8, None);
    publish(&mut kernel);
    meet(&mut kernel, cluster);
    let inner = images.sizes.len() - 2;
    let offsets: Vec<String> = (0..inner).map(|_| random.below(4).to_string()).collect();
    let at = coordinates(random, &images);
    let from = format!("{map}, {{{at}}};, {{{}}}", offsets.join(", "));
    let to = 128 * random.below((POOL / 2 - BOX) / 128 + 1);
    load(&mut kernel, random, cluster, (0, to, images.box_bytes()), &from, "im2col");
    wait(&mut kernel, random, 0, 0);
    meet(&mut kernel, cluster);
    dump(&mut kernel, (grid, block), POOL / 8, "pool");
    kernel
}
