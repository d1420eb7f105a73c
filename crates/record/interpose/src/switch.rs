//! The switch that says whether calls are recorded now, and the reason if recording has ended for
//! good.
//!
//! The session's control page holds the switch that `apex ctl` turns. This module points to it
//! while the process records, and to a constant zero otherwise. It knows nothing of what is
//! recorded: the allocator and signal handlers use it too.

use crate::hot::{OFF, hot};
use crate::message::say_line;
use crate::stack::on_own_stack;
use apex_trace::{Control, ProcessFile};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// The session file of the process that last announced one; null before. Never freed.
static FILE: AtomicPtr<ProcessFile> = AtomicPtr::new(null_mut());

/// Whether calls are to be recorded now.
#[inline(always)]
pub fn is_recording() -> bool {
    // SAFETY: points to `OFF` or into the session's control page, which stays mapped.
    unsafe { (*hot().recording.load(Relaxed)).load(Relaxed) != 0 }
}

/// Tells [`stop`] which file to note a loss in.
pub fn announce(file: &'static ProcessFile) {
    FILE.store(from_ref(file).cast_mut(), Release);
}

/// Recording follows the session's switch from now on.
pub fn follow(control: &'static Control) {
    hot().recording.store((&raw const control.recording).cast_mut(), Relaxed);
}

/// This process does not record.
pub fn turn_off() {
    hot().recording.store((&raw const OFF).cast_mut(), Relaxed);
}

/// The reason why recording ends before the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The system refused memory.
    NoMemory = 1,
    /// A session file was truncated, or its disk failed.
    FileLost = 2,
    /// A panic.
    Fault = 3,
}

/// The process that has ended recording, and the reason: its identifier times 4, plus a [`Stop`]. A
/// forked child begins anew.
static STOPPED: AtomicU64 = AtomicU64::new(0);

/// Ends recording in this process, and says why. Allocates nothing and takes no lock: the allocator
/// and signal handlers call it. The first reason counts.
#[cold]
pub fn stop(why: Stop) {
    turn_off();
    let process = u64::from(std::process::id());
    let first = STOPPED.fetch_update(Relaxed, Relaxed, |stopped| {
        (stopped / 4 != process).then_some(process * 4 + why as u64)
    });
    // SAFETY: null, or announced and never freed.
    let file = unsafe { FILE.load(Acquire).as_ref() };
    let (Ok(_), Some(file)) = (first, file) else { return };
    let line: &[u8] = match why {
        Stop::NoMemory => {
            b"apex: out of memory: from here on this process is not recorded (its limit: `ulimit -v`)\n"
        }
        Stop::FileLost => {
            b"apex: this process's file (*.rec) in the session's folder was truncated or its disk failed: from here on \
              this process is not recorded. Leave the folder alone while programs run, or record to another disk \
              (apex run -o FOLDER)\n"
        }
        Stop::Fault => {
            b"apex: a fault in the recorder: from here on this process is not recorded. Please report it, with what \
              `apex doctor` says\n"
        }
    };
    say_line(line);
    // (A lost file is not touched: its mappings may fail, and this may be the handler of such a
    // failure.)
    if why != Stop::FileLost {
        file.note_loss(if why == Stop::NoMemory { libc::ENOMEM } else { libc::EIO });
    }
}

/// Whether recording has ended for good in this process.
pub fn has_stopped() -> bool {
    reason().is_some()
}

/// Whether work that allocates, or that may meet the same fault again, must not begin any more in
/// this process. A lost file is no reason: what is known of the driver's objects does not depend on
/// it.
pub fn must_rest() -> bool {
    reason().is_some_and(|reason| reason != Stop::FileLost as u64)
}

fn reason() -> Option<u64> {
    let stopped = STOPPED.load(Relaxed);
    (stopped != 0 && stopped / 4 == u64::from(std::process::id())).then_some(stopped % 4)
}

/// Runs `work`, which is not on the launch path, on a stack of our own. If it panics, recording
/// ends for this process, and the program goes on.
pub fn guarded<R>(work: impl FnOnce() -> R) -> Option<R> {
    on_own_stack(|| caught(work))
}

/// As [`guarded`], on the program's stack: for work that is done often and needs little of it.
pub fn caught<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).inspect_err(|_| stop(Stop::Fault)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_recording_and_goes_no_further() {
        use std::sync::atomic::AtomicU32;
        static ON: AtomicU32 = AtomicU32::new(1);
        hot().recording.store((&raw const ON).cast_mut(), Relaxed);
        assert_eq!(guarded(|| 7), Some(7));
        assert!(is_recording());
        assert_eq!(guarded(|| -> u32 { panic!("a fault of ours") }), None);
        assert!(!is_recording() && has_stopped() && must_rest());
    }
}
