//! Detects that the program's threads have ended, so that only the queue's thread is left.
//!
//! A process ends with its last thread. A program whose `main` leaves by `pthread_exit`, or by the
//! system call, goes on until its other threads have ended, and the queue's thread must not be the
//! one that keeps it. Nothing wakes that thread when another one ends, so it looks now and then
//! while it sleeps, soon after its last call and then less often.
//!
//! A look opens no file: the program may rely on the file descriptor that it gets next. While the
//! main thread lives, as in nearly every program, it is one system call.

use std::ffi::CString;
use std::fs::symlink_metadata;
use std::os::unix::fs::MetadataExt;

/// Time before the first look; each next one takes twice as long, up to [`LONGEST_PAUSE_NS`].
const FIRST_PAUSE_NS: u64 = 5_000_000;
const LONGEST_PAUSE_NS: u64 = 160_000_000;
/// Links of the folder of a process's threads that are not threads.
const OWN_LINKS: u64 = 2;

/// Looks of a thread that sleeps.
pub struct Watch {
    pause_ns: u64,
    /// The main thread's folder.
    main: String,
    /// Its link to the program, which leads nowhere once the thread has ended.
    program: Option<CString>,
}

impl Watch {
    /// For the calling process.
    pub fn new() -> Watch {
        let main = format!("/proc/self/task/{}", std::process::id());
        let program = CString::new(format!("{main}/exe")).ok();
        Watch { pause_ns: FIRST_PAUSE_NS, main, program }
    }

    /// The thread falls asleep.
    pub fn begin(&mut self) {
        self.pause_ns = FIRST_PAUSE_NS;
    }

    /// Returns the time to sleep before the next look.
    pub fn pause_ns(&self) -> u64 {
        self.pause_ns
    }

    /// Whether the calling thread, which is not the main thread, is the only one that has not
    /// ended. False where the system does not tell.
    pub fn is_last_thread(&mut self) -> bool {
        self.pause_ns = (self.pause_ns * 2).min(LONGEST_PAUSE_NS);
        self.has_main_ended() && threads() == Some(2)
    }

    fn has_main_ended(&self) -> bool {
        let Some(program) = &self.program else { return false };
        let mut byte = 0;
        // SAFETY: a C string, and room for one byte.
        let length = unsafe { libc::readlink(program.as_ptr(), &raw mut byte, 1) };
        let leads_nowhere =
            length < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT);
        // (In a namespace of processes whose file system is another one's, there is no folder.)
        leads_nowhere && symlink_metadata(&self.main).is_ok()
    }
}

/// Threads of this process. A main thread that has ended counts until the others have, too.
fn threads() -> Option<u64> {
    symlink_metadata("/proc/self/task").ok()?.nlink().checked_sub(OWN_LINKS)
}
