//! `apex collect`: measures the bundled benchmark kernels and writes a data set.

use crate::{interrupt, output};
use anyhow::Context;
use apex_collect::collection::{self, Options, Progress, Wanted};
use apex_collect::{batch, suite};
use apex_conventions::documents::{COLLECT, SUITE};
use apex_dataset::DataSet;
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Measures a suite of benchmark kernels over many launch configurations, and writes a data set.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex collect -o h200 --rows 8000                  all GPUs, with counters if ncu is installed
  apex collect -o h200 --rows 8000                  the same again: resumes
  apex collect -o h200 --rows 12000                 adds 4000 rows
  apex collect -o h200 --rows 12000 --throughput    adds the throughput of each launch
  apex collect -o quick --rows 500 --seconds 60
  apex collect -o scans --families scan,reduce --counters off
  apex collect -o try --device cpu --rows 100       without a GPU; these rows are marked
  apex collect --list

Each launch is repeated several times to measure its duration, and once under Nsight Compute (ncu) to read its counters. \
--throughput then runs each launch under ncu again. An interrupted collection keeps its rows; the same command resumes it. \
docs/dataset.md explains every column.

Exits with status 0 if all launches were tried, and with status 1 if --seconds or a signal stopped it.")]
pub struct Args {
    /// Folder of the data set, new or to be resumed
    #[arg(short, long, value_name = "DIR", required_unless_present_any = ["list", "launch_batch"])]
    output: Option<PathBuf>,
    /// Number of launches to measure
    #[arg(long, value_name = "N", default_value_t = 8000)]
    rows: u64,
    /// Seed of the launch configurations
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Families of kernels, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    families: Vec<String>,
    /// auto (all GPUs, otherwise the CPU device), gpu, cpu, or selected GPUs: gpu:0,2
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = device)]
    device: Place,
    /// Hardware counters by ncu: auto (if ncu is installed), require, off
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = wanted)]
    counters: Wanted,
    /// Also measure SM and memory throughput, including launches that were measured before; takes
    /// about eight times as long as counters
    #[arg(long, value_parser = FalseyValueParser::new())]
    throughput: bool,
    /// Path of Nsight Compute's ncu [default: searched for]
    #[arg(long, value_name = "FILE")]
    ncu: Option<PathBuf>,
    /// Maximum duration in seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// List the families and their kernels
    #[arg(long)]
    list: bool,
    #[arg(long, help = format!("Print JSON (schema {COLLECT}; with --list, {SUITE})"), value_parser = FalseyValueParser::new())]
    json: bool,
    /// Make the launches of this file (what ncu runs)
    #[arg(long, hide = true, value_name = "FILE")]
    launch_batch: Option<PathBuf>,
}

/// The devices to measure on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    choice: apex_gpu::Choice,
    /// The numbers of the GPUs; all if empty.
    ordinals: Vec<usize>,
}

