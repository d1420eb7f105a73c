//! The driver's functions, found at run time.
//!
//! The library is opened by the name under which every CUDA program asks for it, so a library
//! that is preloaded under that name answers. No CUDA library is linked.

use crate::error::{DriverError, Result};
use cuda_abi::signature;
use cuda_abi::types::*;
use std::ffi::{CStr, CString, c_void};
use std::path::Path;

/// The name under which every CUDA program asks for the driver.
pub const NAME: &CStr = c"libcuda.so.1";

/// A CUDA driver that is open for good.
#[derive(Clone, Copy, Debug)]
pub struct Library(*mut c_void);

// SAFETY: the handle of a library that is never closed; looking symbols up takes no turn.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens the CUDA driver with this name or path.
    ///
    /// # Errors
    /// [`DriverError::NoDriver`] with the loader's reason.
    pub fn open(name: &CStr) -> Result<Library> {
        // SAFETY: opening a CUDA driver runs its initialisers, which is what it is opened for.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            // SAFETY: `dlopen` has just failed, so there is a message, which ends in a zero byte.
            let message = unsafe { CStr::from_ptr(libc::dlerror()) };
            return Err(DriverError::NoDriver(message.to_string_lossy().into_owned()));
        }
        Ok(Library(library))
    }

    /// The address of a symbol; null if the driver does not export it.
    pub fn address(self, symbol: &CStr) -> *mut c_void {
        // SAFETY: the library is open, and the name ends in a zero byte.
        unsafe { libc::dlsym(self.0, symbol.as_ptr()) }
    }
}

/// Declares the table of functions by their exported symbols.
macro_rules! functions {
    ($($symbol:ident),* $(,)?) => {
        /// Functions of the driver, by the symbols they are exported under.
        #[allow(non_snake_case, missing_docs, reason = "the names are CUDA's, and so is their meaning")]
        pub struct Functions {
            $(pub $symbol: signature::$symbol,)*
        }

        impl Functions {
            /// Looks every function up in a driver.
            fn of(library: Library) -> Result<Functions> {
                Ok(Functions {
                    $($symbol: {
                        let name = concat!(stringify!($symbol), "\0");
                        let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("a symbol and a zero byte");
                        let address = library.address(name);
                        if address.is_null() {
                            return Err(DriverError::MissingFunction(stringify!($symbol)));
                        }
                        // SAFETY: in a CUDA driver, the symbol has this signature.
                        unsafe { std::mem::transmute::<*mut c_void, signature::$symbol>(address) }
                    },)*
                })
            }
        }
    };
}

functions! {
    cuInit,
    cuDeviceGet,
    cuDeviceGetName,
    cuDeviceGetAttribute,
    cuDevicePrimaryCtxRetain,
    cuDevicePrimaryCtxRelease_v2,
    cuCtxSetCurrent,
    cuCtxSynchronize,
    cuModuleLoadDataEx,
    cuModuleUnload,
    cuModuleGetFunction,
    cuMemAlloc_v2,
    cuMemFree_v2,
    cuMemHostAlloc,
    cuMemFreeHost,
    cuMemcpyHtoD_v2,
    cuMemcpyDtoH_v2,
    cuMemcpyHtoDAsync_v2,
    cuMemcpyDtoHAsync_v2,
    cuMemsetD8Async,
    cuMemcpy3D_v2,
    cuArray3DCreate_v2,
    cuArrayDestroy,
    cuMipmappedArrayCreate,
    cuMipmappedArrayGetLevel,
    cuMipmappedArrayDestroy,
    cuTexObjectCreate,
    cuTexObjectDestroy,
    cuSurfObjectCreate,
    cuSurfObjectDestroy,
    cuLaunchKernel,
    cuStreamCreate,
    cuStreamDestroy_v2,
    cuStreamSynchronize,
    cuStreamWaitEvent,
    cuStreamBeginCapture_v2,
    cuStreamEndCapture,
    cuEventCreate,
    cuEventDestroy_v2,
    cuEventRecord,
    cuEventSynchronize,
    cuEventElapsedTime,
    cuGraphDestroy,
    cuGraphInstantiateWithFlags,
    cuGraphExecDestroy,
    cuGraphLaunch,
}

/// Calls a function of a [`Functions`] table; an error names the call.
///
/// The calling code vouches for the arguments, inside an `unsafe` block.
macro_rules! call {
    ($functions:expr, $symbol:ident($($argument:expr),* $(,)?)) => {
        $crate::library::check(stringify!($symbol), ($functions.$symbol)($($argument),*))
    };
}
pub(crate) use call;

/// Turns a result code into a [`Result`].
pub(crate) fn check(call: &'static str, code: CUresult) -> Result {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(DriverError::Call { call, code }) }
}

/// Opens the system's CUDA driver and initialises it. Where there is none, or it finds no GPU, does
/// so with the library at `fallback`.
pub fn open(fallback: Option<&Path>) -> Result<Functions> {
    let Some(fallback) = fallback else { return open_library(NAME) };
    open_library(NAME).or_else(|missing| {
        let path = CString::new(fallback.as_os_str().as_encoded_bytes()).map_err(|_| missing)?;
        open_library(&path)
    })
}

/// Opens the CUDA driver with this name or path, and initialises it.
pub fn open_library(name: &CStr) -> Result<Functions> {
    let functions = Functions::of(Library::open(name)?)?;
    // SAFETY: no arguments but flags.
    unsafe { call!(functions, cuInit(0))? };
    Ok(functions)
}
