//! Kernel launches in all their forms.

use super::call::Call;
use super::macros::hooks;
use super::observe;
use crate::objects::Objects;
use crate::record::arguments::Passed;
use crate::record::launch::Launch;
use crate::switch::guarded;
use crate::tables::PackedBlock;
use apex_trace::layout::flags;
use cuda_abi::signature;
use cuda_abi::types::*;
use cuda_launch::{Dim3, LaunchConfig};
use std::ffi::c_void;
use std::ptr::null_mut;

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
    let config = LaunchConfig {
        grid: Dim3::new(grid_x, grid_y, grid_z),
        block: Dim3::new(block_x, block_y, block_z),
        cluster: Dim3::ZERO,
        dynamic_shared_bytes: dynamic_shared,
    };
    // SAFETY: the contract of every hook.
    unsafe { kernel_in::<INDEX>(function, config, None, stream, Passed { parameters, extra }) }
}

/// Makes and records a launch of `function` as [`kernel`] does, in blocks of another shape if there
/// is one: the configuration and the shape.
///
/// # Safety
/// The contract of every hook, and the driver accepts a launch in that shape where it accepts the
/// program's.
#[inline(always)]
pub unsafe fn kernel_in<const INDEX: usize>(
    function: CUfunction,
    config: LaunchConfig,
    reshaped: Option<(LaunchConfig, PackedBlock)>,
    stream: CUstream,
    passed: Passed,
) -> CUresult {
    let block = reshaped.map(|(_, block)| block);
    let asked = Launch { function, config, block, stream, flags: 0, can_be_timed: true, passed };
    let LaunchConfig { grid, block, dynamic_shared_bytes, .. } = reshaped.map_or(config, |(made, _)| made);
    let arguments = (
        function,
        grid.x,
        grid.y,
        grid.z,
        block.x,
        block.y,
        block.z,
        dynamic_shared_bytes,
        stream,
        passed.parameters,
        passed.extra,
    );
    // SAFETY: by contract.
    observe::launch(unsafe { Call::<signature::cuLaunchKernel, INDEX>::new(arguments) }, asked)
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
    let asked = Launch {
        function,
        config: LaunchConfig {
            grid: Dim3::new(grid_x, grid_y, grid_z),
            block: Dim3::new(block_x, block_y, block_z),
            cluster: Dim3::ZERO,
            dynamic_shared_bytes: dynamic_shared,
        },
        block: None,
        stream,
        flags: flags::COOPERATIVE,
        can_be_timed: true,
        passed: Passed { parameters, extra: null_mut() },
    };
    let arguments =
        (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_shared, stream, parameters);
    // SAFETY: the contract of every hook.
    observe::launch(unsafe { Call::<signature::cuLaunchCooperativeKernel, INDEX>::new(arguments) }, asked)
}

pub unsafe extern "C" fn kernel_ex<const INDEX: usize>(
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the contract of every hook.
    unsafe { kernel_ex_in::<INDEX>(config, None, function, Passed { parameters, extra }) }
}

/// As [`kernel_in`], for [`kernel_ex`]: the program's configuration, and the one that is launched
/// if it is another one.
///
/// # Safety
/// As [`kernel_in`].
#[inline(always)]
pub unsafe fn kernel_ex_in<const INDEX: usize>(
    config: *const CUlaunchConfig,
    reshaped: Option<(&CUlaunchConfig, PackedBlock)>,
    function: CUfunction,
    passed: Passed,
) -> CUresult {
    let made = reshaped.map_or(config, |(made, _)| std::ptr::from_ref(made));
    let arguments = (made, function, passed.parameters, passed.extra);
    // SAFETY: by contract.
    let call = unsafe { Call::<signature::cuLaunchKernelEx, INDEX>::new(arguments) };
    // SAFETY: the contract of every hook: null, or what the driver reads.
    match unsafe { config.as_ref() } {
        Some(config) => {
            // SAFETY: likewise the attributes that it points to.
            let asked = unsafe { launch_of(config, function, passed) };
            observe::launch(call, Launch { block: reshaped.map(|(_, block)| block), ..asked })
        }
        None => call.forward(),
    }
}

