//! NVTX: this library is the injection that the program's copies of NVTX look for.
//!
//! NVTX is a header. Each library that includes it has a copy of its own, whose first call opens
//! the library that `NVTX_INJECTION64_PATH` names, calls [`InitializeInjectionNvtx2`] there, and
//! hands over a function that gives the tables of the copy's functions, by module and number. What
//! is written there is called from then on; all other functions do nothing. `apex run` sets the
//! variable, unless the user has.
//!
//! One table ([`callbacks`]) says which functions are taken. Each runs [`caught`], so no panic
//! crosses the ABI, and does what [`crate::ranges`] and [`record::ranges`](crate::record::ranges)
//! do. Marks, categories, colours, names of threads and payloads are not recorded, except the
//! communicator of NCCL's collectives ([`event::communicator`]).

mod event;

use crate::ranges::texts::{DOMAINS, STRINGS};
use crate::ranges::{self, Change};
use crate::record::ranges::changed;
use crate::switch::caught;
use apex_conventions::variables;
use apex_trace::layout::flags;
use event::{Event, Text};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Gives a table of the copy of NVTX that calls [`InitializeInjectionNvtx2`].
type GetExportTable = unsafe extern "C" fn(id: u32) -> *const c_void;

/// The table of this number gives the tables of functions.
const CALLBACKS: u32 = 1;

/// The export table [`CALLBACKS`].
#[repr(C)]
struct ExportTable {
    bytes: usize,
    /// Gives the functions of a module: an array of addresses of places that hold a function, and
    /// its length. 0 if there is no such module.
    functions:
        unsafe extern "C" fn(module: c_int, table: *mut *mut *mut *const (), count: *mut c_uint) -> c_int,
}

/// A domain, as the program names it.
type Handle = *mut c_void;
/// The handle of the default domain is null.
const DEFAULT: Handle = null_mut();

type Chars = *const c_char;
/// `wchar_t` has 32 bits here.
type Wide = *const u32;

/// The domain of NCCL's ranges.
const NCCL: &str = "NCCL";

/// The result for a range that is not noted: push and pop are not tracked.
const NOT_TRACKED: c_int = -2;

/// A function in place of NVTX's, by module and number.
struct Callback {
    module: c_int,
    id: usize,
    function: *const (),
}

macro_rules! callbacks {
    ($(
        $module:literal $id:literal => $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr;
    )*) => {
        $(
            /// # Safety
            /// The contract of the function of this name: what is pointed to is valid.
            unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                #[allow(unused_unsafe, reason = "some read what the program points to, others do not")]
                caught(|| {
                    // SAFETY: by contract.
                    unsafe { $body }
                })
                .unwrap_or_default()
            }
        )*

        fn callbacks() -> impl Iterator<Item = Callback> {
            [$(Callback { module: $module, id: $id, function: $name as *const () }),*].into_iter()
        }
    };
}

callbacks! {
    // Module 1, `NVTX_CB_MODULE_CORE`.
    1 4 => range_start_ex(event: *const Event) -> u64 = start(DEFAULT, Text::of(event));
    1 5 => range_start_a(name: Chars) -> u64 = start(DEFAULT, Text::Ascii(name));
    1 6 => range_start_w(name: Wide) -> u64 = start(DEFAULT, Text::Wide(name));
    1 7 => range_end(instance: u64) -> () = end(instance);
    1 8 => range_push_ex(event: *const Event) -> c_int = push(DEFAULT, Text::of(event));
    1 9 => range_push_a(name: Chars) -> c_int = push(DEFAULT, Text::Ascii(name));
    1 10 => range_push_w(name: Wide) -> c_int = push(DEFAULT, Text::Wide(name));
    1 11 => range_pop() -> c_int = pop(DEFAULT);
    // Module 5, `NVTX_CB_MODULE_CORE2`.
    5 2 => domain_range_start_ex(domain: Handle, event: *const Event) -> u64 = start(domain, Text::of(event));
    5 3 => domain_range_end(_domain: Handle, instance: u64) -> () = end(instance);
    5 4 => domain_range_push_ex(domain: Handle, event: *const Event) -> c_int = push_event(domain, event);
    5 5 => domain_range_pop(domain: Handle) -> c_int = pop(domain);
    5 10 => register_string_a(_domain: Handle, text: Chars) -> usize = Text::Ascii(text).add_to(&STRINGS);
    5 11 => register_string_w(_domain: Handle, text: Wide) -> usize = Text::Wide(text).add_to(&STRINGS);
    5 12 => domain_create_a(name: Chars) -> usize = Text::Ascii(name).add_to(&DOMAINS);
    5 13 => domain_create_w(name: Wide) -> usize = Text::Wide(name).add_to(&DOMAINS);
}

