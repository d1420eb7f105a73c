//! The tables of undocumented functions that libcudart 12 and 13 ask for.
//!
//! NVIDIA documents none of this; it is what public drivers of other makers have found libcudart to
//! need. A table is a row of pointers; in most, the first is the table's size in bytes. A place
//! that is null here is never called by the versions tried.

use super::module::{JitLog, compile};
use crate::api::integrity::{self, Facts};
use crate::context::storage::Destructor;
use crate::context::{self, Context};
use crate::device;
use crate::entry::{guarded, opaque, write, write_if_wanted};
use crate::error::{Error, Result, ensure};
use crate::module::Module;
use cuda_abi::types::*;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::Arc;

/// The table with an identity.
pub fn find(id: &CUuuid) -> Option<&'static [TablePointer]> {
    let id = id.bytes.map(i8::cast_unsigned);
    TABLES.iter().find(|(known, _)| *known == id).map(|(_, table)| *table)
}

/// One pointer of a table.
#[repr(transparent)]
pub struct TablePointer(*const ());

// SAFETY: the pointers are addresses of functions, or numbers.
unsafe impl Sync for TablePointer {}

const NOTHING: TablePointer = TablePointer(std::ptr::null());

/// The first place of a table with `places` places.
const fn size_of_table(places: usize) -> TablePointer {
    TablePointer(std::ptr::without_provenance(places * size_of::<TablePointer>()))
}

macro_rules! function {
    ($function:ident) => {
        TablePointer($function as *const ())
    };
}

const TABLES: &[([u8; 16], &[TablePointer])] = &[
    (0x6bd5fb6c_5bf4e74a_8987d939_12fd9df9_u128.to_be_bytes(), &RUNTIME),
    (0x42d85a81_23f6cb47_8298f6e7_8a3aecdc_u128.to_be_bytes(), &TOOLS_STORAGE),
    (0xa094798c_2e742e74_93f20800_200c0a66_u128.to_be_bytes(), &TOOLS_HOOKS),
    (0xc693336e_1121df11_a8c368f3_55d89593_u128.to_be_bytes(), &CONTEXT_STORAGE),
    (0xd4082055_bde6704b_8d34ba12_3c66e1f2_u128.to_be_bytes(), &INTEGRITY),
    (0x21318c60_97143248_8ca641ff_7324c8f2_u128.to_be_bytes(), &RUNTIME_13_5),
    (0x263e8860_7cd26143_92f6bbd5_006dfa7e_u128.to_be_bytes(), &CONTEXT_CHECKS),
];

/// The functions by which libcudart handles modules and the primary context.
static RUNTIME: [TablePointer; 13] = [
    size_of_table(13),
    function!(load_wrapper),
    function!(primary_context),
    NOTHING,
    NOTHING,
    NOTHING,
    function!(load_wrapper_with_options),
    function!(notify),
    function!(load_fatbin_with_options),
    NOTHING,
    NOTHING,
    NOTHING,
    function!(load_compilers),
];

/// Storage of tools in each thread: no tool is attached.
static TOOLS_STORAGE: [TablePointer; 4] = [size_of_table(4), NOTHING, NOTHING, NOTHING];

/// Callbacks of tools.
static TOOLS_HOOKS: [TablePointer; 7] =
    [size_of_table(7), NOTHING, function!(first_hooks), NOTHING, NOTHING, NOTHING, function!(second_hooks)];

/// Values that libcudart keeps with a context.
static CONTEXT_STORAGE: [TablePointer; 4] =
    [function!(storage_put), function!(storage_delete), function!(storage_get), NOTHING];

/// libcudart 13.5 does not start without this table, and calls nothing in it. Its size says that
/// nothing is there.
static RUNTIME_13_5: [TablePointer; 1] = [size_of_table(1)];

static INTEGRITY: [TablePointer; 3] = [size_of_table(3), function!(check_integrity), NOTHING];

static CONTEXT_CHECKS: [TablePointer; 4] =
    [size_of_table(4), NOTHING, function!(check_context), function!(check_process)];

/// Loads the fatbin that a wrapper points at.
unsafe extern "C" fn load_wrapper(module: *mut CUmodule, wrapper: *const c_void) -> CUresult {
    // SAFETY: libcudart passes what a program embeds.
    guarded("load_wrapper", || unsafe { load(module, wrapper) })
}

/// The same, with options that are not used.
unsafe extern "C" fn load_wrapper_with_options(
    module: *mut CUmodule,
    wrapper: *const c_void,
    _options: *mut c_void,
    _values: *mut c_void,
    _count: u32,
) -> CUresult {
    // SAFETY: libcudart passes what a program embeds.
    guarded("load_wrapper_with_options", || unsafe { load(module, wrapper) })
}

