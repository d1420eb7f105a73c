//! Copies by tensor maps, against a reference that walks over the box element by element.

use apex_random::Random;
use cuda_launch::LaunchConfig;
use ptx_exec::{Corners, LaunchParams, MAX_INNER, MAX_RANK, TensorMap};

use crate::device::{Device, pack};

/// Bytes of shared memory that the kernels show.
const ROOM: u32 = 16 << 10;

/// Kernels that copy a box to shared memory and show it, and that store what they are given.
fn source(rank: usize) -> String {
    let coordinates = ["%x", "%y", "%z", "%u", "%v"][..rank].join(", ");
    let begin = "\
        .reg .pred %p, %done; .reg .b32 %r<8>, %x, %y, %z, %u, %v, %box, %bar; .reg .b64 %rd<6>, %map;\n\
        .shared .align 1024 .b8 box[16384]; .shared .align 8 .b64 bar;\n\
        ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [bytes]; mov.b64 %map, map; cvta.param.u64 %map, %map;\n\
        ld.param.v4.u32 {%x, %y, %z, %u}, [at]; ld.param.u32 %v, [at+16];\n\
        mov.u32 %box, box; mov.u32 %bar, bar; mov.u32 %r2, 0;\n";
    let params =
        "(.param .align 64 .b8 map[128], .param .align 16 .b8 at[32], .param .u64 data, .param .u32 bytes)";
    let step = "add.u32 %r2, %r2, 16; setp.lt.u32 %p, %r2, 16384;\n";
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry load{params} {{\n{begin}\
         clear: add.u32 %r3, %box, %r2; st.shared.v4.u32 [%r3], {{-1, -1, -1, -1}}; {step} @%p bra clear;\n\
         mbarrier.init.shared.b64 [%bar], 1;\n\
         mbarrier.arrive.expect_tx.shared.b64 _, [%bar], %r1;\n\
         cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
         [%box], [%map, {{{coordinates}}}], [%bar];\n\
         wait: mbarrier.try_wait.parity.shared.b64 %done, [%bar], 0; @!%done bra wait;\n mov.u32 %r2, 0;\n\
         show: add.u32 %r3, %box, %r2; ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r3]; cvt.u64.u32 %rd2, %r2;\n\
         add.u64 %rd3, %rd1, %rd2; st.global.v4.u32 [%rd3], {{%r4, %r5, %r6, %r7}}; {step} @%p bra show;\nret; }}\n\
         .visible .entry store{params} {{\n{begin}\
         fill: add.u32 %r3, %box, %r2; cvt.u64.u32 %rd2, %r2; add.u64 %rd3, %rd1, %rd2;\n\
         ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd3]; st.shared.v4.u32 [%r3], {{%r4, %r5, %r6, %r7}}; {step} @%p bra fill;\n\
         fence.proxy.async.shared::cta;\n\
         cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%map, {{{coordinates}}}], [%box];\n\
         cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nret; }}\n"
    )
}

/// A map of a random tensor of up to some kilobytes, whose address is to be filled in, and the
/// bytes of the tensor.
fn random_map(random: &mut Random) -> (TensorMap, usize) {
    let rank = 1 + random.index(MAX_RANK);
    let element_bytes = random.choose(&[1u32, 2, 4, 8]);
    let swizzle = random.index(4) as u32;
    let widest = if swizzle == 0 { 256 } else { 16 << swizzle };
    let mut map = TensorMap {
        address: 0,
        element_bytes,
        data_type: 0,
        rank: rank as u32,
        outside: if random.index(2) == 0 { 0 } else { 0x7fff },
        swizzle,
        sizes: [1; MAX_RANK],
        strides: [0; MAX_RANK - 1],
        spans: [1; MAX_RANK],
        steps: [1; MAX_RANK],
        pixels: None,
    };
    let units = 1 + random.index(widest as usize / 16) as u32;
    map.spans[0] = units * 16 / element_bytes;
    map.sizes[0] = 1 + random.index(40) as u64;
    let mut bytes = (map.sizes[0] * u64::from(element_bytes)).next_multiple_of(16);
    for axis in 1..rank {
        map.sizes[axis] = 1 + random.index(6) as u64;
        map.spans[axis] = 1 + random.index(2) as u32;
        map.steps[axis] = 1 + random.index(2) as u32;
        map.strides[axis - 1] = bytes + 16 * random.index(2) as u64;
        bytes = map.strides[axis - 1] * map.sizes[axis];
    }
    (map, bytes as usize)
}

