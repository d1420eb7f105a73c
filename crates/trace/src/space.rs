//! The chunks of one process file: which there are, who may have them, and where the next comes from.

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

/// Descriptors below this are left to the program, where possible: programs count on low numbers.
const LOWEST_DESCRIPTOR: i32 = 512;

/// A chunk that was found, and in what state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Never opened.
    Empty(u32),
    /// A records chunk with room, given back by a thread.
    Continued(Tail),
    /// A full records chunk, whose content is to be given up.
    Overwritten(u32),
}

impl Place {
    pub fn index(self) -> u32 {
        match self {
            Place::Empty(index) | Place::Overwritten(index) => index,
            Place::Continued(tail) => tail.index,
        }
    }
}

/// Why there is no chunk: an `errno`, or [`LIMIT_REACHED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub u32);

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure(error.raw_os_error().unwrap_or(libc::EIO) as u32)
    }
}

/// Book-keeping of a file's chunks, and the file itself.
#[derive(Debug)]
pub(crate) struct Space {
    path: PathBuf,
    file: ManuallyDrop<File>,
    /// Device and inode, by which the file is known again.
    identity: (u64, u64),
    control: Option<&'static Control>,
    /// Chunks that the file has.
    chunks: u32,
    /// How many of them are records chunks.
    records: u32,
    /// Records chunks that nobody holds, by state. `full` is in the order of filling.
    empty: Vec<u32>,
    partial: Vec<Tail>,
    full: VecDeque<u32>,
    /// Definitions chunks that nobody holds; none is ever handed out again.
    definitions: Vec<Tail>,
}

/// A chunk that is used up to some byte of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    index: u32,
    committed: usize,
}

impl Space {
    /// Makes `<pid>-<start>.rec` in `dir` and maps its header page, zeroed.
    pub fn create(
        dir: &Path,
        start_ns: u64,
        control: Option<&'static Control>,
    ) -> io::Result<(Space, Mapping)> {
        if control.is_some_and(|control| !control.take(HEADER_BYTES as u64)) {
            return Err(io::Error::other("the session's size limit is reached"));
        }
        let dir = std::path::absolute(dir)?; // the program may change its directory
        let (path, file) = create_file(&dir, start_ns).inspect_err(|_| give_back(control, HEADER_BYTES))?;
        Space::prepare(&path, file, control).map_err(|error| {
            let _ = std::fs::remove_file(&path);
            give_back(control, HEADER_BYTES);
            in_file("cannot create", &path, error)
        })
    }

    fn prepare(path: &Path, file: File, control: Option<&'static Control>) -> io::Result<(Space, Mapping)> {
        reserve(file.as_fd(), 0, HEADER_BYTES)?;
        let header = Mapping::shared(file.as_fd(), 0, HEADER_BYTES)?;
        header.populate()?;
        let file = out_of_the_way(file);
        let identity = identity(&file)?;
        let path = path.to_owned();
        let space = Space {
            path,
            file: ManuallyDrop::new(file),
            identity,
            control,
            chunks: 0,
            records: 0,
            empty: Vec::new(),
            partial: Vec::new(),
            full: VecDeque::new(),
            definitions: Vec::new(),
        };
        Ok((space, header))
    }

    /// Finds a chunk and maps it. `published` is the file's own count of its chunks.
    pub fn acquire(&mut self, kind: ChunkKind, published: &AtomicU64) -> Result<(Place, Mapping), Failure> {
        self.find_file()?;
        self.ensure_whole()?;
        let place = self.place(kind)?;
        published.store(self.chunks.into(), Ordering::Relaxed);
        let map = Mapping::shared(self.file.as_fd(), offset(place.index()), CHUNK_BYTES)
            .inspect_err(|_| self.put_back(place))?;
        match (place, kind) {
            (Place::Empty(_), ChunkKind::Records) => self.records += 1,
            (Place::Overwritten(_), ChunkKind::Definitions) => self.records -= 1,
            _ => {}
        }
        Ok((place, map))
    }

