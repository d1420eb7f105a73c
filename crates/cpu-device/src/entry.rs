//! Entry points: the declaration of driver functions, and the table of those declared.
//!
//! [`entries!`] declares functions by the symbols they are exported under. From each declaration
//! come the function with the C signature (which the compiler compares with
//! `cuda_abi::signature`), its slot in [`SLOTS`] and its line in [`coverage`](mod@crate::coverage).
//! A symbol without a declaration returns `CUDA_ERROR_NOT_SUPPORTED`.
//!
//! # The contract at the ABI
//!
//! A program that calls a driver function fulfils the requirements of the driver API's reference: a
//! pointer is null or valid for the function's accesses, and an array has the length of its count.
//! Bodies inside [`entries!`] rely on this and on nothing else: handles and device addresses are
//! looked up, never trusted, and pointers are checked for null. A panic becomes
//! `CUDA_ERROR_UNKNOWN`.

use crate::context::thread;
use crate::error::{Error, Result, fail};
use apex_conventions::variables::CPU_TRACE;
use cuda_abi::types::*;
use cuda_abi::{COUNT, ENTRY_POINTS};
use std::ffi::{CStr, c_char};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicPtr;
use std::sync::{Mutex, OnceLock, PoisonError};

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

/// Targets of the exported symbols: this library's functions, as `cuda_abi::trampoline` requires.
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

fn trace() -> Trace {
    static TRACE: OnceLock<Trace> = OnceLock::new();
    *TRACE.get_or_init(|| match std::env::var_os(CPU_TRACE.name) {
        None => Trace::Off,
        Some(value) if value == "calls" => Trace::Calls,
        Some(_) => Trace::Refusals,
    })
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
    guarded(symbol, || {
        let named = NAMED.lock().is_ok_and(|mut named| std::mem::replace(&mut named[index as usize], true));
        if !named && (trace() == Trace::Refusals || crate::coverage::is_feature(symbol)) {
            let reason = crate::coverage::refusal(symbol);
            let _ = writeln!(std::io::stderr(), "apex: cpu device: {symbol} is not supported ({reason})");
        }
        fail(CUDA_ERROR_NOT_SUPPORTED)
    })
}

/// Refuses a feature by its name: what it is, and what to do instead. Each is reported once.
pub fn refuse<T>(feature: &'static str) -> Result<T> {
    static REPORTED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !reported.contains(&feature) {
        reported.push(feature);
        // A program may have closed its standard error; that must not become its problem.
        let _ = writeln!(std::io::stderr(), "apex: cpu device: not supported: {feature}");
    }
    drop(reported);
    fail(CUDA_ERROR_NOT_SUPPORTED)
}

/// [`refuse`] unless `supported` holds.
pub fn supported(supported: bool, feature: &'static str) -> Result<()> {
    if supported { Ok(()) } else { refuse(feature) }
}

/// Stores a result where the program asked for it.
///
/// # Safety
///
/// `place` is null, which is an error, or valid for a write.
pub unsafe fn write<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, hence valid for a write. Programs are not held to alignment by the real
    // driver either.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Stores a result where the program may have asked for it.
///
/// # Safety
///
/// `place` is null, which means that the result is not wanted, or valid for a write.
pub unsafe fn write_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, hence valid for a write.
        unsafe { place.write_unaligned(value) };
    }
}

/// Reads a structure that the program passed by pointer.
///
/// # Safety
///
/// `place` is null, which is an error, or valid for a read.
pub unsafe fn read<T: Copy>(place: *const T) -> Result<T> {
    if place.is_null() {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, hence valid for a read.
    Ok(unsafe { place.read_unaligned() })
}

/// Reads an array that the program passed with its length.
///
/// # Safety
///
/// `start` is valid for reads of `count` elements while the result lives, or is null, which is an
/// error unless `count` is 0.
pub unsafe fn array<'a, T>(start: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() || !start.is_aligned() {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: aligned and valid for `count` elements.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// Reads a string that the program passed.
///
/// # Safety
///
/// `start` is null, which is an error, or ends in a zero byte and stays as it is while the result
/// lives.
pub unsafe fn text<'a>(start: *const c_char) -> Result<&'a CStr> {
    if start.is_null() {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, hence a string.
    Ok(unsafe { CStr::from_ptr(start) })
}

/// A handle as the pointer that it is to the program.
pub fn opaque<T>(handle: u64) -> *mut T {
    std::ptr::without_provenance_mut(handle as usize)
}

/// Writes `value` into a buffer of `length` bytes, cut to fit and always ended by a zero byte.
///
/// # Safety
///
/// `buffer` is null, which is an error, or valid for writes of `length` bytes.
pub unsafe fn write_text(buffer: *mut c_char, length: i32, value: &str) -> Result {
    let room = usize::try_from(length).unwrap_or(0);
    if buffer.is_null() || room == 0 {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    let copied = value.len().min(room - 1);
    // SAFETY: `copied` bytes and the zero byte behind them fit in `length`.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(value.as_ptr(), copied);
        buffer.add(copied).write(0);
    }
    Ok(())
}
