//! Graphs: built by hand and by capture, launched, changed, refused. Kernel nodes are in
//! `kernels.rs`.

mod common;

use apex_random::Random;
use common::{Context, cu, download, event, fails, graph, instantiate, ok, stream, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::c_void;
use std::sync::Mutex;

fn run(exec: CUgraphExec) {
    let stream = stream(CU_STREAM_NON_BLOCKING);
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuStreamDestroy_v2(stream));
}

/// The order in which host nodes ran.
type Trace = Mutex<Vec<u64>>;

/// Creates a host node that appends `value` to `trace`. Its data is leaked, because a graph may
/// call it at any time.
fn mark(trace: &'static Trace, value: u64) -> CUDA_HOST_NODE_PARAMS {
    unsafe extern "C" fn run(data: *mut c_void) {
        // SAFETY: the data is leaked below.
        let (trace, value) = unsafe { &*data.cast::<(&'static Trace, u64)>() };
        trace.lock().unwrap().push(*value);
    }
    let data = Box::leak(Box::new((trace, value)));
    CUDA_HOST_NODE_PARAMS { r#fn: Some(run), userData: std::ptr::from_mut(data).cast() }
}

fn trace() -> &'static Trace {
    Box::leak(Box::default())
}

fn taken(trace: &Trace) -> Vec<u64> {
    std::mem::take(&mut *trace.lock().unwrap())
}

fn host_node(graph: CUgraph, after: &[CUgraphNode], params: &CUDA_HOST_NODE_PARAMS) -> CUgraphNode {
    let mut node = std::ptr::null_mut();
    ok!(cuGraphAddHostNode(&mut node, graph, after.as_ptr(), after.len(), params));
    node
}

fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    ok!(cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count));
    let mut nodes = vec![std::ptr::null_mut(); count];
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    nodes
}

fn kind(node: CUgraphNode) -> CUgraphNodeType {
    let mut kind = u32::MAX;
    ok!(cuGraphNodeGetType(node, &mut kind));
    kind
}

#[test]
fn random_graphs_run_in_an_order_that_respects_their_edges() {
    let _context = Context::new();
    let mut random = Random::new(1);
    for _ in 0..20 {
        let (graph, trace) = (graph(), trace());
        let count = 2 + random.below(30);
        let made: Vec<CUgraphNode> =
            (0..count).map(|value| host_node(graph, &[], &mark(trace, value))).collect();
        // Edges run along a random order of the nodes, so there is no circle.
        let mut order: Vec<usize> = (0..made.len()).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, random.below(place as u64 + 1) as usize);
        }
        let mut edges = std::collections::BTreeSet::new();
        for _ in 0..2 * count {
            let (a, b) = (random.below(count) as usize, random.below(count) as usize);
            if a < b && edges.insert((order[a], order[b])) {
                ok!(cuGraphAddDependencies(graph, &made[order[a]], &made[order[b]], 1));
            }
        }
        let exec = instantiate(graph);
        ok!(cuGraphDestroy(graph));
        for _ in 0..2 {
            run(exec);
            let ran = taken(trace);
            let place = |node: usize| ran.iter().position(|value| *value == node as u64).unwrap();
            assert_eq!(ran.len(), made.len());
            assert!(edges.iter().all(|(before, after)| place(*before) < place(*after)), "{ran:?} {edges:?}");
        }
        ok!(cuGraphExecDestroy(exec));
    }
}

#[test]
fn circles_and_strangers_are_refused() {
    let _context = Context::new();
    let (graph, other, trace) = (graph(), graph(), trace());
    let first = host_node(graph, &[], &mark(trace, 1));
    let second = host_node(graph, &[first], &mark(trace, 2));
    let stranger = host_node(other, &[], &mark(trace, 3));
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &first, &second, 1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &first, &first, 1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &stranger, &second, 1));
    ok!(cuGraphAddDependencies(graph, &second, &first, 1));
    let mut exec = std::ptr::null_mut();
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cuGraphRemoveDependencies(graph, &second, &first, 1));
    ok!(cuGraphExecDestroy(instantiate(graph)));
    ok!(cuGraphDestroyNode(first));
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(first));
    let mut count = 9;
    ok!(cuGraphNodeGetDependencies(second, std::ptr::null_mut(), &mut count));
    assert_eq!(count, 0, "the edge went with the node");
    ok!(cuGraphDestroy(graph));
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode(second));
}

