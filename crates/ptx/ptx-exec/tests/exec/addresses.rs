//! Addresses of array elements: however the lanes of a warp lie to each other, and whatever else
//! reads the parts of an address, an access gets the element that its thread asked for.

use apex_random::Random;
use cuda_launch::LaunchConfig;
use ptx_exec::{Fault, FaultKind, LaunchParams};

use crate::device::{Device, pack};

const THREADS: usize = 256;

/// Elements of the array, and how many lie before the one that an index of zero names.
const ELEMENTS: usize = 1024;
const BEFORE: usize = 512;

/// Indices of a block: one way in which threads choose elements.
fn indices(pattern: usize, random: &mut Random) -> Vec<i32> {
    let base = (random.bits() % 64) as i32;
    (0..THREADS as i32)
        .map(|thread| match pattern {
            0 => thread,
            1 => base,
            // Parts of a warp, as in blocks 8 or 16 threads wide.
            2 => thread % 16 + base,
            3 => thread / 16 + base,
            4 => thread % 8 - base,
            5 => -thread,
            6 => 2 * thread - 300,
            7 => (random.bits() % 700) as i32 - 350,
            // A stray lane in an otherwise regular warp.
            _ => {
                if thread % 32 == 19 {
                    base
                } else {
                    thread
                }
            }
        })
        .collect()
}

/// `out[i] = array[index[i] + extra]` and `again[i] = array[index[i]]` for `i` below `count`;
/// `sums` gets the computed address too where `escapes` says that it is read.
fn kernel(bits: u32, signed: bool, escapes: bool) -> String {
    let (bytes, sign) = (bits / 8, if signed { "s32" } else { "u32" });
    let escape = if escapes { "add.s64 %rd12, %rd6, 0;" } else { "sub.s64 %rd12, %rd12, %rd12;" };
    format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n
        .visible .entry k(.param .u64 array, .param .u64 index, .param .u64 out, .param .u64 again,
                          .param .u64 sums, .param .u32 count) {{
            .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<20>; .reg .b{bits} %v<4>;
            ld.param.u64 %rd1, [array]; ld.param.u64 %rd2, [index]; ld.param.u64 %rd3, [out];
            ld.param.u64 %rd13, [again]; ld.param.u64 %rd14, [sums]; ld.param.u32 %r1, [count];
            mov.u32 %r2, %tid.x;
            setp.ge.u32 %p, %r2, %r1;
            @%p bra END;
            mul.wide.u32 %rd4, %r2, 4;
            add.s64 %rd15, %rd2, %rd4;
            ld.global.u32 %r3, [%rd15];
            mul.wide.{sign} %rd5, %r3, {bytes};
            add.s64 %rd6, %rd1, %rd5;
            add.s32 %r3, %r3, 77;
            ld.global.b{bits} %v1, [%rd6+{extra}];
            ld.global.b{bits} %v2, [%rd6];
            mov.b64 %rd12, 0;
            {escape}
            mul.wide.u32 %rd7, %r2, {bytes};
            add.s64 %rd8, %rd3, %rd7;
            add.s64 %rd16, %rd13, %rd7;
            mul.wide.u32 %rd9, %r2, 8;
            add.s64 %rd10, %rd14, %rd9;
            st.global.b{bits} [%rd8], %v1;
            st.global.b{bits} [%rd16], %v2;
            st.global.u64 [%rd10], %rd12;
        END: ret;
        }}",
        extra = 3 * bytes,
    )
}

struct Outcome {
    out: Vec<u8>,
    again: Vec<u8>,
    sums: Vec<u8>,
    array: u64,
}

fn run(source: &str, watched: bool, array: &[u8], indices: &[i32], count: u32) -> Result<Outcome, Fault> {
    let device = Device::watched(watched);
    let linked = device.load(source);
    let kernel = linked.program().kernel("k").unwrap();
    let bytes = array.len() / ELEMENTS;
    let start = device.upload(array);
    let index = device.upload(&indices.iter().flat_map(|index| index.to_le_bytes()).collect::<Vec<u8>>());
    let [out, again, sums] = [bytes, bytes, 8].map(|bytes| device.upload(&vec![0xee; THREADS * bytes]));
    let middle = start + (BEFORE * bytes) as u64;
    let pointers = [middle, index, out, again, sums].map(|pointer| pointer.to_le_bytes().to_vec());
    let params = pack(&linked, kernel, &[pointers.to_vec(), vec![count.to_le_bytes().to_vec()]].concat());
    let launch = LaunchParams {
        config: LaunchConfig::new(1, THREADS as u32),
        cooperative: false,
        stack: 1024,
        workers: 1,
        params: &params,
    };
    device.run(&linked, kernel, &launch)?;
    let [out, again] = [out, again].map(|address| device.download(address, THREADS * bytes));
    Ok(Outcome { out, again, sums: device.download(sums, THREADS * 8), array: middle })
}

