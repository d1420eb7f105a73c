//! Both engines compute the same bits, count the same and report the same faults: random kernels
//! run on each.

#[allow(dead_code, clippy::result_large_err, reason = "made for other tests, which use more of it")]
#[path = "../exec/device.rs"]
mod device;
mod kernel;

use apex_random::Random;
use cuda_launch::LaunchConfig;
use ptx_exec::{Engine, Fault, LaunchParams, LaunchStats, Outside};

use device::{Device, pack};
use kernel::{ELEMENTS, Kernel, RESULTS};

const GRID: u32 = 3;

/// Words that are more telling than random ones.
const SPECIAL: [u32; 14] = [
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0001,
    0xffff_ffff,
    0x7f80_0001,
    1,
    0x007f_ffff,
    0x7f7f_ffff,
    0x4000_0000,
    0x3f00_0000,
];

struct Outcome {
    result: Result<LaunchStats, Fault>,
    memory: Vec<u8>,
    /// Steps that have become machine code.
    generated: usize,
}

fn words(random: &mut Random, count: usize) -> Vec<u8> {
    let word = |random: &mut Random| match random.below(3) {
        0 => SPECIAL[random.index(SPECIAL.len())],
        1 => (random.signed() * 8.0).to_bits(),
        _ => random.bits() as u32,
    };
    (0..count).flat_map(|_| word(random).to_le_bytes()).collect()
}

/// Whether there is machine code at all.
fn is_possible() -> bool {
    ptx_compile::is_available() && Engine::of_environment() != Ok(Engine::Interpreter)
}

/// What a kernel does by an engine, on memory whose contents the seed tells.
fn run(device: &Device, source: &str, engine: Engine, threads: u32, seed: u64, places: [u64; 2]) -> Outcome {
    let linked = device.load(source).with_engine(engine);
    let kernel = linked.program().kernel("k").unwrap();
    let mut random = Random::new(seed);
    let contents = words(&mut random, ELEMENTS as usize);
    let bytes = (GRID * threads) as usize * RESULTS as usize * 4;
    // SAFETY: the allocations are as long, and no kernel runs.
    unsafe {
        std::ptr::copy_nonoverlapping(contents.as_ptr(), places[0] as *mut u8, contents.len());
        std::ptr::write_bytes(places[1] as *mut u8, 0, bytes);
    }
    let values =
        [places[0].to_le_bytes().to_vec(), places[1].to_le_bytes().to_vec(), 5u32.to_le_bytes().to_vec()];
    let params = pack(&linked, kernel, &values);
    let launch = LaunchParams {
        config: LaunchConfig::new([GRID, 1, 1], [threads, 1, 1]),
        cooperative: false,
        stack: 1024,
        workers: 1,
        params: &params,
    };
    let result = device.run(&linked, kernel, &launch);
    let mut memory = device.download(places[1], bytes);
    memory.extend(device.download(places[0], contents.len()));
    let generated = linked.program().machine_code().map(|(_, [generated, ..])| generated).sum();
    Outcome { result, memory, generated }
}

/// What both engines count alike: of branches that threads take differently, the instructions of
/// threads.
fn counted(source: &str, stats: LaunchStats) -> LaunchStats {
    match source.contains("bra over") {
        true => LaunchStats { thread_instructions: stats.thread_instructions, ..LaunchStats::default() },
        false => stats,
    }
}

/// Runs the kernel of a seed by both engines; whether it faulted, and whether there was machine
/// code.
fn compare(seed: u64) -> (bool, bool) {
    let (source, threads) = Kernel::write(seed);
    let device = Device::default();
    let bytes = (GRID * threads) as usize * RESULTS as usize * 4;
    let places = [device.allocate(u64::from(ELEMENTS) * 4, true), device.allocate(bytes as u64, true)];
    let by = |engine| run(&device, &source, engine, threads, seed, places);
    let (interpreted, compiled) = (by(Engine::Interpreter), by(Engine::Compiled));
    #[expect(clippy::result_large_err, reason = "a fault ends a launch: its size costs nothing")]
    let counts = |outcome: &Outcome| outcome.result.clone().map(|stats| counted(&source, stats));
    assert_eq!(counts(&interpreted), counts(&compiled), "seed {seed}\n{source}");
    if interpreted.result.is_ok() && interpreted.memory != compiled.memory {
        let words = |memory: &[u8]| -> Vec<u32> {
            memory
                .chunks_exact(4)
                .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
                .collect()
        };
        let (one, other) = (words(&interpreted.memory), words(&compiled.memory));
        let at = one.iter().zip(&other).position(|(a, b)| a != b).unwrap();
        let (thread, result) = (at as u32 / RESULTS, at as u32 % RESULTS);
        panic!(
            "seed {seed}: thread {thread}, result {result}: {:#x}, compiled {:#x}\n{source}",
            one[at], other[at]
        );
    }
    assert_eq!(interpreted.generated, 0);
    (interpreted.result.is_err(), compiled.generated > 0)
}

