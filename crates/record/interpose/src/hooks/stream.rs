//! Streams, their capture, and functions of the host queued on them.

use super::macros::hooks;
use crate::driver;
use crate::objects::Objects;
use crate::objects::streams::{is_per_thread, normalised, origin};
use crate::record::Recorder;
use apex_trace::layout::CallClass::{Graph, HostFunction, Stream};
use cuda_abi::types::*;
use std::ffi::c_void;

hooks! {
    fn create(stream: *mut CUstream, flags: u32)
    after(result) { made(result, stream, flags) } |notes| {
        notes.object(Stream, notes.out_handle(stream));
    }

    fn create_with_priority(stream: *mut CUstream, flags: u32, priority: i32)
    after(result) { made(result, stream, flags) } |notes| {
        notes.object(Stream, notes.out_handle(stream));
    }

    fn create_in_green_context(stream: *mut CUstream, context: CUgreenCtx, flags: u32, priority: i32)
    after(result) { made(result, stream, flags) } |notes| {
        notes.object(Stream, notes.out_handle(stream));
    }

    fn destroy(stream: CUstream) before { ends(stream) } |notes| {
        notes.object(Stream, stream as u64);
    }

    fn begin_capture(stream: CUstream)
    before { begins() } after(result) { begun(result, normalised(stream, is_per_thread(INDEX))) } |notes| {
        notes.object(Graph, 0);
        notes.stream = Some(stream);
    }

    fn begin_capture_in_mode(stream: CUstream, mode: CUstreamCaptureMode)
    before { begins() } after(result) { begun(result, normalised(stream, is_per_thread(INDEX))) } |notes| {
        notes.object(Graph, 0);
        notes.stream = Some(stream);
    }

    fn begin_capture_to_graph(
        stream: CUstream,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        dependency_data: *const CUgraphEdgeData,
        dependency_count: usize,
        mode: CUstreamCaptureMode,
    ) before { begins() } after(result) { begun(result, normalised(stream, is_per_thread(INDEX))) } |notes| {
        notes.object(Graph, graph as u64);
        notes.stream = Some(stream);
    }

    fn begin_recapture(
        stream: CUstream,
        mode: CUstreamCaptureMode,
        graph: CUgraph,
        callback: CUgraphRecaptureCallback,
        data: *mut c_void,
    ) before { begins() } after(result) { begun(result, normalised(stream, is_per_thread(INDEX))) } |notes| {
        notes.object(Graph, graph as u64);
        notes.stream = Some(stream);
    }

    fn begin_capture_to_cig(stream: CUstream, parameters: *mut CUstreamCigCaptureParams)
    before { begins() } after(result) { begun(result, normalised(stream, is_per_thread(INDEX))) } |notes| {
        notes.object(Graph, 0);
        notes.stream = Some(stream);
    }

    fn end_capture(stream: CUstream, graph: *mut CUgraph)
    after(result) { may_have_ended(result, normalised(stream, is_per_thread(INDEX))) } |notes| {
        notes.object(Graph, notes.out_handle(graph));
    }

    fn end_capture_to_cig(stream: CUstream)
    after(result) { may_have_ended(result, normalised(stream, is_per_thread(INDEX))) } |notes| {
        notes.object(Graph, 0);
    }

    fn host_function(stream: CUstream, function: CUhostFn, data: *mut c_void) |notes| {
        notes.object(HostFunction, function.map_or(0, |function| function as usize as u64));
        notes.asynchronous(stream);
    }

    fn host_function_in_mode(stream: CUstream, function: CUhostFn, data: *mut c_void, mode: u32) |notes| {
        notes.object(HostFunction, function.map_or(0, |function| function as usize as u64));
        notes.asynchronous(stream);
    }

    fn callback(stream: CUstream, function: CUstreamCallback, data: *mut c_void, flags: u32) |notes| {
        notes.object(HostFunction, function.map_or(0, |function| function as usize as u64));
        notes.asynchronous(stream);
    }
}

fn made(result: CUresult, stream: *const CUstream, flags: u32) {
    if result == CUDA_SUCCESS
        && let Some(objects) = Objects::existing()
        // SAFETY: the contract of every hook: null, or written by the call, which succeeded.
        && let Some(&stream) = unsafe { stream.as_ref() }
    {
        forget_identifier(stream);
        objects.note_stream(stream, flags);
    }
}

/// The stream is about to be destroyed, and with it a capture that was left open.
fn ends(stream: CUstream) {
    if let Some(objects) = Objects::existing() {
        forget_identifier(stream);
        objects.forget_stream(stream);
        objects.captures.ended(stream, origin(stream));
    }
}

fn forget_identifier(stream: CUstream) {
    if let Some(recorder) = Recorder::existing() {
        recorder.forget_stream(stream);
    }
}

/// A capture is about to begin somewhere: from here on nothing is timed in this process.
fn begins() {
    if let Some(objects) = Objects::existing() {
        objects.captures.beginning();
    }
    if let Some(recorder) = Recorder::existing() {
        recorder.timing.wait_for_sections();
    }
}

fn begun(result: CUresult, stream: CUstream) {
    match Objects::existing() {
        Some(objects) if result == CUDA_SUCCESS => objects.captures.begun(stream, origin(stream)),
        Some(objects) => objects.captures.not_begun(),
        None => {}
    }
}

/// An end that fails may or may not leave the stream capturing: the driver knows.
fn may_have_ended(result: CUresult, stream: CUstream) {
    if let Some(objects) = Objects::existing()
        && (result == CUDA_SUCCESS || !driver::is_capturing(stream))
    {
        objects.captures.ended(stream, origin(stream));
    }
}
