//! The functions by which a process ends at once or becomes another program: queued calls first.
//!
//! `exit` and `quick_exit` call handlers ([`crate::hooks`] registers ours). `_exit`, `_Exit` and
//! the `exec` family call none, so this library exports them: each has the launch queue make the
//! calls that wait ([`crate::actions::queue`]), and jumps to the next definition of the same name
//! with all arguments, those of variadic functions too.
//!
//! # Contract
//! 1. *Any code may call them*, a signal handler or a forked child too. The next definitions are
//!    therefore looked up when the library is loaded, and what happens before the jump is atomics
//!    and system calls. A child of `fork` or `vfork` has no queue and jumps at once.
//! 2. *They end in bounded time*: a queued call that the driver does not make within seconds is
//!    given up. The process file holds the number of calls that were not made.
//!
//! `posix_spawn` and `system` do not come here: glibc calls its own functions for them, in a child
//! that has no queue.

use crate::actions::Ending;
use crate::hooks::actions;
use crate::loader::genuine_dlsym;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

cuda_abi::lazy_resolver!(finish_then_jump, finish);

macro_rules! endings {
    ($(($index:literal, $name:ident, $text:literal),)*) => {
        /// Their names, by index.
        const NAMES: &[&CStr] = &[$($text),*];

        $(
            #[doc(hidden)]
            // SAFETY: the symbol is the C library's, and standing in front of it is what this
            // module is for.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                ::core::arch::naked_asm!(
                    "mov r11d, {index}",
                    "jmp {stub}",
                    index = const $index,
                    stub = sym finish_then_jump,
                )
            }
        )*
    };
}

endings! {
    (0, _exit, c"_exit"),
    (1, _Exit, c"_Exit"),
    (2, execl, c"execl"),
    (3, execle, c"execle"),
    (4, execlp, c"execlp"),
    (5, execv, c"execv"),
    (6, execve, c"execve"),
    (7, execvp, c"execvp"),
    (8, execvpe, c"execvpe"),
    (9, execveat, c"execveat"),
    (10, fexecve, c"fexecve"),
}

/// Indices below this one end the process.
const FIRST_EXEC: usize = 2;

/// The next definitions, by index; null until they have been looked up.
static NEXT: [AtomicPtr<c_void>; NAMES.len()] = [const { AtomicPtr::new(null_mut()) }; NAMES.len()];

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_UP: extern "C" fn() = look_up;

extern "C" fn look_up() {
    let look_up = genuine_dlsym();
    for (name, next) in NAMES.iter().zip(&NEXT) {
        // SAFETY: a C string; the caller, whose successors are asked, is this library.
        next.store(unsafe { look_up(libc::RTLD_NEXT, name.as_ptr()) }, Release);
    }
}

/// Has queued calls made, and gives the next definition of the function at `index`.
extern "C" fn finish(index: usize) -> *const () {
    actions::end(if index < FIRST_EXEC { Ending::Abrupt } else { Ending::Exec });
    if NEXT[index].load(Acquire).is_null() {
        // A library that was initialised before this one calls it.
        look_up();
    }
    match NEXT[index].load(Acquire) {
        next if !next.is_null() => next.cast_const().cast(),
        _ if index < FIRST_EXEC => end as *const (),
        _ => not_there as *const (),
    }
}

/// `_exit` without the C library's.
extern "C" fn end(status: i32) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// A function that the C library does not have.
extern "C" fn not_there() -> i32 {
    // SAFETY: the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}
