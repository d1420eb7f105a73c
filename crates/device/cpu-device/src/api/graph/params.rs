//! Conversions between CUDA's structures of graph nodes' parameters and [`Operation`]s.

use super::super::copy::cuboid;
use crate::context;
use crate::device;
use crate::entry::{opaque, read, refuse};
use crate::error::{Error, Result, ensure, fail};
use crate::graph::Graph;
use crate::graph::condition::Conditional;
use crate::image::array::Array;
use crate::launch::{Arguments, Launch};
use crate::memory::copy::{Copy, Fill, Residence, Side};
use crate::memory::graph_memory::GraphMemory;
use crate::memory::pool;
use crate::module::Function;
use crate::observation::Configuration;
use crate::stream::event::Event;
use crate::stream::operation::{HostCall, Operation};
use cuda_abi::Plain;
use cuda_abi::types::*;
use cuda_launch::LaunchConfig;

/// A kernel node's operation.
///
/// # Safety
///
/// The parameters' pointers are what [`Arguments::read`] asks for.
pub unsafe fn kernel(params: &CUDA_KERNEL_NODE_PARAMS_v2) -> Result<Operation> {
    // The function may be given as a kernel, in a field of its own.
    let named = if params.func.is_null() { params.kern.cast() } else { params.func };
    let function = Function::resolve(named)?;
    // SAFETY: as promised by the caller.
    let arguments = unsafe { Arguments::read(&function.attributes, params.kernelParams, params.extra)? };
    let configuration = Configuration {
        launch: LaunchConfig::new(
            [params.gridDimX, params.gridDimY, params.gridDimZ],
            [params.blockDimX, params.blockDimY, params.blockDimZ],
        )
        .with_dynamic_shared_bytes(params.sharedMemBytes),
        cooperative: false,
    };
    Ok(Operation::Kernel(Launch::new(named, configuration, arguments)?))
}

/// The newer structure with what the older one says.
pub fn kernel_v2(params: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        ..Plain::zeroed()
    }
}

/// Returns a kernel node's parameters. The arguments live as long as the node keeps them.
pub fn of_kernel(launch: &Launch) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    let LaunchConfig { grid, block, dynamic_shared_bytes, .. } = launch.configuration.launch;
    let by_function = launch.named == launch.function.handle;
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: if by_function { opaque(launch.named) } else { std::ptr::null_mut() },
        gridDimX: grid.x,
        gridDimY: grid.y,
        gridDimZ: grid.z,
        blockDimX: block.x,
        blockDimY: block.y,
        blockDimZ: block.z,
        sharedMemBytes: dynamic_shared_bytes,
        kernelParams: launch.arguments.pointers(),
        kern: if by_function { std::ptr::null_mut() } else { opaque(launch.named) },
        ..Plain::zeroed()
    }
}

/// The older structure with what the newer one says.
pub fn of_kernel_v1(launch: &Launch) -> CUDA_KERNEL_NODE_PARAMS_v1 {
    let params = of_kernel(launch);
    CUDA_KERNEL_NODE_PARAMS_v1 {
        func: opaque(launch.named),
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
    }
}

/// A copy node's operation.
pub fn copy(params: &CUDA_MEMCPY3D) -> Result<Operation> {
    let (source, destination, extent) = cuboid(params)?;
    let copy = Copy::new(device::get()?, source, destination, extent)?;
    copy.map(Operation::Copy).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}

/// Returns a copy node's parameters.
pub fn of_copy(copy: &Copy) -> CUDA_MEMCPY3D {
    let source = CopySide::new(&copy.source, copy.from);
    let destination = CopySide::new(&copy.destination, copy.to);
    CUDA_MEMCPY3D {
        srcXInBytes: source.offset[0],
        srcY: source.offset[1],
        srcZ: source.offset[2],
        srcMemoryType: source.kind,
        srcHost: opaque::<std::ffi::c_void>(source.address).cast_const(),
        srcDevice: source.address,
        srcArray: opaque(source.array),
        srcPitch: source.pitch,
        srcHeight: source.rows,
        dstXInBytes: destination.offset[0],
        dstY: destination.offset[1],
        dstZ: destination.offset[2],
        dstMemoryType: destination.kind,
        dstHost: opaque(destination.address),
        dstDevice: destination.address,
        dstArray: opaque(destination.array),
        dstPitch: destination.pitch,
        dstHeight: destination.rows,
        WidthInBytes: copy.extent.width as usize,
        Height: copy.extent.height as usize,
        Depth: copy.extent.depth as usize,
        ..Plain::zeroed()
    }
}

/// One side of a copy as a `CUDA_MEMCPY3D` has it.
struct CopySide {
    kind: CUmemorytype,
    address: u64,
    array: u64,
    offset: [usize; 3],
    pitch: usize,
    rows: usize,
}

impl CopySide {
    fn new(side: &Side, residence: Residence) -> CopySide {
        let nowhere = CopySide { kind: 0, address: 0, array: 0, offset: [0; 3], pitch: 0, rows: 0 };
        let kind = match residence {
            Residence::Array(array) => {
                // A copy node outlives its array only to fail when it is launched.
                let offset =
                    Array::resolve(opaque(array)).map_or([0; 3], |array| array.offset_of(side.address));
                return CopySide {
                    kind: CU_MEMORYTYPE_ARRAY,
                    array,
                    offset: offset.map(|at| at as usize),
                    ..nowhere
                };
            }
            Residence::Pageable => CU_MEMORYTYPE_HOST,
            Residence::Pinned | Residence::Device => CU_MEMORYTYPE_UNIFIED,
        };
        let rows = side.layer.checked_div(side.pitch).unwrap_or(0) as usize;
        CopySide { kind, address: side.address, pitch: side.pitch as usize, rows, ..nowhere }
    }
}

