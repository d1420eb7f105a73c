//! Captures and graphs.

use crate::work::{CAPTURING, run_graph};
use crate::world::{Graph, NodeKind, world};
use crate::{count, result};
use cuda_abi::index;
use cuda_abi::types::*;
use std::sync::atomic::Ordering;

pub unsafe extern "C" fn begin_capture(stream: CUstream, _: CUstreamCaptureMode) -> CUresult {
    let mut world = world();
    let graph = world.graphs.add(Graph::default());
    let Some(stream) = world.streams.get(stream as u64) else { return CUDA_ERROR_INVALID_HANDLE };
    stream.graph = Some(graph);
    CAPTURING.fetch_add(1, Ordering::Relaxed);
    CUDA_SUCCESS
}

pub unsafe extern "C" fn end_capture(stream: CUstream, graph: *mut CUgraph) -> CUresult {
    let mut world = world();
    let Some(found) = world.streams.get(stream as u64).and_then(|stream| stream.graph.take()) else {
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    };
    CAPTURING.fetch_sub(1, Ordering::Relaxed);
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *graph = found as CUgraph };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn is_capturing(stream: CUstream, status: *mut CUstreamCaptureStatus) -> CUresult {
    count(index::cuStreamIsCapturing);
    let found = world().streams.get(stream as u64).is_some_and(|stream| stream.graph.is_some());
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *status = u32::from(found) };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn instantiate(executable: *mut CUgraphExec, _: CUgraph, _: u64) -> CUresult {
    // SAFETY: the caller keeps to the driver's contract.
    unsafe { *executable = world().executables.add(()) as CUgraphExec };
    CUDA_SUCCESS
}

pub unsafe extern "C" fn update(_: CUgraphExec, _: CUgraph, _: *mut CUgraphExecUpdateResultInfo) -> CUresult {
    CUDA_SUCCESS
}

pub unsafe extern "C" fn nodes(graph: CUgraph, nodes: *mut CUgraphNode, found: *mut usize) -> CUresult {
    let mut world = world();
    let Some(graph) = world.graphs.get(graph as u64) else { return CUDA_ERROR_INVALID_HANDLE };
    // SAFETY: the caller keeps to the driver's contract.
    unsafe {
        if !nodes.is_null() {
            let count = graph.nodes.len().min(*found);
            std::ptr::copy_nonoverlapping(graph.nodes.as_ptr().cast(), nodes, count);
        }
        *found = graph.nodes.len();
    }
    CUDA_SUCCESS
}

pub unsafe extern "C" fn node_type(node: CUgraphNode, kind: *mut CUgraphNodeType) -> CUresult {
    let found = world().nodes.get(node as u64).map(|node| match node.kind {
        NodeKind::Kernel(_) => CU_GRAPH_NODE_TYPE_KERNEL,
        NodeKind::Copy => CU_GRAPH_NODE_TYPE_MEMCPY,
        NodeKind::Set => CU_GRAPH_NODE_TYPE_MEMSET,
        NodeKind::Child(_) => CU_GRAPH_NODE_TYPE_GRAPH,
    });
    // SAFETY: the caller keeps to the driver's contract.
    result(found.map(|found| unsafe { *kind = found }), CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn kernel_parameters(
    node: CUgraphNode,
    parameters: *mut CUDA_KERNEL_NODE_PARAMS,
) -> CUresult {
    let found = world().nodes.get(node as u64).cloned();
    match found.map(|node| node.kind) {
        Some(NodeKind::Kernel(found)) => {
            // SAFETY: the caller keeps to the driver's contract.
            unsafe { *parameters = found };
            CUDA_SUCCESS
        }
        _ => CUDA_ERROR_INVALID_VALUE,
    }
}

pub unsafe extern "C" fn child(node: CUgraphNode, graph: *mut CUgraph) -> CUresult {
    match world().nodes.get(node as u64).map(|node| &node.kind) {
        Some(&NodeKind::Child(found)) => {
            // SAFETY: the caller keeps to the driver's contract.
            unsafe { *graph = found as CUgraph };
            CUDA_SUCCESS
        }
        _ => CUDA_ERROR_INVALID_VALUE,
    }
}

pub unsafe extern "C" fn set_kernel_parameters(
    _: CUgraphExec,
    node: CUgraphNode,
    _: *const CUDA_KERNEL_NODE_PARAMS,
) -> CUresult {
    result(world().nodes.get(node as u64).map(|_| ()), CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn set_enabled(_: CUgraphExec, node: CUgraphNode, _: u32) -> CUresult {
    result(world().nodes.get(node as u64).map(|_| ()), CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn launch(executable: CUgraphExec, stream: CUstream) -> CUresult {
    count(index::cuGraphLaunch);
    run_graph(stream, &[]);
    result(world().executables.get(executable as u64).map(|_| ()), CUDA_ERROR_INVALID_HANDLE)
}

pub unsafe extern "C" fn destroy(executable: CUgraphExec) -> CUresult {
    result(world().executables.remove(executable as u64), CUDA_ERROR_INVALID_HANDLE)
}

/// Puts `child` into `graph` as a node, which tests need and no recorded call does.
#[unsafe(no_mangle)]
pub extern "C" fn fake_add_child(graph: CUgraph, child: CUgraph) -> CUgraphNode {
    let mut world = world();
    let node = world.nodes.add(crate::world::Node { kind: NodeKind::Child(child as u64) });
    if let Some(graph) = world.graphs.get(graph as u64) {
        graph.nodes.push(node);
    }
    node as CUgraphNode
}
