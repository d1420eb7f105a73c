//! Getters of the device, contexts, streams, modules, functions, libraries and kernels, and their
//! setters.

mod common;

use common::{Context, cu, download, event, fails, function, image, module, ok, stream, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::{CStr, c_void};

const NONE: *mut c_void = std::ptr::null_mut();

fn library() -> CUlibrary {
    let mut library = std::ptr::null_mut();
    let image = image();
    let (none, image) = (NONE, image.as_ptr().cast());
    ok!(cuLibraryLoadData(&mut library, image, none.cast(), none.cast(), 0, none.cast(), none.cast(), 0));
    library
}

#[test]
fn the_device_says_what_it_is() {
    let _context = Context::new();
    let (mut uuid, mut same) = (CUuuid { bytes: [0; 16] }, CUuuid { bytes: [1; 16] });
    ok!(cuDeviceGetUuid(&mut uuid, 0));
    ok!(cuDeviceGetUuid_v2(&mut same, 0));
    assert_eq!(uuid.bytes, same.bytes);
    let (mut major, mut minor, mut attribute) = (0, 0, 0);
    ok!(cuDeviceComputeCapability(&mut major, &mut minor, 0));
    ok!(cuDeviceGetAttribute(&mut attribute, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    assert_eq!((major, minor, attribute), (8, 0, 8));
    let (mut total, mut free, mut all) = (0, 0, 0);
    ok!(cuDeviceTotalMem_v2(&mut total, 0));
    ok!(cuMemGetInfo_v2(&mut free, &mut all));
    assert!(total == all && free <= all && total > 1 << 20);
    let mut bus = [1u8; 32];
    ok!(cuDeviceGetPCIBusId(bus.as_mut_ptr().cast(), 32, 0));
    let mut device = 7;
    ok!(cuDeviceGetByPCIBusId(&mut device, bus.as_ptr().cast()));
    assert_eq!(device, 0);
    fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&mut device, c"0000:99:00.0".as_ptr()));
    let mut properties: CUdevprop = Plain::zeroed();
    ok!(cuDeviceGetProperties(&mut properties, 0));
    assert_eq!((properties.maxThreadsPerBlock, properties.SIMDWidth), (1024, 32));
    assert_eq!((properties.maxThreadsDim, properties.sharedMemPerBlock), ([1024, 1024, 64], 48 << 10));
    let (mut can, mut width) = (7, 0);
    ok!(cuDeviceCanAccessPeer(&mut can, 0, 0));
    assert_eq!(can, 0);
    fails!(
        CUDA_ERROR_INVALID_DEVICE,
        cuDeviceGetP2PAttribute(&mut can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0)
    );
    ok!(cuDeviceGetExecAffinitySupport(&mut can, CU_EXEC_AFFINITY_TYPE_SM_COUNT, 0));
    assert_eq!(can, 0);
    ok!(cuDeviceGetTexture1DLinearMaxWidth(&mut width, CU_AD_FORMAT_FLOAT, 4, 0));
    assert_eq!(width, 1 << 28);
    fails!(
        CUDA_ERROR_INVALID_VALUE,
        cuDeviceGetTexture1DLinearMaxWidth(&mut width, CU_AD_FORMAT_FLOAT, 3, 0)
    );
    let mut mode = 0;
    ok!(cuModuleGetLoadingMode(&mut mode));
    assert_eq!(mode, CU_MODULE_EAGER_LOADING);
    ok!(cuProfilerStart());
    ok!(cuProfilerStop());
}

#[test]
fn contexts_keep_what_is_set_on_them() {
    let context = Context::new();
    let (mut device, mut flags, mut id, mut version) = (7, 7, 0, 0);
    ok!(cuCtxGetDevice(&mut device));
    ok!(cuCtxGetFlags(&mut flags));
    assert_eq!((device, flags), (0, 0));
    device = 7;
    ok!(cuCtxGetDevice_v2(&mut device, context.0));
    assert_eq!(device, 0);
    ok!(cuCtxGetId(context.0, &mut id));
    let mut own = 0;
    ok!(cuCtxGetId(std::ptr::null_mut(), &mut own));
    assert!(id == own && id != 0);
    ok!(cuCtxGetApiVersion(context.0, &mut version));
    assert!(version > 0);
    let (mut least, mut greatest) = (1, 1);
    ok!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    assert!(least == 0 && greatest < 0);
    let (mut cache, mut banks) = (9, 9);
    ok!(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    ok!(cuCtxGetCacheConfig(&mut cache));
    assert_eq!(cache, CU_FUNC_CACHE_PREFER_L1);
    fails!(CUDA_ERROR_INVALID_VALUE, cuCtxSetCacheConfig(77));
    ok!(cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
    ok!(cuCtxGetSharedMemConfig(&mut banks));
    assert_eq!(banks, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE, "8.0 has one width only");
    let mut limit = 0;
    for kind in [CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE] {
        ok!(cuCtxSetLimit(kind, 1 << 21));
        ok!(cuCtxGetLimit(&mut limit, kind));
        assert_eq!(limit, 1 << 21);
    }
    fails!(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit(&mut limit, 99));
    ok!(cuCtxResetPersistingL2Cache());
    ok!(cuCtxSynchronize_v2(context.0));
    let other = Context::new();
    fails!(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(context.0, 0));
    fails!(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(context.0));
    drop(other);
    // An event behind all work of a context.
    let (memory, stream, event) = (upload(&[0; 4]), stream(CU_STREAM_NON_BLOCKING), event());
    ok!(cuStreamWaitValue64_v2(stream, upload(&[1; 8]), 1, CU_STREAM_WAIT_VALUE_GEQ));
    ok!(cuMemsetD32Async(memory, 5, 1, stream));
    ok!(cuCtxRecordEvent(context.0, event));
    ok!(cuEventSynchronize(event));
    assert_eq!(download(memory, 4), [5, 0, 0, 0]);
}

#[test]
fn the_primary_context_is_counted() {
    // In a process of its own each test binary has one primary context; this is the only test here
    // that uses it.
    ok!(cuInit(0));
    let (mut context, mut flags, mut active) = (std::ptr::null_mut(), 0, 9);
    ok!(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD));
    ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!((flags, active), (CU_CTX_SCHED_YIELD, 0));
    ok!(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
    ok!(cuDevicePrimaryCtxRetain(&mut context, 0));
    ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!((flags, active), (CU_CTX_SCHED_BLOCKING_SYNC, 1));
    ok!(cuDevicePrimaryCtxRelease(0));
    ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!(active, 0);
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
    ok!(cuDevicePrimaryCtxReset(0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuDevicePrimaryCtxSetFlags(0, 1 << 30));
}

#[test]
fn streams_say_what_they_are() {
    let context = Context::new();
    let (mut first, second) = (std::ptr::null_mut(), stream(CU_STREAM_DEFAULT));
    ok!(cuStreamCreateWithPriority(&mut first, CU_STREAM_NON_BLOCKING, -99));
    let (mut flags, mut priority, mut one, mut other, mut device) = (9, 9, 0, 0, 9);
    ok!(cuStreamGetFlags(first, &mut flags));
    ok!(cuStreamGetPriority(first, &mut priority));
    let (mut least, mut greatest) = (0, 0);
    ok!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    assert_eq!((flags, priority), (CU_STREAM_NON_BLOCKING, greatest));
    ok!(cuStreamGetFlags(second, &mut flags));
    ok!(cuStreamGetPriority(second, &mut priority));
    assert_eq!((flags, priority), (CU_STREAM_DEFAULT, 0));
    ok!(cuStreamGetId(first, &mut one));
    ok!(cuStreamGetId(second, &mut other));
    assert_ne!(one, other);
    ok!(cuStreamGetDevice(first, &mut device));
    assert_eq!(device, 0);
    let (mut home, mut green) = (std::ptr::null_mut(), std::ptr::without_provenance_mut(1));
    ok!(cuStreamGetCtx(first, &mut home));
    assert_eq!(home, context.0);
    ok!(cuStreamGetCtx_v2(first, &mut home, &mut green));
    assert!(home == context.0 && green.is_null());
    let mut value: CUstreamAttrValue = Plain::zeroed();
    value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
    ok!(cuStreamSetAttribute(first, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    ok!(cuStreamCopyAttributes(second, first));
    value.syncPolicy = 0;
    ok!(cuStreamGetAttribute(second, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &mut value));
    // SAFETY: the attribute's value is this member.
    assert_eq!(unsafe { value.syncPolicy }, CU_SYNC_POLICY_BLOCKING_SYNC);
    ok!(cuStreamGetAttribute(first, CU_STREAM_ATTRIBUTE_PRIORITY, &mut value));
    // SAFETY: the attribute's value is this member.
    assert_eq!(unsafe { value.priority }, greatest);
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamGetAttribute(first, 999, &mut value));
    let mut managed = 0;
    ok!(cuMemAllocManaged(&mut managed, 64, CU_MEM_ATTACH_HOST));
    ok!(cuStreamAttachMemAsync(first, managed, 0, CU_MEM_ATTACH_SINGLE));
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(first, managed, 0, 77));
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(first, 12345, 0, CU_MEM_ATTACH_SINGLE));
    let (start, end, mut milliseconds) = (event(), event(), -1.0);
    ok!(cuEventRecord(start, first));
    ok!(cuEventRecord(end, first));
    ok!(cuStreamSynchronize(first));
    ok!(cuEventElapsedTime_v2(&mut milliseconds, start, end));
    assert!(milliseconds >= 0.0);
}

#[test]
fn captures_can_be_looked_into_with_edges() {
    let _context = Context::new();
    let (stream, memory) = (stream(CU_STREAM_NON_BLOCKING), upload(&[0; 8]));
    ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ok!(cuMemsetD32Async(memory, 1, 1, stream));
    let (mut status, mut id, mut graph, mut nodes, mut edges, mut count) =
        (0, 0, std::ptr::null_mut(), std::ptr::null(), std::ptr::null(), 0);
    ok!(cuStreamGetCaptureInfo_v3(
        stream,
        &mut status,
        &mut id,
        &mut graph,
        &mut nodes,
        &mut edges,
        &mut count
    ));
    assert_eq!((status, count), (CU_STREAM_CAPTURE_STATUS_ACTIVE, 1));
    // From here on nothing comes behind the first fill.
    let replace = CU_STREAM_SET_CAPTURE_DEPENDENCIES;
    ok!(cuStreamUpdateCaptureDependencies_v2(stream, std::ptr::null_mut(), std::ptr::null(), 0, replace));
    ok!(cuMemsetD32Async(memory + 4, 2, 1, stream));
    let mut all = [std::ptr::null_mut(); 4];
    count = 4;
    ok!(cuGraphGetNodes(graph, all.as_mut_ptr(), &mut count));
    assert_eq!(count, 2);
    let mut roots = 4;
    ok!(cuGraphGetRootNodes(graph, all.as_mut_ptr(), &mut roots));
    assert_eq!(roots, 2);
    // What was left out in this way need not be joined.
    let mut captured = std::ptr::null_mut();
    ok!(cuStreamEndCapture(stream, &mut captured));
    assert_eq!(captured, graph);
}

#[test]
fn functions_and_modules_say_what_they_are() {
    let _context = Context::new();
    let module = module();
    let add = function(module, c"add");
    let (mut home, mut name, mut state) = (std::ptr::null_mut(), std::ptr::null(), 9);
    ok!(cuFuncGetModule(&mut home, add));
    ok!(cuFuncGetName(&mut name, add));
    // SAFETY: the call has just told where the name is.
    assert_eq!((home, unsafe { CStr::from_ptr(name) }), (module, c"add"));
    ok!(cuFuncLoad(add));
    ok!(cuFuncIsLoaded(&mut state, add));
    assert_eq!(state, CU_FUNCTION_LOADING_STATE_LOADED);
    ok!(cuFuncSetCacheConfig(add, CU_FUNC_CACHE_PREFER_SHARED));
    fails!(CUDA_ERROR_INVALID_VALUE, cuFuncSetCacheConfig(add, 9));
    ok!(cuFuncSetSharedMemConfig(add, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
    fails!(CUDA_ERROR_INVALID_VALUE, cuFuncSetSharedMemConfig(add, 9));
    let mut count = 0;
    ok!(cuModuleGetFunctionCount(&mut count, module));
    let mut functions = vec![std::ptr::null_mut(); count as usize];
    ok!(cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module));
    assert!(count > 1 && functions.contains(&add) && functions.iter().all(|function| !function.is_null()));
    let (mut blocks, mut same, mut grid, mut block) = (0, 0, 0, 0);
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, add, 128, 0));
    let flags = CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE;
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut same, add, 128, 0, flags));
    assert!(blocks == same && blocks > 0);
    ok!(cuOccupancyMaxPotentialBlockSizeWithFlags(&mut grid, &mut block, add, None, 0, 96, flags));
    assert!(block > 0 && block <= 96 && grid > 0);
    fails!(
        CUDA_ERROR_INVALID_VALUE,
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut same, add, 128, 0, 8)
    );
}

