//! Compares the counts of watched launches with those of kernels that were counted by hand.

use std::sync::atomic::AtomicBool;

use apex_counts::{Counts, Direction, Fault, Hotspot, InstructionClass, Line, LineCounts, Space, Traffic};
use cuda_launch::LaunchConfig;
use ptx_exec::{LaunchParams, WatchOptions, watch};

use crate::device::{Device, pack};

/// The line of the PTX at which `body` begins.
const BODY: u32 = 12;

/// Runs the only kernel of `body`, which takes the addresses of `buffers` buffers of 32 KiB, and
/// counts.
fn count(body: &str, grid: [u32; 3], block: [u32; 3], buffers: usize) -> (Counts, Vec<Hotspot>) {
    let counted = counted(body, grid, block, buffers);
    (counted.counts, counted.hotspots)
}

/// All that is counted of it.
fn counted(body: &str, grid: [u32; 3], block: [u32; 3], buffers: usize) -> ptx_exec::Counted {
    let params: Vec<String> = (0..buffers).map(|index| format!(".param .u64 p{index}")).collect();
    let source = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.file 1 \"kernel.cu\"\n.visible .entry kernel({})\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n.reg .f32 %f<9>;\n.reg .f64 %fd<9>;\n{body}\n}}\n",
        params.join(", ")
    );
    let device = Device::default();
    let linked = device.load(&source);
    let kernel = linked.program().kernel("kernel").unwrap();
    let contents: Vec<u8> = (0..32 << 10).map(|byte| (byte * 37 % 251) as u8).collect();
    let values: Vec<Vec<u8>> =
        (0..buffers).map(|_| device.upload(&contents).to_le_bytes().to_vec()).collect();
    let params = LaunchParams {
        config: LaunchConfig::new(grid, block),
        cooperative: false,
        stack: 0,
        workers: 2,
        params: &pack(&linked, kernel, &values),
    };
    let (outcome, seen) = device.watch(&linked, kernel, &params);
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(seen.defects, []);
    let counted = seen.counts.unwrap();
    assert!(counted.watched == counted.executed && counted.executed > 0);
    counted
}

/// `p1[i] = p0[i * STRIDE]` for each thread `i` of the grid.
fn strided_copy(stride: u32) -> String {
    format!(
        "ld.param.u64 %rd1, [p0];
         ld.param.u64 %rd2, [p1];
         mov.u32 %r1, %ctaid.x;
         mov.u32 %r2, %ntid.x;
         mov.u32 %r3, %tid.x;
         mad.lo.u32 %r4, %r1, %r2, %r3;
         mul.lo.u32 %r5, %r4, {stride};
         mul.wide.u32 %rd3, %r5, 4;
         add.u64 %rd4, %rd1, %rd3;
         mul.wide.u32 %rd5, %r4, 4;
         add.u64 %rd6, %rd2, %rd5;
         .loc 1 7 3
         ld.global.f32 %f1, [%rd4];
         st.global.f32 [%rd6], %f1;
         ret;"
    )
}

#[test]
fn strided_loads_take_more_sectors() {
    for (stride, sectors) in [(1, 4), (2, 8), (4, 16), (8, 32), (32, 32)] {
        let (counts, hotspots) = count(&strided_copy(stride), [2, 1, 1], [96, 1, 1], 2);
        let warps = 2 * 3;
        let excess = warps * (sectors - 4);
        let load =
            Traffic { requests: warps, threads: 192, bytes: 192 * 4, transactions: warps * sectors, excess };
        assert_eq!(*counts.traffic(Space::Global, Direction::Load), load, "stride {stride}");
        let store = Traffic { transactions: warps * 4, excess: 0, ..load };
        assert_eq!(*counts.traffic(Space::Global, Direction::Store), store);
        assert_eq!(counts.all_traffic(Space::Shared), Traffic::default());
        // mad, mul, 2 mul.wide, 2 add; ld, st; ret. Parameters and special registers are there from
        // the start.
        let expected =
            [(InstructionClass::Integer, 6), (InstructionClass::Global, 2), (InstructionClass::Control, 1)];
        for (class, each) in expected {
            assert_eq!(counts.warp_instructions[class as usize], each * warps, "{class:?}");
            assert_eq!(counts.thread_instructions[class as usize], each * 192, "{class:?}");
        }
        assert_eq!(counts.total_warp_instructions(), 9 * warps);
        assert_eq!((counts.active_threads(), counts.branches), (32.0, 0));
        match stride {
            1 => assert_eq!(hotspots, []),
            _ => {
                let [spot] = &hotspots[..] else { panic!("{hotspots:?}") };
                assert_eq!((spot.fault, spot.events, spot.excess), (Fault::Uncoalesced, warps, excess));
                assert_eq!((&*spot.place.file, spot.place.line), ("kernel.cu", 7));
            }
        }
    }
}

