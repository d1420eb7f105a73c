//! Measuring, and showing what was measured.

use std::fmt::{self, Write as _};
use std::time::Instant;

use crate::native::Target;
use crate::workloads::{EmptyLaunch, Workload};

/// Times of something on so many threads, in seconds.
struct Series {
    threads: usize,
    /// `None` for the kernel.
    target: Option<Target>,
    /// On the clock on the wall.
    seconds: Vec<f64>,
    /// What each thread kept a processor busy, on average; for launches that do nothing, all threads together.
    busy: Vec<f64>,
}

impl Series {
    fn new(threads: usize, target: Option<Target>) -> Series {
        Series { threads, target, seconds: Vec::new(), busy: Vec::new() }
    }
}

/// The value below which `fraction` of the samples lie.
fn quantile(samples: &[f64], fraction: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * fraction).round() as usize]
}

fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

struct Measured {
    name: &'static str,
    about: String,
    goal: Option<f64>,
    /// Warp instructions of a launch.
    instructions: u64,
    series: Vec<Series>,
}

impl Measured {
    fn series(&self, threads: usize, target: Option<Target>) -> Option<&Series> {
        self.series.iter().find(|series| series.threads == threads && series.target == target)
    }

    /// How many times as fast two threads are as one.
    fn scaling(&self, target: Option<Target>) -> Option<f64> {
        let seconds = |threads| Some(median(&self.series(threads, target)?.seconds));
        Some(seconds(1)? / seconds(2)?)
    }
}

struct MeasuredLaunch {
    about: &'static str,
    blocks: u32,
    series: Vec<Series>,
}

/// What has been measured so far.
pub struct Report {
    threads: Vec<usize>,
    targets: Vec<Target>,
    workloads: Vec<Measured>,
    launches: Vec<MeasuredLaunch>,
}

impl Report {
    /// Nothing yet.
    pub fn new() -> Report {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if cores >= 2 { vec![1, 2] } else { vec![1] };
        Report { threads, targets: Target::all(), workloads: Vec::new(), launches: Vec::new() }
    }

    /// Measures a workload, kernel and peers in turn.
    pub fn measure(&mut self, workload: &Workload, samples: usize) {
        let mut series: Vec<Series> = Vec::new();
        for &threads in &self.threads {
            let targets = std::iter::once(None).chain(self.targets.iter().copied().map(Some));
            series.extend(targets.map(|target| Series::new(threads, target)));
        }
        let mut instructions = 0;
        for _ in 0..=samples {
            for series in &mut series {
                let before = processor_seconds();
                let start = Instant::now();
                match series.target {
                    None => instructions = (workload.kernel)(series.threads).warp_instructions,
                    Some(target) => (workload.peer)(target, series.threads),
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
            self.threads.iter().map(|&threads| Series::new(threads, None)).collect();
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
        let series = |out: &mut String, all: &[Series]| {
            for (index, series) in all.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                let what = match series.target {
                    None => "cpu-device",
                    Some(Target::Default) => "rust",
                    Some(Target::Features) => "rust-avx2-fma",
                };
                let list = |samples: &[f64]| {
                    let samples: Vec<String> = samples.iter().map(|sample| format!("{sample:.9}")).collect();
                    samples.join(", ")
                };
                let _ = write!(
                    out,
                    "{comma}\n      {{\"what\": \"{what}\", \"threads\": {}, \"seconds\": [{}], \"busy\": [{}]}}",
                    series.threads,
                    list(&series.seconds),
                    list(&series.busy)
                );
            }
        };
        let mut out = format!("{{\n  \"cpu\": \"{}\",\n  \"workloads\": [", cpu());
        for (index, workload) in self.workloads.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(
                out,
                "{comma}\n    {{\"name\": \"{}\", \"about\": \"{}\", \"warp_instructions\": {}, \"series\": [",
                workload.name, workload.about, workload.instructions
            );
            series(&mut out, &workload.series);
            out.push_str("\n    ]}");
        }
        out.push_str("\n  ],\n  \"launches\": [");
        for (index, launch) in self.launches.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(
                out,
                "{comma}\n    {{\"about\": \"{}\", \"blocks\": {}, \"series\": [",
                launch.about, launch.blocks
            );
            series(&mut out, &launch.series);
            out.push_str("\n    ]}");
        }
        out.push_str("\n  ]\n}\n");
        out
    }
}

/// The name of the CPU, as the kernel tells it.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or("unknown CPU", |(_, name)| name.trim()).to_owned()
}

/// A ratio, or a dash where it was not measured.
fn ratio(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}, {} samples of each: medians (fastest to 9th of 10).", cpu(), crate::SAMPLES)?;
        writeln!(out, "A ratio in brackets is that of processor time, which other programs disturb less.\n")?;
        writeln!(
            out,
            "| workload | threads | CPU device, ms | ns per warp instruction | Rust, ms | ratio | goal | Rust with AVX2 and FMA, ms | ratio |"
        )?;
        writeln!(out, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")?;
        for workload in &self.workloads {
            for &threads in &self.threads {
                let own = workload.series(threads, None);
                let cell = |series: Option<&Series>| {
                    series.map_or("-".to_owned(), |series| {
                        let [low, middle, high] =
                            [0.0, 0.5, 0.9].map(|at| 1e3 * quantile(&series.seconds, at));
                        format!("{middle:.2} ({low:.2} to {high:.2})")
                    })
                };
                let against = |target| {
                    let (own, peer) = (own?, workload.series(threads, Some(target))?);
                    let wall = median(&own.seconds) / median(&peer.seconds);
                    Some(format!("{wall:.2} ({:.2})", median(&own.busy) / median(&peer.busy)))
                };
                let against = |target| against(target).unwrap_or("-".to_owned());
                let per_instruction =
                    own.map(|own| median(&own.busy) * 1e9 * threads as f64 / workload.instructions as f64);
                let goal = workload.goal.map_or("-".to_owned(), |goal| format!("{goal}"));
                writeln!(
                    out,
                    "| {} | {threads} | {} | {} | {} | {} | {goal} | {} | {} |",
                    workload.name,
                    cell(own),
                    ratio(per_instruction),
                    cell(workload.series(threads, Some(Target::Default))),
                    against(Target::Default),
                    cell(workload.series(threads, Some(Target::Features))),
                    against(Target::Features),
                )?;
            }
        }
        writeln!(out, "\nThe workloads:\n")?;
        for workload in &self.workloads {
            writeln!(out, "- {}, {}", workload.name, workload.about)?;
        }
        if self.threads.contains(&2) {
            writeln!(out, "\n| from one thread to two | CPU device | Rust | Rust with AVX2 and FMA |")?;
            writeln!(out, "| --- | ---: | ---: | ---: |")?;
            for workload in &self.workloads {
                let [own, plain, features] = [None, Some(Target::Default), Some(Target::Features)]
                    .map(|at| ratio(workload.scaling(at)));
                writeln!(out, "| {} | {own} | {plain} | {features} |", workload.name)?;
            }
        }
        writeln!(out, "\n| empty kernel | threads | µs per launch | µs per block |")?;
        writeln!(out, "| --- | ---: | ---: | ---: |")?;
        for launch in &self.launches {
            for series in &launch.series {
                let micros = 1e6 * median(&series.seconds);
                let per_block = micros / f64::from(launch.blocks);
                writeln!(out, "| {} | {} | {micros:.2} | {per_block:.3} |", launch.about, series.threads)?;
            }
        }
        Ok(())
    }
}

/// Seconds that the processors have worked for this process.
fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "the clock of the process");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
