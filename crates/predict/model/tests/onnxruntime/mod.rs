//! ONNX Runtime through its C interface, from the Python package that `scripts/test-deps.sh`
//! installs.
//!
//! The interface is a table of functions whose order never changes; the positions below are those
//! of `onnxruntime_c_api.h`. Sessions run on one thread, the calling one, with all optimisations,
//! on values that are bound once: nothing is copied or allocated for a prediction that the library
//! does not itself allocate.

#![allow(dead_code, reason = "tests and benchmarks each use some of this")]

use libloading::{Library, Symbol};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

/// The version of the interface that is asked for.
const API_VERSION: u32 = 22;

/// Positions in the table.
mod at {
    pub const GET_ERROR_MESSAGE: usize = 2;
    pub const CREATE_ENV: usize = 3;
    pub const CREATE_SESSION_FROM_ARRAY: usize = 8;
    pub const RUN: usize = 9;
    pub const CREATE_SESSION_OPTIONS: usize = 10;
    pub const SET_INTRA_OP_NUM_THREADS: usize = 24;
    pub const SET_INTER_OP_NUM_THREADS: usize = 25;
    pub const CREATE_TENSOR_WITH_DATA: usize = 49;
    pub const CREATE_CPU_MEMORY_INFO: usize = 69;
    pub const RELEASE_ENV: usize = 92;
    pub const RELEASE_STATUS: usize = 93;
    pub const RELEASE_MEMORY_INFO: usize = 94;
    pub const RELEASE_SESSION: usize = 95;
    pub const RELEASE_VALUE: usize = 96;
    pub const RELEASE_SESSION_OPTIONS: usize = 100;
}

/// A handle of the library.
type Handle = *mut c_void;
/// Null on success, else what went wrong.
type Status = *mut c_void;

#[repr(C)]
struct ApiBase {
    get_api: unsafe extern "C" fn(u32) -> *const *const c_void,
    get_version_string: unsafe extern "C" fn() -> *const c_char,
}

/// The library with an environment.
pub struct OnnxRuntime {
    table: *const *const c_void,
    /// Its version, in its own words.
    pub version: String,
    environment: Handle,
    memory: Handle,
    _library: Library,
}

/// Returns the path of the library, if it is installed.
fn find() -> Option<PathBuf> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/test-deps/onnxruntime/onnxruntime/capi");
    let mut files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    files.find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so"))
    })
}

impl OnnxRuntime {
    /// Loads the library; without it, `None`, and a line that says that `what` is skipped.
    pub fn load(what: &str) -> Option<OnnxRuntime> {
        let Some(path) = find() else {
            test_skip::missing_dependency(format!("{what} needs ONNX Runtime"));
            return None;
        };
        // SAFETY: the library's initialisers ask nothing of us, and the symbol is what its header
        // declares.
        unsafe {
            let library = Library::new(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let base: Symbol<unsafe extern "C" fn() -> *const ApiBase> =
                library.get(b"OrtGetApiBase\0").expect("ONNX Runtime has its one symbol");
            let base = base();
            let version = CStr::from_ptr(((*base).get_version_string)()).to_string_lossy().into_owned();
            let table = ((*base).get_api)(API_VERSION);
            assert!(!table.is_null(), "ONNX Runtime {version} has interface {API_VERSION}");
            let mut runtime = OnnxRuntime {
                table,
                version,
                environment: null_mut(),
                memory: null_mut(),
                _library: library,
            };
            let create: unsafe extern "C" fn(c_int, *const c_char, *mut Handle) -> Status =
                runtime.function(at::CREATE_ENV);
            let mut environment = null_mut();
            // Warnings are of no interest.
            const ERRORS: c_int = 3;
            runtime.check(create(ERRORS, c"model".as_ptr(), &raw mut environment));
            runtime.environment = environment;
            let create: unsafe extern "C" fn(c_int, c_int, *mut Handle) -> Status =
                runtime.function(at::CREATE_CPU_MEMORY_INFO);
            let mut memory = null_mut();
            runtime.check(create(0, 0, &raw mut memory));
            runtime.memory = memory;
            Some(runtime)
        }
    }

    /// A function of the table.
    ///
    /// # Safety
    /// `F` is its type.
    unsafe fn function<F: Copy>(&self, position: usize) -> F {
        assert_eq!(size_of::<F>(), size_of::<*const c_void>());
        // SAFETY: the table has the position (it is that of the version we asked for), which holds
        // a pointer to a function of the type `F`, by this function's contract.
        unsafe { self.table.add(position).cast::<F>().read() }
    }

    /// # Panics
    /// With the library's message when `status` is an error.
    fn check(&self, status: Status) {
        if !status.is_null() {
            // SAFETY: `status` is an error that has not been released.
            unsafe {
                let message: unsafe extern "C" fn(Status) -> *const c_char =
                    self.function(at::GET_ERROR_MESSAGE);
                let text = CStr::from_ptr(message(status)).to_string_lossy().into_owned();
                self.release(at::RELEASE_STATUS, status);
                panic!("ONNX Runtime: {text}");
            }
        }
    }

    /// # Safety
    /// `position` is that of the function that releases handles like `handle`, which is not used
    /// again.
    unsafe fn release(&self, position: usize, handle: Handle) {
        // SAFETY: this function's contract.
        unsafe {
            let release: unsafe extern "C" fn(Handle) = self.function(position);
            release(handle);
        }
    }

    /// A session for a file's bytes, for `rows` rows at a time.
    pub fn session(&self, onnx: &[u8], rows: usize, inputs: usize, outputs: usize) -> Session<'_> {
        // SAFETY: the functions have the types that the header gives them; all pointers are to live
        // values.
        unsafe {
            let create: unsafe extern "C" fn(*mut Handle) -> Status =
                self.function(at::CREATE_SESSION_OPTIONS);
            let mut options = null_mut();
            self.check(create(&raw mut options));
            for position in [at::SET_INTRA_OP_NUM_THREADS, at::SET_INTER_OP_NUM_THREADS] {
                let set: unsafe extern "C" fn(Handle, c_int) -> Status = self.function(position);
                self.check(set(options, 1));
            }
            let create: unsafe extern "C" fn(Handle, *const c_void, usize, Handle, *mut Handle) -> Status =
                self.function(at::CREATE_SESSION_FROM_ARRAY);
            let mut session = null_mut();
            let status =
                create(self.environment, onnx.as_ptr().cast(), onnx.len(), options, &raw mut session);
            self.release(at::RELEASE_SESSION_OPTIONS, options);
            self.check(status);
            let mut numbers = [vec![0.0f32; rows * inputs], vec![0.0f32; rows * outputs]];
            let values = [inputs, outputs].map(|width| [rows as i64, width as i64]);
            let values = [0, 1].map(|which| self.tensor(&mut numbers[which], values[which]));
            Session { runtime: self, session, numbers, values, run: self.function(at::RUN) }
        }
    }