#[test]
fn launches_of_long_ago() {
    let _context = Context::new();
    let add = function(module(), c"add");
    let mut values = upload(&[1; 400]);
    let address = (&raw mut values).cast();
    ok!(cuFuncSetBlockShape(add, 32, 1, 1));
    ok!(cuFuncSetSharedSize(add, 64));
    ok!(cuParamSetSize(add, 16));
    ok!(cuParamSetv(add, 0, address, 8));
    ok!(cuParamSeti(add, 8, 2));
    ok!(cuParamSeti(add, 12, 100));
    // One block: the first 32 words.
    ok!(cuLaunch(add));
    ok!(cuLaunchGrid(add, 2, 1));
    ok!(cuCtxSynchronize());
    let words: Vec<u8> = download(values, 400).chunks(4).map(|word| word[0]).collect();
    assert_eq!((&words[..32], &words[32..64], &words[64..]), (&[5; 32][..], &[3; 32][..], &[1; 36][..]));
    // A float has the bits of its word: 1.0 added to 0 is 1.0.
    ok!(cuMemsetD8_v2(values, 0, 400));
    ok!(cuParamSetf(add, 8, 1.0));
    ok!(cuLaunch(add));
    ok!(cuCtxSynchronize());
    assert_eq!(download(values, 4), 1.0f32.to_le_bytes());
    fails!(CUDA_ERROR_INVALID_VALUE, cuParamSetSize(add, 1 << 20));
    fails!(CUDA_ERROR_INVALID_VALUE, cuParamSeti(add, -4, 1));
}

