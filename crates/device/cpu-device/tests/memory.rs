//! Memory through the driver's functions: allocation, copies, fills, and what is known of a
//! pointer.

mod common;

use apex_random::Random;
use common::{Context, cu, download, fails, ok, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::c_void;

#[test]
fn bytes_survive_the_way_through_the_device() {
    let _context = Context::new();
    let mut random = Random::new(1);
    for _ in 0..50 {
        let count = 1 + random.below(200_000) as usize;
        let bytes = random.bytes(count);
        let first = upload(&bytes);
        let mut second = 0;
        ok!(cuMemAlloc_v2(&mut second, count));
        ok!(cuMemcpyDtoD_v2(second, first, count));
        assert_eq!(download(second, count), bytes);
        ok!(cuMemFree_v2(first));
        ok!(cuMemFree_v2(second));
    }
}

#[test]
fn copies_stay_inside_of_their_allocations() {
    let _context = Context::new();
    let bytes = Random::new(2).bytes(1000);
    let address = upload(&bytes);
    let host = bytes.as_ptr().cast::<c_void>();
    let mut back = vec![0u8; 2000];
    let destination = back.as_mut_ptr().cast::<c_void>();
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address + 1, host, 1000));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(destination, address, 1001));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(destination, address - 1, 10));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(address, address, usize::MAX));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(address, host as u64, 10));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address, std::ptr::null(), 10));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(address + 990, 0, 11));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(address + 2, 0, 1));
    ok!(cuMemFree_v2(address));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(address, host, 10));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    ok!(cuMemFree_v2(0));
    assert_eq!(back, vec![0; 2000], "no refused copy has written anything");
}

#[test]
fn boxes_are_copied_row_by_row() {
    let _context = Context::new();
    let mut random = Random::new(3);
    for round in 0..100 {
        let size = |random: &mut Random, least: u64| least + random.below(12);
        let (width, height, depth) = (size(&mut random, 1), size(&mut random, 1), size(&mut random, 1));
        let layout = |random: &mut Random| {
            let offset = [random.below(5), random.below(5), random.below(5)];
            let pitch = offset[0] + size(random, width);
            let rows = offset[1] + size(random, height);
            (offset, pitch, rows, pitch * rows * (offset[2] + depth))
        };
        let (from, from_pitch, from_rows, from_bytes) = layout(&mut random);
        let (to, to_pitch, to_rows, to_bytes) = layout(&mut random);
        let source = random.bytes(from_bytes as usize);
        let mut expected = random.bytes(to_bytes as usize);
        let destination = upload(&expected);
        let on_device = upload(&source);
        let from_host = round % 2 == 0;
        let copy = CUDA_MEMCPY3D {
            srcXInBytes: from[0] as usize,
            srcY: from[1] as usize,
            srcZ: from[2] as usize,
            srcMemoryType: if from_host { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE },
            srcHost: source.as_ptr().cast(),
            srcDevice: on_device,
            srcPitch: from_pitch as usize,
            srcHeight: from_rows as usize,
            dstXInBytes: to[0] as usize,
            dstY: to[1] as usize,
            dstZ: to[2] as usize,
            dstMemoryType: CU_MEMORYTYPE_UNIFIED,
            dstDevice: destination,
            dstPitch: to_pitch as usize,
            dstHeight: to_rows as usize,
            WidthInBytes: width as usize,
            Height: height as usize,
            Depth: depth as usize,
            ..Plain::zeroed()
        };
        if round % 3 == 0 {
            ok!(cuMemcpy3DAsync_v2(&copy, std::ptr::null_mut()));
        } else {
            ok!(cuMemcpy3D_v2(&copy));
        }
        let at = |offset: [u64; 3], pitch: u64, rows: u64, x: u64, y: u64, z: u64| {
            (((offset[2] + z) * rows + offset[1] + y) * pitch + offset[0] + x) as usize
        };
        for (z, y, x) in
            (0..depth).flat_map(|z| (0..height).flat_map(move |y| (0..width).map(move |x| (z, y, x))))
        {
            expected[at(to, to_pitch, to_rows, x, y, z)] = source[at(from, from_pitch, from_rows, x, y, z)];
        }
        assert_eq!(download(destination, to_bytes as usize), expected, "round {round}");
        ok!(cuMemFree_v2(destination));
        ok!(cuMemFree_v2(on_device));
    }
}

