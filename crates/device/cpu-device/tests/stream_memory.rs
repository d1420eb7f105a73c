//! Stream memory operations in batches, callbacks after faults, and what is kept of managed and
//! mapped memory.

mod common;

use common::{Context, cu, download, fails, ok, stream, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::c_void;
use std::sync::Mutex;

fn operation(kind: CUstreamBatchMemOpType, address: u64, value: u64, flags: u32) -> CUstreamBatchMemOpParams {
    // Both structures have the same members at the same places.
    let mut given: CUstreamBatchMemOpParams = Plain::zeroed();
    given.writeValue =
        CUstreamMemOpWriteValueParams_st { operation: kind, address, flags, ..Plain::zeroed() };
    given.writeValue.anonymous.value64 = value;
    given
}

#[test]
fn a_batch_is_done_in_its_order() {
    let _context = Context::new();
    let memory = upload(&[0; 32]);
    let (waiting, writing) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let mut wait_and_tell = [
        operation(CU_STREAM_MEM_OP_WAIT_VALUE_32, memory, 3, CU_STREAM_WAIT_VALUE_GEQ),
        operation(CU_STREAM_MEM_OP_BARRIER, 0, 0, 0),
        operation(CU_STREAM_MEM_OP_WRITE_VALUE_64, memory + 8, u64::MAX - 1, 0),
        operation(CU_STREAM_MEM_OP_WAIT_VALUE_64, memory + 8, u64::MAX - 1, CU_STREAM_WAIT_VALUE_EQ),
        operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, memory + 16, 4, 0),
    ];
    let mut tell = [operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, memory, 3, 0)];
    ok!(cuStreamBatchMemOp_v2(waiting, 5, wait_and_tell.as_mut_ptr(), 0));
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
    ok!(cuStreamBatchMemOp(writing, 1, tell.as_mut_ptr(), 0));
    ok!(cuStreamSynchronize(waiting));
    let words: Vec<u64> =
        download(memory, 24).chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [3, u64::MAX - 1, 4]);
    // A bad operation keeps the good ones before it from being done.
    let mut bad = [operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, memory, 9, 0), operation(77, memory, 9, 0)];
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2(writing, 2, bad.as_mut_ptr(), 0));
    bad[1] = operation(CU_STREAM_MEM_OP_WRITE_VALUE_32, memory + 2, 9, 0);
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2(writing, 2, bad.as_mut_ptr(), 0));
    ok!(cuStreamSynchronize(writing));
    assert_eq!(download(memory, 1), [3]);
}

#[test]
fn callbacks_hear_of_faults() {
    static HEARD: Mutex<Vec<CUresult>> = Mutex::new(Vec::new());
    unsafe extern "C" fn hear(_: CUstream, code: CUresult, _: *mut c_void) {
        HEARD.lock().unwrap().push(code);
    }
    let context = Context::new();
    let stream = stream(0);
    let image = c".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry stop() { trap; }";
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, c"stop".as_ptr()));
    let none = std::ptr::null_mut::<c_void>();
    // Until the word is written, nothing behind this is begun.
    let memory = upload(&[0; 4]);
    ok!(cuStreamWaitValue32_v2(stream, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
    ok!(cuStreamAddCallback(stream, Some(hear), none, 0));
    ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none.cast(), none.cast()));
    ok!(cuStreamAddCallback(stream, Some(hear), none, 0));
    let other = common::stream(CU_STREAM_NON_BLOCKING);
    ok!(cuStreamWriteValue32_v2(other, memory, 1, 0));
    fails!(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
    // The context waits for all of its work.
    drop(context);
    assert_eq!(*HEARD.lock().unwrap(), [CUDA_SUCCESS, CUDA_ERROR_LAUNCH_FAILED]);
}

#[test]
fn captures_are_told_in_the_old_form_too() {
    let _context = Context::new();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let (mut status, mut id, mut graph) = (9, 0, std::ptr::null_mut());
    ok!(cuStreamGetCaptureInfo(stream, &mut status, &mut id));
    assert_eq!((status, id), (CU_STREAM_CAPTURE_STATUS_NONE, 0));
    ok!(cuStreamBeginCapture(stream));
    ok!(cuStreamGetCaptureInfo(stream, &mut status, &mut id));
    assert!(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0);
    ok!(cuStreamEndCapture(stream, &mut graph));
    ok!(cuGraphDestroy(graph));
}

