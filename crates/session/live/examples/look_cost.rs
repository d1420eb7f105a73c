//! The cost of a look at a session that is being recorded, in CPU time of one core: a median over
//! looks, for sessions of different lengths and rates, in a table.
//!
//!     cargo run --release -p apex-live --example look_cost -- [DIR [MOST_RECORDS]]
//!
//! Whole looks read all of the window; fresh ones are [`Follower::fresh`]'s, which the dashboard
//! and
//! `apex top` take.
//!
//! Sessions of up to 100 million records are written below DIR (3.3 GB there; by default the
//! system's temporary folder), one after the other, and removed. Their times are made up: they
//! begin in the past, at an even rate, and go on up to the moment of each look.

use apex_live::Follower;
use apex_trace::definition::{Config, Context, Definition, Device, Function, Stream, StreamKind};
use apex_trace::layout::{ClockAnchor, ClockKind, FileHeader, Launch, Slots as _, Timing};
use apex_trace::{Lane, MappedControl, ProcessFile, Session, control::Settings};
use cuda_launch::LaunchConfig;
use std::error::Error;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Kernels that the program launches, one after the other.
const KERNELS: u32 = 200;
/// The interval between timed launches, in launches.
const TIMED: u64 = 50;
/// The span of the follower.
const WINDOW: Duration = Duration::from_secs(5);
/// Looks of which the median is taken.
const LOOKS: usize = 15;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    println!(
        "| records | records a second | first looks, ms | whole look, ms | fresh look, ms | its window, s | resident, MB |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let most: u64 = std::env::args().nth(2).map_or(Ok(u64::MAX), |most| most.parse())?;
    let sessions = [
        (1_000_000, 10_000),
        (10_000_000, 10_000),
        (100_000_000, 10_000),
        (10_000_000, 50_000),
        (10_000_000, 150_000),
        (10_000_000, 300_000),
        (100_000_000, 300_000),
    ];
    for (records, rate) in sessions.into_iter().filter(|&(records, _)| records <= most) {
        let session = dir.join(format!("apex-look-cost-{}", std::process::id()));
        std::fs::create_dir(&session)?;
        let row = measure(&session, records, rate);
        std::fs::remove_dir_all(&session)?;
        println!("{}", row?);
    }
    Ok(())
}

