//! CUDA arrays: texels that only copies, textures and surfaces reach.
//!
//! A GPU lays arrays out as suits its caches, and hides it. Here texels lie row after row and layer
//! after layer, in an allocation like any other.

use crate::context;
use crate::device;
use crate::error::{Error, Result, ensure, fail};
use crate::handle::{Kind as HandleKind, Table};
use crate::memory::copy::{Extent, Side};
use crate::memory::{Allocation, Kind, Request};
use crate::refusal::{refuse, supported};
use cuda_abi::types::*;
use ptx_exec::{ChannelFormat, Image};
use std::sync::Arc;

static ARRAYS: Table<Array> = Table::new(HandleKind::Array);
static MIPMAPPED: Table<MipmappedArray> = Table::new(HandleKind::MipmappedArray);

/// An array.
pub struct Array {
    /// As the program knows it.
    pub handle: u64,
    /// The descriptor that the array was created with.
    pub descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    /// Its texels.
    pub image: Image,
    /// Whether it is a level of a mipmapped array, and ends with it.
    is_level: bool,
    allocation: Arc<Allocation>,
}

impl Array {
    /// Allocates an array in the current context and names it.
    pub fn create(descriptor: CUDA_ARRAY3D_DESCRIPTOR) -> Result<Arc<Array>> {
        Array::allocate(descriptor, false)
    }

    fn allocate(descriptor: CUDA_ARRAY3D_DESCRIPTOR, is_level: bool) -> Result<Arc<Array>> {
        let mut image = layout(&descriptor)?;
        let context = context::current()?.handle;
        let request = Request { bytes: image.bytes(), kind: Kind::Array, flags: 0, context };
        let allocation = device::get()?.memory.allocate(request)?;
        image.address = allocation.start;
        let array = Arc::new(Array { handle: ARRAYS.reserve(), descriptor, image, is_level, allocation });
        ARRAYS.insert(array.handle, array.clone());
        Ok(array)
    }

    /// The array that a handle names.
    pub fn resolve(handle: CUarray) -> Result<Arc<Array>> {
        device::get()?;
        ARRAYS.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
    }

    /// Frees an array, after all work that was submitted before.
    pub fn destroy(handle: CUarray) -> Result {
        let array = Array::resolve(handle)?;
        ensure(!array.is_level, CUDA_ERROR_INVALID_HANDLE)?;
        context::current()?.order.wait();
        array.free();
        Ok(())
    }

    fn free(&self) {
        ARRAYS.remove(self.handle);
        if let Ok(device) = device::get() {
            // The end of its context may have freed it already, and the address have gone to
            // something else.
            let is_ours =
                device.memory.find(self.allocation.start).is_some_and(|found| found.id == self.allocation.id);
            if is_ours {
                device.memory.release(self.allocation.start, |kind| kind == Kind::Array);
            }
        }
    }

    /// The side of a copy that starts at an offset in bytes, rows and layers.
    pub fn side(&self, [x, y, z]: [u64; 3], extent: &Extent) -> Result<Side> {
        let [width, height, depth] = self.image.extent.map(u64::from);
        let row = width * self.image.texel_bytes();
        let fits = |at: u64, count: u64, size: u64| at.checked_add(count).is_some_and(|end| end <= size);
        let inside =
            fits(x, extent.width, row) && fits(y, extent.height, height) && fits(z, extent.depth, depth);
        ensure(inside || extent.is_empty(), CUDA_ERROR_INVALID_VALUE)?;
        if !inside {
            return Ok(Side {
                address: self.image.address,
                pitch: self.image.pitch,
                layer: self.image.layer,
            });
        }
        let address = self.image.address + z * self.image.layer + y * self.image.pitch + x;
        Ok(Side { address, pitch: self.image.pitch, layer: self.image.layer })
    }

    /// The side of a copy of `bytes` bytes that starts at an offset in bytes.
    pub fn flat_side(&self, offset: u64, bytes: u64) -> Result<Side> {
        let end = offset.checked_add(bytes).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        ensure(end <= self.image.bytes(), CUDA_ERROR_INVALID_VALUE)?;
        Ok(Side::flat(self.image.address + offset))
    }

    /// Returns the position of an address in the array: bytes in the row, row, layer.
    pub fn offset_of(&self, address: u64) -> [u64; 3] {
        let offset = address - self.image.address;
        let in_layer = offset % self.image.layer;
        [in_layer % self.image.pitch, in_layer / self.image.pitch, offset / self.image.layer]
    }
}

/// Returns the type of an array's channels; an error for a format that textures here cannot read.
pub fn channel_format(format: CUarray_format) -> Result<ChannelFormat> {
    Ok(match format {
        CU_AD_FORMAT_UNSIGNED_INT8 => ChannelFormat::U8,
        CU_AD_FORMAT_UNSIGNED_INT16 => ChannelFormat::U16,
        CU_AD_FORMAT_UNSIGNED_INT32 => ChannelFormat::U32,
        CU_AD_FORMAT_SIGNED_INT8 => ChannelFormat::S8,
        CU_AD_FORMAT_SIGNED_INT16 => ChannelFormat::S16,
        CU_AD_FORMAT_SIGNED_INT32 => ChannelFormat::S32,
        CU_AD_FORMAT_HALF => ChannelFormat::F16,
        CU_AD_FORMAT_FLOAT => ChannelFormat::F32,
        // Normalised, block-compressed, planar and packed formats.
        _ if (CU_AD_FORMAT_UNORM_INT_101010_2..=CU_AD_FORMAT_SNORM_INT16X4).contains(&format) => {
            return refuse(
                "normalised, block-compressed and packed formats of arrays; use a format of 8, 16 or 32 bits and \
                 convert in the kernel",
            );
        }
        _ => return fail(CUDA_ERROR_INVALID_VALUE),
    })
}

