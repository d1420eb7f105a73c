//! Memory that is gone when work that names it is executed: freed, unregistered, unmapped,
//! protected, cut off. That is a fault of the context, told with the call that asked for the work,
//! and no crash.

mod common;

use common::{Context, cu, fails, ok, upload};
use cuda_abi::types::*;
use std::ffi::{CString, c_void};
use test_process::Command;

const PAGE: usize = 4096;

/// Pages of the program's own, between two that stay: where these have been unmapped, only what
/// fits comes.
struct Pages(*mut c_void, usize);

impl Pages {
    fn new(bytes: usize) -> Pages {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: an anonymous mapping at an address of the kernel's choosing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes + 2 * PAGE, access, kind, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Pages(start.wrapping_byte_add(PAGE), bytes)
    }

    fn registered(bytes: usize) -> Pages {
        let pages = Pages::new(bytes);
        ok!(cuMemHostRegister_v2(pages.0, bytes, 0));
        pages
    }

    fn address(&self) -> u64 {
        self.0 as u64
    }

    fn unmap(&self) {
        // SAFETY: the pages are this test's.
        assert_eq!(unsafe { libc::munmap(self.0, self.1) }, 0);
    }

    fn protect(&self, access: i32) {
        // SAFETY: the pages are this test's.
        assert_eq!(unsafe { libc::mprotect(self.0, self.1, access) }, 0);
    }
}

/// A call by its name, and what makes it with the address given.
type Submission = (&'static str, Box<dyn Fn(u64) -> CUresult>);

/// Everything that a stream can be asked to do with memory, each on memory of `bytes` bytes at the
/// address given.
fn submissions(stream: CUstream, bytes: usize) -> Vec<Submission> {
    let other = upload(&vec![5; bytes]);
    let plane = move |source: u64, destination: u64| CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_UNIFIED,
        srcDevice: source,
        srcPitch: bytes / 8,
        dstMemoryType: CU_MEMORYTYPE_UNIFIED,
        dstDevice: destination,
        dstPitch: bytes / 8,
        WidthInBytes: 16,
        Height: 8,
        ..cuda_abi::Plain::zeroed()
    };
    let volume = move |source: u64, destination: u64| CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_UNIFIED,
        srcDevice: source,
        srcPitch: bytes / 8,
        srcHeight: 4,
        dstMemoryType: CU_MEMORYTYPE_UNIFIED,
        dstDevice: destination,
        dstPitch: bytes / 8,
        dstHeight: 4,
        WidthInBytes: 16,
        Height: 4,
        Depth: 2,
        ..cuda_abi::Plain::zeroed()
    };
    vec![
        ("cuMemcpyDtoDAsync", Box::new(move |at| cu!(cuMemcpyDtoDAsync_v2(at, other, bytes, stream)))),
        ("cuMemcpyAsync", Box::new(move |at| cu!(cuMemcpyAsync(other, at, bytes, stream)))),
        ("cuMemcpy2DAsync", Box::new(move |at| cu!(cuMemcpy2DAsync_v2(&plane(at, other), stream)))),
        ("cuMemcpy2DAsync", Box::new(move |at| cu!(cuMemcpy2DAsync_v2(&plane(other, at), stream)))),
        ("cuMemcpy3DAsync", Box::new(move |at| cu!(cuMemcpy3DAsync_v2(&volume(at, other), stream)))),
        ("cuMemcpy3DAsync", Box::new(move |at| cu!(cuMemcpy3DAsync_v2(&volume(other, at), stream)))),
        ("cuMemsetD8Async", Box::new(move |at| cu!(cuMemsetD8Async(at, 7, bytes, stream)))),
        ("cuMemsetD16Async", Box::new(move |at| cu!(cuMemsetD16Async(at, 7, bytes / 2, stream)))),
        ("cuMemsetD32Async", Box::new(move |at| cu!(cuMemsetD32Async(at, 7, bytes / 4, stream)))),
        ("cuMemsetD2D32Async", Box::new(move |at| cu!(cuMemsetD2D32Async(at, bytes / 8, 7, 4, 8, stream)))),
        ("cuMemsetD2D8Async", Box::new(move |at| cu!(cuMemsetD2D8Async(at, bytes / 8, 7, 4, 8, stream)))),
        ("cuStreamWriteValue32", Box::new(move |at| cu!(cuStreamWriteValue32_v2(stream, at, 1, 0)))),
        ("cuStreamWaitValue64", Box::new(move |at| cu!(cuStreamWaitValue64_v2(stream, at, 1, 2)))),
        (
            "cuMemcpyBatchAsync",
            Box::new(move |at| {
                let (mut to, mut from, mut sizes) = ([at, other], [other, at], [bytes / 2, bytes / 2]);
                let (none, nowhere) = (std::ptr::null_mut(), std::ptr::null_mut());
                cu!(cuMemcpyBatchAsync_v2(
                    to.as_mut_ptr(),
                    from.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    2,
                    none,
                    nowhere,
                    0,
                    stream
                ))
            }),
        ),
    ]
}

