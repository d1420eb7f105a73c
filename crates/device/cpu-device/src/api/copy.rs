//! Memory copies and fills, in all their forms.
//!
//! Synchronous forms go through the default stream and wait. Copies within the device return at
//! once, as the driver's do. Asynchronous forms that access pageable memory are complete when they
//! return.

use crate::device;
use crate::entry::{array, entries, read, write_if_wanted};
use crate::error::{Error, Result, ensure, fail};
use crate::image::array::Array;
use crate::memory::copy::{Copy, DeclaredMemory, Extent, Fill, Side};
use crate::stream::operation::Operation;
use crate::stream::{DefaultStream, Stream};
use cuda_abi::types::*;
use std::ffi::c_void;

entries! {
    /// Copies between any two places.
    fn cuMemcpy(destination: CUdeviceptr, source: CUdeviceptr, bytes: usize) also cuMemcpy_ptds [default] {
        copy_now(unified(source), unified(destination), Extent::flat(bytes as u64), default)
    }

    /// Copies between any two places, in a stream.
    fn cuMemcpyAsync(
        destination: CUdeviceptr,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) also cuMemcpyAsync_ptsz [default] {
        let stream = Stream::resolve(stream, default)?;
        copy_in_stream(unified(source), unified(destination), Extent::flat(bytes as u64), &stream)
    }

    /// Copies from the host to the device.
    fn cuMemcpyHtoD_v2(
        destination: CUdeviceptr,
        source: *const c_void,
        bytes: usize,
    ) also cuMemcpyHtoD_v2_ptds [default] {
        copy_now(host(source), on_device(destination), Extent::flat(bytes as u64), default)
    }

    /// Copies from the host to the device, in a stream.
    fn cuMemcpyHtoDAsync_v2(
        destination: CUdeviceptr,
        source: *const c_void,
        bytes: usize,
        stream: CUstream,
    ) also cuMemcpyHtoDAsync_v2_ptsz [default] {
        let stream = Stream::resolve(stream, default)?;
        copy_in_stream(host(source), on_device(destination), Extent::flat(bytes as u64), &stream)
    }

    /// Copies from the device to the host.
    fn cuMemcpyDtoH_v2(
        destination: *mut c_void,
        source: CUdeviceptr,
        bytes: usize,
    ) also cuMemcpyDtoH_v2_ptds [default] {
        copy_now(on_device(source), host(destination), Extent::flat(bytes as u64), default)
    }

    /// Copies from the device to the host, in a stream.
    fn cuMemcpyDtoHAsync_v2(
        destination: *mut c_void,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) also cuMemcpyDtoHAsync_v2_ptsz [default] {
        let stream = Stream::resolve(stream, default)?;
        copy_in_stream(on_device(source), host(destination), Extent::flat(bytes as u64), &stream)
    }

    /// Copies inside of the device.
    fn cuMemcpyDtoD_v2(
        destination: CUdeviceptr,
        source: CUdeviceptr,
        bytes: usize,
    ) also cuMemcpyDtoD_v2_ptds [default] {
        copy_now(on_device(source), on_device(destination), Extent::flat(bytes as u64), default)
    }

    /// Copies inside of the device, in a stream.
    fn cuMemcpyDtoDAsync_v2(
        destination: CUdeviceptr,
        source: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) also cuMemcpyDtoDAsync_v2_ptsz [default] {
        let stream = Stream::resolve(stream, default)?;
        copy_in_stream(on_device(source), on_device(destination), Extent::flat(bytes as u64), &stream)
    }

    /// Copies between two contexts' memory. There is one device: a copy like any other.
    fn cuMemcpyPeer(
        destination: CUdeviceptr,
        _destination_context: CUcontext,
        source: CUdeviceptr,
        _source_context: CUcontext,
        bytes: usize,
    ) also cuMemcpyPeer_ptds [default] {
        copy_now(on_device(source), on_device(destination), Extent::flat(bytes as u64), default)
    }

    /// Copies between two contexts' memory, in a stream.
    fn cuMemcpyPeerAsync(
        destination: CUdeviceptr,
        _destination_context: CUcontext,
        source: CUdeviceptr,
        _source_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) also cuMemcpyPeerAsync_ptsz [default] {
        let stream = Stream::resolve(stream, default)?;
        copy_in_stream(on_device(source), on_device(destination), Extent::flat(bytes as u64), &stream)
    }

    /// Copies a rectangle.
    fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) also cuMemcpy2D_v2_ptds [default] {
        let (source, destination, extent) = rectangle(&read(copy)?)?;
        copy_now(source, destination, extent, default)
    }

    /// Copies a rectangle whose pitch may be anything.
    fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D) also cuMemcpy2DUnaligned_v2_ptds [default] {
        let (source, destination, extent) = rectangle(&read(copy)?)?;
        copy_now(source, destination, extent, default)
    }

    /// Copies a rectangle, in a stream.
    fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) also cuMemcpy2DAsync_v2_ptsz [default] {
        let (source, destination, extent) = rectangle(&read(copy)?)?;
        copy_in_stream(source, destination, extent, &*Stream::resolve(stream, default)?)
    }

    /// Copies a box.
    fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D) also cuMemcpy3D_v2_ptds [default] {
        let (source, destination, extent) = cuboid(&read(copy)?)?;
        copy_now(source, destination, extent, default)
    }

    /// Copies a box, in a stream.
    fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream) also cuMemcpy3DAsync_v2_ptsz [default] {
        let (source, destination, extent) = cuboid(&read(copy)?)?;
        copy_in_stream(source, destination, extent, &*Stream::resolve(stream, default)?)
    }

    /// Copies a box between two contexts' memory.
    fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER) also cuMemcpy3DPeer_ptds [default] {
        let (source, destination, extent) = cuboid(&without_contexts(&read(copy)?))?;
        copy_now(source, destination, extent, default)
    }

    /// Copies a box between two contexts' memory, in a stream.
    fn cuMemcpy3DPeerAsync(
        copy: *const CUDA_MEMCPY3D_PEER,
        stream: CUstream,
    ) also cuMemcpy3DPeerAsync_ptsz [default] {
        let (source, destination, extent) = cuboid(&without_contexts(&read(copy)?))?;
        copy_in_stream(source, destination, extent, &*Stream::resolve(stream, default)?)
    }

    /// Does many copies, in no particular order.
    fn cuMemcpyBatchAsync_v2(
        destinations: *mut CUdeviceptr,
        sources: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        _attributes: *mut CUmemcpyAttributes,
        _attribute_indices: *mut usize,
        _attribute_count: usize,
        stream: CUstream,
    ) also cuMemcpyBatchAsync_v2_ptsz [default] {
        // The default streams can't take a batch.
        ensure(!stream.is_null() && stream != CU_STREAM_LEGACY, CUDA_ERROR_INVALID_VALUE)?;
        let stream = Stream::resolve(stream, default)?;
        let (destinations, sources) = (array(destinations, count)?, array(sources, count)?);
        for ((destination, source), bytes) in destinations.iter().zip(sources).zip(array(sizes, count)?) {
            copy_in_stream(unified(*source), unified(*destination), Extent::flat(*bytes as u64), &stream)?;
        }
        Ok(())
    }

    /// Does many copies, in no particular order; tells which one could not be.
    fn cuMemcpyBatchAsync(
        destinations: *mut CUdeviceptr,
        sources: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        _attributes: *mut CUmemcpyAttributes,
        _attribute_indices: *mut usize,
        _attribute_count: usize,
        failed: *mut usize,
        stream: CUstream,
    ) also cuMemcpyBatchAsync_ptsz [default] {
        // A failure before the first copy is reported as the largest index.
        write_if_wanted(failed, usize::MAX);
        ensure(!stream.is_null() && stream != CU_STREAM_LEGACY, CUDA_ERROR_INVALID_VALUE)?;
        let stream = Stream::resolve(stream, default)?;
        let (destinations, sources) = (array(destinations, count)?, array(sources, count)?);
        let copies = destinations.iter().zip(sources).zip(array(sizes, count)?).enumerate();
        for (index, ((destination, source), bytes)) in copies {
            write_if_wanted(failed, index);
            copy_in_stream(unified(*source), unified(*destination), Extent::flat(*bytes as u64), &stream)?;
        }
        Ok(())
    }

    /// Fills with a byte.
    fn cuMemsetD8_v2(destination: CUdeviceptr, value: u8, count: usize) also cuMemsetD8_v2_ptds [default] {
        fill(Side::flat(destination), value.into(), 1, count, 1, std::ptr::null_mut(), default)
    }

    /// Fills with a 16-bit value.
    fn cuMemsetD16_v2(destination: CUdeviceptr, value: u16, count: usize) also cuMemsetD16_v2_ptds [default] {
        fill(Side::flat(destination), value.into(), 2, count, 1, std::ptr::null_mut(), default)
    }

    /// Fills with a 32-bit value.
    fn cuMemsetD32_v2(destination: CUdeviceptr, value: u32, count: usize) also cuMemsetD32_v2_ptds [default] {
        fill(Side::flat(destination), value, 4, count, 1, std::ptr::null_mut(), default)
    }

    /// Fills with a byte, in a stream.
    fn cuMemsetD8Async(
        destination: CUdeviceptr,
        value: u8,
        count: usize,
        stream: CUstream,
    ) also cuMemsetD8Async_ptsz [default] {
        fill(Side::flat(destination), value.into(), 1, count, 1, stream, default)
    }

    /// Fills with a 16-bit value, in a stream.
    fn cuMemsetD16Async(
        destination: CUdeviceptr,
        value: u16,
        count: usize,
        stream: CUstream,
    ) also cuMemsetD16Async_ptsz [default] {
        fill(Side::flat(destination), value.into(), 2, count, 1, stream, default)
    }

    /// Fills with a 32-bit value, in a stream.
    fn cuMemsetD32Async(
        destination: CUdeviceptr,
        value: u32,
        count: usize,
        stream: CUstream,
    ) also cuMemsetD32Async_ptsz [default] {
        fill(Side::flat(destination), value, 4, count, 1, stream, default)
    }

    /// Fills a rectangle with a byte.
    fn cuMemsetD2D8_v2(
        destination: CUdeviceptr,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
    ) also cuMemsetD2D8_v2_ptds [default] {
        fill(pitched(destination, pitch), value.into(), 1, width, height, std::ptr::null_mut(), default)
    }

    /// Fills a rectangle with a 16-bit value.
    fn cuMemsetD2D16_v2(
        destination: CUdeviceptr,
        pitch: usize,
        value: u16,
        width: usize,
        height: usize,
    ) also cuMemsetD2D16_v2_ptds [default] {
        fill(pitched(destination, pitch), value.into(), 2, width, height, std::ptr::null_mut(), default)
    }

    /// Fills a rectangle with a 32-bit value.
    fn cuMemsetD2D32_v2(
        destination: CUdeviceptr,
        pitch: usize,
        value: u32,
        width: usize,
        height: usize,
    ) also cuMemsetD2D32_v2_ptds [default] {
        fill(pitched(destination, pitch), value, 4, width, height, std::ptr::null_mut(), default)
    }

    /// Fills a rectangle with a byte, in a stream.
    fn cuMemsetD2D8Async(
        destination: CUdeviceptr,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
        stream: CUstream,
    ) also cuMemsetD2D8Async_ptsz [default] {
        fill(pitched(destination, pitch), value.into(), 1, width, height, stream, default)
    }

    /// Fills a rectangle with a 16-bit value, in a stream.
    fn cuMemsetD2D16Async(
        destination: CUdeviceptr,
        pitch: usize,
        value: u16,
        width: usize,
        height: usize,
        stream: CUstream,
    ) also cuMemsetD2D16Async_ptsz [default] {
        fill(pitched(destination, pitch), value.into(), 2, width, height, stream, default)
    }

    /// Fills a rectangle with a 32-bit value, in a stream.
    fn cuMemsetD2D32Async(
        destination: CUdeviceptr,
        pitch: usize,
        value: u32,
        width: usize,
        height: usize,
        stream: CUstream,
    ) also cuMemsetD2D32Async_ptsz [default] {
        fill(pitched(destination, pitch), value, 4, width, height, stream, default)
    }
}

