//! Signals that end a command from outside. Either the command looks for them and ends its work
//! itself, or a thread removes what must not stay, and then the process ends by the signal.

use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Signals that end a command from outside.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// The end of a pipe into which a signal is written.
static TO_CLEANER: AtomicI32 = AtomicI32::new(-1);
/// Whether a signal came that the cleaner ends the process by.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Has `clean` called before a signal ends the process, which then ends by that signal. Signals
/// that somebody handles already, or ignores, stay as they are. Further calls do nothing.
///
/// # Errors
/// If the system has no pipe or thread left: then signals end the process as usual.
pub fn clean_before_end(clean: fn()) -> io::Result<()> {
    static DONE: OnceLock<()> = OnceLock::new();
    if DONE.set(()).is_err() {
        return Ok(());
    }
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the pipe was just made, and nobody else has its first end.
    let read = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    std::thread::Builder::new().spawn(move || {
        let mut signal = [0];
        if std::fs::File::from(read).read_exact(&mut signal).is_ok() {
            clean();
            end_by(signal[0].into());
        }
    })?;
    TO_CLEANER.store(ends[1], Ordering::Relaxed);
    ENDING.into_iter().for_each(handle);
    Ok(())
}

/// Has a signal written to the cleaner, unless somebody handles or ignores it.
fn handle(signal: libc::c_int) {
    extern "C" fn tell(signal: libc::c_int) {
        IS_ENDING.store(true, Ordering::SeqCst);
        let byte = signal as u8;
        // SAFETY: `write` may be called in a handler, with one byte that lives until it returns.
        unsafe { libc::write(TO_CLEANER.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
    }
    // SAFETY: the handler only uses atomics and calls `write`; `signal` may be called at any time.
    unsafe {
        let before = libc::signal(signal, tell as extern "C" fn(libc::c_int) as libc::sighandler_t);
        if before != libc::SIG_DFL {
            libc::signal(signal, before);
        }
    }
}

/// Does not return if a signal has come for the cleaner, which ends the process: what fails
/// meanwhile because its files are gone must neither be told nor end the process first.
pub fn await_end() {
    while IS_ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Ends the process by a signal, so that its parent sees which one it was.
fn end_by(signal: libc::c_int) {
    // SAFETY: plain calls; SIG_DFL is a valid action.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
    }
}

/// A flag that SIGINT and SIGTERM set. The second signal ends the process as usual.
pub fn stop_on_signals() -> &'static AtomicBool {
    static STOP: AtomicBool = AtomicBool::new(false);
    extern "C" fn stop(signal: libc::c_int) {
        STOP.store(true, Ordering::Relaxed);
        // SAFETY: `signal` may be called in a handler, and SIG_DFL is a valid action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores into an atomic and calls `signal`.
        unsafe { libc::signal(signal, stop as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
    &STOP
}
