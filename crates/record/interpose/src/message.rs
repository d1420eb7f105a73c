//! Messages of the library on the program's standard error.

use apex_conventions::variables;
use apex_trace::control;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says why the program is not recorded, once in a process, and leaves word in the session, so that
/// `apex run` can name the cause.
pub fn say_once(line: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        leave_word(line);
        say_line(format!("apex: {line}\n").as_bytes());
    }
}

/// Leaves word in the session, for its reports, of what is not recorded and why.
pub fn leave_word(line: &str) {
    if let Some(session) = variables::SESSION.path() {
        // Where not even this works, the line on standard error has to do.
        let _ = control::complain_in(&session, line);
    }
}

/// Writes a line, its end included, to standard error. A signal handler may call it.
pub fn say_line(line: &[u8]) {
    // SAFETY: a valid buffer. (`eprintln!` would panic where standard error is closed.)
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
