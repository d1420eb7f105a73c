//! Execution control and occupancy: functions, and every way to launch one.

use crate::device::{self, Capability, MAX_ARGUMENT_BYTES};
use crate::entry::{array, entries, opaque, read, refuse, write, write_if_wanted};
use crate::error::{Error, Result, ensure, fail};
use crate::launch::{Arguments, Launch, LegacyLaunch, blocks_per_multiprocessor, device_limits};
use crate::module::Function;
use crate::observation::Configuration;
use crate::stream::operation::Operation;
use crate::stream::{DefaultStream, Stream};
use cuda_abi::types::*;
use cuda_launch::{Dim3, LaunchConfig};
use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

entries! {
    /// Launches a kernel.
    fn cuLaunchKernel(
        function: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        dynamic_shared_bytes: u32,
        stream: CUstream,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) also cuLaunchKernel_ptsz [default] {
        let config = LaunchConfig::new([grid_x, grid_y, grid_z], [block_x, block_y, block_z])
            .with_dynamic_shared_bytes(dynamic_shared_bytes);
        let configuration = Configuration { launch: config, cooperative: false };
        launch(function, configuration, &*Stream::resolve(stream, default)?, arguments, extra)
    }

    /// Launches a kernel with attributes.
    fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: CUfunction,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    )
        also cuLaunchKernelEx_ptsz [default]
        partly "events at a launch's start are refused, and clusters larger than one block unless APEX_CPU_CAPABILITY is 9.0 or 12.0"
    {
        let config = read(config)?;
        let (cooperative, cluster) = read_attributes(array(config.attrs, config.numAttrs as usize)?)?;
        let launch_config = LaunchConfig {
            grid: Dim3::new(config.gridDimX, config.gridDimY, config.gridDimZ),
            block: Dim3::new(config.blockDimX, config.blockDimY, config.blockDimZ),
            cluster,
            dynamic_shared_bytes: config.sharedMemBytes,
        };
        let configuration = Configuration { launch: launch_config, cooperative };
        launch(function, configuration, &*Stream::resolve(config.hStream, default)?, arguments, extra)
    }

    /// Launches a kernel all of whose blocks are resident at once.
    fn cuLaunchCooperativeKernel(
        function: CUfunction,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        dynamic_shared_bytes: u32,
        stream: CUstream,
        arguments: *mut *mut c_void,
    ) also cuLaunchCooperativeKernel_ptsz [default] {
        let config = LaunchConfig::new([grid_x, grid_y, grid_z], [block_x, block_y, block_z])
            .with_dynamic_shared_bytes(dynamic_shared_bytes);
        let configuration = Configuration { launch: config, cooperative: true };
        launch(function, configuration, &*Stream::resolve(stream, default)?, arguments, std::ptr::null_mut())
    }

    /// Prepares a launch: the block's extents.
    fn cuFuncSetBlockShape(function: CUfunction, x: i32, y: i32, z: i32) {
        ensure(x > 0 && y > 0 && z > 0, CUDA_ERROR_INVALID_VALUE)?;
        legacy(&*Function::resolve(function)?).block = Dim3::new(x as u32, y as u32, z as u32);
        Ok(())
    }

    /// Prepares a launch: dynamic shared memory.
    fn cuFuncSetSharedSize(function: CUfunction, bytes: u32) {
        legacy(&*Function::resolve(function)?).dynamic_shared_bytes = bytes;
        Ok(())
    }

    /// Prepares a launch: how many bytes of arguments there are.
    fn cuParamSetSize(function: CUfunction, bytes: u32) {
        ensure(bytes <= MAX_ARGUMENT_BYTES, CUDA_ERROR_INVALID_VALUE)?;
        legacy(&*Function::resolve(function)?).arguments.resize(bytes as usize, 0);
        Ok(())
    }

    /// Prepares a launch: a 32-bit argument.
    fn cuParamSeti(function: CUfunction, offset: i32, value: u32) {
        set_argument(&*Function::resolve(function)?, offset, &value.to_le_bytes())
    }

    /// Prepares a launch: a float argument.
    fn cuParamSetf(function: CUfunction, offset: i32, value: f32) {
        set_argument(&*Function::resolve(function)?, offset, &value.to_le_bytes())
    }

    /// Prepares a launch: an argument of any size.
    fn cuParamSetv(function: CUfunction, offset: i32, value: *mut c_void, bytes: u32) {
        set_argument(&*Function::resolve(function)?, offset, array(value.cast::<u8>(), bytes as usize)?)
    }

    /// Launches one block of what has been prepared.
    fn cuLaunch(function: CUfunction) {
        launch_prepared(function, [1, 1], std::ptr::null_mut())
    }

    /// Launches what has been prepared.
    fn cuLaunchGrid(function: CUfunction, width: i32, height: i32) {
        launch_prepared(function, [width, height], std::ptr::null_mut())
    }

    /// Launches what has been prepared, in a stream.
    fn cuLaunchGridAsync(function: CUfunction, width: i32, height: i32, stream: CUstream) {
        launch_prepared(function, [width, height], stream)
    }

    /// An attribute of a function.
    fn cuFuncGetAttribute(value: *mut i32, attribute: CUfunction_attribute, function: CUfunction) {
        write(value, Function::resolve(function)?.attribute(attribute)?)
    }

    /// Sets an attribute of a function.
    fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: i32) {
        Function::resolve(function)?.set_attribute(attribute, value)
    }

    /// Says how a function prefers to split cache and shared memory: no effect here.
    fn cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache) {
        ensure(config <= CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE)?;
        Function::resolve(function)?.settings.cache.store(config as i32, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the width of shared memory's banks: no effect, as on every GPU since Maxwell.
    fn cuFuncSetSharedMemConfig(function: CUfunction, config: CUsharedconfig) {
        ensure(config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE, CUDA_ERROR_INVALID_VALUE)?;
        Function::resolve(function).map(drop)
    }

    /// The module that a function is part of.
    fn cuFuncGetModule(module: *mut CUmodule, function: CUfunction) {
        write(module, opaque(Function::resolve(function)?.module))
    }

    /// A function's name; it lives as long as the module.
    fn cuFuncGetName(name: *mut *const c_char, function: CUfunction) {
        write(name, Function::resolve(function)?.name.as_ptr())
    }

    /// Returns the offset and size of one of a function's parameters, in bytes.
    fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) {
        let function = Function::resolve(function)?;
        let Some(layout) = function.attributes.params.get(index) else { return fail(CUDA_ERROR_INVALID_VALUE) };
        write(offset, layout.offset)?;
        write_if_wanted(size, layout.size);
        Ok(())
    }

    /// Returns the number of a function's parameters.
    fn cuFuncGetParamCount(function: CUfunction, count: *mut usize) {
        write(count, Function::resolve(function)?.attributes.params.len())
    }

    /// Returns that a function's code is loaded: it is, from the start.
    fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function: CUfunction) {
        Function::resolve(function)?;
        write(state, CU_FUNCTION_LOADING_STATE_LOADED)
    }

    /// Loads a function's code: it is loaded from the start.
    fn cuFuncLoad(function: CUfunction) {
        Function::resolve(function).map(drop)
    }

    /// Returns the number of a function's blocks that a multiprocessor holds at once.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32,
        function: CUfunction,
        threads: i32,
        dynamic_shared: usize,
    ) {
        write(blocks, active_blocks(&*Function::resolve(function)?, threads, dynamic_shared)?)
    }

    /// Returns the number of a function's blocks that a multiprocessor holds at once.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut i32,
        function: CUfunction,
        threads: i32,
        dynamic_shared: usize,
        flags: u32,
    ) {
        ensure(flags & !CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE == 0, CUDA_ERROR_INVALID_VALUE)?;
        write(blocks, active_blocks(&*Function::resolve(function)?, threads, dynamic_shared)?)
    }

    /// The block size with the highest occupancy, and how many such blocks fill the device.
    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut i32,
        block: *mut i32,
        function: CUfunction,
        shared_of_block: CUoccupancyB2DSize,
        dynamic_shared: usize,
        limit: i32,
    ) {
        let (blocks, threads) = best_block(&*Function::resolve(function)?, shared_of_block, dynamic_shared, limit)?;
        write(grid, blocks)?;
        write(block, threads)
    }

    /// The block size with the highest occupancy, and how many such blocks fill the device.
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut i32,
        block: *mut i32,
        function: CUfunction,
        shared_of_block: CUoccupancyB2DSize,
        dynamic_shared: usize,
        limit: i32,
        flags: u32,
    ) {
        ensure(flags & !CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE == 0, CUDA_ERROR_INVALID_VALUE)?;
        let (blocks, threads) = best_block(&*Function::resolve(function)?, shared_of_block, dynamic_shared, limit)?;
        write(grid, blocks)?;
        write(block, threads)
    }

    /// Returns the dynamic shared memory that a block may use if `blocks` fit on a multiprocessor.
    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize,
        function: CUfunction,
        blocks: i32,
        threads: i32,
    ) {
        ensure(blocks > 0, CUDA_ERROR_INVALID_VALUE)?;
        let function = Function::resolve(function)?;
        write(bytes, available_shared(&function, blocks, threads)?)
    }
}

