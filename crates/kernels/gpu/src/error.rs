//! Errors that a user can act on: they name the call, the sizes, the device, and the remedy.

use std::fmt;

use cudarc::driver::{DriverError, sys};

/// The result of what may fail.
///
/// ```
/// use apex_gpu::{Device, Tensor};
///
/// fn norm(device: &Device, values: &[f32]) -> apex_gpu::Result<f32> {
///     let x = Tensor::new(device, values, &[values.len()])?;
///     x.mul(&x)?.sum(0)?.sqrt()?.item()
/// }
/// assert_eq!(norm(&Device::open(0)?, &[3.0, 4.0])?, 5.0);
/// # apex_gpu::Result::Ok(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate.
///
/// Messages are whole sentences, and `{:?}` prints them too: a `fn main() -> apex_gpu::Result<()>`
/// that fails ends with one. Match on the variants where a program can do something else: free
/// memory, choose smaller blocks, go on without a GPU.
///
/// ```
/// # let device = apex_gpu::Device::open(0)?;
/// use apex_gpu::{Buffer, Device, Error, Result};
///
/// /// As much room as there is, halving what is asked for until it fits.
/// fn room(device: &Device, mut bytes: usize) -> Result<Buffer<u8>> {
///     loop {
///         match device.zeros(bytes) {
///             Err(Error::OutOfMemory { .. }) if bytes > 1 => bytes /= 2,
///             done => return done,
///         }
///     }
/// }
/// assert!(!room(&device, 1 << 20)?.is_empty());
///
/// let error = device.zeros::<f32>(2)?.write(&[1.0]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "a copy needs as many elements on both sides: a slice from 1, a buffer for 2"
/// );
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no NVIDIA driver and no CPU device either, or the CPU device was refused.
    #[error("no CUDA device: {why}")]
    NoDevice {
        /// The reason, and advice.
        why: String,
    },
    /// There are fewer devices.
    #[error("there is no device {ordinal}: the driver lists {count} (CUDA_VISIBLE_DEVICES can hide devices)")]
    NoSuchDevice {
        /// The number that was asked for, from 0.
        ordinal: usize,
        /// Devices that there are.
        count: usize,
    },
    /// The driver does not know calls that this crate makes.
    #[error(
        "the driver is too old: it supports CUDA {}.{}, and {}.{} is needed; install a newer driver",
        found.0, found.1, needed.0, needed.1
    )]
    DriverTooOld {
        /// Major and minor version of CUDA that the driver supports.
        found: (u32, u32),
        /// The least that is needed.
        needed: (u32, u32),
    },
    /// The process uses another driver already: there can be one only.
    #[error("this process runs on {using} already; it cannot use {wanted} too")]
    DriverChosen {
        /// The driver in use.
        using: String,
        /// The requested driver.
        wanted: String,
    },
    /// A call into the driver failed.
    #[error("{call} failed on {device}: {code} ({text}){context}")]
    Driver {
        /// Name of the driver function.
        call: &'static str,
        /// The device.
        device: String,
        /// The driver's name of the error, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
        code: String,
        /// The driver's description of the code.
        text: String,
        /// The sizes and names of the call; may be empty.
        context: Context,
    },
    /// A kernel went wrong while it ran, or a copy did. The device cannot be used by this process
    /// any more, and every later call says the same.
    #[error("{call} on {device} reports what went wrong before: {code} ({text})\n{finding}")]
    Fault {
        /// Name of the driver function that told.
        call: &'static str,
        /// The device.
        device: String,
        /// The driver's name of the error, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
        code: String,
        /// The driver's description of the code.
        text: String,
        /// The kernel, and what the driver says of it. The CPU device names kernel, address, thread
        /// and line; of a GPU it is the kernel that was launched last.
        finding: String,
    },
    /// Memory of the device, or pinned memory of the host, ran out.
    #[error("{call} could not get {bytes} bytes on {device}, where {free} of {total} bytes are free")]
    OutOfMemory {
        /// Name of the driver function.
        call: &'static str,
        /// The device.
        device: String,
        /// Bytes that were asked for.
        bytes: usize,
        /// Bytes of the device's memory that are free.
        free: usize,
        /// Bytes of the device's memory.
        total: usize,
    },
    /// Source and destination of a copy differ in size.
    #[error(
        "a copy needs as many elements on both sides: {from} from {from_elements}, {to} for {to_elements}"
    )]
    SizeMismatch {
        /// The source of the copy.
        from: &'static str,
        /// Elements there.
        from_elements: usize,
        /// The destination of the copy.
        to: &'static str,
        /// Elements there.
        to_elements: usize,
    },
    /// Memory or a stream of one device met another device.
    #[error(
        "{what} is on {found}, but this needs one on {expected}; copy between devices with `Buffer::copy_from`"
    )]
    WrongDevice {
        /// The memory or stream on the wrong device.
        what: String,
        /// The device that it is on.
        found: String,
        /// The device that it should be on.
        expected: String,
    },
    /// A launch has too few or too many arguments.
    #[error("kernel `{kernel}` takes {expected} arguments, not {found}")]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// Parameters that it has.
        expected: usize,
        /// Arguments that were given.
        found: usize,
    },
    /// An argument of a launch has another size than the kernel's parameter.
    #[error(
        "argument {index} of kernel `{kernel}` is {given} and has {found} bytes, but the parameter has {expected}"
    )]
    ArgumentSize {
        /// The kernel.
        kernel: String,
        /// The argument, from 0.
        index: usize,
        /// Its type in Rust.
        given: &'static str,
        /// Bytes of the parameter.
        expected: usize,
        /// Bytes of the argument.
        found: usize,
    },
    /// An argument of a launch is a floating-point number where the kernel's parameter is an
    /// integer, or the like.
    #[error("argument {index} of kernel `{kernel}` is {given}, but the parameter is {expected}")]
    ArgumentType {
        /// The kernel.
        kernel: String,
        /// The argument, from 0.
        index: usize,
        /// Its type in Rust.
        given: &'static str,
        /// The parameter as the PTX declares it.
        expected: String,
    },
    /// A launch whose shape the device or the kernel does not allow.
    #[error("kernel `{kernel}` cannot be launched: {why}")]
    LaunchShape {
        /// The kernel.
        kernel: String,
        /// The limit that it breaks.
        why: String,
    },
    /// A module has no such kernel.
    #[error("the module has no kernel `{name}`; it has {known}")]
    NoSuchKernel {
        /// The name that was asked for.
        name: String,
        /// The kernels that there are, as a list to read.
        known: String,
    },
    /// A module has no such variable.
    #[error("the module has no variable `{name}`; it has {known}")]
    NoSuchGlobal {
        /// The name that was asked for.
        name: String,
        /// The variables that there are, as a list to read.
        known: String,
    },
    /// A variable of a module was asked for as a type that it does not hold.
    #[error(
        "the variable `{name}` of the module is {expected}, and {given} is no type for it; ask for a type \
         of the same kind whose size divides its own"
    )]
    GlobalType {
        /// The variable.
        name: String,
        /// The type that it has.
        expected: String,
        /// The type in Rust that was asked for.
        given: &'static str,
    },
    /// CUDA C++ does not compile.
    #[error("{name} does not compile for {architecture}:\n{log}")]
    Compile {
        /// Name of the source.
        name: String,
        /// The architecture, such as `sm_90`.
        architecture: String,
        /// The compiler's messages.
        log: String,
    },
    /// The driver refuses a module.
    #[error("the driver does not load the module on {device}: {code}\n{log}")]
    Load {
        /// The device.
        device: String,
        /// The driver's name of the error.
        code: String,
        /// The messages of the driver's compiler; may be empty.
        log: String,
    },
    /// There is no NVRTC, the library that compiles CUDA C++.
    #[error("libnvrtc was not found: {why}")]
    NoCompiler {
        /// The places that were searched, and advice.
        why: String,
    },
    /// Tensors whose shapes do not fit an operation.
    #[error("{operation}: {why}")]
    Shape {
        /// Name of the operation.
        operation: &'static str,
        /// The mismatch.
        why: String,
    },
    /// Something that no graph can hold was called while its stream was captured.
    #[error("{what} cannot be captured in a graph; {instead}")]
    NotInCapture {
        /// The method that was called.
        what: &'static str,
        /// The alternative.
        instead: &'static str,
    },
    /// A call into cuBLAS failed.
    #[error("{call} failed on {device}: {code}")]
    Blas {
        /// Name of the cuBLAS function.
        call: &'static str,
        /// The device.
        device: String,
        /// cuBLAS' name of the error.
        code: String,
    },
}

