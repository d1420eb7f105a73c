//! The chunks of one process file: their states, and the allocation of the next one.

use crate::control::Control;
use crate::error::in_file;
use crate::fault;
use crate::layout::{CHUNK_BYTES, ChunkHeader, ChunkKind, HEADER_BYTES, LIMIT_REACHED};
use crate::mapping::{Mapping, PAGE_BYTES, release, reserve};
use apex_untrusted::folder::{self, Folder};
use apex_untrusted::read::{PROCESS_FILE, open_in_place};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Minimum descriptor of a session file, where possible: programs rely on low numbers for their
/// own.
const LOWEST_DESCRIPTOR: i32 = 512;

/// Minimum chunks of a session with a size limit, so that many threads get one: with a smaller
/// limit, only the first part of each chunk has disk space.
const CHUNKS_OF_A_LIMIT: u64 = 64;

/// Minimum part of a chunk with disk space: more than the longest record.
const LEAST_PART: usize = 4 * PAGE_BYTES;

/// An acquired chunk, by its previous state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Never opened.
    Empty(Tail),
    /// A records chunk with room, released by a thread.
    Continued(Tail),
    /// A full records chunk, whose records are overwritten.
    Overwritten(Tail),
}

impl Place {
    pub fn tail(self) -> Tail {
        match self {
            Place::Empty(tail) | Place::Continued(tail) | Place::Overwritten(tail) => tail,
        }
    }
}

/// The reason why there is no chunk: an `errno`, or [`LIMIT_REACHED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub u32);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure(error.raw_os_error().unwrap_or(libc::EIO) as u32)
    }
}

/// A process file and the state of its chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    path: PathBuf,
    file: ManuallyDrop<File>,
    /// Device and inode, which identify the file.
    identity: (u64, u64),
    control: Option<&'static Control>,
    /// Number of chunks.
    chunks: u32,
    /// End of the last chunk: the file has at least this length.
    end: u64,
    /// Number of records chunks.
    records: u32,
    /// Chunks without disk space.
    holes: Vec<u32>,
    /// Free records chunks, by state. `full` is in the order of filling.
    empty: Vec<Tail>,
    partial: Vec<Tail>,
    full: VecDeque<Tail>,
    /// Released definitions chunks, which are never reused.
    definitions: Vec<Tail>,
}

/// A chunk that is used up to some byte of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub index: u32,
    /// Bytes with disk space, including its header.
    pub reserved: u32,
    pub committed: u32,
    /// Number of records, once it is full.
    pub records: u32,
}

impl Chunks {
    /// Creates `<pid>-<start>.rec` in `dir` and maps its header page, zeroed.
    pub fn create(
        dir: &Path,
        start_ns: u64,
        control: Option<&'static Control>,
    ) -> io::Result<(Chunks, Mapping)> {
        if control.is_some_and(|control| !control.take(HEADER_BYTES as u64)) {
            return Err(io::Error::other("the session's size limit is reached"));
        }
        let dir = std::path::absolute(dir)?; // the program may change its directory
        let (path, file) = create_file(&dir, start_ns).inspect_err(|_| give_back(control, HEADER_BYTES))?;
        Chunks::prepare(&path, file, control).map_err(|error| {
            let _ = std::fs::remove_file(&path);
            give_back(control, HEADER_BYTES);
            in_file("cannot create", &path, error)
        })
    }

    fn prepare(path: &Path, file: File, control: Option<&'static Control>) -> io::Result<(Chunks, Mapping)> {
        reserve(file.as_fd(), 0, HEADER_BYTES)?;
        let header = Mapping::shared(file.as_fd(), 0, HEADER_BYTES)?;
        header.populate()?;
        let file = out_of_the_way(file);
        let identity = identity(&file)?;
        let path = path.to_owned();
        let space = Chunks {
            path,
            file: ManuallyDrop::new(file),
            identity,
            control,
            chunks: 0,
            end: HEADER_BYTES as u64,
            records: 0,
            holes: Vec::new(),
            empty: Vec::new(),
            partial: Vec::new(),
            full: VecDeque::new(),
            definitions: Vec::new(),
        };
        Ok((space, header))
    }

