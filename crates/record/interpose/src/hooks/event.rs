//! Events. A query that says "not ready" is not recorded: programs ask in tight loops.

use super::macros::hooks;
use apex_trace::layout::CallClass::{Event, Stream};
use cuda_abi::types::*;

hooks! {
    fn create(event: *mut CUevent, flags: u32) |notes| {
        notes.object(Event, notes.out_handle(event));
    }

    fn record(event: CUevent, stream: CUstream) |notes| {
        notes.object(Event, event as u64);
        notes.asynchronous(stream);
    }

    fn record_with_flags(event: CUevent, stream: CUstream, flags: u32) |notes| {
        notes.object(Event, event as u64);
        notes.asynchronous(stream);
    }

    fn query(event: CUevent) |notes| {
        if notes.result != CUDA_ERROR_NOT_READY {
            notes.object(Event, event as u64);
        }
    }

    fn query_stream(stream: CUstream) |notes| {
        if notes.result != CUDA_ERROR_NOT_READY {
            notes.object(Stream, stream as u64);
            notes.stream = Some(stream);
        }
    }

    fn destroy(event: CUevent) |notes| {
        notes.object(Event, event as u64);
    }

    /// The stream waits for the event.
    fn wait(stream: CUstream, event: CUevent, flags: u32) |notes| {
        notes.object(Stream, event as u64);
        notes.asynchronous(stream);
    }
}