/// Line 10 is executed by all warps, line 11 by the lower half of the lanes of each, which load
/// words that are 32 words apart, line 12 by all: they add to one word, and write shared words of
/// which two lanes each share a bank; line 13 has the end.
const LINES: &str = ".shared .align 4 .b8 words[256];
     ld.param.u64 %rd1, [p0];
     mov.u32 %r1, %tid.x;
     .loc 1 10 1
     and.b32 %r2, %r1, 31;
     setp.gt.u32 %p1, %r2, 15;
     @%p1 bra SKIP;
     .loc 1 11 1
     mul.wide.u32 %rd2, %r2, 128;
     add.u64 %rd3, %rd1, %rd2;
     ld.global.u32 %r3, [%rd3];
SKIP:
     .loc 1 12 1
     red.global.add.u32 [%rd1], 1;
     mov.u32 %r4, words;
     shl.b32 %r5, %r2, 3;
     add.u32 %r6, %r4, %r5;
     st.shared.u32 [%r6], %r2;
     .loc 2 13 1
     ret;";

#[test]
fn each_line_has_its_counts() {
    let counted = counted(LINES, [3, 1, 1], [64, 1, 1], 1);
    let warps = 3 * 2;
    let line = |file: &str, line, counts| Line { file: file.into(), line, counts };
    let executed = |each, lanes| LineCounts {
        warp_instructions: each * warps,
        thread_instructions: each * warps * lanes,
        ..LineCounts::default()
    };
    // The end is of a file that the PTX does not name: its line of the PTX counts.
    let end = BODY + LINES.lines().count() as u32 - 1;
    let expected = [
        line("", end, executed(1, 32)),
        line("kernel.cu", 10, LineCounts { branches: warps, divergent_branches: warps, ..executed(3, 32) }),
        line(
            "kernel.cu",
            11,
            // 16 words, each in a sector of its own, would fit into two.
            LineCounts {
                global_requests: warps,
                global_sectors: 16 * warps,
                global_excess: 14 * warps,
                ..executed(3, 16)
            },
        ),
        line(
            "kernel.cu",
            12,
            LineCounts {
                global_requests: warps,
                global_sectors: warps,
                atomic_turns: 32 * warps,
                shared_requests: warps,
                shared_wavefronts: 2 * warps,
                shared_excess: warps,
                ..executed(4, 32)
            },
        ),
    ];
    assert_eq!(counted.lines, expected);
    assert_eq!(counted.lines_left_out, 0);
    let all: u64 = counted.lines.iter().map(|line| line.counts.warp_instructions).sum();
    assert_eq!(all, counted.counts.total_warp_instructions());
}

#[test]
fn of_very_many_lines_those_that_execute_most_are_kept() {
    let each = |at: u32| format!(".loc 1 {at} 1\nadd.u32 %r1, %r1, {at};\n");
    let twice = |at: u32| format!(".loc 1 {at} 1\nadd.u32 %r2, %r2, {at};\n");
    let lines: String = (1..=3000).map(each).chain((2990..=3000).map(twice)).collect();
    let body = format!(
        "ld.param.u64 %rd1, [p0];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %tid.x;\n{lines}st.global.v2.u32 [%rd1], {{%r1, %r2}};\nret;"
    );
    let counted = counted(&body, [1, 1, 1], [32, 1, 1], 1);
    // The two moves have lines of the PTX.
    assert_eq!((counted.lines.len(), counted.lines_left_out), (2048, 2 + 3000 - 2048));
    assert!(counted.lines.iter().is_sorted_by_key(|line| (&line.file, line.line)));
    assert!((2990..=3000).all(|at| counted.lines.iter().any(|line| line.line == at)));
}

/// Transposes a tile of 32 by 32 words whose rows in shared memory are `pitch` words apart.
fn transpose(pitch: u32) -> String {
    format!(
        ".shared .align 4 .b8 tile[{}];
         ld.param.u64 %rd1, [p0];
         ld.param.u64 %rd2, [p1];
         mov.u32 %r1, %tid.x;
         mov.u32 %r2, %tid.y;
         mad.lo.u32 %r3, %r2, 32, %r1;
         mul.wide.u32 %rd3, %r3, 4;
         add.u64 %rd4, %rd1, %rd3;
         add.u64 %rd5, %rd2, %rd3;
         ld.global.u32 %r4, [%rd4];
         mov.u32 %r5, tile;
         mad.lo.u32 %r6, %r2, {pitch}, %r1;
         mad.lo.u32 %r7, %r6, 4, %r5;
         st.shared.u32 [%r7], %r4;
         bar.sync 0;
         mad.lo.u32 %r8, %r1, {pitch}, %r2;
         mad.lo.u32 %r9, %r8, 4, %r5;
         ld.shared.u32 %r10, [%r9];
         st.global.u32 [%rd5], %r10;
         ret;",
        pitch * 32 * 4
    )
}

