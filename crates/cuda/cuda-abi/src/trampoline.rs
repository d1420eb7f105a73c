//! Exporting the whole table: naked jumps through an array of slots. The contract that other crates
//! argue from.
//!
//! A library that stands in for `libcuda.so.1` has one array,
//! `static SLOTS: [AtomicPtr<()>; COUNT]`, and two macro calls:
//! [`export_entry_points!`](crate::export_entry_points) defines each symbol of the table as a
//! function that jumps to the address in its slot, and [`lazy_resolver!`](crate::lazy_resolver)
//! defines what the slots hold at first.
//!
//! # Contract
//!
//! 1. *The exported function at index `i`* loads `i` into `r11d` and jumps to `SLOTS[i]`. It
//!    touches no other register, no flag and no memory, so the code in the slot is entered
//!    as if it had been called under the symbol's name: same arguments, same stack, same return
//!    address. `r11` is scratch between functions in the System V ABI, hence free.
//! 2. *A slot* holds, at all times, the address of code that can be entered with the symbol's own
//!    signature ([`signature`](crate::signature)), or of a resolver stub. It is never null. A slot
//!    may be stored to at any time by any thread; calls see the old or the new address, and both
//!    must do.
//! 3. *A resolver stub* saves every register that carries arguments (`rdi rsi rdx rcx r8 r9`, `rax`
//!    for its count of vector registers, `xmm0` to `xmm7`) and the index, calls its resolver with
//!    the index on an aligned stack, restores them and jumps, through `r10`, to the address that
//!    came back. Arguments on the stack are not touched. CUDA's entry points take no vectors wider
//!    than `xmm`, and C has no other use for `r10`.
//! 4. *A resolver* (`extern "C" fn(index: usize) -> *const ()`) gets an index below
//!    [`COUNT`](crate::COUNT), returns a non-null address as in 2 (of another resolver stub, too),
//!    does not unwind, and may run in several threads at once. Storing the address into the slot is
//!    its business; a resolver that does not is called again, which makes "first do something, then
//!    jump" a state of a slot.
//!
//! Only x86-64 has these stubs.

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "the exported stubs are written for x86-64; other architectures need their own in trampoline.rs"
);

/// Defines and exports every symbol of the table: `export_entry_points!(SLOTS)`, where `SLOTS` is
/// the path of a `static [AtomicPtr<()>; COUNT]`. See [`trampoline`](crate::trampoline) for what
/// the symbols do.
///
/// The functions are declared without parameters, for Rust code never calls them: it has the slots.
#[macro_export]
macro_rules! export_entry_points {
    ($slots:path) => {
        // The jumps scale by the size of a slot, and the table must be whole.
        const _: () = {
            const fn slots(_: &[::core::sync::atomic::AtomicPtr<()>; $crate::COUNT]) {}
            let _ = || slots(&$slots);
        };
        $crate::for_each_entry_point!($crate::export_listed_entry_points, $slots);
    };
}

/// Defines the addresses of the exported symbols, by their indices: `exported_addresses!(EXPORTED)`
/// makes `static EXPORTED: [unsafe extern "C" fn(); COUNT]`. It stands in the module of
/// [`export_entry_points!`].
///
/// A shared library has its own symbols there, whoever else exports the same names, if it is linked
/// with `-Bsymbolic`.
#[macro_export]
macro_rules! exported_addresses {
    ($name:ident) => {
        $crate::for_each_entry_point!($crate::listed_addresses, $name);
    };
}

/// The callback of [`exported_addresses!`]; not for other use.
#[doc(hidden)]
#[macro_export]
macro_rules! listed_addresses {
    ($name:ident [ $(($index:literal, $symbol:ident),)* ]) => {
        /// The exported symbols' own addresses, in the order of the table.
        pub static $name: [unsafe extern "C" fn(); $crate::COUNT] = [$($symbol),*];
    };
}

/// The callback of [`export_entry_points!`]; not for other use.
#[doc(hidden)]
#[macro_export]
macro_rules! export_listed_entry_points {
    ($slots:path [ $(($index:literal, $symbol:ident),)* ]) => {
        $(
            #[doc(hidden)]
            #[allow(non_snake_case, reason = "the names are CUDA's")]
            // SAFETY: the symbol is the driver's, and taking its place is what this library is for.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $symbol() {
                ::core::arch::naked_asm!(
                    "mov r11d, {index}",
                    "jmp qword ptr [rip + {slots} + 8 * {index}]",
                    index = const $index,
                    slots = sym $slots,
                )
            }
        )*
    };
}

/// Defines a resolver stub: `lazy_resolver!(stub, resolve)` makes `unsafe extern "C" fn stub()`,
/// which can be the first content of every slot, and calls
/// `extern "C" fn resolve(index: usize) -> *const ()`. See [`trampoline`](crate::trampoline) for
/// what both must do.
#[macro_export]
macro_rules! lazy_resolver {
    ($name:ident, $resolve:path) => {
        /// The first content of each slot: finds the address for the index in `r11d` and jumps to
        /// it.
        ///
        /// # Safety
        /// Entered only by the jump of an exported entry point.
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            const _: extern "C" fn(usize) -> *const () = $resolve;
            // At entry the stack is 8 bytes off a multiple of 16. Eight pushes and 136 bytes make
            // it even.
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                "push r11",
                "sub rsp, 136",
                ".cfi_adjust_cfa_offset 200",
                "movaps [rsp], xmm0",
                "movaps [rsp + 16], xmm1",
                "movaps [rsp + 32], xmm2",
                "movaps [rsp + 48], xmm3",
                "movaps [rsp + 64], xmm4",
                "movaps [rsp + 80], xmm5",
                "movaps [rsp + 96], xmm6",
                "movaps [rsp + 112], xmm7",
                "mov edi, r11d",
                "call {resolve}",
                "mov r10, rax",
                "movaps xmm0, [rsp]",
                "movaps xmm1, [rsp + 16]",
                "movaps xmm2, [rsp + 32]",
                "movaps xmm3, [rsp + 48]",
                "movaps xmm4, [rsp + 64]",
                "movaps xmm5, [rsp + 80]",
                "movaps xmm6, [rsp + 96]",
                "movaps xmm7, [rsp + 112]",
                "add rsp, 136",
                "pop r11",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -200",
                "jmp r10",
                ".cfi_endproc",
                resolve = sym $resolve,
            )
        }
    };
}
