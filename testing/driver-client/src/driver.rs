//! The driver as a program sees it.

use apex_driver::library::{Library, NAME};
use cuda_abi::signature;
use cuda_abi::types::*;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::LazyLock;

/// `libcuda.so.1`: a real driver, the fake one or a library of APEX.
pub static LIBRARY: LazyLock<Library> =
    LazyLock::new(|| Library::open(NAME).unwrap_or_else(|error| panic!("{error}")));

/// The address of a symbol of the driver's.
pub fn address(symbol: &str) -> *mut c_void {
    LIBRARY.address(&CString::new(symbol).expect("no zero in a symbol"))
}

/// A function of the driver that `APEX_DRIVER` names, past the injected library.
pub fn fake<F: Copy>(symbol: &CStr) -> F {
    let path = CString::new(std::env::var("APEX_DRIVER").expect("APEX_DRIVER")).expect("no zero in a path");
    let library = Library::open(&path).unwrap_or_else(|error| panic!("{error}"));
    let address = library.address(symbol);
    assert!(!address.is_null(), "the fake driver lacks {symbol:?}");
    // SAFETY: the tests' own driver; `F` is the symbol's type by agreement with it.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Calls of an entry point that reached the fake driver.
pub fn calls(index: usize) -> u64 {
    fake::<extern "C" fn(usize) -> u64>(c"fake_calls")(index)
}

/// Answers of an entry point of the fake driver that work is not done yet.
pub fn not_ready(index: usize) -> u64 {
    fake::<extern "C" fn(usize) -> u64>(c"fake_not_ready")(index)
}

/// The driver's function of this name.
macro_rules! cuda {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let address = $crate::driver::address(stringify!($name));
        assert!(!address.is_null(), "no {}", stringify!($name));
        // SAFETY: the function of this name has this signature, and is called as the driver
        // demands.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, cuda_abi::signature::$name>(address)($($argument),*) }
    }};
}
pub(crate) use cuda;

/// Fails if a call did.
#[track_caller]
pub fn check(result: CUresult) {
    assert_eq!(result, CUDA_SUCCESS, "{:?}", cuda_abi::types::result_name(result));
}

/// The driver initialised, with a context.
pub fn context() -> CUcontext {
    let mut context = null_mut();
    check(cuda!(cuInit(0)));
    check(cuda!(cuCtxCreate_v2(&mut context, 0, 0)));
    context
}

/// A module with these functions.
pub fn module(image: &CStr) -> CUmodule {
    let mut module = null_mut();
    check(cuda!(cuModuleLoadData(&mut module, image.as_ptr().cast())));
    module
}

/// A kernel of a library with this image.
pub fn kernel(image: &CStr, name: &CStr) -> CUkernel {
    let (mut library, mut kernel, none) = (null_mut(), null_mut(), null_mut());
    let image = image.as_ptr().cast();
    check(cuda!(cuLibraryLoadData(&mut library, image, none, null_mut(), 0, null_mut(), null_mut(), 0)));
    check(cuda!(cuLibraryGetKernel(&mut kernel, library, name.as_ptr())));
    kernel
}

pub fn function(module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = null_mut();
    check(cuda!(cuModuleGetFunction(&mut function, module, name.as_ptr())));
    function
}

pub fn stream(flags: u32) -> CUstream {
    let mut stream = null_mut();
    check(cuda!(cuStreamCreate(&mut stream, flags)));
    stream
}

/// The launch of every program here: looked up once, since some make millions.
pub fn launcher() -> impl Fn(CUfunction, u32, CUstream) -> CUresult + Copy + Send {
    let address = address("cuLaunchKernel") as usize;
    move |function, grid, stream| {
        // SAFETY: the function of this name has this signature.
        let launch = unsafe { std::mem::transmute::<usize, signature::cuLaunchKernel>(address) };
        // SAFETY: called as the driver demands; the kernels take no arguments.
        unsafe { launch(function, grid, 1, 1, 128, 1, 1, 0, stream, null_mut(), null_mut()) }
    }
}

pub fn launch(function: CUfunction, grid: u32, stream: CUstream) {
    check(launcher()(function, grid, stream));
}
