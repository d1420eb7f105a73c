//! Entry points: the declaration of driver functions, and the table of those declared.
//!
//! [`entries!`] declares functions by the symbols they are exported under. From each declaration
//! come the function with the C signature (which the compiler compares with `cuda_abi::signature`),
//! its slot in [`SLOTS`](crate::slots::SLOTS) and its line in [`coverage`](mod@crate::coverage). A
//! symbol without a declaration returns `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! # The contract at the ABI
//!
//! A program that calls a driver function fulfils the requirements of the driver API's reference: a
//! pointer is null or valid for the function's accesses, and an array has the length of its count.
//! Bodies inside [`entries!`] rely on this and on nothing else: handles and device addresses are
//! looked up, never trusted, and pointers are checked for null. A panic becomes
//! `CUDA_ERROR_UNKNOWN`.

pub use crate::arguments::{array, opaque, read, text, write, write_if_wanted, write_text};
use crate::error::{Error, Result};
pub use crate::refusal::{refuse, supported};
use crate::thread;
use apex_conventions::variables::CPU_TRACE;
use cuda_abi::types::*;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// Declares driver functions and, as `ENTRIES`, the list of them:
///
/// ```ignore
/// entries! {
///     /// What it does.
///     fn cuStreamQuery(stream: CUstream) also cuStreamQuery_ptsz [default] {
///         Stream::resolve(stream, default)?.query()
///     }
///     /// What it does.
///     fn cuCtxSetFlags(flags: u32) partly "scheduling flags are stored and have no effect" { … }
/// }
/// ```
///
/// A doc comment has one line. A body is an expression of type [`Result`]. The symbol behind `also`
/// is the per-thread form: the same body with another value of
/// [`DefaultStream`](crate::stream::DefaultStream) under the name in brackets.
macro_rules! entries {
    ($(
        #[doc = $doc:literal]
        fn $symbol:ident $arguments:tt $(also $per_thread:ident [$default:ident])? $(partly $limit:literal)? $body:block
    )*) => {
        $(
            $crate::entry::entry! { $doc $symbol [$($default)? = Legacy] $arguments $body }
            $($crate::entry::entry! { $doc $per_thread [$default = PerThread] $arguments $body })?
        )*

        /// The functions that are declared in this module.
        pub(crate) const ENTRIES: &[$crate::entry::Entry] = &[
            $($crate::entry::Entry {
                function: (::cuda_abi::index::$symbol, $symbol as *const ()),
                per_thread: $crate::entry::optional!(
                    $((::cuda_abi::index::$per_thread, $per_thread as *const ()))?
                ),
                limit: $crate::entry::optional!($($limit)?),
            },)*
        ];
    };
}

/// One function of [`entries!`].
macro_rules! entry {
    (
        $doc:literal $symbol:ident [$($default:ident)? = $mode:ident]
        ($($argument:ident: $type:ty),* $(,)?) $body:block
    ) => {
        #[doc = $doc]
        ///
        /// # Safety
        ///
        /// The contract of [`crate::entry`].
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the symbol and its signature are CUDA's")]
        pub(crate) unsafe extern "C" fn $symbol($($argument: $type),*) -> ::cuda_abi::types::CUresult {
            $(let $default = $crate::stream::DefaultStream::$mode;)?
            $crate::entry::guarded(stringify!($symbol), move || {
                // SAFETY: the caller keeps the contract of `crate::entry`, and the body relies on
                // nothing else.
                #[allow(unused_unsafe, reason = "not every body dereferences something")]
                unsafe { $body }
            })
        }
        const _: ::cuda_abi::signature::$symbol = $symbol;
    };
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

pub(crate) use {entries, entry, optional};

/// A function that is implemented.
pub(crate) struct Entry {
    /// Its place in the ABI's table, and its address.
    pub function: (usize, *const ()),
    /// The same for its per-thread form, if there is one.
    pub per_thread: Option<(usize, *const ())>,
    /// A feature of the driver's function that is missing here, if there is one.
    pub limit: Option<&'static str>,
}

// SAFETY: the pointers are addresses of functions.
unsafe impl Sync for Entry {}

/// Runs the body of the entry point called `symbol`; see the contract above.
pub fn guarded(symbol: &'static str, body: impl FnOnce() -> Result) -> CUresult {
    let code = match thread::in_call(symbol, || catch_unwind(AssertUnwindSafe(body))) {
        Ok(Ok(())) => CUDA_SUCCESS,
        Ok(Err(Error(code))) => code,
        Err(_) => CUDA_ERROR_UNKNOWN,
    };
    if trace() == Trace::Calls {
        // A program may have closed its standard error; that must not become its problem.
        let _ = writeln!(std::io::stderr(), "apex: cpu device: {symbol} -> {:?}", Error(code));
    }
    code
}

/// The calls that `APEX_CPU_TRACE` prints to standard error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trace {
    /// Nothing: it is not set.
    Off,
    /// The name of each function that is called and not implemented, once.
    Refusals,
    /// Every call and what came of it: it is `calls`.
    Calls,
}

/// Whether functions that are called and not implemented are named.
pub fn names_refusals() -> bool {
    trace() == Trace::Refusals
}

fn trace() -> Trace {
    static TRACE: OnceLock<Trace> = OnceLock::new();
    *TRACE.get_or_init(|| match std::env::var_os(CPU_TRACE.name) {
        None => Trace::Off,
        Some(value) if value == "calls" => Trace::Calls,
        Some(_) => Trace::Refusals,
    })
}
