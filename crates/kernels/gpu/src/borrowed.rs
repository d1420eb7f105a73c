//! Streams and memory that belong to other libraries, for example to a framework in the same
//! process. A Python module uses them to compute on tensors that it is given, without a copy and in
//! the order of their owner's stream.
//!
//! Nothing is destroyed or freed here. Work is ordered as if the owner used this crate on one
//! stream.

use std::ffi::c_void;

use bytemuck::Pod;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::Result;
use crate::stream::Stream;

impl Device {
    /// A stream that somebody else has made: a `CUstream`, or a `cudaStream_t`, which is the same.
    /// Null is the legacy default stream, which PyTorch uses if nothing else is said.
    ///
    /// Borrow a stream once and keep it: two that were borrowed from the same one count as two,
    /// which wait for each other's work by events.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// # let owner = device.new_stream()?;
    /// # let theirs = owner.cuda().cu_stream().cast();
    /// // SAFETY: `theirs` is a stream of this device, which outlives `stream`.
    /// let stream = unsafe { device.borrow_stream(theirs) };
    /// let buffer = device.upload_on(&[1.0f32, 2.0], &stream)?; // in the order of their work
    /// assert_eq!(buffer.to_vec()?, [1.0, 2.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Safety
    /// `stream` is a stream of the device's primary context, or null. It lives as long as the
    /// result and all buffers that were allocated or used on it, which keep it; workspaces of other
    /// crates are such buffers. While somebody else captures it, it is given kernels and the
    /// clearing of memory alone, on buffers that were borrowed on the result: anything else may
    /// wait for another stream, or be copied from the host's memory of that moment.
    pub unsafe fn borrow_stream(&self, stream: *mut c_void) -> Stream {
        // SAFETY: the caller says so.
        unsafe { Stream::borrow(self.core(), stream.cast()) }
    }

    /// `len` elements at an address of somebody else's memory on this device, such as a tensor's in
    /// DLPack. Uses here wait for what `stream` has been given before the call. When the buffer is
    /// dropped, what `stream` is given later waits for all uses here, and nothing is freed.
    ///
    /// ```
    /// # let device = apex_gpu::Device::open(0)?;
    /// # let owner = device.new_stream()?;
    /// # let tensor = device.upload_on(&[1i32, 2, 3], &owner)?;
    /// # let (their_stream, address) = (owner.cuda().cu_stream().cast(), tensor.address());
    /// // SAFETY: there are three integers of a tensor that nobody else uses until the buffer is dropped.
    /// let (stream, mut buffer) = unsafe {
    ///     let stream = device.borrow_stream(their_stream);
    ///     let buffer = device.borrow_buffer::<i32>(address, 3, &stream)?;
    ///     (stream, buffer)
    /// };
    /// buffer.write_on(&[4, 5, 6], &stream)?;
    /// drop(buffer);
    /// assert_eq!(tensor.to_vec()?, [4, 5, 6]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice) if the stream is one of another device.
    ///
    /// # Panics
    /// If the address is not a multiple of the elements' alignment.
    ///
    /// # Safety
    /// At `address`, `len` elements of this device's memory are valid for reads, and for writes if
    /// the buffer is written to, until the buffer and all graphs that captured a use of it are
    /// dropped and `stream` has done what it was given by then. Until the buffer is dropped, nobody
    /// else writes to them, nor reads them if they are written to here, but in the order of
    /// `stream`.
    pub unsafe fn borrow_buffer<T: Pod>(
        &self,
        address: u64,
        len: usize,
        stream: &Stream,
    ) -> Result<Buffer<T>> {
        let alignment = align_of::<T>() as u64;
        assert!(address.is_multiple_of(alignment), "address {address:#x} is not a multiple of {alignment}");
        // SAFETY: the caller says so.
        unsafe { Buffer::borrow(self, address, len, stream) }
    }
}
