//! Calls in a thread without a current context: those whose handle has its context succeed, as on
//! an H200 (driver 580).

mod common;

use common::{Context, cu, event, fails, function, graph, image, instantiate, module, ok, stream, upload};
use cuda_abi::types::*;
use std::ffi::c_void;

const NONE: *mut c_void = std::ptr::null_mut();

/// Launches a kernel without parameters.
fn launch(kernel: *mut c_void, stream: CUstream) -> CUresult {
    cu!(cuLaunchKernel(kernel.cast(), 1, 1, 1, 1, 1, 1, 0, stream, NONE.cast(), NONE.cast()))
}

#[test]
fn a_handle_has_its_context() {
    let context = Context::new();
    let (module, stream, event, address) = (module(), stream(0), event(), upload(&[1; 64]));
    let count = function(module, c"count");
    let (graph, mut library) = (graph(), NONE.cast());
    let exec = instantiate(graph);
    let empty = c".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry k() { ret; }\n";
    ok!(cuLibraryLoadData(
        &mut library,
        empty.as_ptr().cast(),
        NONE.cast(),
        NONE.cast(),
        0,
        NONE.cast(),
        NONE.cast(),
        0
    ));
    let (mut kernel, mut host, mut later) = (NONE.cast(), NONE, 0);
    ok!(cuLibraryGetKernel(&mut kernel, library, c"k".as_ptr()));
    ok!(cuMemAllocHost_v2(&mut host, 64));
    ok!(cuMemAllocAsync(&mut later, 64, stream));
    let mut page = Box::new([0u8; 64]);
    ok!(cuMemHostRegister_v2(page.as_mut_ptr().cast(), 64, 0));
    let mut current = NONE.cast();
    ok!(cuCtxPopCurrent_v2(&mut current));

    let (mut value, mut bytes, mut found) = (0, 0, 0);
    ok!(cuModuleGetFunction(&mut NONE.cast(), module, c"count".as_ptr()));
    ok!(cuModuleGetGlobal_v2(&mut found, &mut bytes, module, c"counter".as_ptr()));
    ok!(cuModuleGetFunctionCount(&mut 0, module));
    ok!(cuFuncGetAttribute(&mut value, CU_FUNC_ATTRIBUTE_NUM_REGS, count));
    ok!(cuFuncSetCacheConfig(count, CU_FUNC_CACHE_PREFER_L1));
    assert_eq!(launch(kernel.cast(), stream), CUDA_SUCCESS);
    assert_eq!(launch(kernel.cast(), NONE.cast()), CUDA_ERROR_INVALID_CONTEXT);
    ok!(cuStreamSynchronize(stream));
    ok!(cuStreamQuery(stream));
    ok!(cuEventRecord(event, stream));
    ok!(cuEventSynchronize(event));
    ok!(cuEventQuery(event));
    ok!(cuMemsetD8Async(address, 0, 8, stream));
    ok!(cuMemcpyHtoDAsync_v2(address, image().as_ptr().cast(), 8, stream));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuMemFreeAsync(later, stream));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&mut 0, 0));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());

    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphDestroy(graph));
    ok!(cuModuleUnload(module));
    ok!(cuLibraryUnload(library));
    ok!(cuEventDestroy_v2(event));
    ok!(cuStreamDestroy_v2(stream));
    ok!(cuMemHostUnregister(page.as_mut_ptr().cast()));
    ok!(cuMemFreeHost(host));
    ok!(cuMemFreeHost(NONE));
    ok!(cuMemFree_v2(address));
    ok!(cuMemFree_v2(0));
    ok!(cuCtxPushCurrent_v2(context.0));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    fails!(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(page.as_mut_ptr().cast()));
}

#[test]
fn nothing_can_be_allocated_and_freed_in_stream_order() {
    let _context = Context::new();
    let (mut pool, stream) = (NONE.cast(), stream(1));
    ok!(cuDeviceGetDefaultMemPool(&mut pool, 0));
    let nothing = || {
        let mut address = 9;
        ok!(cuMemAllocAsync(&mut address, 0, stream));
        assert_eq!(address, 0);
        address = 9;
        ok!(cuMemAllocFromPoolAsync(&mut address, 0, pool, stream));
        assert_eq!(address, 0);
        ok!(cuMemFreeAsync(0, stream));
    };
    nothing();
    ok!(cuMemFreeAsync(0, NONE.cast()));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAllocAsync(NONE.cast(), 0, stream));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&mut 0, 0));
    // A capture gets no nodes of it.
    let (mut graph, mut nodes) = (NONE.cast(), 9);
    ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    nothing();
    ok!(cuStreamEndCapture(stream, &mut graph));
    ok!(cuGraphGetNodes(graph, NONE.cast(), &mut nodes));
    assert_eq!(nodes, 0);
    let mut current = NONE.cast();
    ok!(cuCtxPopCurrent_v2(&mut current));
    nothing();
    ok!(cuCtxPushCurrent_v2(current));
}
