//! The part of a collection that one device measures. It times its rows batch by batch and lets the
//! profiler count them. Afterwards it measures the throughput of as many rows as the time limit
//! allows.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use apex_gpu::{Choice, Device};

use super::partial::{CounterRecord, Partial, Results, TimeRecord};
use super::setup::Setup;
use super::stage::Stage;
use super::{Options, Progress, Wanted, lock};
use crate::Error;
use crate::batch::{self, BatchRow};
use crate::bench::{Bench, Loaded};
use crate::measure::{Timer, median};
use crate::ncu::{self, Ncu};
use crate::plan::Row;
use apex_dataset::{Appender, Timing};

/// Rows that are timed, then counted, before the next are.
const BATCH: usize = 256;
/// Empty kernels under the profiler, whose median tells what it adds to every launch.
const EMPTY: usize = 51;
/// Rows of the first batch under the profiler, which tells what a row costs.
const FIRST_COUNTED: usize = 32;
/// Rows that fail one after the other before the profiler is given up.
const HOPELESS: u32 = 3;
/// ncu's message if only administrators may read counters.
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
    pub(super) empty_profiled_us: Mutex<Vec<f64>>,
    /// Passes of the profiler, for each stage of counting.
    pub(super) passes: [AtomicU64; 2],
    /// Whether the profiler turned out not to work here, for each stage of counting.
    pub(super) gave_up: [AtomicBool; 2],
}

impl Context<'_> {
    /// Rows that earlier runs measured.
    pub(super) fn count_known(&self) {
        let results = lock(self.results);
        let planned = |row: &&u64| **row < self.options.rows;
        let timed = results.times.keys().filter(planned).count();
        self.progress.timed.store(timed as u64, Ordering::Relaxed);
        for stage in Stage::ALL {
            let counted = results.of(stage).keys().filter(planned).count();
            self.counted(stage).store(counted as u64, Ordering::Relaxed);
        }
    }

    /// Whether a stage of counting is wanted and possible.
    pub(super) fn counts(&self, stage: Stage) -> bool {
        let wanted = stage == Stage::Counters || self.options.throughput;
        wanted && self.profiler.is_some() && !self.gave_up[stage as usize].load(Ordering::Relaxed)
    }

    /// The progress of a stage of counting.
    fn counted(&self, stage: Stage) -> &AtomicU64 {
        match stage {
            Stage::Counters => &self.progress.counted,
            Stage::Throughput => &self.progress.throughput,
        }
    }

    fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.remaining().is_some_and(|remaining| remaining.is_zero())
    }

    /// The time until the limit.
    fn remaining(&self) -> Option<Duration> {
        self.options.limit.map(|limit| limit.saturating_sub(self.started.elapsed()))
    }

    /// Runs all devices at the same time, each on a share of the rows.
    pub(super) fn work(&self, first: &mut Bench, ordinals: &[usize]) -> Result<(), Error> {
        let share =
            |index: usize| DeviceShare { context: self, index, of: ordinals.len(), ordinal: ordinals[index] };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..ordinals.len())
                .map(|index| scope.spawn(move || share(index).open_and_work(self.options.choice)))
                .collect();
            let mut outcome = share(0).work(first);
            for other in others {
                outcome = outcome.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            outcome
        })
    }
}

/// One device's part of a collection.
struct DeviceShare<'a> {
    context: &'a Context<'a>,
    /// Its index among the devices that take part.
    index: usize,
    of: usize,
    /// Its ordinal.
    ordinal: usize,
}

