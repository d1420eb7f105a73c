//! A collection: from a command to a data set, however often it is interrupted on the way.
//!
//! While it goes on, results are appended to tables in `partial/`, one pair for each device: times, and counters. Every run
//! begins by reading them, measures what they lack, and ends by writing the data set of all that there is. So a collection
//! that was killed goes on where it was, and one that is stopped leaves a data set that can be read. A lock keeps two
//! collections out of one folder.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpu::{Choice, Device, Kind};
use occupancy::{Carveout, DeviceLimits, KernelResources};

use crate::batch::BatchRow;
use crate::bench::{Bench, Loaded};
use crate::dataset::{
    self, Appender, Columns, Counters, CountersUsed, Counts, DataSet, DeviceKind, Fields, KernelRow,
    LaunchRow, Manifest, PtxMix, Suite, Timing,
};
use crate::measure::Timer;
use crate::ncu::{self, Ncu};
use crate::plan::{self, Bounds, Row};
use crate::suite::{self, Kernel};
use crate::{Error, machine};

/// Rows that are timed, then counted, before the next are.
const BATCH: usize = 256;
/// Rows of the first batch under the profiler, which tells what a row costs.
const FIRST_COUNTED: usize = 32;

/// Whether counters are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Where a GPU and a profiler are.
    #[default]
    Auto,
    /// Or nothing at all.
    Require,
    /// Times only.
    Off,
}

/// What to collect.
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
    /// Which GPUs; all if none is named.
    pub ordinals: Vec<usize>,
    /// Counters.
    pub counters: Wanted,
    /// The profiler, if it is not where it is looked for.
    pub ncu: Option<PathBuf>,
    /// Stop after this.
    pub limit: Option<Duration>,
    /// The command line, for the manifest.
    pub command: String,
    /// This program, its arguments up to the batch's file: what the profiler runs.
    pub child: Vec<OsString>,
}

/// How far a collection is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Rows that are planned.
    pub planned: AtomicU64,
    /// Rows whose time is known, or known to be unknown.
    pub timed: AtomicU64,
    /// The same of counters.
    pub counted: AtomicU64,
    /// Why there are no counters, and other remarks.
    pub remarks: Mutex<Vec<String>>,
}

impl Progress {
    fn remark(&self, text: impl Into<String>) {
        self.remarks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(text.into());
    }
}

dataset::record! {
    /// A line of a table of times.
    TimeRecord {
        /// The row's number.
        row: u64,
        /// Which device ran it.
        device: u32,
        /// Its time.
        timing: Timing,
        /// Why there is none.
        missing: String,
    }
}

dataset::record! {
    /// A line of a table of counters.
    CounterRecord {
        /// The row's number.
        row: u64,
        /// What was counted.
        counters: Counters,
        /// Why something was not.
        missing: String,
    }
}

/// What is known of each row.
#[derive(Debug, Default)]
struct Results {
    times: BTreeMap<u64, TimeRecord>,
    counters: BTreeMap<u64, CounterRecord>,
}

/// Collects.
///
/// # Errors
/// A folder that holds something else, a device that is not there or fails. What was measured is kept.
pub fn run(options: &Options, progress: &Progress, stop: &AtomicBool) -> Result<DataSet, Error> {
    let kernels = plan::select(&options.families).map_err(Error::Refused)?;
    let device = Device::open_as(options.ordinals.first().copied().unwrap_or(0), options.choice)?;
    let ordinals = ordinals(options, &device)?;
    let profiler = profiler(options, &device, progress)?;
    let partial = Partial::open(&options.folder)?;
    let mut bench = Bench::open(&device, &bounds(&device)?)?;
    let setup = Setup::new(options, &device, &bench, &kernels)?;
    let mut manifest = manifest(options, &setup, ordinals.len(), profiler.as_ref())?;
    let results = Mutex::new(partial.results()?);
    setup.data_set(&manifest, &lock(&results)).write(&options.folder)?;
    progress.planned.store(options.rows, Ordering::Relaxed);
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
        passes: AtomicU64::new(0),
    };
    context.count_known();
    let outcome = context.work(&mut bench, &ordinals);
    drop(bench);

    let results = lock(&results);
    manifest.clocks.extend(machine::clocks().filter(|_| setup.is_gpu));
    manifest.empty_kernel_us.extend(lock(&context.empty_us).drain(..));
    let passes = context.passes.load(Ordering::Relaxed);
    if let Some(counters) = manifest.counters.as_mut().filter(|_| passes > 0) {
        counters.passes = Some(passes as u32);
    }
    manifest.written = machine::now();
    let known = |row: &Row| {
        results.times.contains_key(&row.number)
            && (profiler.is_none() || results.counters.contains_key(&row.number))
    };
    manifest.complete = setup.rows.iter().all(known);
    let data_set = setup.data_set(&manifest, &results);
    data_set.write(&options.folder)?;
    outcome.map(|()| data_set)
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

