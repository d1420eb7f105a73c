//! The pointer to a thread's state: one word of thread-local storage.
//!
//! A `thread_local!` of a shared library is reached through a call into the dynamic linker. This
//! library is loaded with the program, so its word can lie in the part of thread-local storage
//! whose place is known at that moment (the "initial exec" model), and reaching it takes two
//! instructions. Stable Rust can't ask for that model, so the word is defined here. Should the
//! library be opened later instead, the eight bytes come out of the reserve that glibc keeps for
//! such libraries.

use super::block::Block;
use std::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.apex_current_thread, \"awT\", @nobits",
    ".p2align 3",
    ".globl apex_current_thread",
    ".hidden apex_current_thread",
    ".type apex_current_thread, @object",
    ".size apex_current_thread, 8",
    "apex_current_thread:",
    ".zero 8",
    ".popsection",
);

/// Returns the pointer that was last set in this thread; null at first.
#[inline(always)]
pub fn get() -> *const Block {
    let current: *const Block;
    // SAFETY: reads the calling thread's word, which the dynamic linker has placed.
    unsafe {
        asm!(
            "mov {current}, qword ptr [rip + apex_current_thread@GOTTPOFF]",
            "mov {current}, qword ptr fs:[{current}]",
            current = out(reg) current,
            options(nostack, preserves_flags, readonly),
        );
    }
    current
}

/// Sets the calling thread's word.
pub fn set(to: *const Block) {
    // SAFETY: writes the calling thread's word.
    unsafe {
        asm!(
            "mov {place}, qword ptr [rip + apex_current_thread@GOTTPOFF]",
            "mov qword ptr fs:[{place}], {to}",
            place = out(reg) _,
            to = in(reg) to,
            options(nostack, preserves_flags),
        );
    }
}
