//! Views of buffers: slices of their elements.
//!
//! A view borrows its buffer, so it never outlives the memory, and mutable views never overlap.

use std::fmt;

use bytemuck::Pod;
use cudarc::driver::{result, sys};

use super::{Buffer, check_stream, describe, same_size};
use crate::device::Device;
use crate::error::Result;
use crate::pinned::Pinned;
use crate::stream::Stream;
use crate::uses::Access;

/// The advice against reading while a stream is captured.
pub(crate) const READ_LATER: &str = "read when the graph has been launched";

/// Copies `bytes` to the device in the order of `stream`. When this returns, the bytes may be
/// changed.
///
/// # Safety
/// As many bytes at `address` belong to the device, and `stream` has waited for their last use.
pub(crate) unsafe fn copy_from_host(
    device: &Device,
    address: u64,
    bytes: &[u8],
    stream: &Stream,
) -> Result<()> {
    let copy = |bytes: &[u8]| {
        // SAFETY: as promised by the caller. From memory that is not pinned, the driver has copied
        // when it returns; of a capture, the recording keeps the bytes.
        let copied = unsafe { result::memcpy_htod_async(address, bytes, stream.raw()) };
        let size = bytes.len();
        copied.map_err(device.core().failed_at("cuMemcpyHtoDAsync", || format!("{size} bytes")))
    };
    match stream.is_captured() {
        false => copy(bytes),
        // Without a recording, the capture ended meanwhile.
        true => {
            let recorded = stream.recording(|recording| copy(recording.keeps_bytes(bytes)));
            recorded.unwrap_or_else(|| copy(bytes))
        }
    }
}

/// A part of a [`Buffer`], to read.
///
/// ```
/// # let device = apex_gpu::Device::open(0)?;
/// let buffer = device.upload(&[1, 2, 3, 4, 5, 6])?;
/// let (left, right) = (buffer.slice(..3), buffer.slice(3..));
/// assert_eq!((left.len(), left.is_empty()), (3, false));
/// assert_eq!(right.to_vec()?, [4, 5, 6]);
/// # apex_gpu::Result::Ok(())
/// ```
pub struct View<'b, T> {
    pub(super) buffer: &'b Buffer<T>,
    pub(super) address: sys::CUdeviceptr,
    pub(super) len: usize,
}

/// A part of a [`Buffer`], to write.
///
/// ```
/// # let device = apex_gpu::Device::open(0)?;
/// let mut buffer = device.upload(&[1, 2, 3, 4])?;
/// let mut middle = buffer.slice_mut(1..3);
/// assert_eq!((middle.len(), middle.is_empty()), (2, false));
/// middle.write(&[20, 30])?;
/// assert_eq!(buffer.to_vec()?, [1, 20, 30, 4]);
/// # apex_gpu::Result::Ok(())
/// ```
pub struct ViewMut<'b, T> {
    pub(super) buffer: &'b mut Buffer<T>,
    pub(super) address: sys::CUdeviceptr,
    pub(super) len: usize,
}

impl<T> fmt::Debug for View<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe::<T>(out, "View", self.len, self.buffer.memory.device().name())
    }
}

impl<T> fmt::Debug for ViewMut<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe::<T>(out, "ViewMut", self.len, self.buffer.memory.device().name())
    }
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

