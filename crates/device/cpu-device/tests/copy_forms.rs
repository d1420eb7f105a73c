//! Copies, fills and pools in the forms that the other tests leave out.

mod common;

use apex_random::Random;
use common::{Context, cu, download, fails, ok, stream, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::c_void;

#[test]
fn copies_between_any_two_places() {
    let context = Context::new();
    let mut random = Random::new(1);
    let bytes = random.bytes(300);
    let (first, second) = (upload(&bytes), upload(&[0; 300]));
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let mut host = vec![0u8; 300];
    let here = host.as_mut_ptr() as u64;
    // The addresses say what they are.
    ok!(cuMemcpy(here, first, 300));
    assert_eq!(host, bytes);
    ok!(cuMemcpyAsync(second, here, 300, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(second, 300), bytes);
    ok!(cuMemcpyPeer(second + 100, context.0, first, context.0, 100));
    ok!(cuMemcpyPeerAsync(second, context.0, first + 200, context.0, 100, stream));
    ok!(cuCtxSynchronize());
    assert_eq!(download(second, 300), [&bytes[200..], &bytes[..100], &bytes[200..]].concat());
    let (mut targets, mut sources, mut sizes) = ([second, second + 10], [first, here], [10usize, 5]);
    let none = std::ptr::null_mut::<c_void>();
    ok!(cuMemcpyBatchAsync_v2(
        targets.as_mut_ptr(),
        sources.as_mut_ptr(),
        sizes.as_mut_ptr(),
        2,
        none.cast(),
        none.cast(),
        0,
        stream
    ));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(second, 15), [&bytes[..10], &bytes[..5]].concat());

    let rows = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: first,
        srcPitch: 20,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: second,
        dstPitch: 30,
        dstXInBytes: 2,
        WidthInBytes: 7,
        Height: 3,
        ..Plain::zeroed()
    };
    let expected: Vec<u8> = (0..3).flat_map(|row| bytes[20 * row..20 * row + 7].to_vec()).collect();
    let picked = || (0..3).flat_map(|row| download(second + 30 * row + 2, 7)).collect::<Vec<u8>>();
    // A fill does not wait, and the stream does not wait for it.
    let clear = || {
        ok!(cuMemsetD8_v2(second, 0, 300));
        ok!(cuCtxSynchronize());
    };
    clear();
    ok!(cuMemcpy2DAsync_v2(&rows, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(picked(), expected);
    clear();
    ok!(cuMemcpy2DUnaligned_v2(&rows));
    assert_eq!(picked(), expected);
    let boxes = CUDA_MEMCPY3D_PEER {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: first,
        srcPitch: 20,
        srcContext: context.0,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: second,
        dstPitch: 30,
        dstXInBytes: 2,
        dstContext: context.0,
        WidthInBytes: 7,
        Height: 3,
        Depth: 1,
        ..Plain::zeroed()
    };
    clear();
    ok!(cuMemcpy3DPeer(&boxes));
    assert_eq!(picked(), expected);
    clear();
    ok!(cuMemcpy3DPeerAsync(&boxes, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(picked(), expected);
}

#[test]
fn fills_of_every_width_in_streams() {
    let _context = Context::new();
    let (memory, stream) = (upload(&[0; 96]), stream(CU_STREAM_NON_BLOCKING));
    let settled = || {
        ok!(cuStreamSynchronize(stream));
        let found = download(memory, 96);
        ok!(cuMemsetD8_v2(memory, 0, 96));
        ok!(cuCtxSynchronize());
        found
    };
    ok!(cuMemsetD16_v2(memory + 2, 0x0201, 3));
    assert_eq!(settled()[..10], [0, 0, 1, 2, 1, 2, 1, 2, 0, 0]);
    ok!(cuMemsetD16Async(memory + 4, 0x0403, 1, stream));
    assert_eq!(settled()[..8], [0, 0, 0, 0, 3, 4, 0, 0]);
    ok!(cuMemsetD2D8Async(memory, 32, 7, 3, 2, stream));
    let found = settled();
    assert_eq!((&found[..4], &found[32..36]), (&[7, 7, 7, 0][..], &[7, 7, 7, 0][..]));
    ok!(cuMemsetD2D16Async(memory, 32, 0x0605, 1, 3, stream));
    let found = settled();
    assert!([0, 32, 64].iter().all(|row| found[*row..row + 3] == [5, 6, 0]));
    ok!(cuMemsetD2D32Async(memory + 4, 32, 0x0a09_0807, 1, 2, stream));
    let found = settled();
    assert!([4, 36].iter().all(|row| found[*row..row + 5] == [7, 8, 9, 10, 0]));
}

#[test]
fn host_memory_and_access_are_told() {
    let _context = Context::new();
    let (mut host, mut flags, mut access) = (std::ptr::null_mut(), 0, 0);
    ok!(cuMemAllocHost_v2(&mut host, 64));
    ok!(cuMemHostGetFlags(&mut flags, host));
    assert_ne!(flags & CU_MEMHOSTALLOC_DEVICEMAP, 0);
    let mut device_side = 0;
    ok!(cuMemHostGetDevicePointer_v2(&mut device_side, host, 0));
    assert_eq!(device_side, host as u64);
    ok!(cuMemFreeHost(host));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemHostGetFlags(&mut flags, host));

    let (mut pool, mut current) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mut properties: CUmemPoolProps = Plain::zeroed();
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.r#type = CU_MEM_LOCATION_TYPE_DEVICE;
    ok!(cuMemPoolCreate(&mut pool, &properties));
    let mut location = properties.location;
    let grant = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    ok!(cuMemPoolSetAccess(pool, &grant, 1));
    ok!(cuMemPoolGetAccess(&mut access, pool, &mut location));
    assert_eq!(access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ok!(cuMemPoolTrimTo(pool, 0));
    ok!(cuDeviceGraphMemTrim(0));
    let mut default = std::ptr::null_mut();
    ok!(cuDeviceGetDefaultMemPool(&mut default, 0));
    ok!(cuDeviceSetMemPool(0, pool));
    ok!(cuDeviceGetMemPool(&mut current, 0));
    assert!(current == pool && default != pool);
    ok!(cuMemPoolDestroy(pool));
    ok!(cuDeviceGetMemPool(&mut current, 0));
    assert_eq!(current, default);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(default));

    let (size, mut address, mut handle, mut told) = (2usize << 20, 0, 0, 0u64);
    let mut wanted: CUmemAllocationProp = Plain::zeroed();
    wanted.r#type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = location;
    ok!(cuMemAddressReserve(&mut address, size, 0, 0, 0));
    ok!(cuMemCreate(&mut handle, size, &wanted, 0));
    ok!(cuMemMap(address, size, 0, handle, 0));
    ok!(cuMemGetAccess(&mut told, &location, address));
    assert_eq!(told, u64::from(CU_MEM_ACCESS_FLAGS_PROT_NONE));
    let read_only = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READ };
    ok!(cuMemSetAccess(address, size, &read_only, 1));
    ok!(cuMemGetAccess(&mut told, &location, address));
    assert_eq!(told, u64::from(CU_MEM_ACCESS_FLAGS_PROT_READ));
    ok!(cuMemUnmap(address, size));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&mut told, &location, address));
    ok!(cuMemRelease(handle));
    ok!(cuMemAddressFree(address, size));

    let mut managed = 0;
    ok!(cuMemAllocManaged(&mut managed, 4096, CU_MEM_ATTACH_GLOBAL));
    ok!(cuMemPrefetchAsync_v2(managed, 4096, location, 0, std::ptr::null_mut()));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync_v2(managed, 4096, location, 1, std::ptr::null_mut()));
}
