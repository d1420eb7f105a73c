//! Library management: device code that is not bound to a context.

use super::module::{JitLog, compile, load_file};
use crate::context;
use crate::device;
use crate::entry::{entries, opaque, text, write, write_if_wanted};
use crate::error::{Result, ensure, fail};
use crate::module::{Kernel, Library};
use cuda_abi::types::*;
use ptx_exec::Program;
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

entries! {
    /// Loads PTX, or a fatbin that holds some.
    fn cuLibraryLoadData(
        library: *mut CUlibrary,
        image: *const c_void,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        count: u32,
        _library_options: *mut CUlibraryOption,
        _library_values: *mut *mut c_void,
        _library_count: u32,
    ) partly "only the compiler options for log buffers have an effect" {
        ensure(!library.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        load(library, compile(image, &mut JitLog::of_options(count, options, values)?)?)
    }

    /// Loads a file: PTX, or a fatbin that holds some.
    fn cuLibraryLoadFromFile(
        library: *mut CUlibrary,
        path: *const c_char,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        count: u32,
        _library_options: *mut CUlibraryOption,
        _library_values: *mut *mut c_void,
        _library_count: u32,
    ) partly "only the compiler options for log buffers have an effect" {
        ensure(!library.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        load(library, load_file(path, &mut JitLog::of_options(count, options, values)?)?)
    }

    /// Ends a library.
    fn cuLibraryUnload(library: CUlibrary) {
        Library::unload(library)
    }

    /// A library's kernel by name.
    fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) {
        let library = Library::resolve(library)?;
        write(kernel, opaque(library.kernel(&text(name)?.to_string_lossy())?.handle))
    }

    /// Returns the number of a library's kernels.
    fn cuLibraryGetKernelCount(count: *mut u32, library: CUlibrary) {
        write(count, Library::resolve(library)?.kernels.len() as u32)
    }

    /// A library's kernels.
    fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: u32, library: CUlibrary) {
        ensure(!kernels.is_null(), CUDA_ERROR_INVALID_VALUE)?;
        for (index, kernel) in Library::resolve(library)?.kernels.iter().take(count as usize).enumerate() {
            write(kernels.add(index), opaque(kernel.handle))?;
        }
        Ok(())
    }

    /// The library as a module of the current context.
    fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) {
        write(module, opaque(Library::resolve(library)?.module(&context::current()?)?.handle))
    }

    /// The address and size of a library's variable in the current context.
    fn cuLibraryGetGlobal(
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) {
        let module = Library::resolve(library)?.module(&context::current()?)?;
        let (start, size) = module.global(&text(name)?.to_string_lossy())?;
        write_if_wanted(address, start);
        write_if_wanted(bytes, size as usize);
        Ok(())
    }

    /// The address and size of a library's managed variable: no context is needed.
    fn cuLibraryGetManaged(
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) {
        let (start, size) = Library::resolve(library)?.managed(&text(name)?.to_string_lossy())?;
        write_if_wanted(address, start);
        write_if_wanted(bytes, size as usize);
        Ok(())
    }

    /// A kernel as a function of the current context.
    fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) {
        write(function, opaque(Kernel::resolve(kernel)?.function(&context::current()?)?.handle))
    }

    /// The library that a kernel is part of.
    fn cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel) {
        write(library, opaque(Kernel::resolve(kernel)?.library()?.handle))
    }

    /// A kernel's name; it lives as long as the library.
    fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) {
        write(name, Kernel::resolve(kernel)?.name.as_ptr())
    }

    /// An attribute of a kernel.
    fn cuKernelGetAttribute(value: *mut i32, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice) {
        device::at(device)?;
        write(value, Kernel::resolve(kernel)?.attribute(attribute)?)
    }

    /// Sets an attribute of a kernel.
    fn cuKernelSetAttribute(attribute: CUfunction_attribute, value: i32, kernel: CUkernel, device: CUdevice) {
        device::at(device)?;
        Kernel::resolve(kernel)?.set_attribute(attribute, value)
    }

    /// Says how a kernel prefers to split cache and shared memory: no effect here.
    fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice) {
        device::at(device)?;
        ensure(config <= CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE)?;
        Kernel::resolve(kernel)?.settings.cache.store(config as i32, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the offset and size of one of a kernel's parameters, in bytes.
    fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize) {
        let kernel = Kernel::resolve(kernel)?;
        let Some(layout) = kernel.attributes.params.get(index) else { return fail(CUDA_ERROR_INVALID_VALUE) };
        write(offset, layout.offset)?;
        write_if_wanted(size, layout.size);
        Ok(())
    }

    /// Returns the number of a kernel's parameters.
    fn cuKernelGetParamCount(kernel: CUkernel, count: *mut usize) {
        write(count, Kernel::resolve(kernel)?.attributes.params.len())
    }
}

/// # Safety
///
/// `library` is valid for a write.
unsafe fn load(library: *mut CUlibrary, program: Arc<Program>) -> Result {
    // SAFETY: as promised by the caller.
    unsafe { write(library, opaque(Library::load(program)?.handle)) }
}
