//! A kernel that executes one instruction on a texture or surface, and the objects that it
//! accesses.

use std::ffi::{CString, c_void};

use crate::common::{cu, download, ok, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;

/// The kernel's parameters are an object, a row of four words for each thread, and the address of
/// four results.
const KERNEL: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry access(.param .u64 object, .param .u64 inputs, .param .u64 outputs, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b16 %h<5>;
    .reg .b32 %r<20>;
    .reg .f32 %f<20>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [object];
    ld.param.u64 %rd2, [inputs];
    ld.param.u64 %rd3, [outputs];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r2, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 ret;
    mul.wide.u32 %rd4, %r2, 16;
    add.u64 %rd2, %rd2, %rd4;
    add.u64 %rd3, %rd3, %rd4;
    ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd2];
    mov.b32 %f5, %r5;
    mov.b32 %f6, %r6;
    mov.b32 %f7, %r7;
    mov.b32 %f8, %r8;
    mov.b32 %r10, 0;
    mov.b32 %r11, 0;
    mov.b32 %r12, 0;
    mov.b32 %r13, 0;
    @INSTRUCTION@
    st.global.v4.b32 [%rd3], {%r10, %r11, %r12, %r13};
    ret;
}
";

/// Runs `instruction` with `%r5` to `%r8` (as floats `%f5` to `%f8`) from each input and the object
/// in `%rd1`; returns `%r10` to `%r13`, or the code of what went wrong.
pub fn run(instruction: &str, object: u64, inputs: &[[u32; 4]]) -> Result<Vec<[u32; 4]>, CUresult> {
    run_and(instruction, object, inputs, || ())
}

/// The same; calls `meanwhile` as soon as the kernel is launched.
pub fn run_and(
    instruction: &str,
    object: u64,
    inputs: &[[u32; 4]],
    meanwhile: impl FnOnce(),
) -> Result<Vec<[u32; 4]>, CUresult> {
    let image = CString::new(KERNEL.replace("@INSTRUCTION@", instruction)).unwrap();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, c"access".as_ptr()));
    let bytes: Vec<u8> = inputs.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    let (mut object, mut count) = (object, inputs.len() as u32);
    let (mut from, mut to) = (upload(&bytes), upload(&vec![0; bytes.len()]));
    let mut arguments: [*mut c_void; 4] =
        [(&raw mut object).cast(), (&raw mut from).cast(), (&raw mut to).cast(), (&raw mut count).cast()];
    let (stream, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
    let blocks = count.div_ceil(64);
    ok!(cuLaunchKernel(function, blocks, 1, 1, 64, 1, 1, 0, stream, arguments.as_mut_ptr(), extra));
    meanwhile();
    let code = cu!(cuCtxSynchronize());
    if code != CUDA_SUCCESS {
        return Err(code);
    }
    let results = download(to, bytes.len());
    let words: Vec<u32> =
        results.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    Ok(words.chunks(4).map(|four| four.try_into().unwrap()).collect())
}

/// `tex` with four float coordinates.
pub const RESULTS: &str = "{%r10, %r11, %r12, %r13}";

pub fn floats(values: [f32; 4]) -> [u32; 4] {
    values.map(f32::to_bits)
}

pub fn descriptor(
    extent: [usize; 3],
    format: CUarray_format,
    channels: u32,
    flags: u32,
) -> CUDA_ARRAY3D_DESCRIPTOR {
    let [width, height, depth] = extent;
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    }
}

pub fn array(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CUarray {
    let mut array = std::ptr::null_mut();
    ok!(cuArray3DCreate_v2(&mut array, descriptor));
    array
}

/// Copies host bytes to the whole of an array, or back.
pub fn copy(array: CUarray, bytes: &mut [u8], row: usize, rows: usize, layers: usize, to_array: bool) {
    let host = bytes.as_mut_ptr();
    let mut copy = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: host.cast(),
        srcPitch: row,
        srcHeight: rows,
        dstMemoryType: CU_MEMORYTYPE_ARRAY,
        dstArray: array,
        WidthInBytes: row,
        Height: rows,
        Depth: layers,
        ..Plain::zeroed()
    };
    if !to_array {
        (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, array);
        (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, host.cast());
        (copy.dstPitch, copy.dstHeight) = (row, rows);
    }
    ok!(cuMemcpy3D_v2(&copy));
}

pub fn of_array(array: CUarray) -> CUDA_RESOURCE_DESC {
    let mut resource: CUDA_RESOURCE_DESC = Plain::zeroed();
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array = CUDA_RESOURCE_DESC_v1_res_array { hArray: array };
    resource
}

pub fn texture(resource: &CUDA_RESOURCE_DESC, description: &CUDA_TEXTURE_DESC) -> CUtexObject {
    let mut object = 0;
    ok!(cuTexObjectCreate(&mut object, resource, description, std::ptr::null()));
    object
}

pub fn sampled(mode: CUaddress_mode, filter: CUfilter_mode, flags: u32) -> CUDA_TEXTURE_DESC {
    CUDA_TEXTURE_DESC {
        addressMode: [mode; 3],
        filterMode: filter,
        flags,
        borderColor: [0.5, -2.0, 0.25, 8.0],
        maxMipmapLevelClamp: 99.0,
        ..Plain::zeroed()
    }
}
