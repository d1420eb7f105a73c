//! Noise, with step times that were recorded on an H200 (`data/h200/fast/fast.json.xz`): unchanged
//! runs keep the limits, and a step that takes 5% longer is found where runs vary little enough.
//!
//! A run is the mean of windows that are drawn from those of one program on one machine: so many
//! that runs vary by a given share. `cargo test -p apex-budgets --test noise -- --nocapture` prints
//! the table of docs/results/check.md.

use apex_budgets::{Measures, Per, Quantity, Report, Section};
use apex_random::Random;
use std::io::Read;

/// Runs that are judged, each by limits of their own.
const TRIALS: usize = 200;

/// Step times of windows in milliseconds, of the first process of each program. The host of the
/// measurement was shared: they vary by 3 to 30%.
fn recorded() -> Vec<(String, Vec<f64>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../data/h200/fast/fast.json.xz");
    let mut text = Vec::new();
    lzma_rust2::XzReader::new(std::fs::File::open(path).unwrap(), false).read_to_end(&mut text).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let runs = document["runs"].as_array().unwrap().iter();
    let programs = runs.map(|run| {
        let windows = run["recorded"]["means_ms"].as_array().unwrap();
        let windows = windows.iter().map(|window| window.as_f64().unwrap()).collect();
        (run["program"].as_str().unwrap().to_owned(), windows)
    });
    let mut programs: Vec<_> = programs.collect();
    programs.dedup_by(|a, b| a.0 == b.0);
    programs
}

fn run(windows: &[f64], count: usize, factor: f64, random: &mut Random) -> Measures {
    let drawn = (0..count).map(|_| windows[random.below(windows.len() as u64) as usize]);
    let step_ms = factor * drawn.sum::<f64>() / count as f64;
    Measures {
        per: Per::Step,
        on_cpu_device: false,
        whole: [(Quantity::StepMs, step_ms)].into(),
        kernels: [].into(),
    }
}

/// How many of 200 times limits of `first` runs are exceeded by three runs whose steps take
/// `factor` times as long.
fn alarms(windows: &[f64], (count, first): (usize, usize), factor: f64, random: &mut Random) -> usize {
    let judge = |_: &usize| {
        let mut runs = |count_of_runs: usize, factor: f64| -> Vec<Measures> {
            (0..count_of_runs).map(|_| run(windows, count, factor, random)).collect()
        };
        let section = Section::of(&runs(first, 1.0));
        !Report::of(&section, &runs(3, factor)).is_kept()
    };
    (0..TRIALS).filter(judge).count()
}

/// Standard deviation of runs over their mean.
fn spread(windows: &[f64], count: usize) -> f64 {
    let mean = windows.iter().sum::<f64>() / windows.len() as f64;
    let squares = windows.iter().map(|window| (window - mean).powi(2)).sum::<f64>();
    (squares / windows.len() as f64).sqrt() / mean / (count as f64).sqrt()
}

/// How much runs vary, first runs, and in how many of 200 trials 5% must be found.
const SETTINGS: [(f64, usize, usize); 3] = [(0.005, 10, 190), (0.005, 5, 0), (0.01, 10, 0)];

#[test]
fn unchanged_runs_give_no_alarm_and_five_percent_are_found() {
    let mut random = Random::new(11);
    println!("| program | runs vary by | first runs | alarms in 200 unchanged runs | 5% found in 200 |");
    println!("| --- | ---: | ---: | ---: | ---: |");
    for (program, windows) in recorded() {
        for (most, first, least) in SETTINGS {
            let count = (spread(&windows, 1) / most).powi(2).ceil() as usize;
            let noise = alarms(&windows, (count, first), 1.0, &mut random);
            let found = alarms(&windows, (count, first), 1.05, &mut random);
            let varies = 100.0 * spread(&windows, count);
            println!("| {program} | {varies:.2}% | {first} | {noise} | {found} |");
            assert_eq!(noise, 0, "{program}: false alarms");
            assert!(found >= least, "{program}: found {found}");
        }
    }
}