/// Reads the launch that a configuration requests.
///
/// # Safety
/// `config.attrs` is null or points to `config.numAttrs` attributes.
#[inline]
unsafe fn launch_of(config: &CUlaunchConfig, function: CUfunction, passed: Passed) -> Launch {
    let mut launch = Launch {
        function,
        config: LaunchConfig {
            grid: Dim3::new(config.gridDimX, config.gridDimY, config.gridDimZ),
            block: Dim3::new(config.blockDimX, config.blockDimY, config.blockDimZ),
            cluster: Dim3::ZERO,
            dynamic_shared_bytes: config.sharedMemBytes,
        },
        block: None,
        stream: config.hStream,
        flags: 0,
        can_be_timed: true,
        passed,
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
                    launch.config.cluster =
                        Dim3::new(value.clusterDim.x, value.clusterDim.y, value.clusterDim.z);
                }
                CU_LAUNCH_ATTRIBUTE_COOPERATIVE if value.cooperative != 0 => {
                    launch.flags |= flags::COOPERATIVE
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

/// One launch on each of several devices: a record each. The functions belong to the devices'
/// contexts, of which none need be current.
pub unsafe extern "C" fn cooperative_on_many<const INDEX: usize>(
    list: *mut CUDA_LAUNCH_PARAMS,
    count: u32,
    flags: u32,
) -> CUresult {
    // SAFETY: the contract of every hook.
    let call =
        unsafe { Call::<signature::cuLaunchCooperativeKernelMultiDevice, INDEX>::new((list, count, flags)) };
    observe::launches(call, move |result| {
        // A call that failed may have been refused for its count; one entry is there all the same.
        let count = if result == CUDA_SUCCESS { count } else { count.min(1) };
        if list.is_null() {
            return Vec::new();
        }
        // SAFETY: the contract of every hook: as many entries as the program says.
        unsafe { std::slice::from_raw_parts(list, count as usize) }.iter().map(launch_of_entry).collect()
    })
}

fn launch_of_entry(entry: &CUDA_LAUNCH_PARAMS) -> Launch {
    Launch {
        function: entry.function,
        config: LaunchConfig {
            grid: Dim3::new(entry.gridDimX, entry.gridDimY, entry.gridDimZ),
            block: Dim3::new(entry.blockDimX, entry.blockDimY, entry.blockDimZ),
            cluster: Dim3::ZERO,
            dynamic_shared_bytes: entry.sharedMemBytes,
        },
        block: None,
        stream: entry.hStream,
        flags: flags::COOPERATIVE,
        can_be_timed: false,
        passed: Passed { parameters: entry.kernelParams, extra: null_mut() },
    }
}

hooks! {
    /// The oldest way to launch sets block and shared memory on the function beforehand.
    fn set_block_shape(function: CUfunction, x: i32, y: i32, z: i32) after(result) {
        remember(result, function, |config| config.block = Dim3::new(x as u32, y as u32, z as u32));
    } |_notes| {}

    fn set_shared_size(function: CUfunction, bytes: u32) after(result) {
        remember(result, function, |config| config.dynamic_shared_bytes = bytes);
    } |_notes| {}
}

fn remember(result: CUresult, function: CUfunction, change: impl FnOnce(&mut LaunchConfig)) {
    if result == CUDA_SUCCESS
        && let Some(objects) = Objects::existing()
    {
        guarded(|| objects.change_legacy_config(function, change));
    }
}

pub unsafe extern "C" fn legacy<const INDEX: usize>(function: CUfunction) -> CUresult {
    // SAFETY: the contract of every hook.
    let call = unsafe { Call::<signature::cuLaunch, INDEX>::new((function,)) };
    observe::launch(call, legacy_launch(function, [1, 1], null_mut()))
}

pub unsafe extern "C" fn legacy_grid<const INDEX: usize>(
    function: CUfunction,
    width: i32,
    height: i32,
) -> CUresult {
    // SAFETY: the contract of every hook.
    let call = unsafe { Call::<signature::cuLaunchGrid, INDEX>::new((function, width, height)) };
    observe::launch(call, legacy_launch(function, [width, height], null_mut()))
}

pub unsafe extern "C" fn legacy_grid_async<const INDEX: usize>(
    function: CUfunction,
    width: i32,
    height: i32,
    stream: CUstream,
) -> CUresult {
    // SAFETY: the contract of every hook.
    let call = unsafe { Call::<signature::cuLaunchGridAsync, INDEX>::new((function, width, height, stream)) };
    observe::launch(call, legacy_launch(function, [width, height], stream))
}

fn legacy_launch(function: CUfunction, grid: [i32; 2], stream: CUstream) -> Launch {
    let config = Objects::existing().map(|objects| objects.legacy_config(function)).unwrap_or_default();
    Launch {
        function,
        config: LaunchConfig { grid: Dim3::new(grid[0] as u32, grid[1] as u32, 1), ..config },
        block: None,
        stream,
        flags: 0,
        can_be_timed: true,
        passed: Passed::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_abi::Plain as _;

    /// Returns the launch that a configuration with one attribute requests.
    fn with(id: CUlaunchAttributeID, set: impl FnOnce(&mut CUlaunchAttributeValue)) -> Launch {
        let mut attribute = CUlaunchAttribute { id, ..CUlaunchAttribute::zeroed() };
        set(&mut attribute.value);
        let config = CUlaunchConfig { numAttrs: 1, attrs: &raw mut attribute, ..CUlaunchConfig::zeroed() };
        let passed = Passed { parameters: null_mut(), extra: null_mut() };
        // SAFETY: one attribute, which lives until the end of this function.
        unsafe { launch_of(&config, null_mut(), passed) }
    }

    #[test]
    fn a_launch_that_may_begin_early_can_be_timed_and_one_that_names_an_event_cannot() {
        let early = with(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, |value| {
            value.programmaticStreamSerializationAllowed = 1;
        });
        assert!(early.can_be_timed);
        assert!(!with(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, |_| {}).can_be_timed);
        assert!(!with(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, |_| {}).can_be_timed);
    }
}