/// # Safety
///
/// As for [`Arguments::read`].
unsafe fn launch(
    named: CUfunction,
    configuration: Configuration,
    stream: &Stream,
    arguments: *const *mut c_void,
    extra: *const *mut c_void,
) -> Result {
    let function = Function::resolve_in(named, stream)?;
    // SAFETY: as promised by the caller.
    let arguments = unsafe { Arguments::read(&function.attributes, arguments, extra)? };
    stream.enqueue(Operation::Kernel(Launch::of_function(function, named, configuration, arguments)?))
}

/// Reads a launch's attributes: returns whether it is cooperative, and its cluster; zeros without
/// one.
fn read_attributes(attributes: &[CUlaunchAttribute]) -> Result<(bool, Dim3)> {
    let (mut cooperative, mut cluster) = (false, Dim3::ZERO);
    for attribute in attributes {
        // SAFETY: the attribute's identity says which member of the union was written.
        unsafe {
            match attribute.id {
                CU_LAUNCH_ATTRIBUTE_COOPERATIVE => cooperative = attribute.value.cooperative != 0,
                CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION => {
                    let given = attribute.value.clusterDim;
                    cluster = Dim3::new(given.x, given.y, given.z);
                    if cluster != Dim3::ONE && device::capability() == Capability::Ampere {
                        return refuse(
                            "thread block clusters, which belong to compute capability 9.0; APEX_CPU_CAPABILITY=9.0 \
                             makes the device one",
                        );
                    }
                }
                CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT | CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
                    return refuse(
                        "events that a launch records (programmatic and completion events); record the event after the \
                         launch with cuEventRecord",
                    );
                }
                // The others are hints, or ask for less order than there is.
                _ => {}
            }
        }
    }
    Ok((cooperative, cluster))
}

