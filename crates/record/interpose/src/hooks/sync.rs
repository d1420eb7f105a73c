//! Calls that make the caller wait. After them work is known to be done: the moment to read event
//! pairs.

use super::macros::hooks;
use crate::actions::queue::gpu_wait;
use crate::objects::streams::{is_per_thread, normalised};
use crate::record::timed;
use apex_trace::layout::CallClass::Synchronize;
use cuda_abi::types::*;

hooks! {
    fn stream(stream: CUstream) before { gpu_wait() } after(result) {
        timed::after_stream(result, normalised(stream, const { is_per_thread(INDEX) }));
    } |notes| {
        notes.object(Synchronize, stream as u64);
        notes.stream = Some(stream);
    }

    fn event(event: CUevent) before { gpu_wait() } after(result) { timed::after_event(result) } |notes| {
        notes.object(Synchronize, event as u64);
    }

    fn current_context() before { gpu_wait() } after(result) { timed::after_idling(result) } |notes| {
        notes.object(Synchronize, 0);
    }

    fn context(context: CUcontext) before { gpu_wait() } after(result) { timed::after_context(result) } |notes| {
        notes.object(Synchronize, context as u64);
    }
}