/// Checks a descriptor; the layout of the texels, from address 0.
fn layout(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<Image> {
    let invalid = CUDA_ERROR_INVALID_VALUE;
    let (flags, depth) = (descriptor.Flags, descriptor.Depth);
    let refused = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
    supported(
        flags & refused == 0,
        "sparse arrays, arrays with deferred mapping and video arrays; make a plain array",
    )?;
    let known = CUDA_ARRAY3D_LAYERED
        | CUDA_ARRAY3D_SURFACE_LDST
        | CUDA_ARRAY3D_CUBEMAP
        | CUDA_ARRAY3D_TEXTURE_GATHER
        | CUDA_ARRAY3D_DEPTH_TEXTURE
        | CUDA_ARRAY3D_COLOR_ATTACHMENT;
    ensure(flags & !known == 0, invalid)?;
    ensure(descriptor.Width > 0 && matches!(descriptor.NumChannels, 1 | 2 | 4), invalid)?;
    let layered = flags & CUDA_ARRAY3D_LAYERED != 0;
    if flags & CUDA_ARRAY3D_CUBEMAP != 0 {
        ensure(descriptor.Width == descriptor.Height, invalid)?;
        ensure(if layered { depth > 0 && depth.is_multiple_of(6) } else { depth == 6 }, invalid)?;
    }
    // Depth without height has a meaning for layers only, and layers have to be counted.
    ensure(depth == 0 || descriptor.Height > 0 || layered, invalid)?;
    ensure(!layered || depth > 0, invalid)?;
    let most = limits(descriptor);
    let given = [descriptor.Width, descriptor.Height, depth];
    ensure(given.iter().zip(most).all(|(extent, most)| *extent <= most), invalid)?;
    let extent = given.map(|extent| extent.max(1) as u32);
    let format = channel_format(descriptor.Format)?;
    let pitch = u64::from(extent[0]) * format.bytes() * u64::from(descriptor.NumChannels);
    let layer = pitch * u64::from(extent[1]);
    let channels = descriptor.NumChannels as u8;
    Ok(Image { address: 0, extent, pitch, layer, format, channels })
}

/// The greatest extents of an array, by its kind: those of compute capability 8.0.
fn limits(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> [usize; 3] {
    let cube = descriptor.Flags & CUDA_ARRAY3D_CUBEMAP != 0;
    match (descriptor.Flags & CUDA_ARRAY3D_LAYERED != 0, descriptor.Height, descriptor.Depth) {
        (true, ..) if cube => [32768, 32768, 2046],
        (true, ..) => [32768, 32768, 2048],
        (false, ..) if cube => [32768, 32768, 6],
        (false, 0, _) => [131_072, 0, 0],
        (false, _, 0) => [131_072, 65536, 0],
        (false, ..) => [16384, 16384, 16384],
    }
}

/// An array with smaller versions of itself.
pub struct MipmappedArray {
    /// As the program knows it.
    pub handle: u64,
    /// The largest first, each half of the one before.
    pub levels: Vec<Arc<Array>>,
}

impl MipmappedArray {
    /// Allocates a mipmapped array in the current context and names it. There are as many levels as
    /// are asked for, or as many as it takes to come down to one texel.
    pub fn create(descriptor: CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> Result<Arc<MipmappedArray>> {
        ensure(levels > 0, CUDA_ERROR_INVALID_VALUE)?;
        layout(&descriptor)?;
        let volume = descriptor.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) == 0;
        let largest = descriptor.Width.max(descriptor.Height).max(if volume { descriptor.Depth } else { 0 });
        let halved = |extent: usize, level: u32| if extent == 0 { 0 } else { (extent >> level).max(1) };
        let levels = (0..levels.min(largest.ilog2() + 1)).map(|level| {
            let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
                Width: halved(descriptor.Width, level),
                Height: halved(descriptor.Height, level),
                Depth: if volume { halved(descriptor.Depth, level) } else { descriptor.Depth },
                ..descriptor
            };
            Array::allocate(descriptor, true)
        });
        let levels = levels.collect::<Result<Vec<_>>>()?;
        let array = Arc::new(MipmappedArray { handle: MIPMAPPED.reserve(), levels });
        MIPMAPPED.insert(array.handle, array.clone());
        Ok(array)
    }

    /// Returns the mipmapped array of a handle.
    pub fn resolve(handle: CUmipmappedArray) -> Result<Arc<MipmappedArray>> {
        device::get()?;
        MIPMAPPED.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_HANDLE))
    }

    /// Frees a mipmapped array and its levels, after all work that was submitted before.
    pub fn destroy(handle: CUmipmappedArray) -> Result {
        let array = MipmappedArray::resolve(handle)?;
        context::current()?.order.wait();
        MIPMAPPED.remove(array.handle);
        array.levels.iter().for_each(|level| level.free());
        Ok(())
    }
}