impl<'b, T: Pod> View<'b, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// See [`Buffer::to_vec`].
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let words = device.upload(&[0xAAu32, 0xBB, 0xCC])?;
    /// assert_eq!(words.slice(2..).to_vec()?, [0xCC]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of the work before it.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut values = Vec::with_capacity(self.len);
        let room = &mut values.spare_capacity_mut()[..self.len];
        self.copy_to_host(room.as_mut_ptr().cast(), self.buffer.device().stream())?;
        // SAFETY: the copy has written all elements, and any bytes are a valid `T`.
        unsafe { values.set_len(self.len) };
        Ok(values)
    }

    /// Copies the elements to `values`, as many as there are. Waits for the work before it.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let buffer = device.upload(&[1.0f32, 2.0, 3.0])?;
    /// let mut last = [0.0];
    /// buffer.slice(2..).read(&mut last)?; // no new vector
    /// assert_eq!(last, [3.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::SizeMismatch`], or an error of the work before it.
    pub fn read(&self, values: &mut [T]) -> Result<()> {
        self.read_on(values, self.buffer.device().stream())
    }

    /// As [`View::read`], in the order of `stream`.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let buffer = device.upload_on(&[1.0f32, 2.0], &stream)?;
    /// let mut values = [0.0; 2];
    /// buffer.view().read_on(&mut values, &stream)?; // other streams go on meanwhile
    /// assert_eq!(values, [1.0, 2.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`View::read`]; [`crate::Error::WrongDevice`].
    pub fn read_on(&self, values: &mut [T], stream: &Stream) -> Result<()> {
        same_size("a buffer", self.len, "a slice", values.len())?;
        self.copy_to_host(values.as_mut_ptr(), stream)
    }

    /// Copies all elements to `to`, which has room for them, and waits for that.
    fn copy_to_host(&self, to: *mut T, stream: &Stream) -> Result<()> {
        let device = self.buffer.device().core();
        stream.refuse_in_capture("reading back", READ_LATER)?;
        self.prepare(stream)?;
        if self.len == 0 {
            return Ok(());
        }
        let bytes = self.len * size_of::<T>();
        // SAFETY: the buffer has as many bytes at the address; the caller has room for them.
        let copied =
            unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), self.address, bytes, stream.raw()) }.result();
        copied.map_err(device.failed_at("cuMemcpyDtoHAsync", || format!("{bytes} bytes")))?;
        stream.synchronize()
    }

    /// Copies the elements to pinned memory and returns at once; [`Pinned::as_slice`] waits.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let buffer = device.upload(&[3u32, 1, 4])?;
    /// let mut host = device.pinned::<u32>(3)?;
    /// buffer.view().read_pinned(&mut host, device.stream())?;
    /// // … the host does something else …
    /// assert_eq!(host.as_slice()?, [3, 1, 4]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::SizeMismatch`], [`crate::Error::WrongDevice`].
    pub fn read_pinned(&self, to: &mut Pinned<T>, stream: &Stream) -> Result<()> {
        same_size("a buffer", self.len, "pinned memory", to.len)?;
        stream.refuse_in_capture("a copy to pinned memory", READ_LATER)?;
        self.prepare(stream)?;
        to.order(stream)?;
        let bytes = self.len * size_of::<T>();
        if bytes > 0 {
            // SAFETY: both have as many bytes; the pinned memory keeps an event and waits for it
            // before anybody looks.
            let copied =
                unsafe { sys::cuMemcpyDtoHAsync_v2(to.start.cast(), self.address, bytes, stream.raw()) }
                    .result();
            let device = self.buffer.device().core();
            copied.map_err(device.failed_at("cuMemcpyDtoHAsync", || format!("{bytes} bytes")))?;
        }
        to.used_by(stream)
    }

    /// Binds the context and lets `stream` wait for the last write.
    pub(crate) fn prepare(&self, stream: &Stream) -> Result<()> {
        let device = self.buffer.device().core();
        check_stream(device, stream)?;
        device.bind()?;
        self.buffer.memory.order(stream, Access::Read)
    }

    /// Address of its first element, see [`Buffer::address`].
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let buffer = device.zeros::<f32>(8)?;
    /// assert_eq!(buffer.view().address(), buffer.address());
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn parts(self) -> (&'b Buffer<T>, u64) {
        (self.buffer, self.address)
    }
}

