//! The work: each device times its share of the rows batch by batch, and has the profiler count them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpu::{Choice, Device};

use super::partial::{CounterRecord, Partial, Results, TimeRecord};
use super::setup::Setup;
use super::{Options, Progress, Wanted, lock};
use crate::Error;
use crate::batch::BatchRow;
use crate::bench::{Bench, Loaded};
use crate::dataset::{self, Appender, Timing};
use crate::measure::Timer;
use crate::ncu::{self, Ncu};
use crate::plan::Row;

/// Rows that are timed, then counted, before the next are.
const BATCH: usize = 256;
/// Rows of the first batch under the profiler, which tells what a row costs.
const FIRST_COUNTED: usize = 32;
/// Rows that fail one after the other before the profiler is given up.
const HOPELESS: u32 = 3;
/// What ncu says where counters are for administrators only.
const NO_PERMISSION: &str = "ERR_NVGPUCTRPERM";

/// A collection at work.
pub(super) struct Context<'a> {
    pub(super) options: &'a Options,
    pub(super) setup: &'a Setup,
    pub(super) profiler: Option<&'a Ncu>,
    pub(super) partial: &'a Partial,
    pub(super) results: &'a Mutex<Results>,
    pub(super) progress: &'a Progress,
    pub(super) stop: &'a AtomicBool,
    pub(super) started: Instant,
    pub(super) empty_us: Mutex<Vec<f64>>,
    pub(super) passes: AtomicU64,
    /// Whether the profiler turned out not to work here.
    pub(super) gave_up: AtomicBool,
}

