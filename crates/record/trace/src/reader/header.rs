//! The headers of files and chunks, taken out of bytes.

use crate::error::Error;
use crate::layout::{
    BatchFigures, CHUNK_BYTES, CHUNK_PAYLOAD_BYTES, ChunkHeader, ChunkKind, ClockAnchor, ClockKind, Ended,
    FileHeader, HEADER_BYTES, MAGIC, PoolFigures, PoolState, QueueFigures, QueueState, ReshapeState,
    ScheduleFigures, ScheduleState, SharedAnchor, VERSION,
};
use std::mem::offset_of;
use std::path::Path;

/// The content of a [`FileHeader`] at one moment.
#[derive(Debug)]
pub(crate) struct Header {
    pub pid: u32,
    pub parent_pid: u32,
    pub clock: Option<ClockKind>,
    pub start: ClockAnchor,
    pub latest: ClockAnchor,
    pub ended: Ended,
    pub nominal_hz: u64,
    pub chunks: u64,
    pub dropped: u64,
    pub overwritten: u64,
    pub drop_errno: u32,
    pub config_overflow: u32,
    pub timing_ticks: u64,
    pub executable: String,
    pub cost_samples: u64,
    pub cost_ticks: u64,
    pub queue_state: QueueState,
    pub queue: QueueFigures,
    pub batches: BatchFigures,
    pub queue_waiting: u64,
    pub pool_state: PoolState,
    pub pool: PoolFigures,
    /// Fields that hold what cannot be: their offset, and what is wrong.
    pub faults: Vec<(u64, String)>,
    pub reshape_state: ReshapeState,
    pub reshape_refused: u64,
    pub joined: u64,
    pub schedule_state: ScheduleState,
    pub schedule: ScheduleFigures,
}

/// Most records that a process can have lost: a thousand a millisecond for nine years.
const MOST_LOST: u64 = 1 << 48;
/// Most chunks of a file: 1 PiB.
const MOST_CHUNKS: u64 = 1 << 32;
/// The difference that readings of two clocks may have.
const SLACK_NS: u64 = 1_000_000_000;
/// Versions from which on a number is no version.
const NO_VERSION: u32 = 256;

/// The content of a file's first page.
#[derive(Debug)]
pub(crate) enum FirstPage {
    Header(Box<Header>),
    /// The process ended while it made the file.
    HalfMade,
    /// Something else.
    Foreign,
}

impl FirstPage {
    /// An error if a newer APEX wrote it. `is_known` says that no newer one can have: then another
    /// version is damage.
    pub fn parse(page: &[u8], path: &Path, is_known: bool) -> Result<FirstPage, Error> {
        let magic = page.get(..MAGIC.len()).unwrap_or_default();
        if magic.iter().all(|&byte| byte == 0) {
            return Ok(FirstPage::HalfMade);
        }
        let changed = magic.iter().zip(&MAGIC).filter(|(a, b)| a != b).count();
        let version = u32_at(page, offset_of!(FileHeader, version));
        if changed > 1 || page.len() < HEADER_BYTES || changed == 1 && version != VERSION {
            return Ok(FirstPage::Foreign);
        }
        let mut header = Header::parse(page);
        if changed == 1 {
            header.fault(0, "damaged: it does not start like a process file, and is read as one");
        }
        if version != VERSION {
            if version > VERSION && version < NO_VERSION && !is_known && header.faults.is_empty() {
                return Err(Error::Newer { path: path.to_owned(), version, supported: VERSION });
            }
            let what = format!("damaged: its version is {version}, and it is read as version {VERSION}");
            header.fault(offset_of!(FileHeader, version), what);
        }
        Ok(FirstPage::Header(Box::new(header)))
    }
}

impl Header {
    fn parse(page: &[u8]) -> Header {
        let mut header = Header::as_written(page);
        header.check_enumerations(page);
        header.check_clock();
        header.check_counts();
        header
    }

    fn fault(&mut self, offset: usize, what: impl Into<String>) {
        self.faults.push((offset as u64, what.into()));
    }

