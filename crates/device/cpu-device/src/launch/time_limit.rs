//! The limit on a kernel's execution time, for programs that run unattended.
//!
//! `APEX_CPU_TIMEOUT` gives it in seconds. A kernel that exceeds it ends its context with
//! `CUDA_ERROR_LAUNCH_TIMEOUT`, as a GPU that drives a display does.

use crate::context::Context;
use crate::error::{Error, Result, ensure};
use crate::headroom;
use apex_conventions::variables::CPU_TIMEOUT;
use cuda_abi::types::{CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_OUT_OF_MEMORY};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Returns the limit on a kernel's execution time, if there is one.
pub fn limit() -> Option<Duration> {
    static LIMIT: OnceLock<Option<Duration>> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let text = std::env::var(CPU_TIMEOUT.name).ok()?;
        let seconds = text.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if seconds.is_none() {
            eprintln!(
                "apex: cpu device: {}={text} is not a number of seconds: kernels may run for ever",
                CPU_TIMEOUT.name
            );
        }
        seconds.filter(|limit| !limit.is_zero())
    })
}

/// Does `work`, and stops the context's kernels when that takes longer than `limit`. Tells also
/// whether it did. Without a thread that watches, nothing is done.
pub fn watch<T>(limit: Duration, context: &Context, work: impl FnOnce() -> T) -> Result<(T, bool)> {
    let (done, changed) = (Mutex::new(false), Condvar::new());
    ensure(headroom::for_thread(), CUDA_ERROR_OUT_OF_MEMORY)?;
    std::thread::scope(|scope| {
        let watcher = std::thread::Builder::new().spawn_scoped(scope, || {
            let guard = done.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = changed.wait_timeout_while(guard, limit, |done| !*done);
            let late = !*waited.unwrap_or_else(PoisonError::into_inner).0;
            if late {
                context.stop(CUDA_ERROR_LAUNCH_TIMEOUT);
            }
            late
        });
        let watcher = watcher.map_err(|_| Error(CUDA_ERROR_OUT_OF_MEMORY))?;
        let outcome = work();
        *done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_one();
        Ok((outcome, watcher.join().unwrap_or(false)))
    })
}
