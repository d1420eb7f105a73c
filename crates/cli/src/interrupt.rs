//! Work that ends by itself after an interrupt.

use std::sync::atomic::{AtomicBool, Ordering};

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
