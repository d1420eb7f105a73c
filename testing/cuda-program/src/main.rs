//! A CUDA program for the end-to-end tests. Its arguments are what it does, one after the other:
//!
//! | words | what happens |
//! | --- | --- |
//! | `launch N` | launches an empty kernel N times, waits for it, prints `launched` and the count so far |
//! | `steps N TIME` | N times: launches three empty kernels and one that writes, waits, sleeps for so many microseconds |
//! | `run KERNEL` | launches `race`, `wild`, `beyond`, `speculates` or `lines` (see the PTX) once, waits, prints the code that it ends with |
//! | `forever` | launches without end, a hundred at a time, printing as above |
//! | `threads T N` | T threads launch N times each |
//! | `fork N` | a forked child launches N times; waits for it (to be used before anything else) |
//! | `spawn WORDS…` | runs itself with these words, and waits |
//! | `exec WORDS…` | becomes itself with these words |
//! | `await FILE` | prints `waiting`, then waits until the file exists |
//! | `exit CODE`, `raise SIGNAL`, `ignore SIGNAL` | as they say |
//! | `count SIGNAL FILE` | from now on, counts deliveries of the signal by bytes appended to the file |

use apex_driver::library::{Library, NAME};
use cuda_abi::signature;
use cuda_abi::types::*;
use std::ffi::{CStr, c_void};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// An empty kernel; one whose threads write different values to one word; one that reads where
/// nothing is; one that reads beyond a variable; one that loads what nobody has written and uses it
/// in one lane; one whose lines have counts that are known by hand.
const PTX: &CStr = c".version 7.0
.target sm_70
.address_size 64
.file 1 \"defects.cu\"
.global .align 4 .u32 table[4];
.visible .entry nothing() { ret; }
.visible .entry race() {
    .shared .u32 word;
    .reg .u32 %r;
    mov.u32 %r, %tid.x;
    .loc 1 12 5
    st.shared.u32 [word], %r;
    ret;
}
.visible .entry wild() {
    .reg .u64 %a;
    .reg .u32 %r;
    mov.u64 %a, 64;
    .loc 1 21 9
    ld.global.u32 %r, [%a];
    ret;
}
.visible .entry beyond() {
    .reg .u32 %r;
    .loc 1 31 9
    ld.global.u32 %r, [table+20];
    ret;
}
.visible .entry speculates() {
    .local .u32 mine;
    .reg .u32 %r<4>;
    .reg .pred %p;
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p, %r1, 5;
    .loc 1 41 9
    ld.local.u32 %r2, [mine];
    selp.u32 %r3, %r2, 7, %p;
    .loc 1 43 9
    st.global.u32 [table], %r3;
    ret;
}
.global .align 128 .u32 rows[512];
.visible .entry lines() {
    .reg .u32 %r<2>;
    .reg .u64 %a<2>;
    .reg .pred %p;
    mov.u32 %r0, %tid.x;
    .loc 1 51 5
    setp.gt.u32 %p, %r0, 15;
    @%p bra DONE;
    .loc 1 52 9
    mul.wide.u32 %a0, %r0, 128;
    mov.u64 %a1, rows;
    add.u64 %a1, %a1, %a0;
    ld.global.u32 %r1, [%a1];
    st.global.u32 [%a1], %r1;
DONE:
    .loc 1 53 1
    ret;
}
";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    run(&words);
}

fn run(mut words: &[String]) {
    while let [action, rest @ ..] = words {
        let text = |at: usize| rest.get(at).unwrap_or_else(|| panic!("{action} needs more words"));
        let number =
            |at: usize| text(at).parse::<u64>().unwrap_or_else(|_| panic!("{} is no number", text(at)));
        let signal = || i32::try_from(number(0)).expect("a signal");
        let used = match action.as_str() {
            "launch" => {
                launch(number(0));
                1
            }
            "steps" => {
                steps(number(0), Duration::from_micros(number(1)));
                2
            }
            "run" => {
                run_kernel(text(0));
                1
            }
            "forever" => loop {
                launch(100);
            },
            "threads" => {
                let (threads, count) = (number(0), number(1));
                std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| launch(count)))));
                2
            }
            "fork" => {
                fork(number(0));
                1
            }
            "spawn" => {
                let status = itself(rest).status().expect("this program runs");
                return assert!(status.success(), "{status}");
            }
            "exec" => panic!("{}", itself(rest).exec()),
            "await" => {
                println!("waiting");
                while !std::path::Path::new(text(0)).exists() {
                    std::thread::sleep(Duration::from_millis(2));
                }
                1
            }
            "exit" => std::process::exit(signal()),
            "raise" => {
                // SAFETY: plain calls with numbers. (Rust catches SIGSEGV; a program in C doesn't.)
                unsafe {
                    libc::signal(signal(), libc::SIG_DFL);
                    libc::raise(signal());
                }
                1
            }
            "ignore" => {
                // SAFETY: a valid disposition.
                unsafe { libc::signal(signal(), libc::SIG_IGN) };
                1
            }
            "count" => {
                count(signal(), text(1));
                2
            }
            other => panic!("unknown word {other}"),
        };
        words = &rest[used..];
    }
}

fn itself(words: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args(words);
    command
}

fn fork(count: u64) {
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            launch(count);
            std::process::exit(0);
        }
        child => {
            let mut status = 0;
            // SAFETY: the child of this process, and a local.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
    }
}

static COUNTED: AtomicI32 = AtomicI32::new(-1);

