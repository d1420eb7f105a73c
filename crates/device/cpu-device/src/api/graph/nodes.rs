//! Nodes of graphs: each type with its parameters, and nodes of any type.

use super::params;
use crate::context;
use crate::entry::{array, entries, opaque, read, write};
use crate::error::{Result, ensure, fail};
use crate::graph::Graph;
use crate::memory::graph_memory::GraphMemory;
use crate::memory::pool;
use crate::stream::event::Event;
use crate::stream::operation::Operation;
use cuda_abi::types::*;

entries! {
    /// Adds a kernel node.
    fn cuGraphAddKernelNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        given: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        add(node, graph, after, count, params::kernel(&params::kernel_v2(&read(given)?))?)
    }

    /// Adds a kernel node.
    fn cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        given: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        add(node, graph, after, count, params::kernel(&read(given)?)?)
    }

    /// A kernel node's parameters.
    fn cuGraphKernelNodeGetParams(node: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS_v1) {
        match operation(node)? {
            Operation::Kernel(launch) => write(out, params::of_kernel_v1(&launch)),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// A kernel node's parameters.
    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, out: *mut CUDA_KERNEL_NODE_PARAMS) {
        match operation(node)? {
            Operation::Kernel(launch) => write(out, params::of_kernel(&launch)),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Sets a kernel node's parameters.
    fn cuGraphKernelNodeSetParams(node: CUgraphNode, given: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        set(node, params::kernel(&params::kernel_v2(&read(given)?))?)
    }

    /// Sets a kernel node's parameters.
    fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, given: *const CUDA_KERNEL_NODE_PARAMS) {
        set(node, params::kernel(&read(given)?)?)
    }

    /// Sets an attribute of a kernel node.
    fn cuGraphKernelNodeSetAttribute(
        node: CUgraphNode,
        attribute: CUkernelNodeAttrID,
        value: *const CUkernelNodeAttrValue,
    ) partly "only the attribute for cooperative launches has an effect" {
        set(node, params::with_attribute(operation(node)?, attribute, &read(value)?)?)
    }

    /// An attribute of a kernel node.
    fn cuGraphKernelNodeGetAttribute(
        node: CUgraphNode,
        attribute: CUkernelNodeAttrID,
        value: *mut CUkernelNodeAttrValue,
    ) partly "only the attribute for cooperative launches is stored" {
        ensure(attribute < CU_LAUNCH_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE)?;
        let Operation::Kernel(launch) = operation(node)? else { return fail(CUDA_ERROR_INVALID_VALUE) };
        let mut out: CUkernelNodeAttrValue = cuda_abi::Plain::zeroed();
        if attribute == CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE {
            out.cooperative = launch.configuration.cooperative.into();
        }
        write(value, out)
    }

    /// Copies the attributes of one kernel node to another.
    fn cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) {
        let Operation::Kernel(launch) = operation(from)? else { return fail(CUDA_ERROR_INVALID_VALUE) };
        let mut value: CUkernelNodeAttrValue = cuda_abi::Plain::zeroed();
        value.cooperative = launch.configuration.cooperative.into();
        set(to, params::with_attribute(operation(to)?, CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE, &value)?)
    }

    /// Adds a copy node.
    fn cuGraphAddMemcpyNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        given: *const CUDA_MEMCPY3D,
        _context: CUcontext,
    ) {
        add(node, graph, after, count, params::copy(&read(given)?)?)
    }

    /// A copy node's parameters.
    fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, out: *mut CUDA_MEMCPY3D) {
        match operation(node)? {
            Operation::Copy(copy) => write(out, params::of_copy(&copy)),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Sets a copy node's parameters.
    fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, given: *const CUDA_MEMCPY3D) {
        set(node, params::copy(&read(given)?)?)
    }

    /// Adds a fill node.
    fn cuGraphAddMemsetNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        given: *const CUDA_MEMSET_NODE_PARAMS,
        _context: CUcontext,
    ) {
        add(node, graph, after, count, params::fill(&read(given)?)?)
    }

    /// A fill node's parameters.
    fn cuGraphMemsetNodeGetParams(node: CUgraphNode, out: *mut CUDA_MEMSET_NODE_PARAMS) {
        match operation(node)? {
            Operation::Fill(fill) => write(out, params::of_fill(&fill)),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Sets a fill node's parameters.
    fn cuGraphMemsetNodeSetParams(node: CUgraphNode, given: *const CUDA_MEMSET_NODE_PARAMS) {
        set(node, params::fill(&read(given)?)?)
    }

    /// Adds a host node.
    fn cuGraphAddHostNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        given: *const CUDA_HOST_NODE_PARAMS,
    ) {
        add(node, graph, after, count, params::host(&read(given)?)?)
    }

    /// A host node's parameters.
    fn cuGraphHostNodeGetParams(node: CUgraphNode, out: *mut CUDA_HOST_NODE_PARAMS) {
        match operation(node)? {
            Operation::Host(call) => write(out, params::of_host(&call)),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Sets a host node's parameters.
    fn cuGraphHostNodeSetParams(node: CUgraphNode, given: *const CUDA_HOST_NODE_PARAMS) {
        set(node, params::host(&read(given)?)?)
    }

    /// Adds a node that does what a graph does.
    fn cuGraphAddChildGraphNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        child: CUgraph,
    ) {
        add(node, graph, after, count, params::child(child)?)
    }

    /// The graph inside of a child graph node.
    fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, child: *mut CUgraph) {
        match operation(node)? {
            Operation::Child(graph) => write(child, opaque(graph.handle)),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Adds a node that does nothing.
    fn cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize) {
        add(node, graph, after, count, Operation::Empty)
    }

    /// Adds a node that records an event.
    fn cuGraphAddEventRecordNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) {
        add(node, graph, after, count, Operation::Record(Event::resolve(event)?))
    }

    /// Adds a node that waits for an event.
    fn cuGraphAddEventWaitNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) {
        add(node, graph, after, count, Operation::Wait(Event::resolve(event)?))
    }

    /// The event that a node records.
    fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent) {
        match operation(node)? {
            Operation::Record(found) => write(event, opaque(found.handle)),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Sets the event that a node records.
    fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) {
        set(node, Operation::Record(Event::resolve(event)?))
    }

    /// The event that a node waits for.
    fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent) {
        match operation(node)? {
            Operation::Wait(found) => write(event, opaque(found.handle)),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Sets the event that a node waits for.
    fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) {
        set(node, Operation::Wait(Event::resolve(event)?))
    }

    /// Adds a node that allocates memory; tells its address.
    fn cuGraphAddMemAllocNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        given: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) {
        let mut out = read(given)?;
        let memory = GraphMemory::new(out.bytesize as u64, context::current()?.handle)?;
        out.dptr = memory.address();
        add(node, graph, after, count, Operation::Allocate(memory))?;
        write(given, out)
    }

    /// The parameters of a node that allocates memory.
    fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) {
        let Operation::Allocate(memory) = operation(node)? else { return fail(CUDA_ERROR_INVALID_VALUE) };
        write(out, CUDA_MEM_ALLOC_NODE_PARAMS {
            bytesize: memory.bytes() as usize,
            dptr: memory.address(),
            ..cuda_abi::Plain::zeroed()
        })
    }

    /// Adds a node that frees memory.
    fn cuGraphAddMemFreeNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        address: CUdeviceptr,
    ) {
        pool::check_freeable(address)?;
        add(node, graph, after, count, Operation::Free(address))
    }

    /// Returns the address that a node frees.
    fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr) {
        match operation(node)? {
            Operation::Free(found) => write(address, found),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Adds a node of any type.
    fn cuGraphAddNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        given: *mut CUgraphNodeParams,
    ) partly "external semaphores and batches are refused" {
        add_any(node, graph, after, count, given)
    }

    /// Adds a node of any type.
    fn cuGraphAddNode_v2(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        _edges: *const CUgraphEdgeData,
        count: usize,
        given: *mut CUgraphNodeParams,
    ) partly "external semaphores and batches are refused" {
        add_any(node, graph, after, count, given)
    }

    /// Sets the parameters of a node of any type.
    fn cuGraphNodeSetParams(node: CUgraphNode, given: *mut CUgraphNodeParams)
        partly "external semaphores and batches are refused"
    {
        set(node, params::any(given)?)
    }

    /// Takes a node away.
    fn cuGraphDestroyNode(node: CUgraphNode) {
        Graph::of_node(node)?.remove(node as u64)
    }

    /// A node's type.
    fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) {
        write(kind, crate::graph::node_type(&operation(node)?))
    }

    /// The graph that a node belongs to.
    fn cuGraphNodeGetContainingGraph(node: CUgraphNode, graph: *mut CUgraph) {
        write(graph, opaque(Graph::of_node(node)?.handle))
    }

    /// A number that no other node has.
    fn cuGraphNodeGetToolsId(node: CUgraphNode, id: *mut u64) {
        Graph::of_node(node)?;
        write(id, node as u64)
    }

    /// A number that no other node of a graph has.
    fn cuGraphNodeGetLocalId(node: CUgraphNode, id: *mut u32) {
        Graph::of_node(node)?;
        write(id, node as u32)
    }
}

