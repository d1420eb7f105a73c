//! Executable graphs: their creation, changes and launches.

use super::params;
use crate::entry::{entries, opaque, read, refuse, write, write_if_wanted};
use crate::error::{Result, ensure};
use crate::graph::{Graph, GraphExec, Mismatch};
use crate::memory::graph_memory::{self, Use};
use crate::stream::Stream;
use crate::stream::event::Event;
use crate::stream::operation::Operation;
use crate::stream::task::{self, Task};
use cuda_abi::types::*;
use std::ffi::c_char;
use std::sync::Arc;

entries! {
    /// Instantiates a graph.
    fn cuGraphInstantiate(
        exec: *mut CUgraphExec,
        graph: CUgraph,
        _failed: *mut CUgraphNode,
        _log: *mut c_char,
        _bytes: usize,
    ) {
        instantiate(exec, graph, 0)
    }

    /// Instantiates a graph.
    fn cuGraphInstantiate_v2(
        exec: *mut CUgraphExec,
        graph: CUgraph,
        _failed: *mut CUgraphNode,
        _log: *mut c_char,
        _bytes: usize,
    ) {
        instantiate(exec, graph, 0)
    }

    /// Instantiates a graph.
    fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64)
        partly "launch from the device is refused"
    {
        instantiate(exec, graph, flags)
    }

    /// Instantiates a graph.
    fn cuGraphInstantiateWithParams(
        exec: *mut CUgraphExec,
        graph: CUgraph,
        given: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) also cuGraphInstantiateWithParams_ptsz [_default] partly "launch from the device is refused" {
        let mut out = read(given)?;
        let outcome = instantiate(exec, graph, out.flags);
        out.result_out =
            if outcome.is_ok() { CUDA_GRAPH_INSTANTIATE_SUCCESS } else { CUDA_GRAPH_INSTANTIATE_ERROR };
        out.hErrNode_out = std::ptr::null_mut();
        write(given, out)?;
        outcome
    }

    /// Ends what was instantiated.
    fn cuGraphExecDestroy(exec: CUgraphExec) {
        GraphExec::destroy(exec)
    }

    /// The flags that a graph was instantiated with.
    fn cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64) {
        write(flags, GraphExec::resolve(exec)?.flags)
    }

    /// A number that no other instantiated graph has.
    fn cuGraphExecGetId(exec: CUgraphExec, id: *mut u32) {
        write(id, GraphExec::resolve(exec)?.id as u32)
    }

    /// Launches a graph.
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) also cuGraphLaunch_ptsz [default] {
        launch(&GraphExec::resolve(exec)?, &*Stream::resolve(stream, default)?)
    }

    /// Prepares a launch: there is nothing to prepare.
    fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) also cuGraphUpload_ptsz [default] {
        GraphExec::resolve(exec)?;
        Stream::resolve(stream, default).map(drop)
    }

    /// Takes over the parameters of a graph of the same shape.
    fn cuGraphExecUpdate(
        exec: CUgraphExec,
        graph: CUgraph,
        failed: *mut CUgraphNode,
        result: *mut CUgraphExecUpdateResult,
    ) {
        let mismatch = update(exec, graph)?;
        write_if_wanted(failed, mismatch.as_ref().map_or(std::ptr::null_mut(), |found| opaque(found.node)));
        write_if_wanted(result, mismatch.as_ref().map_or(CU_GRAPH_EXEC_UPDATE_SUCCESS, |found| found.result));
        ensure(mismatch.is_none(), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    }

    /// Takes over the parameters of a graph of the same shape.
    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo) {
        let mismatch = update(exec, graph)?;
        write_if_wanted(info, CUgraphExecUpdateResultInfo {
            result: mismatch.as_ref().map_or(CU_GRAPH_EXEC_UPDATE_SUCCESS, |found| found.result),
            errorNode: mismatch.as_ref().map_or(std::ptr::null_mut(), |found| opaque(found.node)),
            errorFromNode: std::ptr::null_mut(),
        });
        ensure(mismatch.is_none(), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    }

    /// Sets a kernel node's parameters for later launches.
    fn cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        given: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        set_in_exec(exec, node, params::kernel(&params::kernel_v2(&read(given)?))?)
    }

    /// Sets a kernel node's parameters for later launches.
    fn cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec,
        node: CUgraphNode,
        given: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        set_in_exec(exec, node, params::kernel(&read(given)?)?)
    }

    /// Sets a copy node's parameters for later launches.
    fn cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        given: *const CUDA_MEMCPY3D,
        _context: CUcontext,
    ) {
        set_in_exec(exec, node, params::copy(&read(given)?)?)
    }

    /// Sets a fill node's parameters for later launches.
    fn cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        given: *const CUDA_MEMSET_NODE_PARAMS,
        _context: CUcontext,
    ) {
        set_in_exec(exec, node, params::fill(&read(given)?)?)
    }

    /// Sets a host node's parameters for later launches.
    fn cuGraphExecHostNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        given: *const CUDA_HOST_NODE_PARAMS,
    ) {
        set_in_exec(exec, node, params::host(&read(given)?)?)
    }

    /// Sets a child graph node's graph for later launches.
    fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) {
        set_in_exec(exec, node, params::child(child)?)
    }

    /// Sets the event that a node records in later launches.
    fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        set_in_exec(exec, node, Operation::Record(Event::resolve(event)?))
    }

    /// Sets the event that a node waits for in later launches.
    fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        set_in_exec(exec, node, Operation::Wait(Event::resolve(event)?))
    }

    /// Sets the parameters of a node of any type for later launches.
    fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, given: *mut CUgraphNodeParams)
        partly "external semaphores and batches are refused"
    {
        set_in_exec(exec, node, params::any(given)?)
    }

    /// Has later launches do a node's work or leave it out.
    fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32) {
        GraphExec::resolve(exec)?.set_enabled(node as u64, enabled != 0)
    }

    /// Returns 1 if launches execute a node, 0 if they skip it.
    fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut u32) {
        write(enabled, GraphExec::resolve(exec)?.is_enabled(node as u64)?.into())
    }
}

