//! What the executor asks of whoever owns the device's memory.

use std::sync::Arc;

use super::image::Image;
use super::runtime::DeviceRuntime;
use super::shadow::Shadow;
use super::texture::Texture;

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
/// The executor dereferences every address inside a [`Region`] that [`region`](Memory::region) returned. An
/// implementation promises that such addresses stay mapped (readable, and writable where the region says so) until
/// the launch that asked has returned, also if they are freed meanwhile.
pub unsafe trait Memory: Sync {
    /// The allocation that holds all `bytes` bytes from `address`, or `None`. Answers are cached for the launch.
    fn region(&self, address: u64, bytes: u64) -> Option<Region>;

    /// What stands at or nearest to `address`, for messages: "12 bytes after the 4096-byte allocation at 0x7f…".
    fn describe(&self, address: u64) -> String;

    /// `malloc` in device code: an address aligned to 16 bytes, or 0.
    fn malloc(&self, bytes: u64) -> u64;

    /// `free` in device code. An address that `malloc` did not return is an error, told in a sentence.
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

    /// Who does what device code asks of the device runtime.
    fn runtime(&self) -> Option<&dyn DeviceRuntime> {
        None
    }

    /// What device code printed.
    fn print(&self, text: &[u8]);

    /// Which bytes have been written of the allocation that holds `address`; `None` where nobody keeps track, or its
    /// owner may write it unseen.
    fn shadow(&self, _address: u64) -> Option<Arc<Shadow>> {
        None
    }
}