fn operation(node: CUgraphNode) -> Result<Operation> {
    Ok(Graph::of_node(node)?.node(node as u64)?.operation)
}

fn set(node: CUgraphNode, operation: Operation) -> Result {
    Graph::of_node(node)?.set_operation(node as u64, operation)
}

/// # Safety
///
/// `node` is null or valid for a write, `after` has `count` elements.
unsafe fn add(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    operation: Operation,
) -> Result {
    ensure(!node.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: as promised by the caller.
    let after = unsafe { array(after, count)? };
    let after: Vec<u64> = after.iter().map(|before| *before as u64).collect();
    let added = Graph::resolve(graph)?.add(operation, &after)?;
    // SAFETY: as promised by the caller.
    unsafe { write(node, opaque(added)) }
}

/// Adds a node of any type; tells the address of what it allocates.
///
/// # Safety
///
/// As for [`add`] and [`params::any`]; `given` is null or valid for a write too.
unsafe fn add_any(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    given: *mut CUgraphNodeParams,
) -> Result {
    // SAFETY: as promised by the caller; the type says which member of the union is meant.
    unsafe {
        let operation = params::any(given)?;
        let mut out = read(given)?;
        match &operation {
            Operation::Allocate(memory) => out.anonymous.alloc.dptr = memory.address(),
            Operation::Conditional(conditional) => {
                out.anonymous.conditional.phGraph_out = conditional.handles();
            }
            _ => return add(node, graph, after, count, operation),
        }
        add(node, graph, after, count, operation)?;
        write(given, out)?;
    }
    Ok(())
}
