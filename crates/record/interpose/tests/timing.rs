//! GPU durations, on a GPU whose time is computed: a kernel takes what its name says, and a pair
//! reads 2.8 µs more.

mod support;

use apex_trace::control::{Settings, TimingMode};
use apex_trace::layout::{Timing, flags};
use apex_trace::{Event, Process};
use std::collections::{BTreeMap, BTreeSet};
use support::{Recording, finished, launches, records};

/// The reading of a pair around an empty kernel, which takes 0.4 µs.
const EMPTY_PAIR_NS: u32 = 3200;

fn timings(process: &Process) -> Vec<Timing> {
    records(process, |event| match event {
        Event::Timing(timing) => Some(*timing),
        _ => None,
    })
}

/// Corrected readings by kernel.
fn readings(process: &Process) -> BTreeMap<String, Vec<u64>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for timing in timings(process) {
        let config = process.definitions.config(timing.config).expect("a defined configuration");
        let name = process.definitions.function(config.function).expect("a defined function").name.clone();
        found.entry(name).or_default().push(timing.raw_ns - u64::from(timing.head.duration));
    }
    found
}

fn recording(timing: TimingMode) -> Recording {
    Recording::new(Settings { timing, ..Settings::default() })
}

#[test]
fn readings_are_what_the_kernels_took() {
    let recording = recording(TimingMode::All);
    recording.run("timed 1000");
    let process = recording.process();
    let readings = readings(&process);
    let close = |values: &[u64], ns: u64| values.iter().all(|value| value.abs_diff(ns) <= 1 + ns / 1000);
    assert!(close(&readings["short_4000"], 4000), "{:?}", readings["short_4000"]);
    assert!(close(&readings["long_90000"], 90000), "{:?}", readings["long_90000"]);

    let context = process.definitions.contexts().next().expect("a context");
    assert!(context.pair_busy_ns.abs_diff(EMPTY_PAIR_NS) <= 1, "milliseconds as a float are not exact");
    assert!(timings(&process).iter().all(|timing| timing.head.flags & flags::STREAM_WAS_IDLE != 0));
    assert!(process.timing_ns > 0, "what timing cost is told");
}

/// Whether the record's reading was queued as a whole before the GPU came to it.
fn is_queued(timing: &Timing) -> bool {
    timing.head.flags & flags::QUEUED != 0
}

#[test]
fn short_kernels_of_a_program_that_keeps_the_gpu_idle_are_timed_behind_a_delay() {
    let queue = [("APEX_FAST", "queue"), ("APEX_FAST_ALWAYS", "1")];
    for (timing, variables) in
        [(TimingMode::Sampled, &[][..]), (TimingMode::All, &[]), (TimingMode::All, &queue)]
    {
        let recording = recording(timing);
        let mut command = recording.client("host-bound 5000");
        let violations = finished(command.env("FAKE_HOST_TIME", "1").envs(variables.iter().copied()));
        assert_eq!(violations, "0\n", "the event before a launch follows its delay");
        let process = recording.process();
        let timings = timings(&process);
        let queued = timings.iter().filter(|timing| is_queued(timing)).count();
        // A stream that looks busy is tried without a delay every ninth time.
        assert!(queued * 10 >= timings.len() * 8, "{queued} of {}", timings.len());
        for timing in timings.iter().filter(|timing| is_queued(timing)) {
            let ns = timing.raw_ns - u64::from(timing.head.duration);
            let config = process.definitions.config(timing.config).expect("a defined configuration");
            let name = &process.definitions.function(config.function).expect("a defined function").name;
            let takes: u64 = name.rsplit('_').next().unwrap().parse().expect("what the kernel takes");
            assert!(ns.abs_diff(takes) <= 2, "{name}: {ns}");
        }
        assert_eq!(launches(&process).len(), 5000, "a delay is no launch of the program");
        assert_eq!(process.definitions.configs().count(), 2);
    }
}

#[test]
fn where_the_driver_refuses_a_delay_launches_are_timed_without() {
    // Two launches tell the rate of the clock, 16 are in front of pairs around nothing, two tell
    // the rate again, and one is in front of a queue.
    for calibrating in [0, 10, 18, 20, 21] {
        let recording = recording(TimingMode::All);
        let mut command = recording.client("host-bound 1000");
        command.env("FAKE_HOST_TIME", "1").env("FAKE_REFUSES_DELAYS_AFTER", calibrating.to_string());
        finished(&mut command);
        let process = recording.process();
        assert_eq!(launches(&process).len(), 1000);
        let timings = timings(&process);
        assert_eq!(timings.len(), 998);
        assert!(!timings.iter().any(is_queued), "what the host needs for a launch is in every reading");
    }
}

#[test]
fn all_means_all_but_the_first_of_each_and_every_timing_is_a_launchs() {
    let recording = recording(TimingMode::All);
    recording.run("timed 1000");
    let process = recording.process();
    let timings = timings(&process);
    assert_eq!(timings.len(), 1000 - 2, "the first launch of a kernel may load code");
    let starts: BTreeMap<u64, u32> =
        launches(&process).iter().map(|launch| (launch.head.start, launch.config)).collect();
    for timing in timings {
        assert_eq!(starts.get(&timing.head.start), Some(&timing.config));
        assert!(process.definitions.stream(timing.stream).is_some());
    }
}