/// The ways in which memory comes to be and goes: the maker, and what takes it away again.
type Way = (&'static str, fn(usize) -> u64, fn(u64, usize));

const WAYS: &[Way] = &[
    ("cuMemFree", |bytes| upload(&vec![3; bytes]), |at, _| ok!(cuMemFree_v2(at))),
    (
        "cuMemFreeHost",
        |bytes| {
            let mut host = std::ptr::null_mut();
            ok!(cuMemHostAlloc(&mut host, bytes, 0));
            host as u64
        },
        |at, _| ok!(cuMemFreeHost(at as *mut c_void)),
    ),
    (
        "a stream-ordered free",
        |bytes| {
            let mut at = 0;
            ok!(cuMemAllocAsync(&mut at, bytes, std::ptr::null_mut()));
            at
        },
        |at, _| {
            ok!(cuMemFreeAsync(at, std::ptr::null_mut()));
            ok!(cuStreamSynchronize(std::ptr::null_mut()));
        },
    ),
    (
        "cuMemFree",
        |bytes| {
            let mut at = 0;
            ok!(cuMemAllocManaged(&mut at, bytes, CU_MEM_ATTACH_GLOBAL));
            at
        },
        |at, _| ok!(cuMemFree_v2(at)),
    ),
    (
        "unmapped",
        |bytes| Pages::registered(bytes).address(),
        |at, bytes| Pages(at as *mut c_void, bytes).unmap(),
    ),
    (
        "protected",
        |bytes| Pages::registered(bytes).address(),
        |at, bytes| Pages(at as *mut c_void, bytes).protect(libc::PROT_NONE),
    ),
];

/// Captures `submit` and returns what can be launched.
fn captured(stream: CUstream, submit: impl FnOnce() -> CUresult) -> CUgraphExec {
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_eq!(submit(), CUDA_SUCCESS);
    ok!(cuStreamEndCapture(stream, &mut graph));
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

const BYTES: usize = 2 * PAGE;

#[test]
#[ignore = "the test below runs it, and reads what it says"]
fn child_graphs() {
    for (way, make, take) in WAYS {
        for index in 0..14 {
            let _context = Context::new();
            let stream = common::stream(0);
            let submissions = submissions(stream, BYTES);
            assert_eq!(submissions.len(), 14);
            let (call, submit) = &submissions[index];
            let at = make(BYTES);
            let exec = captured(stream, || submit(at));
            take(at, BYTES);
            eprintln!("# {call} {way}");
            ok!(cuGraphLaunch(exec, stream));
            fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
            fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree_v2(at));
        }
    }
    println!("done");
}

#[test]
fn memory_that_is_unmapped_protected_or_cut_off_is_a_fault() {
    for test in [
        "queued_work_finds_its_memory_gone_as_a_graph_does",
        "host_memory_that_a_graph_copies_may_be_pageable_again_but_not_gone",
        "kernels_meet_what_is_left_of_registered_memory",
        "a_registered_file_that_is_cut_off_is_a_fault_behind_its_end",
    ] {
        run(test);
    }
}

/// Runs one of the ignored tests in a process of its own; what it says on standard error.
fn run(test: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    let output = command.env_remove("APEX_CPU_TIMEOUT").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{test}: {}\n{errors}", output.status);
    errors
}

#[test]
fn graphs_whose_memory_is_gone_end_in_a_fault_that_names_call_and_place() {
    let errors = run("child_graphs");
    let mut cases = 0;
    for case in errors.split("# ").skip(1) {
        let (heading, said) = case.split_once('\n').unwrap();
        let (call, way) = heading.split_once(' ').unwrap();
        assert!(said.contains(&format!("CUDA_ERROR_ILLEGAL_ADDRESS in {call}")), "{heading}: {said}");
        assert!(said.contains("invalid ") && said.contains(" bytes at 0x"), "{heading}: {said}");
        let reason = if way.contains(' ') || way.starts_with("cuMem") {
            format!("which has been freed by {way}")
        } else {
            "a registered host range of 8192 bytes".to_owned()
        };
        assert!(said.contains(&reason), "{heading}: {said}");
        cases += 1;
    }
    assert_eq!(cases, 14 * WAYS.len());
}

#[test]
#[ignore = "a test below runs it alone: what else maps memory could take the place of what is unmapped"]
fn queued_work_finds_its_memory_gone_as_a_graph_does() {
    let _context = Context::new();
    let (stream, mut gate) = (common::stream(1), 0u64);
    let gate_at = (&raw mut gate) as u64;
    ok!(cuMemHostRegister_v2(gate_at as *mut c_void, 8, 0));
    for (way, make, take) in WAYS.iter().filter(|(way, ..)| matches!(*way, "unmapped" | "protected")) {
        let context = Context::new();
        let stream = common::stream(1);
        let at = make(BYTES);
        let mut device = 0;
        ok!(cuMemAlloc_v2(&mut device, BYTES));
        // What comes behind waits until the memory is gone.
        ok!(cuStreamWaitValue32_v2(stream, gate_at, 1, CU_STREAM_WAIT_VALUE_EQ));
        ok!(cuMemcpyDtoDAsync_v2(device, at, BYTES, stream));
        take(at, BYTES);
        // SAFETY: the word is this test's, and the stream only reads it.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(gate_at as *mut u32) }
            .store(1, std::sync::atomic::Ordering::Release);
        common::assert_code(way, cu!(cuStreamSynchronize(stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
        // SAFETY: as above.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(gate_at as *mut u32) }
            .store(0, std::sync::atomic::Ordering::Release);
        drop(context);
    }
    ok!(cuStreamDestroy_v2(stream));
    ok!(cuMemHostUnregister(gate_at as *mut c_void));
}

#[test]
fn a_graph_whose_array_is_gone_ends_in_a_fault() {
    let _context = Context::new();
    let stream = common::stream(0);
    let flat = CUDA_ARRAY_DESCRIPTOR { Width: 16, Height: 4, Format: CU_AD_FORMAT_FLOAT, NumChannels: 1 };
    let mut array = std::ptr::null_mut();
    ok!(cuArrayCreate_v2(&mut array, &flat));
    let source = upload(&[1; 256]);
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: source,
        srcPitch: 64,
        dstMemoryType: CU_MEMORYTYPE_ARRAY,
        dstArray: array,
        WidthInBytes: 64,
        Height: 4,
        ..cuda_abi::Plain::zeroed()
    };
    let exec = captured(stream, || cu!(cuMemcpy2DAsync_v2(&copy, stream)));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuArrayDestroy(array));
    ok!(cuGraphLaunch(exec, stream));
    fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
}

#[test]
#[ignore = "a test below runs it alone: what else maps memory could take the place of what is unmapped"]
fn host_memory_that_a_graph_copies_may_be_pageable_again_but_not_gone() {
    for (gone, expected) in [(false, CUDA_SUCCESS), (true, CUDA_ERROR_ILLEGAL_ADDRESS)] {
        for pageable in [false, true] {
            let _context = Context::new();
            let stream = common::stream(0);
            let pages = if pageable { Pages::new(BYTES) } else { Pages::registered(BYTES) };
            let device = upload(&[9; BYTES]);
            let exec = captured(stream, || cu!(cuMemcpyDtoHAsync_v2(pages.0, device, BYTES, stream)));
            if !pageable {
                ok!(cuMemHostUnregister(pages.0));
            }
            if gone {
                pages.unmap();
            }
            ok!(cuGraphLaunch(exec, stream));
            common::assert_code(&format!("{gone} {pageable}"), cu!(cuStreamSynchronize(stream)), expected);
            if !gone {
                // SAFETY: the pages are this test's, and the copy is done.
                assert_eq!(unsafe { *pages.0.cast::<u8>().add(BYTES - 1) }, 9);
                pages.unmap();
            }
        }
    }
}

#[test]
fn copies_of_pointers_that_lead_nowhere_are_faults() {
    // A small one is staged, a larger one is not; synchronous and not; both directions.
    for bytes in [16, PAGE, 1 << 20] {
        for case in 0..4 {
            let _context = Context::new();
            let mut device = 0;
            ok!(cuMemAlloc_v2(&mut device, bytes));
            let nowhere = 0x10_0000 as *mut c_void;
            let stream = common::stream(0);
            let code = match case {
                0 => cu!(cuMemcpyHtoD_v2(device, nowhere, bytes)),
                1 => cu!(cuMemcpyDtoH_v2(nowhere, device, bytes)),
                2 => cu!(cuMemcpyHtoDAsync_v2(device, nowhere, bytes, stream)),
                _ => cu!(cuMemcpyDtoHAsync_v2(nowhere, device, bytes, stream)),
            };
            common::assert_code(&format!("case {case}, {bytes} bytes"), code, CUDA_ERROR_ILLEGAL_ADDRESS);
        }
    }
}

const KERNELS: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry touch(.param .u64 at)
{
    .reg .b64 %rd;
    .reg .b32 %r;
    ld.param.u64 %rd, [at];
    ld.global.u32 %r, [%rd];
    add.u32 %r, %r, 1;
    st.global.u32 [%rd], %r;
    ret;
}
.visible .entry look(.param .u64 at)
{
    .reg .b64 %rd;
    .reg .b32 %r;
    ld.param.u64 %rd, [at];
    ld.global.u32 %r, [%rd];
    ret;
}";

fn touch(kernel: &std::ffi::CStr, mut at: u64) -> CUresult {
    let image = CString::new(KERNELS).unwrap();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, kernel.as_ptr()));
    let mut arguments = [(&raw mut at).cast::<c_void>()];
    let (stream, extra) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments.as_mut_ptr(), extra));
    cu!(cuCtxSynchronize())
}

