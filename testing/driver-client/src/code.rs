//! Programs that load code in the ways that a session with `--code` follows.

use crate::driver::*;
use cuda_abi::types::*;
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;

/// The arguments of a kernel of this program: a pointer into an allocation, a number, a structure
/// with a pointer into the same allocation, a byte.
struct Arguments {
    out: CUdeviceptr,
    n: u32,
    shape: [u64; 3],
    flag: u8,
}

impl Arguments {
    fn new() -> Self {
        let mut memory = 0;
        check(cuda!(cuMemAlloc_v2(&mut memory, 4096)));
        Self { out: memory + 256, n: 42, shape: [7, memory, 9], flag: 3 }
    }

    fn launch(&mut self, function: CUfunction, threads: u32) {
        let mut each: [*mut c_void; 4] = [
            (&raw mut self.out).cast(),
            (&raw mut self.n).cast(),
            (&raw mut self.shape).cast(),
            (&raw mut self.flag).cast(),
        ];
        let (none, each) = (null_mut(), each.as_mut_ptr());
        check(cuda!(cuLaunchKernel(function, 5, 1, 1, threads, 1, 1, 0, none, each, null_mut())));
    }
}

/// Loads an image in a file as a module and as a library, and launches its kernel of this name in
/// blocks of `threads` threads.
pub fn loads(file: &str, name: &str, threads: u32) {
    let name = CString::new(name).expect("no zero in a name");
    let mut image = std::fs::read(file).expect("an image");
    image.push(0);
    context();
    let mut module = null_mut();
    check(cuda!(cuModuleLoadData(&mut module, image.as_ptr().cast())));
    let mut arguments = Arguments::new();
    arguments.launch(function(module, &name), threads);
    let (mut library, mut kernel, mut of_library) = (null_mut(), null_mut(), null_mut());
    check(cuda!(cuLibraryLoadData(
        &mut library,
        image.as_ptr().cast(),
        null_mut(),
        null_mut(),
        0,
        null_mut(),
        null_mut(),
        0
    )));
    check(cuda!(cuLibraryGetKernel(&mut kernel, library, name.as_ptr())));
    check(cuda!(cuKernelGetFunction(&mut of_library, kernel)));
    arguments.launch(of_library, threads);
}

/// Launches the kernel `tiled` of an image in a file so often, each time with another number.
pub fn varies(file: &str, launches: u32) {
    let image = std::fs::read(file).expect("an image");
    context();
    let mut module = null_mut();
    check(cuda!(cuModuleLoadData(&mut module, image.as_ptr().cast())));
    let (tiled, mut arguments) = (function(module, c"tiled"), Arguments::new());
    for n in 0..launches {
        arguments.n = n;
        arguments.launch(tiled, 64);
    }
}

/// Links two pieces of PTX, and loads a copy of what the linker made, which is gone by then.
pub fn links() {
    context();
    let mut linker = null_mut();
    check(cuda!(cuLinkCreate_v2(0, null_mut(), null_mut(), &mut linker)));
    for ptx in [c".version 8.0 // first", c".version 8.0 // second"] {
        add(linker, ptx);
    }
    let (mut made, mut bytes) = (null_mut(), 0);
    check(cuda!(cuLinkComplete(linker, &mut made, &mut bytes)));
    // SAFETY: the linker owns so many bytes there.
    let copy = unsafe { std::slice::from_raw_parts(made.cast::<u8>(), bytes) }.to_vec();
    check(cuda!(cuLinkDestroy(linker)));
    let mut module = null_mut();
    check(cuda!(cuModuleLoadData(&mut module, copy.as_ptr().cast())));
    launch(function(module, c"second"), 1, null_mut());
    // One that is never done.
    check(cuda!(cuLinkCreate_v2(0, null_mut(), null_mut(), &mut linker)));
    add(linker, c".version 8.0 // dropped");
    check(cuda!(cuLinkDestroy(linker)));
}

fn add(linker: CUlinkState, ptx: &CStr) {
    let (kind, data, bytes) = (CU_JIT_INPUT_PTX, ptx.as_ptr().cast_mut().cast(), ptx.count_bytes() + 1);
    check(cuda!(cuLinkAddData_v2(linker, kind, data, bytes, c"".as_ptr(), 0, null_mut(), null_mut())));
}
