//! Measures workloads, and writes every sample as JSON.

use std::time::Instant;

use ptx_exec::WatchOptions;
use serde_json::json;

use crate::machine::machine;
use crate::native::Target;
use crate::workloads::{EmptyLaunch, How, Workload};

/// The code that is timed.
#[derive(Clone, Copy, PartialEq)]
enum TimedCode {
    Kernel,
    /// The kernel without machine code.
    Interpreted,
    /// The kernel with its instructions counted.
    Counted,
    /// The kernel checked for defects.
    Checked,
    Peer(Target),
}

impl TimedCode {
    /// As the file names it.
    fn name(self) -> &'static str {
        match self {
            TimedCode::Kernel => "cpu-device",
            TimedCode::Interpreted => "cpu-device-interpreted",
            TimedCode::Counted => "cpu-device-counted",
            TimedCode::Checked => "cpu-device-checked",
            TimedCode::Peer(Target::Default) => "rust",
            TimedCode::Peer(Target::Features) => "rust-avx2-fma",
        }
    }
}

/// The number of samples of a watched launch, which takes many times as long.
const WATCHED_SAMPLES: usize = 5;

/// Times of a workload on `threads` threads, in seconds.
struct Series {
    threads: usize,
    what: TimedCode,
    /// The elapsed times.
    seconds: Vec<f64>,
    /// The average time for which each thread kept a processor busy; for empty launches, that of
    /// all threads together.
    busy: Vec<f64>,
}

impl Series {
    fn new(threads: usize, what: TimedCode) -> Series {
        Series { threads, what, seconds: Vec::new(), busy: Vec::new() }
    }
}

struct Measured {
    name: &'static str,
    about: String,
    goal: Option<f64>,
    /// Warp instructions of a launch.
    instructions: u64,
    series: Vec<Series>,
}

struct MeasuredLaunch {
    about: &'static str,
    blocks: u32,
    series: Vec<Series>,
}

/// The measurements so far.
pub struct Report {
    threads: Vec<usize>,
    targets: Vec<Target>,
    /// Whether launches are measured that are counted or checked.
    watched: bool,
    workloads: Vec<Measured>,
    launches: Vec<MeasuredLaunch>,
}

impl Report {
    /// Nothing yet; `watched` tells whether launches will be measured that are counted or checked.
    pub fn new(watched: bool) -> Report {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if cores >= 2 { vec![1, 2] } else { vec![1] };
        Report { threads, targets: Target::all(), watched, workloads: Vec::new(), launches: Vec::new() }
    }

    /// Measures a workload, kernel and peers in turn.
    pub fn measure(&mut self, workload: &Workload, samples: usize) {
        let mut series: Vec<Series> = Vec::new();
        for &threads in &self.threads {
            let peers = self.targets.iter().copied().map(TimedCode::Peer);
            series.extend(
                [TimedCode::Kernel, TimedCode::Interpreted]
                    .into_iter()
                    .chain(peers)
                    .map(|what| Series::new(threads, what)),
            );
        }
        let watched = [TimedCode::Counted, TimedCode::Checked].into_iter().filter(|_| self.watched);
        series.extend(watched.map(|what| Series::new(1, what)));
        let counted = WatchOptions { count: true, ..WatchOptions::default() };
        let checked = WatchOptions { check: true, ..WatchOptions::default() };
        let mut instructions = 0;
        for sample in 0..=samples {
            let watched = |series: &Series| matches!(series.what, TimedCode::Counted | TimedCode::Checked);
            let measured = |series: &&mut Series| sample <= WATCHED_SAMPLES || !watched(series);
            let mut turns: Vec<&mut Series> = series.iter_mut().filter(measured).collect();
            if sample % 2 == 1 {
                turns.reverse();
            }
            for series in turns {
                let before = processor_seconds();
                let start = Instant::now();
                let mut kernel = |how| {
                    instructions = (workload.kernel)(series.threads, how).warp_instructions;
                };
                match series.what {
                    TimedCode::Kernel => kernel(How::Plain),
                    TimedCode::Interpreted => kernel(How::Interpreted),
                    TimedCode::Counted => kernel(How::Watched(counted)),
                    TimedCode::Checked => kernel(How::Watched(checked)),
                    TimedCode::Peer(target) => (workload.peer)(target, series.threads),
                }
                series.seconds.push(start.elapsed().as_secs_f64());
                series.busy.push((processor_seconds() - before) / series.threads as f64);
            }
        }
        // The first of each warmed up.
        for series in &mut series {
            series.seconds.remove(0);
            series.busy.remove(0);
        }
        let Workload { name, about, goal, .. } = workload;
        self.workloads.push(Measured { name, about: about.clone(), goal: *goal, instructions, series });
    }

    /// Measures launches that do nothing.
    pub fn measure_launch(&mut self, launch: &EmptyLaunch, samples: usize) {
        let mut series: Vec<Series> =
            self.threads.iter().map(|&threads| Series::new(threads, TimedCode::Kernel)).collect();
        let repeats = (20_000 / launch.blocks).clamp(1, 1000);
        for _ in 0..samples {
            for series in &mut series {
                let before = processor_seconds();
                let start = Instant::now();
                for _ in 0..repeats {
                    (launch.run)(series.threads);
                }
                series.seconds.push(start.elapsed().as_secs_f64() / f64::from(repeats));
                series.busy.push((processor_seconds() - before) / f64::from(repeats));
            }
        }
        self.launches.push(MeasuredLaunch { about: launch.about, blocks: launch.blocks, series });
    }

    /// Every sample.
    pub fn json(&self) -> String {
        let series = |series: &Series| {
            json!({
                "what": series.what.name(),
                "threads": series.threads,
                "seconds": nanoseconds(&series.seconds),
                "busy": nanoseconds(&series.busy),
            })
        };
        let workload = |workload: &Measured| {
            json!({
                "name": workload.name,
                "about": workload.about,
                "goal": workload.goal,
                "warp_instructions": workload.instructions,
                "series": workload.series.iter().map(series).collect::<Vec<_>>(),
            })
        };
        let launch = |launch: &MeasuredLaunch| {
            json!({
                "about": launch.about,
                "blocks": launch.blocks,
                "series": launch.series.iter().map(series).collect::<Vec<_>>(),
            })
        };
        let report = json!({
            "machine": machine(),
            "workloads": self.workloads.iter().map(workload).collect::<Vec<_>>(),
            "launches": self.launches.iter().map(launch).collect::<Vec<_>>(),
        });
        format!("{report}\n")
    }
}

/// Times in seconds, rounded to whole nanoseconds.
fn nanoseconds(seconds: &[f64]) -> Vec<f64> {
    seconds.iter().map(|seconds| (seconds * 1e9).round() / 1e9).collect()
}

/// Seconds that the processors have worked for this process.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "the clock of the process");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
