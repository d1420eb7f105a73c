//! A collection: from a command to a data set, however often it is interrupted.
//!
//! While it goes on, results are appended to tables in `partial/`, some for each device: times,
//! counters, throughput. Every run reads them first, measures what they lack, and finally writes
//! the data set of all results. So a collection that was killed resumes, one that is stopped leaves
//! a data set that can be read, and a complete one can be enlarged or given its throughput. A lock
//! keeps two collections out of one folder.

mod device_share;
mod partial;
mod setup;
mod stage;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use apex_gpu::{Choice, Device, Kind};

use crate::bench::Bench;
use crate::ncu::Ncu;
use crate::plan::{self, Bounds, Row};
use crate::{Error, machine, suite};
use apex_dataset::{CountersUsed, DataSet, DeviceKind, Manifest, Suite};
use device_share::Context;
use partial::Partial;
use setup::Setup;
use stage::Stage;

/// The choice of whether counters are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// If there are a GPU and a profiler.
    #[default]
    Auto,
    /// Counters are required: without them the collection fails.
    Require,
    /// Times only.
    Off,
}

/// The options of a collection.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data set's folder.
    pub folder: PathBuf,
    /// Launches.
    pub rows: u64,
    /// Seed of the launches.
    pub seed: u64,
    /// Families of kernels; all if none is named.
    pub families: Vec<String>,
    /// GPU or CPU device.
    pub choice: Choice,
    /// The numbers of the GPUs; all if empty.
    pub ordinals: Vec<usize>,
    /// Counters.
    pub counters: Wanted,
    /// Throughput besides the counters, in runs of its own of many passes.
    pub throughput: bool,
    /// The profiler's path; `None` to search for it.
    pub ncu: Option<PathBuf>,
    /// The time limit.
    pub limit: Option<Duration>,
    /// The command line, for the manifest.
    pub command: String,
    /// This program, its arguments up to the batch's file: what the profiler runs.
    pub child: Vec<OsString>,
}

/// The progress of a collection.
#[derive(Debug, Default)]
pub struct Progress {
    /// Rows that are planned.
    pub planned: AtomicU64,
    /// Rows whose time is known, or known to be unknown.
    pub timed: AtomicU64,
    /// Rows whose counters are known, or known to be unknown.
    pub counted: AtomicU64,
    /// Rows whose throughput is known, or known to be unknown.
    pub throughput: AtomicU64,
    /// Rows whose throughput is planned.
    pub planned_throughput: AtomicU64,
    /// Remarks, such as why there are no counters.
    pub remarks: Mutex<Vec<String>>,
}

impl Progress {
    fn remark(&self, text: impl Into<String>) {
        self.remarks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(text.into());
    }
}

/// Collects.
///
/// # Errors
/// If the folder holds something else, or a device is missing or fails. Results are kept.
pub fn run(options: &Options, progress: &Progress, stop: &AtomicBool) -> Result<DataSet, Error> {
    let kernels = plan::select(&options.families).map_err(Error::Refused)?;
    let device = Device::open_as(options.ordinals.first().copied().unwrap_or(0), options.choice)?;
    let ordinals = ordinals(options, &device)?;
    let profiler = profiler(options, &device, progress)?;
    refuse_other_folders(&options.folder)?;
    let partial = Partial::open(&options.folder)?;
    let mut bench = Bench::open(&device, &bounds(&device)?)?;
    let setup = Setup::new(options, &device, &bench, &kernels)?;
    let mut manifest = manifest(options, &setup, ordinals.len(), profiler.as_ref())?;
    let results = Mutex::new(partial.results()?);
    setup.data_set(&manifest, &lock(&results)).write(&options.folder)?;
    progress.planned.store(options.rows, Ordering::Relaxed);
    let planned_throughput = if profiler.is_some() && options.throughput { options.rows } else { 0 };
    progress.planned_throughput.store(planned_throughput, Ordering::Relaxed);
    manifest.clocks.extend(machine::clocks().filter(|_| setup.is_gpu));

    let context = Context {
        options,
        setup: &setup,
        profiler: profiler.as_ref(),
        partial: &partial,
        results: &results,
        progress,
        stop,
        started: Instant::now(),
        empty_us: Mutex::new(Vec::new()),
        empty_profiled_us: Mutex::new(Vec::new()),
        passes: [AtomicU64::new(0), AtomicU64::new(0)],
        gave_up: [AtomicBool::new(false), AtomicBool::new(false)],
    };
    context.count_known();
    let outcome = context.work(&mut bench, &ordinals);
    drop(bench);

    manifest.clocks.extend(machine::clocks().filter(|_| setup.is_gpu));
    finish(&mut manifest, &context);
    let data_set = setup.data_set(&manifest, &lock(&results));
    data_set.write(&options.folder)?;
    outcome.map(|()| data_set)
}

/// Notes the outcome of the work.
fn finish(manifest: &mut Manifest, context: &Context<'_>) {
    let results = lock(context.results);
    let to_nanoseconds = |us: f64| (us * 1e3).round() / 1e3;
    manifest.empty_kernel_us.extend(lock(&context.empty_us).drain(..).map(to_nanoseconds));
    manifest.empty_kernel_profiled_us.extend(lock(&context.empty_profiled_us).drain(..).map(to_nanoseconds));
    manifest.written = machine::now();
    for (stage, used) in Stage::ALL.into_iter().zip([&mut manifest.counters, &mut manifest.throughput]) {
        let passes = context.passes[stage as usize].load(Ordering::Relaxed) as u32;
        if let Some(used) = used {
            used.passes = used.passes.max(Some(passes).filter(|&passes| passes > 0));
        }
        if results.of(stage).is_empty() {
            *used = None;
        }
    }
    let wanted: Vec<Stage> = Stage::ALL.into_iter().filter(|&stage| context.counts(stage)).collect();
    let known = |row: &Row| {
        results.times.contains_key(&row.number)
            && wanted.iter().all(|stage| results.of(*stage).contains_key(&row.number))
    };
    manifest.complete = context.setup.rows.iter().all(known);
}