fn set_in_exec(exec: CUgraphExec, node: CUgraphNode, operation: Operation) -> Result {
    GraphExec::resolve(exec)?.set_operation(node as u64, operation)
}

/// # Safety
///
/// `exec` is null or valid for a write.
unsafe fn instantiate(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) -> Result {
    ensure(!exec.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
        | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
        | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if flags & u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0 {
        return refuse(
            "graphs that device code launches (cudaGraphInstantiateFlagDeviceLaunch); launch from the host",
        );
    }
    ensure(flags & !u64::from(known) == 0, CUDA_ERROR_INVALID_VALUE)?;
    let made = GraphExec::instantiate(&*Graph::resolve(graph)?, flags)?;
    // SAFETY: as promised by the caller.
    unsafe { write(exec, opaque(made.handle)) }
}

fn update(exec: CUgraphExec, graph: CUgraph) -> Result<Option<Mismatch>> {
    Ok(GraphExec::resolve(exec)?.update(&*Graph::resolve(graph)?)?.err())
}

/// Returns the allocations and frees of a launch's nodes, in its order.
fn memory_uses(operations: &[Operation]) -> Vec<Use> {
    let uses = operations.iter().flat_map(|operation| match operation {
        Operation::Sequence(inner) => memory_uses(inner),
        Operation::Allocate(memory) => vec![Use::Allocate(memory.address())],
        Operation::Free(address) => vec![Use::Free(*address)],
        _ => Vec::new(),
    });
    uses.collect()
}

/// Launches a graph behind the stream's work.
fn launch(exec: &Arc<GraphExec>, stream: &Stream) -> Result {
    if let Some(capture) = stream.capture() {
        return capture.add(stream, Operation::Graph(exec.clone()));
    }
    let context = stream.context()?;
    context.forbid_implicit_capture(stream)?;
    task::ensure_thread()?;
    let mut records = Vec::new();
    let operations = exec.operations(&mut records);
    let automatic = exec.flags & u64::from(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
    if let Err(error) = graph_memory::submit_launch(&memory_uses(&operations), automatic) {
        // Nothing will reach the records: who waits for one must not wait for ever.
        records.iter().for_each(|record| record.reach());
        return Err(error);
    }
    let task = stream.submit(&context, Operation::Sequence(operations), &[]);
    if !records.is_empty() {
        // A fault may keep the launch from its records. Who waits for one must not wait for ever.
        let reach_all = move || records.iter().for_each(|record| record.reach());
        Task::new(reach_all, std::slice::from_ref(&task)).start();
    }
    task.start();
    Ok(())
}
