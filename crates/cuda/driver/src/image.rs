//! Images on a device: linear memory and arrays, and the texture and surface objects by which
//! kernels name them.

use crate::device::{Buffer, Device};
use crate::error::Result;
use crate::library::{Functions, call};
use cuda_abi::Plain;
use cuda_abi::types::*;

/// Bytes from a row to the next in pitched memory: what every device is content with.
pub const PITCH: usize = 512;

/// The memory of texels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// One row in linear memory.
    Linear,
    /// Rows in linear memory, [`PITCH`] apart.
    Pitched,
    /// An array with these flags (`CUDA_ARRAY3D_…`).
    Array(u32),
    /// An array with this number of mipmap levels, with these flags.
    Mipmapped(u32, u32),
}

/// The layout of an image.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The memory of its texels.
    pub storage: Storage,
    /// Width, height, and depth or layers; 0 where there is no such dimension.
    pub extent: [usize; 3],
    /// The format of a channel: `CU_AD_FORMAT_…`.
    pub format: CUarray_format,
    /// Channels of a texel.
    pub channels: u32,
    /// Bytes of a texel.
    pub texel: usize,
}

impl Layout {
    /// Width, rows and layers of a mipmap level, at least 1 each.
    fn level(&self, level: u32) -> [usize; 3] {
        let layered = matches!(self.storage, Storage::Mipmapped(_, flags)
            if flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0);
        let [width, height, depth] = self.extent;
        [width >> level, height >> level, if layered { depth } else { depth >> level }]
            .map(|extent| extent.max(1))
    }

    fn levels(&self) -> u32 {
        if let Storage::Mipmapped(levels, _) = self.storage { levels } else { 1 }
    }

    /// Texels of all levels.
    pub fn texels(&self) -> usize {
        (0..self.levels()).map(|level| self.level(level).iter().product::<usize>()).sum()
    }
}

/// The objects that are destroyed with an image.
enum Holding<'d> {
    Memory { _buffer: Buffer<'d, u8> },
    Array(CUarray),
    Mipmapped(CUmipmappedArray),
}

/// An image with a texture or a surface object.
pub struct Image<'d> {
    functions: &'d Functions,
    holding: Holding<'d>,
    texture: CUtexObject,
    surface: CUsurfObject,
}

impl<'d> Image<'d> {
    /// Makes an image of these texels, level by level, and a texture object that reads it as
    /// `sampler` says, or a surface object where there is none.
    ///
    /// # Panics
    ///
    /// When there are not as many texels as the layout has.
    pub fn new(
        device: &'d Device,
        layout: &Layout,
        texels: &[u8],
        sampler: Option<&CUDA_TEXTURE_DESC>,
    ) -> Result<Image<'d>> {
        assert_eq!(texels.len(), layout.texels() * layout.texel, "an image of another size");
        let functions = device.functions();
        let (holding, resource) = match layout.storage {
            Storage::Linear | Storage::Pitched => in_memory(device, layout, texels)?,
            Storage::Array(flags) => array(functions, layout, flags)?,
            Storage::Mipmapped(levels, flags) => mipmapped(functions, layout, levels, flags)?,
        };
        let mut image = Image { functions, holding, texture: 0, surface: 0 };
        image.fill(layout, texels)?;
        // SAFETY: the descriptions are whole, and what they name is held by the image.
        unsafe {
            match sampler {
                Some(sampler) => call!(
                    functions,
                    cuTexObjectCreate(&mut image.texture, &resource, sampler, std::ptr::null())
                )?,
                None => call!(functions, cuSurfObjectCreate(&mut image.surface, &resource))?,
            }
        }
        Ok(image)
    }

    /// Copies texels to the levels of an array.
    fn fill(&self, layout: &Layout, texels: &[u8]) -> Result {
        let Holding::Mipmapped(levels) = self.holding else {
            let Holding::Array(array) = self.holding else { return Ok(()) };
            return fill(self.functions, layout, array, 0, texels);
        };
        let mut rest = texels;
        for level in 0..layout.levels() {
            let mut array = std::ptr::null_mut();
            // SAFETY: the array has the level; the pointer is to a local.
            unsafe { call!(self.functions, cuMipmappedArrayGetLevel(&mut array, levels, level))? };
            let (mine, behind) = rest.split_at(layout.level(level).iter().product::<usize>() * layout.texel);
            fill(self.functions, layout, array, level, mine)?;
            rest = behind;
        }
        Ok(())
    }

    /// The handle by which kernels name the object.
    pub fn handle(&self) -> u64 {
        self.texture | self.surface
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        // SAFETY: the objects are the image's, and what they read is destroyed after them. A
        // failure has nobody to be told to.
        unsafe {
            if self.texture != 0 {
                let _ = call!(self.functions, cuTexObjectDestroy(self.texture));
            }
            if self.surface != 0 {
                let _ = call!(self.functions, cuSurfObjectDestroy(self.surface));
            }
            let _ = match self.holding {
                Holding::Array(array) => call!(self.functions, cuArrayDestroy(array)),
                Holding::Mipmapped(array) => call!(self.functions, cuMipmappedArrayDestroy(array)),
                Holding::Memory { .. } => Ok(()),
            };
        }
    }
}

