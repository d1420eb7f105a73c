//! The cost that recording adds to a launch: `cargo bench -p apex-interpose --bench launch_cost
//! [ROWS]`.
//!
//! Runs itself under the injected library with the fake driver, whose launch returns at once: as
//! bare jumps, with recording switched off, recording one configuration, recording a thousand in
//! turn. Prints nanoseconds per launch: the mean of all; the median over blocks of a hundred
//! launches, which leaves out the page faults of the session file; median and 99th percentile of
//! single launches by the time-stamp counter, less its own cost (some machines' counters move in
//! steps of ten nanoseconds). What counts is the difference to the bare row; between the rows with
//! a busy driver, which leaves as little of the processor's caches as a real one; and between the
//! rows with a cold program, which walks through memory from one launch to the next, so that no
//! line and no page of the recorder is left in the nearest caches. Of a cold program's launches
//! only the calls themselves are timed. What `--code` adds is the difference of the two rows with
//! sampled timing, whose kernels have parameters.
//!
//! "Reshaped" launches are made in another block, for which the condition of a proof is evaluated:
//! two guards and two buffers. What that costs is the difference to "recording, shaped", the same
//! program without a plan.
//!
//! The rows named "waits" are a program that waits for each of its launches: their figures are of a
//! launch and the synchronisation behind it. It has nothing to gain from the launch queue, so
//! "queue" has it closed nearly all the time; in "queue open" it stays open.
//!
//! `ROWS` chooses rows: those whose names contain it. Further arguments are files of the library
//! to compare; each row is measured with the first (0), the second (1), … in turn.

mod client;

use apex_trace::control::{MappedControl, Settings, TimingMode};
use launch_condition::Plan;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const LAUNCHES: usize = 200_000;
const BLOCK: usize = 100;
/// Launches of a cold program, and what it walks through before each: all lines of the first bytes,
/// which is more than the second-level cache holds, and one line of each page, which is more than
/// the TLB holds.
const COLD_LAUNCHES: usize = 10_000;
const WALKED_BYTES: usize = 24 << 20;
const WALKED_WHOLE: usize = 4 << 20;

fn main() {
    // (Cargo passes `--bench`.)
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let first = arguments.first().map_or("", String::as_str);
    match first.parse() {
        Ok(configurations) => measure(configurations, arguments.get(1).map_or("", String::as_str)),
        Err(_) => run_all(first, arguments.get(1..).unwrap_or_default()),
    }
}

/// The setting of one row.
struct Row {
    name: &'static str,
    /// The program: how many configurations it launches in turn, and what else it does.
    configurations: u32,
    what: &'static str,
    settings: Settings,
    environment: &'static [(&'static str, &'static str)],
}

const DISABLED: (&str, &str) = ("APEX_DISABLE", "1");
const BUSY: (&str, &str) = ("FAKE_BUSY", "1");
const QUEUE: (&str, &str) = ("APEX_FAST", "queue");

/// All rows.
fn rows() -> Vec<Row> {
    let off =
        || Settings { recording: true, timing: TimingMode::Off, code_max_bytes: 0, ..Settings::default() };
    let sampled = || Settings { timing: TimingMode::Sampled, ..off() };
    let row = |name, configurations, what, settings, environment| Row {
        name,
        configurations,
        what,
        settings,
        environment,
    };
    vec![
        row("bare", 1, "", off(), &[DISABLED]),
        row("recording off", 1, "", Settings { recording: false, ..off() }, &[]),
        row("recording", 1, "", off(), &[]),
        row("recording, 1000 configs", 1000, "", off(), &[]),
        row("recording, sampled timing", 1, "given", sampled(), &[]),
        row(
            "sampled timing, with --code",
            1,
            "given",
            Settings { code_max_bytes: apex_trace::image::DEFAULT_MAX_BYTES, ..sampled() },
            &[],
        ),
        row("recording, shaped", 1, "shaped", off(), &[]),
        row("reshaped", 1, "shaped", off(), &[]),
        row("bare, busy driver", 1, "", off(), &[DISABLED, BUSY]),
        row("recording, busy driver", 1, "", off(), &[BUSY]),
        row("bare, cold program", 200, "cold", off(), &[DISABLED]),
        row("recording, cold program", 200, "cold", off(), &[]),
        row("waits, bare", 1, "waits", off(), &[DISABLED, BUSY]),
        row("waits, recording", 1, "waits", sampled(), &[BUSY]),
        row("waits, queue", 1, "waits", sampled(), &[BUSY, QUEUE]),
        row("waits, queue and batches", 1, "waits", sampled(), &[BUSY, ("APEX_FAST", "batch")]),
        row("waits, queue open", 1, "waits", sampled(), &[BUSY, QUEUE, ("APEX_FAST_ALWAYS", "1")]),
        row("cold, waits, bare", 1, "cold waits", off(), &[DISABLED, BUSY]),
        row("cold, waits, recording", 1, "cold waits", off(), &[BUSY]),
        row("cold, waits, queue", 1, "cold waits", off(), &[BUSY, QUEUE]),
    ]
}