impl DeviceShare<'_> {
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
        let loaded = setup.kernels.iter().map(|kernel| bench.load(kernel)).collect::<Result<Vec<_>, _>>()?;
        let mut timer = None;
        let mine: Vec<&Row> = setup.rows.iter().filter(|row| self.has(row)).collect();
        let mut counters = self.counting(Stage::Counters, &mine)?;
        for batch in mine.chunks(BATCH) {
            let untimed = |row: &&&Row| !lock(results).times.contains_key(&row.number);
            let batch_untimed: Vec<&Row> = batch.iter().filter(untimed).copied().collect();
            if !batch_untimed.is_empty() {
                self.time(bench, &mut timer, &loaded, &batch_untimed, &mut times)?;
            }
            self.count(counters.as_mut(), batch)?;
            if self.context.must_stop() {
                return Ok(());
            }
        }
        let mut throughput = self.counting(Stage::Throughput, &mine)?;
        self.count(throughput.as_mut(), &mine)
    }

    /// The profiler of these rows in a stage, if the stage is wanted and rows are left to count.
    fn counting(&self, stage: Stage, rows: &[&Row]) -> Result<Option<Counting<'_>>, Error> {
        let Some(ncu) = self.context.profiler.filter(|_| self.context.counts(stage)) else { return Ok(None) };
        let (table, _) =
            Appender::open::<CounterRecord>(&self.context.partial.path(stage.table(), self.ordinal))?;
        if self.uncounted(stage, rows).is_empty() {
            return Ok(None);
        }
        if stage == Stage::Counters {
            self.profile_empty(ncu)?;
        }
        Ok(Some(Counting { stage, ncu, table, at_once: FIRST_COUNTED, seconds_per_row: 0.0, failures: 0 }))
    }

    /// Those rows that a stage has not counted yet.
    fn uncounted<'r>(&self, stage: Stage, rows: &[&'r Row]) -> Vec<&'r Row> {
        let results = lock(self.context.results);
        rows.iter().filter(|row| !results.of(stage).contains_key(&row.number)).copied().collect()
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
                Err(error @ apex_gpu::Error::LaunchShape { .. }) => {
                    (Timing::default(), error.to_string(), None)
                }
                Err(error) => (Timing::default(), error.to_string(), Some(error)),
            };
            let record = TimeRecord { row: row.number, device: self.ordinal as u32, timing, missing };
            table.append(&record)?;
            lock(self.context.results).times.insert(row.number, record);
            self.context.progress.timed.fetch_add(1, Ordering::Relaxed);
            if let Some(error) = fault {
                // The context is lost. The row is known as faulty, so that the next run goes on
                // behind it.
                let name = kernel.kernel.name;
                let what =
                    format!("row {}, kernel `{name}`, {launch:?}: {error}; run again to go on", row.number);
                return Err(Error::Refused(what));
            }
        }
        Ok(())
    }

    /// Counts the rows that are not counted yet, as many at once as the time left allows. Where the
    /// profiler ends early, it tries the row at which it ended alone, gives the row up if that
    /// fails too, and goes on with the rest.
    fn count(&self, counting: Option<&mut Counting<'_>>, rows: &[&Row]) -> Result<(), Error> {
        let Some(counting) = counting else { return Ok(()) };
        let rows = self.uncounted(counting.stage, rows);
        let mut rows = &rows[..];
        while !rows.is_empty() && !self.context.must_stop() && self.context.counts(counting.stage) {
            let fitting = self.context.remaining().map_or(usize::MAX, |left| counting.fitting(left));
            if fitting == 0 {
                return Ok(());
            }
            let now = &rows[..counting.at_once.min(fitting).min(rows.len())];
            let started = Instant::now();
            let reached = match self.count_batch(counting, now)? {
                Reached::All => {
                    counting.learn(now.len(), started.elapsed());
                    now.len()
                }
                Reached::Some(reached, why) => {
                    if self.context.must_stop() || why.contains(NO_PERMISSION) {
                        return self.give_up_if(why.contains(NO_PERMISSION), counting.stage, &why);
                    }
                    if reached > 0 {
                        counting.failures = 0;
                    }
                    self.count_alone(counting, rows[reached])?;
                    reached + 1
                }
            };
            rows = &rows[reached..];
        }
        Ok(())
    }

    /// Counts one row, and records what it lacks.
    fn count_alone(&self, counting: &mut Counting<'_>, row: &Row) -> Result<(), Error> {
        let Reached::Some(_, why) = self.count_batch(counting, &[row])? else {
            counting.failures = 0;
            return Ok(());
        };
        if self.context.must_stop() {
            return Ok(());
        }
        let missing = format!("{}: {why}", counting.stage.table());
        self.counted(counting, CounterRecord { row: row.number, missing, ..CounterRecord::default() })?;
        counting.failures += 1;
        self.give_up_if(counting.failures >= HOPELESS, counting.stage, &why)
    }

    /// Ends a stage of counting for this run, on all devices.
    fn give_up_if(&self, hopeless: bool, stage: Stage, why: &str) -> Result<(), Error> {
        if !hopeless {
            return Ok(());
        }
        if self.context.options.counters == Wanted::Require {
            return Err(Error::Refused(format!("no {}: {why}", stage.table())));
        }
        if !self.context.gave_up[stage as usize].swap(true, Ordering::Relaxed) {
            self.context.progress.remark(format!("no {} from here: {why}", stage.table()));
        }
        Ok(())
    }

    /// Runs the profiler once, and keeps what it counted.
    fn count_batch(&self, counting: &mut Counting<'_>, rows: &[&Row]) -> Result<Reached, Error> {
        let batch_row = |row: &&Row| BatchRow {
            row: row.number,
            kernel: self.context.setup.kernels[row.kernel].name.to_owned(),
            n: row.launch.n,
            m: row.launch.m,
            grid: row.launch.config.grid,
            block: row.launch.config.block,
            dynamic_shared_bytes: row.launch.config.dynamic_shared_bytes,
        };
        let stage = counting.stage;
        let batch = self.profile(counting.ncu, stage, &rows.iter().map(batch_row).collect::<Vec<_>>())?;
        self.context.passes[stage as usize].fetch_max(batch.passes.unwrap_or(0).into(), Ordering::Relaxed);
        let matches = |(row, found): &(&&Row, ncu::Profiled)| {
            let kernel = &self.context.setup.kernels[row.kernel];
            found.kernel == kernel.name
                && found.grid == row.launch.config.grid
                && found.block == row.launch.config.block
        };
        let mut reached = 0;
        for (row, found) in rows.iter().zip(batch.launches).take_while(matches) {
            let lacks = |what| format!("{}: ncu gave no value for {what}", stage.table());
            let missing = stage.lacks(&found.counters).map_or_else(String::new, lacks);
            self.counted(counting, CounterRecord { row: row.number, counters: found.counters, missing })?;
            reached += 1;
        }
        let why = || "ncu's table does not have the launches that were made".to_owned();
        Ok(match reached == rows.len() {
            true => Reached::All,
            false => Reached::Some(reached, batch.failure.unwrap_or_else(why)),
        })
    }

    fn counted(&self, counting: &mut Counting<'_>, record: CounterRecord) -> Result<(), Error> {
        counting.table.append(&record)?;
        lock(self.context.results).of_mut(counting.stage).insert(record.row, record);
        self.context.counted(counting.stage).fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Notes what the profiler says that an empty kernel takes. Where it says nothing, its failure
    /// will show with the rows.
    fn profile_empty(&self, ncu: &Ncu) -> Result<(), Error> {
        let batch = self.profile(ncu, Stage::Counters, &vec![batch::empty(); EMPTY])?;
        let times = batch.launches.iter().filter_map(|launch| launch.counters.profiled_time_us);
        let mut times: Vec<f64> = times.collect();
        if !times.is_empty() {
            lock(&self.context.empty_profiled_us).push(median(&mut times));
        }
        Ok(())
    }

    /// Writes the batch's file and runs the profiler on it.
    fn profile(&self, ncu: &Ncu, stage: Stage, rows: &[BatchRow]) -> Result<ncu::Batch, Error> {
        let folder = &self.context.partial.folder.join(format!("ncu-{}", self.ordinal));
        fs::create_dir_all(folder).map_err(|error| apex_dataset::Error::Io {
            doing: "make",
            path: folder.clone(),
            error,
        })?;
        let file = folder.join("batch.csv");
        apex_dataset::write_table(&file, rows)?;
        let is_gpu = self.context.setup.is_gpu;
        let visible =
            is_gpu.then(|| visible(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(), self.ordinal));
        let device = if is_gpu { "gpu:0" } else { "cpu" };
        let mut command: Vec<&OsStr> = self.context.options.child.iter().map(OsString::as_os_str).collect();
        command.extend([
            OsStr::new("--device"),
            OsStr::new(device),
            OsStr::new("--launch-batch"),
            file.as_os_str(),
        ]);
        Ok(ncu.run(stage.metrics(), &command, visible.as_deref(), folder))
    }
}

