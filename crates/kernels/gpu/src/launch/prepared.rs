//! Launches that become nodes of a graph.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use cuda_launch::LaunchConfig;
use cudarc::driver::{CudaFunction, sys};
use smallvec::SmallVec;

use super::{FEW, Launch};
use crate::device::Device;
use crate::error::Result;
use crate::graph::Template;

/// A checked launch that borrows nothing. What it was given is kept by whoever has it.
pub(crate) struct Prepared {
    function: CudaFunction,
    device: Device,
    name: Arc<str>,
    config: LaunchConfig,
    cooperative: bool,
    /// Where each argument starts in `values`, in units.
    starts: SmallVec<[usize; FEW]>,
    values: SmallVec<[u128; FEW]>,
}

impl Launch<'_> {
    /// Checks the launch.
    pub(crate) fn prepare(self) -> Result<Prepared> {
        self.check()?;
        self.kernel.device.core().bind()?;
        self.kernel.allow_shared(self.config.dynamic_shared_bytes)?;
        Ok(Prepared {
            function: self.kernel.function.clone(),
            device: self.kernel.device.clone(),
            name: self.kernel.name.clone(),
            config: self.config,
            cooperative: self.cooperative,
            starts: self.arguments.iter().map(|given| given.start).collect(),
            values: self.values,
        })
    }
}

impl Prepared {
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn function(&self) -> &CudaFunction {
        &self.function
    }

    /// Adds the launch to a graph, behind the nodes of `after`.
    pub(crate) fn add_to(
        &mut self,
        graph: &Template,
        after: &[sys::CUgraphNode],
    ) -> Result<sys::CUgraphNode> {
        let values = self.values.as_mut_ptr();
        let pointer = |start: &usize| values.wrapping_add(*start).cast::<c_void>();
        let mut pointers: SmallVec<[*mut c_void; FEW]> = self.starts.iter().map(pointer).collect();
        let LaunchConfig { grid, block, dynamic_shared_bytes, .. } = self.config;
        let launch = sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.function.cu_function(),
            gridDimX: grid.x,
            gridDimY: grid.y,
            gridDimZ: grid.z,
            blockDimX: block.x,
            blockDimY: block.y,
            blockDimZ: block.z,
            sharedMemBytes: dynamic_shared_bytes,
            kernelParams: pointers.as_mut_ptr(),
            extra: null_mut(),
            kern: null_mut(),
            ctx: null_mut(),
        };
        let before = if after.is_empty() { std::ptr::null() } else { after.as_ptr() };
        let mut node = null_mut();
        // SAFETY: graph, nodes and kernel live; the pointers are those of as many values of the
        // right sizes, which the driver copies.
        let added =
            unsafe { sys::cuGraphAddKernelNode_v2(&mut node, graph.raw(), before, after.len(), &launch) };
        let what = || format!("`{}` with {grid:?} blocks of {block:?} threads", self.name);
        added.result().map_err(self.device.core().failed_at("cuGraphAddKernelNode", what))?;
        if self.cooperative {
            self.make_cooperative(node)?;
        }
        Ok(node)
    }

    fn make_cooperative(&self, node: sys::CUgraphNode) -> Result<()> {
        let value = sys::CUlaunchAttributeValue { cooperative: 1 };
        let attribute = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        // SAFETY: the node lives and is of a kernel; the value is of this attribute.
        let set = unsafe { sys::cuGraphKernelNodeSetAttribute(node, attribute, &value) };
        set.result().map_err(self.device.core().failed("cuGraphKernelNodeSetAttribute"))
    }
}
