//! The programs. Each fails if the driver does not behave towards it as it would without the
//! library.

use crate::driver::*;
use cuda_abi::types::*;
use cuda_abi::{Plain, index};
use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::Barrier;

/// Looks functions up as libcudart does, and checks that what it gets can be called.
pub fn look_up() {
    check(cuda!(cuInit(0)));
    let ask = |name: &CStr, version: i32, flags: u64| {
        let (mut found, mut status) = (null_mut::<c_void>(), 99);
        let result = cuda!(cuGetProcAddress_v2(name.as_ptr(), &mut found, version, flags, &mut status));
        (result, found, status)
    };
    // Null for the status, as libcudart does.
    let mut found = null_mut();
    check(cuda!(cuGetProcAddress_v2(c"cuLaunchKernel".as_ptr(), &mut found, 12000, 0, null_mut())));
    let launch = found;
    assert!(!launch.is_null());
    // Tools that stand in front of the driver compare addresses with those of exported symbols.
    assert_eq!(launch, address("cuLaunchKernel"));
    let without_hook = c"cuCtxGetApiVersion";
    assert_eq!(ask(without_hook, 12000, 0).1, address("cuCtxGetApiVersion"));
    // Null for the address, as some frameworks do to ask whether there is one.
    check(cuda!(cuGetProcAddress_v2(c"cuLaunchKernel".as_ptr(), null_mut(), 12000, 0, null_mut())));
    assert_eq!(ask(c"cuNoSuchThing", 13000, 0).0, CUDA_ERROR_NOT_FOUND);
    assert_eq!(ask(c"", 0, 0).0, CUDA_ERROR_NOT_FOUND);

    let (result, future, status) = ask(c"cuFromTheFuture", 14000, 0);
    assert_eq!((result, status), (CUDA_SUCCESS, CU_GET_PROC_ADDRESS_SUCCESS));
    // SAFETY: the fake driver's function takes no arguments.
    let answer = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> CUresult>(future)() };
    assert_eq!(answer, 42, "what nobody knows passes through");

    let per_thread = ask(c"cuLaunchKernel", 12000, 2).1;
    assert_ne!(per_thread, launch, "the per-thread form is another function");

    // What was looked up is recorded like what was linked.
    let context = context();
    let function = function(module(c"looked_up_1000"), c"looked_up_1000");
    for address in [launch, per_thread] {
        // SAFETY: both forms have this signature.
        let launch =
            unsafe { std::mem::transmute::<*mut c_void, cuda_abi::signature::cuLaunchKernel>(address) };
        // SAFETY: called as the driver demands.
        check(unsafe { launch(function, 3, 1, 1, 64, 1, 1, 0, null_mut(), null_mut(), null_mut()) });
    }
    check(cuda!(cuCtxDestroy_v2(context)));
}

/// Makes the first driver calls from many threads at the same time.
pub fn cold_start(threads: usize) {
    let addresses: Vec<usize> =
        ["cuInit", "cuDriverGetVersion", "cuCtxGetCurrent"].map(|name| address(name) as usize).to_vec();
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (addresses, start) = (&addresses, &start);
            scope.spawn(move || {
                start.wait();
                let mut word = 0u64;
                // SAFETY: each of these takes at most one pointer to something no larger than a
                // word.
                let call = unsafe {
                    std::mem::transmute::<usize, unsafe extern "C" fn(*mut u64) -> CUresult>(
                        addresses[thread % 3],
                    )
                };
                // SAFETY: as above; the flags of `cuInit` are ignored by the fake driver.
                assert_eq!(unsafe { call(&mut word) }, CUDA_SUCCESS);
            });
        }
    });
    assert_eq!(calls(index::cuInit) as usize, threads.div_ceil(3), "each call arrived once");
}

/// Uses the driver where there is none.
pub fn without_driver() {
    assert_eq!(cuda!(cuInit(0)), CUDA_ERROR_NO_DEVICE);
    let mut count = 7;
    assert_eq!(cuda!(cuDeviceGetCount(&mut count)), CUDA_ERROR_NO_DEVICE);
    let mut text = std::ptr::null();
    check(cuda!(cuGetErrorName(CUDA_ERROR_NO_DEVICE, &mut text)));
    // SAFETY: the call succeeded.
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"CUDA_ERROR_NO_DEVICE");
}