#[test]
fn padding_frees_a_transpose_of_bank_conflicts() {
    for (pitch, wavefronts) in [(32, 32), (33, 1), (34, 2), (36, 4)] {
        let (counts, hotspots) = count(&transpose(pitch), [3, 1, 1], [32, 32, 1], 2);
        let warps = 3 * 32;
        let store = counts.traffic(Space::Shared, Direction::Store);
        assert_eq!((store.requests, store.transactions, store.excess), (warps, warps, 0));
        let load = counts.traffic(Space::Shared, Direction::Load);
        let expected = (warps, warps * wavefronts, warps * (wavefronts - 1));
        assert_eq!((load.requests, load.transactions, load.excess), expected, "pitch {pitch}");
        assert_eq!(counts.all_traffic(Space::Global).excess, 0);
        assert_eq!(counts.warp_instructions[InstructionClass::Synchronization as usize], warps);
        assert_eq!(hotspots.len(), usize::from(pitch != 33));
    }
}

#[test]
fn a_divergent_branch_runs_both_sides_with_fewer_threads() {
    let body = "mov.u32 %r1, %tid.x;
         mov.f32 %f1, 0f3F800000;
         and.b32 %r2, %r1, 31;
         setp.lt.u32 %p1, %r2, 20;
         @%p1 bra few;
         add.f32 %f1, %f1, %f1;
         fma.rn.f32 %f1, %f1, %f1, %f1;
         bra done;
     few:
         mul.f32 %f1, %f1, %f1;
     done:
         setp.lt.u32 %p2, %r1, 32;
         @%p2 bra end;
         cvt.f64.f32 %fd1, %f1;
         fma.rn.f64 %fd2, %fd1, %fd1, %fd1;
     end:
         ret;";
    let (counts, hotspots) = count(body, [1, 1, 1], [64, 1, 1], 0);
    // Per warp: the first branch by 32 threads, `bra done` by the 12 that fell through, the last by
    // all of them.
    assert_eq!((counts.branches, counts.divergent_branches), (2 * 3, 2));
    // add 12, fma 2·12, mul 20, in each of two warps; fma in double by the second warp.
    assert_eq!(counts.operations, [0, 2 * (12 + 24 + 20), 2 * 32, 0]);
    let single = InstructionClass::Single as usize;
    assert_eq!(
        (counts.warp_instructions[single], counts.thread_instructions[single]),
        (2 * 3, 2 * (12 + 12 + 20))
    );
    let [spot] = &hotspots[..] else { panic!("{hotspots:?}") };
    assert_eq!((spot.fault, spot.total, spot.excess), (Fault::Divergence, 2, 2));
    assert_eq!(spot.place.instruction, "bra");
}

#[test]
fn predicates_hold_threads_back() {
    let body = "mov.u32 %r1, %tid.x;
         setp.lt.u32 %p1, %r1, 5;
         @%p1 add.u32 %r2, %r1, %r1;
         ret;";
    let (counts, _) = count(body, [1, 1, 1], [32, 1, 1], 0);
    assert_eq!(counts.total_thread_instructions(), 3 * 32);
    assert_eq!(counts.not_predicated_off, 32 + 5 + 32);
    assert_eq!(counts.operations, [0; 4]);
}

#[test]
fn wide_accesses_and_atomics_are_counted_by_their_bytes() {
    let body = "ld.param.u64 %rd1, [p0];
         mov.u32 %r1, %tid.x;
         mul.wide.u32 %rd2, %r1, 16;
         add.u64 %rd3, %rd1, %rd2;
         ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd3];
         red.global.add.u32 [%rd1], %r1;
         ret;";
    let (counts, _) = count(body, [1, 1, 1], [32, 1, 1], 1);
    let load = Traffic { requests: 1, threads: 32, bytes: 512, transactions: 16, excess: 0 };
    assert_eq!(*counts.traffic(Space::Global, Direction::Load), load);
    let atomic = Traffic { requests: 1, threads: 32, bytes: 128, transactions: 1, excess: 0 };
    assert_eq!(*counts.traffic(Space::Global, Direction::Atomic), atomic);
}

