//! The device of compute capability 12.0: what it says of itself, and which PTX it takes.
//!
//! The capability belongs to the process, so this is one test, which sets it before anything else.

mod common;

use common::{Context, cu, download, ok, upload};
use cuda_abi::types::*;
use std::ffi::{CStr, CString, c_void};

const NONE: *mut c_void = std::ptr::null_mut();

/// Adds pairs that lie 256 bits apart, and makes the sums of four bits.
const NEW: &str = ".visible .entry k(.param .u64 to) {
    .reg .b64 %rd<6>; .reg .f32 %f<3>; .reg .b8 %n; .reg .b32 %r;
    ld.param.u64 %rd0, [to]; ld.global.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [%rd0];
    add.rn.f32x2 %rd1, %rd1, %rd4; mov.b64 {%f0, %f1}, %rd1;
    cvt.rn.satfinite.e2m1x2.f32 %n, %f1, %f0; cvt.u32.u8 %r, %n; st.global.u32 [%rd0], %r; ret; }";

fn attribute(attribute: CUdevice_attribute) -> i32 {
    let mut value = -1;
    ok!(cuDeviceGetAttribute(&mut value, attribute, 0));
    value
}

fn load(header: &str, body: &str) -> (CUresult, CUmodule) {
    let (version, target) = header.split_once(' ').unwrap();
    let source = format!(".version {version}\n.target {target}\n.address_size 64\n{body}\n");
    let (source, mut module) = (CString::new(source).unwrap(), NONE.cast());
    let code = cu!(cuModuleLoadData(&mut module, source.as_ptr().cast()));
    (code, module)
}

#[test]
fn a_device_of_12_0_says_so_and_takes_its_ptx() {
    // SAFETY: no other thread of this process reads the environment yet: it has one test.
    unsafe { std::env::set_var("APEX_CPU_CAPABILITY", "12.0") };
    let _context = Context::new();
    let capability = [
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
    ];
    assert_eq!(capability.map(attribute), [12, 0, 1, 1536]);
    assert_eq!(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 99 << 10);
    let mut name = [0; 64];
    ok!(cuDeviceGetName(name.as_mut_ptr(), 64, 0));
    // SAFETY: the call has written a string.
    assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }, c"APEX CPU device (sm_120)");

    let kernel = ".visible .entry k() { ret; }";
    for header in ["7.0 sm_80", "8.0 sm_90", "8.6 sm_100", "8.7 sm_120", "8.7 sm_120a", "8.8 sm_120f"] {
        assert_eq!(load(header, kernel).0, CUDA_SUCCESS, "{header}");
    }
    for header in ["8.0 sm_90a", "8.6 sm_100a", "8.8 sm_100f", "8.8 sm_121"] {
        assert_eq!(load(header, kernel).0, CUDA_ERROR_INVALID_PTX, "{header}");
    }
    // Warp groups are 9.0's alone, tensor memory 10.0's.
    for statement in ["wgmma.fence.sync.aligned;", "tcgen05.fence::before_thread_sync;"] {
        let body = format!(".visible .entry k() {{ {statement} ret; }}");
        assert_eq!(load("8.7 sm_120a", &body).0, CUDA_ERROR_INVALID_PTX, "{statement}");
    }
    // What only the architecture's own target has is refused in the plain one.
    assert_eq!(load("8.7 sm_120", NEW).0, CUDA_ERROR_INVALID_PTX);

    let (code, module) = load("8.8 sm_120a", NEW);
    assert_eq!(code, CUDA_SUCCESS);
    let numbers = [0.5f32, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, -4.0];
    let (mut function, to) = (NONE.cast(), upload(numbers.map(f32::to_le_bytes).as_flattened()));
    ok!(cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    let mut argument = to;
    let mut arguments = [(&raw mut argument).cast::<c_void>()];
    ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NONE.cast(), arguments.as_mut_ptr(), NONE.cast()));
    ok!(cuCtxSynchronize());
    // 1.5 is 0011, and -3 is 1101.
    let word: Vec<u8> = download(to, 4);
    assert_eq!(word, 0xd3u32.to_le_bytes());
}