    /// Bytes of a chunk that get disk space: all, or with a small size limit a part of at least
    /// `least` bytes.
    fn part(&self, least: usize) -> usize {
        let limit = self.control.map_or(0, |control| control.max_bytes.load(Ordering::Relaxed));
        let share = match limit {
            0 => CHUNK_BYTES,
            limit => usize::try_from(limit / CHUNKS_OF_A_LIMIT).unwrap_or(CHUNK_BYTES),
        };
        let pages = (share - share % PAGE_BYTES).max(LEAST_PART);
        pages.max(least.next_multiple_of(PAGE_BYTES)).min(CHUNK_BYTES)
    }

    /// Finds a chunk and maps the part of it that has disk space: at least `least` bytes if they
    /// are for definitions. `published` is the file's own count of its chunks, `overwritten` that
    /// of records which were given up.
    pub fn acquire(
        &mut self,
        kind: ChunkKind,
        least: usize,
        published: &AtomicU64,
        overwritten: &AtomicU64,
    ) -> Result<(Place, Mapping), Failure> {
        self.find_file()?;
        self.ensure_whole()?;
        let place = self.place(kind, self.part(least), overwritten)?;
        published.store(self.chunks.into(), Ordering::Relaxed);
        let tail = place.tail();
        let map = Mapping::shared(self.file.as_fd(), offset(tail.index), tail.reserved as usize)
            .inspect_err(|_| self.put_back(place))?;
        match (place, kind) {
            (Place::Empty(_), ChunkKind::Records) => self.records += 1,
            (Place::Overwritten(_), ChunkKind::Definitions) => self.records -= 1,
            _ => {}
        }
        if let Place::Overwritten(tail) = place {
            // Under the lock: so the oldest records go first, whichever thread is quicker.
            overwritten.fetch_add(tail.records.into(), Ordering::Relaxed);
        }
        Ok((place, map))
    }

    fn place(&mut self, kind: ChunkKind, part: usize, overwritten: &AtomicU64) -> Result<Place, Failure> {
        if kind == ChunkKind::Records
            && let Some(tail) = self.partial.pop()
        {
            return Ok(Place::Continued(tail));
        }
        // A records chunk may be smaller than one would be now.
        let fits = |tail: &Tail| kind == ChunkKind::Records || tail.reserved as usize >= part;
        if let Some(at) = self.empty.iter().rposition(fits) {
            return Ok(Place::Empty(self.empty.swap_remove(at)));
        }
        if self.control.is_none_or(|control| control.take(part as u64)) {
            return self.grow(part);
        }
        // One that stays is the least that makes a record of the past.
        while self.records >= 2
            && let Some(tail) = self.full.pop_front()
        {
            if fits(&tail) {
                return Ok(Place::Overwritten(tail));
            }
            // Counted first: a process that is killed in between has lost them.
            overwritten.fetch_add(tail.records.into(), Ordering::Relaxed);
            release(self.file.as_fd(), offset(tail.index), tail.reserved as usize).inspect_err(|_| {
                overwritten.fetch_sub(tail.records.into(), Ordering::Relaxed);
                self.full.push_front(tail);
            })?;
            self.records -= 1;
            give_back(self.control, tail.reserved as usize);
            push(&mut self.holes, tail.index);
            if self.control.is_none_or(|control| control.take(part as u64)) {
                return self.grow(part);
            }
        }
        Err(Failure(LIMIT_REACHED))
    }

    /// Reserves a part of a chunk, which has been taken out of the limit.
    fn grow(&mut self, part: usize) -> Result<Place, Failure> {
        let hole = self.holes.pop();
        self.reserve_part(hole, part).inspect_err(|_| {
            give_back(self.control, part);
            if let Some(index) = hole {
                push(&mut self.holes, index);
            }
        })
    }

    fn reserve_part(&mut self, hole: Option<u32>, part: usize) -> Result<Place, Failure> {
        let index = hole.unwrap_or(self.chunks);
        // A larger file would not be read.
        let next = index.checked_add(1).filter(|&next| offset(next) <= PROCESS_FILE);
        let next = next.ok_or(Failure(libc::EFBIG as u32))?;
        reserve(self.file.as_fd(), offset(index), part)?;
        self.chunks = self.chunks.max(next);
        self.end = self.end.max(offset(index) + part as u64);
        Ok(Place::Empty(Tail { index, reserved: part as u32, committed: 0, records: 0 }))
    }

