//! Shared parts of the benchmarks: the driver as a program finds it.

use launch_condition::{Apart, Bound, Choice, Condition, Plan, PlannedKernel, Region, Sum, Term, code_hash};
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
    (symbol(c"cuLaunchKernel"), function(c"kernel_5000".to_bytes_with_nul(), c"kernel_5000"))
}

/// The driver's way to launch, a function of a new context, and parameters for it: a pointer, a
/// number, a structure with another pointer, a byte.
#[allow(dead_code, reason = "not every benchmark gives parameters")]
pub fn start_with_parameters() -> (Launch, *mut c_void, [*mut c_void; 4]) {
    let function =
        function(include_bytes!("../../../../cuda/fatbin/tests/data/four_kernels_sm_90.cubin"), c"tiled");
    let mut memory = 0;
    // SAFETY: the driver's function with its arguments.
    unsafe {
        symbol::<unsafe extern "C" fn(*mut u64, usize) -> u32>(c"cuMemAlloc_v2")(&mut memory, 1 << 20);
    }
    let leak = |words: [u64; 3]| Box::leak(Box::new(words)).as_mut_ptr().cast();
    let parameters = [leak([memory, 0, 0]), leak([7, 0, 0]), leak([1, memory + 4096, 2]), leak([3, 0, 0])];
    (symbol(c"cuLaunchKernel"), function, parameters)
}

/// PTX of a kernel with two buffers and the number of their elements. (No driver of the benchmark
/// compiles it.)
const SHAPED: &str = ".visible .entry shaped_5000(.param .u64 to, .param .u64 from, .param .u32 n)\0";

/// The driver's way to launch, a function of a new context whose launches the [`plan`] reshapes,
/// and parameters for it.
#[allow(dead_code, reason = "not every benchmark reshapes launches")]
pub fn start_shaped() -> (Launch, *mut c_void, [*mut c_void; 4]) {
    let function = function(SHAPED.as_bytes(), c"shaped_5000");
    let leak = |word: u64| Box::leak(Box::new(word)) as *mut u64;
    let parameters = [leak(1 << 20), leak(1 << 21), leak(100), leak(0)].map(|word| word.cast());
    (symbol(c"cuLaunchKernel"), function, parameters)
}

/// A plan in which launches of one block of 128 have two of 64.
#[allow(dead_code, reason = "not every benchmark reshapes launches")]
pub fn plan() -> Plan {
    let n = Term::Parameter { offset: 16, bytes: 4, signed: true };
    let region = |offset| Region {
        start: Sum::of(1, Term::Parameter { offset, bytes: 8, signed: false }),
        bytes: Some(Sum::of(4, n)),
    };
    let condition = Condition {
        bounds: vec![Bound { axis: 0, limit: Sum::of(1, n) }],
        at_most: vec![(Sum::of(1, n), Sum::constant(1 << 30))],
        regions: vec![region(0), region(8)],
        apart: vec![Apart { first: 0, second: 1, or_same: true }],
        ..Condition::default()
    };
    let choice = Choice { asked: 128.into(), size_class: 7, blocks: vec![64.into()], draws: false };
    let kernel = PlannedKernel {
        code: code_hash(SHAPED.as_bytes()),
        name: "shaped_5000".into(),
        condition,
        choices: vec![choice],
    };
    Plan { device: "Fake GPU".into(), driver_version: 13_000, kernels: vec![kernel], pairs: Vec::new() }
}

/// The driver's way to wait for everything in the current context.
#[allow(dead_code, reason = "not every benchmark waits")]
pub fn synchronize() -> unsafe extern "C" fn() -> u32 {
    symbol(c"cuCtxSynchronize")
}

/// The function of this name in an image, in a new context.
fn function(image: &[u8], name: &CStr) -> *mut c_void {
    let mut handles = [std::ptr::null_mut::<c_void>(); 3];
    // SAFETY: the driver's functions with their arguments.
    unsafe {
        symbol::<unsafe extern "C" fn(u32) -> u32>(c"cuInit")(0);
        symbol::<unsafe extern "C" fn(*mut *mut c_void, u32, i32) -> u32>(c"cuCtxCreate_v2")(
            &mut handles[0],
            0,
            0,
        );
        let load = symbol::<unsafe extern "C" fn(*mut *mut c_void, *const u8) -> u32>(c"cuModuleLoadData");
        load(&mut handles[1], image.as_ptr());
        let get = symbol::<unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const i8) -> u32>(
            c"cuModuleGetFunction",
        );
        get(&mut handles[2], handles[1], name.as_ptr());
        handles[2]
    }
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
