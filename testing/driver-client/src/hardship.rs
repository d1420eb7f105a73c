//! Programs that make it hard for the library: session files that fail, handlers of their own,
//! small stacks, no memory, no system calls.

use crate::driver::*;
use cuda_abi::index;
use cuda_abi::types::*;
use std::ffi::{CString, c_void};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Tells the test that it may spoil the session, and waits until it has.
fn wait_for_the_test() {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("standard input");
}

const PAGE: usize = 4096;
/// Faults that this program's own handler met, and where the last one was.
static FAULTS: AtomicUsize = AtomicUsize::new(0);
static FAULT_AT: AtomicUsize = AtomicUsize::new(0);

/// Repairs a fault of this program's by mapping memory there.
extern "C" fn repair(_: i32, info: *const libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel's description of the fault; a page of this program's own mapping is
    // replaced.
    unsafe {
        let at = (*info).si_addr() as usize;
        FAULTS.fetch_add(1, Ordering::Relaxed);
        FAULT_AT.store(at, Ordering::Relaxed);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let page = (at & !(PAGE - 1)) as *mut c_void;
        assert_eq!(libc::mmap(page, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0), page);
    }
}

fn install_handler() {
    // SAFETY: plain data, for which zeros are valid; a handler that makes system calls only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = repair as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGBUS, &action, null_mut()), 0);
        let mut found: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut found), 0);
        assert_eq!(found.sa_sigaction, action.sa_sigaction, "a program finds its own handler");
    }
}

/// Touches a mapping of a file that has been truncated.
fn fault() -> usize {
    let path = std::env::temp_dir().join(format!("own-fault-{}", std::process::id()));
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .expect("a file");
    std::fs::remove_file(&path).expect("removed");
    file.set_len(PAGE as u64).expect("a page");
    // SAFETY: a new mapping; its only user is the access below.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let page = libc::mmap(null_mut(), PAGE, protection, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(page, libc::MAP_FAILED);
        file.set_len(0).expect("truncated");
        page.cast::<u8>().add(8).write_volatile(1);
        page as usize + 8
    }
}

/// Has a handler for SIGBUS of its own, installed before or after the first driver call; the test
/// truncates the session.
pub fn own_faults(when: &str) {
    if when == "before" {
        install_handler();
    }
    context();
    let function = function(module(c"own_100"), c"own_100");
    (0..100).for_each(|_| launch(function, 1, null_mut()));
    if when == "after" {
        install_handler();
    }
    assert_eq!(fault(), FAULT_AT.load(Ordering::Relaxed), "its own fault is its own");
    wait_for_the_test();
    for grid in 1..=300 {
        (0..100).for_each(|_| launch(function, grid, null_mut()));
    }
    assert_eq!(FAULTS.load(Ordering::Relaxed), 1, "ours are not its own");
    assert_eq!(fault(), FAULT_AT.load(Ordering::Relaxed));
    assert_eq!(FAULTS.load(Ordering::Relaxed), 2);
    assert!(calls(index::cuLaunchKernel) >= 30_100, "calibration launches a few too");
}

/// Launches from threads that block every signal; the test truncates the session.
pub fn blocked_signals() {
    let context = context() as usize;
    let function = function(module(c"own_100"), c"own_100") as usize;
    // SAFETY: a set on this stack; threads inherit what is blocked.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, null_mut());
    }
    let start = std::sync::Barrier::new(5);
    std::thread::scope(|scope| {
        for thread in 1..=4 {
            let start = &start;
            scope.spawn(move || {
                check(cuda!(cuCtxSetCurrent(context as CUcontext)));
                launch(function as CUfunction, thread, null_mut());
                start.wait();
                start.wait();
                (0..20_000).for_each(|_| launch(function as CUfunction, thread, null_mut()));
            });
        }
        start.wait();
        wait_for_the_test();
        start.wait();
    });
    assert!(calls(index::cuLaunchKernel) >= 80_004, "calibration launches a few too");
}

/// Dies of a fault of its own.
pub fn unhandled_fault() {
    context();
    launch(function(module(c"own_100"), c"own_100"), 1, null_mut());
    fault();
}

/// Does everything that a thread can meet for the first time.
fn everything(context: CUcontext, stream: CUstream, function: CUfunction, made: CUgraphExec, first: u32) {
    check(cuda!(cuCtxSetCurrent(context)));
    let launch = launcher();
    for grid in first..first + 40 {
        check(launch(function, grid, stream));
    }
    (0..9000).for_each(|_| check(launch(function, first, stream)));
    (0..20).for_each(|_| check(cuda!(cuGraphLaunch(made, stream))));
    let mut pointer = 0;
    check(cuda!(cuMemAlloc_v2(&mut pointer, 4096)));
    check(cuda!(cuMemcpyHtoDAsync_v2(pointer, 0x1001 as *const c_void, 100, stream)));
    check(cuda!(cuStreamSynchronize(stream)));
    check(cuda!(cuMemFree_v2(pointer)));
    check(cuda!(cuModuleUnload(module(c"loaded_100"))));
    check(launch(function, first, null_mut()));
    check(cuda!(cuCtxSynchronize()));
}