#[test]
fn libraries_and_kernels_say_what_they_are() {
    let _context = Context::new();
    let library = library();
    let (mut kernel, mut home, mut name) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null());
    ok!(cuLibraryGetKernel(&mut kernel, library, c"add".as_ptr()));
    ok!(cuKernelGetLibrary(&mut home, kernel));
    ok!(cuKernelGetName(&mut name, kernel));
    // SAFETY: the call has just told where the name is.
    assert_eq!((home, unsafe { CStr::from_ptr(name) }), (library, c"add"));
    let (mut kernels, mut params, mut offset, mut size) = (0, 0, 0, 0);
    ok!(cuLibraryGetKernelCount(&mut kernels, library));
    let mut all = vec![std::ptr::null_mut(); kernels as usize];
    ok!(cuLibraryEnumerateKernels(all.as_mut_ptr(), kernels, library));
    assert!(kernels > 1 && all.contains(&kernel));
    ok!(cuKernelGetParamCount(kernel, &mut params));
    ok!(cuKernelGetParamInfo(kernel, 1, &mut offset, &mut size));
    assert_eq!((params, offset, size), (3, 8, 4));
    fails!(CUDA_ERROR_INVALID_VALUE, cuKernelGetParamInfo(kernel, 3, &mut offset, &mut size));
    let (shared, mut value) = (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0);
    ok!(cuKernelSetAttribute(shared, 100 << 10, kernel, 0));
    ok!(cuKernelGetAttribute(&mut value, shared, kernel, 0));
    assert_eq!(value, 100 << 10);
    ok!(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 0));
    fails!(CUDA_ERROR_INVALID_DEVICE, cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 1));
    // What is set on the kernel holds for the function that it is in a context.
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuKernelGetFunction(&mut function, kernel));
    ok!(cuFuncGetAttribute(&mut value, shared, function));
    assert_eq!(value, 100 << 10);
    ok!(cuLibraryGetModule(&mut module, library));
    let (mut address, mut bytes, mut same) = (0, 0, 0);
    ok!(cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"counter".as_ptr()));
    ok!(cuLibraryGetGlobal(&mut same, &mut bytes, library, c"counter".as_ptr()));
    assert_eq!((address, bytes), (same, 4));
    fails!(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&mut address, &mut bytes, library, c"counter".as_ptr()));
    let text =
        c".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .attribute(.managed) .u32 shared;";
    let (mut managed, none) = (std::ptr::null_mut(), NONE);
    let image = text.as_ptr().cast();
    ok!(cuLibraryLoadData(&mut managed, image, none.cast(), none.cast(), 0, none.cast(), none.cast(), 0));
    ok!(cuLibraryGetManaged(&mut address, &mut bytes, managed, c"shared".as_ptr()));
    assert_eq!(bytes, 4);
    ok!(cuLibraryUnload(managed));
    ok!(cuLibraryUnload(library));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuKernelGetParamCount(kernel, &mut params));
}

