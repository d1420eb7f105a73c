//! Memory and events shared between two processes. Each test runs itself again as the other
//! process.

mod common;

use common::{Context, cu, download, fails, hold, ok, stream, upload};
use cuda_abi::types::*;
use std::ffi::c_char;
use std::process::Output;
use test_process::Command;

/// Tells the other process that it is that, and its handles.
const HANDLES: &str = "APEX_TEST_IPC_HANDLES";

fn hexadecimal(handle: [c_char; 64]) -> String {
    handle.iter().map(|byte| format!("{:02x}", *byte as u8)).collect()
}

/// The handles that this process was given, if it is the other one.
fn given() -> Option<Vec<[c_char; 64]>> {
    let text = std::env::var(HANDLES).ok()?;
    let digit = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap() as c_char;
    Some((0..text.len() / 128).map(|handle| std::array::from_fn(|byte| digit(64 * handle + byte))).collect())
}

/// Runs a test of this file as the other process.
fn other(test: &str, handles: &[[c_char; 64]]) -> Output {
    let handles: String = handles.iter().copied().map(hexadecimal).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(HANDLES, handles).output().unwrap()
}

#[track_caller]
fn succeeded(output: &Output) {
    let (said, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{problems}");
}

fn memory_handle(address: CUdeviceptr) -> CUipcMemHandle {
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    ok!(cuIpcGetMemHandle(&mut handle, address));
    handle
}

#[test]
fn memory_is_the_same_in_both_processes() {
    const BYTES: usize = 10_000;
    let _context = Context::new();
    if let Some(handles) = given() {
        let [handle] = handles[..] else { panic!("one handle") };
        let handle = CUipcMemHandle { reserved: handle };
        let (mut memory, mut again) = (0, 0);
        ok!(cuIpcOpenMemHandle_v2(&mut memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        ok!(cuIpcOpenMemHandle_v2(&mut again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        assert_eq!(memory, again);
        assert!(download(memory, BYTES) == (0..BYTES).map(|byte| byte as u8).collect::<Vec<_>>());
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(memory));
        ok!(cuIpcCloseMemHandle(memory));
        ok!(cuMemsetD8_v2(memory + 1, 0xee, BYTES - 1));
        ok!(cuCtxSynchronize());
        ok!(cuIpcCloseMemHandle(memory));
        fails!(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(memory, 0, 1));
        return;
    }
    let memory = upload(&(0..BYTES).map(|byte| byte as u8).collect::<Vec<_>>());
    // Of an address inside of it, too.
    let handle = memory_handle(memory + 100);
    assert_eq!(handle.reserved, memory_handle(memory).reserved);
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&mut 0, handle, 1));
    succeeded(&other("memory_is_the_same_in_both_processes", &[handle.reserved]));
    let found = download(memory, BYTES);
    assert_eq!(found[0], 0, "the byte that the other process left alone");
    assert!(found[1..].iter().all(|byte| *byte == 0xee));
    ok!(cuMemFree_v2(memory));
}

#[test]
fn memory_that_is_gone_cannot_be_opened() {
    let _context = Context::new();
    if let Some(handles) = given() {
        let handle = CUipcMemHandle { reserved: handles[0] };
        fails!(CUDA_ERROR_MAP_FAILED, cuIpcOpenMemHandle_v2(&mut 0, handle, 1));
        return;
    }
    let memory = upload(&[1; 100]);
    let handle = memory_handle(memory);
    ok!(cuMemFree_v2(memory));
    // Freed memory is kept for a while, so that its use is found: let it go.
    for _ in 0..300 {
        let other = upload(&[0; 16]);
        ok!(cuMemFree_v2(other));
    }
    let output = other("memory_that_is_gone_cannot_be_opened", &[handle.reserved]);
    succeeded(&output);
    assert!(String::from_utf8_lossy(&output.stderr).contains("an IPC handle of process"));
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    fails!(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&mut 0, handle, 1));
    let mut managed = 0;
    ok!(cuMemAllocManaged(&mut managed, 64, CU_MEM_ATTACH_GLOBAL));
    fails!(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&mut handle, managed));
}

#[test]
fn a_process_waits_for_the_event_of_another() {
    let _context = Context::new();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    if let Some(handles) = given() {
        let [memory, event] = handles[..] else { panic!("two handles") };
        let (mut address, mut opened) = (0, std::ptr::null_mut());
        ok!(cuIpcOpenMemHandle_v2(&mut address, CUipcMemHandle { reserved: memory }, 1));
        ok!(cuIpcOpenEventHandle(&mut opened, CUipcEventHandle { reserved: event }));
        fails!(CUDA_ERROR_NOT_READY, cuEventQuery(opened));
        // The other process goes on when it sees this.
        ok!(cuMemsetD8_v2(address + 1, 1, 1));
        ok!(cuStreamWaitEvent(stream, opened, 0));
        ok!(cuMemcpyDtoDAsync_v2(address + 2, address, 1, stream));
        ok!(cuEventRecord(opened, stream));
        ok!(cuStreamSynchronize(stream));
        ok!(cuEventQuery(opened));
        return;
    }
    let mut event = std::ptr::null_mut();
    ok!(cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    let mut handle = CUipcEventHandle { reserved: [0; 64] };
    ok!(cuIpcGetEventHandle(&mut handle, event));
    fails!(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&mut handle, common::event()));
    let memory = upload(&[0; 3]);
    let shared = memory_handle(memory);
    ok!(cuEventQuery(event));
    let release = hold(stream);
    ok!(cuMemsetD8Async(memory, 7, 1, stream));
    ok!(cuEventRecord(event, stream));
    fails!(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    let handles = [shared.reserved, handle.reserved];
    let waiting = std::thread::spawn(move || other("a_process_waits_for_the_event_of_another", &handles));
    while download(memory + 1, 1) == [0] && !waiting.is_finished() {
        std::thread::yield_now();
    }
    release.send(()).unwrap();
    succeeded(&waiting.join().unwrap());
    ok!(cuEventSynchronize(event));
    assert_eq!(download(memory, 3), [7, 1, 7]);
    ok!(cuEventDestroy_v2(event));
}
