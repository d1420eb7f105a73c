//! Memory of the device: typed buffers and parts of them.
//!
//! Buffers may be used on several streams. Each use waits for those before it that it must not overtake, so results are
//! those of the program's order; freeing waits for the last use. See `uses`.

use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use bytemuck::Pod;
use cudarc::driver::{CudaSlice, DevicePtr, result, sys};

use crate::device::{Core, Device};
use crate::error::{Error, Result};
use crate::pinned::Pinned;
use crate::stream::Stream;
use crate::uses::{Access, Uses};

/// `len` elements of type `T` in a device's memory.
///
/// `T` is plain data ([`Pod`]): numbers, arrays of them, and structures that derive it. Memory is freed when the buffer is
/// dropped, after the last use.
///
/// ```
/// let device = apex_gpu::Device::open(0)?;
/// let mut buffer = device.zeros::<f32>(4)?;
/// buffer.write(&[1.0, 2.0, 3.0, 4.0])?;
/// let mut copy = device.zeros::<f32>(4)?;
/// copy.copy_from(&buffer)?;
/// assert_eq!(copy.slice(1..3).download()?, [2.0, 3.0]);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Buffer<T> {
    /// Frees the memory.
    _owned: CudaSlice<u8>,
    /// Address, which a launch passes by reference.
    address: sys::CUdeviceptr,
    len: usize,
    device: Device,
    /// Where it was made, and where it is freed.
    home: Stream,
    uses: Uses,
    element: PhantomData<T>,
}

/// A part of a [`Buffer`], to read.
///
/// ```
/// # let device = apex_gpu::Device::open(0)?;
/// let buffer = device.upload(&[1, 2, 3, 4, 5, 6])?;
/// let (left, right) = (buffer.slice(..3), buffer.slice(3..));
/// assert_eq!((left.len(), left.is_empty()), (3, false));
/// assert_eq!(right.download()?, [4, 5, 6]);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct View<'b, T> {
    buffer: &'b Buffer<T>,
    address: sys::CUdeviceptr,
    len: usize,
}

/// A part of a [`Buffer`], to write.
///
/// ```
/// # let device = apex_gpu::Device::open(0)?;
/// let mut buffer = device.upload(&[1, 2, 3, 4])?;
/// let mut middle = buffer.slice_mut(1..3);
/// assert_eq!((middle.len(), middle.is_empty()), (2, false));
/// middle.write(&[20, 30])?;
/// assert_eq!(buffer.download()?, [1, 20, 30, 4]);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct ViewMut<'b, T> {
    buffer: &'b mut Buffer<T>,
    address: sys::CUdeviceptr,
    len: usize,
}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

impl<T: Pod> Buffer<T> {
    /// Memory with whatever was in it.
    pub(crate) fn uninitialised(device: &Device, len: usize, stream: &Stream) -> Result<Buffer<T>> {
        check_stream(device.core(), stream)?;
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
        let Some(bytes) = bytes else {
            let (free, total) = device.memory().unwrap_or_default();
            let name = device.name().to_owned();
            return Err(Error::OutOfMemory {
                call: "cuMemAllocAsync",
                device: name,
                bytes: usize::MAX,
                free,
                total,
            });
        };
        // The driver refuses sizes of zero.
        // SAFETY: bytes of any value are valid; this crate reads none of them before they are written, kernels may.
        let memory = unsafe { stream.cuda().alloc::<u8>(bytes.max(1)) };
        let memory = memory.map_err(device.core().no_memory("cuMemAllocAsync", bytes))?;
        let (address, _) = memory.device_ptr(stream.cuda());
        Ok(Buffer {
            _owned: memory,
            address,
            len,
            device: device.clone(),
            home: stream.clone(),
            uses: Uses::made_on(stream),
            element: PhantomData,
        })
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
        &self.device
    }

    /// Address in the device's memory, for calls that this crate does not offer. It is valid as long as the buffer; what
    /// is done with it is not ordered with other uses.
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
    /// assert_eq!(buffer.slice(1..3).download()?, [11, 12]);
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
    /// assert_eq!(buffer.download()?, [0, 7, 8, 0, 0]);
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
    /// assert_eq!(view.download()?, again.download()?);
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
    /// assert_eq!(buffer.download()?, [6, 7]);
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
    /// assert_eq!(buffer.download()?, vec![1, 2, 3]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of the work before it, such as that of a kernel.
    pub fn download(&self) -> Result<Vec<T>> {
        self.view().download()
    }