fn compare_all(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let (mut faults, mut generated) = (0, 0);
    for (faulted, had_code) in seeds.map(compare) {
        (faults, generated) = (faults + u64::from(faulted), generated + u64::from(had_code));
    }
    assert!(generated > count * 2 / 3 || !is_possible(), "{generated} of {count} kernels have code");
    assert!(faults > count / 50 && faults < count / 2, "{faults} of {count} kernels fault");
}

#[test]
fn random_kernels_do_the_same_by_both_engines() {
    compare_all(0..600);
}

/// Of one warp, some threads fault in the first round of a loop, and a lower one in a later round.
#[test]
fn a_fault_of_a_later_round_is_not_reported() {
    assert_eq!(compare(17_481), (true, is_possible()));
}

#[test]
#[ignore = "takes minutes: more kernels than every change needs"]
fn many_random_kernels_do_the_same_by_both_engines() {
    for first in (1000..26_000).step_by(1000) {
        compare_all(first..first + 1000);
        println!("{first} to {}", first + 999);
    }
}

/// Prints how long it takes to load and launch many small kernels once each, by the engine of the
/// environment.
#[test]
#[ignore = "a measurement"]
fn small_kernels_once_each() {
    let device = Device::default();
    let places = [device.allocate(1 << 16, true), device.allocate(1 << 16, true)];
    let values =
        [places[0].to_le_bytes().to_vec(), places[1].to_le_bytes().to_vec(), 5u32.to_le_bytes().to_vec()];
    let mut seconds: Vec<f64> = Vec::new();
    for round in 0..500 {
        let source = format!(
            ".version 7.0\n.target sm_80\n.address_size 64\n
             .visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {{
                 .reg .f32 %f<6>; .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p<2>;
                 ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
                 mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
                 mad.lo.s32 %r4, %r1, %r2, %r3; setp.ge.s32 %p1, %r4, {bound}; @%p1 bra END;
                 mul.wide.s32 %rd3, %r4, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
                 ld.global.f32 %f1, [%rd4]; ld.global.f32 %f2, [%rd5]; mov.f32 %f3, 0f3F800000;
                 fma.rn.f32 %f4, %f1, %f3, %f2; mul.f32 %f5, %f4, %f1; add.f32 %f5, %f5, %f4;
                 st.global.f32 [%rd5], %f5;
                 END: ret;
             }}",
            bound = 4000 + round
        );
        let start = std::time::Instant::now();
        let linked = device.load(&source);
        let kernel = linked.program().kernel("k").unwrap();
        let launch = LaunchParams {
            config: LaunchConfig::new([4, 1, 1], [256, 1, 1]),
            cooperative: false,
            stack: 1024,
            workers: 1,
            params: &pack(&linked, kernel, &values),
        };
        device.run(&linked, kernel, &launch).unwrap();
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let [least, median] = [seconds[0], seconds[250]].map(|seconds| 1e6 * seconds);
    println!("{:?}: least {least:.2} µs, median {median:.2} µs a kernel", Engine::of_environment());
}

/// Prints how much longer the first launch of a kernel takes than the second, which is how long its
/// code takes to be made: of a thousand instructions, and of thirty.
#[test]
#[ignore = "a measurement"]
fn code_of_a_long_kernel() {
    for count in [30, 1000] {
        let instruction = |index: usize| match index % 10 {
            0 => format!("ld.global.f32 %f{}, [%rd3+{}];", index % 20, 4 * (index % 16)),
            1 => format!("add.s32 %r{}, %r{}, %r1;", 2 + index % 7, 2 + index % 5),
            _ => format!("fma.rn.f32 %f{}, %f{}, %f{}, %f1;", index % 20, index % 13, index % 7),
        };
        let body: String = (0..count).map(instruction).collect();
        let source = format!(
            ".version 7.0\n.target sm_80\n.address_size 64\n
             .visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {{
                 .reg .f32 %f<20>; .reg .b32 %r<10>; .reg .b64 %rd<6>;
                 ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; mov.u32 %r1, %tid.x;
                 mul.wide.u32 %rd4, %r1, 4; add.s64 %rd3, %rd1, %rd4; add.s64 %rd5, %rd2, %rd4;
                 {body}
                 st.global.f32 [%rd5], %f1; st.global.f32 [%rd5], %f2; st.global.u32 [%rd5], %r3;
                 ret;
             }}"
        );
        let device = Device::default();
        let places = [device.allocate(1 << 16, true), device.allocate(1 << 16, true)];
        let values =
            [places[0].to_le_bytes().to_vec(), places[1].to_le_bytes().to_vec(), 5u32.to_le_bytes().to_vec()];
        let mut seconds: Vec<f64> = Vec::new();
        for _ in 0..40 {
            let linked = device.load(&source).with_engine(Engine::Compiled);
            let kernel = linked.program().kernel("k").unwrap();
            let launch = LaunchParams {
                config: LaunchConfig::new([1, 1, 1], [64, 1, 1]),
                cooperative: false,
                stack: 1024,
                workers: 1,
                params: &pack(&linked, kernel, &values),
            };
            let [first, second] = [(); 2].map(|()| {
                let start = std::time::Instant::now();
                device.run(&linked, kernel, &launch).unwrap();
                start.elapsed().as_secs_f64()
            });
            seconds.push(first - second);
        }
        seconds.sort_by(f64::total_cmp);
        let [least, median] = [seconds[0], seconds[20]].map(|seconds| 1e6 * seconds);
        println!("{count} instructions: least {least:.0} µs, median {median:.0} µs");
    }
}

/// A kernel in which one thread accesses memory that is not there.
fn access_beyond(lane: u32, store: bool, space: &str) -> String {
    let access = match (store, space) {
        (true, "global") => "st.global.f32 [%rd3], %f1;",
        (false, "global") => "ld.global.f32 %f2, [%rd3];",
        (true, _) => "st.shared.f32 [%r2], %f1;",
        _ => "ld.shared.f32 %f2, [%r2];",
    };
    format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n
         .visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {{
             .reg .f32 %f<4>; .reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .pred %p<2>;
             .shared .align 4 .b8 memory[1024];
             ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
             mov.u32 %r1, %tid.x; mov.u32 %r3, memory; mad.lo.u32 %r2, %r1, 4, %r3;
             setp.eq.u32 %p1, %r1, {lane}; selp.b32 %r4, 100000000, 0, %p1; add.u32 %r2, %r2, %r4;
             add.u32 %r5, %r1, %r4; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd3, %rd1, %rd4;
             mov.f32 %f1, 0f3F800000; mov.f32 %f2, %f1; add.f32 %f3, %f1, %f1; mul.f32 %f3, %f3, %f3;
             {access}
             add.f32 %f2, %f2, %f3;
             mul.wide.u32 %rd5, %r1, 4; add.s64 %rd5, %rd2, %rd5; st.global.f32 [%rd5], %f2;
             ret;
         }}"
    )
}

