//! Loads PTX that may be too new for the driver, in each way in which programs load code.

use crate::driver::{check, context, cuda};
use cuda_abi::types::*;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;

/// Threads of the launch, and words that the kernel `k` writes.
const THREADS: u32 = 32;

/// Loads the file by the entry point of this name and prints the result's code; then launches the
/// kernel `k(u32 *to)` and prints what it wrote.
pub fn loads(file: &str, entry_point: &str) {
    context();
    let path = CString::new(file).expect("no zero in a path");
    let text = CString::new(std::fs::read(file).expect("a file")).expect("no zero in PTX");
    let (mut module, mut library) = (null_mut(), null_mut());
    let (image, none, nothing) = (text.as_ptr().cast::<c_void>(), null_mut(), null_mut());
    let result = match entry_point {
        "cuModuleLoad" => cuda!(cuModuleLoad(&mut module, path.as_ptr())),
        "cuModuleLoadData" => cuda!(cuModuleLoadData(&mut module, image)),
        "cuModuleLoadDataEx" => cuda!(cuModuleLoadDataEx(&mut module, image, 0, null_mut(), null_mut())),
        "cuModuleLoadFatBinary" => cuda!(cuModuleLoadFatBinary(&mut module, image)),
        "cuLibraryLoadData" => {
            cuda!(cuLibraryLoadData(&mut library, image, none, nothing, 0, null_mut(), null_mut(), 0))
        }
        "cuLibraryLoadFromFile" => {
            cuda!(cuLibraryLoadFromFile(
                &mut library,
                path.as_ptr(),
                none,
                nothing,
                0,
                null_mut(),
                null_mut(),
                0
            ))
        }
        other => panic!("no entry point {other:?} here"),
    };
    println!("{result}");
    if result != CUDA_SUCCESS {
        return;
    }
    if !library.is_null() {
        check(cuda!(cuLibraryGetModule(&mut module, library)));
    }
    launch(module);
}

fn launch(module: CUmodule) {
    let (mut function, mut to) = (null_mut(), 0);
    check(cuda!(cuModuleGetFunction(&mut function, module, c"k".as_ptr())));
    check(cuda!(cuMemAlloc_v2(&mut to, 4 * THREADS as usize)));
    let mut parameters: [*mut c_void; 1] = [(&raw mut to).cast()];
    let (parameters, none) = (parameters.as_mut_ptr(), null_mut());
    check(cuda!(cuLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, null_mut(), parameters, none)));
    let mut written = [0_u32; THREADS as usize];
    check(cuda!(cuMemcpyDtoH_v2(written.as_mut_ptr().cast(), to, 4 * THREADS as usize)));
    println!("{written:?}");
}

/// Prints the compute capability, asked for in both ways, and another attribute.
pub fn capability() {
    context();
    let attribute = |attribute| {
        let mut value = -1;
        check(cuda!(cuDeviceGetAttribute(&mut value, attribute, 0)));
        value
    };
    let (mut major, mut minor) = (-1, -1);
    check(cuda!(cuDeviceComputeCapability(&mut major, &mut minor, 0)));
    println!(
        "{}.{} {major}.{minor} {}",
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE)
    );
}
