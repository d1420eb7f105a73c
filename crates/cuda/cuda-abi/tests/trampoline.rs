//! The exported stubs: arguments of every sort arrive, lazily resolved the first time and directly
//! afterwards.
//!
//! This test program exports the whole table itself, and calls some of it by symbol, as a CUDA
//! program would.
#![allow(non_snake_case, reason = "the names are CUDA's")]

use cuda_abi::{COUNT, ENTRY_POINTS, export_entry_points, index, lazy_resolver};
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// All slots begin at the stub, as in the injected library.
static SLOTS: [AtomicPtr<()>; COUNT] =
    [const { AtomicPtr::new((resolver as unsafe extern "C" fn()) as *mut ()) }; COUNT];
static RESOLVED: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

export_entry_points!(SLOTS);
lazy_resolver!(resolver, note_stack);

/// The stack pointer at the last entry of the resolver.
static RESOLVER_STACK: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

#[unsafe(naked)]
extern "C" fn note_stack(index: usize) -> *const () {
    std::arch::naked_asm!(
        "mov [rip + {stack}], rsp",
        "jmp {resolve}",
        stack = sym RESOLVER_STACK,
        resolve = sym resolve,
    )
}

/// Clobbers what a resolver may clobber, so that arguments survive only if the stub saved them.
extern "C" fn resolve(index: usize) -> *const () {
    RESOLVED[index].fetch_add(1, Ordering::Relaxed);
    // SAFETY: every register named is one that a C function may change.
    unsafe {
        std::arch::asm!(
            "xor eax, eax",
            "xor ecx, ecx",
            "xor edx, edx",
            "xor esi, esi",
            "xor edi, edi",
            "xor r8d, r8d",
            "xor r9d, r9d",
            "xor r10d, r10d",
            "xor r11d, r11d",
            "pxor xmm0, xmm0",
            "pxor xmm1, xmm1",
            "pxor xmm2, xmm2",
            "pxor xmm3, xmm3",
            "pxor xmm4, xmm4",
            "pxor xmm5, xmm5",
            "pxor xmm6, xmm6",
            "pxor xmm7, xmm7",
            clobber_abi("C"),
        );
    }
    let target = match index {
        index::cuLaunchKernel => launch as *mut (),
        index::cuParamSetf => set_float as *mut (),
        _ => index_itself as *mut (),
    };
    // Every other entry point stays lazy, to be resolved at each call.
    if index != index::cuDriverGetVersion {
        SLOTS[index].store(target, Ordering::Release);
    }
    target
}

extern "C" fn index_itself() -> usize {
    7
}

extern "C" fn set_float(function: *mut c_void, offset: i32, value: f32) -> u32 {
    u32::from(function.addr() == 0x1234 && offset == -5 && value == 2.5)
}

/// Eleven arguments: five travel on the stack.
extern "C" fn launch(
    f: *mut c_void,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: *mut c_void,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> u32 {
    let values = [f.addr(), gx as usize, gy as usize, gz as usize, bx as usize, by as usize, bz as usize];
    let rest = [shared as usize, stream.addr(), params.addr(), extra.addr()];
    u32::from(values == [11, 12, 13, 14, 15, 16, 17] && rest == [18, 19, 20, 21])
}

/// An exported function under the type that a program calls it by.
///
/// # Safety
/// `F` is a function pointer of the type that its slot's content has.
unsafe fn typed<F: Copy>(symbol: unsafe extern "C" fn()) -> F {
    assert_eq!(size_of::<F>(), size_of_val(&symbol));
    // SAFETY: both are function pointers; the caller answers for the type.
    unsafe { std::mem::transmute_copy(&symbol) }
}

#[test]
fn arguments_in_registers_and_on_the_stack_arrive() {
    type Launch = extern "C" fn(usize, u32, u32, u32, u32, u32, u32, u32, usize, usize, usize) -> u32;
    // SAFETY: `launch` takes pointers where this says `usize`, which pass alike.
    let call: Launch = unsafe { typed(cuLaunchKernel) };
    for _ in 0..3 {
        assert_eq!(call(11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21), 1);
    }
    assert_eq!(RESOLVED[index::cuLaunchKernel].load(Ordering::Relaxed), 1, "resolved once, then direct");
}

#[test]
fn floats_arrive() {
    // SAFETY: `set_float` takes a pointer where this says `usize`, which pass alike.
    let call: extern "C" fn(usize, i32, f32) -> u32 = unsafe { typed(cuParamSetf) };
    assert_eq!((call(0x1234, -5, 2.5), call(0x1234, -5, 2.5)), (1, 1));
}

#[test]
fn the_resolver_gets_an_aligned_stack() {
    // SAFETY: `index_itself` has this type.
    let call: extern "C" fn() -> usize = unsafe { typed(cuDriverGetVersion) };
    call();
    // The return address lies 8 below a multiple of 16.
    assert_eq!(RESOLVER_STACK.load(Ordering::Relaxed).addr() % 16, 8);
}

#[test]
fn an_unstored_slot_resolves_again() {
    // SAFETY: `index_itself` has this type.
    let call: extern "C" fn() -> usize = unsafe { typed(cuDriverGetVersion) };
    assert_eq!((call(), call()), (7, 7));
    assert!(RESOLVED[index::cuDriverGetVersion].load(Ordering::Relaxed) >= 2);
}

/// `(index, function)` of every export.
macro_rules! list {
    ([ $(($index:literal, $symbol:ident),)* ]) => { [$(($index, $symbol as unsafe extern "C" fn())),*] };
}

/// Every other slot gets its index from the register that the stub reads.
#[test]
fn each_symbol_carries_its_index() {
    let called = [index::cuLaunchKernel, index::cuParamSetf, index::cuDriverGetVersion];
    let all: [(usize, unsafe extern "C" fn()); COUNT] = cuda_abi::for_each_entry_point!(list);
    for (at, symbol) in all.into_iter().filter(|(at, _)| !called.contains(at)) {
        // SAFETY: `resolve` gives `index_itself`, which has this type.
        let call: extern "C" fn() -> usize = unsafe { typed(symbol) };
        assert_eq!(call(), 7);
        assert_eq!(RESOLVED[at].load(Ordering::Relaxed), 1, "{}", ENTRY_POINTS[at].symbol);
    }
}