    /// Finds enumerations that have a value without a meaning.
    fn check_enumerations(&mut self, page: &[u8]) {
        for (offset, what, is_known) in [
            (
                offset_of!(FileHeader, clock),
                "the clock",
                (|raw| ClockKind::from_raw(raw).is_some()) as fn(u32) -> bool,
            ),
            (offset_of!(FileHeader, ended), "the end of the process", |raw| Ended::from_raw(raw).is_some()),
            (offset_of!(FileHeader, queue_state), "the launch queue's state", |raw| {
                QueueState::from_raw(raw).is_some()
            }),
            (offset_of!(FileHeader, pool_state), "the memory pool's state", |raw| {
                PoolState::from_raw(raw).is_some()
            }),
        ] {
            let raw = u32_at(page, offset);
            if !is_known(raw) {
                self.fault(
                    offset,
                    format!("damaged: {what} is {raw}, which has no meaning; it is not known"),
                );
            }
        }
    }

    /// Finds anchors that contradict each other. The newest one is then not used.
    fn check_clock(&mut self) {
        let (start, latest) = (self.start, self.latest);
        let ticks = latest.ticks.checked_sub(start.ticks);
        let ns = latest.monotonic_ns.checked_sub(start.monotonic_ns);
        let is_sound = ticks.zip(ns).is_some_and(|(ticks, ns)| match self.clock {
            Some(ClockKind::Monotonic) => ticks.abs_diff(ns) < SLACK_NS,
            // Between 1 MHz and 100 GHz.
            _ => ticks / 100 <= ns.saturating_add(SLACK_NS) && ns / 1000 <= ticks.saturating_add(SLACK_NS),
        });
        if !is_sound {
            self.latest = start;
            let what = "damaged: the readings of its clocks contradict each other; its times may be wrong";
            self.fault(offset_of!(FileHeader, start), what);
        }
    }

    /// Finds counts that cannot be, and takes them for unknown.
    fn check_counts(&mut self) {
        let lost = [
            (offset_of!(FileHeader, dropped), &mut self.dropped),
            (offset_of!(FileHeader, overwritten), &mut self.overwritten),
        ];
        let mut faults = Vec::new();
        for (offset, count) in lost.into_iter().filter(|(_, count)| **count > MOST_LOST) {
            let what = format!("damaged: it says that {count} records were lost; how many is not known");
            faults.push((offset as u64, what));
            *count = 0;
        }
        if self.chunks > MOST_CHUNKS {
            let what =
                format!("damaged: it says that it has {} chunks; those that are there are read", self.chunks);
            faults.push((offset_of!(FileHeader, chunks) as u64, what));
            self.chunks = 0;
        }
        self.faults.append(&mut faults);
    }