/// An executable graph of some kernels.
fn graph(function: CUfunction) -> CUgraphExec {
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let (mut graph, mut made) = (null_mut(), null_mut());
    check(cuda!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)));
    (1..5).for_each(|grid| launch(function, 1000 + grid, stream));
    check(cuda!(cuStreamEndCapture(stream, &mut graph)));
    check(cuda!(cuGraphInstantiateWithFlags(&mut made, graph, 0)));
    made
}

/// Runs `work` in a thread whose stack is `bytes` long, on memory of the caller's if there is some.
fn in_thread(bytes: usize, memory: Option<*mut u8>, work: &mut dyn FnMut()) {
    extern "C" fn run(work: *mut c_void) -> *mut c_void {
        // SAFETY: `in_thread` passes a reference that lives until the thread was joined.
        unsafe { (*work.cast::<&mut dyn FnMut()>())() };
        null_mut()
    }
    let mut work = work;
    // SAFETY: attributes and thread are plain data; `work` outlives the thread, which is joined
    // here.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        let set = match memory {
            Some(memory) => libc::pthread_attr_setstack(&mut attributes, memory.cast(), bytes),
            None => libc::pthread_attr_setstacksize(&mut attributes, bytes),
        };
        assert_eq!(set, 0);
        let mut thread: libc::pthread_t = std::mem::zeroed();
        assert_eq!(libc::pthread_create(&mut thread, &attributes, run, (&raw mut work).cast()), 0);
        assert_eq!(libc::pthread_join(thread, null_mut()), 0);
    }
}

/// Launches and all the rest from threads with the smallest stack there is, one after the other.
pub fn small_stacks(threads: usize) {
    let context = context();
    let module = module(c"small_100");
    let function = function(module, c"small_100");
    let made = graph(function);
    for thread in 0..threads as u32 {
        let stream = stream(CU_STREAM_NON_BLOCKING);
        in_thread(libc::PTHREAD_STACK_MIN, None, &mut || {
            everything(context, stream, function, made, 1 + 100 * thread);
        });
    }
}

/// Bytes of its stack that a thread needs to do everything once. All it calls was called before, so
/// that nothing is bound or loaded for the first time.
pub fn stack_depth() -> usize {
    const BYTES: usize = 256 * 1024;
    const MARK: u8 = 0xa5;
    let context = context();
    let function = function(module(c"deep_100"), c"deep_100");
    let made = graph(function);
    let stream = stream(CU_STREAM_NON_BLOCKING);
    everything(context, stream, function, made, 1);
    // SAFETY: a new mapping, of which the thread is the only user until it was joined.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let memory = libc::mmap(null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        let memory = memory.cast::<u8>();
        memory.write_bytes(MARK, BYTES);
        in_thread(BYTES, Some(memory), &mut || everything(context, stream, function, made, 5000));
        let bytes = std::slice::from_raw_parts(memory, BYTES);
        BYTES - bytes.iter().position(|&byte| byte != MARK).unwrap_or(BYTES)
    }
}

/// Launches where every system call but the end of the process kills it. With `disobeys`, makes
/// one.
pub fn without_system_calls(launches: usize, disobeys: bool) {
    context();
    let function = function(module(c"quiet_5000"), c"quiet_5000");
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let launch = launcher();
    (0..launches).for_each(|at| check(launch(function, at as u32 % 8 + 1, stream)));
    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the number of the call
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_exit_group as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, KILL),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a filter of four steps, which only ends this process.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program), 0);
        let failed = (0..launches).any(|at| launch(function, at as u32 % 8 + 1, stream) != CUDA_SUCCESS);
        if disobeys {
            libc::syscall(libc::SYS_getppid);
        }
        libc::syscall(libc::SYS_exit_group, i32::from(failed));
    }
}

/// Allocations that the library has made, which the preloaded shim counts.
fn allocations() -> u64 {
    // SAFETY: the shim's function has this type.
    unsafe {
        let count = libc::dlsym(libc::RTLD_DEFAULT, c"shim_allocations".as_ptr());
        assert!(!count.is_null(), "the shim is preloaded");
        std::mem::transmute::<*mut c_void, extern "C" fn() -> u64>(count)()
    }
}

/// Launches what was launched before, and prints how often the library allocated meanwhile and
/// beforehand.
pub fn without_allocations(launches: usize) {
    context();
    let function = function(module(c"quiet_5000"), c"quiet_5000");
    let stream = stream(CU_STREAM_NON_BLOCKING);
    let launch = launcher();
    let all = || (0..launches).for_each(|at| check(launch(function, at as u32 % 8 + 1, stream)));
    all();
    let before = allocations();
    all();
    println!("{} {}", allocations() - before, before);
}

/// Limits its address space to what it has and `mib` more, and then does everything.
pub fn near_the_limit(mib: usize) {
    // Opened beforehand, as programs are that find out what they need.
    let names = CString::new("near_100").expect("a name");
    std::hint::black_box(address("cuInit"));
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the kernel's account");
    let pages: usize = statm.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
    let bytes = (pages * PAGE + (mib << 20)) as u64;
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: `limit` is valid.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    let context = context();
    let function = function(module(&names), &names);
    let made = graph(function);
    everything(context, stream(CU_STREAM_NON_BLOCKING), function, made, 1);
    assert!(calls(index::cuLaunchKernel) >= 9000);
    println!("done");
}
