//! Entry points that only tell what they were called with.

use cuda_abi::COUNT;
use cuda_abi::types::CUresult;
use std::arch::naked_asm;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The result of echoing entry points.
pub const ECHO: CUresult = 999;

/// Words of the stack, above the return address, that are kept.
const STACK_WORDS: usize = 24;

/// The arguments of an entry point, in the order in which [`stub`] writes them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Echo {
    /// The index of the entry point.
    pub index: u64,
    /// `rdi`, `rsi`, `rdx`, `rcx`, `r8`, `r9`.
    pub registers: [u64; 6],
    /// `xmm0` to `xmm7`, low halves.
    pub vectors: [u64; 8],
    /// The stack above the return address.
    pub stack: [u64; STACK_WORDS],
}

struct Kept(UnsafeCell<[Echo; COUNT]>);

// SAFETY: tests that look at it call from one thread; others don't care what is in it.
unsafe impl Sync for Kept {}

const NOTHING: Echo = Echo { index: 0, registers: [0; 6], vectors: [0; 8], stack: [0; STACK_WORDS] };

/// By index of the entry point.
static KEPT: Kept = Kept(UnsafeCell::new([NOTHING; COUNT]));

/// Echoing calls so far.
static ECHOES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of echoing calls.
#[unsafe(no_mangle)]
pub extern "C" fn fake_echoes() -> u64 {
    ECHOES.load(Ordering::Relaxed)
}

/// Copies the arguments of the last echoing call of the entry point at `index`.
///
/// # Safety
/// `to` is valid for writing, and no other thread makes echoing calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_echo(index: usize, to: *mut Echo) {
    // SAFETY: by contract.
    unsafe { *to = (*KEPT.0.get())[index] };
}

/// Makes all entry points echo.
#[unsafe(no_mangle)]
pub extern "C" fn fake_only_echo() {
    for slot in &crate::SLOTS {
        slot.store(stub as *mut (), Ordering::Relaxed);
    }
}

/// Entered from an exported symbol, with its index in `r11`.
#[unsafe(naked)]
pub unsafe extern "C" fn stub() {
    naked_asm!(
        "lock inc qword ptr [rip + {echoes}]",
        "imul r10, r11, {size}",
        "lea rax, [rip + {kept}]",
        "add rax, r10",
        "mov [rax], r11",
        "mov [rax + 8], rdi",
        "mov [rax + 16], rsi",
        "mov [rax + 24], rdx",
        "mov [rax + 32], rcx",
        "mov [rax + 40], r8",
        "mov [rax + 48], r9",
        "movsd [rax + 56], xmm0",
        "movsd [rax + 64], xmm1",
        "movsd [rax + 72], xmm2",
        "movsd [rax + 80], xmm3",
        "movsd [rax + 88], xmm4",
        "movsd [rax + 96], xmm5",
        "movsd [rax + 104], xmm6",
        "movsd [rax + 112], xmm7",
        "xor r10d, r10d",
        "2:",
        "mov r11, [rsp + 8 * r10 + 8]",
        "mov [rax + 8 * r10 + 120], r11",
        "inc r10",
        "cmp r10, {words}",
        "jb 2b",
        "mov eax, {echo}",
        "ret",
        size = const size_of::<Echo>(),
        echoes = sym ECHOES,
        kept = sym KEPT,
        words = const STACK_WORDS,
        echo = const ECHO,
    )
}