    fn put_back(&mut self, place: Place) {
        match place {
            Place::Empty(tail) => push(&mut self.empty, tail),
            Place::Continued(tail) => push(&mut self.partial, tail),
            Place::Overwritten(tail) => self.full.push_front(tail),
        }
    }

    /// Releases a chunk; `full` if it has no room for more records.
    pub fn give_back(&mut self, tail: Tail, kind: ChunkKind, full: bool) {
        match kind {
            ChunkKind::Definitions => push(&mut self.definitions, tail),
            ChunkKind::Records if tail.committed == 0 => {
                self.records -= 1;
                push(&mut self.empty, tail);
            }
            ChunkKind::Records if full => {
                if self.full.try_reserve(1).is_ok() {
                    self.full.push_back(tail);
                }
            }
            ChunkKind::Records => push(&mut self.partial, tail),
        }
    }

    /// Releases the unused disk space of free chunks, also from the session's limit. These chunks
    /// are not reused, because their space is no longer reserved.
    pub fn trim(&mut self) {
        if self.find_file().and_then(|()| self.ensure_whole()).is_err() {
            return;
        }
        for tail in self.empty.drain(..).chain(self.partial.drain(..)).chain(self.definitions.drain(..)) {
            let used = (size_of::<ChunkHeader>() + tail.committed as usize).next_multiple_of(PAGE_BYTES);
            let unused = (tail.reserved as usize).saturating_sub(used);
            if unused > 0 && release(self.file.as_fd(), offset(tail.index) + used as u64, unused).is_ok() {
                give_back(self.control, unused);
            }
        }
    }

    /// Reopens the file if `file` is no longer its descriptor: some programs close descriptors that
    /// they did not open (daemons close all), and the number may then name another file.
    fn find_file(&mut self) -> io::Result<()> {
        if identity(&self.file).is_ok_and(|found| found == self.identity) {
            return Ok(());
        }
        let file = open_in_place(&self.path)?;
        if identity(&file)? != self.identity {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        // The old number is no longer ours to close.
        self.file = ManuallyDrop::new(out_of_the_way(file));
        Ok(())
    }

    /// Returns an error, which ends recording, if the file was truncated: it must not grow again.
    fn ensure_whole(&self) -> io::Result<()> {
        if self.file.metadata()?.len() >= self.end {
            return Ok(());
        }
        fault::lose();
        Err(io::Error::from_raw_os_error(libc::ESTALE))
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        if identity(&self.file).is_ok_and(|found| found == self.identity) {
            // SAFETY: dropped here only, and not used afterwards. The descriptor is ours, as was
            // just seen.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

fn create_file(dir: &Path, start_ns: u64) -> io::Result<(PathBuf, File)> {
    let pid = std::process::id();
    let folder = Folder::open(dir).map_err(|error| in_file("cannot open", dir, error))?;
    let mut start = start_ns;
    loop {
        // Two processes of one number (one after the other, or in two namespaces) differ in their
        // start.
        let name = format!("{pid}-{start}.rec");
        let path = dir.join(&name);
        match folder.create_new(&name) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => start += 1,
            Err(error) => return Err(in_file("cannot create", &path, error)),
        }
    }
}

/// The same file under a high descriptor, if one can be had.
fn out_of_the_way(file: File) -> File {
    // SAFETY: no memory is involved.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR) };
    if high < 0 {
        return file;
    }
    // SAFETY: a new descriptor that nobody else owns.
    unsafe { File::from_raw_fd(high) }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|metadata| folder::identity(&metadata))
}

fn offset(index: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(index) * CHUNK_BYTES as u64
}

/// Appends to a list; without memory the chunk is not used again, which loses space and no record.
fn push<T>(list: &mut Vec<T>, value: T) {
    if list.try_reserve(1).is_ok() {
        list.push(value);
    }
}

fn give_back(control: Option<&Control>, bytes: usize) {
    if let Some(control) = control {
        control.give_back(bytes as u64);
    }
}
