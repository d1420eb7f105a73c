//! The order of work: streams, events, host functions, contexts.
//!
//! That one thing waits for another is shown with gates: host functions that end only when the test
//! lets them.

mod common;

use apex_random::Random;
use common::{Context, cu, download, event, fails, ok, stream, upload};
use cuda_abi::types::*;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};

/// Something that a stream's work stops at until it is opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    /// Puts a closed gate into a stream.
    fn close(stream: CUstream) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        submit(stream, {
            let gate = gate.clone();
            move || {
                let mut open = gate.open.lock().unwrap();
                while !*open {
                    open = gate.changed.wait(open).unwrap();
                }
            }
        });
        gate
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

/// Has a stream call a closure.
fn submit(stream: CUstream, work: impl FnOnce() + Send + 'static) {
    type Work = Box<dyn FnOnce() + Send>;
    unsafe extern "C" fn run(work: *mut c_void) {
        // SAFETY: the pointer comes from `Box::into_raw` below, and a host function is called once.
        let work = unsafe { Box::from_raw(work.cast::<Work>()) };
        work();
    }
    let work: *mut Work = Box::into_raw(Box::new(Box::new(work)));
    ok!(cuLaunchHostFunc(stream, Some(run), work.cast()));
}

#[test]
fn a_stream_keeps_its_order() {
    let _context = Context::new();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let seen = Arc::new(Mutex::new(Vec::new()));
    for step in 0..500 {
        let seen = seen.clone();
        submit(stream, move || seen.lock().unwrap().push(step));
    }
    ok!(cuStreamSynchronize(stream));
    assert_eq!(*seen.lock().unwrap(), (0..500).collect::<Vec<_>>());
    ok!(cuStreamDestroy_v2(stream));
}

#[test]
fn the_legacy_default_stream_waits_for_blocking_streams_only() {
    let _context = Context::new();
    let (blocking, non_blocking) = (stream(CU_STREAM_DEFAULT), stream(CU_STREAM_NON_BLOCKING));
    let legacy = std::ptr::null_mut();

    let gate = Gate::close(non_blocking);
    ok!(cuStreamSynchronize(legacy));
    ok!(cuStreamQuery(blocking));
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(non_blocking));
    gate.open();
    ok!(cuStreamSynchronize(non_blocking));

    let gate = Gate::close(blocking);
    let address = upload_in(non_blocking, &[1, 2, 3]);
    ok!(cuMemsetD8_v2(address, 9, 3));
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(legacy));
    ok!(cuStreamQuery(non_blocking));
    gate.open();
    assert_eq!(download(address, 3), [9; 3]);

    let gate = Gate::close(legacy);
    submit(blocking, || {});
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking));
    ok!(cuStreamQuery(non_blocking));
    gate.open();
    ok!(cuStreamSynchronize(blocking));
}

/// Device memory that is filled without touching the default stream.
fn upload_in(stream: CUstream, bytes: &[u8]) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, bytes.len()));
    ok!(cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), stream));
    ok!(cuStreamSynchronize(stream));
    address
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let context = Context::new();
    let gate = Gate::close(CU_STREAM_PER_THREAD);
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery_ptsz(std::ptr::null_mut()));
    let handle = context.0 as usize;
    std::thread::spawn(move || {
        ok!(cuCtxSetCurrent(std::ptr::without_provenance_mut(handle)));
        ok!(cuStreamQuery_ptsz(std::ptr::null_mut()));
        // It is a blocking stream: the legacy default stream waits for the other thread's.
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_LEGACY));
    })
    .join()
    .unwrap();
    gate.open();
    ok!(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

#[test]
fn events_order_streams() {
    let _context = Context::new();
    let (first, second) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let done = event();
    ok!(cuEventQuery(done));
    ok!(cuStreamWaitEvent(second, done, 0));
    ok!(cuStreamQuery(second));

    let gate = Gate::close(first);
    ok!(cuEventRecord(done, first));
    fails!(CUDA_ERROR_NOT_READY, cuEventQuery(done));
    ok!(cuStreamWaitEvent(second, done, 0));
    // Recorded anew: who waits already waits for the earlier record.
    ok!(cuEventRecord(done, std::ptr::null_mut()));
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    gate.open();
    ok!(cuStreamSynchronize(second));
    ok!(cuStreamQuery(first));
    ok!(cuEventSynchronize(done));
    ok!(cuEventDestroy_v2(done));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(done, first));
}