#[test]
fn a_batch_of_copies_says_which_one_failed() {
    let _context = Context::new();
    let (from, to, stream) = (upload(&[1, 2, 3, 4, 5, 6, 7, 8]), upload(&[0; 8]), stream(0));
    let (mut targets, mut sources, mut sizes) = ([to, to + 4, to], [from + 4, from, from], [4usize, 4, 4]);
    let (mut failed, none) = (7usize, std::ptr::null_mut::<c_void>());
    let mut copy = |sizes: &mut [usize; 3], count| {
        let (targets, sources) = (targets.as_mut_ptr(), sources.as_mut_ptr());
        let sizes = sizes.as_mut_ptr();
        cu!(cuMemcpyBatchAsync(
            targets,
            sources,
            sizes,
            count,
            none.cast(),
            none.cast(),
            0,
            &mut failed,
            stream
        ))
    };
    assert_eq!(copy(&mut sizes, 2), CUDA_SUCCESS);
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(to, 8), [5, 6, 7, 8, 1, 2, 3, 4]);
    sizes[2] = 100;
    assert_eq!(copy(&mut sizes, 3), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(failed, 2);
}

#[test]
fn advice_for_managed_memory_is_kept() {
    let _context = Context::new();
    let mut memory = 0;
    ok!(cuMemAllocManaged(&mut memory, 4096, CU_MEM_ATTACH_GLOBAL));
    let told = |attribute, room: usize| {
        let mut values = vec![77i32; room];
        ok!(cuMemRangeGetAttribute(values.as_mut_ptr().cast(), 4 * room, attribute, memory, 4096));
        values
    };
    assert_eq!(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 1), [0]);
    assert_eq!(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 1), [CU_DEVICE_INVALID]);
    assert_eq!(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 1), [CU_DEVICE_INVALID]);
    assert_eq!(told(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, 2), [CU_DEVICE_INVALID; 2]);
    ok!(cuMemAdvise(memory, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    ok!(cuMemAdvise(memory, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    ok!(cuMemAdvise(memory, 4096, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
    ok!(cuMemPrefetchAsync(memory, 4096, 0, std::ptr::null_mut()));
    assert_eq!(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 1), [1]);
    assert_eq!(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 1), [CU_DEVICE_CPU]);
    assert_eq!(told(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, 1), [CU_MEM_LOCATION_TYPE_HOST as i32]);
    assert_eq!(told(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 1), [0]);
    assert_eq!(told(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, 2), [0, CU_DEVICE_INVALID]);
    ok!(cuMemAdvise(memory, 4096, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
    assert_eq!(told(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 1), [0]);
    let (mut first, mut second) = (7i32, 7i32);
    let mut values: [*mut c_void; 2] = [(&raw mut first).cast(), (&raw mut second).cast()];
    let (mut sizes, mut attributes) =
        ([4, 4], [CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION]);
    let (sizes, attributes) = (sizes.as_mut_ptr(), attributes.as_mut_ptr());
    ok!(cuMemRangeGetAttributes(values.as_mut_ptr(), sizes, attributes, 2, memory, 4096));
    assert_eq!((first, second), (0, 0));
    let device = upload(&[0; 16]);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(device, 16, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    fails!(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise(memory, 16, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 3));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAdvise(memory, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
}

#[test]
fn reserved_addresses_and_retained_handles() {
    let _context = Context::new();
    let size = 2usize << 20;
    let mut properties: CUmemAllocationProp = Plain::zeroed();
    properties.r#type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.r#type = CU_MEM_LOCATION_TYPE_DEVICE;
    let (mut first, mut again, mut handle, mut retained) = (0, 0, 0, 0);
    // Free addresses can be had, unless another test is quicker, and taken ones can't.
    for _ in 0..100 {
        ok!(cuMemAddressReserve(&mut first, 4 * size, 0, 0, 0));
        ok!(cuMemAddressFree(first, 4 * size));
        ok!(cuMemAddressReserve(&mut again, size, 0, first, 0));
        if again == first {
            break;
        }
        ok!(cuMemAddressFree(again, size));
    }
    assert_eq!(again, first);
    let mut elsewhere = 0;
    ok!(cuMemAddressReserve(&mut elsewhere, size, 0, first, 0));
    assert_ne!(elsewhere, first);
    ok!(cuMemCreate(&mut handle, size, &properties, 0));
    ok!(cuMemMap(first, size, 0, handle, 0));
    let access = CUmemAccessDesc { location: properties.location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    ok!(cuMemSetAccess(first, size, &access, 1));
    ok!(cuMemRetainAllocationHandle(&mut retained, std::ptr::without_provenance_mut(first as usize)));
    assert_eq!(retained, handle);
    ok!(cuMemRelease(handle));
    // It has been retained once more.
    let mut told: CUmemAllocationProp = Plain::zeroed();
    ok!(cuMemGetAllocationPropertiesFromHandle(&mut told, handle));
    ok!(cuMemRelease(handle));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    ok!(cuMemsetD8_v2(first, 9, size));
    assert_eq!(download(first + 100, 3), [9; 3]);
    ok!(cuMemUnmap(first, size));
    ok!(cuMemAddressFree(first, size));
    ok!(cuMemAddressFree(elsewhere, size));
}
