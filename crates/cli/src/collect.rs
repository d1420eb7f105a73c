//! `apex collect`: measures the bundled benchmark kernels and writes a data set.

use crate::output;
use ::collect::collection::{self, Options, Progress, Wanted};
use ::collect::dataset::DataSet;
use ::collect::{batch, suite};
use anyhow::Context;
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Between two lines of progress on a terminal, and elsewhere.
const STEPS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// Measures a suite of benchmark kernels over many launch configurations, and writes a data set.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex collect -o h200 --rows 8000             all GPUs of this machine, with counters where ncu is
  apex collect -o h200 --rows 8000             the same again: goes on where it was stopped
  apex collect -o h200 --rows 12000            goes on with 4000 more
  apex collect -o quick --rows 500 --seconds 60
  apex collect -o scans --families scan,reduce --counters off
  apex collect -o try --device cpu --rows 100  without a GPU: marked, and never mixed with a GPU's rows
  apex collect --list

A launch is made several times for its time, and once more under Nsight Compute (ncu) for its counters. Interrupt it at any
time: what was measured is kept, and the same command goes on. docs/dataset.md explains every column.

Exits with 0 when everything was measured or tried, 1 if it was stopped before (by --seconds or a signal).")]
pub struct Args {
    /// Folder of the data set: a new one, or one to go on with
    #[arg(short, long, value_name = "DIR", env = "APEX_OUTPUT", required_unless_present_any = ["list", "launch_batch"])]
    output: Option<PathBuf>,
    /// Launches to measure
    #[arg(long, value_name = "N", env = "APEX_ROWS", default_value_t = 8000)]
    rows: u64,
    /// Seed of the launch configurations
    #[arg(long, value_name = "SEED", env = "APEX_SEED", default_value_t = 1)]
    seed: u64,
    /// Families of kernels, with commas between [default: all]
    #[arg(long, value_name = "NAMES", env = "APEX_FAMILIES", value_delimiter = ',')]
    families: Vec<String>,
    /// auto (all GPUs, else the CPU device), gpu, cpu, or some GPUs: gpu:0,2
    #[arg(long, value_name = "DEVICE", env = "APEX_DEVICE", default_value = "auto", value_parser = device)]
    device: Place,
    /// Counters by ncu: auto (where there is one), require, off
    #[arg(long, value_name = "WHEN", env = "APEX_COUNTERS", default_value = "auto", value_parser = wanted)]
    counters: Wanted,
    /// SM and memory throughput among the counters: many passes, some eight times as long
    #[arg(long, env = "APEX_THROUGHPUT", value_parser = FalseyValueParser::new())]
    throughput: bool,
    /// Nsight Compute's program [default: looked for]
    #[arg(long, value_name = "FILE", env = "APEX_NCU")]
    ncu: Option<PathBuf>,
    /// Stop after so many seconds
    #[arg(long, value_name = "N", env = "APEX_SECONDS")]
    seconds: Option<u64>,
    /// List the families and their kernels
    #[arg(long)]
    list: bool,
    /// Print JSON (schema apex.collect/1; with --list, apex.suite/1)
    #[arg(long, env = "APEX_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
    /// Make the launches of this file (what ncu runs)
    #[arg(long, hide = true, value_name = "FILE")]
    launch_batch: Option<PathBuf>,
}

/// Where to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    choice: gpu::Choice,
    /// Which GPUs; all if empty.
    ordinals: Vec<usize>,
}

fn device(text: &str) -> Result<Place, String> {
    let place = |choice| Ok(Place { choice, ordinals: Vec::new() });
    match text {
        "auto" => place(gpu::Choice::Auto),
        "gpu" => place(gpu::Choice::Gpu),
        "cpu" => place(gpu::Choice::Cpu),
        _ => {
            let numbers =
                text.strip_prefix("gpu:").ok_or("auto, gpu, cpu, or numbers of GPUs such as gpu:0,2")?;
            let number =
                |number: &str| number.trim().parse().map_err(|_| format!("`{number}` is no number of a GPU"));
            let ordinals = numbers.split(',').map(number).collect::<Result<Vec<usize>, String>>()?;
            let twice = ordinals.iter().enumerate().find(|(at, number)| ordinals[..*at].contains(number));
            match twice {
                Some((_, number)) => Err(format!("GPU {number} is named twice")),
                None => Ok(Place { choice: gpu::Choice::Gpu, ordinals }),
            }
        }
    }
}