/// One side of a copy, and what the caller says it is.
type DeclaredSide = (Side, DeclaredMemory);

fn unified(address: CUdeviceptr) -> DeclaredSide {
    (Side::flat(address), DeclaredMemory::Unified)
}

pub(super) fn on_device(address: CUdeviceptr) -> DeclaredSide {
    (Side::flat(address), DeclaredMemory::Device)
}

pub(super) fn host(address: *const c_void) -> DeclaredSide {
    (Side::flat(address as u64), DeclaredMemory::Host)
}

fn pitched(address: CUdeviceptr, pitch: usize) -> Side {
    Side { address, pitch: pitch as u64, layer: 0 }
}

/// A copy through the default stream.
pub(super) fn copy_now(
    source: DeclaredSide,
    destination: DeclaredSide,
    extent: Extent,
    default: DefaultStream,
) -> Result {
    let stream = Stream::resolve(std::ptr::null_mut(), default)?;
    let Some(copy) = Copy::new(device::get()?, source, destination, extent)? else { return Ok(()) };
    if copy.is_inside_the_device() {
        stream.enqueue(Operation::Copy(copy))
    } else {
        stream.run(Operation::Copy(copy))
    }
}

/// A copy that need not be done when the call returns.
pub(super) fn copy_in_stream(
    source: DeclaredSide,
    destination: DeclaredSide,
    extent: Extent,
    stream: &Stream,
) -> Result {
    let Some(mut copy) = Copy::new(device::get()?, source, destination, extent)? else { return Ok(()) };
    if stream.capture().is_some() || !copy.touches_pageable_memory() || copy.stage() {
        stream.enqueue(Operation::Copy(copy))
    } else {
        stream.run(Operation::Copy(copy))
    }
}