/// Bytes from a line of the box in shared memory to the next.
fn pitch(map: &TensorMap) -> usize {
    match map.swizzle {
        0 => (map.spans[0] * map.element_bytes) as usize,
        swizzle => 16 << swizzle,
    }
}

/// What stands for elements outside.
fn outside(map: &TensorMap) -> [u8; 8] {
    (u64::from(map.outside) << 32 | u64::from(map.outside)).to_le_bytes()
}

/// Calls `visit` with the offset of each element of the box in shared memory, and its offset in
/// the tensor, if it is inside; `units` if whole units of 16 bytes of a line are.
fn walk(map: &TensorMap, at: [i32; MAX_RANK], units: bool, mut visit: impl FnMut(usize, Option<usize>)) {
    let counts: Vec<usize> =
        (0..MAX_RANK).map(|axis| map.spans[axis].div_ceil(map.steps[axis]) as usize).collect();
    let total: usize = counts.iter().product();
    for index in 0..total {
        let (mut rest, mut global, mut inside) = (index, 0i64, true);
        for axis in 0..MAX_RANK {
            let place = i64::from(at[axis]) + (rest % counts[axis]) as i64 * i64::from(map.steps[axis]);
            rest /= counts[axis];
            let unit = if units && axis == 0 { 16 / u64::from(map.element_bytes) } else { 1 };
            inside &= (0..map.sizes[axis].next_multiple_of(unit) as i64).contains(&place);
            let stride = if axis == 0 { map.element_bytes.into() } else { map.strides[axis - 1] };
            global += place * stride as i64;
        }
        let (line, x) = (index / counts[0], index % counts[0]);
        let plain = line * pitch(map) + x * map.element_bytes as usize;
        let rows = match map.swizzle {
            0 => 0,
            1 => plain / 128 % 2,
            2 => plain / 128 % 4,
            _ => plain / 128 % 8,
        };
        visit(plain ^ rows << 4, inside.then_some(global as usize));
    }
}

