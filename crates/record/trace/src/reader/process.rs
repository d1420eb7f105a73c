//! One process of a session, read from its file.

use crate::clock::{Anchors, Clock};
use crate::error::{Error, Problem};
use crate::layout::{
    BatchFigures, Ended, LIMIT_REACHED, PoolFigures, PoolState, QueueFigures, QueueState, ReshapeState,
    ScheduleFigures, ScheduleState,
};
use crate::reader::definitions::Definitions;
use crate::reader::file::FileState;
use crate::reader::header::Header;
use crate::reader::records::{Record, Records, RecordsByTime, Segment};
use crate::reader::source::Source;
use crate::reader::totals::Totals;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A process that made CUDA calls.
#[derive(Debug)]
#[non_exhaustive]
pub struct Process {
    /// Its file.
    pub file: PathBuf,
    /// Its identifier.
    pub pid: u32,
    /// Its parent's.
    pub parent_pid: u32,
    /// Path of its executable, cut after 512 bytes.
    pub executable: String,
    /// The time at which its file was made (at its first CUDA call), in nanoseconds since 1970.
    pub start_real_ns: u64,
    /// The way in which it ended, if it wrote that.
    pub ended: Ended,
    /// Converts its ticks to time.
    pub clock: Clock,
    /// Records lost because there was no space for them.
    pub dropped: u64,
    /// Records given up because of the session's size limit.
    pub overwritten: u64,
    /// `errno` of the first failure to get space, [`LIMIT_REACHED`], or 0; see
    /// [`Process::drop_cause`].
    pub drop_errno: u32,
    /// Launches whose configuration was beyond the recorder's table.
    pub config_overflow: u32,
    /// Time that the recorder spent on timing kernels, ns.
    pub timing_ns: u64,
    /// Launches around which the recorder took the time that it spent itself; 0 where it took none.
    pub cost_samples: u64,
    /// Time that it spent on these, ns.
    pub cost_ns: u64,
    /// The final state of its launch queue.
    pub queue_state: QueueState,
    /// The statistics of the launch queue.
    pub queue: QueueFigures,
    /// Figures of the batches among them.
    pub batches: BatchFigures,
    /// Calls that the launch queue took and that are not made. Once the process has ended, they
    /// are lost.
    pub queue_waiting: u64,
    /// The final state of its memory pool.
    pub pool_state: PoolState,
    /// The statistics of the memory pool.
    pub pool: PoolFigures,
    /// Outcome of the plan by which its launches are reshaped.
    pub reshape_state: ReshapeState,
    /// Launches of the plan's kernels for which the condition of the proof did not hold.
    pub reshape_refused: u64,
    /// Pairs of launches that were made as one.
    pub joined: u64,
    /// Outcome of scheduling by data.
    pub schedule_state: ScheduleState,
    /// The batches in which launches ran beside others.
    pub schedule: ScheduleFigures,
    /// The meaning of the identifiers in its records.
    pub definitions: Arc<Definitions>,
    /// Threads that recorded, by identifier, with the last name they had (at most 12 bytes of it).
    pub threads: BTreeMap<u32, String>,
    /// The number of records that were read since the session's start.
    pub record_count: u64,
    /// The sums over its records since its start.
    pub totals: Totals,
    /// Disk space of its file, bytes.
    pub disk_bytes: u64,
    /// Start of the first call and end of the last one, ticks.
    pub span: Option<(u64, u64)>,
    /// Records of kinds that only a newer APEX knows; they were stepped over.
    pub unknown_records: u64,
    pub(crate) source: Source,
    /// In the order in which threads took the chunks.
    pub(crate) segments: Vec<Segment>,
    /// Records that began before this, in ticks, are not given, except for `past`.
    pub(crate) from: u64,
    /// In the order of their starts.
    pub(crate) past: Vec<Record>,
    anchors: Anchors,
    timing_ticks: u64,
    cost_ticks: u64,
    read_failure: OnceLock<Problem>,
}

