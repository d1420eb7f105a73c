//! Single-copy atomic accesses: up to 16 aligned bytes of memory that are loaded or stored as a
//! whole.
//!
//! Memory that several host threads access at the same time is loaded, stored and exchanged only by
//! these functions or by the standard library's atomics. Loads acquire, stores release.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Loads a vector with acquire semantics. Pieces of up to 16 bytes are loaded at once.
///
/// PTX promises this for the elements alone. GPUs do it for the whole vector, and programs rely on
/// it: the look-back of CUB's scans keeps a tile's state and its sum in one vector of 16 bytes.
///
/// # Safety
/// `bytes` is a power of two up to 32. `from` is valid for atomic reads of as many bytes and
/// aligned to them, or to 16; `to` is valid for writes of as many.
#[inline]
pub(crate) unsafe fn load_whole(from: *const u8, to: *mut u8, bytes: usize) {
    macro_rules! load {
        ($integer:ty, $atomic:ty) => {
            to.cast::<$integer>().write_unaligned((*from.cast::<$atomic>()).load(Ordering::Acquire))
        };
    }
    // SAFETY: the caller's promise; an atomic has the layout of its integer.
    unsafe {
        match bytes {
            1 => load!(u8, AtomicU8),
            2 => load!(u16, AtomicU16),
            4 => load!(u32, AtomicU32),
            8 => load!(u64, AtomicU64),
            _ => {
                for piece in (0..bytes).step_by(16) {
                    to.add(piece).cast::<u128>().write_unaligned(read128(from.add(piece).cast()));
                }
            }
        }
    }
}

/// Stores a vector with release semantics. Pieces of up to 16 bytes are stored at once, as
/// [`load_whole`] loads them.
///
/// # Safety
/// `bytes` is a power of two up to 32. `to` is valid for atomic reads and writes of as many bytes
/// and aligned to them, or to 16; `from` is valid for reads of as many.
#[inline]
pub(crate) unsafe fn store_whole(to: *mut u8, from: *const u8, bytes: usize) {
    macro_rules! store {
        ($integer:ty, $atomic:ty) => {
            (*to.cast::<$atomic>()).store(from.cast::<$integer>().read_unaligned(), Ordering::Release)
        };
    }
    // SAFETY: the caller's promise; an atomic has the layout of its integer.
    unsafe {
        match bytes {
            1 => store!(u8, AtomicU8),
            2 => store!(u16, AtomicU16),
            4 => store!(u32, AtomicU32),
            8 => store!(u64, AtomicU64),
            _ => {
                for piece in (0..bytes).step_by(16) {
                    write128(to.add(piece).cast(), from.add(piece).cast::<u128>().read_unaligned());
                }
            }
        }
    }
}

/// Replaces 128 aligned bits by what `f` makes of them, atomically; the old ones.
///
/// # Safety
/// `address` is valid for reads and writes, and aligned to 16 bytes.
pub(crate) unsafe fn update128(address: *mut u128, f: impl Fn(u128) -> u128) -> u128 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("cmpxchg16b") {
        // The first comparison is a guess that costs one round where it fails.
        let mut old = 0;
        loop {
            // SAFETY: the CPU has the instruction; the rest is the caller's promise.
            let now = unsafe { exchange_if_equal(address, old, f(old)) };
            if now == old {
                return old;
            }
            old = now;
        }
    }
    // One lock for all: atomic against every other 128-bit access, which is all that programs mix.
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _held = LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // SAFETY: the caller's promise.
    unsafe {
        let old = address.read();
        address.write(f(old));
        old
    }
}

/// Reads 128 aligned bits, atomically.
///
/// # Safety
/// `address` is valid for reads, and aligned to 16 bytes.
pub(crate) unsafe fn read128(address: *const u128) -> u128 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // Aligned loads of 16 bytes are atomic on CPUs with AVX: Intel's and AMD's manuals say so.
        // Exchanging would be, too, but needs memory that may be written. The compiler may split a
        // load that is not written out.
        let mut value = std::mem::MaybeUninit::<u128>::uninit();
        // SAFETY: the caller's promise; `value` is aligned to 16 bytes and is initialised by the
        // second instruction.
        return unsafe {
            std::arch::asm!(
                "movdqa {value}, [{from}]",
                "movdqa [{to}], {value}",
                from = in(reg) address,
                to = in(reg) value.as_mut_ptr(),
                value = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
            value.assume_init()
        };
    }
    // SAFETY: the caller's promise, which is more than a volatile read asks.
    unsafe { address.read_volatile() }
}

/// Writes 128 aligned bits, atomically.
///
/// # Safety
/// `address` is valid for reads and writes, and aligned to 16 bytes.
unsafe fn write128(address: *mut u128, value: u128) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the caller's promise; `value` is aligned to 16 bytes.
        return unsafe {
            std::arch::asm!(
                "movdqa {value}, [{from}]",
                "movdqa [{to}], {value}",
                from = in(reg) &raw const value,
                to = in(reg) address,
                value = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        };
    }
    // SAFETY: the caller's promise.
    unsafe { update128(address, |_| value) };
}

/// Puts `new` where `old` is, atomically; what was there.
///
/// Written out, because the standard library's function becomes a call into a library that is not
/// linked.
///
/// # Safety
/// The CPU has `cmpxchg16b`; `address` is valid for reads and writes, and aligned to 16 bytes.
#[cfg(target_arch = "x86_64")]
unsafe fn exchange_if_equal(address: *mut u128, old: u128, new: u128) -> u128 {
    let (mut low, mut high) = (old as u64, (old >> 64) as u64);
    // SAFETY: the caller's promise. The compiler keeps `rbx` for itself, so it is put back.
    unsafe {
        std::arch::asm!(
            "xchg rsi, rbx",
            "lock cmpxchg16b [rdi]",
            "mov rbx, rsi",
            in("rdi") address,
            inout("rsi") new as u64 => _,
            in("rcx") (new >> 64) as u64,
            inout("rax") low,
            inout("rdx") high,
            options(nostack),
        );
    }
    u128::from(low) | u128::from(high) << 64
}