    fn as_written(page: &[u8]) -> Header {
        let latest_count = u32_at(page, offset_of!(FileHeader, latest_count)) as usize;
        let latest = offset_of!(FileHeader, latest) + latest_count % 2 * size_of::<SharedAnchor>();
        let executable = offset_of!(FileHeader, executable);
        Header {
            pid: u32_at(page, offset_of!(FileHeader, pid)),
            parent_pid: u32_at(page, offset_of!(FileHeader, parent_pid)),
            clock: ClockKind::from_raw(u32_at(page, offset_of!(FileHeader, clock))),
            start: anchor_at(page, offset_of!(FileHeader, start)),
            latest: anchor_at(page, latest),
            ended: Ended::from_raw(u32_at(page, offset_of!(FileHeader, ended))).unwrap_or_default(),
            nominal_hz: u64_at(page, offset_of!(FileHeader, nominal_hz)),
            chunks: u64_at(page, offset_of!(FileHeader, chunks)),
            dropped: u64_at(page, offset_of!(FileHeader, dropped)),
            overwritten: u64_at(page, offset_of!(FileHeader, overwritten)),
            drop_errno: u32_at(page, offset_of!(FileHeader, drop_errno)),
            config_overflow: u32_at(page, offset_of!(FileHeader, config_overflow)),
            timing_ticks: u64_at(page, offset_of!(FileHeader, timing_ticks)),
            executable: text(page.get(executable..executable + 512).unwrap_or_default()),
            cost_samples: u64_at(page, offset_of!(FileHeader, cost_samples)),
            cost_ticks: u64_at(page, offset_of!(FileHeader, cost_ticks)),
            queue_state: QueueState::from_raw(u32_at(page, offset_of!(FileHeader, queue_state)))
                .unwrap_or_default(),
            queue: QueueFigures::from_array(std::array::from_fn(|at| {
                u64_at(page, offset_of!(FileHeader, queue) + at * size_of::<u64>())
            })),
            batches: BatchFigures {
                batches: u64_at(page, offset_of!(FileHeader, batches)),
                launches: u64_at(page, offset_of!(FileHeader, batches) + size_of::<u64>()),
                avoided_ns: u64_at(page, offset_of!(FileHeader, batches) + 2 * size_of::<u64>()),
            },
            queue_waiting: u64_at(page, offset_of!(FileHeader, queue_taken))
                .saturating_sub(u64_at(page, offset_of!(FileHeader, queue_made))),
            pool_state: PoolState::from_raw(u32_at(page, offset_of!(FileHeader, pool_state)))
                .unwrap_or_default(),
            pool: PoolFigures::from_array(std::array::from_fn(|at| {
                u64_at(page, offset_of!(FileHeader, pool) + at * size_of::<u64>())
            })),
            faults: Vec::new(),
            reshape_state: ReshapeState::from_raw(u32_at(page, offset_of!(FileHeader, reshape_state)))
                .unwrap_or_default(),
            reshape_refused: u64_at(page, offset_of!(FileHeader, reshape_refused)),
            joined: u64_at(page, offset_of!(FileHeader, joined)),
            schedule_state: ScheduleState::from_raw(u32_at(page, offset_of!(FileHeader, schedule_state)))
                .unwrap_or_default(),
            schedule: ScheduleFigures {
                batches: u64_at(page, offset_of!(FileHeader, schedule)),
                launches: u64_at(page, offset_of!(FileHeader, schedule) + size_of::<u64>()),
                saved_ns: u64_at(page, offset_of!(FileHeader, schedule) + 2 * size_of::<u64>()),
            },
        }
    }
}

/// The content of a [`ChunkHeader`] at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHead {
    /// Raw: 0 in a chunk never opened.
    pub kind: u32,
    pub committed: u32,
    pub sequence: u64,
}

impl ChunkHead {
    /// `None` if the bytes are too few.
    pub fn parse(bytes: &[u8]) -> Option<ChunkHead> {
        (bytes.len() >= size_of::<ChunkHeader>()).then(|| ChunkHead {
            kind: u32_at(bytes, offset_of!(ChunkHeader, kind)),
            committed: u32_at(bytes, offset_of!(ChunkHeader, committed)),
            sequence: u64_at(bytes, offset_of!(ChunkHeader, sequence)),
        })
    }

    pub fn kind(&self) -> Option<ChunkKind> {
        ChunkKind::from_raw(self.kind)
    }

    /// Bytes of payload, at most what a chunk holds.
    pub fn payload_bytes(&self) -> usize {
        (self.committed as usize).min(CHUNK_PAYLOAD_BYTES)
    }
}

/// Returns the offset of chunk `index` in its file.
pub(crate) fn chunk_offset(index: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(index) * CHUNK_BYTES as u64
}

/// Text in a zero-padded field.
pub(crate) fn text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn anchor_at(bytes: &[u8], offset: usize) -> ClockAnchor {
    ClockAnchor {
        ticks: u64_at(bytes, offset + offset_of!(ClockAnchor, ticks)),
        monotonic_ns: u64_at(bytes, offset + offset_of!(ClockAnchor, monotonic_ns)),
        real_ns: u64_at(bytes, offset + offset_of!(ClockAnchor, real_ns)),
    }
}

/// 0 where the bytes end.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