/// What does not change while a collection goes on.
struct Setup {
    is_gpu: bool,
    bounds: Bounds,
    kernels: Vec<Kernel>,
    rows: Vec<Row>,
    table: Vec<KernelRow>,
    limits: Option<DeviceLimits>,
    device: Description,
}

/// What a manifest says of a device.
struct Description {
    name: String,
    memory_bytes: u64,
    attributes: BTreeMap<u32, i32>,
}

impl Setup {
    fn new(options: &Options, device: &Device, bench: &Bench, kernels: &[Kernel]) -> Result<Setup, Error> {
        let loaded = kernels.iter().map(|kernel| bench.load(kernel)).collect::<Result<Vec<_>, _>>()?;
        let allowed: Vec<_> = loaded.iter().map(|loaded| (loaded.kernel, loaded.allowed())).collect();
        let bounds = bounds(device)?;
        let attributes = machine::attributes(device);
        let pairs: Vec<(u32, i32)> = attributes.iter().map(|(&id, &value)| (id, value)).collect();
        // `NAME (device 0)`: the number is not part of what a row was measured on.
        let name = device.name().rsplit_once(" (device").map_or(device.name(), |(name, _)| name).to_owned();
        Ok(Setup {
            is_gpu: *device.kind() == Kind::Gpu,
            bounds,
            rows: plan::rows(&allowed, &bounds, options.seed, options.rows),
            table: table(&loaded),
            limits: DeviceLimits::from_attributes(&pairs),
            device: Description { name, memory_bytes: device.memory()?.1 as u64, attributes },
            kernels: kernels.to_vec(),
        })
    }

    /// The data set of what is known.
    fn data_set(&self, manifest: &Manifest, results: &Results) -> DataSet {
        let known = |row: &&Row| results.times.contains_key(&row.number);
        let launches: Vec<LaunchRow> =
            self.rows.iter().filter(known).map(|row| self.launch_row(row, results)).collect();
        let manifest = Manifest { counts: Counts::of(&launches), ..manifest.clone() };
        DataSet { manifest, kernels: self.table.clone(), launches }
    }

    fn launch_row(&self, row: &Row, results: &Results) -> LaunchRow {
        let (kernel, described, launch) = (&self.kernels[row.kernel], &self.table[row.kernel], row.launch);
        let time = &results.times[&row.number];
        let counted = results.counters.get(&row.number);
        let resources = KernelResources {
            registers: described.registers,
            static_shared: described.static_shared_bytes,
            max_threads: described.max_threads_per_block.unwrap_or(0),
            max_dynamic_shared: None,
            barriers: 1,
        };
        let occupancy = self.limits.as_ref().map(|limits| {
            occupancy::theoretical(
                limits,
                &resources,
                launch.threads(),
                launch.dynamic_shared,
                Carveout::Default,
            )
        });
        let missing = [Some(&time.missing), counted.map(|record| &record.missing)];
        let missing: Vec<&str> =
            missing.into_iter().flatten().map(String::as_str).filter(|text| !text.is_empty()).collect();
        LaunchRow {
            row: row.number,
            kernel: kernel.name.to_owned(),
            n: Some(launch.n.into()),
            m: Some(launch.m.into()),
            grid: launch.grid,
            block: launch.block,
            dynamic_shared_bytes: launch.dynamic_shared,
            algorithm_bytes: Some(kernel.bytes(launch.shape())),
            algorithm_operations: Some((kernel.operations)(launch.shape()).round()),
            blocks_per_sm: occupancy.as_ref().map(|occupancy| occupancy.blocks_per_sm),
            theoretical_occupancy_percent: occupancy.as_ref().map(|occupancy| 100.0 * occupancy.fraction()),
            device: time.device,
            timing: time.timing.clone(),
            counters: counted.map(|record| record.counters.clone()).unwrap_or_default(),
            missing: missing.join("; "),
        }
    }
}