/// Each warp goes through a loop whose length depends on the block, reads with a stride and
/// diverges.
const UNEVEN_BLOCKS: &str = "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmul.wide.u32 %rd2, %r1, 8;\n\
     add.u64 %rd3, %rd1, %rd2;\nand.b32 %r3, %r2, 63;\nadd.u32 %r3, %r3, 8;\n\
     loop:\nld.global.f32 %f1, [%rd3];\nsub.u32 %r3, %r3, 1;\nand.b32 %r4, %r1, 1;\nsetp.eq.u32 %p1, %r4, 0;\n\
     @%p1 bra even;\nadd.f32 %f1, %f1, %f1;\neven:\nsetp.ne.u32 %p2, %r3, 0;\n@%p2 bra loop;\nret;\n";

/// Blocks load between two barriers and compute between the next two.
const PHASES: &str = "mov.u32 %r3, 40;\n\
     loop:\nld.global.f32 %f1, [%rd1];\nld.global.f32 %f2, [%rd1+4];\nbar.sync 0;\n\
     add.f32 %f1, %f1, %f2;\nadd.f32 %f1, %f1, %f2;\nadd.f32 %f1, %f1, %f2;\nadd.f32 %f1, %f1, %f2;\n\
     add.f32 %f1, %f1, %f2;\nadd.f32 %f1, %f1, %f2;\nadd.f32 %f1, %f1, %f2;\nadd.f32 %f1, %f1, %f2;\n\
     bar.sync 0;\nsub.u32 %r3, %r3, 1;\nsetp.ne.u32 %p2, %r3, 0;\n@%p2 bra loop;\nret;\n";

/// Returns the counts of these blocks.
fn sampled(body: &str, blocks: u32, sample: Option<u64>) -> ptx_exec::Counted {
    let source = format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry kernel(.param .u64 p)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .f32 %f<3>;\n\
         ld.param.u64 %rd1, [p];\n{body}}}\n"
    );
    let device = Device::default();
    let linked = device.load(&source);
    let kernel = linked.program().kernel("kernel").unwrap();
    let values = [device.upload(&[0; 4096]).to_le_bytes().to_vec()];
    let params = LaunchParams {
        config: LaunchConfig::new(blocks, 128),
        cooperative: false,
        stack: 0,
        workers: 2,
        params: &pack(&linked, kernel, &values),
    };
    let options = WatchOptions { count: true, sample, check: false };
    let (outcome, seen) = watch(&linked, kernel, &params, &device, &AtomicBool::new(false), options);
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
    seen.counts.unwrap()
}

#[test]
fn short_launches_are_counted_whole() {
    let (all, sample) = (sampled(UNEVEN_BLOCKS, 64, None), sampled(UNEVEN_BLOCKS, 64, Some(1 << 20)));
    assert_eq!(all, sample);
    assert_eq!(all.watched, all.executed);
}

#[test]
fn of_long_launches_a_sample_is_scaled() {
    let blocks = 64 * 60;
    let found = sampled(UNEVEN_BLOCKS, blocks, Some(1 << 14));
    // All blocks execute as many loads as these, and 64 of them are known exactly.
    let some = sampled(UNEVEN_BLOCKS, 64, None);
    assert!(found.watched * 5 < found.executed, "{} of {}", found.watched, found.executed);
    let times = u64::from(blocks / 64);
    let near = |name: &str, found: u64, exact: u64| {
        let share = found as f64 / exact as f64;
        assert!((0.9..1.1).contains(&share), "{name}: {found}, exactly {exact}");
    };
    let loads = |counts: &Counts| *counts.traffic(Space::Global, Direction::Load);
    near("executed", found.executed, some.executed * times);
    near(
        "instructions",
        found.counts.total_warp_instructions(),
        some.counts.total_warp_instructions() * times,
    );
    near(
        "threads",
        found.counts.total_thread_instructions(),
        some.counts.total_thread_instructions() * times,
    );
    near("sectors", loads(&found.counts).transactions, loads(&some.counts).transactions * times);
    near("excess", loads(&found.counts).excess, loads(&some.counts).excess * times);
    near("divergence", found.counts.divergent_branches, some.counts.divergent_branches * times);
    let divergence =
        |hotspots: &[Hotspot]| hotspots.iter().find(|spot| spot.fault == Fault::Divergence).unwrap().excess;
    near("hotspot", divergence(&found.hotspots), divergence(&some.hotspots) * times);
}

#[test]
fn a_sample_holds_whole_blocks_since_their_phases_differ() {
    let found = sampled(PHASES, 4096, Some(1 << 14));
    let some = sampled(PHASES, 16, None);
    assert!(found.watched * 5 < found.executed, "{} of {}", found.watched, found.executed);
    let loads = |counts: &Counts| counts.traffic(Space::Global, Direction::Load).requests;
    let share = loads(&found.counts) as f64 / (256 * loads(&some.counts)) as f64;
    assert!((0.99..1.01).contains(&share), "{share}");
}
