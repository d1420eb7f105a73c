//! The interface to the owner of the device's memory.

use std::sync::Arc;

use crate::image::Image;
use crate::image::sampling::Texture;
use crate::memory::shadow::Shadow;
use cuda_launch::LaunchConfig;

/// A kernel of a [`Program`](crate::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelId(pub(crate) u32);

/// A range of addresses that may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// First address after the range.
    pub end: u64,
    /// Whether it may be written.
    pub writable: bool,
}

/// The device's memory as kernels see it. A device address *is* the host address of the byte.
///
/// # Safety
///
/// The executor dereferences every address inside a [`Region`] that [`region`](Memory::region)
/// returned. An implementation promises that such addresses stay mapped (readable, and writable
/// where the region says so) until the launch that asked has returned, also if they are freed
/// meanwhile.
pub unsafe trait Memory: Sync {
    /// The allocation that holds all `bytes` bytes from `address`, or `None`. Answers are cached
    /// for the launch.
    fn region(&self, address: u64, bytes: u64) -> Option<Region>;

    /// Describes the allocation at or nearest to `address`, for messages: "12 bytes after the
    /// 4096-byte allocation at 0x7f…".
    fn describe(&self, address: u64) -> String;

    /// `malloc` in device code: an address aligned to 16 bytes, or 0.
    fn malloc(&self, bytes: u64) -> u64;

    /// `free` in device code. An address that `malloc` did not return is an error, described in a
    /// sentence.
    fn free(&self, address: u64) -> Result<(), String>;

    /// The texture object that a handle names.
    fn texture(&self, _handle: u64) -> Option<Arc<Texture>> {
        None
    }

    /// The image of the surface object that a handle names.
    fn surface(&self, _handle: u64) -> Option<Image> {
        None
    }

    /// Bytes that a launch may take of the host for its threads' own memory.
    fn room(&self) -> u64 {
        u64::MAX
    }

    /// Whether the process has memory for another thread.
    fn can_start_thread(&self) -> bool {
        true
    }

    /// Returns the device runtime, if there is one.
    fn runtime(&self) -> Option<&dyn DeviceRuntime> {
        None
    }

    /// Prints text from device code.
    fn print(&self, text: &[u8]);

    /// Whether the byte at `address` belongs to a constant variable. Kernels may write it through a
    /// generic address, as on GPUs, but what they read there afterwards is undefined.
    fn is_constant(&self, _address: u64) -> bool {
        false
    }

    /// Returns marks of the written bytes of the allocation that holds `address`; `None` if nobody
    /// tracks them, or the owner may write the allocation unseen.
    fn shadow(&self, _address: u64) -> Option<Arc<Shadow>> {
        None
    }
}

/// A launch that device code prepares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLaunch {
    /// The kernel, of the program that asks.
    pub kernel: KernelId,
    /// Its grid, block and dynamic shared memory; device code launches no clusters.
    pub config: LaunchConfig,
}

/// Something that device code puts into a stream, beside launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceWork {
    /// `cudaMemcpyAsync`.
    Copy {
        /// The destination's address.
        destination: u64,
        /// The source's address.
        source: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// `cudaMemsetAsync`.
    Fill {
        /// The destination's address.
        destination: u64,
        /// The byte to fill with.
        value: u8,
        /// The number of bytes.
        bytes: u64,
    },
}

/// `cudaSuccess`, and the errors that the device runtime returns by itself.
pub const SUCCESS: u32 = 0;

/// The services of the device's owner for the device runtime. Errors are `cudaError_t`s; `thread`
/// is a number that the threads of a grid differ by.
pub trait DeviceRuntime: Sync {
    /// A buffer for the arguments of a launch, or the error that the launch would be refused with.
    fn parameter_buffer(&self, launch: DeviceLaunch) -> Result<u64, u32>;

    /// Launches what the buffer was made for, with the arguments that are in it now.
    fn launch(&self, buffer: u64, stream: u64) -> u32;

    /// Does something else in stream order.
    fn submit(&self, work: DeviceWork, stream: u64) -> u32;

    /// A new stream or event.
    fn new_handle(&self) -> u64;

    /// Remembers the last error of a thread.
    fn set_error(&self, thread: u64, error: u32);

    /// The last error of a thread, which is forgotten if `take` says so.
    fn last_error(&self, thread: u64, take: bool) -> u32;

    /// The address of the name of an error, or of its description.
    fn error_text(&self, error: u32, description: bool) -> u64;

    /// An attribute of the device; `None` where there is no such attribute.
    fn device_attribute(&self, attribute: i32) -> Option<i32>;

    /// Sets the value that conditional nodes of a graph look at; an unknown handle is an error,
    /// described in a sentence.
    fn set_condition(&self, handle: u64, value: u32) -> Result<(), String>;
}