/// Uses a driver that has only `cuInit` and `cuDriverGetVersion`.
pub fn small_driver() {
    let (mut context, mut version) = (null_mut(), 0);
    let launched = launcher()(null_mut(), 1, null_mut());
    let created = cuda!(cuCtxCreate_v2(&mut context, 0, 0));
    let told = cuda!(cuDriverGetVersion(&mut version));
    println!("{launched} {created} {told} {version}");
}

/// Opens the driver under its other name, and launches.
pub fn other_name() {
    // SAFETY: C strings; the function found is the driver's.
    let found = unsafe {
        let library = libc::dlopen(c"libcuda.so".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "cannot open libcuda.so");
        libc::dlsym(library, c"cuLaunchKernel".as_ptr())
    };
    assert_eq!(found, address("cuLaunchKernel"));
    context();
    launch(function(module(c"named_100"), c"named_100"), 1, null_mut());
}

/// Launches from many threads at once, each on a stream of its own, some kernels shared and some
/// not.
pub fn launches(threads: usize, each: usize) {
    let context = context() as usize;
    let module = module(c"shared_100 own_100") as usize;
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let start = &start;
            scope.spawn(move || {
                check(cuda!(cuCtxSetCurrent(context as CUcontext)));
                let stream = stream(CU_STREAM_NON_BLOCKING);
                let shared = function(module as CUmodule, c"shared_100");
                let own = function(module as CUmodule, c"own_100");
                let launch = launcher();
                start.wait();
                for index in 0..each {
                    let (function, grid) =
                        if index % 4 == 0 { (own, thread + 1) } else { (shared, index % 50 + 1) };
                    check(launch(function, grid as u32, stream));
                }
            });
        }
    });
    // Until then, some may be queued.
    check(cuda!(cuCtxSynchronize()));
    assert_eq!(calls(index::cuLaunchKernel) as usize, threads * each);
}

/// Many threads, one after the other.
pub fn threads_in_turn(threads: usize, each: usize) {
    let context = context() as usize;
    let function = function(module(c"turn_100"), c"turn_100") as usize;
    for _ in 0..threads {
        std::thread::spawn(move || {
            check(cuda!(cuCtxSetCurrent(context as CUcontext)));
            (0..each).for_each(|_| launch(function as CUfunction, 1, null_mut()));
        })
        .join()
        .expect("the thread ends well");
    }
}

/// Launches in all forms.
pub fn forms() {
    context();
    let module = module(c"plain_1 extended_2 cooperative_3 legacy_4 per_thread_5");
    let (blocking, parallel) = (stream(CU_STREAM_DEFAULT), stream(CU_STREAM_NON_BLOCKING));
    let (none, extra) = (null_mut(), null_mut());
    let plain = function(module, c"plain_1");
    check(cuda!(cuLaunchKernel(plain, 1, 2, 3, 4, 5, 6, 7, blocking, none, extra)));

    let extended = function(module, c"extended_2");
    let mut attributes = [CUlaunchAttribute::zeroed(); 3];
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[0].value.clusterDim.x = 2;
    attributes[0].value.clusterDim.y = 1;
    attributes[0].value.clusterDim.z = 1;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    attributes[2].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attributes[2].value.cooperative = 1;
    let config = CUlaunchConfig {
        gridDimX: 8,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 16,
        hStream: parallel,
        attrs: attributes.as_mut_ptr(),
        numAttrs: 3,
    };
    check(cuda!(cuLaunchKernelEx(&config, extended, none, extra)));
    assert_eq!(cuda!(cuLaunchKernelEx(std::ptr::null(), extended, none, extra)), CUDA_ERROR_INVALID_VALUE);

    let cooperative = function(module, c"cooperative_3");
    check(cuda!(cuLaunchCooperativeKernel(cooperative, 9, 1, 1, 10, 1, 1, 0, null_mut(), none)));

    let legacy = function(module, c"legacy_4");
    check(cuda!(cuFuncSetBlockShape(legacy, 64, 2, 1)));
    check(cuda!(cuFuncSetSharedSize(legacy, 1024)));
    check(cuda!(cuLaunchGrid(legacy, 11, 12)));

    let own = function(module, c"per_thread_5");
    check(cuda!(cuLaunchKernel_ptsz(own, 1, 1, 1, 1, 1, 1, 0, null_mut(), none, extra)));

    let (mut library, mut kernel) = (null_mut(), null_mut());
    let (options, values) = (null_mut(), null_mut());
    check(cuda!(cuLibraryLoadData(
        &mut library,
        c"clustered_kernel_6".as_ptr().cast(),
        options,
        values,
        0,
        null_mut(),
        null_mut(),
        0
    )));
    check(cuda!(cuLibraryGetKernel(&mut kernel, library, c"clustered_kernel_6".as_ptr())));
    launch(kernel.cast(), 13, null_mut());
}

