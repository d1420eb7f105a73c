//! The first line of a report names what a program's time went into: programs with one cause each,
//! as a GPU's recorder would have written them.

use crate::common::{Sandbox, output, text};
use apex_trace::layout::MemoryKind;
use std::path::Path;
use tempfile::TempDir;
use test_session::{LEGACY, NON_BLOCKING, Recording};

/// The report on a session that `program` writes.
fn report(options: &[&str], program: impl FnOnce(&TempDir)) -> String {
    let sandbox = Sandbox::new();
    let dir = TempDir::new().unwrap();
    program(&dir);
    test_session::open(&dir);
    let arguments = [&["report", dir.path().to_str().unwrap()], options].concat();
    let mut command = sandbox.apex(&arguments);
    let page = text(&output(command.env("COLUMNS", "100"), 0).stdout);
    println!("{page}");
    page
}

fn of_one(program: impl FnOnce(&mut Recording)) -> String {
    report(&[], |dir| record(dir.path(), program))
}

/// The session that `program` writes into `dir`.
pub(crate) fn record(dir: &Path, program: impl FnOnce(&mut Recording)) {
    let mut recording = Recording::new(dir);
    program(&mut recording);
    recording.exit();
}

/// Ten seconds of imports with a kernel here and there, then steps of 400 short kernels that a
/// framework launches slowly.
pub(crate) fn launch_bound(program: &mut Recording) {
    let function = program.function("fill");
    for blocks in 1..=20 {
        let config = program.config(function, blocks, 256);
        program.launch(config, LEGACY);
        program.now += 500_000_000;
    }
    let layers: Vec<u32> = (0..40).map(|layer| program.function(&format!("layer_{layer}"))).collect();
    let layers: Vec<u32> = layers.into_iter().map(|layer| program.config(layer, 1056, 256)).collect();
    for _ in 0..200 {
        for kernel in 0..400 {
            program.timed(layers[kernel % 40], LEGACY, 3_000);
            program.now += 21_000;
        }
        program.copy(MemoryKind::Pageable, MemoryKind::Device, 4, true, 20_000);
    }
}

#[test]
fn a_host_that_launches_too_slowly_is_named_for_the_steady_state() {
    let page = of_one(launch_bound);
    let first = page.lines().next().unwrap();
    assert!(first.starts_with("The GPU is idle 8") && first.contains("of each step"), "{first}");
    assert!(page.lines().take(2).any(|line| line.contains("launches kernels too slowly")), "{page}");
    assert!(page.contains("idle: host code") && page.contains("A step takes"), "{page}");
    assert!(page.lines().take(5).any(|line| line.contains("CUDA graph")), "{page}");
    assert!(page.contains("Not shown: start-up and warm-up, 10") && !page.contains("excellent"), "{page}");
}

#[test]
fn the_phase_that_is_asked_for_is_shown() {
    let page = report(&["--phase", "startup"], |dir| record(dir.path(), launch_bound));
    assert!(page.lines().next().unwrap().contains("of the start-up"), "{page}");
    let all = report(&["--phase", "all"], |dir| record(dir.path(), launch_bound));
    assert!(all.lines().next().unwrap().contains("of the time"), "{all}");
}

#[test]
fn a_pause_is_named_with_its_place() {
    let page = of_one(|program| {
        let [init, work] = ["init", "work"].map(|name| program.function(name));
        let (init, work) = (program.config(init, 1056, 256), program.config(work, 1056, 256));
        program.launch(init, LEGACY);
        program.now += 3_000_000_000;
        program.launch(work, LEGACY);
        (0..40).for_each(|_| program.timed(work, LEGACY, 3_000_000));
        program.synchronise(LEGACY, 123_000_000);
    });
    let verdict = page.lines().take(3).flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    assert!(
        verdict.contains("3.00 s without interruption") && verdict.contains("between `init` and `work`"),
        "{verdict}"
    );
}

