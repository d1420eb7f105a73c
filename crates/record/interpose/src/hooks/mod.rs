//! The entry points that are not bare jumps.
//!
//! A hook is a generic function over the index of the entry point that it stands for, so all forms
//! of a call (`_v2`, `_ptsz`, …) with the same signature share one body. [`table`] says which hook
//! stands for which symbol; the compiler holds each against the symbol's signature.
//!
//! # Contract of every hook
//! 1. *Entered* in place of the driver's function of that name, by a program that keeps to that
//!    function's contract. Its arguments are therefore what the function demands: pointers it reads
//!    are valid for reading, out-parameters that are not null are valid for writing, and hold what
//!    the driver wrote once the call has succeeded. What a hook reads, it reads as the driver
//!    itself would.
//! 2. *Decides* what becomes of the call, which it holds as a value ([`call::Call`]); *forwards*
//!    what was decided, with arguments that meet the function's contract; *records* what was asked
//!    and what was done ([`observe`]). All hooks but three sorts forward the program's own
//!    arguments before they return, and return what the driver returned. `queued` copies the
//!    arguments and forwards the copy later, in order; `pooled` serves an allocation or a free from
//!    memory of the driver's that it kept, and may forward nothing; `reshaped` forwards a launch
//!    with the same threads in other blocks.
//! 3. *Never panics* across the ABI: whatever could panic runs under [`crate::switch::guarded`].

pub mod actions;
mod call;
mod context;
mod copy;
mod event;
mod graph;
mod hashed;
mod launch;
mod macros;
mod memory;
mod module;
mod observe;
mod observers;
pub mod pooled;
mod process;
mod process_address;
pub mod queued;
mod reshaped;
mod retargeted;
mod scheduled;
mod settings;
mod stream;
mod sync;
mod told;

use call::Function;
use cuda_abi::{COUNT, ENTRY_POINTS, index, signature};
use macros::index_table;

pub use process_address::substitute_by;

/// Whether the entry point at `index` has a hook.
pub fn has(index: usize) -> bool {
    table()[index].is_some()
}

/// Whether calls of the entry point at `index` pass a hook where memory is pooled that tells the
/// pool what they mean to it.
pub fn is_seen_by_pool(index: usize) -> bool {
    has(index) && !settings::has(index) && !observers::has(index) || pooled::hook(index).is_some()
}

/// Whether the entry point at `index` gives addresses of others.
pub fn gives_addresses(index: usize) -> bool {
    matches!(index, index::cuGetProcAddress | index::cuGetProcAddress_v2)
}

/// Whether the entry point at `index` launches one kernel.
pub fn is_launch(index: usize) -> bool {
    ENTRY_POINTS[index].base.starts_with("cuLaunchKernel")
}

/// A hook's address.
#[derive(Clone, Copy)]
pub struct Hook {
    /// Can be called with the signature of the symbol in whose place of the [`table`] it is.
    pub address: *const (),
}

// SAFETY: the address of code.
unsafe impl Sync for Hook {}

/// The hooks, by index of their entry point.
pub fn table() -> &'static [Option<Hook>; COUNT] {
    static TABLE: [Option<Hook>; COUNT] = build();
    &TABLE
}

/// The hook of the entry point at `index`, which has one.
const fn table_at(index: usize) -> Hook {
    match build()[index] {
        Some(hook) => hook,
        None => panic!("no hook"),
    }
}

/// The ordinary hook of the entry point at `INDEX`, which has one.
///
/// # Safety
/// `F` is the type of that entry point.
#[inline(always)]
unsafe fn ordinary<F: Function, const INDEX: usize>() -> F {
    const { assert!(size_of::<F>() == size_of::<*const ()>()) };
    let hook = const { table_at(INDEX) };
    // SAFETY: the table holds the hook's address under this index, and by contract its type is `F`.
    unsafe { std::mem::transmute_copy::<*const (), F>(&hook.address) }
}