fn fill(
    destination: Side,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
    stream: CUstream,
    default: DefaultStream,
) -> Result {
    let stream = Stream::resolve(stream, default)?;
    match Fill::new(device::get()?, destination, value, element, width as u64, height as u64)? {
        Some(fill) => stream.enqueue(Operation::Fill(fill)),
        None => Ok(()),
    }
}

/// A rectangle's sides and size.
fn rectangle(copy: &CUDA_MEMCPY2D) -> Result<(DeclaredSide, DeclaredSide, Extent)> {
    cuboid(&CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: 1,
        ..cuda_abi::Plain::zeroed()
    })
}

/// A box's sides and size.
pub(super) fn cuboid(copy: &CUDA_MEMCPY3D) -> Result<(DeclaredSide, DeclaredSide, Extent)> {
    let extent =
        Extent { width: copy.WidthInBytes as u64, height: copy.Height as u64, depth: copy.Depth as u64 };
    let source = Corner {
        kind: copy.srcMemoryType,
        host: copy.srcHost as u64,
        device: copy.srcDevice,
        array: copy.srcArray,
        pitch: copy.srcPitch,
        height: copy.srcHeight,
        offset: [copy.srcXInBytes, copy.srcY, copy.srcZ],
    };
    let destination = Corner {
        kind: copy.dstMemoryType,
        host: copy.dstHost as u64,
        device: copy.dstDevice,
        array: copy.dstArray,
        pitch: copy.dstPitch,
        height: copy.dstHeight,
        offset: [copy.dstXInBytes, copy.dstY, copy.dstZ],
    };
    Ok((source.side(&extent)?, destination.side(&extent)?, extent))
}

