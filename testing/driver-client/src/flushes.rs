//! A flush before calls: it comes first, spoils nothing of theirs, and does not run within itself.

use crate::driver::{LIBRARY, address, cuda, fake};
use cuda_abi::signature;
use std::arch::asm;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Flushes so far, and those that the program has asked about.
static FLUSHES: AtomicU64 = AtomicU64::new(0);
static ASKED: AtomicU64 = AtomicU64::new(0);
/// Calls that the fake driver had seen when the last flush began.
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// Calls that the fake driver has seen.
fn echoes() -> u64 {
    static ECHOES: LazyLock<extern "C" fn() -> u64> = LazyLock::new(|| fake(c"fake_echoes"));
    ECHOES()
}

/// Counts, makes a driver call of its own, and overwrites all registers that carry arguments: every
/// flush does this.
extern "C" fn witness() {
    FLUSHES.fetch_add(1, Ordering::Relaxed);
    BEFORE.store(echoes(), Ordering::Relaxed);
    // The fake driver looks at words of its caller's stack, and the one that a flush runs on may
    // end here.
    let room = [0u64; 32];
    std::hint::black_box(&room);
    let mut version = 0;
    let _ = cuda!(cuDriverGetVersion(&mut version));
    // SAFETY: all that is overwritten is said to be.
    unsafe {
        asm!(
            "mov rdi, -1",
            "mov rsi, rdi",
            "mov rdx, rdi",
            "mov rcx, rdi",
            "mov r8, rdi",
            "mov r9, rdi",
            "mov r10, rdi",
            "mov r11, rdi",
            "pcmpeqd xmm0, xmm0",
            "movaps xmm1, xmm0",
            "movaps xmm2, xmm0",
            "movaps xmm3, xmm0",
            "movaps xmm4, xmm0",
            "movaps xmm5, xmm0",
            "movaps xmm6, xmm0",
            "movaps xmm7, xmm0",
            out("rdi") _, out("rsi") _, out("rdx") _, out("rcx") _, out("r8") _, out("r9") _, out("r10") _,
            out("r11") _, out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _,
            options(nostack),
        );
    }
}

/// Watches flushes from now on; false if the library has none.
pub fn watch() -> bool {
    // SAFETY: an open library and a C string.
    let set = LIBRARY.address(c"flushing_set_witness");
    if set.is_null() {
        return false;
    }
    // SAFETY: the symbol's type, by agreement with the library.
    unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(extern "C" fn())>(set)(witness) };
    true
}

/// Flushes since this was last asked. Fails if the last of them came after the driver had seen its
/// call.
pub fn since_last_asked() -> u64 {
    let flushes = FLUSHES.load(Ordering::Relaxed);
    let since = flushes - ASKED.swap(flushes, Ordering::Relaxed);
    if since > 0 {
        // The witness's own call, the one for which the flush ran, and those that its hook makes.
        assert!(echoes() >= BEFORE.load(Ordering::Relaxed) + 2, "the flush runs first");
    }
    since
}

/// Calls an entry point that has no hook, through the address that a look-up gives and through the
/// exported one.
pub fn looked_up() {
    assert!(watch(), "the library has a flush");
    let (mut found, mut status) = (null_mut(), 0);
    let name = c"cuCtxGetApiVersion".as_ptr();
    assert_eq!(cuda!(cuGetProcAddress_v2(name, &mut found, 12000, 0, &mut status)), 0);
    assert!(!found.is_null());
    fake::<extern "C" fn()>(c"fake_only_echo")();
    since_last_asked();
    for function in [found, address("cuCtxGetApiVersion")] {
        let mut version = 0;
        // SAFETY: the function of this name has this signature.
        let function = unsafe { std::mem::transmute::<*mut c_void, signature::cuCtxGetApiVersion>(function) };
        // SAFETY: the fake driver looks at no arguments.
        unsafe { function(null_mut(), &mut version) };
        assert_eq!(since_last_asked(), 1);
    }
}
