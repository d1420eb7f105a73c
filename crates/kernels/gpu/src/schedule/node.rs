//! Pieces of work as nodes of a graph.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::{null, null_mut};

use cudarc::driver::sys;

use crate::device::Device;
use crate::error::Result;
use crate::graph::Template;
use crate::launch::Prepared;

/// Bytes in memory of the device or pinned memory of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub address: u64,
    pub bytes: usize,
    pub is_host: bool,
}

/// A piece of work.
pub(super) enum Work {
    Kernel(Box<Prepared>),
    Copy { to: Place, from: Place },
    Clear(Place),
}

impl Place {
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes as u64
    }

    fn kind(&self) -> sys::CUmemorytype {
        match self.is_host {
            true => sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            false => sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        }
    }

    /// Its address, if it is of the device.
    fn on_device(&self) -> u64 {
        if self.is_host { 0 } else { self.address }
    }

    /// Its address, if it is of the host.
    fn on_host(&self) -> *mut c_void {
        if self.is_host { self.address as *mut c_void } else { null_mut() }
    }
}

impl Work {
    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        match self {
            Work::Kernel(_) => false,
            Work::Copy { to, .. } | Work::Clear(to) => to.bytes == 0,
        }
    }

    /// Adds it to a graph behind the nodes of `after`.
    pub fn add_to(
        &mut self,
        graph: &Template,
        after: &[sys::CUgraphNode],
        device: &Device,
    ) -> Result<sys::CUgraphNode> {
        match self {
            Work::Kernel(prepared) => prepared.add_to(graph, after),
            Work::Copy { to, from } => add_copy(to, from, graph, after, device),
            Work::Clear(to) => add_clear(to, graph, after, device),
        }
    }
}

fn add_copy(
    to: &Place,
    from: &Place,
    graph: &Template,
    after: &[sys::CUgraphNode],
    device: &Device,
) -> Result<sys::CUgraphNode> {
    let copy = sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: from.kind(),
        srcHost: from.on_host(),
        srcDevice: from.on_device(),
        srcArray: null_mut(),
        reserved0: null_mut(),
        srcPitch: to.bytes,
        srcHeight: 1,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: to.kind(),
        dstHost: to.on_host(),
        dstDevice: to.on_device(),
        dstArray: null_mut(),
        reserved1: null_mut(),
        dstPitch: to.bytes,
        dstHeight: 1,
        WidthInBytes: to.bytes,
        Height: 1,
        Depth: 1,
    };
    let mut node = null_mut();
    // SAFETY: graph and nodes live, and the driver copies the description. The places have as many
    // bytes, and the schedule keeps their memory.
    let added = unsafe {
        sys::cuGraphAddMemcpyNode(
            &mut node,
            graph.raw(),
            pointer(after),
            after.len(),
            &copy,
            device.core().cuda.cu_ctx(),
        )
    };
    let bytes = to.bytes;
    added.result().map_err(device.core().failed_at("cuGraphAddMemcpyNode", || format!("{bytes} bytes")))?;
    Ok(node)
}

fn add_clear(
    to: &Place,
    graph: &Template,
    after: &[sys::CUgraphNode],
    device: &Device,
) -> Result<sys::CUgraphNode> {
    let fill = sys::CUDA_MEMSET_NODE_PARAMS {
        dst: to.address,
        pitch: to.bytes,
        value: 0,
        elementSize: 1,
        width: to.bytes,
        height: 1,
    };
    let mut node = null_mut();
    // SAFETY: as of a copy.
    let added = unsafe {
        sys::cuGraphAddMemsetNode(
            &mut node,
            graph.raw(),
            pointer(after),
            after.len(),
            &fill,
            device.core().cuda.cu_ctx(),
        )
    };
    let bytes = to.bytes;
    added.result().map_err(device.core().failed_at("cuGraphAddMemsetNode", || format!("{bytes} bytes")))?;
    Ok(node)
}

/// The nodes as the driver takes them.
pub(crate) fn pointer(after: &[sys::CUgraphNode]) -> *const sys::CUgraphNode {
    if after.is_empty() { null() } else { after.as_ptr() }
}