fn legacy(function: &Function) -> MutexGuard<'_, LegacyLaunch> {
    function.legacy.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set_argument(function: &Function, offset: i32, bytes: &[u8]) -> Result {
    let start = usize::try_from(offset).map_err(|_| Error(CUDA_ERROR_INVALID_VALUE))?;
    let end = start.checked_add(bytes.len()).filter(|end| *end <= MAX_ARGUMENT_BYTES as usize);
    let end = end.ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
    let mut prepared = legacy(function);
    if prepared.arguments.len() < end {
        prepared.arguments.resize(end, 0);
    }
    prepared.arguments[start..end].copy_from_slice(bytes);
    Ok(())
}

fn launch_prepared(named: CUfunction, grid: [i32; 2], stream: CUstream) -> Result {
    let function = Function::resolve(named)?;
    let prepared = legacy(&function).clone();
    let [width, height] = grid.map(|extent| u32::try_from(extent).unwrap_or(0));
    let configuration = Configuration {
        launch: LaunchConfig::new((width, height), prepared.block)
            .with_dynamic_shared_bytes(prepared.dynamic_shared_bytes),
        cooperative: false,
    };
    let mut bytes = prepared.arguments;
    bytes.resize(function.attributes.param_bytes(), 0);
    let arguments = Arguments::new(&function.attributes, bytes);
    let stream = Stream::resolve(stream, DefaultStream::Legacy)?;
    stream.enqueue(Operation::Kernel(Launch::new(named, configuration, arguments)?))
}

fn active_blocks(function: &Function, threads: i32, dynamic_shared: usize) -> Result<i32> {
    let threads =
        u32::try_from(threads).ok().filter(|threads| *threads > 0).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
    let shared = u32::try_from(dynamic_shared).map_err(|_| Error(CUDA_ERROR_INVALID_VALUE))?;
    Ok(blocks_per_multiprocessor(function, threads, shared) as i32)
}

/// The largest block among those with the highest occupancy, and how many of them fill the device:
/// blocks, threads.
///
/// # Safety
///
/// `shared_of_block` can be called.
unsafe fn best_block(
    function: &Function,
    shared_of_block: CUoccupancyB2DSize,
    dynamic_shared: usize,
    limit: i32,
) -> Result<(i32, i32)> {
    let most = function
        .attributes
        .function
        .max_threads_per_block
        .min(device::fixed_attributes().max_threads_per_block) as i32;
    let most = if limit <= 0 { most } else { most.min(limit) };
    let mut best = (0, 0);
    let mut threads = (most as u32).next_multiple_of(device::fixed_attributes().warp_size) as i32;
    while threads > 0 {
        let candidate = threads.min(most);
        let shared = match shared_of_block {
            // SAFETY: as promised by the caller.
            Some(shared_of_block) => unsafe { shared_of_block(candidate) },
            None => dynamic_shared,
        };
        let blocks = active_blocks(function, candidate, shared)?;
        if blocks * candidate > best.0 * best.1 {
            best = (blocks, candidate);
        }
        threads -= device::fixed_attributes().warp_size as i32;
    }
    Ok((best.0 * device::get()?.attributes.multiprocessors as i32, best.1))
}

/// The most dynamic shared memory with which `blocks` blocks fit, found by bisection: more memory
/// never admits more.
fn available_shared(function: &Function, blocks: i32, threads: i32) -> Result<usize> {
    let fits = |bytes: u32| active_blocks(function, threads, bytes as usize).map(|active| active >= blocks);
    ensure(fits(0)?, CUDA_ERROR_INVALID_VALUE)?;
    let (mut enough, mut too_much) = (0, device_limits().attributes.max_shared_bytes_per_block_optin + 1);
    while too_much - enough > 1 {
        let middle = enough + (too_much - enough) / 2;
        if fits(middle)? { enough = middle } else { too_much = middle }
    }
    Ok(enough as usize)
}
