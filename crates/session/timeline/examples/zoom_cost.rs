//! The cost of the timeline's index of a long session, and of answers from it: elapsed time, sizes,
//! memory.
//!
//!     cargo run --release -p apex-timeline --example zoom_cost -- [DIR [MOST_RECORDS]]
//!
//! Sessions of up to 100 million launches are written below DIR (3.3 GB there, and the index; by
//! default the system's temporary folder), one after the other, and removed. Their kernels, pauses
//! and rates are made up: bursts of launches into four streams, some of them timed, and waits
//! between.

use apex_profile::{Predictions, SaturatingSum as _};
use apex_random::Random;
use apex_timeline::{Asked, AskedLaunch, Look, Progress, Step, Timeline};
use apex_trace::definition::{Config, Context, Definition, Device, Function, Stream, StreamKind};
use apex_trace::layout::{Call, CallClass, ClockAnchor, ClockKind, FileHeader, Launch, Slots as _, Timing};
use apex_trace::{Ended, Lane, MappedControl, ProcessFile, control::Settings};
use cuda_launch::LaunchConfig;
use serde_json::Value;
use std::error::Error;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Kernels that the program launches.
const KERNELS: u64 = 200;
const STREAMS: u64 = 4;
/// The interval between timed launches, in launches.
const TIMED: u64 = 100;
/// Launches between two waits.
const BURST: u64 = 1000;
/// Zooms of each sort.
const ZOOMS: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let most: u64 = std::env::args().nth(2).map_or(Ok(u64::MAX), |most| most.parse())?;
    for records in [1_000_000, 10_000_000, 100_000_000].into_iter().filter(|&records| records <= most) {
        let session = dir.join(format!("apex-zoom-cost-{}", std::process::id()));
        std::fs::create_dir(&session)?;
        let measured = record(&session, records).and_then(|()| measure(&session, records));
        std::fs::remove_dir_all(&session)?;
        measured?;
    }
    Ok(())
}

/// Records a program that makes `launches` launches.
fn record(dir: &Path, launches: u64) -> Result<(), Box<dyn Error>> {
    MappedControl::create(dir, Settings::default())?;
    let file = ProcessFile::create(dir, None)?;
    define(&file);
    let (mut lane, mut random, mut now) = (Lane::default(), Random::new(1), 1_000u64);
    for number in 0..launches {
        let config = 1 + random.below(KERNELS) as u32;
        let stream = 1 + random.below(STREAMS) as u32;
        let (start, end) = (now, now + 2_000 + random.below(3_000));
        let head = Launch::head(0, start, end);
        let written = lane.record(&file, &Launch { head, config, stream, result: 0, api: 1 });
        let timed = number % TIMED == 0;
        let raw_ns = 2_000 + u64::from(config) * 30;
        let timing = Timing { head: Timing::head(0, start, start), config, stream, raw_ns };
        if !written || timed && !lane.record(&file, &timing) {
            return Err("no disk space".into());
        }
        now = end + random.below(2_000);
        if number % BURST == BURST - 1 {
            let head = Call::head(0, now, now + 500_000);
            let class = CallClass::Synchronize as u8;
            lane.record(&file, &Call { head, api: 2, class, ..Call::default() });
            now += 500_000 + random.below(1_000_000);
        }
    }
    drop(lane);
    file.mark_ended(Ended::Exited);
    drop(file);
    let found = std::fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    let path = found.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "rec"));
    tick_in_nanoseconds(&path.ok_or("no process file")?)
}

fn define(file: &ProcessFile) {
    let definitions = [
        Definition::Name { id: 1, text: "cuLaunchKernel".into() },
        Definition::Name { id: 2, text: "cuCtxSynchronize".into() },
        Definition::Device(Device { id: 1, name: "a GPU".into(), ..Device::default() }),
        Definition::Context(Context { id: 1, handle: 1, device: 1, ..Context::default() }),
    ];
    let streams = (1..=STREAMS as u32).map(|id| {
        let kind = StreamKind::NonBlocking;
        Definition::Stream(Stream { id, handle: id.into(), context: 1, kind })
    });
    let kernels = (1..=KERNELS as u32).flat_map(|id| {
        let name = format!("_Z10kernel_{id:03}PKfPfi");
        let launch = LaunchConfig::new(264, 256);
        [
            Definition::Function(Function { id, name, attributes: None }),
            Definition::Config(Config { id, function: id, context: 1, launch, ..Config::default() }),
        ]
    });
    definitions.into_iter().chain(streams).chain(kernels).for_each(|one| assert!(file.define(&one)));
}

