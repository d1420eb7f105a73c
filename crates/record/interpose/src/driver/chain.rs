//! Kernels as one executable graph, with edges between them, which the library makes and launches
//! itself.

use super::{function_attribute, function_of_kernel, succeeds};
use crate::tables::push;
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A kernel of a [`Chain`].
#[derive(Clone, Copy)]
pub struct ChainedKernel {
    /// A function, not a library's kernel.
    pub function: CUfunction,
    /// Grid, block, and bytes of dynamic shared memory.
    pub dimensions: [u32; 7],
    /// The context in which it runs.
    pub context: CUcontext,
}

/// An executable graph: each kernel runs when the kernels on which it depends have ended.
pub struct Chain {
    graph: CUgraph,
    exec: CUgraphExec,
    nodes: Vec<CUgraphNode>,
}

// SAFETY: handles, which the driver takes from any thread.
unsafe impl Send for Chain {}

/// The function of a handle with which a launch succeeded: its own, or that of a library's kernel
/// in the current context.
pub fn function_of(handle: CUfunction) -> Option<CUfunction> {
    let is_function = function_attribute(handle, CU_FUNC_ATTRIBUTE_NUM_REGS).is_some();
    if is_function { Some(handle) } else { function_of_kernel(handle.cast()) }
}

impl Chain {
    /// An empty one, which has to be [`finished`](Chain::finish).
    pub fn new() -> Option<Chain> {
        let mut graph = null_mut();
        // SAFETY: the out-parameter is valid.
        let is_made = succeeds(unsafe { real!(cuGraphCreate)(&mut graph, 0) });
        is_made.then(|| Chain { graph, exec: null_mut(), nodes: Vec::new() })
    }

    /// Adds a kernel behind those of `behind`, whose bits count from the first kernel; false if the
    /// driver refuses, or without memory.
    ///
    /// # Safety
    /// The function was launched with success in the context, with these dimensions.
    /// `parameters` point to its parameters.
    pub unsafe fn add(&mut self, kernel: ChainedKernel, parameters: *mut *mut c_void, behind: u32) -> bool {
        let (mut before, mut count) = ([null_mut(); u32::BITS as usize], 0);
        for (at, &node) in self.nodes.iter().enumerate().take(before.len()) {
            if behind >> at & 1 == 1 {
                before[count] = node;
                count += 1;
            }
        }
        let (mut node, params) = (null_mut(), kernel.node(parameters));
        // SAFETY: the out-parameter and the parameters are valid; the nodes are the graph's.
        let is_added = succeeds(unsafe {
            real!(cuGraphAddKernelNode_v2)(&mut node, self.graph, before.as_ptr(), count, &params)
        });
        is_added && push(&mut self.nodes, node)
    }

    /// Makes it executable; false if the driver refuses.
    pub fn finish(&mut self) -> bool {
        // SAFETY: the out-parameter is valid; a graph of ours.
        succeeds(unsafe { real!(cuGraphInstantiateWithFlags)(&mut self.exec, self.graph, 0) })
    }

    /// Sets the parameters with which later launches run the kernel at `at`; false if the driver
    /// refuses.
    ///
    /// # Safety
    /// The kernel is the one that was added there; `parameters` point to its parameters.
    pub unsafe fn set(&self, at: usize, kernel: ChainedKernel, parameters: *mut *mut c_void) -> bool {
        let params = kernel.node(parameters);
        // SAFETY: an executable graph of ours, and a node of the graph that it was made of.
        succeeds(unsafe { real!(cuGraphExecKernelNodeSetParams_v2)(self.exec, self.nodes[at], &params) })
    }

    /// Launches it; false if the driver refuses.
    pub fn launch(&self, stream: CUstream) -> bool {
        // SAFETY: an executable graph of ours; the program launches into the stream.
        succeeds(unsafe { real!(cuGraphLaunch)(self.exec, stream) })
    }
}

impl ChainedKernel {
    fn node(&self, parameters: *mut *mut c_void) -> CUDA_KERNEL_NODE_PARAMS {
        let [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared] = self.dimensions;
        CUDA_KERNEL_NODE_PARAMS {
            func: self.function,
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: shared,
            kernelParams: parameters,
            ctx: self.context,
            ..CUDA_KERNEL_NODE_PARAMS::zeroed()
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: graphs of ours, each destroyed once, in a context that lives. What was launched
        // runs to its end.
        unsafe {
            if !self.exec.is_null() {
                real!(cuGraphExecDestroy)(self.exec);
            }
            real!(cuGraphDestroy)(self.graph);
        }
    }
}
