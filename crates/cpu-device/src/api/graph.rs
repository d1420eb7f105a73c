//! Graph management.

use super::graph_params as params;
use crate::context;
use crate::device;
use crate::entry::{array, entries, opaque, read, refuse, text, write, write_if_wanted};
use crate::error::{Error, Result, ensure, fail};
use crate::graph::allocation::{self, GraphMemory};
use crate::graph::condition::Condition;
use crate::graph::user_object::{HeldObject, UserObject};
use crate::graph::{self, Graph, GraphExec, Mismatch};
use crate::memory::pool;
use crate::stream::Stream;
use crate::stream::event::Event;
use crate::stream::operation::Operation;
use crate::stream::task::{self, Task};
use cuda_abi::types::*;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

entries! {
    /// Creates a graph.
    fn cuGraphCreate(graph: *mut CUgraph, flags: u32) {
        device::get()?;
        ensure(flags == 0 && !graph.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(graph, opaque(Graph::create().handle))
    }

    /// Makes a condition for conditional nodes of a graph.
    fn cuGraphConditionalHandleCreate(
        handle: *mut CUgraphConditionalHandle,
        graph: CUgraph,
        _context: CUcontext,
        default: u32,
        flags: u32,
    ) {
        ensure(!handle.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(handle, Condition::create(&*Graph::resolve(graph)?, default, flags)?.handle)
    }

    /// Ends a graph.
    fn cuGraphDestroy(graph: CUgraph) {
        Graph::destroy(graph)
    }

    /// Copies a graph.
    fn cuGraphClone(clone: *mut CUgraph, graph: CUgraph) {
        ensure(!clone.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        write(clone, opaque(Graph::resolve(graph)?.duplicate().handle))
    }

    /// The node of a copy that was made from a node of the original.
    fn cuGraphNodeFindInClone(found: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) {
        write(found, opaque(Graph::resolve(clone)?.copy_of(original as u64)?))
    }

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
    fn cuGraphKernelNodeGetParams(node: CUgraphNode, told: *mut CUDA_KERNEL_NODE_PARAMS_v1) {
        match operation(node)? {
            Operation::Kernel(launch) => write(told, params::of_kernel_v1(&launch)),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// A kernel node's parameters.
    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, told: *mut CUDA_KERNEL_NODE_PARAMS) {
        match operation(node)? {
            Operation::Kernel(launch) => write(told, params::of_kernel(&launch)),
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
    ) partly "of the attributes, cooperative launch has an effect" {
        set(node, params::with_attribute(operation(node)?, attribute, &read(value)?)?)
    }

    /// An attribute of a kernel node.
    fn cuGraphKernelNodeGetAttribute(
        node: CUgraphNode,
        attribute: CUkernelNodeAttrID,
        value: *mut CUkernelNodeAttrValue,
    ) partly "of the attributes, cooperative launch is kept" {
        ensure(attribute < CU_LAUNCH_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE)?;
        let Operation::Kernel(launch) = operation(node)? else { return fail(CUDA_ERROR_INVALID_VALUE) };
        let mut told: CUkernelNodeAttrValue = cuda_abi::Plain::zeroed();
        if attribute == CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE {
            told.cooperative = launch.configuration.cooperative.into();
        }
        write(value, told)
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
    fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, told: *mut CUDA_MEMCPY3D) {
        match operation(node)? {
            Operation::Copy(copy) => write(told, params::of_copy(&copy)),
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
    fn cuGraphMemsetNodeGetParams(node: CUgraphNode, told: *mut CUDA_MEMSET_NODE_PARAMS) {
        match operation(node)? {
            Operation::Fill(fill) => write(told, params::of_fill(&fill)),
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
    fn cuGraphHostNodeGetParams(node: CUgraphNode, told: *mut CUDA_HOST_NODE_PARAMS) {
        match operation(node)? {
            Operation::Host(call) => write(told, params::of_host(&call)),
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
        let mut told = read(given)?;
        let memory = GraphMemory::new(told.bytesize as u64, context::current()?.handle)?;
        told.dptr = memory.address();
        add(node, graph, after, count, Operation::Allocate(memory))?;
        write(given, told)
    }

    /// The parameters of a node that allocates memory.
    fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, told: *mut CUDA_MEM_ALLOC_NODE_PARAMS) {
        let Operation::Allocate(memory) = operation(node)? else { return fail(CUDA_ERROR_INVALID_VALUE) };
        write(told, CUDA_MEM_ALLOC_NODE_PARAMS {
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

    /// What a node frees.
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
        write(kind, graph::node_type(&operation(node)?))
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

    /// A graph's nodes.
    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        let all: Vec<u64> = Graph::resolve(graph)?.nodes().iter().map(|node| node.handle).collect();
        write_list(nodes, count, &all)
    }

    /// A graph's nodes that come behind no other.
    fn cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        let nodes_of_graph = Graph::resolve(graph)?.nodes();
        let roots = nodes_of_graph.iter().filter(|node| node.after.is_empty());
        write_list(nodes, count, &roots.map(|node| node.handle).collect::<Vec<_>>())
    }

    /// A graph's edges.
    fn cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) {
        write_edges(&*Graph::resolve(graph)?, from, to, count)
    }

    /// A graph's edges.
    fn cuGraphGetEdges_v2(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        edges: *mut CUgraphEdgeData,
        count: *mut usize,
    ) {
        write_edges(&*Graph::resolve(graph)?, from, to, count)?;
        clear_edge_data(edges, *count, from.is_null())
    }

    /// The nodes that a node comes behind.
    fn cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) {
        write_list(nodes, count, &Graph::of_node(node)?.node(node as u64)?.after)
    }

    /// The nodes that a node comes behind.
    fn cuGraphNodeGetDependencies_v2(
        node: CUgraphNode,
        nodes: *mut CUgraphNode,
        edges: *mut CUgraphEdgeData,
        count: *mut usize,
    ) {
        write_list(nodes, count, &Graph::of_node(node)?.node(node as u64)?.after)?;
        clear_edge_data(edges, *count, nodes.is_null())
    }

    /// The nodes that come right behind a node.
    fn cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) {
        write_list(nodes, count, &Graph::of_node(node)?.dependents(node as u64))
    }

    /// The nodes that come right behind a node.
    fn cuGraphNodeGetDependentNodes_v2(
        node: CUgraphNode,
        nodes: *mut CUgraphNode,
        edges: *mut CUgraphEdgeData,
        count: *mut usize,
    ) {
        write_list(nodes, count, &Graph::of_node(node)?.dependents(node as u64))?;
        clear_edge_data(edges, *count, nodes.is_null())
    }

    /// Adds edges.
    fn cuGraphAddDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
    ) {
        each_edge(array(from, count)?, array(to, count)?, &*Graph::resolve(graph)?, Graph::connect)
    }

    /// Adds edges.
    fn cuGraphAddDependencies_v2(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        _edges: *const CUgraphEdgeData,
        count: usize,
    ) {
        each_edge(array(from, count)?, array(to, count)?, &*Graph::resolve(graph)?, Graph::connect)
    }

    /// Takes edges away.
    fn cuGraphRemoveDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
    ) {
        each_edge(array(from, count)?, array(to, count)?, &*Graph::resolve(graph)?, Graph::disconnect)
    }

    /// Takes edges away.
    fn cuGraphRemoveDependencies_v2(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        _edges: *const CUgraphEdgeData,
        count: usize,
    ) {
        each_edge(array(from, count)?, array(to, count)?, &*Graph::resolve(graph)?, Graph::disconnect)
    }

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
        let mut told = read(given)?;
        let outcome = instantiate(exec, graph, told.flags);
        told.result_out =
            if outcome.is_ok() { CUDA_GRAPH_INSTANTIATE_SUCCESS } else { CUDA_GRAPH_INSTANTIATE_ERROR };
        told.hErrNode_out = std::ptr::null_mut();
        write(given, told)?;
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

    /// A number that no other graph has.
    fn cuGraphGetId(graph: CUgraph, id: *mut u32) {
        write(id, Graph::resolve(graph)?.handle as u32)
    }

    /// A number that no other node of a graph has.
    fn cuGraphNodeGetLocalId(node: CUgraphNode, id: *mut u32) {
        Graph::of_node(node)?;
        write(id, node as u32)
    }

    /// Writes a graph to a file, in the language of Graphviz.
    fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, _flags: u32)
        partly "of what the flags ask for, names, shapes and sizes are written"
    {
        let graph = Graph::resolve(graph)?;
        let path = text(path)?.to_string_lossy();
        std::fs::write(&*path, graph.dot()).map_err(|_| Error(CUDA_ERROR_OPERATING_SYSTEM))
    }

    /// Makes an object that graphs can keep alive.
    fn cuUserObjectCreate(
        object: *mut CUuserObject,
        data: *mut c_void,
        destructor: CUhostFn,
        references: u32,
        flags: u32,
    ) {
        // The one flag has to be given: nobody can wait for the destructor.
        ensure(!object.is_null() && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, CUDA_ERROR_INVALID_VALUE)?;
        let destructor = destructor.ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        write(object, opaque(UserObject::create(destructor, data, references)?))
    }

    /// Adds references of the program's to an object.
    fn cuUserObjectRetain(object: CUuserObject, count: u32) {
        UserObject::resolve(object)?.retain(count)
    }

    /// Takes references of the program's back.
    fn cuUserObjectRelease(object: CUuserObject, count: u32) {
        UserObject::resolve(object)?.release(count)
    }

    /// Has a graph hold references to an object: new ones, or the program's.
    fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: u32, flags: u32) {
        let (graph, object) = (Graph::resolve(graph)?, UserObject::resolve(object)?);
        ensure(flags & !CU_GRAPH_USER_OBJECT_MOVE == 0 && count > 0, CUDA_ERROR_INVALID_VALUE)?;
        if flags & CU_GRAPH_USER_OBJECT_MOVE == 0 {
            object.retain(count)?;
        }
        graph.hold(HeldObject::new(object, count));
        Ok(())
    }

    /// Takes back references that a graph holds.
    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32) {
        ensure(count > 0, CUDA_ERROR_INVALID_VALUE)?;
        Graph::resolve(graph)?.release(object as u64, count)
    }

    /// Whether launches do a node's work.
    fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut u32) {
        write(enabled, GraphExec::resolve(exec)?.is_enabled(node as u64)?.into())
    }
}

fn operation(node: CUgraphNode) -> Result<Operation> {
    Ok(Graph::of_node(node)?.node(node as u64)?.operation)
}

fn set(node: CUgraphNode, operation: Operation) -> Result {
    Graph::of_node(node)?.set_operation(node as u64, operation)
}

fn set_in_exec(exec: CUgraphExec, node: CUgraphNode, operation: Operation) -> Result {
    GraphExec::resolve(exec)?.set_operation(node as u64, operation)
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
        let mut told = read(given)?;
        match &operation {
            Operation::Allocate(memory) => told.anonymous.alloc.dptr = memory.address(),
            Operation::Conditional(conditional) => {
                told.anonymous.conditional.phGraph_out = conditional.handles();
            }
            _ => return add(node, graph, after, count, operation),
        }
        add(node, graph, after, count, operation)?;
        write(given, told)?;
    }
    Ok(())
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
    if let Err(error) = allocation::submit_launch(&operations, automatic) {
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

/// Tells the program a list of nodes: how many there are, or as many as there is room for. Room that is left
/// over is filled with null.
///
/// # Safety
///
/// `count` is null or valid for reads and writes, and `nodes`, unless null, has as many elements as it says.
unsafe fn write_list(nodes: *mut CUgraphNode, count: *mut usize, list: &[u64]) -> Result {
    // SAFETY: as promised by the caller.
    unsafe {
        let room = read(count)?;
        if nodes.is_null() {
            return write(count, list.len());
        }
        for place in 0..room {
            write(nodes.add(place), list.get(place).map_or(std::ptr::null_mut(), |node| opaque(*node)))?;
        }
        write(count, list.len().min(room))
    }
}

/// # Safety
///
/// As for [`write_list`], for both lists.
unsafe fn write_edges(
    graph: &Graph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> Result {
    ensure(from.is_null() == to.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    let nodes = graph.nodes();
    let edges = nodes.iter().flat_map(|node| node.after.iter().map(|before| (*before, node.handle)));
    let (sources, targets): (Vec<u64>, Vec<u64>) = edges.unzip();
    // SAFETY: as promised by the caller.
    unsafe {
        let mut room = read(count)?;
        write_list(from, &raw mut room, &sources)?;
        write_list(to, count, &targets)
    }
}

/// Edges carry no data here: they all wait for the whole of a node.
///
/// # Safety
///
/// `edges` is null or has `count` elements, unless the program only asked how many there are.
unsafe fn clear_edge_data(edges: *mut CUgraphEdgeData, count: usize, only_counted: bool) -> Result {
    if !edges.is_null() && !only_counted {
        for place in 0..count {
            // SAFETY: as promised by the caller.
            unsafe { write(edges.add(place), cuda_abi::Plain::zeroed())? };
        }
    }
    Ok(())
}

fn each_edge(
    from: &[CUgraphNode],
    to: &[CUgraphNode],
    graph: &Graph,
    change: impl Fn(&Graph, u64, u64) -> Result,
) -> Result {
    from.iter().zip(to).try_for_each(|(from, to)| change(graph, *from as u64, *to as u64))
}
