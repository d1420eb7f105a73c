//! The nodes of the program's graphs, as the driver describes them.

use super::{has, succeeds};
use cuda_abi::types::*;
use cuda_abi::{Plain, index};
use cuda_launch::{Dim3, LaunchConfig};
use std::ptr::null_mut;

/// The nodes of a graph.
pub fn graph_nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    // SAFETY: with a null array the driver only counts; the program has just used the graph with
    // success.
    if !succeeds(unsafe { real!(cuGraphGetNodes)(graph, null_mut(), &mut count) }) {
        return Vec::new();
    }
    let mut nodes = Vec::new();
    if nodes.try_reserve_exact(count).is_err() {
        return nodes;
    }
    nodes.resize(count, null_mut());
    // SAFETY: the array has room for `count` nodes.
    let result = unsafe { real!(cuGraphGetNodes)(graph, nodes.as_mut_ptr(), &mut count) };
    nodes.truncate(if succeeds(result) { count } else { 0 });
    nodes
}

/// The kernel that a node launches.
pub struct Kernel {
    /// A function, or a library's kernel.
    pub function: CUfunction,
    /// The context that the node names, null for the current one.
    pub context: CUcontext,
    /// The configuration; clusters are an attribute of the node ([`node_cluster`]).
    pub launch: LaunchConfig,
}

/// The content of a graph's node.
pub enum Node {
    /// A kernel's launch.
    Kernel(Kernel),
    /// A graph of its own.
    Graph(CUgraph),
    /// A copy.
    Copy,
    /// A set.
    Set,
    /// Something else that the host knows of: events, host functions, allocations.
    Other,
    /// Something of which the host can't know what it does.
    Opaque,
}

/// Describes `node`, which belongs to a graph that the program has just used.
pub fn describe_node(node: CUgraphNode) -> Node {
    let mut kind = 0;
    // SAFETY: the out-parameter is valid, and so is the node.
    if !succeeds(unsafe { real!(cuGraphNodeGetType)(node, &mut kind) }) {
        return Node::Opaque;
    }
    match kind {
        CU_GRAPH_NODE_TYPE_KERNEL => node_kernel(node).map_or(Node::Opaque, Node::Kernel),
        CU_GRAPH_NODE_TYPE_GRAPH => node_graph(node).map_or(Node::Opaque, Node::Graph),
        CU_GRAPH_NODE_TYPE_MEMCPY => Node::Copy,
        CU_GRAPH_NODE_TYPE_MEMSET => Node::Set,
        CU_GRAPH_NODE_TYPE_CONDITIONAL => Node::Opaque,
        _ => Node::Other,
    }
}

fn node_kernel(node: CUgraphNode) -> Option<Kernel> {
    if has(index::cuGraphKernelNodeGetParams_v2) {
        let mut parameters = CUDA_KERNEL_NODE_PARAMS::zeroed();
        // SAFETY: the out-parameter is valid, and the node is a kernel's.
        let result = unsafe { real!(cuGraphKernelNodeGetParams_v2)(node, &mut parameters) };
        return succeeds(result).then(|| kernel_of(&parameters));
    }
    let mut parameters = CUDA_KERNEL_NODE_PARAMS_v1::zeroed();
    // SAFETY: as above.
    let result = unsafe { real!(cuGraphKernelNodeGetParams)(node, &mut parameters) };
    succeeds(result).then(|| kernel_of_v1(&parameters))
}

fn node_graph(node: CUgraphNode) -> Option<CUgraph> {
    let mut graph = null_mut();
    // SAFETY: the out-parameter is valid, and the node holds a graph.
    succeeds(unsafe { real!(cuGraphChildGraphNodeGetGraph)(node, &mut graph) }).then_some(graph)
}

/// The cluster of a kernel node; zeros without one.
pub fn node_cluster(node: CUgraphNode) -> Dim3 {
    let mut value = CUlaunchAttributeValue::zeroed();
    // SAFETY: the out-parameter is valid, and the node is a kernel's. The driver fills in the
    // member of the union that the attribute names.
    unsafe {
        let attribute = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        if !succeeds(real!(cuGraphKernelNodeGetAttribute)(node, attribute, &mut value)) {
            return Dim3::ZERO;
        }
        Dim3::new(value.clusterDim.x, value.clusterDim.y, value.clusterDim.z)
    }
}

/// Reads parameters without a kernel or context.
pub fn kernel_of_v1(parameters: &CUDA_KERNEL_NODE_PARAMS_v1) -> Kernel {
    Kernel {
        function: parameters.func,
        context: null_mut(),
        launch: LaunchConfig {
            grid: Dim3::new(parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ),
            block: Dim3::new(parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ),
            cluster: Dim3::ZERO,
            dynamic_shared_bytes: parameters.sharedMemBytes,
        },
    }
}

/// Reads parameters. A kernel counts only where there is no function.
pub fn kernel_of(parameters: &CUDA_KERNEL_NODE_PARAMS) -> Kernel {
    let has_function = !parameters.func.is_null();
    Kernel {
        function: if has_function { parameters.func } else { parameters.kern.cast() },
        context: if has_function { null_mut() } else { parameters.ctx },
        launch: LaunchConfig {
            grid: Dim3::new(parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ),
            block: Dim3::new(parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ),
            cluster: Dim3::ZERO,
            dynamic_shared_bytes: parameters.sharedMemBytes,
        },
    }
}

/// Reads the parameters inside [`CUgraphNodeParams`], which have the same fields.
pub fn kernel_of_v3(parameters: &CUDA_KERNEL_NODE_PARAMS_v3) -> Kernel {
    let &CUDA_KERNEL_NODE_PARAMS_v3 {
        func,
        gridDimX,
        gridDimY,
        gridDimZ,
        blockDimX,
        blockDimY,
        blockDimZ,
        ..
    } = parameters;
    let &CUDA_KERNEL_NODE_PARAMS_v3 { sharedMemBytes, kernelParams, extra, kern, ctx, .. } = parameters;
    kernel_of(&CUDA_KERNEL_NODE_PARAMS {
        func,
        gridDimX,
        gridDimY,
        gridDimZ,
        blockDimX,
        blockDimY,
        blockDimZ,
        sharedMemBytes,
        kernelParams,
        extra,
        kern,
        ctx,
    })
}
