//! Memory of the device: typed buffers and parts of them.
//!
//! Buffers may be used on several streams. Each use waits for those before it that it must not
//! overtake, so results are those of the program's order; freeing waits for the last use. See
//! `memory` and `uses`.

mod view;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::sys;

use crate::device::{Core, Device};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::stream::Stream;

pub(crate) use view::{READ_LATER, copy_from_host};
pub use view::{View, ViewMut};

/// `len` elements of type `T` in a device's memory.
///
/// `T` is plain data ([`Pod`]): numbers, arrays of them, and structures that derive it. Memory is
/// freed when the buffer is dropped, after the last use.
///
/// ```
/// let device = apex_gpu::Device::open(0)?;
/// let mut buffer = device.zeros::<f32>(4)?;
/// buffer.write(&[1.0, 2.0, 3.0, 4.0])?;
/// let mut copy = device.zeros::<f32>(4)?;
/// copy.copy_from(&buffer)?;
/// assert_eq!(copy.slice(1..3).to_vec()?, [2.0, 3.0]);
/// println!("{copy:?}"); // Buffer<f32>(4 elements, 16 bytes, on NVIDIA H200 (device 0))
/// # apex_gpu::Result::Ok(())
/// ```
pub struct Buffer<T> {
    memory: Arc<Memory>,
    /// Address, which a launch passes by reference.
    address: sys::CUdeviceptr,
    len: usize,
    element: PhantomData<T>,
}

/// Number, type and place: never the elements themselves.
impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe::<T>(out, "Buffer", self.len, self.memory.device().name())
    }
}

/// `Buffer<f32>(1000 elements, 4000 bytes, on NVIDIA H200 (device 0))`.
pub(crate) fn describe<T>(out: &mut fmt::Formatter<'_>, what: &str, len: usize, place: &str) -> fmt::Result {
    let (name, bytes) = (std::any::type_name::<T>(), len * size_of::<T>());
    let plural = if len == 1 { "" } else { "s" };
    write!(out, "{what}<{name}>({len} element{plural}, {bytes} bytes, on {place})")
}

impl<T: Pod> Buffer<T> {
    /// Memory with whatever was in it.
    pub(crate) fn uninitialised(device: &Device, len: usize, stream: &Stream) -> Result<Buffer<T>> {
        let memory = Memory::allocate(device, len.checked_mul(size_of::<T>()), stream)?;
        Ok(Buffer { address: memory.address(), memory, len, element: PhantomData })
    }

    /// Memory of somebody else.
    ///
    /// # Safety
    /// As [`Device::borrow_buffer`].
    pub(crate) unsafe fn borrow(
        device: &Device,
        address: u64,
        len: usize,
        stream: &Stream,
    ) -> Result<Buffer<T>> {
        let memory = Memory::borrow(device, address, stream)?;
        Ok(Buffer { address, memory, len, element: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its size in bytes.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let buffer = device.zeros::<[f32; 3]>(5)?; // five points
    /// assert_eq!((buffer.len(), buffer.bytes()), (5, 60));
    /// assert!(!buffer.is_empty());
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The device whose memory it is.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let buffer = device.zeros::<u8>(1)?;
    /// let beside = buffer.device().zeros::<u8>(100)?; // on the same device
    /// assert_eq!(beside.device().ordinal(), device.ordinal());
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    /// Address in the device's memory, for calls that this crate does not offer. It is valid as
    /// long as the buffer; what is done with it is not ordered with other uses.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let buffer = device.zeros::<f64>(10)?;
    /// assert_eq!(buffer.slice(4..).address(), buffer.address() + 4 * 8); // in bytes
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The elements in `range`.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let buffer = device.upload(&[10, 11, 12, 13])?;
    /// assert_eq!(buffer.slice(1..3).to_vec()?, [11, 12]);
    /// assert_eq!(buffer.slice(2..).len(), 2);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Panics
    /// If the range ends behind the buffer or before it starts, as slices do.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> View<'_, T> {
        let (start, len) = within(range, self.len);
        View { buffer: self, address: self.address + (start * size_of::<T>()) as u64, len }
    }

    /// The elements in `range`, to write.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut buffer = device.zeros::<i32>(5)?;
    /// buffer.slice_mut(1..=2).write(&[7, 8])?;
    /// assert_eq!(buffer.to_vec()?, [0, 7, 8, 0, 0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Panics
    /// If the range ends behind the buffer or before it starts, as slices do.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> ViewMut<'_, T> {
        let (start, len) = within(range, self.len);
        ViewMut { address: self.address + (start * size_of::<T>()) as u64, buffer: self, len }
    }

    /// All elements, to read.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let buffer = device.upload(&[1.5f32, 2.5])?;
    /// let view = buffer.view();
    /// let again = view; // views are copied like references
    /// assert_eq!(view.to_vec()?, again.to_vec()?);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn view(&self) -> View<'_, T> {
        self.slice(..)
    }