#[test]
fn boxes_are_copied_as_their_maps_say() {
    let mut random = Random::new(3);
    for _ in 0..40 {
        let (mut map, bytes) = random_map(&mut random);
        let device = Device::watched(random.index(4) == 0);
        let linked = device.load(&source(map.rank as usize));
        let tensor = random.bytes(bytes);
        map.address = device.upload(&tensor);
        let at: [i32; MAX_RANK] = std::array::from_fn(|axis| match axis < map.rank as usize {
            // A multiple of 16 bytes.
            true if axis == 0 => (random.index(3) as i32 - 1) * 16 / map.element_bytes as i32,
            true => random.index(map.sizes[axis] as usize + 4) as i32 - 3,
            false => 0,
        });
        let launch = |name: &str, at: [i32; MAX_RANK], data: u64| {
            let values = [
                map.to_bytes().to_vec(),
                at.iter().flat_map(|at| at.to_le_bytes()).chain([0; 12]).collect(),
                data.to_le_bytes().to_vec(),
                (map.box_bytes() as u32).to_le_bytes().to_vec(),
            ];
            let kernel = linked.program().kernel(name).unwrap();
            let params = LaunchParams {
                config: LaunchConfig::new([1; 3], [1; 3]),
                cooperative: false,
                stack: 1024,
                workers: 1,
                params: &pack(&linked, kernel, &values),
            };
            device.run(&linked, kernel, &params).map(drop).map_err(|fault| fault.to_string())
        };
        let shown = device.upload(&[0; ROOM as usize]);
        let beside = std::array::from_fn(|axis| at[axis] + i32::from(axis == 0));
        assert!(launch("load", beside, shown).unwrap_err().contains("multiples of 16"), "{map:?}");
        launch("load", at, shown).unwrap();
        let size = map.element_bytes as usize;
        let mut expected = vec![0xff; ROOM as usize];
        walk(&map, at, false, |shared, global| {
            let outside = outside(&map);
            let element = global.map_or(&outside[..size], |global| &tensor[global..global + size]);
            expected[shared..shared + size].copy_from_slice(element);
        });
        assert!(device.download(shown, ROOM as usize) == expected, "{map:?} at {at:?}");

        let given = random.bytes(ROOM as usize);
        if at.iter().any(|at| *at < 0) {
            let said = launch("store", at, device.upload(&given)).unwrap_err();
            assert!(said.contains("below 0"), "{said}");
        }
        let at = at.map(|at| at.max(0));
        launch("store", at, device.upload(&given)).unwrap();
        let mut expected = tensor.clone();
        walk(&map, at, true, |shared, global| {
            if let Some(global) = global.filter(|global| global + size <= bytes) {
                expected[global..global + size].copy_from_slice(&given[shared..shared + size]);
            }
        });
        assert!(device.download(map.address, bytes) == expected, "{map:?} at {at:?}");
    }
}

/// Images of a random size, with pixels that lie around them too.
fn random_images(random: &mut Random) -> (TensorMap, usize) {
    let inner = 1 + random.index(MAX_INNER);
    let mut map = TensorMap {
        address: 0,
        element_bytes: random.choose(&[2u32, 4]),
        data_type: 0,
        rank: inner as u32 + 2,
        outside: if random.index(2) == 0 { 0 } else { 0x7fff },
        swizzle: random.index(3) as u32,
        sizes: [1; MAX_RANK],
        strides: [0; MAX_RANK - 1],
        spans: [1; MAX_RANK],
        steps: [1; MAX_RANK],
        pixels: None,
    };
    map.spans[0] = 16 / map.element_bytes;
    map.spans[1] = 1 + random.index(60) as u32;
    map.sizes[0] = 1 + random.index(20) as u64;
    let mut corners = Corners { lower: [0; MAX_INNER], upper: [0; MAX_INNER] };
    let mut bytes = (map.sizes[0] * u64::from(map.element_bytes)).next_multiple_of(16);
    for axis in 1..inner + 2 {
        map.sizes[axis] = 3 + random.index(4) as u64;
        map.strides[axis - 1] = bytes;
        bytes *= map.sizes[axis];
        if axis <= inner {
            map.steps[axis] = 1 + random.index(2) as u32;
            corners.lower[axis - 1] = random.index(4) as i16 - 2;
            corners.upper[axis - 1] = random.index(3) as i16 - 1;
        }
    }
    map.pixels = Some(corners);
    (map, bytes as usize)
}

/// Kernels that copy pixels to shared memory and show them.
fn pixel_source(rank: usize, offsets: [u16; MAX_INNER]) -> String {
    let offsets: Vec<String> = offsets[..rank - 2].iter().map(u16::to_string).collect();
    let tile = source(rank);
    let whole = tile.split(".visible .entry store").next().unwrap();
    whole
        .replace(".tile.", ".im2col.")
        .replace("[%bar];\n", &format!("[%bar], {{{}}};\n", offsets.join(", ")))
}

/// Pixels along an inner dimension.
fn pixels_along(map: &TensorMap, corners: &Corners, axis: usize) -> i64 {
    let all = map.sizes[axis] as i64 + i64::from(corners.upper[axis - 1] - corners.lower[axis - 1]);
    (all as u64).div_ceil(u64::from(map.steps[axis])) as i64
}