/// The message, for people: `fn main() -> apex_gpu::Result<()>` and `unwrap` print this form.
impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The subject of a failed call: empty, or text after a colon.
///
/// ```
/// assert_eq!(apex_gpu::Context::default().to_string(), ""); // nothing to add
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context(String);

impl Context {
    pub(crate) fn new(text: impl Into<String>) -> Context {
        Context(text.into())
    }
}

impl fmt::Display for Context {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => Ok(()),
            false => write!(out, ": {}", self.0),
        }
    }
}

/// The driver's name of an error.
pub(crate) fn name_of(error: DriverError) -> String {
    error.error_name().map_or_else(|_| format!("{:?}", error.0), |name| name.to_string_lossy().into_owned())
}

/// Builds [`Error::Driver`].
pub(crate) fn driver(call: &'static str, device: &str, error: DriverError, context: Context) -> Error {
    let text =
        error.error_string().map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned());
    Error::Driver { call, device: device.to_owned(), code: name_of(error), text, context }
}

/// Whether it is an error of work that was launched before: one that every later call tells too.
pub(crate) fn is_fault(error: DriverError) -> bool {
    use sys::CUresult::*;
    matches!(
        error.0,
        CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_LAUNCH_TIMEOUT
    )
}

/// Whether memory ran out.
pub(crate) fn is_out_of_memory(error: DriverError) -> bool {
    error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY
}