/// A fill node's operation.
pub fn fill(params: &CUDA_MEMSET_NODE_PARAMS_v1) -> Result<Operation> {
    let destination = Side { address: params.dst, pitch: params.pitch as u64, layer: 0 };
    let (width, height) = (params.width as u64, params.height as u64);
    let fill = Fill::new(device::get()?, destination, params.value, params.elementSize, width, height)?;
    fill.map(Operation::Fill).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}

/// Returns a fill node's parameters.
pub fn of_fill(fill: &Fill) -> CUDA_MEMSET_NODE_PARAMS_v1 {
    CUDA_MEMSET_NODE_PARAMS_v1 {
        dst: fill.destination.address,
        pitch: fill.destination.pitch as usize,
        value: fill.value,
        elementSize: fill.element,
        width: (fill.extent.width / u64::from(fill.element)) as usize,
        height: fill.extent.height as usize,
    }
}

/// A host node's operation.
pub fn host(params: &CUDA_HOST_NODE_PARAMS_v1) -> Result<Operation> {
    let function = params.r#fn.ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
    Ok(Operation::Host(HostCall { function, data: params.userData }))
}

/// Returns a host node's parameters.
pub fn of_host(call: &HostCall) -> CUDA_HOST_NODE_PARAMS_v1 {
    CUDA_HOST_NODE_PARAMS_v1 { r#fn: Some(call.function), userData: call.data }
}

/// The operation of a node of any type.
///
/// # Safety
///
/// `params` is null or valid for a read, and keeps what is asked for of its type.
pub unsafe fn any(params: *const CUgraphNodeParams) -> Result<Operation> {
    // SAFETY: as promised by the caller; the type says which member of the union was written.
    unsafe {
        let params = read(params)?;
        let members = params.anonymous;
        match params.r#type {
            CU_GRAPH_NODE_TYPE_EMPTY => Ok(Operation::Empty),
            CU_GRAPH_NODE_TYPE_KERNEL => {
                let given = members.kernel;
                kernel(&CUDA_KERNEL_NODE_PARAMS_v2 {
                    func: given.func,
                    gridDimX: given.gridDimX,
                    gridDimY: given.gridDimY,
                    gridDimZ: given.gridDimZ,
                    blockDimX: given.blockDimX,
                    blockDimY: given.blockDimY,
                    blockDimZ: given.blockDimZ,
                    sharedMemBytes: given.sharedMemBytes,
                    kernelParams: given.kernelParams,
                    extra: given.extra,
                    kern: given.kern,
                    ctx: given.ctx,
                })
            }
            CU_GRAPH_NODE_TYPE_MEMCPY => copy(&members.memcpy.copyParams),
            CU_GRAPH_NODE_TYPE_MEMSET => {
                let given = members.memset;
                fill(&CUDA_MEMSET_NODE_PARAMS_v1 {
                    dst: given.dst,
                    pitch: given.pitch,
                    value: given.value,
                    elementSize: given.elementSize,
                    width: given.width,
                    height: given.height,
                })
            }
            CU_GRAPH_NODE_TYPE_HOST => {
                host(&CUDA_HOST_NODE_PARAMS_v1 { r#fn: members.host.r#fn, userData: members.host.userData })
            }
            CU_GRAPH_NODE_TYPE_GRAPH => child(members.graph.graph),
            CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
                Ok(Operation::Record(Event::resolve(members.eventRecord.event)?))
            }
            CU_GRAPH_NODE_TYPE_WAIT_EVENT => Ok(Operation::Wait(Event::resolve(members.eventWait.event)?)),
            CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
                let bytes = members.alloc.bytesize as u64;
                Ok(Operation::Allocate(GraphMemory::new(bytes, context::current()?.handle)?))
            }
            CU_GRAPH_NODE_TYPE_MEM_FREE => {
                pool::check_freeable(members.free.dptr)?;
                Ok(Operation::Free(members.free.dptr))
            }
            CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                Ok(Operation::Conditional(Conditional::new(&members.conditional)?))
            }
            CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL | CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => {
                refuse("external semaphore nodes of graphs; no other API shares semaphores with this device")
            }
            CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => refuse(
                "batch memory operation nodes of graphs; capture cuStreamWriteValue and cuStreamWaitValue instead",
            ),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

/// A child graph node's operation: a copy of the graph as it is now.
pub fn child(graph: CUgraph) -> Result<Operation> {
    Ok(Operation::Child(Graph::resolve(graph)?.duplicate()))
}

/// A kernel node's operation with an attribute changed.
pub fn with_attribute(
    operation: Operation,
    attribute: CUkernelNodeAttrID,
    value: &CUkernelNodeAttrValue,
) -> Result<Operation> {
    let Operation::Kernel(launch) = operation else { return fail(CUDA_ERROR_INVALID_VALUE) };
    ensure(attribute < CU_LAUNCH_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE)?;
    if attribute != CU_KERNEL_NODE_ATTRIBUTE_COOPERATIVE {
        return Ok(Operation::Kernel(launch));
    }
    // SAFETY: the attribute's identity says which member of the union was written.
    let cooperative = unsafe { value.cooperative } != 0;
    Ok(Operation::Kernel(launch.reconfigured(Configuration { cooperative, ..launch.configuration })?))
}