#[test]
fn a_capture_becomes_a_graph_and_does_nothing_itself() {
    let _context = Context::new();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let source = Random::new(2).bytes(256);
    let (first, second) = (upload(&source), upload(&[0; 256]));
    let mut captured = std::ptr::null_mut();
    ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ok!(cuMemcpyDtoDAsync_v2(second, first, 256, stream));
    ok!(cuMemsetD8Async(first, 0xab, 128, stream));
    let trace = trace();
    let call = mark(trace, 1);
    ok!(cuLaunchHostFunc(stream, call.r#fn, call.userData));
    let mut status = 0;
    ok!(cuStreamIsCapturing(stream, &mut status));
    assert_eq!(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ok!(cuStreamEndCapture(stream, &mut captured));
    assert_eq!(taken(trace), [0u64; 0]);
    assert_eq!(download(second, 256), [0; 256]);

    let made = nodes(captured);
    let kinds: Vec<_> = made.iter().map(|node| kind(*node)).collect();
    assert_eq!(kinds, [CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_HOST]);
    let mut params = CUDA_MEMSET_NODE_PARAMS::zeroed();
    ok!(cuGraphMemsetNodeGetParams(made[1], &mut params));
    assert_eq!(
        (params.dst, params.value, params.elementSize, params.width, params.height),
        (first, 0xab, 1, 128, 1)
    );

    let exec = instantiate(captured);
    run(exec);
    run(exec);
    assert_eq!(taken(trace), [1, 1]);
    let mut expected = source.clone();
    expected[..128].fill(0xab);
    assert_eq!(download(first, 256), expected);
    assert_eq!(download(second, 256), expected);
}

#[test]
fn a_capture_spreads_over_events_and_has_to_be_joined() {
    let _context = Context::new();
    let (origin, branch, outside) = (stream(1), stream(1), stream(1));
    let (fork, join, trace) = (event(), event(), trace());
    let submit = |stream: CUstream, value: u64| {
        let call = mark(trace, value);
        ok!(cuLaunchHostFunc(stream, call.r#fn, call.userData));
    };
    let mut captured = std::ptr::null_mut();
    ok!(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    submit(origin, 1);
    ok!(cuEventRecord(fork, origin));
    ok!(cuStreamWaitEvent(branch, fork, 0));
    submit(branch, 2);
    submit(origin, 3);
    ok!(cuEventRecord(join, branch));
    ok!(cuStreamWaitEvent(origin, join, 0));
    submit(origin, 4);
    submit(outside, 100);
    ok!(cuStreamSynchronize(outside));
    assert_eq!(taken(trace), [100]);
    fails!(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(branch, &mut captured));
    ok!(cuStreamEndCapture(origin, &mut captured));
    let mut edges = 0;
    ok!(cuGraphGetEdges(captured, std::ptr::null_mut(), std::ptr::null_mut(), &mut edges));
    assert_eq!((nodes(captured).len(), edges), (4, 4));
    run(instantiate(captured));
    let ran = taken(trace);
    assert_eq!((ran[0], ran[3]), (1, 4), "{ran:?}");

    ok!(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok!(cuEventRecord(fork, origin));
    ok!(cuStreamWaitEvent(branch, fork, 0));
    submit(branch, 5);
    fails!(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(origin, &mut captured));
    assert!(captured.is_null());
    // Both streams are free again.
    submit(branch, 6);
    ok!(cuStreamSynchronize(branch));
    assert_eq!(taken(trace), [6]);
}

#[test]
fn what_can_t_be_captured_spoils_the_capture() {
    let _context = Context::new();
    let (stream, legacy) = (stream(CU_STREAM_DEFAULT), std::ptr::null_mut());
    let mut captured = std::ptr::null_mut();
    let done = event();
    fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(legacy, 0));
    fails!(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, &mut captured));
    let address = upload(&[0; 4]);

    ok!(cuStreamBeginCapture_v2(stream, 0));
    fails!(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(stream, 0));
    fails!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(address, 1, 4, stream));
    fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &mut captured));

    ok!(cuStreamBeginCapture_v2(stream, 0));
    fails!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD8Async(address, 1, 4, legacy));
    fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &mut captured));

    ok!(cuStreamBeginCapture_v2(stream, 0));
    ok!(cuEventRecord(done, stream));
    fails!(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(done));
    fails!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &mut captured));
    ok!(cuMemsetD8Async(address, 1, 4, stream));
    assert_eq!(download(address, 4), [1; 4]);
}