#[test]
fn an_access_beyond_is_reported_alike_in_every_lane() {
    for lane in 0..64 {
        for (store, space) in [(true, "global"), (false, "global"), (true, "shared"), (false, "shared")] {
            let source = access_beyond(lane, store, space);
            let device = Device::default();
            let bytes = u64::from(GRID * 64 * RESULTS) * 4;
            let places = [device.allocate(u64::from(ELEMENTS) * 4, true), device.allocate(bytes, true)];
            #[expect(clippy::result_large_err, reason = "a fault ends a launch: its size costs nothing")]
            let by = |engine| run(&device, &source, engine, 64, 1, places).result;
            let (interpreted, compiled) = (by(Engine::Interpreter), by(Engine::Compiled));
            let fault = interpreted.as_ref().expect_err("the access is not allowed");
            assert_eq!(fault.thread[0], lane);
            assert_eq!(interpreted, compiled);
        }
    }
}

/// Where a part begins with an access that is refused, it is not entered again and again.
#[test]
fn an_access_that_no_thread_may_make_is_reported() {
    for (threads, access) in [(32, "ld.global.f32 %f1, [%rd3]"), (96, "st.global.f32 [%rd3], %f1")] {
        let source = format!(
            ".version 7.0\n.target sm_80\n.address_size 64\n
             .visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {{
                 .reg .f32 %f<4>; .reg .b32 %r<4>; .reg .b64 %rd<6>;
                 ld.param.u64 %rd2, [out]; mov.u64 %rd3, 16;
                 {access};
                 add.f32 %f2, %f1, %f1; mul.f32 %f3, %f2, %f1; fma.rn.f32 %f2, %f3, %f3, %f1;
                 shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1; st.global.f32 [%rd2], %f2;
                 ret;
             }}"
        );
        let device = Device::default();
        let places = [device.allocate(u64::from(ELEMENTS) * 4, true), device.allocate(1 << 16, true)];
        #[expect(clippy::result_large_err, reason = "a fault ends a launch: its size costs nothing")]
        let by = |engine| run(&device, &source, engine, threads, 1, places).result;
        let (interpreted, compiled) = (by(Engine::Interpreter), by(Engine::Compiled));
        assert!(interpreted.is_err());
        assert_eq!(interpreted, compiled);
    }
}