/// Initialises the injection for a copy of NVTX: returns 1 if its functions lead here from now on.
///
/// # Safety
/// `get_export_table` is that of a copy of NVTX that is being initialised.
#[allow(non_snake_case, reason = "NVTX looks for this name")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_export_table: Option<GetExportTable>) -> c_int {
    if variables::SESSION.path().is_none() || variables::DISABLE.is_on() {
        return 0;
    }
    let Some(get_export_table) = get_export_table else { return 0 };
    // SAFETY: by contract, and of this number it gives such a table or null.
    let Some(table) = (unsafe { get_export_table(CALLBACKS).cast::<ExportTable>().as_ref() }) else {
        return 0;
    };
    if table.bytes < size_of::<ExportTable>() {
        return 0;
    }
    for Callback { module, id, function } in callbacks() {
        let (mut places, mut count) = (null_mut(), 0);
        // SAFETY: by contract; a place below `count` is null or holds a function of that number,
        // and ours has its signature.
        unsafe {
            if (table.functions)(module, &mut places, &mut count) != 0
                && id < count as usize
                && !places.is_null()
            {
                let place = *places.add(id);
                if !place.is_null() {
                    *place = function;
                }
            }
        }
    }
    1
}

/// The handle of [`DOMAINS`] that a program's domain is; the default domain if it is none.
fn domain(handle: Handle) -> u32 {
    u32::try_from(handle as usize).ok().filter(|&handle| DOMAINS.get(handle).is_some()).unwrap_or(0)
}

/// # Safety
/// As for [`Text::with`].
unsafe fn push(handle: Handle, name: Text) -> c_int {
    // SAFETY: by contract.
    let Some(change) = (unsafe { name.with(|name| ranges::push(domain(handle), name)) }) else {
        return NOT_TRACKED;
    };
    tell(change, flags::RANGE_BEGUN, 0);
    change.level
}

/// As [`push`], of an event that may be NCCL's.
///
/// # Safety
/// As for [`Text::of`].
unsafe fn push_event(handle: Handle, event: *const Event) -> c_int {
    if DOMAINS.get(domain(handle)) != Some(NCCL) {
        // SAFETY: by contract.
        return unsafe { push(handle, Text::of(event)) };
    }
    // SAFETY: by contract.
    let (change, communicator) = unsafe {
        Text::of(event).with(|name| (ranges::push(domain(handle), name), event::communicator(event, name)))
    };
    let Some(change) = change else { return NOT_TRACKED };
    tell(change, flags::RANGE_BEGUN, communicator);
    change.level
}

fn pop(handle: Handle) -> c_int {
    let Some(change) = ranges::pop(domain(handle)) else { return NOT_TRACKED };
    tell(change, flags::RANGE_ENDED, 0);
    change.level
}

fn tell(change: Change, flags: u16, instance: u64) {
    if change.changed != 0 {
        changed(change, flags, instance);
    }
}

/// Bits of an instance that are its range.
const RANGE_BITS: u32 = 20;

const _: () = assert!(crate::limits::RANGES < 1 << RANGE_BITS);

/// A range of the process begins; the instance, by which any thread ends it, holds its range.
///
/// # Safety
/// As for [`Text::with`].
unsafe fn start(handle: Handle, name: Text) -> u64 {
    static STARTED: AtomicU64 = AtomicU64::new(1);
    let Some(table) = ranges::table() else { return 0 };
    // SAFETY: by contract.
    let range = unsafe { name.with(|name| table.range(0, domain(handle), name)) };
    let instance = STARTED.fetch_add(1, Relaxed) << RANGE_BITS | u64::from(range);
    process_range(instance, flags::RANGE_BEGUN);
    instance
}

fn end(instance: u64) {
    process_range(instance, flags::RANGE_ENDED);
}

fn process_range(instance: u64, flag: u16) {
    let changed_range = (instance & ((1 << RANGE_BITS) - 1)) as u32;
    let is_known = ranges::table().is_some_and(|table| table.node(changed_range).is_some());
    if is_known {
        let change = Change { range: ranges::current(), changed: changed_range, level: 0 };
        changed(change, flag | flags::PROCESS_WIDE, instance);
    }
}
