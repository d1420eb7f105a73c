//! The headers of files and chunks, taken out of bytes.

use crate::error::Error;
use crate::layout::{
    BatchFigures, CHUNK_BYTES, CHUNK_PAYLOAD_BYTES, ChunkHeader, ChunkKind, ClockAnchor, ClockKind, Ended,
    FileHeader, HEADER_BYTES, MAGIC, PoolFigures, PoolState, QueueFigures, QueueState, ReshapeState,
    SharedAnchor, VERSION,
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
    pub reshape_state: ReshapeState,
    pub reshape_refused: u64,
}

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
    /// An error if a newer APEX wrote it.
    pub fn parse(page: &[u8], path: &Path) -> Result<FirstPage, Error> {
        let magic = page.get(..MAGIC.len()).unwrap_or_default();
        if magic.iter().all(|&byte| byte == 0) {
            return Ok(FirstPage::HalfMade);
        }
        if magic != MAGIC {
            return Ok(FirstPage::Foreign);
        }
        let version = u32_at(page, offset_of!(FileHeader, version));
        if version > VERSION {
            return Err(Error::Newer { path: path.to_owned(), version, supported: VERSION });
        }
        if version == 0 || page.len() < HEADER_BYTES {
            return Ok(FirstPage::Foreign);
        }
        Ok(FirstPage::Header(Box::new(Header::parse(page))))
    }
}

impl Header {
    fn parse(page: &[u8]) -> Header {
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
            reshape_state: ReshapeState::from_raw(u32_at(page, offset_of!(FileHeader, reshape_state)))
                .unwrap_or_default(),
            reshape_refused: u64_at(page, offset_of!(FileHeader, reshape_refused)),
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