#[test]
fn rectangles_are_copied_and_bad_ones_refused() {
    let _context = Context::new();
    let source = Random::new(4).bytes(64 * 10);
    let (mut destination, mut pitch) = (0, 0);
    ok!(cuMemAllocPitch_v2(&mut destination, &mut pitch, 50, 10, 4));
    assert!(pitch >= 50 && pitch.is_multiple_of(512));
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: source.as_ptr().cast(),
        srcPitch: 64,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: destination,
        dstPitch: pitch,
        WidthInBytes: 50,
        Height: 10,
        ..Plain::zeroed()
    };
    ok!(cuMemcpy2D_v2(&copy));
    let found = download(destination, pitch * 9 + 50);
    for row in 0..10 {
        assert_eq!(found[row * pitch..][..50], source[row * 64..][..50], "row {row}");
    }
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&CUDA_MEMCPY2D { Height: 11, ..copy }));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&CUDA_MEMCPY2D { dstPitch: 49, ..copy }));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&CUDA_MEMCPY2D { dstY: usize::MAX, ..copy }));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(std::ptr::null()));
}

#[test]
fn fills_write_their_value_and_nothing_else() {
    let _context = Context::new();
    let mut random = Random::new(5);
    for element in [1usize, 2, 4] {
        for _ in 0..30 {
            let (pitch, rows) = (element * (1 + random.below(40) as usize), 1 + random.below(6) as usize);
            let width = 1 + random.below((pitch / element) as u64) as usize;
            let offset = element * random.below(8) as usize;
            let mut expected = random.bytes(offset + pitch * rows);
            let address = upload(&expected);
            let value = random.bits() as u32;
            let start = address + offset as u64;
            match element {
                1 => ok!(cuMemsetD2D8_v2(start, pitch, value as u8, width, rows)),
                2 => ok!(cuMemsetD2D16_v2(start, pitch, value as u16, width, rows)),
                _ => ok!(cuMemsetD2D32_v2(start, pitch, value, width, rows)),
            }
            for row in 0..rows {
                for byte in 0..width * element {
                    expected[offset + row * pitch + byte] = value.to_le_bytes()[byte % element];
                }
            }
            assert_eq!(download(address, expected.len()), expected);
            ok!(cuMemFree_v2(address));
        }
    }
}

#[test]
fn pageable_memory_can_be_touched_when_an_asynchronous_copy_returns() {
    let _context = Context::new();
    let mut random = Random::new(6);
    for count in [100, 64 << 10, 1 << 20, (1 << 20) + 1, 4 << 20] {
        let original = random.bytes(count);
        let address = upload(&vec![0; count]);
        let mut host = original.clone();
        ok!(cuMemcpyHtoDAsync_v2(address, host.as_ptr().cast(), count, std::ptr::null_mut()));
        host.fill(0);
        ok!(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), address, count, std::ptr::null_mut()));
        assert!(host == original, "{count} bytes");
    }
}

fn attribute<T: Default>(attribute: CUpointer_attribute, address: u64) -> Result<T, CUresult> {
    let mut value = T::default();
    match cu!(cuPointerGetAttribute((&raw mut value).cast(), attribute, address)) {
        CUDA_SUCCESS => Ok(value),
        code => Err(code),
    }
}

#[test]
fn pointers_are_known_for_what_they_are() {
    let context = Context::new();
    let device = upload(&[7; 100]);
    let (mut pinned, mut managed) = (std::ptr::null_mut(), 0);
    ok!(cuMemHostAlloc(&mut pinned, 100, 0));
    ok!(cuMemAllocManaged(&mut managed, 100, CU_MEM_ATTACH_GLOBAL));
    assert_eq!(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 99), Ok(CU_MEMORYTYPE_DEVICE));
    assert_eq!(attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned as u64), Ok(CU_MEMORYTYPE_HOST));
    assert_eq!(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed), Ok(1u32));
    assert_eq!(attribute(CU_POINTER_ATTRIBUTE_IS_MANAGED, device), Ok(0u32));
    assert_eq!(attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, device + 50), Ok(device));
    assert_eq!(attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, device + 50), Ok(100usize));
    assert_eq!(attribute(CU_POINTER_ATTRIBUTE_CONTEXT, device), Ok(context.0 as usize));
    assert_eq!(attribute::<u64>(CU_POINTER_ATTRIBUTE_HOST_POINTER, device), Err(CUDA_ERROR_INVALID_VALUE));
    assert_eq!(
        attribute::<u64>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, device + 100),
        Err(CUDA_ERROR_INVALID_VALUE)
    );
    let (mut kind, mut start) = (9u32, 9u64);
    let mut attributes = [CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR];
    let mut values: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut start).cast()];
    let local = &raw const kind as u64;
    ok!(cuPointerGetAttributes(2, attributes.as_mut_ptr(), values.as_mut_ptr(), local));
    assert_eq!((kind, start), (0, 0), "an address of the program's own");
}