/// The kernels as the data set describes them.
fn table(loaded: &[Loaded]) -> Vec<KernelRow> {
    let modules: Vec<ptx::Module> =
        suite::MODULES.iter().map(|module| ptx::parse(module.ptx).expect("the suite's PTX parses")).collect();
    let describe = |loaded: &Loaded| {
        let (kernel, needs) = (&loaded.kernel, loaded.code.attributes());
        let mut functions = modules[kernel.module].functions();
        let function = functions.find(|function| &*function.name == kernel.name);
        KernelRow {
            kernel: kernel.name.to_owned(),
            family: kernel.family.to_owned(),
            registers: needs.registers,
            static_shared_bytes: needs.static_shared,
            local_bytes: Some(needs.local),
            constant_bytes: Some(needs.constant),
            max_threads_per_block: Some(needs.max_threads),
            ptx: PtxMix(function.map(ptx::Mix::of)),
        }
    };
    loaded.iter().map(describe).collect()
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
        counters: profiler.map(|ncu| CountersUsed {
            tool: ncu.version.clone(),
            metrics: ncu::METRICS.map(str::to_owned).to_vec(),
            passes: None,
        }),
        ..Manifest::new(kind, &setup.device.name, suite)
    };
    let path = options.folder.join(dataset::MANIFEST);
    if !path.exists() {
        return Ok(new);
    }
    let old = Manifest::read(&path)?;
    let differs = |what: &str, there: &dyn std::fmt::Debug, here: &dyn std::fmt::Debug| {
        let (there, here) = (format!("{there:?}"), format!("{here:?}"));
        let other = format!(
            "{} holds another collection: its {what} is {there}, not {here}; use the same, or another folder",
            options.folder.display()
        );
        if there == here { Ok(()) } else { Err(Error::Refused(other)) }
    };
    differs("kind of device", &old.device_kind, &new.device_kind)?;
    differs("device", &old.device_name, &new.device_name)?;
    differs("suite", &old.suite, &new.suite)?;
    differs("seed", &old.seed, &new.seed)?;
    differs("list of families", &old.families, &new.families)?;
    let counters = new.counters.or(old.counters);
    Ok(Manifest {
        started: old.started,
        clocks: old.clocks,
        empty_kernel_us: old.empty_kernel_us,
        counters,
        ..new
    })
}

/// The folder of results on the way.
struct Partial {
    folder: PathBuf,
    /// Held as long as the collection goes on.
    _lock: File,
}

impl Partial {
    fn open(collection: &Path) -> Result<Partial, Error> {
        let folder = collection.join("partial");
        let io = |doing| {
            let path = folder.clone();
            move |error| dataset::Error::Io { doing, path, error }
        };
        fs::create_dir_all(&folder).map_err(io("make"))?;
        let lock = File::create(folder.join("lock")).map_err(io("write into"))?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            return Err(Error::Refused(format!(
                "another `apex collect` is at work in {}",
                collection.display()
            )));
        }
        Ok(Partial { folder, _lock: lock })
    }

    fn path(&self, table: &str, ordinal: usize) -> PathBuf {
        self.folder.join(format!("{table}-{ordinal}.csv"))
    }

    /// What the tables of all devices know, also of devices that do not take part any more.
    fn results(&self) -> Result<Results, Error> {
        let mut results = Results::default();
        let entries = fs::read_dir(&self.folder).map_err(|error| dataset::Error::Io {
            doing: "list",
            path: self.folder.clone(),
            error,
        })?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("times-") {
                let (_, records) = Appender::open::<TimeRecord>(&path)?;
                results.times.extend(records.into_iter().map(|record| (record.row, record)));
            } else if name.starts_with("counters-") {
                let (_, records) = Appender::open::<CounterRecord>(&path)?;
                results.counters.extend(records.into_iter().map(|record| (record.row, record)));
            }
        }
        Ok(results)
    }
}

/// A collection at work.
struct Context<'a> {
    options: &'a Options,
    setup: &'a Setup,
    profiler: Option<&'a Ncu>,
    partial: &'a Partial,
    results: &'a Mutex<Results>,
    progress: &'a Progress,
    stop: &'a AtomicBool,
    started: Instant,
    empty_us: Mutex<Vec<f64>>,
    passes: AtomicU64,
}