#[test]
#[ignore = "a test below runs it alone: what else maps memory could take the place of what is unmapped"]
fn kernels_meet_what_is_left_of_registered_memory() {
    let fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    let in_context = |test: &dyn Fn(Pages)| {
        let _context = Context::new();
        test(Pages::registered(8 * PAGE));
    };
    in_context(&|pages| {
        assert_eq!(touch(c"touch", pages.address() + 4), CUDA_SUCCESS);
        pages.unmap();
        assert_eq!(touch(c"touch", pages.address() + 4), fault);
    });
    in_context(&|pages| {
        pages.protect(libc::PROT_NONE);
        assert_eq!(touch(c"look", pages.address()), fault);
    });
    in_context(&|pages| {
        pages.protect(libc::PROT_READ);
        assert_eq!(touch(c"look", pages.address()), CUDA_SUCCESS);
        assert_eq!(touch(c"touch", pages.address()), fault);
    });
    // Half of it is gone: the other half is as good as before.
    in_context(&|pages| {
        Pages((pages.0 as usize + 4 * PAGE) as *mut c_void, 4 * PAGE).unmap();
        assert_eq!(touch(c"touch", pages.address() + 4 * PAGE as u64 - 4), CUDA_SUCCESS);
        assert_eq!(touch(c"touch", pages.address() + 4 * PAGE as u64), fault);
    });
}

