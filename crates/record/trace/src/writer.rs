//! Writes a process file.
//!
//! A thread records through its [`Lane`], which holds a mapped chunk: a copy and one release store
//! per record, no lock, no allocation, no system call. Only when the chunk is full does it lock the
//! file's book-keeping, reserve disk space and map the next chunk; that happens once in 8190
//! launches.
//!
//! **Memory.** Mapped are the header page, the definitions chunk and one chunk for each lane that
//! has one: `4 KiB + 256 KiB x (1 + threads that record)`, or less under a session's size limit
//! ([`crate::chunks`]). Beside that, at most 16 bytes for each chunk of the file and a buffer as
//! large as the longest definition (at most a chunk). A thread that ends gives its chunk to the
//! next one.
//!
//! **Fork.** Everything here belongs to the process that made the file. In a forked child
//! [`ProcessFile::is_ours`] is false and every method refuses; the child makes a `ProcessFile` of
//! its own and leaks the inherited one.

use crate::chunks::{Chunks, Failure, Place, Tail};
use crate::codec;
use crate::control::Control;
use crate::definition::Definition;
use crate::fault;
use crate::fork::ForkGuard;
use crate::layout::{
    BatchFigures, ChunkHeader, ChunkKind, Ended, FileHeader, MAGIC, OwnLine, PoolFigures, PoolState,
    QueueFigures, QueueState, RecordKind, ReshapeState, SLOT_BYTES, ScheduleFigures, ScheduleState,
    SharedAnchor, Slots, Thread, VERSION,
};
use crate::mapping::Mapping;
use crate::ticks::{self, now};
use std::io;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A chunk with less room than this counts as full: a [`Thread`] record and two of the largest
/// records.
const LEAST_ROOM: usize = 5 * SLOT_BYTES;
/// After this many failures in a row to get space, the pause between attempts no longer grows.
const LONGEST_PAUSE_LOG2: u32 = 14;

/// The file into which this process records. Cheap to share: methods take `&self`.
#[derive(Debug)]
pub struct ProcessFile {
    guard: ForkGuard,
    shared: Arc<Shared>,
    definitions: Mutex<Definitions>,
}

#[derive(Debug, Default)]
struct Definitions {
    chunk: Option<Chunk>,
    buffer: Vec<u8>,
}

/// The part that a file and its chunks have in common.
#[derive(Debug)]
struct Shared {
    header: Mapping,
    guard: ForkGuard,
    space: Mutex<Chunks>,
    /// Order in which chunks were opened.
    sequence: AtomicU64,
    /// Attempts to skip before the next one that asks the system for space.
    pause: AtomicI64,
    failures_in_a_row: AtomicU32,
    anchoring: AtomicBool,
}

