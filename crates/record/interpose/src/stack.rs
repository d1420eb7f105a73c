//! Stacks of the library, for work that is not on the launch path.
//!
//! Programs launch from threads with 16 KiB of stack, and the driver needs some of it. Work that
//! this library does when it sees something for the first time takes several KiB. It runs on a
//! stack from a small pool, so that the library uses at most [`ON_PROGRAMS_STACK`] bytes of the
//! program's stack. If no stack can be allocated, the work runs on the program's.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Most bytes that the hooks add to the program's stack, beside the driver's own need
/// (`tests/hardship.rs` measures it).
pub const ON_PROGRAMS_STACK: usize = 2048;

/// Bytes of a stack of the pool.
const BYTES: usize = 256 * 1024;
/// Bytes of the stack on which the driver is opened, whose constructors may need more than ours do.
/// (Not more: programs run under limits of their address space.)
const LARGE_BYTES: usize = 1 << 20;
/// Stacks that are kept.
const KEPT: usize = 16;
const PAGE_BYTES: usize = 4096;

/// Lowest addresses of the stacks that nobody uses.
static POOL: [AtomicPtr<c_void>; KEPT] = [const { AtomicPtr::new(null_mut()) }; KEPT];

struct Stack {
    base: *mut c_void,
    bytes: usize,
}

impl Stack {
    fn take() -> Option<Stack> {
        let kept = POOL.iter().map(|place| place.swap(null_mut(), Acquire)).find(|base| !base.is_null());
        match kept {
            Some(base) => Some(Stack { base, bytes: BYTES }),
            None => Stack::map(BYTES),
        }
    }

    fn map(bytes: usize) -> Option<Stack> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new mapping at an address of the kernel's choice; its lowest page is made
        // inaccessible.
        unsafe {
            let base = libc::mmap(null_mut(), bytes, protection, flags, -1, 0);
            if base == libc::MAP_FAILED {
                return None;
            }
            libc::mprotect(base, PAGE_BYTES, libc::PROT_NONE);
            Some(Stack { base, bytes })
        }
    }

    fn give_back(self) {
        let is_kept = self.bytes == BYTES
            && POOL
                .iter()
                .any(|place| place.compare_exchange(null_mut(), self.base, Release, Acquire).is_ok());
        if !is_kept {
            // SAFETY: a mapping of ours that nobody uses.
            unsafe { libc::munmap(self.base, self.bytes) };
        }
    }
}

/// Runs `work`, which must not unwind, on a stack of the pool.
pub fn on_own_stack<R>(work: impl FnOnce() -> R) -> R {
    run_on(Stack::take(), work)
}

/// Runs `work`, which must not unwind, on a stack that serves constructors of other libraries too.
pub fn on_large_stack<R>(work: impl FnOnce() -> R) -> R {
    run_on(Stack::map(LARGE_BYTES), work)
}

fn run_on<R, F: FnOnce() -> R>(stack: Option<Stack>, work: F) -> R {
    struct Call<F, R> {
        work: Option<F>,
        result: Option<R>,
    }
    extern "C" fn run<R, F: FnOnce() -> R>(call: *mut c_void) {
        // SAFETY: `run_on` passes its own `call`, which nobody else uses meanwhile.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        call.result = call.work.take().map(|work| work());
    }
    let mut call = Call { work: Some(work), result: None };
    let argument = (&raw mut call).cast();
    match stack {
        Some(stack) => {
            // SAFETY: one past the end of the mapping.
            let top = unsafe { stack.base.add(stack.bytes) };
            // SAFETY: the stack is nobody else's, its top is aligned; `run` does not unwind by this
            // function's contract.
            unsafe { switch(top, run::<R, F>, argument) };
            stack.give_back();
        }
        None => run::<R, F>(argument),
    }
    match call.result {
        Some(result) => result,
        None => unreachable!("the work was done"),
    }
}

/// Calls `run(argument)` with the stack pointer at `top`.
///
/// # Safety
/// `top` is the end of a stack that nobody uses, a multiple of 16. `run` does not unwind.
#[unsafe(naked)]
unsafe extern "C" fn switch(top: *mut c_void, run: extern "C" fn(*mut c_void), argument: *mut c_void) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_another_stack_and_its_result_comes_back() {
        let here = 0u8;
        let (there, sum) = on_own_stack(|| {
            let there = 0u8;
            let inner = on_own_stack(|| std::panic::catch_unwind(|| -> u32 { panic!("caught inside") }));
            assert!(inner.is_err());
            ((&raw const there) as usize, [1u64, 2, 3].iter().sum::<u64>())
        });
        assert!(there.abs_diff((&raw const here) as usize) > 64 * 1024);
        assert_eq!(sum, 6);
        assert_eq!(
            on_large_stack(|| [7u8; 1 << 19].iter().map(|&byte| u64::from(byte)).sum::<u64>()),
            7 << 19
        );
    }
}