#[test]
#[ignore = "a test below runs it alone: what else maps memory could take the place of what is unmapped"]
fn a_registered_file_that_is_cut_off_is_a_fault_behind_its_end() {
    // SAFETY: the name ends in a zero byte.
    let file = unsafe { libc::memfd_create(c"cut".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(file >= 0);
    for (offset, expected) in [(0, CUDA_SUCCESS), (4 * PAGE as u64, CUDA_ERROR_ILLEGAL_ADDRESS)] {
        let _context = Context::new();
        // SAFETY: the file is open; the mapping is at an address of the kernel's choosing.
        let start = unsafe {
            assert_eq!(libc::ftruncate(file, 8 * PAGE as i64), 0);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), 8 * PAGE, access, libc::MAP_SHARED, file, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        ok!(cuMemHostRegister_v2(start, 8 * PAGE, 0));
        // SAFETY: the file is open.
        assert_eq!(unsafe { libc::ftruncate(file, 2 * PAGE as i64) }, 0);
        assert_eq!(touch(c"touch", start as u64 + offset), expected);
        if expected == CUDA_SUCCESS {
            let device = upload(&[0; 64]);
            ok!(cuMemcpyDtoD_v2(device, start as u64 + offset, 64));
            fails!(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyDtoD_v2(device, start as u64 + 3 * PAGE as u64, 64));
        }
        Pages(start, 8 * PAGE).unmap();
    }
}

#[test]
fn pitched_copies_of_host_memory_keep_every_row() {
    let _context = Context::new();
    let (rows, pitch, width) = (1000usize, 48usize, 17usize);
    let bytes: Vec<u8> = (0..rows * pitch).map(|at| (at * 7 % 251) as u8).collect();
    let (mut device, mut device_pitch) = (0, 0);
    ok!(cuMemAllocPitch_v2(&mut device, &mut device_pitch, width, rows, 4));
    let up = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: bytes.as_ptr().cast(),
        srcPitch: pitch,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: device,
        dstPitch: device_pitch,
        WidthInBytes: width,
        Height: rows,
        ..cuda_abi::Plain::zeroed()
    };
    ok!(cuMemcpy2D_v2(&up));
    let mut back = vec![0u8; rows * pitch];
    let down = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: device,
        srcPitch: device_pitch,
        dstMemoryType: CU_MEMORYTYPE_HOST,
        dstHost: back.as_mut_ptr().cast(),
        dstPitch: pitch,
        WidthInBytes: width,
        Height: rows,
        ..cuda_abi::Plain::zeroed()
    };
    ok!(cuMemcpy2D_v2(&down));
    for (row, (found, sent)) in back.chunks(pitch).zip(bytes.chunks(pitch)).enumerate() {
        assert_eq!((&found[..width], &found[width..]), (&sent[..width], &[0u8; 31][..]), "row {row}");
    }
}
