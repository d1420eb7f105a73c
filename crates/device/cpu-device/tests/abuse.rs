//! Misuse that no program should commit: nulls everywhere, and calls in a forked child.

mod common;

use apex_cpu_device::{Coverage, coverage, slots::SLOTS};
use common::{Context, cu, ok};
use cuda_abi::types::*;
use std::sync::atomic::Ordering;

#[test]
fn nulls_and_zeros_are_answered_by_every_function() {
    // No function has more arguments. Integers and pointers are passed alike; a null pointer is
    // within the contract.
    type Any = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> CUresult;
    for (index, (symbol, covered)) in coverage().enumerate() {
        let context = Context::new();
        let slot = SLOTS[index].load(Ordering::Relaxed);
        // SAFETY: the slot holds a function of at most twelve integer or pointer arguments (or
        // float ones, which then hold whatever the registers do); more arguments than it takes do
        // not disturb it.
        let code = unsafe { std::mem::transmute::<*mut (), Any>(slot)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) };
        assert!(result_name(code).is_some(), "{symbol} returned {code}");
        assert!(code != CUDA_ERROR_UNKNOWN, "{symbol} panicked");
        assert_eq!(
            matches!(covered, Coverage::Refused(_)),
            code == CUDA_ERROR_NOT_SUPPORTED,
            "{symbol} returned {code}"
        );
        // Whatever was done to the thread's contexts, the next round finds its own.
        drop(context);
    }
}

#[test]
fn a_forked_child_is_told_that_there_is_no_driver() {
    let _context = Context::new();
    // SAFETY: the child makes two driver calls, which only look at a flag there, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        test_process::limit_this_process();
        let (mut count, mut address) = (0, 0);
        let codes = (cu!(cuDeviceGetCount(&mut count)), cu!(cuMemAlloc_v2(&mut address, 1)));
        let told = codes == (CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
        // SAFETY: ends the child without running what the parent means to run at its end.
        unsafe { libc::_exit(if told { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child is this process's.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    let mut count = 0;
    ok!(cuDeviceGetCount(&mut count));
    assert_eq!(count, 1);
}

/// The least stack that a thread may have is too small for a kernel: who waits leaves it to others.
#[test]
fn a_thread_with_little_stack_loads_launches_and_waits() {
    let context = Context::new();
    let context = context.0 as usize;
    let little = move || {
        ok!(cuCtxSetCurrent(context as CUcontext));
        let (mut module, mut function, mut values) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        ok!(cuModuleLoadData(&mut module, concat!(include_str!("data/kernels.ptx"), "\0").as_ptr().cast()));
        ok!(cuModuleGetFunction(&mut function, module, c"add".as_ptr()));
        ok!(cuMemAlloc_v2(&mut values, 4000));
        let (mut amount, mut count) = (1u32, 1000u32);
        let mut arguments: [*mut std::ffi::c_void; 3] =
            [(&raw mut values).cast(), (&raw mut amount).cast(), (&raw mut count).cast()];
        let (stream, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
        for _ in 0..200 {
            ok!(cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, arguments.as_mut_ptr(), extra));
            ok!(cuCtxSynchronize());
        }
        let mut first = 0u32;
        ok!(cuMemcpyDtoH_v2((&raw mut first).cast(), values, 4));
        ok!(cuModuleUnload(module));
        first
    };
    let thread = std::thread::Builder::new().stack_size(16 << 10).spawn(little).unwrap();
    assert_eq!(thread.join().unwrap(), 200);
}

#[test]
fn ten_thousand_loads_and_launches_leave_nothing_behind() {
    let _context = Context::new();
    let image = std::ffi::CString::new(include_str!("data/kernels.ptx")).unwrap();
    let mut before = None;
    for round in 0..10_000 {
        let (mut module, mut function, mut values) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
        ok!(cuModuleGetFunction(&mut function, module, c"add".as_ptr()));
        ok!(cuMemAlloc_v2(&mut values, 4000));
        let (mut amount, mut count) = (1u32, 1000u32);
        let mut arguments: [*mut std::ffi::c_void; 3] =
            [(&raw mut values).cast(), (&raw mut amount).cast(), (&raw mut count).cast()];
        let (stream, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, arguments.as_mut_ptr(), extra));
        ok!(cuMemFree_v2(values));
        ok!(cuModuleUnload(module));
        if round == 2000 {
            before = Some(Resources::now());
        }
    }
    let (before, after) = (before.unwrap(), Resources::now());
    // The tests beside this one take some too. A leak of one page in each round would be 32000 KiB,
    // one of a mapping or a descriptor 8000 of them.
    assert!(after.resident_kib < before.resident_kib + 8000, "{before:?} {after:?}");
    assert!(after.mappings < before.mappings + 200, "{before:?} {after:?}");
    assert!(after.descriptors < before.descriptors + 100, "{before:?} {after:?}");
    assert!(after.threads < before.threads + 100, "{before:?} {after:?}");
}

#[test]
fn objects_of_every_kind_leave_nothing_behind() {
    let _context = Context::new();
    let mut before = None;
    for round in 0..10_000 {
        let (stream, event) = (common::stream(0), common::event());
        let (mut graph, mut node, mut exec) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        ok!(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
        ok!(cuStreamEndCapture(stream, &mut graph));
        ok!(cuGraphAddEmptyNode(&mut node, graph, std::ptr::null(), 0));
        ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok!(cuGraphLaunch(exec, stream));
        let (mut array, mut memory) = (std::ptr::null_mut(), 0);
        let flat =
            CUDA_ARRAY_DESCRIPTOR { Width: 64, Height: 64, Format: CU_AD_FORMAT_FLOAT, NumChannels: 1 };
        ok!(cuArrayCreate_v2(&mut array, &flat));
        ok!(cuMemAllocAsync(&mut memory, 4096, stream));
        ok!(cuMemFreeAsync(memory, stream));
        ok!(cuStreamSynchronize(stream));
        ok!(cuGraphExecDestroy(exec));
        ok!(cuGraphDestroy(graph));
        ok!(cuArrayDestroy(array));
        ok!(cuEventDestroy_v2(event));
        ok!(cuStreamDestroy_v2(stream));
        if round == 2000 {
            before = Some(Resources::now());
        }
    }
    let (before, after) = (before.unwrap(), Resources::now());
    assert!(after.resident_kib < before.resident_kib + 8000, "{before:?} {after:?}");
    assert!(after.mappings < before.mappings + 200, "{before:?} {after:?}");
}

/// The resources that the process holds.
#[derive(Debug)]
struct Resources {
    resident_kib: u64,
    mappings: usize,
    descriptors: usize,
    threads: usize,
}

impl Resources {
    fn now() -> Resources {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        Resources {
            resident_kib: line.split_whitespace().nth(1).unwrap().parse().unwrap(),
            mappings: std::fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            threads: std::fs::read_dir("/proc/self/task").unwrap().count(),
        }
    }
}