fn wanted(text: &str) -> Result<Wanted, String> {
    match text {
        "auto" => Ok(Wanted::Auto),
        "require" => Ok(Wanted::Require),
        "off" => Ok(Wanted::Off),
        _ => Err("auto, require or off".to_owned()),
    }
}

/// Runs `apex collect`.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list {
        return list(args.json);
    }
    if let Some(file) = &args.launch_batch {
        let ordinal = args.device.ordinals.first().copied().unwrap_or(0);
        batch::run(file, args.device.choice, ordinal)?;
        return Ok(ExitCode::SUCCESS);
    }
    let folder = args.output.as_deref().expect("required by the parser");
    let options = options(args, folder)?;
    let progress = Progress::default();
    let collected = shown(&progress, || collection::run(&options, &progress, stop_on_signals()));
    let remarks = progress.remarks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    remarks.iter().for_each(output::remark);
    let data_set = collected?;
    if args.json {
        output::json(&Document::of(folder, &data_set))?
    } else {
        summary(folder, &data_set)?
    };
    Ok(if data_set.manifest.complete { ExitCode::SUCCESS } else { ExitCode::from(crate::exit::NO) })
}

fn options(args: &Args, folder: &Path) -> anyhow::Result<Options> {
    let apex = std::env::current_exe().context("cannot tell where the apex executable lies")?;
    let command = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    Ok(Options {
        folder: folder.to_owned(),
        rows: args.rows,
        seed: args.seed,
        families: args.families.clone(),
        choice: args.device.choice,
        ordinals: args.device.ordinals.clone(),
        counters: args.counters,
        throughput: args.throughput,
        ncu: args.ncu.clone(),
        limit: args.seconds.map(Duration::from_secs),
        command: format!("apex {}", command.collect::<Vec<_>>().join(" ")),
        child: vec![apex.into(), OsString::from("collect")],
    })
}

/// A flag that SIGINT and SIGTERM set. The second signal ends the process as usual.
fn stop_on_signals() -> &'static AtomicBool {
    static STOP: AtomicBool = AtomicBool::new(false);
    extern "C" fn stop(signal: libc::c_int) {
        STOP.store(true, Ordering::Relaxed);
        // SAFETY: `signal` may be called in a handler, and SIG_DFL is a valid action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores into an atomic and calls `signal`.
        unsafe { libc::signal(signal, stop as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
    &STOP
}

/// Does `work` while a line on stderr shows how far it is.
fn shown<T>(progress: &Progress, work: impl FnOnce() -> T) -> T {
    let on_terminal = std::io::stderr().is_terminal();
    let step = STEPS[usize::from(!on_terminal)];
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let started = Instant::now();
            let mut first = None;
            while waiting.recv_timeout(step) == Err(RecvTimeoutError::Timeout) {
                let (begin, end) = if on_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
                let line = line(progress, started.elapsed(), &mut first);
                // A terminal that is gone is no reason to fail.
                let _ = write!(std::io::stderr(), "{begin}apex: {line}{end}");
            }
            if on_terminal && started.elapsed() > step {
                eprint!("\r\x1b[K");
            }
        });
        // Dropped when the work ends, even by a panic, so that the thread always ends too.
        let _done = done;
        work()
    })
}