#[test]
fn events_tell_the_time_between_them() {
    let _context = Context::new();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let (start, end, mut milliseconds) = (event(), event(), 0.0);
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&mut milliseconds, start, end));
    ok!(cuEventRecord(start, stream));
    submit(stream, || std::thread::sleep(std::time::Duration::from_millis(20)));
    let gate = Gate::close(stream);
    ok!(cuEventRecord(end, stream));
    fails!(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&mut milliseconds, start, end));
    gate.open();
    ok!(cuEventSynchronize(end));
    ok!(cuEventElapsedTime(&mut milliseconds, start, end));
    assert!(milliseconds >= 20.0, "{milliseconds}");
    let forward = milliseconds;
    ok!(cuEventElapsedTime(&mut milliseconds, end, start));
    assert_eq!(milliseconds, -forward);
    let mut untimed = std::ptr::null_mut();
    ok!(cuEventCreate(&mut untimed, CU_EVENT_DISABLE_TIMING));
    ok!(cuEventRecord(untimed, stream));
    ok!(cuEventSynchronize(untimed));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&mut milliseconds, start, untimed));
}

#[test]
fn stream_memory_operations_wait_and_write() {
    let _context = Context::new();
    let (waiting, writing) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let word = upload(&[0; 16]);
    ok!(cuStreamWaitValue32_v2(waiting, word, 5, CU_STREAM_WAIT_VALUE_GEQ));
    ok!(cuStreamWriteValue64_v2(waiting, word + 8, u64::MAX - 1, 0));
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
    ok!(cuStreamWriteValue32_v2(writing, word, 7, 0));
    ok!(cuStreamSynchronize(waiting));
    assert_eq!(download(word, 16), [7, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255, 255, 255, 255, 255]);
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(writing, word + 1, 7, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64_v2(writing, word + 16, 7, 0));
}

#[test]
fn freeing_waits_for_the_work_before() {
    let _context = Context::new();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let address = upload(&[1; 64]);
    let (mut pinned, finished) = (std::ptr::null_mut(), Arc::new(Mutex::new(false)));
    ok!(cuMemHostAlloc(&mut pinned, 64, 0));
    submit(stream, || std::thread::sleep(std::time::Duration::from_millis(30)));
    ok!(cuMemcpyDtoHAsync_v2(pinned, address, 64, stream));
    submit(stream, {
        let finished = finished.clone();
        move || *finished.lock().unwrap() = true
    });
    ok!(cuMemFree_v2(address));
    assert!(*finished.lock().unwrap());
    // SAFETY: 64 bytes were allocated.
    assert_eq!(unsafe { std::slice::from_raw_parts(pinned.cast::<u8>(), 64) }, [1; 64]);
    ok!(cuMemFreeHost(pinned));
}

#[test]
fn contexts_stack_and_end() {
    let outer = Context::new();
    let mut current = std::ptr::null_mut();
    let inner = Context::new();
    ok!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, inner.0);
    let stream = stream(0);
    let address = upload(&[1, 2, 3]);
    ok!(cuCtxDestroy_v2(inner.0));
    ok!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, outer.0);
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(inner.0));
    fails!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize(stream));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    ok!(cuCtxPopCurrent_v2(&mut current));
    assert_eq!(current, outer.0);
    let mut bytes = 0;
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&mut bytes, 1));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&mut current));
}

#[test]
fn handles_that_name_nothing_are_refused() {
    let _context = Context::new();
    let stream = stream(0);
    let done = event();
    let mut random = Random::new(8);
    // A stream in place of an event and the other way round, what has been destroyed, and noise.
    let ended = common::stream(0);
    ok!(cuStreamDestroy_v2(ended));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(ended));
    let noise: Vec<u64> =
        (0..200).map(|_| random.bits() >> random.below(64)).filter(|bits| *bits > 2).collect();
    for bits in noise.into_iter().chain([stream as u64, ended as u64]) {
        let handle = bits as usize;
        let mut out = 0u64;
        fails!(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(std::ptr::without_provenance_mut(handle)));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(std::ptr::without_provenance_mut(handle)));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(std::ptr::without_provenance_mut(handle)));
        fails!(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(std::ptr::without_provenance_mut(handle)));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(std::ptr::without_provenance_mut(handle)));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(std::ptr::without_provenance_mut(handle)));
        fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(std::ptr::without_provenance_mut(handle)));
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(std::ptr::without_provenance_mut(handle)));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(std::ptr::without_provenance_mut(handle)));
        fails!(
            CUDA_ERROR_INVALID_HANDLE,
            cuFuncGetAttribute((&raw mut out).cast(), 0, std::ptr::without_provenance_mut(handle))
        );
    }
    fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(done.cast()));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(ended));
    ok!(cuStreamQuery(stream));
}

#[test]
fn the_primary_context_is_counted() {
    // The only test of this file that uses the primary context, which is everybody's.
    ok!(cuInit(0));
    let (mut first, mut second, mut flags, mut active) = (std::ptr::null_mut(), std::ptr::null_mut(), 0, 0);
    ok!(cuDevicePrimaryCtxRetain(&mut first, 0));
    ok!(cuDevicePrimaryCtxRetain(&mut second, 0));
    assert_eq!(first, second);
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(first));
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!(active, 1);
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!(active, 0);
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    fails!(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&mut first, 1));
}