impl ProcessFile {
    /// Makes the file of the calling process in the session directory `dir`, readable by its owner
    /// only. `control` is the session's page, if there is one: it holds the size limit. The error
    /// names the file.
    pub fn create(dir: &Path, control: Option<&'static Control>) -> io::Result<ProcessFile> {
        let guard = ForkGuard::new()?;
        fault::forget_losses();
        let clock = ticks::clock_kind();
        let start = ticks::anchor();
        let (space, header) = Chunks::create(dir, start.real_ns, control)?;
        let fields = FileHeader {
            magic: AtomicU64::new(0),
            version: VERSION,
            pid: std::process::id(),
            parent_pid: std::os::unix::process::parent_id(),
            clock: clock as u32,
            start,
            latest_count: AtomicU32::new(0),
            ended: AtomicU32::new(Ended::Unmarked as u32),
            latest: [SharedAnchor::default(), SharedAnchor::default()],
            nominal_hz: ticks::nominal_hz(clock),
            chunks: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            overwritten: AtomicU64::new(0),
            drop_errno: AtomicU32::new(0),
            config_overflow: AtomicU32::new(0),
            timing_ticks: AtomicU64::new(0),
            executable: executable(),
            cost_samples: AtomicU64::new(0),
            cost_ticks: AtomicU64::new(0),
            queue_state: AtomicU32::new(0),
            pool_state: AtomicU32::new(0),
            queue: [const { AtomicU64::new(0) }; QueueFigures::FIELDS],
            pool: [const { AtomicU64::new(0) }; PoolFigures::FIELDS],
            batches: [const { AtomicU64::new(0) }; 3],
            queue_taken: OwnLine::default(),
            queue_made: OwnLine::default(),
            reshape_state: AtomicU32::new(0),
            reshape_refused: AtomicU64::new(0),
            schedule_state: AtomicU32::new(0),
            schedule: [const { AtomicU64::new(0) }; 3],
            joined: AtomicU64::new(0),
        };
        // SAFETY: the mapping is a page, at least as large as the header, and nobody else knows of
        // it yet.
        unsafe { header.base().cast::<FileHeader>().write(fields) };
        let shared = Shared {
            header,
            guard,
            space: Mutex::new(space),
            sequence: AtomicU64::new(1),
            pause: AtomicI64::new(0),
            failures_in_a_row: AtomicU32::new(0),
            anchoring: AtomicBool::new(false),
        };
        shared.header().latest[0].store(start);
        shared.header().magic.store(u64::from_le_bytes(MAGIC), Ordering::Release);
        if let Some(control) = control {
            control.processes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(ProcessFile { guard, shared: Arc::new(shared), definitions: Mutex::default() })
    }

    /// False in a forked child of the process that made the file. One load.
    #[inline]
    pub fn is_ours(&self) -> bool {
        self.guard.is_same_process()
    }

    /// Writes a definition; false if there is no space for it. Records may name it only if this was
    /// true. A later definition of the same identifier replaces an earlier one. Strings are cut to
    /// 60 KiB.
    pub fn define(&self, definition: &Definition) -> bool {
        if !self.is_ours() {
            return false;
        }
        let mut definitions = lock(&self.definitions);
        let Definitions { chunk, buffer } = &mut *definitions;
        let done = codec::encode(definition, buffer, |piece| {
            if let Some(chunk) = chunk
                && chunk.append(piece)
            {
                return true;
            }
            *chunk = Chunk::acquire(&self.shared, ChunkKind::Definitions, piece.len());
            chunk.as_mut().is_some_and(|chunk| chunk.append(piece))
        });
        drop(definitions);
        self.shared.anchor_if_due();
        done
    }

    /// Counts records that could not be written.
    pub fn count_dropped(&self, records: u64) {
        self.count(&self.shared.header().dropped, records);
    }

    /// Notes that recording ends early: the `errno` that says why, and that at least one record is
    /// lost. Atomic stores only.
    pub fn note_loss(&self, errno: i32) {
        if self.is_ours() {
            let header = self.shared.header();
            let _ = header.drop_errno.compare_exchange(0, errno as u32, Ordering::Relaxed, Ordering::Relaxed);
            header.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a launch whose configuration did not fit the recorder's table.
    pub fn count_config_overflow(&self) {
        if self.is_ours() {
            self.shared.header().config_overflow.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds ticks that the recorder spent on timing.
    pub fn add_timing_ticks(&self, ticks: u64) {
        self.count(&self.shared.header().timing_ticks, ticks);
    }

    /// Adds ticks that the recorder spent on one launch, beside those on timing.
    pub fn add_cost_sample(&self, ticks: u64) {
        let header = self.shared.header();
        self.count(&header.cost_ticks, ticks);
        self.count(&header.cost_samples, 1);
    }

    /// Says what became of the launch queue.
    pub fn set_queue_state(&self, state: QueueState) {
        if self.is_ours() {
            self.shared.header().queue_state.store(state as u32, Ordering::Relaxed);
        }
    }

    /// Says what the launch queue has done so far.
    pub fn set_queue_figures(&self, figures: &QueueFigures) {
        if self.is_ours() {
            for (field, value) in self.shared.header().queue.iter().zip(figures.to_array()) {
                field.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Counts a call that the launch queue took.
    #[inline]
    pub fn count_queue_taken(&self) {
        self.count(&self.shared.header().queue_taken.0, 1);
    }

    /// Says how many of the calls that the launch queue took have been made. One thread calls it.
    #[inline]
    pub fn set_queue_made(&self, calls: u64) {
        if self.is_ours() {
            self.shared.header().queue_made.0.store(calls, Ordering::Relaxed);
        }
    }

    /// Says what the launch queue launched in batches.
    pub fn set_batch_figures(&self, figures: &BatchFigures) {
        if self.is_ours() {
            let values = [figures.batches, figures.launches, figures.avoided_ns];
            for (field, value) in self.shared.header().batches.iter().zip(values) {
                field.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Says what became of the memory pool.
    pub fn set_pool_state(&self, state: PoolState) {
        if self.is_ours() {
            self.shared.header().pool_state.store(state as u32, Ordering::Relaxed);
        }
    }

    /// Says what became of the plan by which launches are reshaped.
    pub fn set_reshape_state(&self, state: ReshapeState) {
        if self.is_ours() {
            self.shared.header().reshape_state.store(state as u32, Ordering::Relaxed);
        }
    }

    /// Counts a launch for which the condition of its kernel's proof did not hold.
    pub fn count_reshape_refused(&self) {
        self.count(&self.shared.header().reshape_refused, 1);
    }

    /// Counts a pair of launches that was made as one.
    pub fn count_joined(&self) {
        self.count(&self.shared.header().joined, 1);
    }

    /// Says what became of scheduling by data.
    pub fn set_schedule_state(&self, state: ScheduleState) {
        if self.is_ours() {
            self.shared.header().schedule_state.store(state as u32, Ordering::Relaxed);
        }
    }

    /// Says which batches had launches beside others.
    pub fn set_schedule_figures(&self, figures: &ScheduleFigures) {
        if self.is_ours() {
            let values = [figures.batches, figures.launches, figures.saved_ns];
            for (field, value) in self.shared.header().schedule.iter().zip(values) {
                field.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Says what the memory pool has done so far.
    pub fn set_pool_figures(&self, figures: &PoolFigures) {
        if self.is_ours() {
            for (field, value) in self.shared.header().pool.iter().zip(figures.to_array()) {
                field.store(value, Ordering::Relaxed);
            }
        }
    }

    fn count(&self, counter: &AtomicU64, more: u64) {
        if self.is_ours() {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Anchors the clock now. (It is also anchored, ever more rarely, as chunks are taken and
    /// definitions written.)
    pub fn anchor_clock(&self) {
        if self.is_ours() {
            self.shared.anchor();
        }
    }

    /// Notes how the process ends, and gives disk space that chunks reserved and did not need back
    /// (those that no thread holds: a thread that is done should have dropped its chunk).
    /// `Unmarked` takes it back, as when an exec failed. Recording can go on in any case.
    pub fn mark_ended(&self, how: Ended) {
        if !self.is_ours() {
            return;
        }
        self.shared.anchor();
        self.shared.header().ended.store(how as u32, Ordering::Relaxed);
        if how != Ended::Unmarked {
            lock(&self.definitions).chunk = None;
            self.shared.space().trim();
        }
    }
}

impl Shared {
    fn header(&self) -> &FileHeader {
        // SAFETY: `create` wrote a `FileHeader` there; what changes later is atomic.
        unsafe { self.header.base().cast().as_ref() }
    }

    fn anchor_if_due(&self) {
        let header = self.header();
        let newest = header.latest_count.load(Ordering::Acquire) as usize % 2;
        let since_start = |ticks: u64| ticks.saturating_sub(header.start.ticks);
        let known = since_start(header.latest[newest].ticks.load(Ordering::Relaxed));
        // Geometrically: a baseline that grows by a quarter each time costs few anchors and never
        // lags far.
        if since_start(now()) > known + known / 4 {
            self.anchor();
        }
    }

    fn anchor(&self) {
        if self.anchoring.swap(true, Ordering::Acquire) {
            return; // another thread does it
        }
        let header = self.header();
        let next = header.latest_count.load(Ordering::Relaxed).wrapping_add(1);
        // Readers, in other processes too, use the other one until `latest_count` says otherwise.
        header.latest[next as usize % 2].store(ticks::anchor());
        header.latest_count.store(next, Ordering::Release);
        self.anchoring.store(false, Ordering::Release);
    }

    /// True if this attempt to get space is to be skipped.
    fn pauses(&self) -> bool {
        self.pause.load(Ordering::Relaxed) > 0 && self.pause.fetch_sub(1, Ordering::Relaxed) > 0
    }

    fn note_failure(&self, Failure(errno): Failure) {
        let first = &self.header().drop_errno;
        let _ = first.compare_exchange(0, errno, Ordering::Relaxed, Ordering::Relaxed);
        let failures = self.failures_in_a_row.fetch_add(1, Ordering::Relaxed);
        self.pause.store(1 << failures.min(LONGEST_PAUSE_LOG2), Ordering::Relaxed);
    }

    fn note_success(&self) {
        self.failures_in_a_row.store(0, Ordering::Relaxed);
        self.pause.store(0, Ordering::Relaxed);
    }

    fn space(&self) -> MutexGuard<'_, Chunks> {
        lock(&self.space)
    }
}

/// A mapped chunk, held by one thread. Given back when dropped: full, or to be continued by the
/// next thread.
#[derive(Debug)]
struct Chunk {
    map: Mapping,
    committed: usize,
    /// Bytes that its payload has disk space for.
    room: usize,
    shared: Arc<Shared>,
    index: u32,
    kind: ChunkKind,
}

impl Chunk {
    /// Appends a record or definition; false, and nothing done, if it does not fit.
    #[inline]
    fn append(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.remaining() {
            return false;
        }
        // SAFETY: the payload has room for `bytes` behind `committed` (checked), and only the
        // holder of a chunk writes to it.
        unsafe {
            let to = self.map.base().add(size_of::<ChunkHeader>() + self.committed);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len());
        }
        self.committed += bytes.len();
        self.header().committed.store(self.committed as u32, Ordering::Release);
        true
    }

    /// Fetches the lines that the next record and its commit are written to.
    #[inline(always)]
    fn fetch(&self) {
        let base = self.map.base().as_ptr();
        fetch(base);
        fetch(base.wrapping_add(size_of::<ChunkHeader>() + self.committed));
    }

    #[inline]
    fn remaining(&self) -> usize {
        self.room - self.committed
    }

    fn header(&self) -> &ChunkHeader {
        // SAFETY: every chunk starts with a header, aligned because chunks are; what changes is
        // atomic.
        unsafe { self.map.base().cast().as_ref() }
    }

    /// Finds, maps and opens a chunk, one of definitions with room for `payload` bytes. A failure
    /// is noted in the file's header; afterwards the system is asked again only after some more
    /// calls, ever more rarely while it fails.
    #[cold]
    fn acquire(shared: &Arc<Shared>, kind: ChunkKind, payload: usize) -> Option<Chunk> {
        if !shared.guard.is_same_process() || shared.pauses() {
            return None;
        }
        match Chunk::try_acquire(shared, kind, payload) {
            Ok(chunk) => {
                shared.note_success();
                Some(chunk)
            }
            Err(failure) => {
                shared.note_failure(failure);
                None
            }
        }
    }

    fn try_acquire(shared: &Arc<Shared>, kind: ChunkKind, payload: usize) -> Result<Chunk, Failure> {
        if shared.header().magic.load(Ordering::Relaxed) != u64::from_le_bytes(MAGIC) {
            // Somebody has emptied the file and filled it again: no reader will know it.
            fault::lose();
        }
        if fault::has_lost() {
            return Err(Failure(libc::ESTALE as u32));
        }
        let mut space = shared.space();
        let header = shared.header();
        let least = size_of::<ChunkHeader>() + payload;
        let (place, map) = space.acquire(kind, least, &header.chunks, &header.overwritten)?;
        let mut chunk = Chunk {
            map,
            committed: 0,
            room: place.tail().reserved as usize - size_of::<ChunkHeader>(),
            shared: shared.clone(),
            index: place.tail().index,
            kind,
        };
        let committed = chunk.header().committed.load(Ordering::Relaxed) as usize;
        chunk.committed = committed.min(chunk.room);
        if let Place::Overwritten(_) = place {
            chunk.open();
        }
        drop(space);
        chunk.map.populate()?;
        if let Place::Empty(_) = place {
            chunk.open();
        }
        Ok(chunk)
    }

    /// Makes an empty chunk of what was there. A kill in between leaves a chunk that was never
    /// opened.
    fn open(&mut self) {
        self.header().kind.store(0, Ordering::Release);
        self.committed = 0;
        self.header().committed.store(0, Ordering::Release);
        let sequence = self.shared.sequence.fetch_add(1, Ordering::Relaxed);
        self.header().sequence.store(sequence, Ordering::Relaxed);
        self.header().kind.store(self.kind as u32, Ordering::Release);
    }

    fn payload(&self) -> &[u8] {
        // SAFETY: `committed` bytes of the payload are written, and only the holder of the chunk,
        // which is borrowed, writes more.
        unsafe {
            let payload = self.map.base().add(size_of::<ChunkHeader>());
            std::slice::from_raw_parts(payload.as_ptr(), self.committed)
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // A child must not touch the lock: another thread of its parent may have held it at the
        // fork.
        if !self.shared.guard.is_same_process() {
            return;
        }
        let full = self.remaining() < LEAST_ROOM;
        // Only full ones are overwritten.
        let counted = full && self.kind == ChunkKind::Records;
        let records = if counted { count_records(self.payload()) } else { 0 };
        let tail = Tail {
            index: self.index,
            reserved: (self.room + size_of::<ChunkHeader>()) as u32,
            committed: self.committed as u32,
            records: records as u32,
        };
        self.shared.space().give_back(tail, self.kind, full);
        self.shared.pause.store(0, Ordering::Relaxed);
    }
}

/// One thread's way into a process file: holds a chunk while it has room, then takes the next one;
/// counts what it could not write. Dropping it gives the chunk to the next thread.
///
/// Under a session's size limit that is reached, the next chunk is the one of this file whose
/// records are the oldest, among those that no thread holds; they are counted as overwritten. A
/// file of fewer than two chunks gives up none.
#[derive(Debug, Default)]
pub struct Lane {
    chunk: Option<Chunk>,
}

impl Lane {
    /// Writes a record; false if it had to be counted as dropped, or if `file` is not of this
    /// process. All records of a lane go into the same file.
    #[inline]
    pub fn record<R: Slots>(&mut self, file: &ProcessFile, record: &R) -> bool {
        file.is_ours() && self.try_record(record) || self.record_in_next_chunk(file, record)
    }

    /// As [`Lane::record`], but only into the chunk that the lane has; false if there is none with
    /// room. Takes no lock, allocates nothing, makes no system call, and needs next to no stack.
    /// The caller knows that this process made the file.
    #[inline(always)]
    pub fn try_record<R: Slots>(&mut self, record: &R) -> bool {
        self.chunk.as_mut().is_some_and(|chunk| chunk.append(record.as_bytes()))
    }

    /// Fetches the lines that the next record is written to: nothing waits for them then.
    #[inline(always)]
    pub fn fetch(&self) {
        if let Some(chunk) = &self.chunk {
            chunk.fetch();
        }
    }

    /// Gives the chunk back, as dropping the lane does; the next record takes another one.
    pub fn give_back(&mut self) {
        self.chunk = None;
    }

    #[cold]
    fn record_in_next_chunk<R: Slots>(&mut self, file: &ProcessFile, record: &R) -> bool {
        if !file.is_ours() {
            return false;
        }
        self.give_back(); // before the next is taken, so that a limited file can go round
        self.chunk = Chunk::acquire(&file.shared, ChunkKind::Records, 0);
        let done = self
            .chunk
            .as_mut()
            .is_some_and(|chunk| chunk.append(this_thread().as_bytes()) && chunk.append(record.as_bytes()));
        if !done {
            file.count_dropped(1);
        }
        file.shared.anchor_if_due();
        done
    }
}

/// Has the processor fetch a line, which is about to be written.
#[inline(always)]
fn fetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads and writes nothing, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Records other than [`Thread`] in what this library wrote.
fn count_records(payload: &[u8]) -> u64 {
    let mut count = 0;
    let mut rest = payload;
    while let [kind, slots, ..] = rest {
        count += u64::from(*kind != RecordKind::Thread as u8);
        rest = rest.get(SLOT_BYTES * usize::from(*slots).max(1)..).unwrap_or_default();
    }
    count
}

fn this_thread() -> Thread {
    let mut name = [0; 16];
    // SAFETY: `PR_GET_NAME` writes at most 16 bytes, its terminator included.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let mut thread = Thread { head: Thread::head(0, now(), 0), tid: thread_id(), name: [0; 12] };
    thread.name.copy_from_slice(&name[..12]);
    thread
}

fn thread_id() -> u32 {
    // SAFETY: takes no arguments. (The wrapper `gettid` is missing before glibc 2.30.)
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

fn executable() -> [u8; 512] {
    use std::os::unix::ffi::OsStrExt;
    let mut field = [0; 512];
    if let Ok(path) = std::fs::read_link("/proc/self/exe") {
        let path = path.as_os_str().as_bytes();
        let length = path.len().min(field.len());
        field[..length].copy_from_slice(&path[..length]);
    }
    field
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held leaves the book-keeping valid: every step of it is.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