impl Context<'_> {
    /// Rows that earlier runs measured.
    pub(super) fn count_known(&self) {
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
    pub(super) fn work(&self, first: &mut Bench, ordinals: &[usize]) -> Result<(), Error> {
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
        let (first, setup) = (&self.context.setup.device.name, self.context.setup);
        if !device.name().starts_with(first.as_str()) {
            let why = format!("{} is not a {first}: name the GPUs of one kind with --device", device.name());
            return Err(Error::Refused(why));
        }
        self.work(&mut Bench::open(&device, &setup.bounds)?)
    }

    /// Whether a row is this device's: each gets some of every kernel's.
    fn has(&self, row: &Row) -> bool {
        let turn = row.number / self.context.setup.kernels.len() as u64;
        (row.number + turn) % self.of as u64 == self.index as u64
    }

    fn work(&self, bench: &mut Bench) -> Result<(), Error> {
        let Context { setup, partial, results, .. } = self.context;
        let (mut times, _) = Appender::open::<TimeRecord>(&partial.path("times", self.ordinal))?;
        let (mut counters, _) = Appender::open::<CounterRecord>(&partial.path("counters", self.ordinal))?;
        let loaded = setup.kernels.iter().map(|kernel| bench.load(kernel)).collect::<Result<Vec<_>, _>>()?;
        let mut timer = None;
        let mut profiler = Profiler::new();
        let mine: Vec<&Row> = setup.rows.iter().filter(|row| self.has(row)).collect();
        for batch in mine.chunks(BATCH) {
            let untimed = |row: &&&Row| !lock(results).times.contains_key(&row.number);
            let batch_untimed: Vec<&Row> = batch.iter().filter(untimed).copied().collect();
            if !batch_untimed.is_empty() {
                self.time(bench, &mut timer, &loaded, &batch_untimed, &mut times)?;
            }
            let uncounted = |row: &&&Row| !lock(results).counters.contains_key(&row.number);
            let batch_uncounted: Vec<&Row> = batch.iter().filter(uncounted).copied().collect();
            if let Some(ncu) = self.context.profiler {
                self.count(ncu, &mut profiler, &batch_uncounted, &mut counters)?;
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

    /// Counts rows, as many at once as the time left allows. Where the profiler ends early, the row at which it ended is tried
    /// alone, and given up if that fails too; then the rest goes on.
    fn count(
        &self,
        ncu: &Ncu,
        profiler: &mut Profiler,
        rows: &[&Row],
        table: &mut Appender,
    ) -> Result<(), Error> {
        let mut rows = rows;
        while !rows.is_empty() && !self.context.must_stop() && !self.context.gave_up.load(Ordering::Relaxed) {
            let fitting = self.context.remaining().map_or(usize::MAX, |left| profiler.fitting(left));
            if fitting == 0 {
                return Ok(());
            }
            let now = &rows[..profiler.at_once.min(fitting).min(rows.len())];
            let started = Instant::now();
            let reached = match self.count_batch(ncu, now, table)? {
                Reached::All => {
                    profiler.learn(now.len(), started.elapsed());
                    now.len()
                }
                Reached::Some(reached, why) => {
                    if self.context.must_stop() || why.contains(NO_PERMISSION) {
                        return self.give_up_if(why.contains(NO_PERMISSION), &why);
                    }
                    if reached > 0 {
                        profiler.failures = 0;
                    }
                    self.count_alone(ncu, profiler, rows[reached], table)?;
                    reached + 1
                }
            };
            rows = &rows[reached..];
        }
        Ok(())
    }

    /// One row; what it lacks is recorded.
    fn count_alone(
        &self,
        ncu: &Ncu,
        profiler: &mut Profiler,
        row: &Row,
        table: &mut Appender,
    ) -> Result<(), Error> {
        let Reached::Some(_, why) = self.count_batch(ncu, &[row], table)? else {
            profiler.failures = 0;
            return Ok(());
        };
        if self.context.must_stop() {
            return Ok(());
        }
        let missing = format!("counters: {why}");
        self.counted(table, CounterRecord { row: row.number, missing, ..CounterRecord::default() })?;
        profiler.failures += 1;
        self.give_up_if(profiler.failures >= HOPELESS, &why)
    }

    /// Ends counting for this run, on all devices.
    fn give_up_if(&self, hopeless: bool, why: &str) -> Result<(), Error> {
        if !hopeless {
            return Ok(());
        }
        if self.context.options.counters == Wanted::Require {
            return Err(Error::Refused(format!("no counters: {why}")));
        }
        if !self.context.gave_up.swap(true, Ordering::Relaxed) {
            self.context.progress.remark(format!("times only from here: {why}"));
        }
        Ok(())
    }

    /// Runs the profiler once, and keeps what it counted.
    fn count_batch(&self, ncu: &Ncu, rows: &[&Row], table: &mut Appender) -> Result<Reached, Error> {
        let folder = self.context.partial.folder.join(format!("ncu-{}", self.ordinal));
        let batch = self.profile(ncu, rows, &folder)?;
        self.context.passes.fetch_max(batch.passes.unwrap_or(0).into(), Ordering::Relaxed);
        let matches = |(row, found): &(&&Row, ncu::Profiled)| {
            let kernel = &self.context.setup.kernels[row.kernel];
            found.kernel == kernel.name && found.grid == row.launch.grid && found.block == row.launch.block
        };
        let mut reached = 0;
        for (row, found) in rows.iter().zip(batch.launches).take_while(matches) {
            let missing = match found.counters.achieved_occupancy_percent {
                Some(_) => String::new(),
                None => "counters: ncu gave no value for achieved occupancy".to_owned(),
            };
            self.counted(table, CounterRecord { row: row.number, counters: found.counters, missing })?;
            reached += 1;
        }
        let why = || "ncu's table does not have the launches that were made".to_owned();
        Ok(match reached == rows.len() {
            true => Reached::All,
            false => Reached::Some(reached, batch.failure.unwrap_or_else(why)),
        })
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

/// How far a run of the profiler came.
enum Reached {
    All,
    /// So many rows, and why no more.
    Some(usize, String),
}

/// What is known of the profiler here.
#[derive(Debug)]
struct Profiler {
    /// Rows of the next run.
    at_once: usize,
    seconds_per_row: f64,
    /// Rows that failed alone, one after the other.
    failures: u32,
}

impl Profiler {
    fn new() -> Profiler {
        Profiler { at_once: FIRST_COUNTED, seconds_per_row: 0.0, failures: 0 }
    }

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
        self.failures = 0;
    }
}