fn in_memory<'d>(
    device: &'d Device,
    layout: &Layout,
    texels: &[u8],
) -> Result<(Holding<'d>, CUDA_RESOURCE_DESC)> {
    let Layout { format, channels, extent, .. } = *layout;
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    let row = layout.level(0)[0] * layout.texel;
    let buffer = match layout.storage {
        Storage::Linear => {
            let buffer = device.upload(texels)?;
            resource.resType = CU_RESOURCE_TYPE_LINEAR;
            resource.res.linear = CUDA_RESOURCE_DESC_v1_res_linear {
                devPtr: buffer.address(),
                format,
                numChannels: channels,
                sizeInBytes: texels.len(),
            };
            buffer
        }
        _ => {
            let mut rows = vec![0; PITCH * layout.level(0)[1]];
            for (to, from) in rows.chunks_mut(PITCH).zip(texels.chunks(row)) {
                to[..row].copy_from_slice(from);
            }
            let buffer = device.upload(&rows)?;
            resource.resType = CU_RESOURCE_TYPE_PITCH2D;
            resource.res.pitch2D = CUDA_RESOURCE_DESC_v1_res_pitch2D {
                devPtr: buffer.address(),
                format,
                numChannels: channels,
                width: extent[0],
                height: extent[1],
                pitchInBytes: PITCH,
            };
            buffer
        }
    };
    Ok((Holding::Memory { _buffer: buffer }, resource))
}

fn descriptor(layout: &Layout, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: layout.extent[0],
        Height: layout.extent[1],
        Depth: layout.extent[2],
        Format: layout.format,
        NumChannels: layout.channels,
        Flags: flags,
    }
}

fn array<'d>(
    functions: &'d Functions,
    layout: &Layout,
    flags: u32,
) -> Result<(Holding<'d>, CUDA_RESOURCE_DESC)> {
    let mut array = std::ptr::null_mut();
    // SAFETY: the pointer is to a local.
    unsafe { call!(functions, cuArray3DCreate_v2(&mut array, &descriptor(layout, flags)))? };
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array = CUDA_RESOURCE_DESC_v1_res_array { hArray: array };
    Ok((Holding::Array(array), resource))
}

fn mipmapped<'d>(
    functions: &'d Functions,
    layout: &Layout,
    levels: u32,
    flags: u32,
) -> Result<(Holding<'d>, CUDA_RESOURCE_DESC)> {
    let mut array = std::ptr::null_mut();
    // SAFETY: the pointer is to a local.
    unsafe { call!(functions, cuMipmappedArrayCreate(&mut array, &descriptor(layout, flags), levels))? };
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap = CUDA_RESOURCE_DESC_v1_res_mipmap { hMipmappedArray: array };
    Ok((Holding::Mipmapped(array), resource))
}

/// Copies texels to the whole of a level.
fn fill(functions: &Functions, layout: &Layout, array: CUarray, level: u32, texels: &[u8]) -> Result {
    let [width, rows, layers] = layout.level(level);
    let copy = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: texels.as_ptr().cast(),
        srcPitch: width * layout.texel,
        srcHeight: rows,
        dstMemoryType: CU_MEMORYTYPE_ARRAY,
        dstArray: array,
        WidthInBytes: width * layout.texel,
        Height: rows,
        Depth: layers,
        ..Plain::zeroed()
    };
    // SAFETY: the texels are as many as the level has.
    unsafe { call!(functions, cuMemcpy3D_v2(&copy)) }
}