#[test]
fn every_way_to_index_reads_the_same_elements() {
    let mut random = Random::new(5);
    for (bits, signed, escapes) in [
        (8, true, false),
        (16, true, true),
        (32, true, false),
        (32, false, false),
        (32, true, true),
        (64, true, false),
        (64, false, true),
    ] {
        let source = kernel(bits, signed, escapes);
        let bytes = bits as usize / 8;
        let array: Vec<u8> = (0..ELEMENTS * bytes).map(|_| random.bits() as u8).collect();
        for pattern in 0..9 {
            let mut indices = indices(pattern, &mut random);
            if !signed {
                indices.iter_mut().for_each(|index| *index = index.abs());
            }
            // All threads; a warp of which only some act.
            for count in [256, 205] {
                for watched in [false, true] {
                    let found = run(&source, watched, &array, &indices, count).unwrap();
                    for thread in 0..THREADS {
                        let place = (BEFORE as i32 + indices[thread]) as usize;
                        let part = |values: &[u8]| values[thread * bytes..][..bytes].to_vec();
                        let element = |place: usize| array[place * bytes..][..bytes].to_vec();
                        let acts = thread < count as usize;
                        let expected = |place| if acts { element(place) } else { vec![0xee; bytes] };
                        let case = format!("{bits} bits, pattern {pattern}, thread {thread} of {count}");
                        assert_eq!(part(&found.out), expected(place + 3), "{case}");
                        assert_eq!(part(&found.again), expected(place), "{case}");
                        let sum = u64::from_le_bytes(found.sums[thread * 8..][..8].try_into().unwrap());
                        let address =
                            found.array.wrapping_add_signed(i64::from(indices[thread]) * bytes as i64);
                        let escaped = if escapes { address } else { 0 };
                        assert_eq!(sum, if acts { escaped } else { u64::MAX / 255 * 0xee }, "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_lane_that_leaves_the_array_is_named() {
    let mut random = Random::new(6);
    let source = kernel(32, true, false);
    let array: Vec<u8> = (0..ELEMENTS * 4).map(|_| random.bits() as u8).collect();
    // The last element that `array[index + 3]` may name.
    let last = (ELEMENTS - BEFORE - 4) as i32;
    let consecutive = |end: i32| (0..THREADS as i32).map(|thread| end - 255 + thread).collect::<Vec<_>>();
    assert!(run(&source, false, &array, &consecutive(last), 256).is_ok());
    for beyond in [1, 2, 40] {
        let fault = run(&source, false, &array, &consecutive(last + beyond), 256).err().unwrap();
        assert_eq!((fault.kind, fault.thread), (FaultKind::OutOfBounds, [256 - beyond as u32, 0, 0]));
        assert!(fault.instruction.starts_with("ld.global.b32"), "{}", fault.instruction);
    }
    let before = [vec![-(BEFORE as i32) - 4; 64], vec![0; THREADS - 64]].concat();
    let fault = run(&source, false, &array, &before, 256).err().unwrap();
    assert_eq!((fault.kind, fault.thread), (FaultKind::OutOfBounds, [0, 0, 0]));
}

#[test]
fn an_address_keeps_the_index_that_it_was_made_from() {
    // The address of one round is read in the next, after its index has changed.
    let source = "
        .version 7.0\n.target sm_70\n.address_size 64\n
        .visible .entry k(.param .u64 array, .param .u64 out) {
            .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<10>;
            ld.param.u64 %rd1, [array]; ld.param.u64 %rd2, [out];
            mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.x; mov.u32 %r5, 0; mov.u32 %r6, 0;
            mov.b64 %rd4, %rd1;
        AGAIN:
            ld.global.u32 %r3, [%rd4];
            add.u32 %r5, %r5, %r3;
            mul.wide.u32 %rd3, %r2, 4;
            add.u32 %r2, %r2, 32;
            add.s64 %rd4, %rd1, %rd3;
            ld.global.u32 %r3, [%rd4];
            mad.lo.u32 %r5, %r3, 3, %r5;
            add.u32 %r6, %r6, 1;
            setp.lt.u32 %p, %r6, 4;
            @%p bra AGAIN;
            mul.wide.u32 %rd5, %r1, 4;
            add.s64 %rd6, %rd2, %rd5;
            st.global.u32 [%rd6], %r5;
            ret;
        }";
    let mut random = Random::new(7);
    let values: Vec<u32> = (0..ELEMENTS).map(|_| random.bits() as u32).collect();
    let device = Device::default();
    let linked = device.load(source);
    let kernel = linked.program().kernel("k").unwrap();
    let array = device.upload(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
    let out = device.allocate(4 * 32, true);
    let params = pack(&linked, kernel, &[array.to_le_bytes().to_vec(), out.to_le_bytes().to_vec()]);
    let launch = LaunchParams {
        config: LaunchConfig::new(1, 32),
        cooperative: false,
        stack: 1024,
        workers: 1,
        params: &params,
    };
    device.run(&linked, kernel, &launch).unwrap();
    let found = device.download(out, 4 * 32);
    for thread in 0..32 {
        let (mut sum, mut previous) = (0u32, 0);
        for round in 0..4 {
            let place = thread + 32 * round;
            sum = sum.wrapping_add(values[previous]).wrapping_add(values[place].wrapping_mul(3));
            previous = place;
        }
        assert_eq!(found[4 * thread..][..4], sum.to_le_bytes(), "thread {thread}");
    }
}
