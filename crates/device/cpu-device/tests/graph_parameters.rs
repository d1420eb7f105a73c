//! Getters and setters of graphs and their nodes.

mod common;

use common::{Context, cu, download, event, fails, graph, ok, stream, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::{CString, c_void};

const NONE: *mut c_void = std::ptr::null_mut();

fn add_function() -> CUfunction {
    let image = CString::new(include_str!("data/kernels.ptx")).unwrap();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, c"add".as_ptr()));
    function
}

fn fill(destination: CUdeviceptr, value: u32) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: destination, value, elementSize: 4, width: 1, height: 1, pitch: 0 }
}

fn fill_node(graph: CUgraph, after: &[CUgraphNode], destination: CUdeviceptr, value: u32) -> CUgraphNode {
    let mut node = std::ptr::null_mut();
    let params = fill(destination, value);
    ok!(cuGraphAddMemsetNode(&mut node, graph, after.as_ptr(), after.len(), &params, NONE.cast()));
    node
}

fn run(exec: CUgraphExec) {
    let stream = stream(CU_STREAM_NON_BLOCKING);
    ok!(cuGraphUpload(exec, stream));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
}

fn words(address: CUdeviceptr, count: usize) -> Vec<u32> {
    download(address, 4 * count).chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn kernel_nodes_in_the_old_and_the_new_form() {
    let _context = Context::new();
    let add = add_function();
    let (mut values, mut amount, mut count) = (upload(&[0; 32]), 3u32, 8u32);
    let mut arguments: [*mut c_void; 3] =
        [(&raw mut values).cast(), (&raw mut amount).cast(), (&raw mut count).cast()];
    let mut params = CUDA_KERNEL_NODE_PARAMS_v1 {
        func: add,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 8,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: arguments.as_mut_ptr(),
        extra: std::ptr::null_mut(),
    };
    let graph = graph();
    let (mut node, mut other, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphAddKernelNode(&mut node, graph, std::ptr::null(), 0, &params));
    let mut told: CUDA_KERNEL_NODE_PARAMS_v1 = Plain::zeroed();
    ok!(cuGraphKernelNodeGetParams(node, &mut told));
    assert_eq!((told.func, told.blockDimX), (add, 8));
    params.blockDimX = 4;
    ok!(cuGraphKernelNodeSetParams(node, &params));
    ok!(cuGraphInstantiate_v2(&mut exec, graph, NONE.cast(), NONE.cast(), 0));
    run(exec);
    assert_eq!(words(values, 8), [3, 3, 3, 3, 0, 0, 0, 0]);
    params.blockDimX = 8;
    ok!(cuGraphExecKernelNodeSetParams(exec, node, &params));
    run(exec);
    assert_eq!(words(values, 8), [6, 6, 6, 6, 3, 3, 3, 3]);
    let mut newer: CUDA_KERNEL_NODE_PARAMS = Plain::zeroed();
    ok!(cuGraphKernelNodeGetParams_v2(node, &mut newer));
    newer.blockDimX = 2;
    ok!(cuGraphKernelNodeSetParams_v2(node, &newer));
    // Whether a node is cooperative is an attribute that can be copied.
    ok!(cuGraphAddKernelNode(&mut other, graph, &node, 1, &params));
    let mut value: CUkernelNodeAttrValue = Plain::zeroed();
    value.cooperative = 1;
    ok!(cuGraphKernelNodeSetAttribute(node, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &value));
    ok!(cuGraphKernelNodeCopyAttributes(other, node));
    value.cooperative = 0;
    ok!(cuGraphKernelNodeGetAttribute(other, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &mut value));
    // SAFETY: the attribute's value is this member.
    assert_eq!(unsafe { value.cooperative }, 1);
    let mut again = std::ptr::null_mut();
    ok!(cuGraphInstantiate(&mut again, graph, NONE.cast(), NONE.cast(), 0));
    run(again);
    assert_eq!(words(values, 8), [12, 12, 9, 9, 6, 6, 6, 6]);
}

#[test]
fn nodes_tell_their_parameters_and_take_others() {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let _context = Context::new();
    let (graph, memory, first, second) = (graph(), upload(&[0; 16]), event(), event());
    let filled = fill_node(graph, &[], memory, 1);
    ok!(cuGraphMemsetNodeSetParams(filled, &fill(memory, 2)));
    let mut record = std::ptr::null_mut();
    ok!(cuGraphAddEventRecordNode(&mut record, graph, &filled, 1, first));
    let mut found = std::ptr::null_mut();
    ok!(cuGraphEventRecordNodeGetEvent(record, &mut found));
    assert_eq!(found, first);
    ok!(cuGraphEventRecordNodeSetEvent(record, second));
    ok!(cuGraphEventRecordNodeGetEvent(record, &mut found));
    assert_eq!(found, second);
    let mut wait = std::ptr::null_mut();
    ok!(cuGraphAddEventWaitNode(&mut wait, graph, &record, 1, first));
    ok!(cuGraphEventWaitNodeSetEvent(wait, second));
    ok!(cuGraphEventWaitNodeGetEvent(wait, &mut found));
    assert_eq!(found, second);
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphEventWaitNodeGetEvent(record, &mut found));
    let (mut host, given) =
        (std::ptr::null_mut(), CUDA_HOST_NODE_PARAMS { r#fn: Some(nothing), userData: NONE });
    ok!(cuGraphAddHostNode(&mut host, graph, &wait, 1, &given));
    let mut told: CUDA_HOST_NODE_PARAMS = Plain::zeroed();
    ok!(cuGraphHostNodeGetParams(host, &mut told));
    assert!(told.r#fn.is_some());
    let (mut allocated, mut freed) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mut wanted = CUDA_MEM_ALLOC_NODE_PARAMS { bytesize: 128, ..Plain::zeroed() };
    ok!(cuGraphAddMemAllocNode(&mut allocated, graph, &host, 1, &mut wanted));
    ok!(cuGraphAddMemFreeNode(&mut freed, graph, &allocated, 1, wanted.dptr));
    let (mut address, mut memory_told): (u64, CUDA_MEM_ALLOC_NODE_PARAMS) = (0, Plain::zeroed());
    ok!(cuGraphMemFreeNodeGetParams(freed, &mut address));
    ok!(cuGraphMemAllocNodeGetParams(allocated, &mut memory_told));
    assert_eq!((address, memory_told.dptr, memory_told.bytesize), (wanted.dptr, wanted.dptr, 128));

    let mut exec = std::ptr::null_mut();
    ok!(cuGraphInstantiateWithFlags(
        &mut exec,
        graph,
        u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
    ));
    let (mut flags, mut id, mut graph_id) = (0, 0, 0);
    ok!(cuGraphExecGetFlags(exec, &mut flags));
    ok!(cuGraphExecGetId(exec, &mut id));
    ok!(cuGraphGetId(graph, &mut graph_id));
    assert!(flags == u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) && id != 0 && graph_id != 0);
    ok!(cuGraphExecMemsetNodeSetParams(exec, filled, &fill(memory + 4, 9), NONE.cast()));
    ok!(cuGraphExecEventRecordNodeSetEvent(exec, record, first));
    ok!(cuGraphExecEventWaitNodeSetEvent(exec, wait, first));
    run(exec);
    assert_eq!(words(memory, 4), [0, 9, 0, 0]);
    // The event that the launch recorded has a time; the other was never recorded.
    let mut milliseconds = 0.0;
    ok!(cuEventElapsedTime(&mut milliseconds, first, first));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&mut milliseconds, second, second));
    fails!(
        CUDA_ERROR_INVALID_VALUE,
        cuGraphExecMemsetNodeSetParams(exec, host, &fill(memory, 1), NONE.cast())
    );
}

