//! Kernels through the driver's functions: modules, libraries, launches in every form, graphs'
//! kernel nodes, faults.

mod common;

use apex_random::Random;
use common::{Context, cu, download, fails, function, image, module, ok, stream, upload};
use cuda_abi::Plain;
use cuda_abi::types::*;
use std::ffi::{CStr, CString, c_char, c_void};

/// Ends in a zero byte, as an image of text has to.
fn library() -> CUlibrary {
    let mut library = std::ptr::null_mut();
    let none = std::ptr::null_mut::<c_void>();
    ok!(cuLibraryLoadData(
        &mut library,
        image().as_ptr().cast(),
        none.cast(),
        none.cast(),
        0,
        none.cast(),
        none.cast(),
        0
    ));
    library
}

fn kernel(library: CUlibrary, name: &CStr) -> CUkernel {
    let mut kernel = std::ptr::null_mut();
    ok!(cuLibraryGetKernel(&mut kernel, library, name.as_ptr()));
    kernel
}

fn pointer<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// Launches one-dimensionally in the legacy default stream; returns the result code.
fn launch(function: CUfunction, grid: u32, block: u32, arguments: &mut [*mut c_void]) -> CUresult {
    let (stream, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
    cu!(cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, arguments.as_mut_ptr(), extra))
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn longs(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|long| u64::from_le_bytes(long.try_into().unwrap())).collect()
}

/// A random vector on the device: its values, and its address.
fn vector(random: &mut Random, count: usize) -> (Vec<u32>, CUdeviceptr) {
    let bytes = random.bytes(4 * count);
    (words(&bytes), upload(&bytes))
}

#[test]
fn a_kernel_computes() {
    let _context = Context::new();
    let add = function(module(), c"add");
    let mut random = Random::new(1);
    for _ in 0..20 {
        let count = 1 + random.below(5000) as usize;
        let (values, mut address) = vector(&mut random, count);
        let (mut amount, mut length) = (random.bits() as u32, count as u32);
        let block = 1 + random.below(256) as u32;
        let mut arguments = [pointer(&mut address), pointer(&mut amount), pointer(&mut length)];
        assert_eq!(launch(add, length.div_ceil(block), block, &mut arguments), CUDA_SUCCESS);
        let expected: Vec<u32> = values.iter().map(|value| value.wrapping_add(amount)).collect();
        assert_eq!(words(&download(address, 4 * count)), expected);
        ok!(cuMemFree_v2(address));
    }
}

#[test]
fn arguments_arrive_in_every_form() {
    let _context = Context::new();
    let function = function(module(), c"arguments");
    let mut count = 0;
    ok!(cuFuncGetParamCount(function, &mut count));
    assert_eq!(count, 7);
    let layout: Vec<(usize, usize)> = (0..count)
        .map(|index| {
            let (mut offset, mut size) = (0, 0);
            ok!(cuFuncGetParamInfo(function, index, &mut offset, &mut size));
            (offset, size)
        })
        .collect();
    assert_eq!(layout, [(0, 8), (8, 1), (10, 2), (12, 1), (16, 4), (24, 8), (32, 12)]);
    fails!(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(function, 7, &mut 0, &mut 0));

    let mut random = Random::new(2);
    for form in 0..3 {
        let mut output = upload(&[0; 48]);
        let (mut a, mut b, mut c) = (random.bits() as u8, random.bits() as u16, random.bits() as u8);
        let (mut d, mut e, mut f) = (random.bits() as u32, random.bits(), [1u32, 2, random.bits() as u32]);
        let mut packed = [0u8; 44];
        for ((offset, _), value) in layout.iter().zip([output, a.into(), b.into(), c.into(), d.into(), e]) {
            packed[*offset..][..8].copy_from_slice(&value.to_le_bytes());
        }
        for (index, word) in f.iter().enumerate() {
            packed[32 + 4 * index..][..4].copy_from_slice(&word.to_le_bytes());
        }
        let mut bytes = packed.len();
        let null = std::ptr::null_mut();
        match form {
            0 => {
                let mut pointers = [
                    pointer(&mut output),
                    pointer(&mut a),
                    pointer(&mut b),
                    pointer(&mut c),
                    pointer(&mut d),
                    pointer(&mut e),
                    pointer(&mut f),
                ];
                assert_eq!(launch(function, 1, 1, &mut pointers), CUDA_SUCCESS);
            }
            1 => {
                // CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
                let option = |number| std::ptr::without_provenance_mut::<c_void>(number);
                let mut extra = [option(1), pointer(&mut packed), option(2), pointer(&mut bytes), option(0)];
                let none = std::ptr::null_mut();
                ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, none, none.cast(), extra.as_mut_ptr()));
                bytes = 43;
                fails!(
                    CUDA_ERROR_INVALID_VALUE,
                    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, none, none.cast(), extra.as_mut_ptr())
                );
            }
            _ => {
                ok!(cuFuncSetBlockShape(function, 1, 1, 1));
                ok!(cuParamSetv(function, 0, pointer(&mut packed), 32));
                ok!(cuParamSeti(function, 40, f[2]));
                ok!(cuLaunchGridAsync(function, 1, 1, null));
            }
        }
        let expected = [a.into(), b.into(), c.into(), d.into(), e, u64::from(f[2])];
        assert_eq!(longs(&download(output, 48)), expected, "form {form}");
    }
}

