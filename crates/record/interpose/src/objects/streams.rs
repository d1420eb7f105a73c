//! Streams: the one that a handle names, and the way in which the program made it.

use super::{Objects, epochs, lock};
use crate::tables::put;
use crate::{driver, limits};
use apex_trace::definition::StreamKind;
use cuda_abi::types::*;
use cuda_abi::{ENTRY_POINTS, StreamMode};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Release;

/// Flags of the streams that the program made, by handle.
pub type Flags = HashMap<u64, u32>;

/// `CU_STREAM_LEGACY`
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD: usize = 2;

/// Whether stream 0 is the thread's own to the entry point at `index`.
pub const fn is_per_thread(index: usize) -> bool {
    matches!(ENTRY_POINTS[index].stream, StreamMode::PerThread)
}

/// The stream that `stream` means to an entry point, with the default streams told apart: stream 0
/// is the thread's own in the per-thread forms, and the legacy one otherwise.
#[inline(always)]
pub fn normalised(stream: CUstream, per_thread: bool) -> CUstream {
    match stream as usize {
        0 if per_thread => PER_THREAD as CUstream,
        0 => LEGACY as CUstream,
        _ => stream,
    }
}

/// Whether a [`normalised`] stream is the legacy default stream, which cannot be captured.
#[inline(always)]
pub fn is_legacy(stream: CUstream) -> bool {
    stream as usize == LEGACY
}

/// Whether a [`normalised`] stream is the calling thread's own default stream.
#[inline(always)]
pub fn is_own_default(stream: CUstream) -> bool {
    stream as usize == PER_THREAD
}

/// The thread to which a [`normalised`] stream belongs: the calling one for its default stream,
/// else 0.
pub fn origin(stream: CUstream) -> u32 {
    if is_own_default(stream) { thread_id() } else { 0 }
}

/// The calling thread's kernel identifier.
pub fn thread_id() -> u32 {
    // SAFETY: takes no arguments. (The wrapper `gettid` is missing before glibc 2.30.)
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// A number that stands for a [`normalised`] stream. Handles of streams are the driver's pointers;
/// default streams, of which each context or thread has its own, get numbers that are no pointers.
pub fn key(stream: CUstream, context: u32, thread: u32) -> u64 {
    let own = |thread: u32| 1 << 63 | u64::from(context) << 32 | u64::from(thread);
    match stream as usize {
        LEGACY => own(0),
        PER_THREAD => own(thread),
        handle => handle as u64,
    }
}

impl Objects {
    /// The program made a stream. Its flags are noted, for while it is capturing the driver must
    /// not be asked: asking for a capturing stream's flags ends the capture (580.159.04,
    /// `data/h200/driver/captures.csv`).
    pub fn note_stream(&self, stream: CUstream, flags: u32) {
        let mut known = lock(&self.streams);
        if known.len() < limits::STREAM_HANDLES {
            put(&mut known, stream as u64, flags);
        }
    }

    /// Forgets a stream that is about to be destroyed.
    pub fn forget_stream(&self, stream: CUstream) {
        lock(&self.streams).remove(&(stream as u64));
        epochs().streams.fetch_add(1, Release);
    }

    /// The kind of a [`normalised`] stream; `None` if nobody saw it made and it is capturing now.
    pub fn stream_kind(&self, stream: CUstream) -> Option<StreamKind> {
        match stream as usize {
            LEGACY => return Some(StreamKind::LegacyDefault),
            PER_THREAD => return Some(StreamKind::PerThreadDefault),
            _ => {}
        }
        let noted = lock(&self.streams).get(&(stream as u64)).copied();
        let flags = match noted {
            Some(flags) => flags,
            None if self.captures.any() && driver::is_capturing(stream) => return None,
            None => driver::stream_flags(stream)?,
        };
        let is_parallel = flags & CU_STREAM_NON_BLOCKING != 0;
        Some(if is_parallel { StreamKind::NonBlocking } else { StreamKind::Blocking })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn default_streams_are_told_apart_from_each_other_and_from_handles() {
        let null = null_mut();
        let (legacy, own) = (normalised(null, false), normalised(null, true));
        assert!(is_legacy(legacy) && !is_legacy(own));
        let handle = 0x5555_0000_1000 as CUstream;
        assert_eq!((normalised(handle, true), normalised(own, false)), (handle, own));
        let keys = [
            key(legacy, 1, 7),
            key(legacy, 2, 7),
            key(own, 1, 7),
            key(own, 1, 8),
            key(own, 2, 7),
            key(handle, 1, 7),
        ];
        let distinct: std::collections::HashSet<u64> = keys.into_iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(key(legacy, 1, 7), key(legacy, 1, 8), "all threads share a context's legacy stream");
        assert_eq!(key(handle, 1, 7), key(handle, 2, 8), "a handle is one stream everywhere");
    }
}