impl Process {
    /// The process of a file whose header says this, without its records.
    pub(crate) fn of_header(header: Header, file: PathBuf, source: Source) -> Process {
        let anchors = Anchors {
            kind: header.clock,
            start: header.start,
            latest: header.latest,
            nominal_hz: header.nominal_hz,
        };
        Process {
            file,
            pid: header.pid,
            parent_pid: header.parent_pid,
            executable: header.executable,
            start_real_ns: header.start.real_ns,
            ended: header.ended,
            clock: Anchors::clocks(&[anchors])[0],
            dropped: header.dropped,
            overwritten: header.overwritten,
            drop_errno: header.drop_errno,
            config_overflow: header.config_overflow,
            timing_ns: 0,
            cost_samples: header.cost_samples,
            cost_ns: 0,
            queue_state: header.queue_state,
            queue: header.queue,
            batches: header.batches,
            queue_waiting: header.queue_waiting,
            pool_state: header.pool_state,
            pool: header.pool,
            reshape_state: header.reshape_state,
            reshape_refused: header.reshape_refused,
            joined: header.joined,
            schedule_state: header.schedule_state,
            schedule: header.schedule,
            definitions: Arc::default(),
            threads: BTreeMap::new(),
            record_count: 0,
            totals: Totals::default(),
            disk_bytes: 0,
            span: None,
            unknown_records: 0,
            source,
            segments: Vec::new(),
            from: 0,
            past: Vec::new(),
            anchors,
            timing_ticks: header.timing_ticks,
            cost_ticks: header.cost_ticks,
            read_failure: OnceLock::new(),
        }
    }

    /// Reads a process file that is in memory; `name` stands for its path in problems. `Ok(None)`
    /// if it holds nothing, as the problems then say.
    pub fn from_bytes(name: &Path, bytes: &[u8]) -> Result<(Option<Process>, Vec<Problem>), Error> {
        let mut file = FileState::new(name, Source::Bytes(Arc::from(bytes)), false);
        let mut process = file.look(u64::MAX, false)?;
        settle_clocks(process.as_mut_slice());
        process.iter_mut().for_each(|process| file.give(process, 0));
        Ok((process, file.problems()))
    }

    /// Its records, thread by thread as they took chunks; those of one thread are in the order of
    /// writing. Streams: reads one chunk at a time. See [`Process::read_failure`] for what can
    /// still go wrong.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        self.with_past(Records::new(self))
    }

    /// Its records in the order of their starts, those of all threads merged; a timing comes when
    /// its thread had reached the moment at which it wrote it. Memory: about 0.4 MiB for each
    /// thread that was recording at that moment.
    pub fn records_by_time(&self) -> impl Iterator<Item = Record> {
        self.with_past(RecordsByTime::new(self))
    }

    fn with_past(&self, records: impl Iterator<Item = Record>) -> impl Iterator<Item = Record> {
        let from = self.from;
        self.past.iter().copied().chain(records.filter(move |record| record.start() >= from))
    }

    /// Returns the reason why records were dropped, if any were.
    pub fn drop_cause(&self) -> Option<String> {
        match self.drop_errno {
            0 => None,
            LIMIT_REACHED => Some("the session's size limit was reached".to_owned()),
            errno => Some(io::Error::from_raw_os_error(errno as i32).to_string()),
        }
    }

    /// Contexts whose launches can't be timed: they made their first one while timing was off.
    pub fn untimed_contexts(&self) -> usize {
        let launched = |context: u32| self.definitions.configs().any(|config| config.context == context);
        let uncalibrated = self.definitions.contexts().filter(|context| context.pair_busy_ns == 0);
        uncalibrated.filter(|context| launched(context.id)).count()
    }

    /// Returns the failure of the iterators to read records since the session was opened, if there
    /// was one: the file was deleted, cut, or its disk fails. (Records that a running program has
    /// overwritten in the meantime are not a failure: they just don't come.)
    pub fn read_failure(&self) -> Option<&Problem> {
        self.read_failure.get()
    }

    pub(crate) fn note_read_failure(&self, offset: u64, error: &io::Error) {
        let what = format!("cannot be read any more: {error}; the records from here on are missing");
        let _ = self.read_failure.set(Problem { path: self.file.clone(), offset: Some(offset), what });
    }
}

/// Gives each process its clock. They are settled together because they may help one another.
pub(crate) fn settle_clocks(processes: &mut [Process]) {
    let anchors: Vec<_> = processes.iter().map(|process| process.anchors).collect();
    for (process, clock) in processes.iter_mut().zip(Anchors::clocks(&anchors)) {
        process.clock = clock;
        process.timing_ns = clock.duration_ns(process.timing_ticks);
        process.cost_ns = clock.duration_ns(process.cost_ticks);
    }
}
