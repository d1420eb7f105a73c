//! The entry points that are not bare jumps.
//!
//! A hook is a generic function over the index of the entry point that it stands for, so all forms of a call (`_v2`,
//! `_ptsz`, …) with the same signature share one body. [`table`] says which hook stands for which symbol; the compiler
//! holds each against the symbol's signature.
//!
//! # Contract of every hook
//! A hook is entered in place of the driver's function of that name, by a program that keeps to that function's contract.
//! Its arguments are therefore what the function demands: pointers it reads are valid for reading, out-parameters that are
//! not null are valid for writing, and hold what the driver wrote once the call has succeeded. A hook hands all arguments to
//! the real function unchanged, exactly once, and returns what that returned. What it reads beyond that it reads as the
//! driver itself would. It never panics across the ABI: whatever could panic runs under [`crate::recorder::guarded`].

mod launch;
mod process_address;

use cuda_abi::{COUNT, index, signature};

/// A hook's address.
#[derive(Clone, Copy)]
pub struct Hook {
    /// Can be called with the signature of the symbol in whose place of the [`table`] it is.
    pub address: *const (),
}

// SAFETY: the address of code.
unsafe impl Sync for Hook {}

/// The hooks, by index of their entry point.
pub fn table() -> &'static [Option<Hook>; COUNT] {
    static TABLE: [Option<Hook>; COUNT] = build();
    &TABLE
}

macro_rules! table {
    ($($symbol:ident => $module:ident::$hook:ident,)*) => {
        const fn build() -> [Option<Hook>; COUNT] {
            let mut table = [const { None }; COUNT];
            $({
                const HOOK: signature::$symbol = $module::$hook::<{ index::$symbol }>;
                assert!(table[index::$symbol].is_none(), "two hooks for one symbol");
                table[index::$symbol] = Some(Hook { address: HOOK as *const () });
            })*
            table
        }
    };
}

table! {
    cuLaunchKernel => launch::kernel,
    cuLaunchKernel_ptsz => launch::kernel,
    cuLaunchKernelEx => launch::kernel_ex,
    cuLaunchKernelEx_ptsz => launch::kernel_ex,
    cuLaunchCooperativeKernel => launch::cooperative,
    cuLaunchCooperativeKernel_ptsz => launch::cooperative,

    cuGetProcAddress => process_address::get,
    cuGetProcAddress_v2 => process_address::get_with_status,
}