    /// All elements, to write.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut buffer = device.zeros::<u16>(2)?;
    /// let other = device.upload(&[5u16, 6, 7])?;
    /// buffer.view_mut().copy_from(other.slice(1..))?;
    /// assert_eq!(buffer.to_vec()?, [6, 7]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.slice_mut(..)
    }

    /// The elements, copied to the host. Waits for the work before it.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let buffer = device.upload(&[1u8, 2, 3])?;
    /// assert_eq!(buffer.to_vec()?, vec![1, 2, 3]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of the work before it, such as that of a kernel.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.view().to_vec()
    }

    /// Sets all bytes to zero.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut counts = device.upload(&[3u64, 4])?;
    /// counts.clear()?;
    /// assert_eq!(counts.to_vec()?, [0, 0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The driver's error.
    pub fn clear(&mut self) -> Result<()> {
        let stream = self.device().stream().clone();
        self.clear_on(&stream)
    }

    /// As [`Buffer::clear`], in the order of `stream`.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let mut counts = device.upload(&[3u64, 4])?;
    /// counts.clear_on(&stream)?; // after the upload, though that was on another stream
    /// assert_eq!(counts.to_vec()?, [0, 0]); // and this after the clearing
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The driver's error; [`Error::WrongDevice`].
    pub fn clear_on(&mut self, stream: &Stream) -> Result<()> {
        self.view_mut().clear_on(stream)
    }

    /// Copies `values` to the device: as many as the buffer has elements. When this returns,
    /// `values` may be changed.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut buffer = device.zeros::<f32>(2)?;
    /// buffer.write(&[0.5, 1.5])?;
    /// assert_eq!(buffer.to_vec()?, [0.5, 1.5]);
    /// let error = buffer.write(&[1.0, 2.0, 3.0]).unwrap_err();
    /// assert!(matches!(error, apex_gpu::Error::SizeMismatch { from_elements: 3, to_elements: 2, .. }));
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`].
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        self.view_mut().write(values)
    }

    /// As [`Buffer::write`], in the order of `stream`.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let mut buffer = device.zeros_on::<f32>(2, &stream)?;
    /// buffer.write_on(&[0.5, 1.5], &stream)?;
    /// assert_eq!(buffer.to_vec()?, [0.5, 1.5]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`], [`Error::WrongDevice`].
    pub fn write_on(&mut self, values: &[T], stream: &Stream) -> Result<()> {
        self.view_mut().write_on(values, stream)
    }

    /// Copies another buffer of the same length, from this or another device.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let from = device.upload(&[1i64, -1])?;
    /// let mut to = device.zeros::<i64>(from.len())?;
    /// to.copy_from(&from)?;
    /// drop(from); // its memory is freed after the copy
    /// assert_eq!(to.to_vec()?, [1, -1]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`].
    pub fn copy_from(&mut self, from: &Buffer<T>) -> Result<()> {
        self.view_mut().copy_from(from.view())
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

/// Start and length of `range` in something of `len` elements.
fn within(range: impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    assert!(start <= end && end <= len, "elements {start}..{end} of a buffer of {len}");
    (start, end - start)
}

pub(crate) fn same_size(
    from: &'static str,
    from_elements: usize,
    to: &'static str,
    to_elements: usize,
) -> Result<()> {
    match from_elements == to_elements {
        true => Ok(()),
        false => Err(Error::SizeMismatch { from, from_elements, to, to_elements }),
    }
}

/// Checks that `stream` is one of `device`.
pub(crate) fn check_stream(device: &Core, stream: &Stream) -> Result<()> {
    if device.cuda.cu_ctx() == stream.device().cuda.cu_ctx() {
        return Ok(());
    }
    Err(Error::WrongDevice {
        what: "the stream".to_owned(),
        found: stream.device().name.clone(),
        expected: device.name.clone(),
    })
}