/// How far it is. `first` remembers what was there when this run began, for the estimate.
fn line(progress: &Progress, elapsed: Duration, first: &mut Option<u64>) -> String {
    let [planned, timed, counted] =
        [&progress.planned, &progress.timed, &progress.counted].map(|number| number.load(Ordering::Relaxed));
    let begun = *first.get_or_insert(timed);
    let left = match timed.checked_sub(begun).filter(|&done| done > 0) {
        Some(done) => {
            let seconds = elapsed.as_secs_f64() / done as f64 * planned.saturating_sub(timed) as f64;
            format!(", about {seconds:.0} s left")
        }
        None => String::new(),
    };
    let counted = if counted > 0 { format!(", {counted} counted") } else { String::new() };
    format!("{timed} of {planned} launches timed{counted}, {} s{left}", elapsed.as_secs())
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    folder: &'a Path,
    device: &'a str,
    device_kind: ::collect::dataset::DeviceKind,
    planned: u64,
    launches: u64,
    timed: u64,
    counted: u64,
    complete: bool,
}

impl<'a> Document<'a> {
    fn of(folder: &'a Path, data_set: &'a DataSet) -> Document<'a> {
        let manifest = &data_set.manifest;
        Document {
            schema: "apex.collect/1",
            folder,
            device: &manifest.device_name,
            device_kind: manifest.device_kind,
            planned: manifest.planned_rows,
            launches: manifest.counts.rows,
            timed: manifest.counts.timed,
            counted: manifest.counts.counted,
            complete: manifest.complete,
        }
    }
}

fn summary(folder: &Path, data_set: &DataSet) -> anyhow::Result<ExitCode> {
    let (manifest, counts) = (&data_set.manifest, data_set.manifest.counts);
    let missing = data_set.launches.iter().filter(|row| !row.missing.is_empty()).count();
    output::page(|out| {
        writeln!(
            out,
            "{}: {} of {} launches on {}, {} timed, {} counted",
            folder.display(),
            counts.rows,
            manifest.planned_rows,
            manifest.device_name,
            counts.timed,
            counts.counted
        )?;
        if missing > 0 {
            writeln!(out, "{missing} launches lack something: the column `missing` says what and why")?;
        }
        if !manifest.complete {
            writeln!(out, "stopped before the end: the same command goes on")?;
        }
        Ok(())
    })
}

/// What `--list --json` prints.
#[derive(Serialize)]
struct List {
    schema: &'static str,
    version: u32,
    ptx_hash: String,
    families: Vec<Family>,
}

#[derive(Serialize)]
struct Family {
    family: &'static str,
    kernels: Vec<&'static str>,
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let of = |family| suite::kernels().filter(move |kernel| kernel.family == family);
    let families = suite::families().into_iter();
    let families: Vec<Family> = families
        .map(|family| Family { family, kernels: of(family).map(|kernel| kernel.name).collect() })
        .collect();
    if json {
        let (version, ptx_hash) = (suite::VERSION, suite::hash());
        return output::json(&List { schema: "apex.suite/1", version, ptx_hash, families });
    }
    output::page(|out| {
        families
            .iter()
            .try_for_each(|family| writeln!(out, "{:16} {}", family.family, family.kernels.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_understood_or_refused() {
        assert_eq!(device("gpu:0,2").unwrap(), Place { choice: gpu::Choice::Gpu, ordinals: vec![0, 2] });
        assert_eq!(device("cpu").unwrap(), Place { choice: gpu::Choice::Cpu, ordinals: vec![] });
        for wrong in ["", "gpu:", "gpu:x", "gpu:1,1", "tpu"] {
            assert!(device(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn progress_tells_what_is_left() {
        let progress = Progress::default();
        progress.planned.store(100, Ordering::Relaxed);
        let mut first = None;
        assert_eq!(line(&progress, Duration::from_secs(1), &mut first), "0 of 100 launches timed, 1 s");
        progress.timed.store(25, Ordering::Relaxed);
        progress.counted.store(10, Ordering::Relaxed);
        let expected = "25 of 100 launches timed, 10 counted, 5 s, about 15 s left";
        assert_eq!(line(&progress, Duration::from_secs(5), &mut first), expected);
    }
}