/// A kernel whose threads take three ways, in two of which they access memory, which one thread
/// must not; in a loop, or not.
fn access_beyond_in_a_branch(lane: u32, looped: bool) -> String {
    let (begin, end) = match looped {
        true => ("mov.u32 %r6, 0; LOOP:", "add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 3; @%p4 bra LOOP;"),
        false => ("mov.u32 %r6, 0;", ""),
    };
    format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n
         .visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {{
             .reg .f32 %f<4>; .reg .b32 %r<8>; .reg .b64 %rd<6>; .reg .pred %p<5>;
             ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
             mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; setp.eq.u32 %p1, %r2, 1; setp.eq.u32 %p2, %r2, 2;
             setp.eq.u32 %p3, %r1, {lane}; selp.b32 %r4, 100000000, 0, %p3;
             add.u32 %r5, %r1, %r4; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd3, %rd1, %rd4;
             mul.wide.u32 %rd5, %r1, 4; add.s64 %rd5, %rd2, %rd5; mov.f32 %f1, 0f3F800000;
             {begin}
             @%p1 bra ONE;
             @%p2 bra TWO;
             ld.global.f32 %f1, [%rd3]; add.f32 %f1, %f1, %f1;
             bra.uni MEET;
             ONE: st.global.f32 [%rd3], %f1; mul.f32 %f1, %f1, %f1;
             bra.uni MEET;
             TWO: add.f32 %f1, %f1, %f1;
             MEET: add.f32 %f1, %f1, %f1;
             st.global.f32 [%rd5], %f1;
             {end}
             ret;
         }}"
    )
}

#[test]
fn an_access_beyond_in_a_branch_is_reported_alike() {
    for (lane, looped) in (0..64).flat_map(|lane| [(lane, false), (lane, true)]) {
        let source = access_beyond_in_a_branch(lane, looped);
        let linked = Device::default().load(&source);
        let outside = linked.program().interpreted().any(|(_, _, outside, _)| outside == Outside::Branch);
        assert!(!looped || !outside || !is_possible(), "a branch in a loop stays with the interpreter");
        let device = Device::default();
        let bytes = u64::from(GRID * 64 * RESULTS) * 4;
        let places = [device.allocate(u64::from(ELEMENTS) * 4, true), device.allocate(bytes, true)];
        let by = |engine| run(&device, &source, engine, 64, 1, places);
        let (interpreted, compiled) = (by(Engine::Interpreter), by(Engine::Compiled));
        assert!(compiled.generated > 0 || !is_possible());
        #[expect(clippy::result_large_err, reason = "a fault ends a launch: its size costs nothing")]
        let threads = |outcome: &Outcome| outcome.result.clone().map(|stats| stats.thread_instructions);
        assert_eq!(threads(&interpreted), threads(&compiled), "lane {lane}");
        match &interpreted.result {
            Ok(_) => assert_eq!((lane % 4, interpreted.memory == compiled.memory), (2, true)),
            Err(fault) => assert_eq!(fault.thread[0], lane),
        }
    }
}

