//! Calls while a thread or the process ends: from destructors of thread-local objects, of `pthread`
//! keys, from exit handlers. And calls where the system gives no further threads.

mod common;

use common::{Context, cu, fails, ok};
use cuda_abi::types::*;
use std::cell::RefCell;
use std::ffi::{CString, c_void};
use std::sync::Mutex;
use test_process::Command;

const KERNEL: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }";

/// The objects that a program holds when it ends.
#[derive(Clone, Copy)]
struct Objects {
    context: u64,
    function: u64,
    memory: u64,
    pooled: u64,
}

impl Objects {
    fn new(context: &Context) -> Objects {
        let image = CString::new(KERNEL).unwrap();
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
        ok!(cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
        let (mut memory, mut pooled) = (0, 0);
        ok!(cuMemAlloc_v2(&mut memory, 4096));
        ok!(cuMemAllocAsync(&mut pooled, 4096, CU_STREAM_PER_THREAD));
        Objects { context: context.0 as u64, function: function as u64, memory, pooled }
    }

    /// Calls what a destructor calls, and more; returns the codes of all calls.
    fn release(self) -> Vec<CUresult> {
        let (none, mut current) = (std::ptr::null_mut::<c_void>(), std::ptr::null_mut());
        let function = self.function as CUfunction;
        let launch =
            |stream| cu!(cuLaunchKernel(function, 64, 1, 1, 64, 1, 1, 0, stream, none.cast(), none.cast()));
        let mut host = vec![0u8; 4096];
        let (mut graph, stream) = (std::ptr::null_mut(), CU_STREAM_PER_THREAD);
        let codes = vec![
            cu!(cuCtxGetCurrent(&mut current)),
            launch(std::ptr::null_mut()),
            launch(stream),
            cu!(cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), self.memory, 4096)),
            cu!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)),
            cu!(cuStreamEndCapture(stream, &mut graph)),
            cu!(cuMemFreeAsync(self.pooled, stream)),
            cu!(cuStreamSynchronize(stream)),
            cu!(cuMemFree_v2(self.memory)),
            cu!(cuCtxPushCurrent_v2(self.context as CUcontext)),
            cu!(cuCtxPopCurrent_v2(&mut current)),
            cu!(cuCtxSynchronize()),
            if current as u64 == self.context { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_CONTEXT },
        ];
        codes
    }
}

/// The codes of the destructors' calls.
static CODES: Mutex<Vec<CUresult>> = Mutex::new(Vec::new());

/// One test at a time uses it.
static TURN: Mutex<()> = Mutex::new(());

/// An object whose destructor calls the driver.
struct Guard(Option<Objects>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(held) = self.0 {
            CODES.lock().unwrap().extend(held.release());
        }
    }
}

thread_local! {
    static GUARD: RefCell<Guard> = const { RefCell::new(Guard(None)) };
}

#[track_caller]
fn assert_all_succeeded() {
    let codes = std::mem::take(&mut *CODES.lock().unwrap());
    let names: Vec<_> = codes.iter().map(|code| result_name(*code).unwrap_or("?")).collect();
    assert!(!codes.is_empty() && codes.iter().all(|code| *code == CUDA_SUCCESS), "{names:?}");
}

#[test]
fn destructors_of_thread_local_objects_may_call_everything() {
    let _turn = TURN.lock().unwrap();
    let thread = std::thread::spawn(|| {
        // Made before the thread's first driver call, hence destroyed after all that the driver
        // might keep likewise.
        GUARD.with_borrow_mut(|_| {});
        let context = std::mem::ManuallyDrop::new(Context::new());
        GUARD.with_borrow_mut(|guard| guard.0 = Some(Objects::new(&context)));
    });
    thread.join().unwrap();
    assert_all_succeeded();
}

