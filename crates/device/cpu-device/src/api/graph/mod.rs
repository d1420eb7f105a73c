//! Graph management: the graphs themselves here, and a module for each other part of it.

pub(super) mod edges;
pub(super) mod exec;
pub(super) mod nodes;
mod params;
pub(super) mod user_object;

use crate::device;
use crate::entry::{entries, opaque, text, write};
use crate::error::{Error, ensure};
use crate::graph::Graph;
use crate::graph::condition::Condition;
use cuda_abi::types::*;
use std::ffi::c_char;

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

    /// A number that no other graph has.
    fn cuGraphGetId(graph: CUgraph, id: *mut u32) {
        write(id, Graph::resolve(graph)?.handle as u32)
    }

    /// Writes a graph to a file, in the language of Graphviz.
    fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, _flags: u32)
        partly "only names, shapes and sizes are written, whatever the flags"
    {
        let graph = Graph::resolve(graph)?;
        let path = text(path)?.to_string_lossy();
        std::fs::write(&*path, graph.dot()).map_err(|_| Error(CUDA_ERROR_OPERATING_SYSTEM))
    }
}