/// Only an empty folder, or one that a collection began, is written into.
fn refuse_other_folders(folder: &Path) -> Result<(), Error> {
    let mut entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            let folder = apex_untrusted::shown(folder);
            return Err(Error::Refused(format!("{folder} is not a folder: name a new one")));
        }
        Err(_) => return Ok(()),
    };
    let ours = folder.join(apex_dataset::MANIFEST).exists() || folder.join(partial::FOLDER).exists();
    match entries.next().is_some() && !ours {
        true => Err(Error::Refused(format!(
            "{} holds other files: name a new folder",
            apex_untrusted::shown(folder)
        ))),
        false => Ok(()),
    }
}

/// The devices that take part.
fn ordinals(options: &Options, device: &Device) -> Result<Vec<usize>, Error> {
    match (options.ordinals.is_empty(), device.kind()) {
        (false, _) => Ok(options.ordinals.clone()),
        (true, Kind::Cpu { .. }) => Ok(vec![0]),
        (true, Kind::Gpu) => Ok((0..Device::count()?).collect()),
    }
}

/// The profiler, if it is wanted and there.
fn profiler(options: &Options, device: &Device, progress: &Progress) -> Result<Option<Ncu>, Error> {
    let found = match (options.counters, device.kind()) {
        (Wanted::Off, _) if options.throughput => {
            return Err(Error::Refused(
                "throughput is counted: do without --throughput or --counters off".to_owned(),
            ));
        }
        (Wanted::Off, _) => return Ok(None),
        // A program that is named is believed: so the way there and back is tested without a GPU.
        (_, Kind::Cpu { .. }) if options.ncu.is_none() => Err("the CPU device has no counters".to_owned()),
        _ => Ncu::find(options.ncu.as_deref()),
    };
    match (found, options.counters) {
        (Ok(found), _) => Ok(Some(found)),
        (Err(why), Wanted::Require) => Err(Error::Refused(why)),
        (Err(why), _) => {
            progress.remark(format!("times only: {why}"));
            Ok(None)
        }
    }
}

fn bounds(device: &Device) -> Result<Bounds, Error> {
    Ok(match device.kind() {
        Kind::Cpu { .. } => Bounds::CPU,
        Kind::Gpu => Bounds::of_gpu(device.limits().multiprocessors, device.memory()?.1 as u64),
    })
}

/// The manifest of the folder, if it is of the same collection; else a new one.
fn manifest(
    options: &Options,
    setup: &Setup,
    devices: usize,
    profiler: Option<&Ncu>,
) -> Result<Manifest, Error> {
    let kind = if setup.is_gpu { DeviceKind::Gpu } else { DeviceKind::CpuDevice };
    let suite = Suite { name: "apex".to_owned(), version: suite::VERSION, ptx_hash: suite::hash() };
    let used = |stage: Stage, profiler: Option<&Ncu>| {
        profiler.map(|ncu| CountersUsed {
            tool: ncu.version.clone(),
            metrics: stage.metrics().iter().map(|metric| (*metric).to_owned()).collect(),
            passes: None,
        })
    };
    let new = Manifest {
        devices: devices as u32,
        device_memory_bytes: setup.device.memory_bytes,
        device_attributes: setup.device.attributes.clone(),
        cuda_version: machine::cuda_version(),
        seed: options.seed,
        planned_rows: options.rows,
        families: options.families.clone(),
        command: options.command.clone(),
        started: machine::now(),
        written: machine::now(),
        counters: used(Stage::Counters, profiler),
        throughput: used(Stage::Throughput, profiler.filter(|_| options.throughput)),
        ..Manifest::new(kind, &setup.device.name, suite)
    };
    let path = options.folder.join(apex_dataset::MANIFEST);
    match path.exists() {
        true => going_on(Manifest::read(&path)?, new, &options.folder),
        false => Ok(new),
    }
}

/// The manifest of a collection that goes on in a folder; an error if the folder holds another one.
fn going_on(old: Manifest, new: Manifest, folder: &Path) -> Result<Manifest, Error> {
    let differs = |what: &str, there: &dyn std::fmt::Debug, here: &dyn std::fmt::Debug| {
        let (there, here) = (format!("{there:?}"), format!("{here:?}"));
        let other = format!(
            "{} holds another collection: its {what} is {there}, not {here}; use the same, or another folder",
            apex_untrusted::shown(folder)
        );
        if there == here { Ok(()) } else { Err(Error::Refused(other)) }
    };
    differs("kind of device", &old.device_kind, &new.device_kind)?;
    differs("device", &old.device_name, &new.device_name)?;
    differs("suite", &old.suite, &new.suite)?;
    differs("seed", &old.seed, &new.seed)?;
    differs("list of families", &old.families, &new.families)?;
    let counted = |old: Option<CountersUsed>, new: Option<CountersUsed>| match (old, new) {
        (Some(old), Some(new)) => {
            let used = CountersUsed { passes: old.passes, ..new };
            differs("list of metrics", &old.metrics, &used.metrics).map(|()| Some(used))
        }
        (old, new) => Ok(new.or(old)),
    };
    Ok(Manifest {
        started: old.started,
        clocks: old.clocks,
        empty_kernel_us: old.empty_kernel_us,
        empty_kernel_profiled_us: old.empty_kernel_profiled_us,
        counters: counted(old.counters, new.counters)?,
        throughput: counted(old.throughput, new.throughput)?,
        ..new
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