/// Loads a fatbin.
unsafe extern "C" fn load_fatbin_with_options(
    fatbin: *const c_void,
    module: *mut CUmodule,
    _options: *mut c_void,
    _values: *mut c_void,
    _count: u32,
) -> CUresult {
    // SAFETY: libcudart passes what a program embeds.
    guarded("load_fatbin_with_options", || unsafe { load(module, fatbin) })
}

/// # Safety
///
/// `module` is null or valid for a write, `image` is a fatbin or the wrapper of one.
unsafe fn load(module: *mut CUmodule, image: *const c_void) -> Result {
    ensure(!module.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: as promised by the caller.
    unsafe {
        let program = compile(image, &mut JitLog::default())?;
        write(module, opaque(Module::load(program, &context::current()?)?.handle))
    }
}

/// The primary context's handle, without retaining it.
unsafe extern "C" fn primary_context(context: *mut CUcontext, device: CUdevice) -> CUresult {
    guarded("primary_context", || {
        device::at(device)?;
        // SAFETY: libcudart wants the handle there.
        unsafe { write(context, opaque(context::primary_handle())) }
    })
}

/// Tells the driver something: nothing that matters here.
extern "C" fn notify(_what: usize) {}

/// Loads the compilers for device code: they are part of this library.
extern "C" fn load_compilers() -> CUresult {
    CUDA_SUCCESS
}

/// Room that libcudart shares with tools. Nothing reads it as long as no tool is attached.
struct Hooks<const N: usize>(UnsafeCell<[*mut c_void; N]>);

// SAFETY: this library never looks inside; what others agree on there is their business.
unsafe impl<const N: usize> Sync for Hooks<N> {}

impl<const N: usize> Hooks<N> {
    const fn new() -> Hooks<N> {
        Hooks(UnsafeCell::new([std::ptr::null_mut(); N]))
    }

    /// # Safety
    ///
    /// Both pointers are null or valid for a write.
    unsafe fn tell(&self, start: *mut *mut c_void, bytes: *mut usize) {
        // SAFETY: as promised by the caller.
        unsafe {
            write_if_wanted(start, self.0.get().cast());
            write_if_wanted(bytes, N * size_of::<*mut c_void>());
        }
    }
}

unsafe extern "C" fn first_hooks(start: *mut *mut c_void, bytes: *mut usize) {
    static HOOKS: Hooks<1024> = Hooks::new();
    // SAFETY: libcudart passes a place for the address of the storage.
    unsafe { HOOKS.tell(start, bytes) };
}

unsafe extern "C" fn second_hooks(start: *mut *mut c_void, bytes: *mut usize) {
    static HOOKS: Hooks<14> = Hooks::new();
    // SAFETY: libcudart passes a place for the address of the storage.
    unsafe { HOOKS.tell(start, bytes) };
}

unsafe extern "C" fn storage_put(
    context: CUcontext,
    key: *mut c_void,
    value: *mut c_void,
    destructor: Destructor,
) -> CUresult {
    guarded("storage_put", || {
        given_or_current(context)?.storage.put(key as usize, value as usize, destructor);
        Ok(())
    })
}

unsafe extern "C" fn storage_delete(context: CUcontext, key: *mut c_void) -> CUresult {
    guarded("storage_delete", || {
        given_or_current(context)?.storage.delete(key as usize);
        Ok(())
    })
}

unsafe extern "C" fn storage_get(value: *mut *mut c_void, context: CUcontext, key: *mut c_void) -> CUresult {
    guarded("storage_get", || {
        let found =
            given_or_current(context)?.storage.get(key as usize).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))?;
        // SAFETY: libcudart wants the value there.
        unsafe { write(value, std::ptr::without_provenance_mut(found)) }
    })
}

fn given_or_current(context: CUcontext) -> Result<Arc<Context>> {
    if context.is_null() { context::current_even_if_faulty() } else { Context::resolve(context) }
}

unsafe extern "C" fn check_integrity(question: u32, seconds: u64, result: *mut [u64; 2]) -> CUresult {
    guarded("check_integrity", || {
        let facts = Facts {
            driver_version: device::DRIVER_VERSION.cast_unsigned(),
            question,
            process: std::process::id(),
            // SAFETY: `pthread_self` has no conditions.
            thread: unsafe { libc::pthread_self() } as u32,
            runtime_table: RUNTIME.as_ptr() as u64,
            check_table: INTEGRITY.as_ptr() as u64,
            check_function: check_integrity as *const () as u64,
            seconds,
            device: device::UUID,
        };
        // SAFETY: libcudart wants the answer there.
        unsafe { write(result, integrity::answer(&facts)) }
    })
}

/// Answers that a context is not of a special kind.
unsafe extern "C" fn check_context(
    _context: CUcontext,
    special: *mut u32,
    _details: *mut *const c_void,
) -> CUresult {
    // SAFETY: libcudart wants the answer there.
    guarded("check_context", || unsafe { write(special, 0) })
}

/// Answers that the process is not of a special kind.
extern "C" fn check_process() -> u32 {
    0
}
