//! What a caller passes, and what is answered.

use std::any::Any;
use std::ffi::c_void;

use crate::VERSION;

/// What an operation is called with.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    /// [`VERSION`].
    pub version: u32,
    /// The device's number among those that the process sees.
    pub device: i32,
    /// A `CUstream`, or a `cudaStream_t`, which is the same. Null is the legacy default stream.
    pub stream: *mut c_void,
    /// Inputs, then outputs, in the order of the operation's table.
    pub tensors: *const Tensor,
    /// How many there are.
    pub tensor_count: usize,
    /// Sizes and choices, in the order of the operation's table.
    pub integers: *const i64,
    /// How many there are.
    pub integer_count: usize,
    /// Numbers, in the order of the operation's table.
    pub numbers: *const f64,
    /// How many there are.
    pub number_count: usize,
    /// Memory that the operation may write to, aligned to 256 bytes. Null: the operation takes
    /// memory from the driver's pool, and gives it back, in the order of the stream.
    pub workspace: u64,
    /// Its size.
    pub workspace_bytes: u64,
}

/// A contiguous tensor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// Its first element's, on the device.
    pub address: u64,
    /// How many elements it has.
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
}

/// What functions return.
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

impl Call {
    pub(crate) fn check_version(&self) -> Result<(), Failure> {
        match self.version == VERSION {
            true => Ok(()),
            false => Err(Failure::invalid(format!(
                "the caller speaks version {} of the interface, and this library version {VERSION}; install both from one release",
                self.version
            ))),
        }
    }

    pub(crate) fn tensors(&self) -> &[Tensor] {
        // SAFETY: who calls the interface says that there are as many.
        unsafe { array(self.tensors, self.tensor_count) }
    }

    pub(crate) fn integers(&self) -> &[i64] {
        // SAFETY: as above.
        unsafe { array(self.integers, self.integer_count) }
    }

    pub(crate) fn numbers(&self) -> &[f64] {
        // SAFETY: as above.
        unsafe { array(self.numbers, self.number_count) }
    }
}

/// # Safety
/// At `start` are `count` elements, or `count` is zero.
unsafe fn array<'a, T>(start: *const T, count: usize) -> &'a [T] {
    match count {
        0 => &[],
        // SAFETY: the caller says so.
        _ => unsafe { std::slice::from_raw_parts(start, count) },
    }
}

/// Why an operation was not done.
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