#[test]
fn destructors_of_keys_may_call_everything_in_every_round() {
    unsafe extern "C" fn end(value: *mut c_void) {
        // SAFETY: the key's values are such boxes.
        let (key, rounds, held) =
            *unsafe { Box::from_raw(value.cast::<(libc::pthread_key_t, u32, Objects)>()) };
        if rounds > 1 {
            let mut current = std::ptr::null_mut();
            CODES.lock().unwrap().push(cu!(cuCtxGetCurrent(&mut current)));
            let again = Box::into_raw(Box::new((key, rounds - 1, held)));
            // SAFETY: the key exists.
            unsafe { libc::pthread_setspecific(key, again.cast()) };
        } else {
            CODES.lock().unwrap().extend(held.release());
        }
    }
    let _turn = TURN.lock().unwrap();
    for rounds in 1..=3 {
        let mut key = 0;
        // SAFETY: the destructor takes what is set below.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(end)) }, 0);
        let thread = std::thread::spawn(move || {
            let context = std::mem::ManuallyDrop::new(Context::new());
            let value = Box::into_raw(Box::new((key, rounds, Objects::new(&context))));
            // SAFETY: the key exists.
            assert_eq!(unsafe { libc::pthread_setspecific(key, value.cast()) }, 0);
        });
        thread.join().unwrap();
        assert_all_succeeded();
    }
}

#[test]
fn threads_leave_no_state_behind() {
    let _context = Context::new();
    let mut context = std::ptr::null_mut();
    ok!(cuCtxGetCurrent(&mut context));
    let context = context as u64;
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let mut before = 0;
    for round in 0..6000 {
        let thread = std::thread::spawn(move || {
            // Many contexts make the state large enough to be seen.
            for _ in 0..1000 {
                ok!(cuCtxPushCurrent_v2(context as CUcontext));
            }
            ok!(cuStreamSynchronize(CU_STREAM_PER_THREAD));
        });
        thread.join().unwrap();
        if round == 1000 {
            before = resident();
        }
    }
    // 8 KiB left by each thread would be 40,000 KiB.
    assert!(resident() < before + 10_000, "{before} {}", resident());
}

extern "C" fn at_exit() {
    let held = GUARD.try_with(|guard| guard.borrow().0).ok().flatten().or(*EXITING.lock().unwrap());
    let codes = held.unwrap().release();
    let failed = codes.iter().find(|code| **code != CUDA_SUCCESS);
    // SAFETY: ends the process at once, with what was found.
    unsafe { libc::_exit(failed.map_or(42, |_| 1)) };
}

static EXITING: Mutex<Option<Objects>> = Mutex::new(None);

#[test]
#[ignore = "the test below runs it"]
fn child_that_exits() {
    // Registered before the first driver call, hence called after all handlers that the driver
    // might have. SAFETY: the handler ends the process.
    unsafe { libc::atexit(at_exit) };
    let context = std::mem::ManuallyDrop::new(Context::new());
    *EXITING.lock().unwrap() = Some(Objects::new(&context));
    std::process::exit(0);
}

fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

#[test]
fn exit_handlers_may_call_everything() {
    let output = child("child_that_exits").output().unwrap();
    assert_eq!(output.status.code(), Some(42), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "the test below runs it, without threads"]
fn child_without_threads() {
    let _context = Context::new();
    let image = CString::new(KERNEL).unwrap();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, c"nothing".as_ptr()));
    // What is done before the call returns needs no thread.
    let memory = common::upload(&[1; 100]);
    assert_eq!(common::download(memory, 100), [1; 100]);
    let none = std::ptr::null_mut::<c_void>();
    fails!(
        CUDA_ERROR_OUT_OF_MEMORY,
        cuLaunchKernel(function, 64, 1, 1, 64, 1, 1, 0, none.cast(), none.cast(), none.cast())
    );
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemsetD8Async(memory, 0, 100, none.cast()));
    let (mut graph, mut node, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphCreate(&mut graph, 0));
    ok!(cuGraphAddEmptyNode(&mut node, graph, std::ptr::null(), 0));
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, none.cast()));
    // Nothing has happened to the context.
    ok!(cuCtxSynchronize());
    assert_eq!(common::download(memory, 100), [1; 100]);
    println!("done");
}

#[test]
fn a_thread_that_cannot_be_made_is_out_of_memory() {
    // No address space has room for such a stack.
    let output =
        child("child_without_threads").env("RUST_MIN_STACK", (1u64 << 46).to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("done"), "{}", String::from_utf8_lossy(&output.stderr));
}