#[test]
fn the_program_s_own_memory_can_be_registered() {
    let _context = Context::new();
    let mut host = Random::new(7).bytes(10_000);
    let start = host.as_mut_ptr().cast::<c_void>();
    ok!(cuMemHostRegister_v2(start, host.len(), 0));
    fails!(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(start, 1, 0));
    let mut address = 0;
    ok!(cuMemHostGetDevicePointer_v2(&mut address, start, 0));
    assert_eq!(download(address, host.len()), host);
    ok!(cuMemHostUnregister(start));
    fails!(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(start));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&mut address, start, 0));
}

#[test]
fn memory_is_accounted_for_and_ends() {
    let _context = Context::new();
    let (mut free, mut total, mut address) = (0, 0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    assert!(free <= total && total > 0);
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, total + 1));
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut address, usize::MAX));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&mut address, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(std::ptr::null_mut(), 10));
}

#[test]
fn pools_count_what_is_taken_from_them() {
    let _context = Context::new();
    let mut pool = std::ptr::null_mut();
    let properties = CUmemPoolProps {
        allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
        location: CUmemLocation { r#type: CU_MEM_LOCATION_TYPE_DEVICE, ..Plain::zeroed() },
        ..Plain::zeroed()
    };
    ok!(cuMemPoolCreate(&mut pool, &properties));
    let used = || {
        let mut used = 0u64;
        ok!(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (&raw mut used).cast()));
        used
    };
    let stream = common::stream(CU_STREAM_NON_BLOCKING);
    let mut addresses = [0; 3];
    for address in &mut addresses {
        ok!(cuMemAllocFromPoolAsync(address, 1000, pool, stream));
    }
    assert_eq!(used(), 3000);
    assert_eq!(attribute(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, addresses[0]), Ok(pool as usize));
    ok!(cuMemFreeAsync(addresses[0], stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(used(), 2000);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(addresses[0], stream));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(addresses[1] + 1, stream));
    ok!(cuMemFree_v2(addresses[1]));
    assert_eq!(used(), 1000);
    ok!(cuMemPoolDestroy(pool));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&mut addresses[0], 1, pool, stream));
    ok!(cuMemFreeAsync(addresses[2], stream));
    ok!(cuStreamSynchronize(stream));
}

#[test]
fn memory_is_mapped_where_the_program_wants_it() {
    let _context = Context::new();
    let location = CUmemLocation { r#type: CU_MEM_LOCATION_TYPE_DEVICE, ..Plain::zeroed() };
    let properties = CUmemAllocationProp {
        r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location,
        ..Plain::zeroed()
    };
    let mut step = 0;
    ok!(cuMemGetAllocationGranularity(&mut step, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    let at = |steps: usize, start: u64| start + (steps * step) as u64;
    let (mut start, mut first, mut second) = (0, 0, 0);
    ok!(cuMemAddressReserve(&mut start, 4 * step, 0, 0, 0));
    assert!(start.is_multiple_of(step as u64));
    ok!(cuMemCreate(&mut first, step, &properties, 0));
    ok!(cuMemCreate(&mut second, 2 * step, &properties, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&mut second, step + 1, &properties, 0));
    ok!(cuMemMap(start, step, 0, first, 0));
    ok!(cuMemMap(at(1, start), 2 * step, 0, second, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemMap(at(2, start), step, 0, first, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemMap(at(3, start), 2 * step, 0, second, 0));
    // Mapped is not yet accessible.
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(start, 1, 1));
    let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(start, 4 * step, &access, 1));
    ok!(cuMemSetAccess(start, 3 * step, &access, 1));
    let bytes = Random::new(9).bytes(100);
    ok!(cuMemcpyHtoD_v2(at(1, start), bytes.as_ptr().cast(), 100));

    // The same memory at another place, by way of a file descriptor.
    let (mut file, mut imported) = (-1i32, 0);
    let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    ok!(cuMemExportToShareableHandle((&raw mut file).cast(), second, kind, 0));
    ok!(cuMemImportFromShareableHandle(&mut imported, std::ptr::without_provenance_mut(file as usize), kind));
    // SAFETY: the descriptor is the test's.
    unsafe { libc::close(file) };
    ok!(cuMemMap(at(3, start), step, 0, imported, 0));
    ok!(cuMemSetAccess(at(3, start), step, &access, 1));
    assert_eq!(download(at(3, start), 100), bytes);

    // What is mapped lives without its handle; what is unmapped is gone.
    ok!(cuMemRelease(second));
    assert_eq!(download(at(1, start), 100), bytes);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(start, 4 * step));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at(1, start), step));
    ok!(cuMemUnmap(at(1, start), 2 * step));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(at(1, start), 1, 1));
    ok!(cuMemUnmap(start, step));
    ok!(cuMemUnmap(at(3, start), step));
    ok!(cuMemAddressFree(start, 4 * step));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(start, 4 * step));
    ok!(cuMemRelease(first));
    ok!(cuMemRelease(imported));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemRelease(imported));
}