/// The value of `CUDA_VISIBLE_DEVICES` that shows a program only one device; `now` is its value.
fn visible(now: Option<&str>, ordinal: usize) -> String {
    let named = now.filter(|list| !list.is_empty()).and_then(|list| list.split(',').nth(ordinal));
    named.map_or_else(|| ordinal.to_string(), |name| name.trim().to_owned())
}

/// The rows that a run of the profiler counted.
enum Reached {
    All,
    /// This many rows, and why not more.
    Some(usize, String),
}

/// A stage of counting on a device.
struct Counting<'a> {
    stage: Stage,
    ncu: &'a Ncu,
    table: Appender,
    /// Rows of the next run.
    at_once: usize,
    seconds_per_row: f64,
    /// Rows that failed alone, one after the other.
    failures: u32,
}

impl Counting<'_> {
    /// Rows for which there is time; the first batch is always tried.
    fn fitting(&self, left: Duration) -> usize {
        match self.seconds_per_row > 0.0 {
            true => (left.as_secs_f64() / self.seconds_per_row) as usize,
            false => usize::MAX,
        }
    }

    fn learn(&mut self, rows: usize, took: Duration) {
        self.seconds_per_row = took.as_secs_f64() / rows as f64;
        self.at_once = self.stage.at_once();
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn a_device_is_named_as_the_list_of_visible_ones_does() {
        assert_eq!(visible(None, 3), "3");
        assert_eq!(visible(Some(""), 1), "1");
        assert_eq!(visible(Some("2,5, 7"), 2), "7");
        assert_eq!(visible(Some("GPU-8a1,GPU-77f"), 1), "GPU-77f");
    }
}