#[test]
fn captures_can_be_looked_into_and_steered() {
    let _context = Context::new();
    let stream = stream(1);
    let trace = trace();
    let call = mark(trace, 1);
    ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    ok!(cuLaunchHostFunc(stream, call.r#fn, call.userData));
    let (mut status, mut id, mut graph) = (0, 0, std::ptr::null_mut());
    let (mut dependencies, mut count) = (std::ptr::null(), 0);
    ok!(cuStreamGetCaptureInfo_v2(stream, &mut status, &mut id, &mut graph, &mut dependencies, &mut count));
    assert_eq!((status, count), (CU_STREAM_CAPTURE_STATUS_ACTIVE, 1));
    // SAFETY: the call has just told where the one node is.
    let first = unsafe { *dependencies };
    assert_eq!(nodes(graph), [first]);
    let mut beside = host_node(graph, &[], &mark(trace, 2));
    let set = CU_STREAM_SET_CAPTURE_DEPENDENCIES;
    ok!(cuStreamUpdateCaptureDependencies(stream, &mut beside, 1, set));
    ok!(cuLaunchHostFunc(stream, call.r#fn, call.userData));
    let mut captured = std::ptr::null_mut();
    ok!(cuStreamEndCapture(stream, &mut captured));
    let last = nodes(captured)[2];
    let mut before = [std::ptr::null_mut(); 4];
    let mut count = 4;
    ok!(cuGraphNodeGetDependencies(last, before.as_mut_ptr(), &mut count));
    assert_eq!(
        (before, count),
        ([beside, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut()], 1)
    );
}

#[test]
fn nodes_change_for_later_launches_only() {
    let _context = Context::new();
    let (graph, trace) = (graph(), trace());
    let node = host_node(graph, &[], &mark(trace, 1));
    let exec = instantiate(graph);
    ok!(cuGraphHostNodeSetParams(node, &mark(trace, 2)));
    run(exec);
    assert_eq!(taken(trace), [1], "what is instantiated does not change with its graph");
    ok!(cuGraphExecHostNodeSetParams(exec, node, &mark(trace, 3)));
    run(exec);
    assert_eq!(taken(trace), [3]);

    let mut result = 9;
    let mut failed = std::ptr::null_mut();
    ok!(cuGraphExecUpdate(exec, graph, &mut failed, &mut result));
    assert_eq!(result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(exec);
    assert_eq!(taken(trace), [2]);

    let extra = host_node(graph, &[node], &mark(trace, 4));
    fails!(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, graph, &mut failed, &mut result));
    assert_eq!(result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    ok!(cuGraphDestroyNode(extra));
    ok!(cuGraphDestroyNode(node));
    let mut empty = std::ptr::null_mut();
    ok!(cuGraphAddEmptyNode(&mut empty, graph, std::ptr::null(), 0));
    fails!(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, graph, &mut failed, &mut result));
    assert_eq!((result, failed), (CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, empty));
}

#[test]
fn nodes_can_be_left_out() {
    let _context = Context::new();
    let address = upload(&[0; 8]);
    let graph = graph();
    let mut node = std::ptr::null_mut();
    let params =
        CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value: 5, elementSize: 1, width: 8, height: 1 };
    ok!(cuGraphAddMemsetNode(&mut node, graph, std::ptr::null(), 0, &params, std::ptr::null_mut()));
    let exec = instantiate(graph);
    let mut enabled = 9;
    ok!(cuGraphNodeSetEnabled(exec, node, 0));
    ok!(cuGraphNodeGetEnabled(exec, node, &mut enabled));
    run(exec);
    assert_eq!((download(address, 8), enabled), (vec![0; 8], 0));
    ok!(cuGraphNodeSetEnabled(exec, node, 1));
    run(exec);
    assert_eq!(download(address, 8), [5; 8]);
}

#[test]
fn graphs_nest_and_are_copied() {
    let _context = Context::new();
    let (inner, outer, trace) = (graph(), graph(), trace());
    host_node(inner, &[], &mark(trace, 1));
    let before = host_node(outer, &[], &mark(trace, 0));
    let mut child = std::ptr::null_mut();
    ok!(cuGraphAddChildGraphNode(&mut child, outer, &before, 1, inner));
    host_node(outer, &[child], &mark(trace, 2));
    // The child is a copy: what happens to the original later does not matter.
    ok!(cuGraphDestroy(inner));
    let mut clone = std::ptr::null_mut();
    ok!(cuGraphClone(&mut clone, outer));
    let mut copied = std::ptr::null_mut();
    ok!(cuGraphNodeFindInClone(&mut copied, child, clone));
    assert_eq!(kind(copied), CU_GRAPH_NODE_TYPE_GRAPH);
    assert_ne!(copied, child);
    ok!(cuGraphDestroy(outer));
    run(instantiate(clone));
    assert_eq!(taken(trace), [0, 1, 2]);
    let mut inside = std::ptr::null_mut();
    ok!(cuGraphChildGraphNodeGetGraph(copied, &mut inside));
    assert_eq!(nodes(inside).len(), 1);
}

#[test]
fn graphs_wait_for_events_and_record_them() {
    let _context = Context::new();
    let (graph, trace, awaited, recorded) = (graph(), trace(), event(), event());
    let mut wait = std::ptr::null_mut();
    ok!(cuGraphAddEventWaitNode(&mut wait, graph, std::ptr::null(), 0, awaited));
    let work = host_node(graph, &[wait], &mark(trace, 1));
    let mut record = std::ptr::null_mut();
    ok!(cuGraphAddEventRecordNode(&mut record, graph, &work, 1, recorded));
    let exec = instantiate(graph);

    let (busy, stream) = (stream(1), stream(1));
    let word = upload(&[0; 4]);
    ok!(cuStreamWaitValue32_v2(busy, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    ok!(cuEventRecord(awaited, busy));
    ok!(cuGraphLaunch(exec, stream));
    fails!(CUDA_ERROR_NOT_READY, cuEventQuery(recorded));
    assert_eq!(taken(trace), [0u64; 0]);
    ok!(cuMemsetD32_v2(word, 1, 1));
    ok!(cuEventSynchronize(recorded));
    assert_eq!(taken(trace), [1]);
    let mut milliseconds = -1.0;
    ok!(cuEventElapsedTime(&mut milliseconds, awaited, recorded));
    assert!(milliseconds >= 0.0, "{milliseconds}");
}

#[test]
fn copy_nodes_tell_what_they_were_given() {
    let _context = Context::new();
    let source = Random::new(3).bytes(60);
    let destination = upload(&[0; 200]);
    let graph = graph();
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: source.as_ptr().cast(),
        srcPitch: 12,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: destination,
        dstPitch: 40,
        WidthInBytes: 10,
        Height: 5,
        Depth: 1,
        ..Plain::zeroed()
    };
    let mut node = std::ptr::null_mut();
    ok!(cuGraphAddMemcpyNode(&mut node, graph, std::ptr::null(), 0, &copy, std::ptr::null_mut()));
    let mut told = CUDA_MEMCPY3D::zeroed();
    ok!(cuGraphMemcpyNodeGetParams(node, &mut told));
    assert_eq!((told.srcHost, told.srcPitch), (copy.srcHost, 12));
    assert_eq!((told.dstDevice, told.dstPitch), (destination, 40));
    // What is told can be given back.
    ok!(cuGraphMemcpyNodeSetParams(node, &told));
    run(instantiate(graph));
    let found = download(destination, 200);
    for row in 0..5 {
        assert_eq!(found[row * 40..][..10], source[row * 12..][..10], "row {row}");
        assert_eq!(found[row * 40 + 10..][..30], [0; 30], "row {row}");
    }
}

#[test]
fn graphs_allocate_memory_and_free_it() {
    let _context = Context::new();
    let stream = stream(1);
    let mut captured = std::ptr::null_mut();
    let source = Random::new(4).bytes(5000);
    let (first, second) = (upload(&source), upload(&[0; 5000]));
    let mut scratch = 0;
    ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ok!(cuMemAllocAsync(&mut scratch, 5000, stream));
    ok!(cuMemcpyDtoDAsync_v2(scratch, first, 5000, stream));
    ok!(cuMemcpyDtoDAsync_v2(second, scratch, 5000, stream));
    ok!(cuMemFreeAsync(scratch, stream));
    ok!(cuStreamEndCapture(stream, &mut captured));
    let kinds: Vec<_> = nodes(captured).iter().map(|node| kind(*node)).collect();
    let copy = CU_GRAPH_NODE_TYPE_MEMCPY;
    assert_eq!(kinds, [CU_GRAPH_NODE_TYPE_MEM_ALLOC, copy, copy, CU_GRAPH_NODE_TYPE_MEM_FREE]);
    let exec = instantiate(captured);
    ok!(cuGraphDestroy(captured));
    for _ in 0..3 {
        ok!(cuMemsetD8_v2(second, 0, 5000));
        ok!(cuCtxSynchronize());
        run(exec);
        assert!(download(second, 5000) == source, "the copy went through memory of the graph's");
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(scratch, 0, 1));
    }
    ok!(cuGraphExecDestroy(exec));

    // Memory that a graph leaves behind is the program's to free, even when the graph is no more.
    let (graph, mut node) = (graph(), std::ptr::null_mut());
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS { bytesize: 100, ..Plain::zeroed() };
    ok!(cuGraphAddMemAllocNode(&mut node, graph, std::ptr::null(), 0, &mut params));
    let exec = instantiate(graph);
    run(exec);
    ok!(cuGraphDestroy(graph));
    ok!(cuGraphExecDestroy(exec));
    ok!(cuMemsetD8_v2(params.dptr, 7, 100));
    assert_eq!(download(params.dptr, 100), [7; 100]);
    ok!(cuMemFree_v2(params.dptr));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(params.dptr, 7, 1));
}
