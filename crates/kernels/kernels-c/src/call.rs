//! The form of a call and of its answer.
//!
//! A call is one piece of memory: a [`Header`], and behind it as many tensors, integers and numbers
//! as it says, all in steps of 8 bytes. Callers that have no structures of C's write it as easily
//! as C does, and quickly.

use std::any::Any;
use std::ffi::c_void;
use std::slice;

use crate::VERSION;

/// The beginning of a call. Behind it are `tensors` of [`Tensor`], `integers` of `i64` and
/// `numbers` of `f64`, in the order of the operation's table: inputs before outputs, sizes before
/// choices.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// The device's number among those that the process sees.
    pub device: i32,
    /// A `CUstream`, or a `cudaStream_t`, which is the same. Null is the legacy default stream.
    pub stream: *mut c_void,
    /// Memory that the operation may write to, aligned to 256 bytes. Null: the operation takes
    /// memory from the driver's pool, and gives it back, in the order of the stream.
    pub workspace: u64,
    /// Its size.
    pub workspace_bytes: u64,
    /// The number of tensors.
    pub tensors: u32,
    /// The number of integers.
    pub integers: u32,
    /// The number of numbers.
    pub numbers: u32,
    /// Zero.
    pub reserved: u32,
}

/// A call that has been read.
#[derive(Debug)]
pub struct Call<'c> {
    pub header: &'c Header,
    pub tensors: &'c [Tensor],
    pub integers: &'c [i64],
    pub numbers: &'c [f64],
}

/// A contiguous tensor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// Its first element's, on the device.
    pub address: u64,
    /// The number of elements.
    pub elements: u64,
    /// One of [`element`].
    pub element: u32,
    /// Zero.
    pub reserved: u32,
}

/// Types of elements.
pub mod element {
    /// 16 bits, 8 of them of the exponent.
    pub const BF16: u32 = 1;
    /// 16 bits, 5 of them of the exponent.
    pub const F16: u32 = 2;
    /// 32 bits.
    pub const F32: u32 = 3;
    /// 32 bits, whole numbers.
    pub const I32: u32 = 4;
}

/// The results of functions.
pub mod status {
    /// Done, in a form that has no number.
    pub const DONE: i32 = 0;
    /// An argument is wrong, or nothing is there that could compute it. Nothing was launched.
    pub const INVALID: i32 = -1;
    /// The device, or its driver, refused or failed.
    pub const DEVICE: i32 = -2;
    /// A defect of this library.
    pub const INTERNAL: i32 = -3;
}

impl<'c> Call<'c> {
    /// # Errors
    /// If it is not aligned, or the caller speaks another version; then nothing but that is read.
    ///
    /// # Safety
    /// At `header` is a header with what it says behind it, unchanged for as long as the call
    /// lives.
    pub(crate) unsafe fn read(header: *const Header) -> Result<Call<'c>, Failure> {
        if !header.is_aligned() {
            return Err(Failure::invalid("a call must begin at a multiple of 8 bytes"));
        }
        // SAFETY: the version is the first thing in any version.
        let version = unsafe { header.cast::<u32>().read() };
        if version != VERSION {
            return Err(Failure::invalid(format!(
                "the caller speaks version {version} of the interface, and this library version {VERSION}; install both from one release"
            )));
        }
        // SAFETY: the caller says so; everything is aligned to 8 bytes, and so is what follows it.
        unsafe {
            let counts = &*header;
            let tensors = header.add(1).cast::<Tensor>();
            let integers = tensors.add(counts.tensors as usize).cast::<i64>();
            let numbers = integers.add(counts.integers as usize).cast::<f64>();
            Ok(Call {
                header: counts,
                tensors: slice::from_raw_parts(tensors, counts.tensors as usize),
                integers: slice::from_raw_parts(integers, counts.integers as usize),
                numbers: slice::from_raw_parts(numbers, counts.numbers as usize),
            })
        }
    }
}

/// The reason why an operation was not done.
#[derive(Debug)]
pub struct Failure {
    /// One of [`status`].
    pub status: i32,
    pub message: String,
}

impl Failure {
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure { status: status::INVALID, message: message.into() }
    }

    pub fn of_panic(panic: &(dyn Any + Send)) -> Failure {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        let message = format!("a defect of apex_kernels, please report it: {text}");
        Failure { status: status::INTERNAL, message }
    }
}

impl From<apex_gpu::Error> for Failure {
    fn from(error: apex_gpu::Error) -> Failure {
        Failure { status: status::DEVICE, message: error.to_string() }
    }
}

impl From<apex_kernels::Error> for Failure {
    fn from(error: apex_kernels::Error) -> Failure {
        match error {
            apex_kernels::Error::Gpu(error) => error.into(),
            refused => Failure::invalid(refused.to_string()),
        }
    }
}
