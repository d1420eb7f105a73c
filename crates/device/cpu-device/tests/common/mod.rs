//! Shared parts of the driver's tests: calls through the exported table, and a context to make them
//! in.

#![allow(dead_code, unused_macros, unused_imports, reason = "no test uses all of it")]

use cuda_abi::types::*;
use std::ffi::{CStr, CString, c_void};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Calls the function that an exported symbol jumps to and returns its result code.
macro_rules! cu {
    ($symbol:ident($($argument:expr),* $(,)?)) => {{
        let slot = apex_cpu_device::slots::SLOTS[cuda_abi::index::$symbol].load(std::sync::atomic::Ordering::Relaxed);
        // SAFETY: a slot holds a function with the symbol's signature, or one that takes no notice
        // of its arguments. The test passes what the function asks for.
        unsafe {
            let function = std::mem::transmute::<*mut (), cuda_abi::signature::$symbol>(slot);
            function($($argument),*)
        }
    }};
}

/// Calls a function that has to succeed.
macro_rules! ok {
    ($symbol:ident($($argument:tt)*)) => {
        $crate::common::assert_code(stringify!($symbol), cu!($symbol($($argument)*)), cuda_abi::types::CUDA_SUCCESS)
    };
}

/// Calls a function that has to fail with the code given.
macro_rules! fails {
    ($code:ident, $symbol:ident($($argument:tt)*)) => {
        $crate::common::assert_code(stringify!($symbol), cu!($symbol($($argument)*)), cuda_abi::types::$code)
    };
}

pub(crate) use {cu, fails, ok};

#[track_caller]
pub fn assert_code(call: &str, found: CUresult, expected: CUresult) {
    let name = |code| result_name(code).unwrap_or("?");
    assert!(found == expected, "{call} returned {}, expected {}", name(found), name(expected));
}

/// A context of the test's own, current on its thread: a fault in one test is none in another.
pub struct Context(pub CUcontext);

impl Context {
    pub fn new() -> Context {
        let mut context = std::ptr::null_mut();
        ok!(cuInit(0));
        ok!(cuCtxCreate_v2(&mut context, 0, 0));
        Context(context)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        cu!(cuCtxDestroy_v2(self.0));
    }
}

/// Allocates device memory and fills it.
pub fn upload(bytes: &[u8]) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, bytes.len()));
    ok!(cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()));
    address
}

/// Copies device memory to the host.
pub fn download(address: CUdeviceptr, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    ok!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, count));
    bytes
}

pub fn stream(flags: u32) -> CUstream {
    let mut stream = std::ptr::null_mut();
    ok!(cuStreamCreate(&mut stream, flags));
    stream
}

pub fn event() -> CUevent {
    let mut event = std::ptr::null_mut();
    ok!(cuEventCreate(&mut event, 0));
    event
}

/// The text of `data/kernels.ptx`.
pub fn image() -> CString {
    CString::new(include_str!("../data/kernels.ptx")).unwrap()
}

/// Loads [`image`].
pub fn module() -> CUmodule {
    let mut module = std::ptr::null_mut();
    ok!(cuModuleLoadData(&mut module, image().as_ptr().cast()));
    module
}

/// A kernel of a module.
pub fn function(module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = std::ptr::null_mut();
    ok!(cuModuleGetFunction(&mut function, module, name.as_ptr()));
    function
}

/// Creates an empty graph.
pub fn graph() -> CUgraph {
    let mut graph = std::ptr::null_mut();
    ok!(cuGraphCreate(&mut graph, 0));
    graph
}

/// Instantiates a graph.
pub fn instantiate(graph: CUgraph) -> CUgraphExec {
    let mut exec = std::ptr::null_mut();
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

/// Holds a stream's work back until something is sent.
pub fn hold(stream: CUstream) -> Sender<()> {
    unsafe extern "C" fn wait(gate: *mut c_void) {
        // SAFETY: the receiver was leaked for this call.
        let gate = unsafe { Box::from_raw(gate.cast::<Receiver<()>>()) };
        let _ = gate.recv();
    }
    let (release, gate) = channel();
    ok!(cuLaunchHostFunc(stream, Some(wait), Box::into_raw(Box::new(gate)).cast()));
    release
}
