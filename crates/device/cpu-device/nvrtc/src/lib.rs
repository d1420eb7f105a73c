//! `libapex_nvrtc.so`: makes NVRTC compile PTX if a program asks for machine code.
//!
//! The CPU device executes PTX. A program that has NVRTC compile for the device's own architecture
//! (`--gpu-architecture=sm_80`) gets a cubin, which nothing here can execute. `apex run --device
//! cpu` preloads this library, so that its functions stand before those of the NVRTC that a program
//! is linked against: the architecture becomes the virtual one of the same number, and the
//! functions that give the cubin give the PTX, which the driver loads like any image. Everything
//! else, errors included, is NVRTC's.
//!
//! NVRTC may lie in a scope that only the calling library sees ([`behind`]). The exported functions
//! are therefore jumps that add one argument, the return address, which names the caller.
//!
//! A program that opens NVRTC itself (`dlopen`) finds NVRTC's own functions; `docs/clients.md` says
//! what to set there.

mod behind;
mod options;

use behind::behind;
use options::Virtual;
use std::arch::naked_asm;
use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `nvrtcProgram`.
type Program = *mut c_void;
/// `nvrtcResult`.
type Outcome = c_int;

/// The result of each call if there is no NVRTC behind this library.
const NVRTC_ERROR_INTERNAL_ERROR: Outcome = 11;

/// Programs whose PTX stands for their cubin.
static AS_PTX: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

fn as_ptx() -> MutexGuard<'static, Option<HashSet<usize>>> {
    AS_PTX.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_as_ptx(program: Program) -> bool {
    as_ptx().as_ref().is_some_and(|programs| programs.contains(&(program as usize)))
}

/// Exports a function of NVRTC: a jump to `$to`, which gets the return address as one more
/// argument, in the register `$register`.
macro_rules! export {
    ($(#[$docs:meta])* $name:ident($($argument:ident: $type:ty),*), $register:literal => $to:ident) => {
        $(#[$docs])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> Outcome {
            naked_asm!(concat!("mov ", $register, ", [rsp]"), "jmp {to}", to = sym $to)
        }
    };
}

type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Outcome;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> Outcome;
type GetCode = unsafe extern "C" fn(Program, *mut c_char) -> Outcome;
type Destroy = unsafe extern "C" fn(*mut Program) -> Outcome;

export! {
    /// Compiles a program: for the virtual architecture where machine code is asked for.
    ///
    /// # Safety
    ///
    /// As NVRTC's reference says: `options` has `count` strings.
    nvrtcCompileProgram(program: Program, count: c_int, options: *const *const c_char), "rcx" => compile_program
}

unsafe extern "C" fn compile_program(
    program: Program,
    count: c_int,
    options: *const *const c_char,
    caller: *const c_void,
) -> Outcome {
    // SAFETY: the type is that of NVRTC's function.
    let Some(compile) = (unsafe { behind::<Compile>(c"nvrtcCompileProgram", caller) }) else {
        return NVRTC_ERROR_INTERNAL_ERROR;
    };
    let given = match usize::try_from(count) {
        Ok(count) if count > 0 && !options.is_null() => {
            // SAFETY: the program says that there are so many.
            unsafe { std::slice::from_raw_parts(options, count) }
        }
        _ => &[],
    };
    // SAFETY: the options are strings, or null, which is NVRTC's to refuse.
    let changed = unsafe { Virtual::of(given) };
    let mut programs = as_ptx();
    match &changed {
        Some(_) => programs.get_or_insert_default().insert(program as usize),
        None => programs.get_or_insert_default().remove(&(program as usize)),
    };
    drop(programs);
    match changed {
        // SAFETY: as many strings as before, which live until the call returns.
        Some(changed) => unsafe { compile(program, count, changed.pointers().as_ptr()) },
        // SAFETY: as promised by the caller.
        None => unsafe { compile(program, count, options) },
    }
}

/// Calls NVRTC's function for the PTX, or for the cubin, of a program.
macro_rules! code_of {
    ($program:ident, $type:ty, $place:ident, $caller:ident, $cubin:literal, $ptx:literal) => {{
        let name = if is_as_ptx($program) { $ptx } else { $cubin };
        // SAFETY: both functions have this type.
        match unsafe { behind::<$type>(name, $caller) } {
            // SAFETY: as promised by the caller; the PTX is as long as the function for its size
            // has said.
            Some(function) => unsafe { function($program, $place) },
            None => NVRTC_ERROR_INTERNAL_ERROR,
        }
    }};
}

export! {
    /// The size of a program's cubin, or of the PTX that stands for it.
    ///
    /// # Safety
    ///
    /// As NVRTC's reference says: `size` is valid for a write.
    nvrtcGetCUBINSize(program: Program, size: *mut usize), "rdx" => get_cubin_size
}

unsafe extern "C" fn get_cubin_size(program: Program, size: *mut usize, caller: *const c_void) -> Outcome {
    code_of!(program, GetSize, size, caller, c"nvrtcGetCUBINSize", c"nvrtcGetPTXSize")
}

export! {
    /// A program's cubin, or the PTX that stands for it.
    ///
    /// # Safety
    ///
    /// As NVRTC's reference says: `code` has room for as much as [`nvrtcGetCUBINSize`] has told.
    nvrtcGetCUBIN(program: Program, code: *mut c_char), "rdx" => get_cubin
}

unsafe extern "C" fn get_cubin(program: Program, code: *mut c_char, caller: *const c_void) -> Outcome {
    code_of!(program, GetCode, code, caller, c"nvrtcGetCUBIN", c"nvrtcGetPTX")
}

export! {
    /// Destroys a program.
    ///
    /// # Safety
    ///
    /// As NVRTC's reference says: `program` is null or points at a program.
    nvrtcDestroyProgram(program: *mut Program), "rsi" => destroy_program
}

unsafe extern "C" fn destroy_program(program: *mut Program, caller: *const c_void) -> Outcome {
    // SAFETY: null, or valid for a read.
    if let Some(program) = unsafe { program.as_ref() }
        && let Some(programs) = as_ptx().as_mut()
    {
        programs.remove(&(*program as usize));
    }
    // SAFETY: the type is that of NVRTC's function.
    match unsafe { behind::<Destroy>(c"nvrtcDestroyProgram", caller) } {
        // SAFETY: as promised by the caller.
        Some(destroy) => unsafe { destroy(program) },
        None => NVRTC_ERROR_INTERNAL_ERROR,
    }
}