/// Pixel `index` of those from `start` on, counted through all of an image's and all images': the
/// place of its first element.
fn pixel(map: &TensorMap, corners: &Corners, start: [i32; MAX_RANK], index: usize) -> [i64; MAX_RANK] {
    let inner = map.rank as usize - 2;
    let count = |axis: usize| pixels_along(map, corners, axis);
    let place = |axis: usize| {
        (i64::from(start[axis]) - i64::from(corners.lower[axis - 1])) / i64::from(map.steps[axis])
    };
    let first =
        (1..=inner).rev().fold(i64::from(start[inner + 1]), |at, axis| at * count(axis) + place(axis));
    let (mut rest, mut at) = (first + index as i64, [0; MAX_RANK]);
    at[0] = start[0].into();
    for (axis, at) in at.iter_mut().enumerate().take(inner + 1).skip(1) {
        *at = i64::from(corners.lower[axis - 1]) + rest % count(axis) * i64::from(map.steps[axis]);
        rest /= count(axis);
    }
    at[inner + 1] = rest;
    at
}

#[test]
fn pixels_are_copied_as_their_maps_say() {
    let mut random = Random::new(4);
    for _ in 0..30 {
        let (mut map, bytes) = random_images(&mut random);
        let (corners, inner) = (map.pixels.unwrap(), map.rank as usize - 2);
        let offsets: [u16; MAX_INNER] = std::array::from_fn(|_| random.index(3) as u16);
        let device = Device::watched(false);
        let linked = device.load(&pixel_source(map.rank as usize, offsets));
        let tensor = random.bytes(bytes);
        map.address = device.upload(&tensor);
        let mut at = [0; MAX_RANK];
        for (axis, at) in at.iter_mut().enumerate().take(inner + 1).skip(1) {
            let place = random.index(pixels_along(&map, &corners, axis) as usize) as i32;
            *at = i32::from(corners.lower[axis - 1]) + place * map.steps[axis] as i32;
        }
        at[0] = (16 / map.element_bytes * random.index(3) as u32) as i32;
        let shown = device.upload(&[0; ROOM as usize]);
        let values = [
            map.to_bytes().to_vec(),
            at.iter().flat_map(|at: &i32| at.to_le_bytes()).chain([0; 12]).collect(),
            shown.to_le_bytes().to_vec(),
            (map.box_bytes() as u32).to_le_bytes().to_vec(),
        ];
        let kernel = linked.program().kernel("load").unwrap();
        let params = LaunchParams {
            config: LaunchConfig::new([1; 3], [1; 3]),
            cooperative: false,
            stack: 1024,
            workers: 1,
            params: &pack(&linked, kernel, &values),
        };
        device.run(&linked, kernel, &params).unwrap_or_else(|fault| panic!("{map:?}: {fault}"));
        let (size, mut expected) = (map.element_bytes as usize, vec![0xff; ROOM as usize]);
        for index in 0..map.spans[1] as usize {
            let mut first = pixel(&map, &corners, at, index);
            (1..=inner).for_each(|axis| first[axis] += i64::from(offsets[axis - 1]));
            for channel in 0..map.spans[0] as usize {
                let mut place = first;
                place[0] += channel as i64;
                let inside = (0..MAX_RANK).all(|axis| (0..map.sizes[axis] as i64).contains(&place[axis]));
                let global = (1..MAX_RANK).fold(place[0] * size as i64, |sum, axis| {
                    sum + place[axis] * map.strides[axis - 1] as i64
                }) as usize;
                let plain = index * pitch(&map) + channel * size;
                let shared = plain ^ (plain / 128 % (1 << map.swizzle)) << 4;
                let outside = outside(&map);
                let element = if inside { &tensor[global..global + size] } else { &outside[..size] };
                expected[shared..shared + size].copy_from_slice(element);
            }
        }
        assert!(device.download(shown, ROOM as usize) == expected, "{map:?} at {at:?} {offsets:?}");
    }
}