/// A kernel whose threads load words of an array, in one of several ways, and store their sum to
/// one.
fn touch(way: &str, store: bool) -> String {
    let access = match (way, store) {
        ("quads", false) => "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3];",
        ("quads", true) => "st.global.v4.f32 [%rd3], {%f1, %f2, %f3, %f4};",
        ("halves", false) => "ld.global.u16 %r6, [%rd3]; cvt.rn.f32.u32 %f2, %r6;",
        ("halves", true) => "cvt.u16.u32 %h1, %r4; st.global.u16 [%rd3], %h1;",
        ("bytes", false) => "ld.global.s8 %r6, [%rd3]; cvt.rn.f32.s32 %f2, %r6;",
        ("bytes", true) => "st.global.u8 [%rd3], %r4; st.global.u8 [%rd3+1], %r2;",
        (_, false) => "ld.global.f32 %f2, [%rd3]; ld.global.f32 %f3, [%rd3+4];",
        (_, true) => "st.global.f32 [%rd3], %f1; st.global.f32 [%rd3+4], %f4;",
    };
    let element = match way {
        "quads" => "shl.b32 %r5, %r4, 2;",
        "scattered" => "xor.b32 %r5, %r4, 5;",
        "same" => "mov.u32 %r5, %r2;",
        _ => "mov.u32 %r5, %r4;",
    };
    let size = if way == "bytes" {
        1
    } else if way == "halves" {
        2
    } else {
        4
    };
    format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n
         .visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {{
             .reg .f32 %f<8>; .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .b16 %h<2>;
             ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
             mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
             mad.lo.u32 %r4, %r2, %r3, %r1; {element}
             mul.wide.u32 %rd4, %r5, {size}; add.s64 %rd3, %rd1, %rd4;
             mul.wide.u32 %rd5, %r4, 4; add.s64 %rd6, %rd2, %rd5;
             mov.f32 %f1, 0f3F800000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, 0f40000000;
             {access}
             add.f32 %f5, %f2, %f3; fma.rn.f32 %f5, %f5, %f4, %f1; st.global.f32 [%rd6], %f5;
             ret;
         }}"
    )
}

/// The memory behind an allocation is a red zone: it stays as it was, and who touches it is
/// reported.
#[test]
fn the_end_of_an_allocation_is_found_to_the_word() {
    const THREADS: u32 = 64;
    let bytes = u64::from(GRID * THREADS) * 4;
    for (way, store) in ["in order", "scattered", "quads", "same", "halves", "bytes"]
        .map(|way| [(way, false), (way, true)])
        .concat()
    {
        // Of these an allocation may end anywhere.
        let odd = u64::from(matches!(way, "halves" | "bytes"));
        let source = touch(way, store);
        for words in
            (1..4).chain(44..52).chain(60..76).chain(92..100).chain(120..136).chain(188..200).chain(760..772)
        {
            let outcome = |engine| {
                let device = Device::default();
                let length = 4 * words - odd;
                let places = [device.allocate(length, true), device.allocate(bytes, true)];
                let linked = device.load(&source).with_engine(engine);
                let kernel = linked.program().kernel("k").unwrap();
                let zone = (places[0] + length) as *mut u8;
                // SAFETY: the device's allocations are longer than what it allows kernels.
                unsafe { zone.write_bytes(0xa5, 64) };
                let values = places.map(|place| place.to_le_bytes().to_vec());
                let launch = LaunchParams {
                    config: LaunchConfig::new([GRID, 1, 1], [THREADS, 1, 1]),
                    cooperative: false,
                    stack: 1024,
                    workers: 1,
                    params: &pack(&linked, kernel, &[&values[..], &[vec![0; 4]]].concat()),
                };
                let result = device
                    .run(&linked, kernel, &launch)
                    .map_err(|fault| (fault.kind, fault.thread, fault.block, fault.line));
                // SAFETY: as above.
                let zone = unsafe { std::slice::from_raw_parts(zone, 64) };
                assert!(
                    zone.iter().all(|&byte| byte == 0xa5),
                    "{way}, {words} words: the red zone was written"
                );
                (result, device.download(places[1], bytes as usize))
            };
            let (interpreted, compiled) = (outcome(Engine::Interpreter), outcome(Engine::Compiled));
            assert_eq!(interpreted.0, compiled.0, "{way}, {words} words, stores: {store}");
            assert!(interpreted.0.is_err() || interpreted.1 == compiled.1, "{way}, {words} words");
        }
    }
}

#[test]
fn kernels_that_compute_much_become_machine_code() {
    let linked = Device::default().load(include_str!("../../benches/speed/kernels.ptx"));
    for (name, [_, possible, steps]) in linked.program().machine_code() {
        let least = match name {
            "fma_chains" | "matmul_tiled" => 9,
            "mandelbrot" => 5,
            _ => continue,
        };
        assert!(possible * 10 >= steps * least || !is_possible(), "{name}: {possible} of {steps}");
    }
}
