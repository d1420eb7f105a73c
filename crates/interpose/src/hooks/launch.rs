//! Kernel launches in all their forms.

use crate::driver::real_at;
use crate::launch::{Launch, observe};
use cuda_abi::signature;
use cuda_abi::types::*;
use std::ffi::c_void;
use trace::layout::flags;

pub unsafe extern "C" fn kernel<const INDEX: usize>(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    dynamic_shared: u32,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let launch = Launch {
        function,
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        cluster: [0; 3],
        dynamic_shared,
        stream,
        flags: 0,
        can_be_timed: true,
    };
    observe::<INDEX>(launch, || {
        // SAFETY: the contract of every hook.
        unsafe {
            real_at::<signature::cuLaunchKernel>(INDEX)(
                function,
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                dynamic_shared,
                stream,
                parameters,
                extra,
            )
        }
    })
}

pub unsafe extern "C" fn cooperative<const INDEX: usize>(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    dynamic_shared: u32,
    stream: CUstream,
    parameters: *mut *mut c_void,
) -> CUresult {
    let launch = Launch {
        function,
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        cluster: [0; 3],
        dynamic_shared,
        stream,
        flags: flags::COOPERATIVE,
        can_be_timed: true,
    };
    observe::<INDEX>(launch, || {
        // SAFETY: the contract of every hook.
        unsafe {
            real_at::<signature::cuLaunchCooperativeKernel>(INDEX)(
                function,
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                dynamic_shared,
                stream,
                parameters,
            )
        }
    })
}

pub unsafe extern "C" fn kernel_ex<const INDEX: usize>(
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let forward = || {
        // SAFETY: the contract of every hook.
        unsafe { real_at::<signature::cuLaunchKernelEx>(INDEX)(config, function, parameters, extra) }
    };
    // SAFETY: the contract of every hook: null, or what the driver reads.
    match unsafe { config.as_ref() } {
        // SAFETY: likewise the attributes that it points to.
        Some(config) => observe::<INDEX>(unsafe { launch_of(config, function) }, forward),
        None => forward(),
    }
}

/// What a launch configuration asks for.
///
/// # Safety
/// `config.attrs` is null or points to `config.numAttrs` attributes.
#[inline]
unsafe fn launch_of(config: &CUlaunchConfig, function: CUfunction) -> Launch {
    let mut launch = Launch {
        function,
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        cluster: [0; 3],
        dynamic_shared: config.sharedMemBytes,
        stream: config.hStream,
        flags: 0,
        can_be_timed: true,
    };
    let count = if config.attrs.is_null() { 0 } else { config.numAttrs as usize };
    for at in 0..count {
        // SAFETY: by contract.
        let attribute = unsafe { &*config.attrs.add(at) };
        let value = &attribute.value;
        // SAFETY: the member of the union that the attribute's identifier names.
        unsafe {
            match attribute.id {
                CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                    launch.cluster = [value.clusterDim.x, value.clusterDim.y, value.clusterDim.z];
                }
                CU_LAUNCH_ATTRIBUTE_COOPERATIVE if value.cooperative != 0 => {
                    launch.flags |= flags::COOPERATIVE
                }
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                    if value.programmaticStreamSerializationAllowed != 0 =>
                {
                    launch.can_be_timed = false;
                }
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                    launch.can_be_timed = false;
                }
                _ => {}
            }
        }
    }
    launch
}