/// Streams come and go under the same handle.
pub fn streams() {
    context();
    let function = function(module(c"streamed_1"), c"streamed_1");
    let lasting = stream(CU_STREAM_NON_BLOCKING);
    for round in 0..6 {
        let stream = stream(if round % 2 == 0 { CU_STREAM_DEFAULT } else { CU_STREAM_NON_BLOCKING });
        for _ in 0..3 {
            launch(function, round + 1, stream);
            launch(function, 100, lasting);
        }
        check(cuda!(cuStreamDestroy_v2(stream)));
    }
}

/// Streams that go with their contexts, and come again under the same handle in the next.
pub fn streams_of_contexts() {
    for round in 0..4 {
        let context = context();
        let function = function(module(c"streamed_1"), c"streamed_1");
        let stream = stream(if round % 2 == 0 { CU_STREAM_DEFAULT } else { CU_STREAM_NON_BLOCKING });
        (0..3).for_each(|_| launch(function, round + 1, stream));
        check(cuda!(cuCtxDestroy_v2(context)));
    }
}

/// Loads, launches and unloads modules, so that their functions come under the same handles one
/// after the other.
pub fn reload(times: usize) {
    context();
    let mut handles = std::collections::BTreeSet::new();
    for time in 0..times {
        let name = CString::new(format!("{}_{}", if time % 2 == 0 { "even" } else { "odd" }, time % 4))
            .expect("a name");
        let module = module(&name);
        let function = function(module, &name);
        handles.insert(function as usize);
        for _ in 0..3 {
            launch(function, 1, null_mut());
        }
        check(cuda!(cuModuleUnload(module)));
    }
    assert_eq!(handles.len(), 1, "the fake driver reuses handles");
}

/// Launches with `count` different grids.
pub fn configurations(count: usize) {
    context();
    let function = function(module(c"many_100"), c"many_100");
    let launch = launcher();
    for round in 0..2 {
        for grid in 1..=count as u32 {
            check(launch(function, grid, null_mut()));
        }
        if round == 0 {
            println!("{}", resident_bytes());
        }
    }
    println!("{}", resident_bytes());
}

/// Memory of this process that belongs to no file.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/smaps_rollup").expect("the kernel's account");
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a line");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number") * 1024
    };
    of("Anonymous:")
}

/// A parent and its child both use the driver. (With the real driver a child may not, once its
/// parent has; with the fake one it may, which is harder for the library.)
pub fn fork() {
    context();
    let function = function(module(c"forked_100"), c"forked_100");
    (0..1000).for_each(|_| launch(function, 1, null_mut()));
    // SAFETY: there is one thread.
    match unsafe { libc::fork() } {
        0 => {
            (0..500).for_each(|_| launch(function, 2, null_mut()));
            std::process::exit(0);
        }
        child => {
            (0..1000).for_each(|_| launch(function, 3, null_mut()));
            let mut status = -1;
            // SAFETY: valid for writing.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
            println!("{} {child}", std::process::id());
        }
    }
}

/// Launches, and becomes another program that launches.
pub fn exec() {
    use std::os::unix::process::CommandExt;
    context();
    let function = function(module(c"before_100"), c"before_100");
    (0..10).for_each(|_| launch(function, 1, null_mut()));
    let error = std::process::Command::new("/proc/self/exe").args(["launches", "2", "5"]).exec();
    panic!("{error}");
}

