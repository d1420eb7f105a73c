//! Memory and events that are shared with other processes by handles (`cuIpc…`).
//!
//! What is shared becomes an anonymous file, whose pages take the place of the private ones when
//! the first handle is asked for. A handle names the process, the descriptor and the file; who
//! opens it opens `/proc/PID/fd/N`, which the system allows processes of the same user. So nothing
//! has a name that would have to be cleaned up: the file lives for as long as somebody has it open
//! or mapped.
//!
//! An event's file holds two numbers: how often it has been recorded, and which record was reached
//! last.

use crate::device;
use crate::error::{Error, Result, ensure, fail};
use crate::memory::{Allocation, Backing, Kind, Request};
use cuda_abi::types::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An anonymous file of `bytes` zeros, which nobody can shorten: whoever maps it may access all of
/// it.
pub fn anonymous_file(bytes: u64) -> io::Result<OwnedFd> {
    const FLAGS: libc::c_uint = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends in a zero byte.
    let file = unsafe { libc::memfd_create(c"apex-device-memory".as_ptr(), FLAGS) };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the file has just been opened, and nobody else has it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(file) });
    file.set_len(bytes)?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } {
        0 => Ok(file.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The content of a handle's 64 bytes: enough to find a file in another process, and to know that
/// it is the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HandleContent {
    what: SharedKind,
    process: u32,
    descriptor: u32,
    device: u64,
    inode: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharedKind {
    Memory = 0x4d78_7061,
    Event = 0x4578_7061,
}

impl HandleContent {
    fn new(what: SharedKind, file: &OwnedFd, bytes: u64) -> io::Result<HandleContent> {
        let descriptor = file.as_raw_fd().cast_unsigned();
        let metadata = File::from(file.try_clone()?).metadata()?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(HandleContent { what, process: std::process::id(), descriptor, device, inode, bytes })
    }

    fn encode(self) -> [std::ffi::c_char; 64] {
        let mut bytes = [0; 64];
        let words = [self.what as u32, self.process, self.descriptor].map(u64::from);
        let words = words.into_iter().chain([self.device, self.inode, self.bytes]);
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes.map(|byte| byte as std::ffi::c_char)
    }

    fn decode(bytes: [std::ffi::c_char; 64], what: SharedKind) -> Result<HandleContent> {
        let bytes = bytes.map(|byte| byte as u8);
        let word = |index: usize| u64::from_le_bytes(bytes.as_chunks::<8>().0[index]);
        ensure(word(0) == what as u64, CUDA_ERROR_INVALID_VALUE)?;
        Ok(HandleContent {
            what,
            process: word(1) as u32,
            descriptor: word(2) as u32,
            device: word(3),
            inode: word(4),
            bytes: word(5),
        })
    }

    /// Opens the file.
    fn open(&self) -> Result<OwnedFd> {
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let opened = File::options().read(true).write(true).open(&path).and_then(|file| {
            let metadata = file.metadata()?;
            let right = (metadata.dev(), metadata.ino()) == (self.device, self.inode);
            let gone = || io::Error::other("that process no longer shares it");
            (right && metadata.len() >= self.bytes).then_some(file).ok_or_else(gone)
        });
        match opened {
            Ok(file) => Ok(file.into()),
            Err(error) => {
                // A program may have closed its standard error; that must not become its problem.
                let _ = writeln!(
                    io::stderr(),
                    "apex: cpu device: an IPC handle of process {} cannot be opened: {error}\n    both processes must \
                     run as the same user, and the one that made the handle must still hold what it shares",
                    self.process
                );
                fail(CUDA_ERROR_MAP_FAILED)
            }
        }
    }
}

fn failed(_: io::Error) -> Error {
    Error(CUDA_ERROR_OPERATING_SYSTEM)
}

/// Memory of other processes that is open here, by device and number of its file.
static OPENED: Mutex<BTreeMap<(u64, u64), Opened>> = Mutex::new(BTreeMap::new());

/// Memory of another process.
struct Opened {
    address: u64,
    /// The number of times that it was opened.
    count: u64,
}

fn opened() -> MutexGuard<'static, BTreeMap<(u64, u64), Opened>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The allocation in which `address` lies, if it may be shared.
pub fn shareable(address: u64) -> Result<Arc<Allocation>> {
    let found = device::get()?.memory.find(address).filter(|found| found.kind == Kind::Device);
    found.ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}

/// Returns a handle for an allocation that no work uses now: its pages are copied once.
pub fn share_memory(found: &Allocation) -> Result<CUipcMemHandle> {
    let backing = found.backing().ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
    let file = backing.share(found.bytes).map_err(failed)?;
    let named = HandleContent::new(SharedKind::Memory, file, found.bytes).map_err(failed)?;
    Ok(CUipcMemHandle { reserved: named.encode() })
}

/// Maps the allocation that a handle of another process names, for the context with this handle;
/// returns its address.
pub fn open_memory(handle: CUipcMemHandle, context: u64) -> Result<u64> {
    let named = HandleContent::decode(handle.reserved, SharedKind::Memory)?;
    ensure(named.process != std::process::id(), CUDA_ERROR_INVALID_CONTEXT)?;
    let key = (named.device, named.inode);
    let mut opened = opened();
    if let Some(known) = opened.get_mut(&key) {
        known.count += 1;
        return Ok(known.address);
    }
    let backing = Backing::of_file(named.open()?, named.bytes)?;
    let request = Request { bytes: named.bytes, kind: Kind::Imported, flags: 0, context };
    let address = device::get()?.memory.adopt(backing, request, true)?.start;
    opened.insert(key, Opened { address, count: 1 });
    Ok(address)
}

/// Takes back one opening; returns whether it was the last, so that the memory can be
/// [unmapped](unmap) once no work uses it.
pub fn close_memory(address: u64) -> Result<bool> {
    let mut opened = opened();
    let entry = opened.iter_mut().find(|(_, known)| known.address == address);
    let (key, known) = entry.ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
    known.count -= 1;
    let (key, last) = (*key, known.count == 0);
    if last {
        opened.remove(&key);
    }
    Ok(last)
}

/// Unmaps memory of another process.
pub fn unmap(address: u64) -> Result {
    device::get()?.memory.release(address, |kind| kind == Kind::Imported);
    Ok(())
}

/// The state of an event that processes share.
#[repr(C)]
struct SharedState {
    /// The number of times that the event has been recorded.
    recorded: AtomicU64,
    /// The last record that has been reached.
    reached: AtomicU64,
    /// The process that recorded it last.
    recorder: AtomicU32,
}

/// An event that other processes can open.
pub struct SharedEvent {
    file: OwnedFd,
    backing: Arc<Backing>,
}

impl SharedEvent {
    /// A new event.
    pub fn create() -> Result<Arc<SharedEvent>> {
        let bytes = size_of::<SharedState>() as u64;
        SharedEvent::of_file(anonymous_file(bytes).map_err(failed)?)
    }

    /// The event of another process.
    pub fn open(handle: CUipcEventHandle) -> Result<Arc<SharedEvent>> {
        SharedEvent::of_file(HandleContent::decode(handle.reserved, SharedKind::Event)?.open()?)
    }

    fn of_file(file: OwnedFd) -> Result<Arc<SharedEvent>> {
        let copy = file.try_clone().map_err(failed)?;
        let backing = Backing::of_file(copy, size_of::<SharedState>() as u64)?;
        Ok(Arc::new(SharedEvent { file, backing }))
    }

    /// A handle for other processes.
    pub fn handle(&self) -> Result<CUipcEventHandle> {
        let named = HandleContent::new(SharedKind::Event, &self.file, size_of::<SharedState>() as u64)
            .map_err(failed)?;
        Ok(CUipcEventHandle { reserved: named.encode() })
    }

    fn state(&self) -> &SharedState {
        // SAFETY: the mapping is page-aligned, as long as the state, and lives as long as this;
        // atomics may be changed by other processes, and any bits are valid ones.
        unsafe { &*(self.backing.start() as *const SharedState) }
    }

    /// Notes that the event is being recorded; returns the record's number.
    pub fn record(&self) -> u64 {
        self.state().recorder.store(std::process::id(), Ordering::Relaxed);
        self.state().recorded.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Notes that a record has been reached.
    pub fn reach(&self, record: u64) {
        self.state().reached.fetch_max(record, Ordering::AcqRel);
    }

    /// Whether the last record has been reached.
    pub fn is_complete(&self) -> bool {
        self.has_reached(self.last_record())
    }

    /// The record that is the last now.
    pub fn last_record(&self) -> u64 {
        self.state().recorded.load(Ordering::Acquire)
    }

    /// Whether a record has been reached, or never will be: the process that made it has ended.
    pub fn has_reached(&self, record: u64) -> bool {
        let state = self.state();
        if state.reached.load(Ordering::Acquire) >= record {
            return true;
        }
        let recorder = state.recorder.load(Ordering::Relaxed).cast_signed();
        // SAFETY: signal 0 is none: it asks whether the process exists.
        unsafe { libc::kill(recorder, 0) != 0 && *libc::__errno_location() == libc::ESRCH }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_what_was_put_into_it() {
        let file = anonymous_file(100).unwrap();
        let named = HandleContent::new(SharedKind::Memory, &file, 100).unwrap();
        assert_eq!(HandleContent::decode(named.encode(), SharedKind::Memory).ok(), Some(named));
        assert!(HandleContent::decode(named.encode(), SharedKind::Event).is_err());
        assert!(HandleContent::decode([0; 64], SharedKind::Memory).is_err());
        assert!(named.open().is_ok());
        assert!(HandleContent { inode: named.inode + 1, ..named }.open().is_err());
        assert!(HandleContent { bytes: 101, ..named }.open().is_err());
    }
}