impl Context<'_> {
    /// Rows that earlier runs measured.
    fn count_known(&self) {
        let results = lock(self.results);
        let planned = |row: &&u64| **row < self.options.rows;
        let known = |count: usize| count as u64;
        self.progress.timed.store(known(results.times.keys().filter(planned).count()), Ordering::Relaxed);
        self.progress
            .counted
            .store(known(results.counters.keys().filter(planned).count()), Ordering::Relaxed);
    }

    fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.remaining().is_some_and(|remaining| remaining.is_zero())
    }

    /// Until the limit.
    fn remaining(&self) -> Option<Duration> {
        self.options.limit.map(|limit| limit.saturating_sub(self.started.elapsed()))
    }

    /// All devices at the same time, each a share of the rows.
    fn work(&self, first: &mut Bench, ordinals: &[usize]) -> Result<(), Error> {
        let lane = |index: usize| Lane { context: self, index, of: ordinals.len(), ordinal: ordinals[index] };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..ordinals.len())
                .map(|index| scope.spawn(move || lane(index).open_and_work(self.options.choice)))
                .collect();
            let mut outcome = lane(0).work(first);
            for other in others {
                outcome = outcome.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            outcome
        })
    }
}

/// One device's part of a collection.
struct Lane<'a> {
    context: &'a Context<'a>,
    /// Among the devices that take part.
    index: usize,
    of: usize,
    /// Its number.
    ordinal: usize,
}