    /// Sets all bytes to zero.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut counts = device.upload(&[3u64, 4])?;
    /// counts.clear()?;
    /// assert_eq!(counts.download()?, [0, 0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// What the driver says.
    pub fn clear(&mut self) -> Result<()> {
        let stream = self.device.stream().clone();
        self.clear_on(&stream)
    }

    /// As [`Buffer::clear`], in the order of `stream`.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let mut counts = device.upload(&[3u64, 4])?;
    /// counts.clear_on(&stream)?; // after the upload, though that was on another stream
    /// assert_eq!(counts.download()?, [0, 0]); // and this after the clearing
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// What the driver says; [`Error::WrongDevice`].
    pub fn clear_on(&mut self, stream: &Stream) -> Result<()> {
        self.view_mut().clear_on(stream)
    }

    /// Copies `values` to the device: as many as the buffer has elements. When this returns, `values` may be changed.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut buffer = device.zeros::<f32>(2)?;
    /// buffer.write(&[0.5, 1.5])?;
    /// assert_eq!(buffer.download()?, [0.5, 1.5]);
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
    /// assert_eq!(buffer.download()?, [0.5, 1.5]);
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
    /// assert_eq!(to.download()?, [1, -1]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`].
    pub fn copy_from(&mut self, from: &Buffer<T>) -> Result<()> {
        self.view_mut().copy_from(from.view())
    }

    pub(crate) fn uses(&self) -> &Uses {
        &self.uses
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // The slice, which is dropped next, is freed in the order of its home stream. Should this fail, the context is
        // broken, and nothing runs any more that could use the memory.
        let _ = self.device.core().bind();
        let _ = self.uses.order(&self.home, Access::Write);
    }
}