#[test]
fn a_free_that_waits_for_kernels_is_no_finding() {
    let page = of_one(|program| {
        let function = program.function("work");
        let config = program.config(function, 1056 * 8, 256);
        for _ in 0..200 {
            program.allocate(MemoryKind::Device, 0x1000, 16 << 20, 20_000);
            program.timed(config, LEGACY, 5_000_000);
            program.free(0x1000, 4_990_000);
        }
    });
    assert!(page.starts_with("The GPU is busy 99%") || page.starts_with("The GPU is busy 100%"), "{page}");
    assert!(!page.contains("repeated-allocation") && page.contains("hidden by a busy GPU"), "{page}");
}

#[test]
fn thousands_of_tiny_launches_are_to_be_one() {
    let page = of_one(|program| {
        let function = program.function("tiny");
        let config = program.config(function, 1, 32);
        for _ in 0..3000 {
            program.timed(config, LEGACY, 1_500);
        }
        program.synchronise(LEGACY, 5_000);
    });
    let verdict: String = page.lines().take(5).collect::<Vec<_>>().join(" ");
    assert!(verdict.contains("idle") && !page.contains("give each thread less work"), "{page}");
    assert!(page.contains("combine all 2999 launches of `tiny` into one"), "{page}");
}

#[test]
fn copies_within_the_device_are_to_be_pointers_that_change_places() {
    let page = of_one(|program| {
        let function = program.function("diffuse");
        let config = program.config(function, 1056 * 8, 256);
        for _ in 0..500 {
            program.timed(config, LEGACY, 100_000);
            program.copy(MemoryKind::Device, MemoryKind::Device, 100_000_000, true, 3_000);
        }
        program.synchronise(LEGACY, 90_000_000);
    });
    let verdict = page.lines().take(5).flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    assert!(verdict.starts_with("Copies take"), "{page}");
    assert!(verdict.contains("→ Exchange the two pointers instead of copying"), "{page}");
    assert!(!verdict.contains("idle time") && !page.contains("fine: copies"), "{page}");
}

#[test]
fn a_rank_that_waits_for_a_slower_one_is_named() {
    let page = report(&[], |dir| {
        for (own_ns, collective_ns) in [(2_000_000, 4_000_000), (5_000_000, 1_000_000)] {
            record(dir.path(), |rank| {
                let names =
                    ["train", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"].map(|name| rank.function(name));
                let (train, reduce) = (rank.config(names[0], 1056, 256), rank.config(names[1], 24, 544));
                for _ in 0..300 {
                    rank.timed(train, NON_BLOCKING, own_ns);
                    rank.timed(reduce, NON_BLOCKING, collective_ns);
                    rank.synchronise(NON_BLOCKING, 6_000_000);
                }
            });
        }
    });
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    // Both ranks are recordings of this process: which one is slow cannot be said.
    let expected = "waits for a slower rank in collectives for 50% of its time, on average over 2 ranks 25% of each step.";
    assert!(words.starts_with("Rank 0 (process ") && words.contains(expected), "{page}");
}

#[test]
fn a_loader_that_starves_the_gpu_is_named() {
    let page = of_one(|program| {
        let [forward, backward] = ["forward", "backward"].map(|name| program.function(name));
        let (forward, backward) = (program.config(forward, 1056, 256), program.config(backward, 2112, 256));
        for _ in 0..100 {
            program.now += 25_000_000;
            program.copy(MemoryKind::Device, MemoryKind::Pinned, 1 << 20, true, 10_000);
            (0..5).for_each(|_| program.timed(forward, LEGACY, 300_000));
            (0..5).for_each(|_| program.timed(backward, LEGACY, 500_000));
            program.synchronise(LEGACY, 3_950_000);
        }
    });
    let verdict: String = page.lines().take(6).collect::<Vec<_>>().join(" ");
    assert!(verdict.contains("idle 8") && verdict.contains("waits for host code"), "{page}");
    assert!(verdict.contains("Prepare the next input"), "{page}");
}