    /// A tensor whose numbers stay where they are.
    fn tensor(&self, numbers: &mut [f32], shape: [i64; 2]) -> Handle {
        const FLOAT: c_int = 1;
        // SAFETY: the function has this type; the numbers outlive the tensor, both belonging to one
        // session.
        unsafe {
            let create: unsafe extern "C" fn(
                Handle,
                *mut c_void,
                usize,
                *const i64,
                usize,
                c_int,
                *mut Handle,
            ) -> Status = self.function(at::CREATE_TENSOR_WITH_DATA);
            let (mut value, bytes) = (null_mut(), size_of_val(numbers));
            let data = numbers.as_mut_ptr().cast();
            self.check(create(self.memory, data, bytes, shape.as_ptr(), 2, FLOAT, &raw mut value));
            value
        }
    }
}

impl Drop for OnnxRuntime {
    fn drop(&mut self) {
        // SAFETY: sessions borrow the runtime, so none is left.
        unsafe {
            self.release(at::RELEASE_MEMORY_INFO, self.memory);
            self.release(at::RELEASE_ENV, self.environment);
        }
    }
}

/// `Run` of the interface.
type Run = unsafe extern "C" fn(
    Handle,
    *const c_void,
    *const *const c_char,
    *const Handle,
    usize,
    *const *const c_char,
    usize,
    *mut Handle,
) -> Status;

/// A loaded network with its input and output.
pub struct Session<'r> {
    runtime: &'r OnnxRuntime,
    session: Handle,
    numbers: [Vec<f32>; 2],
    values: [Handle; 2],
    run: Run,
}

impl Session<'_> {
    /// Predicts; gives the outputs, row by row.
    pub fn run(&mut self, features: &[f32]) -> &[f32] {
        self.numbers[0].copy_from_slice(features);
        let (inputs, outputs) = ([c"features".as_ptr()], [c"outputs".as_ptr()]);
        let [input, mut output] = self.values;
        // SAFETY: the function has this type; names and values are alive, and nobody else uses the
        // session.
        let status = unsafe {
            (self.run)(
                self.session,
                null(),
                inputs.as_ptr(),
                &raw const input,
                1,
                outputs.as_ptr(),
                1,
                &raw mut output,
            )
        };
        self.runtime.check(status);
        &self.numbers[1]
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: neither the values nor the session are used again.
        unsafe {
            self.values.iter().for_each(|&value| self.runtime.release(at::RELEASE_VALUE, value));
            self.runtime.release(at::RELEASE_SESSION, self.session);
        }
    }
}
