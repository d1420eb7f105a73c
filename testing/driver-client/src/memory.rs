//! Programs that allocate and free device memory: what they see must be what they see without a
//! memory pool. They print what the tests compare, and no addresses.

use crate::driver::*;
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

/// Writes a word to where the argument points, after some time.
const PTX: &CStr = c"
.version 8.1
.target sm_70
.address_size 64
.visible .entry late(.param .u64 p, .param .u32 rounds)
{
    .reg .pred %q; .reg .b32 %r<4>; .reg .b64 %d<2>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [rounds]; mov.u32 %r2, 0;
again:
    setp.ge.u32 %q, %r2, %r1; @%q bra done; add.u32 %r2, %r2, 1; bra again;
done:
    st.global.u32 [%d1], %r2; ret;
}
";

fn allocate(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    check(cuda!(cuMemAlloc_v2(&mut address, bytes)));
    address
}

fn free(address: CUdeviceptr) {
    check(cuda!(cuMemFree_v2(address)));
}

/// Bytes of the allocation around an address.
fn range(address: CUdeviceptr) -> Result<usize, CUresult> {
    let (mut start, mut bytes) = (0, 0);
    match cuda!(cuMemGetAddressRange_v2(&mut start, &mut bytes, address)) {
        CUDA_SUCCESS => Ok(bytes),
        failure => Err(failure),
    }
}

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    check(cuda!(cuMemGetInfo_v2(&mut free, &mut total)));
    free
}

/// Allocates and frees blocks of some sizes, one after the other.
pub fn in_turn(rounds: usize) {
    context();
    for round in 0..rounds {
        let sizes = [256, 4096, 1 << 20, 3 << 20].map(|bytes| bytes + round % 2 * 256);
        sizes.map(allocate).into_iter().for_each(free);
    }
    check(cuda!(cuCtxSynchronize()));
}

/// Threads that each fill blocks of the same sizes, and find in them what they wrote.
pub fn in_threads(threads: usize, rounds: usize) {
    let context = context() as usize;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                check(cuda!(cuCtxSetCurrent(context as CUcontext)));
                let stream = stream(CU_STREAM_NON_BLOCKING);
                for round in 0..rounds {
                    let words = 64 << (round % 3);
                    let address = allocate(words * 4);
                    let value = (thread * rounds + round) as u32;
                    check(cuda!(cuMemsetD32Async(address, value, words, stream)));
                    check(cuda!(cuStreamSynchronize(stream)));
                    let mut found = vec![0u32; words];
                    check(cuda!(cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), address, words * 4)));
                    assert!(found.iter().all(|&found| found == value), "{found:?} instead of {value}");
                    free(address);
                }
            });
        }
    });
}

/// Shows memory that was freed, memory of the same size, and calls that fail.
pub fn as_seen() {
    context();
    let blocks = [700, 1 << 20, 5 << 20].map(|bytes| {
        free(allocate(bytes));
        let address = allocate(bytes);
        (address, bytes)
    });
    for (address, bytes) in blocks {
        println!("{bytes} bytes lie in {:?}", range(address + bytes as u64 / 2));
        println!("a free within them returns {}", cuda!(cuMemFree_v2(address + 256)));
        free(address);
        println!("a second free returns {}", cuda!(cuMemFree_v2(address)));
        free(allocate(bytes));
        let address = allocate(bytes);
        free(address);
        println!("what was freed lies in {:?}", range(address + bytes as u64 / 2));
        free(allocate(bytes));
        let address = allocate(bytes);
        free(address);
        let mut kind: CUmemorytype = 0;
        let attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        println!("its kind: {}", cuda!(cuPointerGetAttribute((&raw mut kind).cast(), attribute, address)));
    }
    let before = free_bytes();
    let address = allocate(8 << 20);
    println!("an allocation takes {}", before - free_bytes());
    free(address);
    println!("what is free is free: {}", before == free_bytes());
    let mut address = 0;
    println!("no bytes: {}", cuda!(cuMemAlloc_v2(&mut address, 0)));
    println!("no place for the address: {}", cuda!(cuMemAlloc_v2(null_mut(), 256)));
    println!("no address: {}", cuda!(cuMemFree_v2(0)));
    println!("no allocation: {}", cuda!(cuMemFree_v2(0x10)));

    let (stream, block, mut graph) = (stream(CU_STREAM_NON_BLOCKING), allocate(4096), null_mut());
    check(cuda!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED)));
    println!("while capturing: {}", cuda!(cuMemAlloc_v2(&mut address, 4096)));
    println!("while capturing: {}", cuda!(cuMemFree_v2(block)));
    println!("the capture ends with {}", cuda!(cuStreamEndCapture(stream, &mut graph)));
}