impl Lane<'_> {
    fn open_and_work(&self, choice: Choice) -> Result<(), Error> {
        let device = Device::open_as(self.ordinal, choice)?;
        self.work(&mut Bench::open(&device, &self.context.setup.bounds)?)
    }

    fn work(&self, bench: &mut Bench) -> Result<(), Error> {
        let Context { setup, partial, results, .. } = self.context;
        let (mut times, _) = Appender::open::<TimeRecord>(&partial.path("times", self.ordinal))?;
        let (mut counters, _) = Appender::open::<CounterRecord>(&partial.path("counters", self.ordinal))?;
        let loaded = setup.kernels.iter().map(|kernel| bench.load(kernel)).collect::<Result<Vec<_>, _>>()?;
        let mut timer = None;
        let mut profiled = Profiled { at_once: FIRST_COUNTED, ..Profiled::default() };
        let mine: Vec<&Row> = setup.rows.iter().skip(self.index).step_by(self.of).collect();
        for batch in mine.chunks(BATCH) {
            let untimed = |row: &&&Row| !lock(results).times.contains_key(&row.number);
            let batch_untimed: Vec<&Row> = batch.iter().filter(untimed).copied().collect();
            if !batch_untimed.is_empty() {
                self.time(bench, &mut timer, &loaded, &batch_untimed, &mut times)?;
            }
            let uncounted = |row: &&&Row| !lock(results).counters.contains_key(&row.number);
            let batch_uncounted: Vec<&Row> = batch.iter().filter(uncounted).copied().collect();
            if let Some(ncu) = self.context.profiler {
                self.count(ncu, &mut profiled, &batch_uncounted, &mut counters)?;
            }
            if self.context.must_stop() {
                break;
            }
        }
        Ok(())
    }

    fn time(
        &self,
        bench: &mut Bench,
        timer: &mut Option<Timer>,
        loaded: &[Loaded],
        rows: &[&Row],
        table: &mut Appender,
    ) -> Result<(), Error> {
        let timer = match timer {
            Some(timer) => timer,
            None => timer.insert(Timer::new(bench)?),
        };
        lock(&self.context.empty_us).push(timer.calibrate(bench)?);
        for row in rows {
            if self.context.must_stop() {
                return Ok(());
            }
            let (kernel, launch) = (&loaded[row.kernel], &row.launch);
            let (timing, missing, fault) = match timer.time(bench, kernel, launch) {
                Ok(timed) => (timed.timing, timed.missing, None),
                Err(error @ gpu::Error::LaunchShape { .. }) => (Timing::default(), error.to_string(), None),
                Err(error) => (Timing::default(), error.to_string(), Some(error)),
            };
            let record = TimeRecord { row: row.number, device: self.ordinal as u32, timing, missing };
            table.append(&record)?;
            lock(self.context.results).times.insert(row.number, record);
            self.context.progress.timed.fetch_add(1, Ordering::Relaxed);
            if let Some(error) = fault {
                // The context is lost. The row is known as faulty, so that the next run goes on behind it.
                let name = kernel.kernel.name;
                let what =
                    format!("row {}, kernel `{name}`, {launch:?}: {error}; run again to go on", row.number);
                return Err(Error::Refused(what));
            }
        }
        Ok(())
    }

    /// Counts rows, as many at once as the time left allows.
    fn count(
        &self,
        ncu: &Ncu,
        profiled: &mut Profiled,
        rows: &[&Row],
        table: &mut Appender,
    ) -> Result<(), Error> {
        let mut rows = rows;
        while !rows.is_empty() && !self.context.must_stop() {
            let fitting = self.context.remaining().map_or(usize::MAX, |left| profiled.fitting(left));
            if fitting == 0 {
                return Ok(());
            }
            let (now, later) = rows.split_at(profiled.at_once.min(fitting).min(rows.len()));
            let started = Instant::now();
            self.count_batch(ncu, now, table, true)?;
            profiled.learn(now.len(), started.elapsed());
            rows = later;
        }
        Ok(())
    }

    /// Runs the profiler once. Rows that it does not reach are tried again in two halves, and then given up.
    fn count_batch(&self, ncu: &Ncu, rows: &[&Row], table: &mut Appender, again: bool) -> Result<(), Error> {
        let folder = self.context.partial.folder.join(format!("ncu-{}", self.ordinal));
        let batch = self.profile(ncu, rows, &folder)?;
        self.context.passes.fetch_max(batch.passes.unwrap_or(0).into(), Ordering::Relaxed);
        let matches = |(row, found): &(&&Row, ncu::Profiled)| {
            let kernel = &self.context.setup.kernels[row.kernel];
            found.kernel == kernel.name && found.grid == row.launch.grid && found.block == row.launch.block
        };
        let matched: Vec<_> = rows.iter().zip(batch.launches).take_while(matches).collect();
        let reached = matched.len();
        for (row, found) in matched {
            let missing = match found.counters.achieved_occupancy_percent {
                Some(_) => String::new(),
                None => "counters: ncu gave no value for achieved occupancy".to_owned(),
            };
            self.counted(table, CounterRecord { row: row.number, counters: found.counters, missing })?;
        }
        let rest = &rows[reached..];
        if rest.is_empty() || self.context.must_stop() {
            return Ok(());
        }
        let why = batch
            .failure
            .unwrap_or_else(|| "ncu's table does not have the launches that were made".to_owned());
        if again {
            let (left, right) = rest.split_at(rest.len().div_ceil(2));
            self.count_batch(ncu, left, table, false)?;
            return if right.is_empty() { Ok(()) } else { self.count_batch(ncu, right, table, false) };
        }
        self.context.progress.remark(format!("{} rows have no counters: {why}", rest.len()));
        for row in rest {
            let missing = format!("counters: {why}");
            self.counted(table, CounterRecord { row: row.number, missing, ..CounterRecord::default() })?;
        }
        Ok(())
    }

    fn counted(&self, table: &mut Appender, record: CounterRecord) -> Result<(), Error> {
        table.append(&record)?;
        lock(self.context.results).counters.insert(record.row, record);
        self.context.progress.counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the batch's file and runs the profiler on it.
    fn profile(&self, ncu: &Ncu, rows: &[&Row], folder: &Path) -> Result<ncu::Batch, Error> {
        fs::create_dir_all(folder).map_err(|error| dataset::Error::Io {
            doing: "make",
            path: folder.to_owned(),
            error,
        })?;
        let file = folder.join("batch.csv");
        let batch_row = |row: &&Row| BatchRow {
            row: row.number,
            kernel: self.context.setup.kernels[row.kernel].name.to_owned(),
            n: row.launch.n,
            m: row.launch.m,
            grid: row.launch.grid,
            block: row.launch.block,
            dynamic_shared_bytes: row.launch.dynamic_shared,
        };
        dataset::write_table(&file, &rows.iter().map(batch_row).collect::<Vec<_>>())?;
        let device = match self.context.setup.is_gpu {
            true => OsString::from(format!("gpu:{}", self.ordinal)),
            false => OsString::from("cpu"),
        };
        let mut command: Vec<&OsStr> = self.context.options.child.iter().map(OsString::as_os_str).collect();
        command.extend([OsStr::new("--device"), &device, OsStr::new("--launch-batch"), file.as_os_str()]);
        Ok(ncu.run(&command, folder))
    }
}

/// What profiling costs, as far as it is known.
#[derive(Debug, Default)]
struct Profiled {
    /// Rows of the next run.
    at_once: usize,
    seconds_per_row: f64,
}

impl Profiled {
    /// Rows for which there is time; the first batch is always tried.
    fn fitting(&self, left: Duration) -> usize {
        match self.seconds_per_row > 0.0 {
            true => (left.as_secs_f64() / self.seconds_per_row) as usize,
            false => usize::MAX,
        }
    }

    fn learn(&mut self, rows: usize, took: Duration) {
        self.seconds_per_row = took.as_secs_f64() / rows as f64;
        self.at_once = BATCH;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
