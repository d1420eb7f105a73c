//! The device of compute capability 9.0: what it says of itself, which PTX it takes, and clusters.
//!
//! The capability belongs to the process, so this is one test, which sets it before anything else.

mod common;

use common::{Context, cu, download, fails, ok, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::{CStr, CString, c_void};

const NONE: *mut c_void = std::ptr::null_mut();

/// A kernel of clusters in which each thread reads the number of the next block of its cluster.
const NEIGHBOURS: &str = ".visible .entry k(.param .u64 to) {
    .shared .b32 cell; .reg .b32 %r<9>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to]; mov.u32 %r1, %ctaid.x; st.shared.u32 [cell], %r1;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 1; mov.u32 %r3, cell;
    mapa.shared::cluster.u32 %r3, %r3, %r2; ld.shared::cluster.u32 %r4, [%r3];
    mad.wide.u32 %rd1, %r1, 4, %rd1; st.global.u32 [%rd1], %r4;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret; }";

fn attribute(attribute: CUdevice_attribute) -> i32 {
    let mut value = -1;
    ok!(cuDeviceGetAttribute(&mut value, attribute, 0));
    value
}

fn load(target: &str, body: &str) -> (CUresult, CUmodule) {
    let source = format!(".version 8.0\n.target {target}\n.address_size 64\n{body}\n");
    let (source, mut module) = (CString::new(source).unwrap(), NONE.cast());
    let code = cu!(cuModuleLoadData(&mut module, source.as_ptr().cast()));
    (code, module)
}

/// Launches 4 blocks of one thread in clusters of this many.
fn launch(function: CUfunction, cluster: u32, to: CUdeviceptr) -> CUresult {
    let mut attribute: CUlaunchAttribute = Plain::zeroed();
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = CUlaunchAttributeValue_clusterDim { x: cluster, y: 1, z: 1 };
    let mut config: CUlaunchConfig = Plain::zeroed();
    (config.gridDimX, config.gridDimY, config.gridDimZ) = (4, 1, 1);
    (config.blockDimX, config.blockDimY, config.blockDimZ) = (1, 1, 1);
    (config.attrs, config.numAttrs) = (&mut attribute, 1);
    let mut to = to;
    let mut arguments = [(&raw mut to).cast::<c_void>()];
    cu!(cuLaunchKernelEx(&config, function, arguments.as_mut_ptr(), NONE.cast()))
}

/// Encodes a map of 8 by 4 numbers of 16 bits at `address`, in boxes of this width.
fn encode(map: &mut CUtensorMap, address: u64, width: u32) -> CUresult {
    let (sizes, strides, steps, spans) = ([8u64, 4], [16u64], [1u32, 1], [width, 2]);
    cu!(cuTensorMapEncodeTiled(
        map,
        CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2,
        address as *mut c_void,
        sizes.as_ptr(),
        strides.as_ptr(),
        spans.as_ptr(),
        steps.as_ptr(),
        CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_32B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    ))
}

fn tensor_maps() {
    assert_eq!(attribute(CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED), 1);
    let (mut map, address): (CUtensorMap, _) = (Plain::zeroed(), upload(&[0; 256]));
    fails!(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress(&mut map, address as *mut c_void));
    for (at, width) in [(address + 2, 8), (address, 4), (address, 32), (address, 0)] {
        assert_eq!(encode(&mut map, at, width), CUDA_ERROR_INVALID_VALUE, "{width}");
    }
    assert_eq!(encode(&mut map, address, 8), CUDA_SUCCESS);
    let described =
        ptx_exec::TensorMap::from_bytes(&std::array::from_fn(|at| map.opaque[at / 8].to_le_bytes()[at % 8]));
    assert_eq!(described.map(|map| (map.address, map.sizes[1], map.box_bytes())), Some((address, 4, 32)));
    ok!(cuTensorMapReplaceAddress(&mut map, (address + 16) as *mut c_void));
}

#[test]
fn a_device_of_9_0_says_so_and_has_clusters() {
    // SAFETY: no other thread of this process reads the environment yet: it has one test.
    unsafe { std::env::set_var("APEX_CPU_CAPABILITY", "9.0") };
    let _context = Context::new();
    let capability = [
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
    ];
    assert_eq!(capability.map(attribute), [9, 0, 1]);
    assert_eq!(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 227 << 10);
    let mut name = [0; 64];
    ok!(cuDeviceGetName(name.as_mut_ptr(), 64, 0));
    // SAFETY: the call has written a string.
    assert_eq!(unsafe { CStr::from_ptr(name.as_ptr()) }, c"APEX CPU device (sm_90)");

    let kernel = ".visible .entry k() { ret; }";
    for target in ["sm_80", "sm_90", "sm_90a"] {
        assert_eq!(load(target, kernel).0, CUDA_SUCCESS, "{target}");
    }
    assert_eq!(load("sm_89a", kernel).0, CUDA_ERROR_INVALID_PTX);
    tensor_maps();

    let (code, module) = load("sm_90", NEIGHBOURS);
    assert_eq!(code, CUDA_SUCCESS);
    let (mut function, to) = (NONE.cast(), upload(&[0u8; 16]));
    ok!(cuModuleGetFunction(&mut function, module, c"k".as_ptr()));
    assert_eq!(launch(function, 2, to), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    let words: Vec<u8> = download(to, 16);
    assert_eq!(words, [1u32, 0, 3, 2].map(u32::to_le_bytes).concat());
    for wrong in [3, 16, 0] {
        assert_eq!(launch(function, wrong, to), CUDA_ERROR_INVALID_CLUSTER_SIZE, "{wrong}");
    }
    fails!(
        CUDA_ERROR_INVALID_VALUE,
        cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (227 << 10) + 1)
    );
}