/// Checks that a kernel's writes to the host are there after a free of other memory.
pub fn waited_for() {
    context();
    let late = function(module(PTX), c"late");
    let (stream, mut word) = (stream(CU_STREAM_NON_BLOCKING), null_mut::<c_void>());
    check(cuda!(cuMemAllocHost_v2(&mut word, 4)));
    let word = word.cast::<u32>();
    for round in 1..=20u32 {
        let address = allocate(1 << 20);
        let (mut pointer, mut rounds) = (word as u64, 20_000 + round);
        let mut parameters = [(&raw mut pointer).cast::<c_void>(), (&raw mut rounds).cast()];
        let (parameters, extra) = (parameters.as_mut_ptr(), null_mut());
        check(cuda!(cuLaunchKernel(late, 1, 1, 1, 1, 1, 1, 0, stream, parameters, extra)));
        free(address);
        // SAFETY: memory of the host that the driver allocated.
        let found = unsafe { word.read_volatile() };
        assert_eq!(found, 20_000 + round, "the free has not waited");
    }
    println!("each free has waited");
}

/// Memory of contexts that end, and of two contexts at a time.
pub fn of_contexts() {
    let first = context();
    for _ in 0..3 {
        free(allocate(4096));
    }
    let of_first = allocate(4096);
    let mut second = null_mut();
    check(cuda!(cuCtxCreate_v2(&mut second, 0, 0)));
    let of_second = allocate(4096);
    free(of_second);
    check(cuda!(cuMemFree_v2(of_first)));
    check(cuda!(cuCtxDestroy_v2(second)));
    check(cuda!(cuCtxSetCurrent(first)));
    let address = allocate(4096);
    check(cuda!(cuMemsetD8_v2(address, 7, 4096)));
    let mut found = vec![0u8; 4096];
    check(cuda!(cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), address, 4096)));
    assert!(found.iter().all(|&byte| byte == 7));
    free(address);
    check(cuda!(cuCtxDestroy_v2(first)));
    for _ in 0..2 {
        let third = context();
        let address = allocate(4096);
        println!("in another context: {:?}", range(address));
        free(address);
        check(cuda!(cuCtxDestroy_v2(third)));
    }
}

/// Memory of another size, while memory that was freed fills the device; then more than there is.
pub fn until_full() {
    context();
    [1 << 20, (1 << 20) + 1, (1 << 20) + 2].map(allocate).into_iter().for_each(free);
    let address = allocate(7 << 19);
    let mut more = 0;
    println!("too much: {}", cuda!(cuMemAlloc_v2(&mut more, 1 << 20)));
    free(address);
    (0..2).for_each(|_| free(allocate(1 << 20)));
}

/// Memory that another process may use, and what becomes of its size afterwards.
pub fn shared() {
    context();
    free(allocate(300));
    let address = allocate(1 << 20);
    let mut handle = CUipcMemHandle::zeroed();
    println!("a handle: {}", cuda!(cuIpcGetMemHandle(&mut handle, address)));
    free(address);
    println!("it was freed: {:?}", range(address));
    let flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    let address = allocate(4096);
    check(cuda!(cuStreamWriteValue32_v2(null_mut(), address, 1, flags)));
    free(address);
    free(allocate(4096));
    println!("it ends");
}

/// A free that works, and the same one after a call before which memory may be given back.
pub fn refused() {
    context();
    let first = cuda!(cuMemFree_v2(allocate(4096)));
    let (mut free, mut total) = (0, 0);
    // (The fake driver answers with an error.)
    cuda!(cuMemGetInfo_v2(&mut free, &mut total));
    println!("{first} {}", cuda!(cuMemFree_v2(allocate(4096))));
}