/// Makes the ticks of a process file nanoseconds since its start.
fn tick_in_nanoseconds(path: &Path) -> Result<(), Box<dyn Error>> {
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    let clock = (ClockKind::Monotonic as u32).to_le_bytes();
    file.write_all_at(&clock, offset_of!(FileHeader, clock) as u64)?;
    let ticks = offset_of!(FileHeader, start) + offset_of!(ClockAnchor, ticks);
    Ok(file.write_all_at(&0u64.to_le_bytes(), ticks as u64)?)
}

fn measure(dir: &Path, records: u64) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let timeline = Timeline::make(dir, &Progress::default(), |_| Predictions::default());
    let timeline = timeline.map_err(|problem| format!("{problem:?}"))?;
    let built = begun.elapsed();
    let session: u64 = std::fs::read_dir(dir)?
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "rec"))
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .saturating_sum();
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!("{records} launches:");
    println!("  index made in {:.1} s, peak resident {} MB", built.as_secs_f64(), resident_mb("VmHWM")?);
    println!(
        "  session {:.0} MB, index {:.0} MB: {:.1} bytes for each launch",
        megabytes(session),
        megabytes(timeline.bytes()),
        timeline.bytes() as f64 / records as f64
    );
    zooms(&Look { timeline: Some(timeline.into()), progress: None, growing: false })?;
    println!("  resident after all answers {} MB", resident_mb("VmRSS")?);
    Ok(())
}

/// Answers at random zooms, by sort: median, 99 of 100, worst, and the largest answer.
fn zooms(look: &Look) -> Result<(), Box<dyn Error>> {
    let whole = Asked {
        from: None,
        to: None,
        columns: 1000,
        lanes: Vec::new(),
        ranks: Vec::new(),
        only_time: false,
        events: 2000,
    };
    let first: Value = serde_json::from_str(&look.answer(&whole).map_err(|why| format!("{why:?}"))?)?;
    let end = first["end_ns"].as_u64().ok_or("no end")?;
    let streams = first["lanes"].as_array().into_iter().flatten().filter(|lane| lane["kind"] == "stream");
    let stream = streams.into_iter().find_map(|lane| lane["id"].as_str()).ok_or("no stream")?;
    let timeline = look.timeline.as_ref().ok_or("no timeline")?;
    let mut random = Random::new(2);
    // Any length from microseconds to all, and any place.
    let mut part = |asked: &Asked| {
        let length = (1000.0 * (end as f64 / 1000.0).powf(random.uniform())) as u64;
        let from = random.below(end - length.min(end - 1));
        Asked { from: Some(from), to: Some(from + length.max(1)), ..asked.clone() }
    };
    let text = |answer: Result<String, _>| answer.map(|text: String| text.len());
    let tile = Asked { columns: 512, only_time: true, events: 512, ..whole.clone() };
    let most = Asked { columns: 4096, ..whole.clone() };
    println!("  | answer | median, ms | 99%, ms | worst, ms | largest, kB |");
    for (name, asked) in
        [("1000 columns", &whole), ("512 columns, time alone", &tile), ("4096 columns", &most)]
    {
        row(name, || text(look.answer(&part(asked))))?;
    }
    row("the whole, 1000 columns", || text(look.answer(&whole)))?;
    row("sums of a span", || text(timeline.span(&part(&whole))))?;
    row("one launch", || {
        let at = part(&whole).from.unwrap_or(0);
        text(timeline.launch(&AskedLaunch { lane: stream.to_owned(), at, step: Some(Step::Next) })).or(Ok(0))
    })
}

fn row(
    name: &str,
    mut answer: impl FnMut() -> Result<usize, apex_timeline::Unanswered>,
) -> Result<(), Box<dyn Error>> {
    let (mut times, mut largest) = (Vec::new(), 0);
    for _ in 0..ZOOMS {
        let begun = Instant::now();
        largest = largest.max(answer().map_err(|why| format!("{why:?}"))?);
        times.push(begun.elapsed());
    }
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let at = |share: usize| ms(times[share * (times.len() - 1) / 100]);
    println!("  | {name} | {:.2} | {:.2} | {:.2} | {:.0} |", at(50), at(99), at(100), largest as f64 / 1e3);
    Ok(())
}

/// A line of this process's status.
fn resident_mb(of: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(of)).ok_or("no such line")?;
    Ok(line.split_whitespace().nth(1).ok_or("no value")?.parse::<u64>()? / 1000)
}