    fn place(&mut self, kind: ChunkKind) -> Result<Place, Failure> {
        if kind == ChunkKind::Records
            && let Some(tail) = self.partial.pop()
        {
            return Ok(Place::Continued(tail));
        }
        if let Some(index) = self.empty.pop() {
            return Ok(Place::Empty(index));
        }
        if self.control.is_none_or(|control| control.take(CHUNK_BYTES as u64)) {
            return self.grow().inspect_err(|_| give_back(self.control, CHUNK_BYTES));
        }
        // One that stays is the least that makes a record of the past.
        match self.full.pop_front() {
            Some(index) if self.records >= 2 => Ok(Place::Overwritten(index)),
            kept => {
                self.full.extend(kept);
                Err(Failure(LIMIT_REACHED))
            }
        }
    }

    fn grow(&mut self) -> Result<Place, Failure> {
        let index = self.chunks;
        // A larger file would not be read.
        let next = index.checked_add(1).filter(|&next| offset(next) <= PROCESS_FILE);
        let next = next.ok_or(Failure(libc::EFBIG as u32))?;
        reserve(self.file.as_fd(), offset(index), CHUNK_BYTES)?;
        self.chunks = next;
        Ok(Place::Empty(index))
    }

    fn put_back(&mut self, place: Place) {
        match place {
            Place::Empty(index) => push(&mut self.empty, index),
            Place::Continued(tail) => push(&mut self.partial, tail),
            Place::Overwritten(index) => self.full.push_front(index),
        }
    }

    /// Takes back a chunk that its holder no longer needs; `full` if it has no room for more.
    pub fn give_back(&mut self, index: u32, kind: ChunkKind, committed: usize, full: bool) {
        match kind {
            ChunkKind::Definitions => push(&mut self.definitions, Tail { index, committed }),
            ChunkKind::Records if committed == 0 => {
                self.records -= 1;
                push(&mut self.empty, index);
            }
            ChunkKind::Records if full => {
                if self.full.try_reserve(1).is_ok() {
                    self.full.push_back(index);
                }
            }
            ChunkKind::Records => push(&mut self.partial, Tail { index, committed }),
        }
    }

    /// Gives back to the disk, and to the session's limit, what chunks that nobody holds have not used. They are not
    /// handed out any more: their space is no longer reserved.
    pub fn trim(&mut self) {
        if self.find_file().and_then(|()| self.ensure_whole()).is_err() {
            return;
        }
        let empty = self.empty.drain(..).map(|index| Tail { index, committed: 0 });
        for tail in empty.chain(self.partial.drain(..)).chain(self.definitions.drain(..)) {
            let used = (size_of::<ChunkHeader>() + tail.committed).next_multiple_of(PAGE_BYTES);
            let unused = CHUNK_BYTES - used;
            if unused > 0 && release(self.file.as_fd(), offset(tail.index) + used as u64, unused).is_ok() {
                give_back(self.control, unused);
            }
        }
    }

    /// Makes sure that `file` is still ours. Programs close descriptors that they never opened (daemons close them
    /// all), and the number then soon names a file of theirs.
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

    /// An error, and the end of recording, if somebody has truncated the file: what is left of it must not grow again.
    fn ensure_whole(&self) -> io::Result<()> {
        if self.file.metadata()?.len() >= offset(self.chunks) {
            return Ok(());
        }
        fault::lose();
        Err(io::Error::from_raw_os_error(libc::ESTALE))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if identity(&self.file).is_ok_and(|found| found == self.identity) {
            // SAFETY: dropped here only, and not used afterwards. The descriptor is ours, as was just seen.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

fn create_file(dir: &Path, start_ns: u64) -> io::Result<(PathBuf, File)> {
    let pid = std::process::id();
    let folder = Folder::open(dir).map_err(|error| in_file("cannot open", dir, error))?;
    let mut start = start_ns;
    loop {
        // Two processes of one number (one after the other, or in two namespaces) differ in their start.
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
