//! Work in streams that nobody here interprets: stream memory operations, semaphores of other
//! programs, memory that is attached, discarded, decompressed or shared with graphics.
//!
//! They are recorded, so that whoever looks for launches that follow each other (`apex fuse`) sees
//! what came between. They tell the pool nothing: it closes at them as if they had no hook
//! ([`crate::actions::pool::rules`]). The launch queue is empty when they are made
//! ([`crate::actions::queue::order`]).

use super::macros::hooks;
use crate::record::call::Notes;
use apex_trace::layout::CallClass::Stream;
use cuda_abi::ENTRY_POINTS;
use cuda_abi::types::*;

/// Beginnings of the base names of entry points whose hooks are these.
const BASES: [&str; 16] = [
    "cuEGLStream",
    "cuFabricCpyBatchAsync",
    "cuGLMapBufferObjectAsync",
    "cuGLUnmapBufferObjectAsync",
    "cuGraphicsMapResources",
    "cuGraphicsUnmapResources",
    "cuMemBatchDecompressAsync",
    "cuMemDiscard",
    "cuMemMapArrayAsync",
    "cuMemPrefetchBatchAsync",
    "cuSignalExternalSemaphoresAsync",
    "cuStreamAttachMemAsync",
    "cuStreamBatchMemOp",
    "cuStreamWaitValue",
    "cuStreamWriteValue",
    "cuWaitExternalSemaphoresAsync",
];

/// Whether the hook of the entry point at `index` is one of these.
pub fn has(index: usize) -> bool {
    let base = ENTRY_POINTS[index].base;
    BASES.iter().any(|beginning| base.starts_with(beginning))
}

/// Something happens in a stream, to memory at an address if one is known. (Not as an asynchronous
/// call of this class, which would wait for an event.)
fn happens(notes: &mut Notes, stream: CUstream, address: CUdeviceptr) {
    notes.object(Stream, 0);
    notes.stream = Some(stream);
    notes.address = address;
}

hooks! {
    fn operation_32(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32) |notes| {
        happens(notes, stream, address);
    }

    fn operation_64(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) |notes| {
        happens(notes, stream, address);
    }

    fn operations(stream: CUstream, count: u32, list: *mut CUstreamBatchMemOpParams, flags: u32) |notes| {
        happens(notes, stream, 0);
    }

    fn attach(stream: CUstream, address: CUdeviceptr, bytes: usize, flags: u32) |notes| {
        happens(notes, stream, address);
        notes.bytes = bytes as u64;
    }

    fn signal(
        semaphores: *const CUexternalSemaphore,
        parameters: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
        count: u32,
        stream: CUstream,
    ) |notes| {
        happens(notes, stream, 0);
    }

    fn wait(
        semaphores: *const CUexternalSemaphore,
        parameters: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
        count: u32,
        stream: CUstream,
    ) |notes| {
        happens(notes, stream, 0);
    }

    fn decompress(
        list: *mut CUmemDecompressParams,
        count: usize,
        flags: u32,
        failed: *mut usize,
        stream: CUstream,
    ) |notes| {
        happens(notes, stream, 0);
    }

    fn discard(
        addresses: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        flags: u64,
        stream: CUstream,
    ) |notes| {
        happens(notes, stream, 0);
    }

    fn prefetch(
        addresses: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        locations: *mut CUmemLocation,
        indices: *mut usize,
        location_count: usize,
        flags: u64,
        stream: CUstream,
    ) |notes| {
        happens(notes, stream, 0);
    }

    fn map_arrays(list: *mut CUarrayMapInfo, count: u32, stream: CUstream) |notes| {
        happens(notes, stream, 0);
    }

    fn graphics(count: u32, resources: *mut CUgraphicsResource, stream: CUstream) |notes| {
        happens(notes, stream, 0);
    }

    fn copy_between_machines(
        count: usize,
        list: *mut CUDA_FABRIC_COPY_BATCH_OP,
        flags: u64,
        stream: CUstream,
    ) |notes| {
        happens(notes, stream, 0);
    }

    fn map_buffer(address: *mut CUdeviceptr, bytes: *mut usize, buffer: GLuint, stream: CUstream) |notes| {
        happens(notes, stream, notes.out(address));
    }

    fn unmap_buffer(buffer: GLuint, stream: CUstream) |notes| {
        happens(notes, stream, 0);
    }

    fn acquire_frame(
        connection: *mut CUeglStreamConnection,
        resource: *mut CUgraphicsResource,
        stream: *mut CUstream,
        timeout: u32,
    ) |notes| {
        notes.object(Stream, 0);
    }

    fn release_frame(
        connection: *mut CUeglStreamConnection,
        resource: CUgraphicsResource,
        stream: *mut CUstream,
    ) |notes| {
        notes.object(Stream, 0);
    }

    fn present_frame(
        connection: *mut CUeglStreamConnection,
        frame: CUeglFrame,
        stream: *mut CUstream,
    ) |notes| {
        notes.object(Stream, 0);
    }

    fn return_frame(
        connection: *mut CUeglStreamConnection,
        frame: *mut CUeglFrame,
        stream: *mut CUstream,
    ) |notes| {
        notes.object(Stream, 0);
    }
}
