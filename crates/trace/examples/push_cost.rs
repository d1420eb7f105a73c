//! What recording a call costs: `cargo run --release -p apex-trace --example push_cost`.
//!
//! Each sample is what the recorder does around a driver call that takes no time: read the clock
//! twice and write a launch record. Samples are taken in batches, because reading the clock around
//! a single one would cost more than it does; chunk changes are in the batches in which they
//! happen.

use apex_trace::layout::{Launch, Slots};
use apex_trace::{Lane, ProcessFile, now};
use std::hint::black_box;

const BATCH: u32 = 64;
const BATCHES: usize = 100_000;

fn main() -> std::io::Result<()> {
    let dir = std::env::temp_dir().join(format!("apex-push-cost-{}", std::process::id()));
    std::fs::create_dir(&dir)?;
    let measured = measure(&dir);
    std::fs::remove_dir_all(&dir)?;
    let (bare, recorded) = measured?;
    println!("nanoseconds per call, over batches of {BATCH}:      median     p99    mean");
    report("reading the clock twice", bare);
    report("the same, and writing a record", recorded);
    Ok(())
}

fn measure(dir: &std::path::Path) -> std::io::Result<(Vec<f64>, Vec<f64>)> {
    let file = ProcessFile::create(dir, None)?;
    let mut lane = Lane::default();
    let bare = samples(|| {
        black_box((now(), now()));
    });
    let recorded = samples(|| {
        let start = now();
        let head = Launch::head(0, start, now());
        lane.record(&file, black_box(&Launch { head, config: 1, stream: 1, result: 0, api: 1 }));
    });
    Ok((bare, recorded))
}

/// Nanoseconds per call of `work`, for each batch.
fn samples(mut work: impl FnMut()) -> Vec<f64> {
    let mut batch = || {
        let start = std::time::Instant::now();
        (0..BATCH).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / f64::from(BATCH)
    };
    (0..BATCHES).map(|_| batch()).collect()
}

fn report(what: &str, mut samples: Vec<f64>) {
    samples.sort_by(f64::total_cmp);
    let quantile = |share: f64| samples[(samples.len() as f64 * share) as usize];
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    println!("{what:<44} {:>8.1} {:>7.1} {mean:>7.1}", quantile(0.5), quantile(0.99));
}