index_table! {
    cuInit => process::init,
    cuGetProcAddress => process_address::get,
    cuGetProcAddress_v2 => process_address::get_with_status,

    cuLaunchKernel => launch::kernel,
    cuLaunchKernel_ptsz => launch::kernel,
    cuLaunchKernelEx => launch::kernel_ex,
    cuLaunchKernelEx_ptsz => launch::kernel_ex,
    cuLaunchCooperativeKernel => launch::cooperative,
    cuLaunchCooperativeKernel_ptsz => launch::cooperative,
    cuLaunchCooperativeKernelMultiDevice => launch::cooperative_on_many,
    cuFuncSetBlockShape => launch::set_block_shape,
    cuFuncSetSharedSize => launch::set_shared_size,
    cuLaunch => launch::legacy,
    cuLaunchGrid => launch::legacy_grid,
    cuLaunchGridAsync => launch::legacy_grid_async,

    cuGraphInstantiate => graph::instantiate_with_log,
    cuGraphInstantiate_v2 => graph::instantiate_with_log,
    cuGraphInstantiateWithFlags => graph::instantiate,
    cuGraphInstantiateWithParams => graph::instantiate_with_parameters,
    cuGraphInstantiateWithParams_ptsz => graph::instantiate_with_parameters,
    cuGraphExecUpdate => graph::update_with_node,
    cuGraphExecUpdate_v2 => graph::update,
    cuGraphExecKernelNodeSetParams => graph::set_kernel_v1,
    cuGraphExecKernelNodeSetParams_v2 => graph::set_kernel,
    cuGraphExecNodeSetParams => graph::set_node,
    cuGraphExecChildGraphNodeSetParams => graph::set_child,
    cuGraphNodeSetEnabled => graph::set_enabled,
    cuGraphUpload => graph::upload,
    cuGraphUpload_ptsz => graph::upload,
    cuGraphLaunch => graph::launch,
    cuGraphLaunch_ptsz => graph::launch,
    cuGraphExecDestroy => graph::destroy,

    cuMemAlloc_v2 => memory::allocate,
    cuMemAllocPitch_v2 => memory::allocate_pitched,
    cuMemAllocManaged => memory::allocate_managed,
    cuMemAllocHost_v2 => memory::allocate_host,
    cuMemHostAlloc => memory::allocate_host_with_flags,
    cuMemHostRegister => memory::register_host,
    cuMemHostRegister_v2 => memory::register_host,
    cuMemAllocAsync => memory::allocate_async,
    cuMemAllocAsync_ptsz => memory::allocate_async,
    cuMemAllocFromPoolAsync => memory::allocate_from_pool,
    cuMemAllocFromPoolAsync_ptsz => memory::allocate_from_pool,
    cuMemFree_v2 => memory::free,
    cuMemFreeAsync => memory::free_async,
    cuMemFreeAsync_ptsz => memory::free_async,
    cuMemFreeHost => memory::free_host,
    cuMemHostUnregister => memory::free_host,
    cuMemCreate => memory::create,
    cuMemRelease => memory::release,
    cuMemMap => memory::map,
    cuMemUnmap => memory::unmap,
    cuArrayCreate_v2 => memory::create_array,
    cuArray3DCreate_v2 => memory::create_3d_array,
    cuMipmappedArrayCreate => memory::create_mipmapped_array,
    cuArrayDestroy => memory::destroy_array,
    cuMipmappedArrayDestroy => memory::destroy_mipmapped_array,
    cuIpcOpenMemHandle => memory::open_ipc,
    cuIpcOpenMemHandle_v2 => memory::open_ipc,
    cuIpcCloseMemHandle => memory::close_ipc,

    cuMemcpy => copy::any,
    cuMemcpy_ptds => copy::any,
    cuMemcpyAsync => copy::any_async,
    cuMemcpyAsync_ptsz => copy::any_async,
    cuMemcpyWithAttributesAsync => copy::any_with_attributes,
    cuMemcpyWithAttributesAsync_ptsz => copy::any_with_attributes,
    cuMemcpyPeer => copy::peer,
    cuMemcpyPeer_ptds => copy::peer,
    cuMemcpyPeerAsync => copy::peer_async,
    cuMemcpyPeerAsync_ptsz => copy::peer_async,
    cuMemcpyHtoD_v2 => copy::host_to_device,
    cuMemcpyHtoD_v2_ptds => copy::host_to_device,
    cuMemcpyHtoDAsync_v2 => copy::host_to_device_async,
    cuMemcpyHtoDAsync_v2_ptsz => copy::host_to_device_async,
    cuMemcpyDtoH_v2 => copy::device_to_host,
    cuMemcpyDtoH_v2_ptds => copy::device_to_host,
    cuMemcpyDtoHAsync_v2 => copy::device_to_host_async,
    cuMemcpyDtoHAsync_v2_ptsz => copy::device_to_host_async,
    cuMemcpyDtoD_v2 => copy::device_to_device,
    cuMemcpyDtoD_v2_ptds => copy::device_to_device,
    cuMemcpyDtoDAsync_v2 => copy::device_to_device_async,
    cuMemcpyDtoDAsync_v2_ptsz => copy::device_to_device_async,
    cuMemcpyDtoA_v2 => copy::device_to_array,
    cuMemcpyDtoA_v2_ptds => copy::device_to_array,
    cuMemcpyAtoD_v2 => copy::array_to_device,
    cuMemcpyAtoD_v2_ptds => copy::array_to_device,
    cuMemcpyHtoA_v2 => copy::host_to_array,
    cuMemcpyHtoA_v2_ptds => copy::host_to_array,
    cuMemcpyHtoAAsync_v2 => copy::host_to_array_async,
    cuMemcpyHtoAAsync_v2_ptsz => copy::host_to_array_async,
    cuMemcpyAtoH_v2 => copy::array_to_host,
    cuMemcpyAtoH_v2_ptds => copy::array_to_host,
    cuMemcpyAtoHAsync_v2 => copy::array_to_host_async,
    cuMemcpyAtoHAsync_v2_ptsz => copy::array_to_host_async,
    cuMemcpyAtoA_v2 => copy::array_to_array,
    cuMemcpyAtoA_v2_ptds => copy::array_to_array,
    cuMemcpy2D_v2 => copy::plane,
    cuMemcpy2D_v2_ptds => copy::plane,
    cuMemcpy2DUnaligned_v2 => copy::plane,
    cuMemcpy2DUnaligned_v2_ptds => copy::plane,
    cuMemcpy2DAsync_v2 => copy::plane_async,
    cuMemcpy2DAsync_v2_ptsz => copy::plane_async,
    cuMemcpy3D_v2 => copy::volume,
    cuMemcpy3D_v2_ptds => copy::volume,
    cuMemcpy3DAsync_v2 => copy::volume_async,
    cuMemcpy3DAsync_v2_ptsz => copy::volume_async,
    cuMemcpy3DPeer => copy::volume_peer,
    cuMemcpy3DPeer_ptds => copy::volume_peer,
    cuMemcpy3DPeerAsync => copy::volume_peer_async,
    cuMemcpy3DPeerAsync_ptsz => copy::volume_peer_async,
    cuMemcpyBatchAsync => copy::batch_with_failure,
    cuMemcpyBatchAsync_ptsz => copy::batch_with_failure,
    cuMemcpyBatchAsync_v2 => copy::batch,
    cuMemcpyBatchAsync_v2_ptsz => copy::batch,
    cuMemcpy3DBatchAsync => copy::volume_batch_with_failure,
    cuMemcpy3DBatchAsync_ptsz => copy::volume_batch_with_failure,
    cuMemcpy3DBatchAsync_v2 => copy::volume_batch,
    cuMemcpy3DBatchAsync_v2_ptsz => copy::volume_batch,
    cuMemcpy3DWithAttributesAsync => copy::volume_with_attributes,
    cuMemcpy3DWithAttributesAsync_ptsz => copy::volume_with_attributes,
    cuMemPrefetchAsync => copy::prefetch,
    cuMemPrefetchAsync_ptsz => copy::prefetch,
    cuMemPrefetchAsync_v2 => copy::prefetch_to_location,
    cuMemPrefetchAsync_v2_ptsz => copy::prefetch_to_location,

    cuMemsetD8_v2 => copy::set_8,
    cuMemsetD8_v2_ptds => copy::set_8,
    cuMemsetD16_v2 => copy::set_16,
    cuMemsetD16_v2_ptds => copy::set_16,
    cuMemsetD32_v2 => copy::set_32,
    cuMemsetD32_v2_ptds => copy::set_32,
    cuMemsetD8Async => copy::set_8_async,
    cuMemsetD8Async_ptsz => copy::set_8_async,
    cuMemsetD16Async => copy::set_16_async,
    cuMemsetD16Async_ptsz => copy::set_16_async,
    cuMemsetD32Async => copy::set_32_async,
    cuMemsetD32Async_ptsz => copy::set_32_async,
    cuMemsetD2D8_v2 => copy::set_plane_8,
    cuMemsetD2D8_v2_ptds => copy::set_plane_8,
    cuMemsetD2D16_v2 => copy::set_plane_16,
    cuMemsetD2D16_v2_ptds => copy::set_plane_16,
    cuMemsetD2D32_v2 => copy::set_plane_32,
    cuMemsetD2D32_v2_ptds => copy::set_plane_32,
    cuMemsetD2D8Async => copy::set_plane_8_async,
    cuMemsetD2D8Async_ptsz => copy::set_plane_8_async,
    cuMemsetD2D16Async => copy::set_plane_16_async,
    cuMemsetD2D16Async_ptsz => copy::set_plane_16_async,
    cuMemsetD2D32Async => copy::set_plane_32_async,
    cuMemsetD2D32Async_ptsz => copy::set_plane_32_async,

    cuStreamSynchronize => sync::stream,
    cuStreamSynchronize_ptsz => sync::stream,
    cuEventSynchronize => sync::event,
    cuCtxSynchronize => sync::current_context,
    cuCtxSynchronize_v2 => sync::context,

    cuStreamCreate => stream::create,
    cuStreamCreateWithPriority => stream::create_with_priority,
    cuGreenCtxStreamCreate => stream::create_in_green_context,
    cuStreamDestroy => stream::destroy,
    cuStreamDestroy_v2 => stream::destroy,
    cuStreamBeginCapture => stream::begin_capture,
    cuStreamBeginCapture_ptsz => stream::begin_capture,
    cuStreamBeginCapture_v2 => stream::begin_capture_in_mode,
    cuStreamBeginCapture_v2_ptsz => stream::begin_capture_in_mode,
    cuStreamBeginCaptureToGraph => stream::begin_capture_to_graph,
    cuStreamBeginCaptureToGraph_ptsz => stream::begin_capture_to_graph,
    cuStreamBeginRecaptureToGraph => stream::begin_recapture,
    cuStreamBeginRecaptureToGraph_ptsz => stream::begin_recapture,
    cuStreamBeginCaptureToCig => stream::begin_capture_to_cig,
    cuStreamBeginCaptureToCig_ptsz => stream::begin_capture_to_cig,
    cuStreamEndCapture => stream::end_capture,
    cuStreamEndCapture_ptsz => stream::end_capture,
    cuStreamEndCaptureToCig => stream::end_capture_to_cig,
    cuStreamEndCaptureToCig_ptsz => stream::end_capture_to_cig,
    cuLaunchHostFunc => stream::host_function,
    cuLaunchHostFunc_ptsz => stream::host_function,
    cuLaunchHostFunc_v2 => stream::host_function_in_mode,
    cuLaunchHostFunc_v2_ptsz => stream::host_function_in_mode,
    cuStreamAddCallback => stream::callback,
    cuStreamAddCallback_ptsz => stream::callback,

    cuStreamWaitValue32 => observers::operation_32,
    cuStreamWaitValue32_ptsz => observers::operation_32,
    cuStreamWaitValue32_v2 => observers::operation_32,
    cuStreamWaitValue32_v2_ptsz => observers::operation_32,
    cuStreamWriteValue32 => observers::operation_32,
    cuStreamWriteValue32_ptsz => observers::operation_32,
    cuStreamWriteValue32_v2 => observers::operation_32,
    cuStreamWriteValue32_v2_ptsz => observers::operation_32,
    cuStreamWaitValue64 => observers::operation_64,
    cuStreamWaitValue64_ptsz => observers::operation_64,
    cuStreamWaitValue64_v2 => observers::operation_64,
    cuStreamWaitValue64_v2_ptsz => observers::operation_64,
    cuStreamWriteValue64 => observers::operation_64,
    cuStreamWriteValue64_ptsz => observers::operation_64,
    cuStreamWriteValue64_v2 => observers::operation_64,
    cuStreamWriteValue64_v2_ptsz => observers::operation_64,
    cuStreamBatchMemOp => observers::operations,
    cuStreamBatchMemOp_ptsz => observers::operations,
    cuStreamBatchMemOp_v2 => observers::operations,
    cuStreamBatchMemOp_v2_ptsz => observers::operations,
    cuStreamAttachMemAsync => observers::attach,
    cuStreamAttachMemAsync_ptsz => observers::attach,
    cuSignalExternalSemaphoresAsync => observers::signal,
    cuSignalExternalSemaphoresAsync_ptsz => observers::signal,
    cuWaitExternalSemaphoresAsync => observers::wait,
    cuWaitExternalSemaphoresAsync_ptsz => observers::wait,
    cuMemBatchDecompressAsync => observers::decompress,
    cuMemBatchDecompressAsync_ptsz => observers::decompress,
    cuMemDiscardBatchAsync => observers::discard,
    cuMemDiscardBatchAsync_ptsz => observers::discard,
    cuMemDiscardAndPrefetchBatchAsync => observers::prefetch,
    cuMemDiscardAndPrefetchBatchAsync_ptsz => observers::prefetch,
    cuMemPrefetchBatchAsync => observers::prefetch,
    cuMemPrefetchBatchAsync_ptsz => observers::prefetch,
    cuMemMapArrayAsync => observers::map_arrays,
    cuMemMapArrayAsync_ptsz => observers::map_arrays,
    cuGraphicsMapResources => observers::graphics,
    cuGraphicsMapResources_ptsz => observers::graphics,
    cuGraphicsUnmapResources => observers::graphics,
    cuGraphicsUnmapResources_ptsz => observers::graphics,
    cuFabricCpyBatchAsync => observers::copy_between_machines,
    cuFabricCpyBatchAsync_ptsz => observers::copy_between_machines,
    cuGLMapBufferObjectAsync_v2 => observers::map_buffer,
    cuGLMapBufferObjectAsync_v2_ptsz => observers::map_buffer,
    cuGLUnmapBufferObjectAsync => observers::unmap_buffer,
    cuEGLStreamConsumerAcquireFrame => observers::acquire_frame,
    cuEGLStreamConsumerReleaseFrame => observers::release_frame,
    cuEGLStreamProducerPresentFrame => observers::present_frame,
    cuEGLStreamProducerReturnFrame => observers::return_frame,

    cuEventCreate => event::create,
    cuEventRecord => event::record,
    cuEventRecord_ptsz => event::record,
    cuEventRecordWithFlags => event::record_with_flags,
    cuEventRecordWithFlags_ptsz => event::record_with_flags,
    cuEventQuery => event::query,
    cuStreamQuery => event::query_stream,
    cuStreamQuery_ptsz => event::query_stream,
    cuEventDestroy => event::destroy,
    cuEventDestroy_v2 => event::destroy,
    cuStreamWaitEvent => event::wait,
    cuStreamWaitEvent_ptsz => event::wait,

    cuModuleLoad => module::load,
    cuModuleLoadData => module::load_data,
    cuModuleLoadDataEx => module::load_data_with_options,
    cuModuleLoadFatBinary => module::load_data,
    cuModuleUnload => module::unload,
    cuLibraryLoadData => module::load_library,
    cuLibraryLoadFromFile => module::load_library_file,
    cuLibraryUnload => module::unload_library,
    cuLinkAddData => module::add_to_linker,
    cuLinkAddData_v2 => module::add_to_linker,
    cuLinkAddFile => module::add_file_to_linker,
    cuLinkAddFile_v2 => module::add_file_to_linker,
    cuLinkComplete => module::link,
    cuLinkDestroy => module::destroy_linker,
    cuModuleGetFunction => module::get_function,
    cuLibraryGetKernel => module::get_kernel,
    cuLibraryGetModule => module::get_module,
    cuKernelGetFunction => module::get_function_of_kernel,
    cuFuncSetAttribute => module::set_function_attribute,
    cuKernelSetAttribute => module::set_kernel_attribute,

    cuCtxSetLimit => settings::limit,
    cuCtxSetCacheConfig => settings::cache,
    cuCtxSetSharedMemConfig => settings::banks,
    cuFuncSetCacheConfig => settings::function_cache,
    cuFuncSetSharedMemConfig => settings::function_banks,
    cuKernelSetCacheConfig => settings::kernel_cache,
    cuStreamSetAttribute => settings::stream,
    cuStreamSetAttribute_ptsz => settings::stream,
    cuStreamCopyAttributes => settings::stream_as,
    cuStreamCopyAttributes_ptsz => settings::stream_as,
    cuGreenCtxCreate => settings::green_context,

    cuCtxCreate => context::create,
    cuCtxCreate_v2 => context::create,
    cuCtxCreate_v3 => context::create_with_affinity,
    cuCtxCreate_v4 => context::create_with_parameters,
    cuCtxDestroy => context::destroy,
    cuCtxDestroy_v2 => context::destroy,
    cuCtxDetach => context::destroy,
    cuCtxSetCurrent => context::set_current,
    cuCtxPushCurrent => context::push,
    cuCtxPushCurrent_v2 => context::push,
    cuCtxPopCurrent => context::pop,
    cuCtxPopCurrent_v2 => context::pop,
    cuDevicePrimaryCtxRetain => context::retain_primary,
    cuDevicePrimaryCtxRelease => context::release_primary,
    cuDevicePrimaryCtxRelease_v2 => context::release_primary,
    cuDevicePrimaryCtxReset => context::reset_primary,
    cuDevicePrimaryCtxReset_v2 => context::reset_primary,
    cuGreenCtxDestroy => context::destroy_green,
}
