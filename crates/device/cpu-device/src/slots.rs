//! The table of all entry points: this library's function for each, or code that refuses it by
//! name.

use crate::coverage;
use crate::entry;
use crate::error::fail;
use cuda_abi::types::*;
use cuda_abi::{COUNT, ENTRY_POINTS};
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::AtomicPtr;

/// The targets of the exported symbols' jumps: this library's functions, as `cuda_abi::trampoline`
/// asks.
pub static SLOTS: [AtomicPtr<()>; COUNT] = {
    let mut functions = [None; COUNT];
    let mut list = 0;
    while list < crate::api::ALL.len() {
        let mut at = 0;
        while at < crate::api::ALL[list].len() {
            let entry = &crate::api::ALL[list][at];
            place(&mut functions, entry.function);
            if let Some(per_thread) = entry.per_thread {
                place(&mut functions, per_thread);
            }
            at += 1;
        }
        list += 1;
    }
    let mut slots = [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT];
    let mut index = 0;
    while index < COUNT {
        slots[index] = AtomicPtr::new(match functions[index] {
            Some(function) => function,
            None => refusal(index),
        });
        index += 1;
    }
    slots
};

const fn place(functions: &mut [Option<*mut ()>; COUNT], (index, function): (usize, *const ())) {
    assert!(functions[index].is_none(), "an entry point is declared twice");
    functions[index] = Some(function.cast_mut());
}

// What stands in the slots of symbols that are declared nowhere: code for each, which knows its
// index. Programs get the addresses from `cuGetProcAddress` too, so the index that an exported
// symbol leaves in a register is of no use here.
core::arch::global_asm!(
    ".pushsection .text.apex_refusals, \"ax\", @progbits",
    ".p2align 4",
    ".hidden apex_refusals",
    ".globl apex_refusals",
    "apex_refusals:",
    ".set .Lapex_refusal, 0",
    ".rept {count}",
    ".p2align 4",
    "mov edi, .Lapex_refusal",
    "jmp {report}",
    ".set .Lapex_refusal, .Lapex_refusal + 1",
    ".endr",
    ".p2align 4",
    ".popsection",
    count = const COUNT,
    report = sym report_refusal,
);

/// Bytes from one refusal's code to the next.
const REFUSAL_BYTES: usize = 16;

unsafe extern "C" {
    safe static apex_refusals: [u8; COUNT * REFUSAL_BYTES];
}

/// The code that answers for the symbol at `index`.
const fn refusal(index: usize) -> *mut () {
    (&raw const apex_refusals).cast::<u8>().wrapping_add(index * REFUSAL_BYTES).cast_mut().cast()
}

/// Answers for an entry point that is not implemented, and names it once when `APEX_CPU_TRACE` is
/// set.
extern "C" fn report_refusal(index: u32) -> CUresult {
    static NAMED: Mutex<[bool; COUNT]> = Mutex::new([false; COUNT]);
    let symbol = ENTRY_POINTS[index as usize].symbol;
    entry::guarded(symbol, || {
        let named = NAMED.lock().is_ok_and(|mut named| std::mem::replace(&mut named[index as usize], true));
        if !named && (entry::names_refusals() || coverage::is_feature(symbol)) {
            let reason = coverage::refusal(symbol);
            let _ = writeln!(std::io::stderr(), "apex: cpu device: {symbol} is not supported ({reason})");
        }
        fail(CUDA_ERROR_NOT_SUPPORTED)
    })
}