#[test]
fn copies_and_children_change_for_later_launches() {
    let _context = Context::new();
    let (memory, child, parent) = (upload(&[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]), graph(), graph());
    fill_node(child, &[], memory + 8, 5);
    let copy = |from: u64| CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: memory + 4,
        WidthInBytes: 4,
        Height: 1,
        Depth: 1,
        ..Plain::zeroed()
    };
    let (mut copied, mut nested, mut exec) =
        (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphAddChildGraphNode(&mut nested, parent, std::ptr::null(), 0, child));
    ok!(cuGraphAddMemcpyNode(&mut copied, parent, &nested, 1, &copy(memory), NONE.cast()));
    ok!(cuGraphInstantiateWithFlags(&mut exec, parent, 0));
    run(exec);
    assert_eq!(words(memory, 3), [1, 1, 5]);
    let replacement = graph();
    fill_node(replacement, &[], memory + 8, 6);
    ok!(cuGraphExecChildGraphNodeSetParams(exec, nested, replacement));
    ok!(cuGraphExecMemcpyNodeSetParams(exec, copied, &copy(memory + 8), NONE.cast()));
    run(exec);
    assert_eq!(words(memory, 3), [1, 6, 6]);
    let mut inner = std::ptr::null_mut();
    ok!(cuGraphChildGraphNodeGetGraph(nested, &mut inner));
    assert!(!inner.is_null() && inner != child);
    // A graph of another shape can't take its place.
    let mut info: CUgraphExecUpdateResultInfo = Plain::zeroed();
    fails!(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, child, &mut info));
    assert_eq!(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    ok!(cuGraphExecUpdate_v2(exec, parent, &mut info));
    assert_eq!(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(exec);
    assert_eq!(words(memory, 3), [1, 1, 5]);
}

#[test]
fn edges_in_the_new_form() {
    let _context = Context::new();
    let (graph, memory) = (graph(), upload(&[0; 16]));
    let nodes: Vec<CUgraphNode> = (0..3).map(|index| fill_node(graph, &[], memory + 4 * index, 1)).collect();
    let (from, to) = ([nodes[0], nodes[0]], [nodes[1], nodes[2]]);
    ok!(cuGraphAddDependencies_v2(graph, from.as_ptr(), to.as_ptr(), std::ptr::null(), 2));
    let (mut sources, mut targets, mut count) = ([NONE.cast(); 4], [NONE.cast(); 4], 4);
    let mut edges: [CUgraphEdgeData; 4] = [Plain::zeroed(); 4];
    ok!(cuGraphGetEdges_v2(
        graph,
        sources.as_mut_ptr(),
        targets.as_mut_ptr(),
        edges.as_mut_ptr(),
        &mut count
    ));
    assert_eq!((count, &sources[..2], &targets[..2]), (2, &from[..], &to[..]));
    let mut found = [NONE.cast(); 4];
    let room = |count: &mut usize| *count = 4;
    room(&mut count);
    ok!(cuGraphGetRootNodes(graph, found.as_mut_ptr(), &mut count));
    assert_eq!((count, found[0]), (1, nodes[0]));
    room(&mut count);
    ok!(cuGraphNodeGetDependencies_v2(nodes[1], found.as_mut_ptr(), edges.as_mut_ptr(), &mut count));
    assert_eq!((count, found[0]), (1, nodes[0]));
    room(&mut count);
    ok!(cuGraphNodeGetDependentNodes(nodes[0], found.as_mut_ptr(), &mut count));
    assert_eq!((count, &found[..2]), (2, &to[..]));
    room(&mut count);
    ok!(cuGraphNodeGetDependentNodes_v2(nodes[0], found.as_mut_ptr(), edges.as_mut_ptr(), &mut count));
    assert_eq!((count, &found[..2]), (2, &to[..]));
    ok!(cuGraphRemoveDependencies_v2(graph, from.as_ptr(), to.as_ptr(), std::ptr::null(), 1));
    room(&mut count);
    ok!(cuGraphNodeGetDependentNodes(nodes[0], found.as_mut_ptr(), &mut count));
    assert_eq!((count, found[0]), (1, nodes[2]));
    let (mut home, mut one, mut other) = (std::ptr::null_mut(), 0, 0);
    ok!(cuGraphNodeGetContainingGraph(nodes[1], &mut home));
    assert_eq!(home, graph);
    ok!(cuGraphNodeGetToolsId(nodes[0], &mut one));
    ok!(cuGraphNodeGetToolsId(nodes[1], &mut other));
    assert_ne!(one, other);
}
