//! Errors as CUDA gives them: the code for each bad argument, and faults that stay.

mod common;

use common::{Context, cu, fails, ok, stream, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::{CString, c_void};

const NONE: *mut c_void = std::ptr::null_mut();

/// A handle that names nothing.
fn garbage<T>() -> *mut T {
    std::ptr::without_provenance_mut(0x1234_5678)
}

/// A kernel of no parameters with this body.
fn kernel(directives: &str, body: &str) -> CUfunction {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.global .align 8 .b8 memory[64];\n\
         .func sink(.param .u64 depth)\n{{\n.reg .b64 %rd<3>; .local .b8 room[256];\nld.param.u64 %rd1, [depth];\n\
         {{ .param .u64 next; st.param.u64 [next], %rd1; call sink, (next); }}\nst.local.b64 [room], %rd1;\nret;\n}}\n\
         .extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n\
         .visible .entry faulty() {directives}\n{{\n.reg .b32 %r<8>; .reg .b64 %rd<8>;\n{body}\nret;\n}}"
    );
    let image = CString::new(text).unwrap();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, c"faulty".as_ptr()));
    function
}

fn launch(function: CUfunction, grid: [u32; 3], block: [u32; 3], shared: u32) -> CUresult {
    let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
    cu!(cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, NONE.cast(), NONE.cast(), NONE.cast()))
}

const FAULTS: [(&str, CUresult); 7] = [
    ("mov.u64 %rd1, 64; ld.global.u32 %r1, [%rd1];", CUDA_ERROR_ILLEGAL_ADDRESS),
    ("ld.global.u64 %rd1, [memory+64];", CUDA_ERROR_ILLEGAL_ADDRESS),
    ("st.global.u32 [memory+2], %r1;", CUDA_ERROR_MISALIGNED_ADDRESS),
    ("trap;", CUDA_ERROR_LAUNCH_FAILED),
    (
        "{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; mov.u64 %rd1, memory;\n\
         cvta.global.u64 %rd1, %rd1; st.param.b64 [a], %rd1; st.param.b64 [b], %rd1; st.param.b32 [c], 7;\n\
         st.param.b64 [d], %rd1; st.param.b64 [e], 1; call __assertfail, (a, b, c, d, e); }",
        CUDA_ERROR_ASSERT,
    ),
    (
        "{ .param .u64 depth; mov.u64 %rd1, 1; st.param.u64 [depth], %rd1; call sink, (depth); }",
        CUDA_ERROR_HARDWARE_STACK_ERROR,
    ),
    ("mov.u64 %rd1, 4096; proto: .callprototype _ (); call %rd1, (), proto;", CUDA_ERROR_ILLEGAL_INSTRUCTION),
];

#[test]
fn a_fault_is_in_the_error_log() {
    let _context = Context::new();
    let (mut from, mut end) = (0, 0);
    ok!(cuLogsCurrent(&mut from, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuLogsCurrent(&mut end, 1));
    let function = kernel("", "mov.u64 %rd1, 64; ld.global.u32 %r1, [%rd1];");
    let _ = launch(function, [1; 3], [1; 3], 0);
    fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());

    let mut text = vec![0u8; 25_600];
    let dump = |iterator: &mut u32, text: &mut [u8]| {
        let mut size = text.len();
        let code = cu!(cuLogsDumpToMemory(iterator, text.as_mut_ptr().cast(), &mut size, 0));
        (code, String::from_utf8(text[..size].to_vec()).unwrap())
    };
    let mut iterator = from;
    let (code, told) = dump(&mut iterator, &mut text);
    assert_eq!(code, CUDA_SUCCESS);
    assert!(told.contains("CUDA_ERROR_ILLEGAL_ADDRESS in kernel faulty") && told.contains("0x40"), "{told}");
    assert!(told.contains("(PTX line ") && told.ends_with('\n'), "{told}");
    ok!(cuLogsCurrent(&mut end, 0));
    assert!(iterator != from && iterator <= end);
    let mut again = from;
    assert_eq!(dump(&mut again, &mut text[..10]), (CUDA_ERROR_INVALID_VALUE, String::new()));
    assert_eq!(again, from, "what was not read can be read again");

    let folder = std::env::temp_dir().join(format!("apex-log-{}", std::process::id()));
    let path = CString::new(folder.to_str().unwrap()).unwrap();
    ok!(cuLogsDumpToFile(&mut again, path.as_ptr(), 0));
    assert!(std::fs::read_to_string(&folder).unwrap().contains("in kernel faulty"));
    std::fs::remove_file(&folder).unwrap();
    let mut size = 10;
    fails!(CUDA_ERROR_INVALID_VALUE, cuLogsDumpToMemory(&mut again, std::ptr::null_mut(), &mut size, 0));
}