impl<'b, T: Pod> ViewMut<'b, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// See [`Buffer::clear_on`].
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut buffer = device.upload(&[1u8, 2, 3])?;
    /// buffer.slice_mut(..2).clear_on(device.stream())?;
    /// assert_eq!(buffer.to_vec()?, [0, 0, 3]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The driver's error; [`crate::Error::WrongDevice`].
    pub fn clear_on(&mut self, stream: &Stream) -> Result<()> {
        self.prepare(stream)?;
        let bytes = self.len * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the buffer has as many bytes at the address.
        let cleared = unsafe { result::memset_d8_async(self.address, 0, bytes, stream.raw()) };
        cleared.map_err(self.buffer.device().core().failed_at("cuMemsetD8Async", || format!("{bytes} bytes")))
    }

    /// See [`Buffer::write`].
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut buffer = device.zeros::<i8>(4)?;
    /// buffer.slice_mut(3..).write(&[-1])?;
    /// assert_eq!(buffer.to_vec()?, [0, 0, 0, -1]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::SizeMismatch`].
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        let stream = self.buffer.device().stream().clone();
        self.write_on(values, &stream)
    }

    /// See [`Buffer::write_on`].
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let mut buffer = device.zeros::<i8>(4)?;
    /// buffer.slice_mut(..2).write_on(&[4, 5], &stream)?;
    /// assert_eq!(buffer.to_vec()?, [4, 5, 0, 0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::SizeMismatch`], [`crate::Error::WrongDevice`].
    pub fn write_on(&mut self, values: &[T], stream: &Stream) -> Result<()> {
        same_size("a slice", values.len(), "a buffer", self.len)?;
        self.prepare(stream)?;
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: both have as many bytes, and the buffer is ordered.
        unsafe { copy_from_host(self.buffer.device(), self.address, bytemuck::cast_slice(values), stream) }
    }

    /// Copies pinned memory to the device and returns at once. The pinned memory cannot be changed
    /// before the copy is done: [`Pinned::as_mut_slice`] waits.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut host = device.pinned::<f32>(2)?;
    /// host.as_mut_slice()?.copy_from_slice(&[1.0, 2.0]);
    /// let mut buffer = device.zeros::<f32>(6)?;
    /// buffer.slice_mut(4..).write_pinned(&mut host, device.stream())?;
    /// assert_eq!(buffer.to_vec()?, [0.0, 0.0, 0.0, 0.0, 1.0, 2.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::SizeMismatch`], [`crate::Error::WrongDevice`].
    pub fn write_pinned(&mut self, from: &mut Pinned<T>, stream: &Stream) -> Result<()> {
        same_size("pinned memory", from.len, "a buffer", self.len)?;
        stream.refuse_in_capture("a copy from pinned memory", "copy it before the graph is launched")?;
        self.prepare(stream)?;
        from.order(stream)?;
        let bytes = self.len * size_of::<T>();
        if bytes > 0 {
            // SAFETY: both have as many bytes; the pinned memory keeps an event and waits for it
            // before anybody writes.
            let copied =
                unsafe { sys::cuMemcpyHtoDAsync_v2(self.address, from.start.cast(), bytes, stream.raw()) }
                    .result();
            let device = self.buffer.device().core();
            copied.map_err(device.failed_at("cuMemcpyHtoDAsync", || format!("{bytes} bytes")))?;
        }
        from.used_by(stream)
    }

    /// See [`Buffer::copy_from`].
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let from = device.upload(&[1, 2, 3])?;
    /// let mut to = device.zeros::<i32>(4)?;
    /// to.slice_mut(2..).copy_from(from.slice(..2))?;
    /// assert_eq!(to.to_vec()?, [0, 0, 1, 2]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::SizeMismatch`].
    pub fn copy_from(&mut self, from: View<'_, T>) -> Result<()> {
        let stream = self.buffer.device().stream().clone();
        self.copy_from_on(from, &stream)
    }

    /// As [`ViewMut::copy_from`], in the order of `stream`, which is one of this buffer's device.
    /// The source may be of another device.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let from = device.upload(&[1.0f64, 2.0])?;
    /// let mut to = device.zeros::<f64>(2)?;
    /// to.view_mut().copy_from_on(from.view(), &stream)?;
    /// assert_eq!(to.to_vec()?, [1.0, 2.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::SizeMismatch`], [`crate::Error::WrongDevice`].
    pub fn copy_from_on(&mut self, from: View<'_, T>, stream: &Stream) -> Result<()> {
        same_size("a buffer", from.len, "a buffer", self.len)?;
        self.prepare(stream)?;
        from.buffer.memory.order(stream, Access::Read)?;
        let bytes = self.len * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        let (device, source) = (self.buffer.device().core(), from.buffer.device().core());
        let (to_context, from_context) = (device.cuda.cu_ctx(), source.cuda.cu_ctx());
        // SAFETY: both have as many bytes at their addresses, in those contexts.
        let copied = unsafe {
            match to_context == from_context {
                true => result::memcpy_dtod_async(self.address, from.address, bytes, stream.raw()),
                false => result::memcpy_peer_async(
                    to_context,
                    self.address,
                    from_context,
                    from.address,
                    bytes,
                    stream.raw(),
                ),
            }
        };
        copied.map_err(device.failed_at("cuMemcpyAsync", || format!("{bytes} bytes from {}", source.name)))
    }

    /// Binds the context and lets `stream` wait for all uses so far.
    pub(crate) fn prepare(&mut self, stream: &Stream) -> Result<()> {
        let device = self.buffer.device().core();
        check_stream(device, stream)?;
        device.bind()?;
        self.buffer.memory.order(stream, Access::Write)
    }

    pub(crate) fn into_parts(self) -> (&'b Buffer<T>, u64) {
        (self.buffer, self.address)
    }

    /// The buffer, and the address of the first element.
    pub(crate) fn place(&self) -> (&Buffer<T>, u64) {
        (self.buffer, self.address)
    }
}

impl<'b, T: Pod> From<&'b Buffer<T>> for View<'b, T> {
    fn from(buffer: &'b Buffer<T>) -> View<'b, T> {
        buffer.view()
    }
}

impl<'b, T: Pod> From<&'b mut Buffer<T>> for ViewMut<'b, T> {
    fn from(buffer: &'b mut Buffer<T>) -> ViewMut<'b, T> {
        buffer.view_mut()
    }
}