/// Allocates, copies, sets, waits and frees.
fn work_on(stream: CUstream) {
    let mut pointer = 0;
    check(cuda!(cuMemAlloc_v2(&mut pointer, 4096)));
    check(cuda!(cuMemcpyHtoDAsync_v2(pointer, 0x1001 as *const c_void, 100, stream)));
    check(cuda!(cuMemcpyHtoDAsync_v2(pointer, 0x2000 as *const c_void, 200, stream)));
    check(cuda!(cuMemcpyDtoH_v2(0x3000 as *mut c_void, pointer, 300)));
    check(cuda!(cuMemsetD32Async(pointer, 1, 25, stream)));
    check(cuda!(cuStreamSynchronize(stream)));
    check(cuda!(cuMemFree_v2(pointer)));
}

/// Calls of every class, and one that fails.
pub fn every_class() {
    context();
    let stream = stream(CU_STREAM_NON_BLOCKING);
    work_on(stream);
    let mut pointer = 5;
    assert_eq!(cuda!(cuMemAlloc_v2(&mut pointer, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(pointer, 5);
    let mut event = null_mut();
    check(cuda!(cuEventCreate(&mut event, 0)));
    check(cuda!(cuEventRecord(event, stream)));
    check(cuda!(cuEventQuery(event)));
    check(cuda!(cuEventDestroy_v2(event)));
    check(cuda!(cuModuleUnload(module(c"x"))));
    check(cuda!(cuStreamDestroy_v2(stream)));
}

/// Copies from the same buffer before, while and after it is pinned.
pub fn copies() {
    context();
    let buffer = 0x5000 as *mut c_void;
    let copy =
        || (0..100).for_each(|_| check(cuda!(cuMemcpyHtoDAsync_v2(0x7000_0000_0000, buffer, 8, null_mut()))));
    copy();
    check(cuda!(cuMemHostRegister_v2(buffer, 4096, 0)));
    copy();
    check(cuda!(cuMemHostUnregister(buffer)));
    copy();
    println!("{}", calls(index::cuPointerGetAttributes));
}

/// Copies between the memories of two devices, in both forms, and within each: without a context on
/// the second device, with one, and captured.
pub fn copies_between_devices() {
    const ONE: [CUdeviceptr; 2] = [0x7000_0000_0000, 0x7000_0000_1000];
    const OTHER: [CUdeviceptr; 2] = [0x7080_0000_0000, 0x7080_0000_1000];
    let first = context();
    let plain = |to, from, stream| check(cuda!(cuMemcpyDtoDAsync_v2(to, from, 8, stream)));
    plain(OTHER[0], ONE[0], null_mut());
    let asked = calls(index::cuPointerGetAttributes);
    let mut second = null_mut();
    check(cuda!(cuCtxCreate_v2(&mut second, 0, 1)));
    check(cuda!(cuCtxSetCurrent(first)));
    plain(OTHER[0], ONE[0], null_mut());
    plain(ONE[1], ONE[0], null_mut());
    plain(OTHER[1], OTHER[0], null_mut());
    check(cuda!(cuMemcpyPeerAsync(ONE[0], first, OTHER[0], second, 8, null_mut())));
    check(cuda!(cuMemcpyPeerAsync(ONE[0], first, ONE[1], first, 8, null_mut())));
    let (mut graph, stream) = (null_mut(), stream(CU_STREAM_NON_BLOCKING));
    check(cuda!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)));
    plain(OTHER[0] + 64, ONE[0], stream);
    check(cuda!(cuStreamEndCapture(stream, &mut graph)));
    println!("{asked} {}", calls(index::cuPointerGetAttributes));
}

/// Launches kernels of known durations, now and then waiting for them.
pub fn timed(launches: usize) {
    context();
    let module = module(c"short_4000 long_90000");
    let (short, long) = (function(module, c"short_4000"), function(module, c"long_90000"));
    let stream = stream(CU_STREAM_NON_BLOCKING);
    for index in 0..launches {
        launch(if index % 10 == 0 { long } else { short }, 1, stream);
        if index % 50 == 49 {
            check(cuda!(cuStreamSynchronize(stream)));
        }
    }
    println!("{}", calls(index::cuEventRecord));
}

/// Launches two kernels that take less than their launches, so the stream is idle nearly always;
/// the program waits for it now and then. Prints what was done wrong.
pub fn host_bound(launches: usize) {
    context();
    let module = module(c"brief_1000 middling_2500");
    let functions = [function(module, c"brief_1000"), function(module, c"middling_2500")];
    let stream = stream(CU_STREAM_NON_BLOCKING);
    for index in 0..launches {
        launch(functions[index % 2], 1, stream);
        if index % 100 == 99 {
            check(cuda!(cuStreamSynchronize(stream)));
        }
    }
    println!("{}", fake::<extern "C" fn() -> u64>(c"fake_violations")());
}

/// Launches into two streams in turn, waits for one of them now and then, and for the other only at
/// the end. Prints how often the driver had to answer that work is not done yet.
pub fn two_streams(launches: usize) {
    context();
    let function = function(module(c"short_4000"), c"short_4000");
    let streams = [(); 2].map(|()| stream(CU_STREAM_NON_BLOCKING));
    let launch = launcher();
    for index in 0..launches {
        check(launch(function, 1, streams[index % 2]));
        if index % 20 == 19 {
            check(cuda!(cuStreamSynchronize(streams[0])));
        }
    }
    println!("{}", not_ready(index::cuEventElapsedTime));
    check(cuda!(cuCtxSynchronize()));
}

/// Launches more configurations in turn than a thread remembers.
pub fn timed_in_turn(configurations: u32, rounds: u32) {
    context();
    let function = function(module(c"turn_5000"), c"turn_5000");
    let launch = launcher();
    for grid in (0..rounds).flat_map(|_| 1..=configurations) {
        check(launch(function, grid, null_mut()));
    }
}

/// Contexts come and go, the same handle for each, with timed launches pending.
pub fn contexts() {
    check(cuda!(cuInit(0)));
    for round in 0..5 {
        let mut context = null_mut();
        check(cuda!(cuCtxCreate_v2(&mut context, 0, 0)));
        let function = function(module(c"passing_1000"), c"passing_1000");
        for _ in 0..20 {
            launch(function, round + 1, null_mut());
        }
        check(cuda!(cuCtxDestroy_v2(context)));
    }
    let mut primary = null_mut();
    check(cuda!(cuDevicePrimaryCtxRetain(&mut primary, 0)));
    check(cuda!(cuCtxSetCurrent(primary)));
    let function = function(module(c"primary_1000"), c"primary_1000");
    (0..20).for_each(|_| launch(function, 1, null_mut()));
    check(cuda!(cuDevicePrimaryCtxReset_v2(0)));
    println!("{}", fake::<extern "C" fn() -> u64>(c"fake_violations")());
}

/// The driver calls back into the program in the middle of a call, and the program calls the
/// driver.
pub fn callback() {
    context();
    let function = function(module(c"inner_100"), c"inner_100");
    unsafe extern "C" fn work(function: *mut c_void) {
        launch(function.cast(), 1, null_mut());
    }
    for _ in 0..10 {
        check(cuda!(cuLaunchHostFunc(null_mut(), Some(work), function.cast())));
    }
    // In the middle of a signal handler too.
    extern "C" fn handler(_: i32) {
        std::hint::black_box(cuda!(cuCtxGetCurrent(&mut null_mut())));
    }
    // SAFETY: a handler that only makes a call; this thread raises the signal itself.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as *const () as usize);
        libc::raise(libc::SIGUSR1);
    }
}

/// Launches, tells its standard output, and waits for standard input, three times over.
pub fn switched() {
    context();
    let function = function(module(c"switched_100"), c"switched_100");
    for grid in 1..=3 {
        (0..100).for_each(|_| launch(function, grid, null_mut()));
        println!("{grid}");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("standard input");
    }
}

/// Launches that fail.
pub fn failing() {
    context();
    for handle in [0usize, 0x10, 0xdead_beef_0000] {
        let result = launcher()(handle as CUfunction, 1, null_mut());
        assert_eq!(result, CUDA_ERROR_INVALID_HANDLE);
    }
    let function = function(module(c"sound_100"), c"sound_100");
    launch(function, 1, null_mut());
}
