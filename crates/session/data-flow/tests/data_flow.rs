//! The data flow of a recorded loop of three launches, the third of which reads what the first two
//! write.

use apex_profile::{DataFlow, Profile};
use apex_trace::definition::{Arguments, Definition, FunctionCode, Pointer};
use apex_trace::image::file_name;
use apex_trace::layout::{ArgumentSample, NUMBERED_POINTERS, Slots as _, flags};
use fatbin::kept;
use std::borrow::Cow;
use test_session::{NON_BLOCKING, Recording};

const PTX: &[u8] = b".version 8.0
.target sm_80
.address_size 64
.visible .entry step(.param .u64 to, .param .u64 from) {
    .reg .b64 %q<5>;
    .reg .b32 %r<3>;
    ld.param.u64 %q1, [to];
    ld.param.u64 %q2, [from];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %q3, %r1, 4;
    add.s64 %q2, %q2, %q3;
    add.s64 %q1, %q1, %q3;
    ld.global.u32 %r2, [%q2];
    st.global.u32 [%q1], %r2;
    ret;
}\0";
const IMAGE: u128 = 7;
const BYTES: u64 = 1 << 20;

/// A loop of launches (blocks, time, the numbers of the buffers that it writes and reads).
fn recorded(launches: &[(u32, u64, [u8; 2])], rounds: usize, has_arguments: bool) -> Vec<DataFlow> {
    let dir = tempfile::tempdir().unwrap();
    let mut recording = Recording::new(dir.path());
    let function = recording.function("step");
    recording.define(Definition::FunctionCode(FunctionCode { id: function, image: IMAGE, ptx: 0 }));
    let configs: Vec<u32> =
        launches.iter().map(|&(blocks, ..)| recording.config(function, blocks, 128)).collect();
    let pointer = |at| Pointer { at: 8 * at, allocation: at, allocation_bytes: BYTES, offset: 0 };
    for (id, &config) in (1..).zip(&configs) {
        let (parameters, bytes) = (vec![(0, 8), (8, 8)], vec![0; 16]);
        let pointers = vec![pointer(0), pointer(1)];
        recording.define(Definition::Arguments(Arguments { id, config, parameters, bytes, pointers }));
    }
    for _ in 0..rounds {
        for (id, (&config, &(_, ns, buffers))) in (1..).zip(configs.iter().zip(launches)) {
            let start = recording.launch(config, NON_BLOCKING);
            recording.timing(config, NON_BLOCKING, start, ns, flags::QUEUED);
            let mut allocations = [0; NUMBERED_POINTERS];
            allocations[..2].copy_from_slice(&buffers);
            if has_arguments {
                let head = ArgumentSample::head(0, start, start);
                recording.write(&ArgumentSample { head, config, arguments: id, allocations });
            }
        }
    }
    recording.exit();
    let session = test_session::open(&dir);
    let packed = kept::pack(&[Cow::Borrowed(PTX)]).unwrap();
    std::fs::write(dir.path().join(file_name(IMAGE)), packed).unwrap();
    apex_data_flow::of_session(&session, &Profile::from_session(&session))
}

const JOIN: [(u32, u64, [u8; 2]); 3] = [(8, 10_000, [2, 1]), (16, 6_000, [3, 1]), (24, 5_000, [2, 3])];

#[test]
fn launches_that_share_no_data_are_independent() {
    let flows = recorded(&JOIN, 20, true);
    let [flow] = &flows[..] else { panic!("one step: {flows:?}") };
    let waits: Vec<&[usize]> = flow.launches.iter().map(|launch| &launch.waits_for[..]).collect();
    assert_eq!(waits, [&[][..], &[], &[0, 1]]);
    assert!(flow.launches.iter().all(|launch| launch.is_known && launch.share < 0.1), "{flow:?}");
    assert_eq!((flow.repeats, &flow.chain[..]), (20, &[0, 2][..]));
    let times = [flow.serial_ns, flow.chain_ns, flow.concurrent_ns];
    let shares = times.map(|time| (time / flow.serial_ns * 21.0).round());
    assert_eq!(shares, [21.0, 15.0, 15.0], "{times:?}");
    assert!((flow.saved() - 6.0 / 21.0).abs() < 0.05);
}

/// Blocks of 128 threads that the GPU of the recording holds at a time.
const PLACES: u32 = 2112;

#[test]
fn large_launches_share_the_gpu() {
    // Whole waves leave no place to others.
    let large = JOIN.map(|(blocks, ns, buffers)| (PLACES * blocks, ns, buffers));
    let flows = recorded(&large, 20, true);
    assert!(flows[0].launches.iter().all(|launch| launch.share == 1.0), "{flows:?}");
    assert!(flows[0].saved() < 1e-9 && flows[0].chain_ns < flows[0].serial_ns, "{flows:?}");
}

#[test]
fn without_arguments_and_without_repetition_nothing_is_told() {
    assert!(recorded(&JOIN, 20, false).is_empty());
    assert!(recorded(&JOIN, 1, true).is_empty());
}
