//! Graphs: instantiated, updated, launched, destroyed. They are followed whether or not calls are
//! being recorded, so that recording can be switched on at any time.

use super::call::Call;
use super::macros::hooks;
use super::observe;
use crate::driver::{self, Kernel};
use crate::objects::Objects;
use crate::record::Recorder;
use crate::switch::guarded;
use apex_trace::layout::CallClass::Graph;
use apex_trace::layout::NO_CONFIG;
use cuda_abi::types::*;
use std::ffi::c_char;

hooks! {
    fn instantiate(made: *mut CUgraphExec, graph: CUgraph, flags: u64)
    after(result) { instantiated(result, made, graph) } |notes| {
        notes.object(Graph, notes.out_handle(made));
    }

    fn instantiate_with_log(
        made: *mut CUgraphExec,
        graph: CUgraph,
        error_node: *mut CUgraphNode,
        log: *mut c_char,
        log_bytes: usize,
    ) after(result) { instantiated(result, made, graph) } |notes| {
        notes.object(Graph, notes.out_handle(made));
    }

    fn instantiate_with_parameters(
        made: *mut CUgraphExec,
        graph: CUgraph,
        parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) after(result) { instantiated(result, made, graph) } |notes| {
        notes.object(Graph, notes.out_handle(made));
    }

    fn update(graph: CUgraphExec, source: CUgraph, info: *mut CUgraphExecUpdateResultInfo)
    after(result) { updated(result, graph, source) } |notes| {
        notes.object(Graph, graph as u64);
    }

    fn update_with_node(
        graph: CUgraphExec,
        source: CUgraph,
        error_node: *mut CUgraphNode,
        outcome: *mut CUgraphExecUpdateResult,
    ) after(result) { updated(result, graph, source) } |notes| {
        notes.object(Graph, graph as u64);
    }

    /// Setting parameters is followed but not recorded: programs do it for thousands of nodes
    /// between two launches.
    fn set_kernel(graph: CUgraphExec, node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS)
    after(result) {
        // SAFETY: the contract of every hook.
        let kernel = unsafe { parameters.as_ref() }.map(driver::kernel_of);
        kernel_set(result, graph, node, kernel);
    } |_notes| {}

    fn set_kernel_v1(graph: CUgraphExec, node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS_v1)
    after(result) {
        // SAFETY: the contract of every hook.
        let kernel = unsafe { parameters.as_ref() }.map(driver::kernel_of_v1);
        kernel_set(result, graph, node, kernel);
    } |_notes| {}

    fn set_node(graph: CUgraphExec, node: CUgraphNode, parameters: *mut CUgraphNodeParams)
    after(result) {
        // SAFETY: the contract of every hook.
        if let Some(parameters) = unsafe { parameters.as_ref() } {
            node_set(result, graph, node, parameters);
        }
    } |_notes| {}

    fn set_child(graph: CUgraphExec, node: CUgraphNode, child: CUgraph)
    after(result) { child_set(result, graph, node, child) } |notes| {
        notes.object(Graph, graph as u64);
    }

    fn set_enabled(graph: CUgraphExec, node: CUgraphNode, is_enabled: u32)
    after(result) {
        following(result, |objects| objects.graphs.set_enabled(graph, node, is_enabled != 0));
    } |_notes| {}

    fn upload(graph: CUgraphExec, stream: CUstream) |notes| {
        notes.object(Graph, graph as u64);
        notes.asynchronous(stream);
    }

    fn destroy(graph: CUgraphExec)
    before { following(CUDA_SUCCESS, |objects| objects.graphs.forget(graph)) } |notes| {
        notes.object(Graph, graph as u64);
    }
}

pub unsafe extern "C" fn launch<const INDEX: usize>(graph: CUgraphExec, stream: CUstream) -> CUresult {
    // SAFETY: the contract of every hook.
    let call = unsafe { Call::<cuda_abi::signature::cuGraphLaunch, INDEX>::new((graph, stream)) };
    observe::graph_launch(call, graph, stream)
}

/// Runs `work` after a call that succeeded.
fn following(result: CUresult, work: impl FnOnce(&'static Objects)) {
    if result == CUDA_SUCCESS
        && let Some(objects) = Objects::existing()
    {
        guarded(|| work(objects));
    }
}

/// The session's configuration of what a kernel node launches; none where nothing is recorded.
fn config(kernel: &Kernel, node: CUgraphNode) -> u32 {
    Recorder::existing().map_or(NO_CONFIG, |recorder| recorder.config_of_node(kernel, node))
}

fn instantiated(result: CUresult, made: *const CUgraphExec, graph: CUgraph) {
    following(result, |objects| {
        // SAFETY: the contract of every hook: null, or written by the call, which succeeded.
        if let Some(&made) = unsafe { made.as_ref() } {
            objects.graphs.read(made, graph, &config);
        }
    });
}

fn updated(result: CUresult, graph: CUgraphExec, source: CUgraph) {
    following(result, |objects| objects.graphs.read(graph, source, &config));
}

fn kernel_set(result: CUresult, graph: CUgraphExec, node: CUgraphNode, kernel: Option<Kernel>) {
    if let Some(kernel) = kernel {
        following(result, |objects| objects.graphs.set_kernel(graph, node, config(&kernel, node)));
    }
}

fn child_set(result: CUresult, graph: CUgraphExec, node: CUgraphNode, child: CUgraph) {
    following(result, |objects| objects.graphs.set_child(graph, node, child, &config));
}

fn node_set(result: CUresult, graph: CUgraphExec, node: CUgraphNode, parameters: &CUgraphNodeParams) {
    // SAFETY: the member of the union that the type names.
    unsafe {
        match parameters.r#type {
            CU_GRAPH_NODE_TYPE_KERNEL => {
                let kernel = driver::kernel_of_v3(&parameters.anonymous.kernel);
                kernel_set(result, graph, node, Some(kernel));
            }
            CU_GRAPH_NODE_TYPE_GRAPH => child_set(result, graph, node, parameters.anonymous.graph.graph),
            _ => {}
        }
    }
}