/// Measures the rows whose names contain `chosen`, with each of the libraries in turn; with the one
/// that was just built if none is named.
fn run_all(chosen: &str, libraries: &[String]) {
    let me = std::env::current_exe().expect("a path");
    let built = [me.with_file_name("libapex.so").display().to_string()];
    let libraries = if libraries.is_empty() { &built } else { libraries };
    let driver = test_build::library("fake-driver");
    let temporary = tempfile::tempdir().expect("a temporary folder");
    println!("{:<28} {:>8} {:>8} {:>8} {:>8}", "ns per launch", "mean", "block", "median", "p99");
    for round in 0..3 {
        for row in rows().into_iter().filter(|row| row.name.contains(chosen)) {
            for (at, library) in libraries.iter().enumerate() {
                let session = session(temporary.path(), &format!("{round}-{}-{at}", row.name), row.settings);
                if row.name == "reshaped" {
                    std::fs::write(session.join(Plan::FILE), client::plan().to_bytes()).expect("a plan");
                }
                let mut command = Command::new(&me);
                command.args([&row.configurations.to_string(), row.what]).env("LD_PRELOAD", library);
                command.env("APEX_DRIVER", &driver).env("APEX_SESSION", &session);
                command.envs(row.environment.iter().copied());
                let output = command.output().expect("the measurement starts");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                let which = if libraries.len() > 1 { format!(" {at}") } else { String::new() };
                print!("{:<28} {}", row.name.to_owned() + &which, String::from_utf8_lossy(&output.stdout));
                std::io::stdout().flush().expect("standard output");
            }
        }
    }
}

fn session(folder: &Path, name: &str, settings: Settings) -> PathBuf {
    let session = folder.join(name);
    std::fs::create_dir(&session).expect("a session folder");
    MappedControl::create(&session, settings).expect("a control page");
    session
}

fn measure(configurations: u32, what: &str) {
    let (is_cold, waits) = (what.contains("cold"), what.contains("waits"));
    let (launch, function, mut parameters) = if what == "given" {
        client::start_with_parameters()
    } else if what == "shaped" {
        client::start_shaped()
    } else {
        let (launch, function) = client::start();
        (launch, function, [std::ptr::null_mut(); 4])
    };
    let parameters = parameters.as_mut_ptr();
    let synchronize = client::synchronize();
    let once = |grid: u32| {
        let none = std::ptr::null_mut();
        // SAFETY: the driver's function with its arguments.
        let result =
            unsafe { launch(function, grid + 1, 1, 1, 128, 1, 1, 0, none, parameters, std::ptr::null_mut()) };
        assert_eq!(result, 0);
        if waits {
            // SAFETY: likewise.
            assert_eq!(unsafe { synchronize() }, 0);
        }
    };
    (0..LAUNCHES as u32).for_each(|launch| once(launch % configurations)); // warm
    let (mean, typical) = if is_cold { (f64::NAN, f64::NAN) } else { in_blocks(configurations, once) };

    let per_tick = ns_per_tick();
    let walked = vec![1_u8; WALKED_BYTES];
    let launches = if is_cold { COLD_LAUNCHES } else { LAUNCHES };
    let mut ticks: Vec<u64> = (0..launches as u32)
        .map(|launch| {
            if is_cold {
                walk(&walked);
            }
            let begun = apex_trace::now();
            once(launch % configurations);
            apex_trace::now() - begun
        })
        .collect();
    let mut nothing: Vec<u64> = (0..LAUNCHES)
        .map(|_| -(apex_trace::now() as i64) as u64)
        .map(|begun| apex_trace::now().wrapping_add(begun))
        .collect();
    let own = quantile(&mut nothing, 0.5);
    let at = |share, ticks: &mut Vec<u64>| quantile(ticks, share).saturating_sub(own) as f64 * per_tick;
    println!("{mean:>8.1} {typical:>8.1} {:>8.1} {:>8.1}", at(0.5, &mut ticks), at(0.99, &mut ticks));
}

/// Nanoseconds for a launch: the mean of all, and the median over blocks of launches.
fn in_blocks(configurations: u32, once: impl Fn(u32)) -> (f64, f64) {
    let mut blocks = Vec::with_capacity(LAUNCHES / BLOCK);
    let begun = Instant::now();
    for block in 0..(LAUNCHES / BLOCK) as u32 {
        let begun = Instant::now();
        (0..BLOCK as u32).for_each(|launch| once((block * BLOCK as u32 + launch) % configurations));
        blocks.push(begun.elapsed().as_nanos() as u64);
    }
    let mean = begun.elapsed().as_nanos() as f64 / LAUNCHES as f64;
    (mean, quantile(&mut blocks, 0.5) as f64 / BLOCK as f64)
}

/// Reads memory as a program does between two launches, which evicts the recorder's data from the
/// caches.
fn walk(through: &[u8]) {
    let (whole, pages) = through.split_at(WALKED_WHOLE);
    let lines =
        |bytes: &[u8], step| bytes.iter().step_by(step).fold(0_u64, |sum, &byte| sum + u64::from(byte));
    // (A line of each page, and not always the same one of its set.)
    std::hint::black_box(lines(whole, 64) + lines(pages, 4096 + 64));
}

fn quantile(values: &mut [u64], share: f64) -> u64 {
    let at = ((values.len() - 1) as f64 * share) as usize;
    *values.select_nth_unstable(at).1
}

fn ns_per_tick() -> f64 {
    let (begun, ticks) = (Instant::now(), apex_trace::now());
    while begun.elapsed().as_millis() < 20 {}
    begun.elapsed().as_nanos() as f64 / (apex_trace::now() - ticks) as f64
}
