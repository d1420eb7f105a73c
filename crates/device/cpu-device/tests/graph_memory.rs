//! Memory that graphs allocate: freed in streams, allocated again by later launches, and accounted
//! for.

mod common;

use common::{Context, cu, download, fails, hold, ok, stream};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

const BYTES: usize = 5000;

/// The attributes are the device's, so tests take turns.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attribute(attribute: CUgraphMem_attribute) -> u64 {
    let mut value = u64::MAX;
    ok!(cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut value).cast()));
    value
}

fn used() -> u64 {
    attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)
}

fn reserved() -> u64 {
    attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
}

/// A graph that allocates memory and fills it with `value`.
fn filling(value: u8, flags: u64) -> (CUgraphExec, CUdeviceptr) {
    let (mut graph, mut node, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphCreate(&mut graph, 0));
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS { bytesize: BYTES, ..Plain::zeroed() };
    ok!(cuGraphAddMemAllocNode(&mut node, graph, std::ptr::null(), 0, &mut params));
    let fill = CUDA_MEMSET_NODE_PARAMS {
        dst: params.dptr,
        value: value.into(),
        elementSize: 1,
        width: BYTES,
        height: 1,
        ..Plain::zeroed()
    };
    let mut filled = std::ptr::null_mut();
    ok!(cuGraphAddMemsetNode(&mut filled, graph, &node, 1, &fill, std::ptr::null_mut()));
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, flags));
    ok!(cuGraphDestroy(graph));
    (exec, params.dptr)
}

#[test]
fn a_free_and_the_next_launch_may_be_submitted_before_the_first_has_run() {
    let _turn = alone();
    let _context = Context::new();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let (exec, memory) = filling(7, 0);
    let release = hold(stream);
    // The call that copies to pageable memory would wait for the stream.
    let mut found = std::ptr::null_mut();
    ok!(cuMemAllocHost_v2(&mut found, 2 * BYTES));
    for copied in 0..2 {
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuMemcpyDtoHAsync_v2(found.wrapping_byte_add(copied * BYTES), memory, BYTES, stream));
        ok!(cuMemFreeAsync(memory, stream));
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, stream));
    }
    ok!(cuGraphLaunch(exec, stream));
    release.send(()).unwrap();
    ok!(cuStreamSynchronize(stream));
    assert!(download(found as u64, 2 * BYTES) == [7; 2 * BYTES]);
    ok!(cuMemFreeHost(found));
    assert!(download(memory, BYTES) == [7; BYTES], "the last launch's memory is allocated");
    ok!(cuMemFree_v2(memory));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(memory, stream));
    ok!(cuGraphExecDestroy(exec));
}

#[test]
fn memory_freed_in_another_stream_is_there_for_the_next_launch() {
    let _turn = alone();
    let _context = Context::new();
    let (launching, freeing) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (exec, memory) = filling(3, 0);
    ok!(cuGraphLaunch(exec, launching));
    ok!(cuStreamSynchronize(launching));
    let release = hold(freeing);
    ok!(cuMemFreeAsync(memory, freeing));
    ok!(cuGraphLaunch(exec, launching));
    ok!(cuStreamSynchronize(launching));
    release.send(()).unwrap();
    ok!(cuStreamSynchronize(freeing));
    assert!(download(memory, BYTES) == [3; BYTES], "the free was for the first launch");
    ok!(cuGraphExecDestroy(exec));
    ok!(cuMemFreeAsync(memory, freeing));
    ok!(cuStreamSynchronize(freeing));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(memory, 0, 1));
    assert_eq!((used(), reserved()), (0, 0));
}

#[test]
fn a_launch_fails_while_its_memory_is_not_freed_unless_launches_free_it() {
    let _turn = alone();
    let _context = Context::new();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let (exec, memory) = filling(1, 0);
    ok!(cuGraphLaunch(exec, stream));
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream));
    ok!(cuMemFreeAsync(memory, stream));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuMemFreeAsync(memory, stream));
    ok!(cuGraphExecDestroy(exec));

    let (exec, memory) = filling(2, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.into());
    for _ in 0..3 {
        ok!(cuGraphLaunch(exec, stream));
    }
    ok!(cuStreamSynchronize(stream));
    assert_eq!(used(), BYTES as u64);
    ok!(cuMemFreeAsync(memory, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(used(), 0);
    ok!(cuGraphExecDestroy(exec));
}

#[test]
fn another_graph_frees_what_a_graph_has_allocated() {
    let _turn = alone();
    let _context = Context::new();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let (allocating, memory) = filling(5, 0);
    let (mut graph, mut node, mut freeing) =
        (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphCreate(&mut graph, 0));
    ok!(cuGraphAddMemFreeNode(&mut node, graph, std::ptr::null(), 0, memory));
    ok!(cuGraphInstantiateWithFlags(&mut freeing, graph, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(freeing, stream));
    for _ in 0..3 {
        ok!(cuGraphLaunch(allocating, stream));
        ok!(cuGraphLaunch(freeing, stream));
    }
    ok!(cuStreamSynchronize(stream));
    assert_eq!(used(), 0);
    ok!(cuGraphExecDestroy(allocating));
    ok!(cuGraphExecDestroy(freeing));
    ok!(cuGraphDestroy(graph));
}

#[test]
fn the_attributes_follow_launches_frees_and_trims() {
    let _turn = alone();
    let context = Context::new();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let bytes = BYTES as u64;
    let reset =
        |attribute, mut value: u64| cu!(cuDeviceSetGraphMemAttribute(0, attribute, (&raw mut value).cast()));
    let (first, memory) = filling(1, 0);
    let (second, other) = filling(2, 0);
    assert_eq!((used(), reserved()), (0, 0), "nothing has been launched");
    ok!(cuGraphLaunch(first, stream));
    ok!(cuGraphLaunch(second, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!((used(), reserved()), (2 * bytes, 2 * bytes));
    ok!(cuMemFreeAsync(memory, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!((used(), reserved()), (bytes, 2 * bytes));
    ok!(cuDeviceGraphMemTrim(0));
    assert_eq!((used(), reserved()), (bytes, bytes));
    assert!(download(other, BYTES) == [2; BYTES], "trimming takes nothing that is allocated");
    assert!(attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) >= 2 * bytes);
    assert_eq!(reset(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, 0), CUDA_SUCCESS);
    assert_eq!(reset(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, 0), CUDA_SUCCESS);
    let highs = [CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH].map(attribute);
    assert_eq!(highs, [bytes, bytes]);
    assert_eq!(reset(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, 1), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(reset(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, 0), CUDA_ERROR_INVALID_VALUE);
    ok!(cuGraphExecDestroy(second));
    drop(context);
    assert_eq!((used(), reserved()), (0, 0), "the end of the context has freed it");
}
