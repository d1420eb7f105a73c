//! The linker: part of module management in the driver API's reference.

use super::module::JitLog;
use crate::context;
use crate::entry::{array, entries, opaque, refuse, text, write, write_if_wanted};
use crate::error::{Error, Result, ensure, fail};
use crate::handle::Table;
use crate::module;
use crate::module::link::Link;
use cuda_abi::types::*;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

entries! {
    /// Begins a link.
    fn cuLinkCreate_v2(
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        state: *mut CUlinkState,
    ) partly "only the compiler options for log buffers have an effect" {
        create(count, options, values, state)
    }

    /// Begins a link.
    fn cuLinkCreate(
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        state: *mut CUlinkState,
    ) partly "only the compiler options for log buffers have an effect" {
        create(count, options, values, state)
    }

    /// Adds an input in memory.
    fn cuLinkAddData_v2(
        state: CUlinkState,
        kind: CUjitInputType,
        data: *mut c_void,
        bytes: usize,
        name: *const c_char,
        _count: u32,
        _options: *mut CUjit_option,
        _values: *mut *mut c_void,
    ) partly "only PTX, and fatbins with PTX; libraries of machine code add nothing, and cubins are refused" {
        add_data(state, kind, array(data.cast::<u8>(), bytes)?, name)
    }

    /// Adds an input in memory.
    fn cuLinkAddData(
        state: CUlinkState,
        kind: CUjitInputType,
        data: *mut c_void,
        bytes: usize,
        name: *const c_char,
        _count: u32,
        _options: *mut CUjit_option,
        _values: *mut *mut c_void,
    ) partly "only PTX, and fatbins with PTX; libraries of machine code add nothing, and cubins are refused" {
        add_data(state, kind, array(data.cast::<u8>(), bytes)?, name)
    }

    /// Adds a file.
    fn cuLinkAddFile_v2(
        state: CUlinkState,
        kind: CUjitInputType,
        path: *const c_char,
        _count: u32,
        _options: *mut CUjit_option,
        _values: *mut *mut c_void,
    ) partly "only PTX, and fatbins with PTX; libraries of machine code add nothing, and cubins are refused" {
        add_file(state, kind, path)
    }

    /// Adds a file.
    fn cuLinkAddFile(
        state: CUlinkState,
        kind: CUjitInputType,
        path: *const c_char,
        _count: u32,
        _options: *mut CUjit_option,
        _values: *mut *mut c_void,
    ) partly "only PTX, and fatbins with PTX; libraries of machine code add nothing, and cubins are refused" {
        add_file(state, kind, path)
    }

    /// Links what has been added; the image is there until the link is ended.
    fn cuLinkComplete(state: CUlinkState, image: *mut *mut c_void, bytes: *mut usize) {
        let link = Link::resolve(state)?;
        ensure(!image.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        let linked = conclude(&link, Link::complete(&link))?;
        write(image, linked.as_ptr().cast_mut().cast())?;
        write_if_wanted(bytes, linked.as_bytes_with_nul().len());
        Ok(())
    }

    /// Ends a link, and its image with it.
    fn cuLinkDestroy(state: CUlinkState) {
        LOGS.remove(state as u64);
        Link::destroy(state)
    }
}

/// For each link that has not ended, the buffers of the program for the linker's messages.
static LOGS: Table<Log> = Table::new(crate::handle::Kind::Link);

struct Log(Mutex<JitLog>);

// SAFETY: the buffers are the program's, which promises that they last as long as the link; they
// are written under the lock.
unsafe impl Send for Log {}
// SAFETY: as for `Send`.
unsafe impl Sync for Log {}

/// # Safety
///
/// As for [`JitLog::of_options`]; `state` is null or valid for a write.
unsafe fn create(
    count: u32,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    state: *mut CUlinkState,
) -> Result {
    context::current()?;
    ensure(!state.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: as promised by the caller.
    let log = unsafe { JitLog::of_options(count, options, values)? };
    let link = Link::create()?;
    LOGS.insert(link.handle, Arc::new(Log(Mutex::new(log))));
    // SAFETY: as promised by the caller.
    unsafe { write(state, opaque(link.handle)) }
}

/// Whether an input can hold something to link: libraries, which hold machine code, are there for
/// what programs that are built with separate compilation may need of CUDA's own device code.
fn holds_code(kind: CUjitInputType) -> Result<bool> {
    match kind {
        CU_JIT_INPUT_CUBIN | CU_JIT_INPUT_PTX | CU_JIT_INPUT_FATBINARY | CU_JIT_INPUT_OBJECT => Ok(true),
        CU_JIT_INPUT_LIBRARY => Ok(false),
        CU_JIT_INPUT_NVVM => refuse(
            "NVVM IR as input of the linker (link-time optimisation); build without -dlto, so that the program has PTX",
        ),
        _ => fail(CUDA_ERROR_INVALID_VALUE),
    }
}

/// # Safety
///
/// `name` is null or a string.
unsafe fn add_data(state: CUlinkState, kind: CUjitInputType, data: &[u8], name: *const c_char) -> Result {
    let link = Link::resolve(state)?;
    ensure(!data.is_empty(), CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: as promised by the caller.
    let name = unsafe { text(name) }.map_or("input".into(), |name| name.to_string_lossy());
    if !holds_code(kind)? {
        return Ok(());
    }
    conclude(&link, link.add(&name, data))
}

/// # Safety
///
/// `path` is null or a string.
unsafe fn add_file(state: CUlinkState, kind: CUjitInputType, path: *const c_char) -> Result {
    let link = Link::resolve(state)?;
    // SAFETY: as promised by the caller.
    let path = unsafe { text(path)? };
    let is_code = holds_code(kind)?;
    let add = |data: Vec<u8>| if is_code { link.add(&path.to_string_lossy(), &data) } else { Ok(()) };
    conclude(&link, module::read_file(path).and_then(add))
}

/// Writes the log and returns what came of a step.
fn conclude<T>(link: &Link, outcome: std::result::Result<T, crate::module::LoadError>) -> Result<T> {
    let log = LOGS.get(link.handle).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))?;
    let mut log = log.0.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the program promised at the link's creation that its buffers last as long as the
    // link.
    unsafe { log.conclude(outcome) }
}
