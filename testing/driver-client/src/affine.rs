//! Kernels that multiply and add, and the ways to launch them. What two of them compute depends on
//! their order.

use crate::driver::cuda;
use cuda_abi::types::*;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

/// Values of a buffer, and threads of a launch.
pub const VALUES: usize = 64;

/// Bytes of the parameter that makes a launch's parameters larger than the driver's older limit.
pub const LARGE: usize = 4200;

pub const PTX: &CStr = c"
.version 8.1
.target sm_70
.address_size 64
.visible .entry affine(.param .u64 p, .param .u32 a, .param .u32 b, .param .u32 delay)
{
    .reg .pred %q; .reg .b32 %r<8>; .reg .b64 %d<3>;
    ld.param.u64 %d1, [p]; ld.param.u32 %r1, [a]; ld.param.u32 %r2, [b]; ld.param.u32 %r3, [delay];
    mov.u32 %r4, %tid.x; mul.wide.u32 %d2, %r4, 4; add.u64 %d1, %d1, %d2; mov.u32 %r5, 0;
again:
    setp.ge.u32 %q, %r5, %r3; @%q bra done; add.u32 %r5, %r5, 1; bra again;
done:
    ld.global.u32 %r6, [%d1]; mad.lo.u32 %r6, %r6, %r1, %r2; st.global.u32 [%d1], %r6; ret;
}
.visible .entry mixed(.param .u8 x, .param .u64 p, .param .u16 y, .param .align 8 .b8 large[4200], .param .u32 b)
{
    .reg .b16 %h<3>; .reg .b32 %r<8>; .reg .b64 %d<3>;
    ld.param.u8 %h1, [x]; ld.param.u64 %d1, [p]; ld.param.u16 %h2, [y]; ld.param.u32 %r1, [large+4196];
    ld.param.u32 %r2, [b]; cvt.u32.u16 %r3, %h1; cvt.u32.u16 %r4, %h2;
    mov.u32 %r5, %tid.x; mul.wide.u32 %d2, %r5, 4; add.u64 %d1, %d1, %d2;
    ld.global.u32 %r6, [%d1]; mad.lo.u32 %r6, %r6, %r3, %r4; mad.lo.u32 %r6, %r6, %r1, %r2;
    st.global.u32 [%d1], %r6; ret;
}
";

/// Multiplies the values at `address` with `a` and adds `b`.
pub fn launch_affine(function: usize, stream: usize, address: CUdeviceptr, [a, b]: [u32; 2]) -> CUresult {
    let (mut p, mut a, mut b, mut delay) = (address, a, b, 0_u32);
    launch(
        function,
        stream,
        &mut [(&raw mut p).cast(), (&raw mut a).cast(), (&raw mut b).cast(), (&raw mut delay).cast()],
    )
}

/// Launches `affine` or `mixed` with one thread for each value.
pub fn launch(function: usize, stream: usize, pointers: &mut [*mut c_void]) -> CUresult {
    launch_threads(function, stream, VALUES as u32, pointers)
}

/// As [`launch`], with `threads` threads.
pub fn launch_threads(
    function: usize,
    stream: usize,
    threads: u32,
    pointers: &mut [*mut c_void],
) -> CUresult {
    let (function, stream, pointers) = (function as CUfunction, stream as CUstream, pointers.as_mut_ptr());
    cuda!(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, pointers, null_mut()))
}

/// As [`launch`], by `cuLaunchKernelEx` with an attribute.
pub fn launch_with_attributes(function: usize, stream: usize, pointers: &mut [*mut c_void]) -> CUresult {
    // SAFETY: zeros are a value of these structures.
    let (mut config, mut attribute): (CUlaunchConfig, CUlaunchAttribute) = unsafe { std::mem::zeroed() };
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = 1;
    attribute.value.clusterDim.y = 1;
    attribute.value.clusterDim.z = 1;
    (config.gridDimX, config.gridDimY, config.gridDimZ) = (1, 1, 1);
    (config.blockDimX, config.blockDimY, config.blockDimZ) = (VALUES as u32, 1, 1);
    config.hStream = stream as CUstream;
    (config.attrs, config.numAttrs) = (&raw mut attribute, 1);
    let result = cuda!(cuLaunchKernelEx(&config, function as CUfunction, pointers.as_mut_ptr(), null_mut()));
    attribute.id = 0;
    std::hint::black_box(&attribute);
    result
}

/// Gives all parameters in one buffer, packed as the function lays them out.
pub fn launch_with_buffer(function: usize, stream: usize, parameters: (u64, u32, u32, u32)) -> CUresult {
    let (p, a, b, delay) = parameters;
    let mut buffer = [0u8; 20];
    buffer[..8].copy_from_slice(&p.to_le_bytes());
    for (at, value) in [a, b, delay].into_iter().enumerate() {
        buffer[8 + 4 * at..][..4].copy_from_slice(&value.to_le_bytes());
    }
    let mut bytes = buffer.len();
    let mut extra = [
        CU_LAUNCH_PARAM_BUFFER_POINTER,
        buffer.as_mut_ptr().cast(),
        CU_LAUNCH_PARAM_BUFFER_SIZE,
        (&raw mut bytes).cast(),
        CU_LAUNCH_PARAM_END,
    ];
    let (function, stream, threads) = (function as CUfunction, stream as CUstream, VALUES as u32);
    let result =
        cuda!(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, null_mut(), extra.as_mut_ptr()));
    buffer.fill(0xee);
    std::hint::black_box(&buffer);
    result
}