#[test]
fn variables_have_addresses_and_initial_values() {
    let _context = Context::new();
    let module = module();
    let count = function(module, c"count");
    let (mut address, mut bytes) = (0, 0);
    ok!(cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"counter".as_ptr()));
    assert_eq!((bytes, words(&download(address, 4))), (4, vec![40]));
    for mut index in [0u32, 3, 1] {
        assert_eq!(launch(count, 1, 1, &mut [pointer(&mut index)]), CUDA_SUCCESS);
    }
    assert_eq!(words(&download(address, 4)), [40 + 1 + 4 + 2]);
    // What is constant to a kernel is not to the host.
    let mut table = 0;
    ok!(cuModuleGetGlobal_v2(&mut table, std::ptr::null_mut(), module, c"table".as_ptr()));
    ok!(cuMemsetD32_v2(table, 100, 1));
    assert_eq!(launch(count, 1, 1, &mut [pointer(&mut 0u32)]), CUDA_SUCCESS);
    assert_eq!(words(&download(address, 4)), [147]);
    fails!(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"nothing".as_ptr()));
    ok!(cuModuleUnload(module));
    fails!(
        CUDA_ERROR_INVALID_HANDLE,
        cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"counter".as_ptr())
    );
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(table, 100, 1));
}

#[test]
fn a_library_is_at_home_in_every_context() {
    let first = Context::new();
    let library = library();
    let count = kernel(library, c"count");
    let counter = || {
        let (mut address, mut bytes) = (0, 0);
        ok!(cuLibraryGetGlobal(&mut address, &mut bytes, library, c"counter".as_ptr()));
        words(&download(address, bytes))[0]
    };
    // A kernel can be launched as it is, in place of a function.
    assert_eq!(launch(count.cast(), 1, 1, &mut [pointer(&mut 1u32)]), CUDA_SUCCESS);
    assert_eq!(counter(), 42);
    let second = Context::new();
    assert_eq!(counter(), 40, "each context has variables of its own");
    let mut function = std::ptr::null_mut();
    ok!(cuKernelGetFunction(&mut function, count));
    assert_eq!(launch(function, 1, 1, &mut [pointer(&mut 3u32)]), CUDA_SUCCESS);
    assert_eq!(counter(), 44);
    drop(second);
    assert_eq!(first.0, {
        let mut current = std::ptr::null_mut();
        ok!(cuCtxGetCurrent(&mut current));
        current
    });
    assert_eq!(counter(), 42);

    let mut name: *const c_char = std::ptr::null();
    ok!(cuKernelGetName(&mut name, count));
    // SAFETY: the call has just told where the name is.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"count");
    let mut kernels = 0;
    ok!(cuLibraryGetKernelCount(&mut kernels, library));
    assert_eq!(kernels, 6);
    ok!(cuLibraryUnload(library));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuKernelGetName(&mut name, count));
    assert_eq!(launch(count.cast(), 1, 1, &mut [pointer(&mut 1u32)]), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn impossible_configurations_are_refused() {
    let _context = Context::new();
    let module = module();
    let (bounded, null) = (function(module, c"at_most_64"), std::ptr::null_mut());
    let launch = |grid: [u32; 3], block: [u32; 3], shared: u32| {
        let [gx, gy, gz] = grid;
        let [bx, by, bz] = block;
        cu!(cuLaunchKernel(bounded, gx, gy, gz, bx, by, bz, shared, null, null.cast(), null.cast()))
    };
    assert_eq!(launch([1, 1, 1], [64, 1, 1], 48 << 10), CUDA_SUCCESS);
    assert_eq!(launch([0, 1, 1], [64, 1, 1], 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch([1, 65536, 1], [64, 1, 1], 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch([1, 1, 1], [64, 0, 1], 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch([1, 1, 1], [1, 1, 65], 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch([1, 1, 1], [65, 32, 1], 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch([1, 1, 1], [65, 1, 1], 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(launch([1, 1, 1], [64, 1, 1], (48 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
    let shared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    fails!(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute(bounded, shared, 164 << 10));
    ok!(cuFuncSetAttribute(bounded, shared, 100 << 10));
    assert_eq!(launch([1, 1, 1], [64, 1, 1], 100 << 10), CUDA_SUCCESS);
    // A cooperative grid has to fit on the device at once.
    let cooperative =
        |blocks: u32| cu!(cuLaunchCooperativeKernel(bounded, blocks, 1, 1, 64, 1, 1, 0, null, null.cast()));
    let (mut resident, mut multiprocessors) = (0, 0);
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut resident, bounded, 64, 0));
    ok!(cuDeviceGetAttribute(&mut multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    let most = (resident * multiprocessors) as u32;
    assert_eq!(cooperative(most), CUDA_SUCCESS);
    assert_eq!(cooperative(most + 1), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    // Missing arguments.
    assert_eq!(
        cu!(cuLaunchKernel(
            function(module, c"stop"),
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            bounded.cast(),
            null.cast(),
            null.cast()
        )),
        CUDA_ERROR_INVALID_HANDLE
    );
    let add = function(module, c"add");
    assert_eq!(
        cu!(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, null, null.cast(), null.cast())),
        CUDA_ERROR_INVALID_VALUE
    );
    ok!(cuCtxSynchronize());
}

#[test]
fn occupancy_is_the_calculator_s() {
    let _context = Context::new();
    let module = module();
    let (add, bounded) = (function(module, c"add"), function(module, c"at_most_64"));
    let mut blocks = 0;
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, add, 256, 0));
    assert_eq!(blocks, 8, "2048 threads");
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, add, 32, 0));
    assert_eq!(blocks, 32, "as many blocks as there can be");
    let (mut grid, mut block, mut multiprocessors) = (0, 0, 0);
    ok!(cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, bounded, None, 0, 0));
    ok!(cuDeviceGetAttribute(&mut multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    assert_eq!((grid, block), (32 * multiprocessors, 64));
    let mut shared = 0;
    ok!(cuOccupancyAvailableDynamicSMemPerBlock(&mut shared, add, 3, 256));
    ok!(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 163 << 10));
    ok!(cuOccupancyAvailableDynamicSMemPerBlock(&mut shared, add, 3, 256));
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, add, 256, shared));
    assert!(blocks >= 3);
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, add, 256, shared + 1));
    assert!(blocks < 3);
}

#[test]
fn streams_run_kernels_at_the_same_time() {
    let _context = Context::new();
    let module = module();
    let wait_for = function(module, c"wait_for");
    let (waiting, setting) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (mut flag, mut done) = (upload(&[0; 4]), upload(&[0; 4]));
    let mut arguments = [pointer(&mut flag), pointer(&mut done)];
    ok!(cuLaunchKernel(wait_for, 1, 1, 1, 1, 1, 1, 0, waiting, arguments.as_mut_ptr(), std::ptr::null_mut()));
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
    // It ends only if the other stream's work is done while it runs.
    let (mut amount, mut length) = (1u32, 1u32);
    let mut arguments = [pointer(&mut flag), pointer(&mut amount), pointer(&mut length)];
    let add = function(module, c"add");
    ok!(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, setting, arguments.as_mut_ptr(), std::ptr::null_mut()));
    ok!(cuStreamSynchronize(waiting));
    assert_eq!(words(&download(done, 4)), [1]);
}

#[test]
fn kernel_nodes_can_be_read_and_changed() {
    let _context = Context::new();
    let add = function(module(), c"add");
    let (mut values, mut amount, mut count) = (upload(&[0; 40]), 5u32, 10u32);
    let mut arguments = [pointer(&mut values), pointer(&mut amount), pointer(&mut count)];
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ok!(cuLaunchKernel(add, 1, 1, 1, 10, 1, 1, 0, stream, arguments.as_mut_ptr(), std::ptr::null_mut()));
    ok!(cuStreamEndCapture(stream, &mut graph));
    // The arguments were taken when the kernel was captured.
    *std::hint::black_box(&mut amount) = 1000;
    let (mut node, mut nodes) = (std::ptr::null_mut(), 1);
    ok!(cuGraphGetNodes(graph, &mut node, &mut nodes));
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(words(&download(values, 40)), [10; 10]);

    let mut params = CUDA_KERNEL_NODE_PARAMS::zeroed();
    ok!(cuGraphKernelNodeGetParams_v2(node, &mut params));
    assert_eq!((params.func, params.gridDimX, params.blockDimX, params.sharedMemBytes), (add, 1, 10, 0));
    // SAFETY: the node has three arguments, the second a 32-bit one.
    assert_eq!(unsafe { *(*params.kernelParams.add(1)).cast::<u32>() }, 5);
    params.kernelParams = arguments.as_mut_ptr();
    params.blockDimX = 4;
    ok!(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    let changed = words(&download(values, 40));
    assert_eq!((&changed[..4], &changed[4..]), (&[1010; 4][..], &[10; 6][..]));
    params.blockDimX = 2000;
    fails!(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
}

#[test]
fn a_fault_stays_with_its_context() {
    let healthy = Context::new();
    let sound = upload(&[1, 2, 3]);
    {
        let _context = Context::new();
        let module = module();
        let (add, mut amount, mut count) = (function(module, c"add"), 1u32, 100u32);
        let mut values = upload(&[0; 40]);
        let mut arguments = [pointer(&mut values), pointer(&mut amount), pointer(&mut count)];
        // The launch itself succeeds: the kernel runs past the end later.
        assert_eq!(launch(add, 1, 100, &mut arguments), CUDA_SUCCESS);
        fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
        fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&mut values, 10));
        fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(std::ptr::null_mut()));
        assert_eq!(launch(add, 1, 1, &mut arguments), CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    let mut current = std::ptr::null_mut();
    ok!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, healthy.0);
    assert_eq!(download(sound, 3), [1, 2, 3]);
    {
        let _context = Context::new();
        assert_eq!(launch(function(module(), c"stop"), 1, 1, &mut []), CUDA_SUCCESS);
        fails!(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
    }
}

#[test]
fn freed_memory_is_out_of_bounds() {
    let _context = Context::new();
    let (add, mut amount, mut count) = (function(module(), c"add"), 1u32, 10u32);
    let mut values = upload(&[0; 40]);
    ok!(cuMemFree_v2(values));
    let _other = upload(&[0; 40]);
    let mut arguments = [pointer(&mut values), pointer(&mut amount), pointer(&mut count)];
    assert_eq!(launch(add, 1, 10, &mut arguments), CUDA_SUCCESS);
    fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

#[test]
fn images_that_can_t_be_loaded_say_why() {
    let _context = Context::new();
    let mut module = std::ptr::null_mut();
    let load = |module: &mut CUmodule, text: &CStr| {
        let mut log = [1u8; 400];
        let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
        let image = text.as_ptr().cast();
        let code = cu!(cuModuleLoadDataEx(module, image, 2, options.as_mut_ptr(), values.as_mut_ptr()));
        let length = log.iter().position(|byte| *byte == 0).expect("the log ends in a zero byte");
        assert_eq!(values[1] as usize, length, "the log's size is told");
        (code, String::from_utf8(log[..length].to_vec()).unwrap())
    };
    let broken = CString::new(include_str!("data/kernels.ptx").replace("mad.lo.s32", "mad lo s32")).unwrap();
    let (code, log) = load(&mut module, &broken);
    assert_eq!(code, CUDA_ERROR_INVALID_PTX);
    let line =
        include_str!("data/kernels.ptx").lines().position(|line| line.contains("mad.lo.s32")).unwrap() + 1;
    assert!(log.contains(&format!(":{line}:")) && log.contains("mad lo s32"), "{log}");
    assert_eq!(load(&mut module, c"this is not PTX").0, CUDA_ERROR_INVALID_PTX);
    let wrong = c".version 7.0\n.target sm_80\n.address_size 64\n.entry k()\n{\n.reg .b32 %r<3>;\n\
        add.u32 %r0, %r1;\nret;\nmov.u32 %r9, 1;\n}\n";
    let (code, log) = load(&mut module, wrong);
    assert_eq!(code, CUDA_ERROR_INVALID_PTX);
    for expected in ["ptx:7:1: error: `add.u32` takes 3 operands (d, a, b), 2 are given", "ptx:9:1: error:"] {
        assert!(log.contains(expected), "{log}");
    }
    let (code, log) = load(&mut module, c"\x7fELF machine code");
    assert_eq!(code, CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert!(log.contains("compute_80"), "{log}");
    let (code, log) = load(&mut module, c"\xed\x43\x4e\x7f");
    assert_eq!(code, CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert!(log.contains("LTO-IR (link-time optimisation)") && log.contains("without -dlto"), "{log}");
    assert_eq!(load(&mut module, c"\x01\x02\x03").0, CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(load(&mut module, c"").0, CUDA_ERROR_INVALID_IMAGE);
    assert!(module.is_null());
    fails!(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&mut module, std::ptr::null()));
    fails!(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&mut module, c"/nowhere/at/all.ptx".as_ptr()));
    assert_eq!(load(&mut module, &image()), (CUDA_SUCCESS, String::new()));
    let mut missing = std::ptr::null_mut();
    fails!(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&mut missing, module, c"missing".as_ptr()));
}