#[test]
fn each_fault_has_its_code_and_stays() {
    for (body, code) in FAULTS {
        let _context = Context::new();
        let function = kernel("", body);
        assert_eq!(launch(function, [1; 3], [1; 3], 0), CUDA_SUCCESS, "{body}");
        let found = [
            cu!(cuCtxSynchronize()),
            cu!(cuStreamSynchronize(NONE.cast())),
            cu!(cuMemAlloc_v2(&mut 0, 16)),
            cu!(cuModuleLoadData(&mut NONE.cast(), c"".as_ptr().cast())),
            cu!(cuEventCreate(&mut NONE.cast(), 0)),
            cu!(cuStreamQuery(NONE.cast())),
            launch(function, [1; 3], [1; 3], 0),
        ];
        let image_is_looked_at_first = [CUDA_ERROR_INVALID_IMAGE, code];
        assert!(image_is_looked_at_first.contains(&found[3]), "{body}");
        assert!(
            found.iter().enumerate().all(|(index, found)| index == 3 || *found == code),
            "{body}: {found:?}"
        );
    }
}

#[test]
fn a_reset_primary_context_is_well_again() {
    ok!(cuInit(0));
    let mut context = std::ptr::null_mut();
    for round in 0..3 {
        ok!(cuDevicePrimaryCtxRetain(&mut context, 0));
        ok!(cuCtxSetCurrent(context));
        let memory = upload(&[round; 100]);
        assert_eq!(launch(kernel("", "trap;"), [1; 3], [1; 3], 0), CUDA_SUCCESS);
        fails!(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
        fails!(CUDA_ERROR_LAUNCH_FAILED, cuMemFree_v2(memory));
        ok!(cuDevicePrimaryCtxReset_v2(0));
        // What was in it is gone, and the rest works.
        ok!(cuCtxSynchronize());
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory));
        assert_eq!(launch(kernel("", ""), [1; 3], [1; 3], 0), CUDA_SUCCESS);
        ok!(cuCtxSynchronize());
    }
    ok!(cuCtxSetCurrent(std::ptr::null_mut()));
}

#[test]
fn launches_that_can_not_be_fail_at_the_call() {
    let _context = Context::new();
    let plain = kernel("", "");
    let invalid = [
        ([0, 1, 1], [1, 1, 1], 0),
        ([1, 65536, 1], [1, 1, 1], 0),
        ([1, 1, 65536], [1, 1, 1], 0),
        ([1 << 31, 1, 1], [1, 1, 1], 0),
        ([1, 1, 1], [0, 1, 1], 0),
        ([1, 1, 1], [1025, 1, 1], 0),
        ([1, 1, 1], [1, 1, 65], 0),
        ([1, 1, 1], [32, 33, 1], 0),
        ([1, 1, 1], [1, 1, 1], (48 << 10) + 1),
    ];
    for (grid, block, shared) in invalid {
        assert_eq!(
            launch(plain, grid, block, shared),
            CUDA_ERROR_INVALID_VALUE,
            "{grid:?} {block:?} {shared}"
        );
    }
    assert_eq!(launch(kernel(".maxntid 64", ""), [1; 3], [65, 1, 1], 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch(kernel(".reqntid 32, 2", ""), [1; 3], [64, 1, 1], 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch(kernel(".reqntid 32, 2", ""), [1; 3], [32, 2, 1], 0), CUDA_SUCCESS);
    // A block of one thread stands for the required one, as an H200's driver takes it.
    assert_eq!(launch(kernel(".reqntid 32, 2", ""), [1; 3], [1; 3], 0), CUDA_SUCCESS);
    assert_eq!(launch(std::ptr::null_mut(), [1; 3], [1; 3], 0), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(launch(garbage(), [1; 3], [1; 3], 0), CUDA_ERROR_INVALID_HANDLE);
    // More dynamic shared memory has to be asked for.
    let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    ok!(cuFuncSetAttribute(plain, attribute, 163 << 10));
    assert_eq!(launch(plain, [1; 3], [1; 3], 163 << 10), CUDA_SUCCESS);
    fails!(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(plain, attribute, (163 << 10) + 1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_NUM_REGS, 1));
    // A cooperative launch has to fit on the device at once.
    let cooperative =
        |blocks| cu!(cuLaunchCooperativeKernel(plain, blocks, 1, 1, 1024, 1, 1, 0, NONE.cast(), NONE.cast()));
    assert_eq!(cooperative(1), CUDA_SUCCESS);
    assert_eq!(cooperative(1 << 20), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    ok!(cuCtxSynchronize());
}

#[test]
fn handles_that_are_nothing_destroyed_or_something_else() {
    let _context = Context::new();
    let (stream, mut event, function) = (stream(0), common::event(), kernel("", ""));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(garbage()));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(event.cast()));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(stream.cast(), stream));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(garbage(), stream));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(stream, std::ptr::null_mut(), 0));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&mut 0.0, event, event));
    fails!(
        CUDA_ERROR_INVALID_HANDLE,
        cuModuleGetFunction(&mut function.cast(), garbage(), c"faulty".as_ptr())
    );
    fails!(CUDA_ERROR_INVALID_HANDLE, cuFuncGetAttribute(&mut 0, CU_FUNC_ATTRIBUTE_NUM_REGS, garbage()));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(garbage()));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(garbage()));
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(garbage()));
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(garbage(), stream));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy(garbage()));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemRelease(0x1234));
    ok!(cuStreamDestroy_v2(stream));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(stream));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
    ok!(cuEventDestroy_v2(event));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(event));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventSynchronize(event));
    // An event of another context can be waited for, but not recorded.
    ok!(cuEventCreate(&mut event, 0));
    let other = Context::new();
    fails!(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, std::ptr::null_mut()));
    ok!(cuStreamWaitEvent(std::ptr::null_mut(), event, 0));
    // A context that was destroyed is none.
    let handle = other.0;
    drop(other);
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(handle));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(handle));
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(garbage()));
}