/// A row of the table.
fn measure(dir: &Path, records: u64, rate: u64) -> Result<String, Box<dyn Error>> {
    let mut program = Program::new(dir, records, rate)?;
    program.record_until_now();
    let mut followers = [Follower::new(dir, WINDOW), Follower::fresh(dir, WINDOW)];
    let begun = cpu_time()?;
    while followers[0].look()?.since_start.unread_bytes > 0 {}
    let first = cpu_time()? - begun;
    while followers[1].look()?.since_start.unread_bytes > 0 {}
    let (mut looks, mut window_ns): ([Vec<Duration>; 2], _) = Default::default();
    for _ in 0..LOOKS {
        std::thread::sleep(Duration::from_secs(1));
        for (follower, looks) in followers.iter_mut().zip(&mut looks) {
            program.record_until_now();
            let begun = cpu_time()?;
            let snapshot = follower.look()?;
            looks.push(cpu_time()? - begun);
            if snapshot.profile.totals.launches == 0 {
                return Err("the window is empty".into());
            }
            window_ns = snapshot.window.end - snapshot.window.start;
        }
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let [whole, fresh] = looks.map(|mut looks| {
        looks.sort();
        ms(looks[LOOKS / 2])
    });
    let (first, window, resident) = (ms(first), window_ns as f64 / 1e9, resident_mb()?);
    Ok(format!("| {records} | {rate} | {first:.0} | {whole:.1} | {fresh:.1} | {window:.1} | {resident} |"))
}

/// A program that is recorded: this process.
struct Program {
    file: ProcessFile,
    lane: Lane,
    /// The time at which it was made, on Rust's clock and on the machine's monotonic clock.
    made: (Instant, u64),
    /// The start of the next call, in nanoseconds of that clock.
    now_ns: u64,
    gap_ns: u64,
    number: u64,
}

impl Program {
    /// Creates a program that has made `records` calls at this moment.
    fn new(dir: &Path, records: u64, rate: u64) -> Result<Self, Box<dyn Error>> {
        MappedControl::create(dir, Settings::default())?;
        let file = ProcessFile::create(dir, None)?;
        let gap_ns = 1_000_000_000 / rate;
        let made_ns = Session::open(dir)?.processes[0].clock.monotonic_ns(0);
        let now_ns = made_ns.checked_sub(records * gap_ns).ok_or("the machine has not run that long")?;
        begin_at(dir, now_ns)?;
        let made = (Instant::now(), made_ns);
        let program = Self { file, lane: Lane::default(), made, now_ns, gap_ns, number: 0 };
        program.define();
        Ok(program)
    }

    fn define(&self) {
        let launch = |id| Config {
            id,
            function: id,
            context: 1,
            launch: LaunchConfig::new(264, 256),
            ..Config::default()
        };
        let function = |id| Function { id, name: format!("_Z10kernel_{id:03}PKfPfi"), attributes: None };
        let stream = Stream { id: 1, handle: 1, context: 1, kind: StreamKind::NonBlocking };
        let definitions = [
            Definition::Name { id: 1, text: "cuLaunchKernel".into() },
            Definition::Device(Device { id: 1, name: "a GPU".into(), ..Device::default() }),
            Definition::Context(Context { id: 1, handle: 1, device: 1, ..Context::default() }),
            Definition::Stream(stream),
        ];
        let kernels =
            (1..=KERNELS).flat_map(|id| [Definition::Function(function(id)), Definition::Config(launch(id))]);
        definitions.into_iter().chain(kernels).for_each(|definition| assert!(self.file.define(&definition)));
    }

    /// Records what it launched up to this moment.
    fn record_until_now(&mut self) {
        let now_ns = self.made.1 + self.made.0.elapsed().as_nanos() as u64;
        while self.now_ns < now_ns {
            let config = 1 + (self.number % u64::from(KERNELS)) as u32;
            let head = Launch::head(0, self.now_ns, self.now_ns + self.gap_ns / 3);
            let launch = Launch { head, config, stream: 1, result: 0, api: 1 };
            assert!(self.lane.record(&self.file, &launch), "no disk space");
            if self.number.is_multiple_of(TIMED) {
                let head = Timing::head(0, self.now_ns, self.now_ns);
                let timing = Timing { head, config, stream: 1, raw_ns: self.gap_ns / 2 };
                assert!(self.lane.record(&self.file, &timing), "no disk space");
            }
            self.number += 1;
            self.now_ns += self.gap_ns;
        }
    }
}

/// Makes the process file's ticks nanoseconds of the monotonic clock, and lets it begin then.
fn begin_at(dir: &Path, start_ns: u64) -> Result<(), Box<dyn Error>> {
    let files = std::fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    let path = files.into_iter().find(|path| path.extension().is_some_and(|found| found == "rec"));
    let file = std::fs::OpenOptions::new().write(true).open(path.ok_or("no process file")?)?;
    file.write_all_at(&(ClockKind::Monotonic as u32).to_le_bytes(), offset_of!(FileHeader, clock) as u64)?;
    for field in [offset_of!(ClockAnchor, ticks), offset_of!(ClockAnchor, monotonic_ns)] {
        file.write_all_at(&start_ns.to_le_bytes(), (offset_of!(FileHeader, start) + field) as u64)?;
    }
    Ok(())
}

/// CPU time that this process has taken.
fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    let nanoseconds = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds = nanoseconds.split_whitespace().next().ok_or("no time")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// Memory of this process that no file backs.
fn resident_mb() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: u64 = line.and_then(|line| line.split_whitespace().next()).ok_or("no RssAnon")?.parse()?;
    Ok(kib / 1000)
}