fn count(signal: i32, path: &str) {
    use std::os::fd::IntoRawFd;
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a file to count in");
    COUNTED.store(file.into_raw_fd(), Ordering::Relaxed);
    extern "C" fn note(_: i32) {
        // SAFETY: an open file and one byte; async-signal-safe.
        unsafe { libc::write(COUNTED.load(Ordering::Relaxed), c"x".as_ptr().cast(), 1) };
    }
    // SAFETY: the handler makes one async-signal-safe call.
    unsafe { libc::signal(signal, note as *const () as usize) };
}

/// The driver, with the kernel loaded.
struct Cuda {
    launch: signature::cuLaunchKernel,
    synchronize: signature::cuCtxSynchronize,
    set_current: signature::cuCtxSetCurrent,
    context: usize,
    kernel: usize,
    find: signature::cuModuleGetFunction,
    module: usize,
}

static CUDA: OnceLock<Cuda> = OnceLock::new();

fn run_kernel(name: &str) {
    let cuda = CUDA.get_or_init(Cuda::open);
    // SAFETY: a context of this process.
    check("cuCtxSetCurrent", unsafe { (cuda.set_current)(cuda.context as CUcontext) });
    cuda.launch_one(cuda.find(name));
    // SAFETY: the context is current.
    println!("ended with {}", unsafe { (cuda.synchronize)() });
}

fn steps(count: u64, pause: Duration) {
    let cuda = CUDA.get_or_init(Cuda::open);
    // SAFETY: a context of this process.
    check("cuCtxSetCurrent", unsafe { (cuda.set_current)(cuda.context as CUcontext) });
    let last = cuda.find("race");
    for _ in 0..count {
        (0..3).for_each(|_| cuda.launch_one(cuda.kernel as CUfunction));
        cuda.launch_one(last);
        // SAFETY: the context is current.
        check("cuCtxSynchronize", unsafe { (cuda.synchronize)() });
        std::thread::sleep(pause);
    }
}

fn launch(count: u64) {
    static LAUNCHED: AtomicU64 = AtomicU64::new(0);
    let cuda = CUDA.get_or_init(Cuda::open);
    // SAFETY: a context of this process.
    check("cuCtxSetCurrent", unsafe { (cuda.set_current)(cuda.context as CUcontext) });
    (0..count).for_each(|_| cuda.launch_one(cuda.kernel as CUfunction));
    // SAFETY: the context is current.
    check("cuCtxSynchronize", unsafe { (cuda.synchronize)() });
    let launched = LAUNCHED.fetch_add(count, Ordering::Relaxed) + count;
    let mut out = std::io::stdout().lock();
    writeln!(out, "launched {launched}").and_then(|()| out.flush()).expect("somebody listens");
}

impl Cuda {
    /// A kernel of the module.
    fn find(&self, name: &str) -> CUfunction {
        let (name, mut kernel) = (std::ffi::CString::new(name).expect("a name"), std::ptr::null_mut());
        // SAFETY: the module is live, the output is a local.
        let code = unsafe { (self.find)(&raw mut kernel, self.module as CUmodule, name.as_ptr()) };
        check("cuModuleGetFunction", code);
        kernel
    }

    /// Launches a kernel of the module, in a block of 32 threads. The context must be current.
    fn launch_one(&self, kernel: CUfunction) {
        let null = std::ptr::null_mut::<c_void>();
        // SAFETY: the kernels take no arguments; the handle is live.
        let code =
            unsafe { (self.launch)(kernel, 1, 1, 1, 32, 1, 1, 0, null.cast(), null.cast(), null.cast()) };
        check("cuLaunchKernel", code);
    }

    fn open() -> Self {
        macro_rules! function {
            ($library:expr, $symbol:ident) => {{
                let name = std::ffi::CString::new(stringify!($symbol)).expect("a symbol");
                let address = $library.address(&name);
                assert!(!address.is_null(), concat!("no ", stringify!($symbol)));
                std::mem::transmute::<*mut c_void, signature::$symbol>(address)
            }};
        }
        let (mut device, mut context, mut module, mut kernel) =
            (0, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the functions have the signatures that the driver's header gives them; outputs
        // are locals; the PTX and the name end with a zero byte.
        unsafe {
            let library = Library::open(NAME).unwrap_or_else(|error| {
                eprintln!("cuda-program: {error}");
                std::process::exit(3);
            });
            check("cuInit", function!(library, cuInit)(0));
            check("cuDeviceGet", function!(library, cuDeviceGet)(&raw mut device, 0));
            check(
                "cuDevicePrimaryCtxRetain",
                function!(library, cuDevicePrimaryCtxRetain)(&raw mut context, device),
            );
            let set_current = function!(library, cuCtxSetCurrent);
            check("cuCtxSetCurrent", set_current(context));
            check(
                "cuModuleLoadData",
                function!(library, cuModuleLoadData)(&raw mut module, PTX.as_ptr().cast()),
            );
            let get = function!(library, cuModuleGetFunction);
            check("cuModuleGetFunction", get(&raw mut kernel, module, c"nothing".as_ptr()));
            Cuda {
                launch: function!(library, cuLaunchKernel),
                synchronize: function!(library, cuCtxSynchronize),
                set_current,
                context: context as usize,
                kernel: kernel as usize,
                find: get,
                module: module as usize,
            }
        }
    }
}

fn check(call: &str, result: CUresult) {
    assert_eq!(result, CUDA_SUCCESS, "{call}");
}