impl<'b, T: Pod> View<'b, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// See [`Buffer::download`].
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let words = device.upload(&[0xAAu32, 0xBB, 0xCC])?;
    /// assert_eq!(words.slice(2..).download()?, [0xCC]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// An error of the work before it.
    pub fn download(&self) -> Result<Vec<T>> {
        let mut values = Vec::with_capacity(self.len);
        let room = &mut values.spare_capacity_mut()[..self.len];
        self.download_to(room.as_mut_ptr().cast(), self.buffer.device.stream())?;
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
    /// [`Error::SizeMismatch`], or an error of the work before it.
    pub fn read(&self, values: &mut [T]) -> Result<()> {
        self.read_on(values, self.buffer.device.stream())
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
    /// As [`View::read`]; [`Error::WrongDevice`].
    pub fn read_on(&self, values: &mut [T], stream: &Stream) -> Result<()> {
        same_size("a buffer", self.len, "a slice", values.len())?;
        self.download_to(values.as_mut_ptr(), stream)
    }

    /// Copies all elements to `to`, which has room for them, and waits for that.
    fn download_to(&self, to: *mut T, stream: &Stream) -> Result<()> {
        let device = self.buffer.device.core();
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
    /// [`Error::SizeMismatch`], [`Error::WrongDevice`].
    pub fn read_pinned(&self, to: &mut Pinned<T>, stream: &Stream) -> Result<()> {
        same_size("a buffer", self.len, "pinned memory", to.len)?;
        self.prepare(stream)?;
        to.order(stream)?;
        let bytes = self.len * size_of::<T>();
        if bytes > 0 {
            // SAFETY: both have as many bytes; the pinned memory keeps an event and waits for it before anybody looks.
            let copied =
                unsafe { sys::cuMemcpyDtoHAsync_v2(to.start.cast(), self.address, bytes, stream.raw()) }
                    .result();
            let device = self.buffer.device.core();
            copied.map_err(device.failed_at("cuMemcpyDtoHAsync", || format!("{bytes} bytes")))?;
        }
        to.used_by(stream)
    }

    /// Binds the context and lets `stream` wait for the last write.
    pub(crate) fn prepare(&self, stream: &Stream) -> Result<()> {
        let device = self.buffer.device.core();
        check_stream(device, stream)?;
        device.bind()?;
        self.buffer.uses.order(stream, Access::Read)
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
    /// assert_eq!(buffer.download()?, [0, 0, 3]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// What the driver says; [`Error::WrongDevice`].
    pub fn clear_on(&mut self, stream: &Stream) -> Result<()> {
        self.prepare(stream)?;
        let bytes = self.len * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the buffer has as many bytes at the address.
        let cleared = unsafe { result::memset_d8_async(self.address, 0, bytes, stream.raw()) };
        cleared.map_err(self.buffer.device.core().failed_at("cuMemsetD8Async", || format!("{bytes} bytes")))
    }

    /// See [`Buffer::write`].
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut buffer = device.zeros::<i8>(4)?;
    /// buffer.slice_mut(3..).write(&[-1])?;
    /// assert_eq!(buffer.download()?, [0, 0, 0, -1]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`].
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        let stream = self.buffer.device.stream().clone();
        self.write_on(values, &stream)
    }

    /// See [`Buffer::write_on`].
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let mut buffer = device.zeros::<i8>(4)?;
    /// buffer.slice_mut(..2).write_on(&[4, 5], &stream)?;
    /// assert_eq!(buffer.download()?, [4, 5, 0, 0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`], [`Error::WrongDevice`].
    pub fn write_on(&mut self, values: &[T], stream: &Stream) -> Result<()> {
        same_size("a slice", values.len(), "a buffer", self.len)?;
        self.prepare(stream)?;
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: both have as many bytes. From memory that is not pinned, the driver has copied when it returns.
        let copied = unsafe { result::memcpy_htod_async(self.address, values, stream.raw()) };
        let bytes = size_of_val(values);
        copied.map_err(self.buffer.device.core().failed_at("cuMemcpyHtoDAsync", || format!("{bytes} bytes")))
    }

    /// Copies pinned memory to the device and returns at once. The pinned memory cannot be changed before the copy is done:
    /// [`Pinned::as_mut_slice`] waits.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let mut host = device.pinned::<f32>(2)?;
    /// host.as_mut_slice()?.copy_from_slice(&[1.0, 2.0]);
    /// let mut buffer = device.zeros::<f32>(6)?;
    /// buffer.slice_mut(4..).write_pinned(&mut host, device.stream())?;
    /// assert_eq!(buffer.download()?, [0.0, 0.0, 0.0, 0.0, 1.0, 2.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`], [`Error::WrongDevice`].
    pub fn write_pinned(&mut self, from: &mut Pinned<T>, stream: &Stream) -> Result<()> {
        same_size("pinned memory", from.len, "a buffer", self.len)?;
        self.prepare(stream)?;
        from.order(stream)?;
        let bytes = self.len * size_of::<T>();
        if bytes > 0 {
            // SAFETY: both have as many bytes; the pinned memory keeps an event and waits for it before anybody writes.
            let copied =
                unsafe { sys::cuMemcpyHtoDAsync_v2(self.address, from.start.cast(), bytes, stream.raw()) }
                    .result();
            let device = self.buffer.device.core();
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
    /// assert_eq!(to.download()?, [0, 0, 1, 2]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`].
    pub fn copy_from(&mut self, from: View<'_, T>) -> Result<()> {
        let stream = self.buffer.device.stream().clone();
        self.copy_from_on(from, &stream)
    }

    /// As [`ViewMut::copy_from`], in the order of `stream`, which is one of this buffer's device. The source may be of
    /// another device.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// let stream = device.new_stream()?;
    /// let from = device.upload(&[1.0f64, 2.0])?;
    /// let mut to = device.zeros::<f64>(2)?;
    /// to.view_mut().copy_from_on(from.view(), &stream)?;
    /// assert_eq!(to.download()?, [1.0, 2.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::SizeMismatch`], [`Error::WrongDevice`].
    pub fn copy_from_on(&mut self, from: View<'_, T>, stream: &Stream) -> Result<()> {
        same_size("a buffer", from.len, "a buffer", self.len)?;
        self.prepare(stream)?;
        from.buffer.uses.order(stream, Access::Read)?;
        let bytes = self.len * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        let (device, source) = (self.buffer.device.core(), from.buffer.device.core());
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
        let device = self.buffer.device.core();
        check_stream(device, stream)?;
        device.bind()?;
        self.buffer.uses.order(stream, Access::Write)
    }

    pub(crate) fn into_parts(self) -> (&'b Buffer<T>, u64) {
        (self.buffer, self.address)
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

fn same_size(from: &'static str, from_elements: usize, to: &'static str, to_elements: usize) -> Result<()> {
    match from_elements == to_elements {
        true => Ok(()),
        false => Err(Error::SizeMismatch { from, from_elements, to, to_elements }),
    }
}

/// That `stream` is one of `device`.
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