#[test]
fn samples_are_few_and_of_every_kernel() {
    // A sample takes longer on a busy machine, so the budget allows fewer: then more launches are
    // made, until there are enough samples to compare.
    for times in [1, 4, 16, 64] {
        let recording = recording(TimingMode::Sampled);
        recording.run(&format!("timed {}", 20_000 * times));
        let readings = readings(&recording.process());
        let samples = |name| readings.get(name).map_or(0, Vec::len);
        let (short, long) = (samples("short_4000"), samples("long_90000"));
        assert!(short < 1000 * times, "{short} of {}", 18_000 * times);
        assert!(long < 1000 * times, "{long} of {}", 2_000 * times);
        if short >= 20 && long >= 20 {
            assert!(long as f64 / 2.0 > short as f64 / 18.0, "what takes longer is sampled more closely");
            return;
        }
    }
    panic!("too few samples of 1,280,000 launches");
}

#[test]
fn configurations_that_a_thread_forgets_are_sampled_all_the_same() {
    const CONFIGURATIONS: usize = 5000;
    let recording = Recording::new(Settings { budget_ppm: 1_000_000, ..Settings::default() });
    recording.run(&format!("timed-in-turn {CONFIGURATIONS} 6"));
    let process = recording.process();
    let timed: BTreeSet<u32> = timings(&process).iter().map(|timing| timing.config).collect();
    assert!(timed.len() > CONFIGURATIONS / 2, "{} of {CONFIGURATIONS}", timed.len());
}

#[test]
fn off_means_that_the_driver_sees_no_event() {
    let recording = recording(TimingMode::Off);
    assert_eq!(recording.run("timed 1000"), "0\n");
    assert_eq!(timings(&recording.process()).len(), 0);
}

#[test]
fn a_budget_of_nothing_is_kept_after_the_first_milliseconds() {
    // The time in which a thread has lost its processor counts: the best of some runs is without.
    let spent = || {
        let recording = Recording::new(Settings { budget_ppm: 0, ..Settings::default() });
        recording.run("timed 200000");
        let process = recording.process();
        assert_eq!(launches(&process).len(), 200_000);
        process.timing_ns
    };
    let best = std::iter::repeat_with(spent).take(20).find(|&ns| ns < 50_000_000);
    assert!(best.is_some());
}

#[test]
fn what_is_not_done_yet_is_not_waited_for() {
    let recording = recording(TimingMode::All);
    finished(recording.client("timed 1000").env("FAKE_SLOW", "1"));
    let readings = readings(&recording.process());
    assert!(readings["short_4000"].len() > 800, "{}", readings["short_4000"].len());
    assert!(readings["short_4000"].iter().all(|&ns| ns.abs_diff(4000) < 10));
}

#[test]
fn the_driver_is_rarely_asked_about_what_is_not_done() {
    const LAUNCHES: usize = 20_000;
    for timing in [TimingMode::Sampled, TimingMode::All] {
        let recording = recording(timing);
        let mut command = recording.client(&format!("two-streams {LAUNCHES}"));
        let failed = finished(command.env("FAKE_SLOW", "1"));
        let failed: usize = failed.trim().parse().expect("a number");
        let timed = readings(&recording.process())["short_4000"].len();
        println!("{timing:?}: {failed} of the answers about {timed} readings say that work is not done");
        // One of the streams is done at the end alone. (There were 2 answers for each launch, and
        // 64 where every launch is timed, when the driver was asked about all that was pending.)
        let most = if timing == TimingMode::All { 3 * LAUNCHES } else { LAUNCHES / 20 };
        assert!(failed <= most, "{failed} of {timed}");
    }
}

#[test]
fn where_calibration_fails_nothing_is_timed_and_everything_recorded() {
    let recording = recording(TimingMode::All);
    assert_eq!(finished(recording.client("timed 1000").env("FAKE_NO_PTX", "1")), "0\n");
    let process = recording.process();
    assert_eq!(timings(&process).len(), 0);
    assert_eq!(launches(&process).len(), 1000);
}

#[test]
fn contexts_may_come_and_go_with_readings_pending() {
    for slow in [false, true] {
        let recording = recording(TimingMode::All);
        let mut command = recording.client("contexts");
        if slow {
            command.env("FAKE_SLOW", "1");
        }
        assert_eq!(finished(&mut command), "0\n", "no event of a context that is gone is used");
        let process = recording.process();
        assert_eq!(launches(&process).len(), 120);
        assert_eq!(process.definitions.contexts().count(), 6, "a handle that comes again is another context");
        let readings = readings(&process);
        assert!(readings.values().flatten().all(|&ns| ns.abs_diff(1000) < 10), "{readings:?}");
    }
}

#[test]
fn threads_that_time_never_spoil_another_threads_capture() {
    for host_time in [false, true] {
        let mut is_enough = false;
        // On a busy machine the threads may hardly run between captures: then there are more of
        // these.
        for captures in [300, 1200, 4800, 19_200] {
            let recording = recording(TimingMode::All);
            let mut command = recording.client(&format!("capture-race {captures}"));
            if host_time {
                command.env("FAKE_HOST_TIME", "1");
            }
            assert_eq!(finished(&mut command), "0\n", "no event and no delay");
            let process = recording.process();
            let timings = timings(&process);
            assert!(host_time || !timings.iter().any(is_queued));
            assert_eq!(process.dropped, 0);
            is_enough = timings.len() > 100 && timings.iter().any(is_queued) == host_time;
            if is_enough {
                break;
            }
        }
        assert!(is_enough, "and time between captures");
    }
}

#[test]
fn threads_that_end_leave_their_event_pairs_to_others() {
    let recording = recording(TimingMode::All);
    finished(recording.client("threads-in-turn 300 50").env("FAKE_SLOW", "1"));
    let process = recording.process();
    assert_eq!(launches(&process).len(), 15_000);
}
