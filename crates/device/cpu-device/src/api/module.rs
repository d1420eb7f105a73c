//! Module management: device code in the current context.

use crate::context;
use crate::entry::{array, entries, opaque, text, write, write_if_wanted};
use crate::error::{Result, ensure, fail};
use crate::module::{self, LoadError, Module};
use cuda_abi::types::*;
use ptx_exec::Program;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

entries! {
    /// Loads a file: PTX, or a fatbin that holds some.
    fn cuModuleLoad(module: *mut CUmodule, path: *const c_char) {
        ensure(!module.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        load(module, load_file(path, &mut JitLog::default())?)
    }

    /// Loads PTX, or a fatbin that holds some.
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) {
        ensure(!module.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        load(module, compile(image, &mut JitLog::default())?)
    }

    /// Loads PTX, or a fatbin that holds some, with options for the compiler.
    fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        count: u32,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) partly "only the compiler options for log buffers have an effect" {
        ensure(!module.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        load(module, compile(image, &mut JitLog::of_options(count, options, values)?)?)
    }

    /// Loads a fatbin.
    fn cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) {
        ensure(!module.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        load(module, compile(image, &mut JitLog::default())?)
    }

    /// Ends a module.
    fn cuModuleUnload(module: CUmodule) {
        Module::resolve(module)?.unload();
        Ok(())
    }

    /// Returns that code is loaded eagerly.
    fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) {
        crate::device::get()?;
        write(mode, CU_MODULE_EAGER_LOADING)
    }

    /// A module's function by name.
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) {
        let module = Module::resolve(module)?;
        let found = module.function(&text(name)?.to_string_lossy())?;
        write(function, opaque(found.handle))
    }

    /// Returns the number of a module's functions.
    fn cuModuleGetFunctionCount(count: *mut u32, module: CUmodule) {
        write(count, Module::resolve(module)?.functions.len() as u32)
    }

    /// A module's functions.
    fn cuModuleEnumerateFunctions(functions: *mut CUfunction, count: u32, module: CUmodule) {
        ensure(!functions.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        for (index, function) in Module::resolve(module)?.functions.iter().take(count as usize).enumerate() {
            write(functions.add(index), opaque(function.handle))?;
        }
        Ok(())
    }

    /// The address and size of a module's variable.
    fn cuModuleGetGlobal_v2(
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        module: CUmodule,
        name: *const c_char,
    ) {
        let (start, size) = Module::resolve(module)?.global(&text(name)?.to_string_lossy())?;
        write_if_wanted(address, start);
        write_if_wanted(bytes, size as usize);
        Ok(())
    }
}

/// # Safety
///
/// `module` is valid for a write.
unsafe fn load(module: *mut CUmodule, program: Arc<Program>) -> Result {
    let loaded = Module::load(program, &context::current()?)?;
    // SAFETY: as promised by the caller.
    unsafe { write(module, opaque(loaded.handle)) }
}

/// Compiles an image in memory; a failure goes to the log.
///
/// # Safety
///
/// `image` is null or what a program may hand to `cuModuleLoadData`.
pub(super) unsafe fn compile(image: *const c_void, log: &mut JitLog) -> Result<Arc<Program>> {
    crate::device::get()?;
    ensure(!image.is_null(), CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: as promised by the caller.
    unsafe { log.conclude(module::compile_at(image.cast())) }
}

/// Compiles a file; a failure goes to the log.
///
/// # Safety
///
/// `path` is null or a string.
pub(super) unsafe fn load_file(path: *const c_char, log: &mut JitLog) -> Result<Arc<Program>> {
    crate::device::get()?;
    // SAFETY: as promised by the caller.
    let path = unsafe { text(path)? };
    let compiled = module::read_file(path).and_then(|image| module::compile_bytes(&image));
    // SAFETY: the log's buffers are what the program gave.
    unsafe { log.conclude(compiled) }
}

/// The program's buffers for the compiler's messages. The size of each buffer is passed as an
/// option's value, and is replaced by the length of what was written.
#[derive(Default)]
pub(super) struct JitLog {
    info: LogBuffer,
    error: LogBuffer,
}

struct LogBuffer {
    text: *mut c_char,
    bytes: usize,
    /// The option's value that holds the size.
    size: *mut *mut c_void,
}

impl Default for LogBuffer {
    fn default() -> LogBuffer {
        LogBuffer { text: std::ptr::null_mut(), bytes: 0, size: std::ptr::null_mut() }
    }
}

impl JitLog {
    /// Finds the buffers among the compiler's options.
    ///
    /// # Safety
    ///
    /// Both arrays have `count` elements or are null, and the buffers are as long as the sizes
    /// beside them say.
    pub(super) unsafe fn of_options(
        count: u32,
        options: *const CUjit_option,
        values: *mut *mut c_void,
    ) -> Result<JitLog> {
        let mut log = JitLog::default();
        // SAFETY: as promised by the caller.
        let options = unsafe { array(options, count as usize)? };
        ensure(count == 0 || !values.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        for (index, option) in options.iter().enumerate() {
            // SAFETY: there is a value for each option.
            let (slot, value) = unsafe { (values.add(index), *values.add(index)) };
            match *option {
                CU_JIT_INFO_LOG_BUFFER => log.info.text = value.cast(),
                CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => {
                    (log.info.bytes, log.info.size) = (value as u32 as usize, slot)
                }
                CU_JIT_ERROR_LOG_BUFFER => log.error.text = value.cast(),
                CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    (log.error.bytes, log.error.size) = (value as u32 as usize, slot);
                }
                known if known < CU_JIT_NUM_OPTIONS => {}
                _ => return fail(CUDA_ERROR_INVALID_VALUE),
            }
        }
        Ok(log)
    }

    /// Writes the log of a compilation and returns what came of it. Without a buffer, an error goes
    /// to standard error.
    ///
    /// # Safety
    ///
    /// The buffers are still there.
    pub(super) unsafe fn conclude<T>(&mut self, outcome: std::result::Result<T, LoadError>) -> Result<T> {
        // SAFETY: as promised by the caller.
        unsafe { self.info.write("") };
        match outcome {
            Ok(program) => {
                // SAFETY: as promised by the caller.
                unsafe { self.error.write("") };
                Ok(program)
            }
            Err(LoadError { code, message }) => {
                if self.error.text.is_null() || code == CUDA_ERROR_NO_BINARY_FOR_GPU {
                    eprintln!("apex: cpu device: {message}");
                }
                // SAFETY: as promised by the caller.
                unsafe { self.error.write(&message) };
                fail(code)
            }
        }
    }
}

impl LogBuffer {
    /// # Safety
    ///
    /// The buffer has as many bytes as it says, and the size can be written.
    unsafe fn write(&mut self, message: &str) {
        if self.text.is_null() || self.bytes == 0 {
            return;
        }
        let room = i32::try_from(self.bytes).unwrap_or(i32::MAX);
        // SAFETY: as promised by the caller.
        unsafe {
            let _ = crate::entry::write_text(self.text, room, message);
            write_if_wanted(self.size, opaque(message.len().min(self.bytes - 1) as u64));
        }
    }
}