#[test]
fn values_that_are_out_of_range() {
    let _context = Context::new();
    let memory = upload(&[1; 64]);
    let mut host = [0u8; 64];
    let here = host.as_mut_ptr().cast::<c_void>();
    fails!(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&mut 0, 1));
    fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName(here.cast(), 64, -1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&mut 0, 0, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(std::ptr::null_mut(), 1, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&mut 0, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(std::ptr::null_mut(), 16));
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut 0, 1 << 50));
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut 0, usize::MAX));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory + 1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory, std::ptr::null(), 4));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory, here, 65));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(memory + 60, here, 8));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(here, 0, 4));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(memory + 2, 0, 1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(memory, 0, 65));
    ok!(cuMemcpyHtoD_v2(memory, here, 0));
    let rows = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: here,
        srcPitch: 4,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: memory,
        dstPitch: 8,
        WidthInBytes: 8,
        Height: 2,
        ..Plain::zeroed()
    };
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&rows));
    fails!(
        CUDA_ERROR_INVALID_VALUE,
        cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcPitch: 8, srcMemoryType: 77, ..rows })
    );
    ok!(cuMemcpy2D_v2(&CUDA_MEMCPY2D { srcPitch: 8, ..rows }));
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&mut NONE.cast(), 8));
    fails!(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&mut NONE.cast(), 1 << 20));
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamAddCallback(NONE.cast(), None, NONE, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc(NONE.cast(), None, NONE));
    fails!(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit(99, 1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(std::ptr::null_mut(), 64, 0));
    fails!(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(here));
    ok!(cuMemHostRegister_v2(here, 64, 0));
    fails!(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(here, 64, 0));
    ok!(cuMemHostUnregister(here));
    fails!(
        CUDA_ERROR_INVALID_VALUE,
        cuPointerGetAttribute(here, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, here as u64)
    );
    fails!(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&mut 0, &mut 0, 77));
}

#[test]
fn without_a_context_nothing_that_needs_one_works() {
    // A thread of its own has no current context.
    std::thread::spawn(|| {
        ok!(cuInit(0));
        let mut context = garbage();
        ok!(cuCtxGetCurrent(&mut context));
        assert!(context.is_null());
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&mut 0, 16));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&mut NONE.cast(), 0));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuEventCreate(&mut NONE.cast(), 0));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&mut context));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&mut 0));
        fails!(CUDA_ERROR_INVALID_CONTEXT, cuStreamSynchronize(NONE.cast()));
    })
    .join()
    .unwrap();
}
