//! Hooks of a process whose launches are reshaped.
//!
//! Each stands in for the ordinary hook of a launch, and makes the launch through it, in the shape
//! that [`crate::actions::reshape`] names. The launch queue enters them too, so that a queued
//! launch is decided when it is made.

use super::Hook;
use super::actions::Action;
use super::launch::{kernel_ex_in, kernel_in};
use super::macros::hook_list;
use crate::actions::reshape;
use crate::record::arguments::Passed;
use cuda_abi::types::*;
use cuda_abi::{ENTRY_POINTS, index, signature};
use cuda_launch::{Dim3, LaunchConfig};
use std::ffi::c_void;

hook_list! {
    cuLaunchKernel => reshaped::kernel,
    cuLaunchKernel_ptsz => reshaped::kernel,
    cuLaunchKernelEx => reshaped::kernel_ex,
    cuLaunchKernelEx_ptsz => reshaped::kernel_ex,
}

/// Launches in other blocks.
pub static ACTION: Action = Action {
    is_wanted: reshape::is_wanted,
    start: |recorder, _| reshape::start(&recorder.file, recorder.objects).is_some(),
    hook,
    watches: is_mapping,
    holding: None,
    is_due: |index| {
        if is_mapping(index) {
            reshape::close();
        }
        false
    },
    flush: || {},
    end: |_| {},
};

/// Whether calls of the entry point at an index end reshaping.
fn is_mapping(index: usize) -> bool {
    reshape::MAPPING.contains(&ENTRY_POINTS[index].base)
}

/// Lets the table name this module as it names others.
use crate::hooks::reshaped;

pub unsafe extern "C" fn kernel<const INDEX: usize>(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    dynamic_shared_bytes: u32,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let (grid, block) = (Dim3::new(grid_x, grid_y, grid_z), Dim3::new(block_x, block_y, block_z));
    let asked = LaunchConfig { grid, block, cluster: Dim3::ZERO, dynamic_shared_bytes };
    let passed = Passed { parameters, extra };
    // SAFETY: the contract of every hook; the shape is one that the driver accepts.
    unsafe {
        let shape = reshape::shape(function, &asked, passed);
        kernel_in::<INDEX>(function, asked, shape, stream, passed)
    }
}

pub unsafe extern "C" fn kernel_ex<const INDEX: usize>(
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let passed = Passed { parameters, extra };
    // SAFETY: the contract of every hook: null, or what the driver reads.
    let plain = unsafe { config.as_ref() }.filter(|config| {
        // SAFETY: likewise the attributes that it points to.
        unsafe { is_plain(config) }
    });
    let shape = plain.and_then(|config| {
        let asked = LaunchConfig {
            grid: Dim3::new(config.gridDimX, config.gridDimY, config.gridDimZ),
            block: Dim3::new(config.blockDimX, config.blockDimY, config.blockDimZ),
            cluster: Dim3::ZERO,
            dynamic_shared_bytes: config.sharedMemBytes,
        };
        let (launch, block) = reshape::shape(function, &asked, passed)?;
        Some((in_shape(config, &launch), block))
    });
    let made = shape.as_ref().map(|(made, block)| (made, *block));
    // SAFETY: the contract of every hook; the shape is one that the driver accepts.
    unsafe { kernel_ex_in::<INDEX>(config, made, function, passed) }
}

fn in_shape(config: &CUlaunchConfig, launch: &LaunchConfig) -> CUlaunchConfig {
    let LaunchConfig { grid, block, .. } = *launch;
    CUlaunchConfig {
        gridDimX: grid.x,
        gridDimY: grid.y,
        gridDimZ: grid.z,
        blockDimX: block.x,
        blockDimY: block.y,
        blockDimZ: block.z,
        ..*config
    }
}

/// Whether no attribute of a launch is about blocks, their order, or other work.
///
/// # Safety
/// `config.attrs` is null or points to `config.numAttrs` attributes.
unsafe fn is_plain(config: &CUlaunchConfig) -> bool {
    if config.attrs.is_null() || config.numAttrs == 0 {
        return true;
    }
    // SAFETY: by contract.
    let attributes = unsafe { std::slice::from_raw_parts(config.attrs, config.numAttrs as usize) };
    attributes.iter().all(|attribute| {
        matches!(
            attribute.id,
            CU_LAUNCH_ATTRIBUTE_IGNORE
                | CU_LAUNCH_ATTRIBUTE_PRIORITY
                | CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY
                | CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
        )
    })
}