#[test]
fn objects_tell_what_they_were_made_from() {
    let _context = Context::new();
    let mut array = std::ptr::null_mut();
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 8,
        Height: 8,
        Depth: 0,
        Format: CU_AD_FORMAT_FLOAT,
        NumChannels: 1,
        Flags: CUDA_ARRAY3D_SURFACE_LDST,
    };
    ok!(cuArray3DCreate_v2(&mut array, &descriptor));
    let mut resource: CUDA_RESOURCE_DESC = Plain::zeroed();
    resource.res.array = CUDA_RESOURCE_DESC_v1_res_array { hArray: array };
    let description = CUDA_TEXTURE_DESC { flags: CU_TRSF_NORMALIZED_COORDINATES, ..Plain::zeroed() };
    let (mut texture, mut surface) = (0, 0);
    ok!(cuTexObjectCreate(&mut texture, &resource, &description, std::ptr::null()));
    ok!(cuSurfObjectCreate(&mut surface, &resource));
    let (mut told, mut how): (CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC) = (Plain::zeroed(), Plain::zeroed());
    ok!(cuTexObjectGetResourceDesc(&mut told, texture));
    // SAFETY: the type says that this member was written.
    assert_eq!((told.resType, unsafe { told.res.array.hArray }), (CU_RESOURCE_TYPE_ARRAY, array));
    ok!(cuTexObjectGetTextureDesc(&mut how, texture));
    assert_eq!(how.flags, CU_TRSF_NORMALIZED_COORDINATES);
    told = Plain::zeroed();
    ok!(cuSurfObjectGetResourceDesc(&mut told, surface));
    // SAFETY: as above.
    assert_eq!(unsafe { told.res.array.hArray }, array);
    fails!(CUDA_ERROR_INVALID_VALUE, cuTexObjectGetResourceDesc(&mut told, surface));
    ok!(cuSurfObjectDestroy(surface));
    fails!(CUDA_ERROR_INVALID_VALUE, cuSurfObjectDestroy(surface));
    fails!(CUDA_ERROR_INVALID_VALUE, cuSurfObjectGetResourceDesc(&mut told, surface));
}
