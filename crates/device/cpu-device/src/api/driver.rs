//! Initialisation, versions, errors, and the lookup of the other functions.

use super::export_tables;
use crate::EXPORTED;
use crate::device;
use crate::entry::{entries, read, text, write, write_if_wanted};
use crate::error::{Error, Result, fail};
use crate::error_string::error_string;
use cuda_abi::types::*;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

entries! {
    /// Makes the device available. Nothing else works before.
    fn cuInit(flags: u32) {
        if flags != 0 {
            return fail(CUDA_ERROR_INVALID_VALUE);
        }
        device::init()
    }

    /// The version of the driver API.
    fn cuDriverGetVersion(version: *mut i32) {
        write(version, device::DRIVER_VERSION)
    }

    /// A code's name.
    fn cuGetErrorName(code: CUresult, name: *mut *const c_char) {
        static NAMES: OnceLock<Texts> = OnceLock::new();
        write_text_of(code, name, NAMES.get_or_init(|| texts(result_name)))
    }

    /// Returns the description of a result code.
    fn cuGetErrorString(code: CUresult, text: *mut *const c_char) {
        static STRINGS: OnceLock<Texts> = OnceLock::new();
        write_text_of(code, text, STRINGS.get_or_init(|| texts(error_string)))
    }

    /// The address of a function by its base name and the version asked for.
    fn cuGetProcAddress(name: *const c_char, address: *mut *mut c_void, version: i32, flags: u64) {
        let found = find(text(name)?, version, flags)?;
        write_if_wanted(address, found.unwrap_or(std::ptr::null_mut()));
        found.map(drop).map_err(|_| Error(CUDA_ERROR_NOT_FOUND))
    }

    /// The address of a function by its base name and the version asked for, and why there is none.
    fn cuGetProcAddress_v2(
        name: *const c_char,
        address: *mut *mut c_void,
        version: i32,
        flags: u64,
        status: *mut CUdriverProcAddressQueryResult,
    ) {
        let found = find(text(name)?, version, flags)?;
        // As in the driver, the call succeeds and the status has the result, also where the caller
        // does not ask for it.
        write_if_wanted(status, found.err().unwrap_or(CU_GET_PROC_ADDRESS_SUCCESS));
        write_if_wanted(address, found.unwrap_or(std::ptr::null_mut()));
        Ok(())
    }

    /// Tables of undocumented functions.
    fn cuGetExportTable(table: *mut *const c_void, id: *const CUuuid) partly "only the tables that libcudart uses" {
        let found = export_tables::find(&read(id)?);
        write(table, found.map_or(std::ptr::null(), <[_]>::as_ptr).cast())?;
        found.map(drop).ok_or(Error(CUDA_ERROR_NOT_FOUND))
    }

    /// Starts profiling: there is nothing to start.
    fn cuProfilerStart() {
        crate::context::current().map(drop)
    }

    /// Stops profiling: there is nothing to stop.
    fn cuProfilerStop() {
        crate::context::current().map(drop)
    }
}

/// The address under which this library exports the newest form of `name` that `version` knows: the
/// one that `dlsym` gives, as the driver answers, so that a tool in between can tell functions by
/// their addresses. A version that this driver does not have, and unknown flags, are errors of the
/// call; -1 is every version. The answers are those of an H200 (driver 580).
fn find(
    name: &CStr,
    version: i32,
    flags: u64,
) -> Result<std::result::Result<*mut c_void, CUdriverProcAddressQueryResult>> {
    let known = u64::from(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    let name = name.to_str().unwrap_or_default();
    let per_thread = flags & u64::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    if flags & !known != 0 || version > device::DRIVER_VERSION {
        return fail(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(match cuda_abi::resolve(name, version as u32, per_thread) {
        Some(index) => Ok(EXPORTED[index] as *mut c_void),
        None if cuda_abi::resolve(name, u32::MAX, per_thread).is_some() => {
            Err(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)
        }
        None => Err(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
    })
}

/// Text for each code, as programs in C want it.
type Texts = HashMap<CUresult, CString>;

fn texts(text_of: fn(CUresult) -> Option<&'static str>) -> Texts {
    // Codes are sparse and end at 999.
    let known = (0..=CUDA_ERROR_UNKNOWN).filter_map(|code| Some((code, CString::new(text_of(code)?).ok()?)));
    known.collect()
}

/// # Safety
///
/// `place` is null or valid for a write.
unsafe fn write_text_of(code: CUresult, place: *mut *const c_char, texts: &'static Texts) -> Result {
    let text = texts.get(&code);
    // SAFETY: as promised by the caller.
    unsafe { write(place, text.map_or(std::ptr::null(), |text| text.as_ptr()))? };
    text.map(drop).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}
