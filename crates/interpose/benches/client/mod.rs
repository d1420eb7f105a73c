//! What the benchmarks share: the driver as a program finds it.

use std::ffi::{CStr, c_void};

/// `cuLaunchKernel`
pub type Launch = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> u32;

/// The driver's way to launch, and a function of a new context.
pub fn start() -> (Launch, *mut c_void) {
    let mut handles = [std::ptr::null_mut::<c_void>(); 4];
    // SAFETY: the driver's functions with their arguments.
    let function = unsafe {
        symbol::<unsafe extern "C" fn(u32) -> u32>(c"cuInit")(0);
        symbol::<unsafe extern "C" fn(*mut *mut c_void, u32, i32) -> u32>(c"cuCtxCreate_v2")(
            &mut handles[0],
            0,
            0,
        );
        let load = symbol::<unsafe extern "C" fn(*mut *mut c_void, *const i8) -> u32>(c"cuModuleLoadData");
        load(&mut handles[1], c"kernel_5000".as_ptr());
        let get = symbol::<unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const i8) -> u32>(
            c"cuModuleGetFunction",
        );
        get(&mut handles[2], handles[1], c"kernel_5000".as_ptr());
        handles[2]
    };
    (symbol(c"cuLaunchKernel"), function)
}

fn symbol<F: Copy>(name: &CStr) -> F {
    // SAFETY: names of functions of the library that the dynamic linker finds for libcuda.so.1; F
    // is their type.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        let address = libc::dlsym(library, name.as_ptr());
        assert!(!address.is_null(), "no {name:?}");
        std::mem::transmute_copy(&address)
    }
}