/// One side of a `CUDA_MEMCPY3D`.
struct Corner {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    array: CUarray,
    pitch: usize,
    height: usize,
    /// In bytes, rows, layers.
    offset: [usize; 3],
}

impl Corner {
    fn side(&self, extent: &Extent) -> Result<DeclaredSide> {
        let (base, place) = match self.kind {
            CU_MEMORYTYPE_HOST => (self.host, DeclaredMemory::Host),
            CU_MEMORYTYPE_DEVICE => (self.device, DeclaredMemory::Device),
            CU_MEMORYTYPE_UNIFIED => (self.device, DeclaredMemory::Unified),
            CU_MEMORYTYPE_ARRAY => {
                let array = Array::resolve(self.array)?;
                let offset = self.offset.map(|offset| offset as u64);
                return Ok((array.side(offset, extent)?, DeclaredMemory::Array(array.handle)));
            }
            _ => return fail(CUDA_ERROR_INVALID_VALUE),
        };
        let [x, y, z] = self.offset.map(|offset| offset as u64);
        // Pitch and height may be left out where there is only one row or layer.
        let pitch = if self.pitch == 0 { x.saturating_add(extent.width) } else { self.pitch as u64 };
        let rows = if self.height == 0 { y.saturating_add(extent.height) } else { self.height as u64 };
        let reach = || {
            let layer = pitch.checked_mul(rows)?;
            let offset = z.checked_mul(layer)?.checked_add(y.checked_mul(pitch)?)?.checked_add(x)?;
            Some(Side { address: base.checked_add(offset)?, pitch, layer })
        };
        let side = reach().ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        ensure(extent.depth <= 1 || rows >= extent.height, CUDA_ERROR_INVALID_VALUE)?;
        Ok((side, place))
    }
}

fn without_contexts(copy: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
        ..cuda_abi::Plain::zeroed()
    }
}
