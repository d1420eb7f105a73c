//! The structure of graphs: their nodes, and the edges between them.

use crate::entry::{array, entries, opaque, read, write};
use crate::error::{Result, ensure};
use crate::graph::Graph;
use cuda_abi::types::*;

entries! {
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
}

/// Tells the program a list of nodes: how many there are, or as many as there is room for. Room
/// that is left over is filled with null.
///
/// # Safety
///
/// `count` is null or valid for reads and writes, and `nodes`, unless null, has as many elements as
/// it says.
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