fn device(text: &str) -> Result<Place, String> {
    let place = |choice| Ok(Place { choice, ordinals: Vec::new() });
    match text {
        "auto" => place(apex_gpu::Choice::Auto),
        "gpu" => place(apex_gpu::Choice::Gpu),
        "cpu" => place(apex_gpu::Choice::Cpu),
        _ => {
            let numbers =
                text.strip_prefix("gpu:").ok_or("auto, gpu, cpu, or numbers of GPUs such as gpu:0,2")?;
            let number = |number: &str| {
                number.trim().parse().map_err(|_| format!("`{number}` is not the number of a GPU"))
            };
            let ordinals = numbers.split(',').map(number).collect::<Result<Vec<usize>, String>>()?;
            let twice = ordinals.iter().enumerate().find(|(at, number)| ordinals[..*at].contains(number));
            match twice {
                Some((_, number)) => Err(format!("GPU {number} is named twice")),
                None => Ok(Place { choice: apex_gpu::Choice::Gpu, ordinals }),
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
    let collected = shown(&progress, || collection::run(&options, &progress, interrupt::stop_on_signals()));
    let remarks = progress.remarks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    remarks.iter().for_each(output::remark);
    let data_set = collected?;
    if args.json {
        output::json(COLLECT, &Document::of(folder, &data_set))?
    } else {
        summary(folder, &data_set)?
    };
    Ok(if data_set.manifest.complete { ExitCode::SUCCESS } else { ExitCode::from(crate::exit::NO) })
}

fn options(args: &Args, folder: &Path) -> anyhow::Result<Options> {
    let apex = std::env::current_exe().context("cannot find the path of the apex executable")?;
    let command = std::env::args_os().skip(1).map(|word| without_folders(&word.to_string_lossy()));
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

/// A word of the command line for the manifest: of an absolute path only the file's name, since the
/// folders say something of one machine alone.
fn without_folders(word: &str) -> String {
    let begin = word.find('/').unwrap_or(word.len());
    let (option, path) = word.split_at(begin);
    match Path::new(path).file_name() {
        Some(name) if option.is_empty() || option.ends_with('=') || option == "-o" => {
            format!("{option}{}", name.to_string_lossy())
        }
        _ => word.to_owned(),
    }
}

/// Does `work` while a line on stderr shows how far it is.
fn shown<T>(progress: &Progress, work: impl FnOnce() -> T) -> T {
    let mut pace = Pace::default();
    crate::progress::watch(move |elapsed| line(progress, elapsed, &mut pace), work)
}

/// The time at which each part of this run was first seen under way, and its progress then, from
/// which the remaining time is estimated.
#[derive(Default)]
struct Pace {
    times: Option<(Duration, u64)>,
    throughput: Option<(Duration, u64)>,
}

/// Describes the progress.
fn line(progress: &Progress, elapsed: Duration, pace: &mut Pace) -> String {
    let Progress { planned, timed, counted, throughput, planned_throughput, .. } = progress;
    let [planned, timed, counted, throughput, planned_throughput] =
        [planned, timed, counted, throughput, planned_throughput]
            .map(|number| number.load(Ordering::Relaxed));
    let left = match timed < planned {
        true => left(timed, planned, elapsed, pace.times.get_or_insert((Duration::ZERO, timed))),
        false => left(
            throughput,
            planned_throughput,
            elapsed,
            pace.throughput.get_or_insert((elapsed, throughput)),
        ),
    };
    let left = match left {
        Some(left) if timed < planned && planned_throughput > 0 => {
            format!(", about {left:.0} s left until throughput")
        }
        Some(left) => format!(", about {left:.0} s left"),
        None => String::new(),
    };
    let counted = if counted > 0 { format!(", {counted} counted") } else { String::new() };
    let throughput = if throughput > 0 { format!(", {throughput} with throughput") } else { String::new() };
    format!("{timed} of {planned} launches timed{counted}{throughput}, {} s{left}", elapsed.as_secs())
}

/// Seconds until all is done, at the pace since `first`; `None` as long as nothing was.
fn left(done: u64, planned: u64, elapsed: Duration, first: &(Duration, u64)) -> Option<f64> {
    let since = done.checked_sub(first.1).filter(|&done| done > 0)?;
    let seconds = elapsed.saturating_sub(first.0).as_secs_f64();
    Some(seconds / since as f64 * planned.saturating_sub(done) as f64)
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(serialize_with = "output::path_in_document")]
    folder: &'a Path,
    device: &'a str,
    device_kind: apex_dataset::DeviceKind,
    planned: u64,
    launches: u64,
    timed: u64,
    counted: u64,
    throughput: u64,
    complete: bool,
}

impl<'a> Document<'a> {
    fn of(folder: &'a Path, data_set: &'a DataSet) -> Document<'a> {
        let manifest = &data_set.manifest;
        Document {
            folder,
            device: &manifest.device_name,
            device_kind: manifest.device_kind,
            planned: manifest.planned_rows,
            launches: manifest.counts.rows,
            timed: manifest.counts.timed,
            counted: manifest.counts.counted,
            throughput: manifest.counts.throughput,
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
            "{}: {} of {} launches on {}, {} timed, {} counted, {} with throughput",
            apex_untrusted::shown(folder),
            counts.rows,
            manifest.planned_rows,
            apex_untrusted::printable(&manifest.device_name),
            counts.timed,
            counts.counted,
            counts.throughput
        )?;
        if missing > 0 {
            writeln!(out, "{missing} launches are incomplete: see the column `missing`")?;
        }
        if !manifest.complete {
            writeln!(out, "stopped early: the same command resumes")?;
        }
        Ok(())
    })
}

/// The document of `--list --json`.
#[derive(Serialize)]
struct List {
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
        return output::json(SUITE, &List { version, ptx_hash, families });
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
        assert_eq!(device("gpu:0,2").unwrap(), Place { choice: apex_gpu::Choice::Gpu, ordinals: vec![0, 2] });
        assert_eq!(device("cpu").unwrap(), Place { choice: apex_gpu::Choice::Cpu, ordinals: vec![] });
        for wrong in ["", "gpu:", "gpu:x", "gpu:1,1", "tpu"] {
            assert!(device(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn progress_tells_what_is_left() {
        let progress = Progress::default();
        progress.planned.store(100, Ordering::Relaxed);
        let mut pace = Pace::default();
        assert_eq!(line(&progress, Duration::from_secs(1), &mut pace), "0 of 100 launches timed, 1 s");
        progress.timed.store(25, Ordering::Relaxed);
        progress.counted.store(10, Ordering::Relaxed);
        let expected = "25 of 100 launches timed, 10 counted, 5 s, about 15 s left";
        assert_eq!(line(&progress, Duration::from_secs(5), &mut pace), expected);

        // Throughput comes after the rest, and has a pace of its own.
        progress.planned_throughput.store(100, Ordering::Relaxed);
        let said = line(&progress, Duration::from_secs(5), &mut pace);
        assert!(said.ends_with("about 15 s left until throughput"), "{said}");
        progress.timed.store(100, Ordering::Relaxed);
        progress.counted.store(100, Ordering::Relaxed);
        let expected = "100 of 100 launches timed, 100 counted, 20 s";
        assert_eq!(line(&progress, Duration::from_secs(20), &mut pace), expected);
        progress.throughput.store(20, Ordering::Relaxed);
        let expected = "100 of 100 launches timed, 100 counted, 20 with throughput, 30 s, about 40 s left";
        assert_eq!(line(&progress, Duration::from_secs(30), &mut pace), expected);
    }

    #[test]
    fn a_manifest_names_no_folders_of_the_machine() {
        for (word, kept) in [
            ("/home/someone/h200", "h200"),
            ("--output=/home/someone/h200", "--output=h200"),
            ("-o/home/someone/h200", "-oh200"),
            ("data/h200", "data/h200"),
            ("h200", "h200"),
            ("/", "/"),
            ("gpu:0,1", "gpu:0,1"),
        ] {
            assert_eq!(without_folders(word), kept);
        }
    }
}
