//! The start and the end of the driver in a process.

use super::actions;
use super::macros::hooks;
use crate::actions::Ending;
use crate::record::thread::{self, Thread};
use crate::record::{Recorder, timed};
use crate::switch::guarded;
use apex_trace::layout::Ended;
use cuda_abi::types::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

hooks! {
    /// Our handler for the end of the process is registered *after* the driver has registered its
    /// own: handlers run in reverse order, so the driver still works when ours asks it for the last
    /// readings.
    fn init(flags: u32) after(result) { initialized(result) } |_notes| {}
}

unsafe extern "C" {
    /// glibc's `atexit` for a given library; with a null handle the handler stays when a library is
    /// unloaded.
    fn __cxa_atexit(handler: extern "C" fn(*mut c_void), argument: *mut c_void, library: *mut c_void) -> i32;
    /// glibc's `at_quick_exit`, likewise.
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> i32;
}

fn initialized(result: CUresult) {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if result == CUDA_SUCCESS && !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: both are what a handler must be, and this library is never unloaded.
        unsafe {
            __cxa_atexit(at_exit, null_mut(), null_mut());
            __cxa_at_quick_exit(at_quick_exit, null_mut());
        }
    }
}

extern "C" fn at_quick_exit(_: *mut c_void) {
    actions::end(Ending::Abrupt);
}

extern "C" fn at_exit(_: *mut c_void) {
    guarded(|| {
        actions::end(Ending::Exit);
        if let Some(recorder) = Recorder::made() {
            timed::read_all();
            thread::with_existing(Thread::give_back_chunk);
            recorder.file.mark_ended(Ended::Exited);
        }
    });
}
