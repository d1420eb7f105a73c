//! Texture and surface objects, which kernels name by a 64-bit handle to read or write an image.
//!
//! An object describes memory and holds on to none: a kernel that uses one after its array or
//! memory was freed faults, as it does with a pointer.

use crate::context;
use crate::device::{self, TEXTURE_ALIGNMENT, TEXTURE_PITCH_ALIGNMENT};
use crate::error::{Error, Result, ensure, fail};
use crate::handle::{Kind, Table};
use crate::image::array::{Array, MipmappedArray, channel_format};
use crate::refusal::supported;
use cuda_abi::types::*;
use ptx_exec::{AddressMode, Image, Sampler, Texture};
use std::sync::Arc;

static TEXTURES: Table<TextureObject> = Table::new(Kind::Texture);
static SURFACES: Table<SurfaceObject> = Table::new(Kind::Surface);

/// A texture object.
pub struct TextureObject {
    /// The resource that the object reads.
    pub resource: CUDA_RESOURCE_DESC,
    /// The description of how it is read.
    pub description: CUDA_TEXTURE_DESC,
    texture: Arc<Texture>,
}

// SAFETY: the descriptions hold handles and addresses, which are looked up and never dereferenced.
unsafe impl Send for TextureObject {}
// SAFETY: as for `Send`.
unsafe impl Sync for TextureObject {}

/// A surface object.
pub struct SurfaceObject {
    /// The resource that the object reads and writes.
    pub resource: CUDA_RESOURCE_DESC,
    image: Image,
}

// SAFETY: as for textures.
unsafe impl Send for SurfaceObject {}
// SAFETY: as for `Send`.
unsafe impl Sync for SurfaceObject {}

/// Makes a texture object; returns its handle.
pub fn create_texture(resource: CUDA_RESOURCE_DESC, description: CUDA_TEXTURE_DESC) -> Result<CUtexObject> {
    let levels = images(&resource)?;
    let integers = levels.iter().any(|image| !image.format.is_float());
    let sampler = sampler(&description, integers)?;
    // Filtering computes with fractions: 32-bit integers, and those read as such, have none.
    let whole = integers && (!sampler.fractions || levels[0].format.bytes() == 4);
    let filters = sampler.linear || (sampler.linear_levels && levels.len() > 1);
    ensure(!(whole && filters), CUDA_ERROR_INVALID_VALUE)?;
    let linear_memory = resource.resType == CU_RESOURCE_TYPE_LINEAR;
    let texture = Arc::new(Texture { levels, sampler, linear_memory });
    Ok(TEXTURES.add(Arc::new(TextureObject { resource, description, texture })))
}

/// Makes a surface object; returns its handle.
pub fn create_surface(resource: CUDA_RESOURCE_DESC) -> Result<CUsurfObject> {
    ensure(resource.resType == CU_RESOURCE_TYPE_ARRAY, CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the type says which member of the union was written.
    let array = Array::resolve(unsafe { resource.res.array.hArray })?;
    ensure(array.descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST != 0, CUDA_ERROR_INVALID_VALUE)?;
    Ok(SURFACES.add(Arc::new(SurfaceObject { resource, image: array.image })))
}

/// The texture object that a handle names.
pub fn resolve_texture(handle: CUtexObject) -> Result<Arc<TextureObject>> {
    device::get()?;
    TEXTURES.get(handle).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}

/// The surface object that a handle names.
pub fn resolve_surface(handle: CUsurfObject) -> Result<Arc<SurfaceObject>> {
    device::get()?;
    SURFACES.get(handle).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}

/// Takes away a texture object's name, once the work that may still look it up is done.
pub fn destroy_texture(handle: CUtexObject) -> Result {
    resolve_texture(handle)?;
    wait_for_users();
    TEXTURES.remove(handle).map(drop).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}

/// Takes away a surface object's name, once the work that may still look it up is done.
pub fn destroy_surface(handle: CUsurfObject) -> Result {
    resolve_surface(handle)?;
    wait_for_users();
    SURFACES.remove(handle).map(drop).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
}

/// Programs end an object right after the launch that uses it, as they free memory.
fn wait_for_users() {
    if let Ok(context) = context::current() {
        context.order.wait();
    }
}

/// Returns the texture that kernels read by a handle.
pub fn texture(handle: u64) -> Option<Arc<Texture>> {
    TEXTURES.get(handle).map(|object| object.texture.clone())
}

/// Returns the image that kernels read and write by a handle.
pub fn surface(handle: u64) -> Option<Image> {
    SURFACES.get(handle).map(|object| object.image)
}

/// The images of a resource: one, or one for each mipmap level.
fn images(resource: &CUDA_RESOURCE_DESC) -> Result<Vec<Image>> {
    ensure(resource.flags == 0, CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the type says which member of the union was written.
    unsafe {
        match resource.resType {
            CU_RESOURCE_TYPE_ARRAY => Ok(vec![Array::resolve(resource.res.array.hArray)?.image]),
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                let array = MipmappedArray::resolve(resource.res.mipmap.hMipmappedArray)?;
                Ok(array.levels.iter().map(|level| level.image).collect())
            }
            CU_RESOURCE_TYPE_LINEAR => Ok(vec![linear_image(&resource.res.linear)?]),
            CU_RESOURCE_TYPE_PITCH2D => Ok(vec![pitched_image(&resource.res.pitch2D)?]),
            _ => fail(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

fn linear_image(linear: &CUDA_RESOURCE_DESC_v1_res_linear) -> Result<Image> {
    let texel = texel_bytes(linear.format, linear.numChannels)?;
    let width = linear.sizeInBytes as u64 / texel;
    in_memory(linear.devPtr, [width, 1], width.saturating_mul(texel), linear.format, linear.numChannels)
}

fn pitched_image(pitched: &CUDA_RESOURCE_DESC_v1_res_pitch2D) -> Result<Image> {
    let row = texel_bytes(pitched.format, pitched.numChannels)?.checked_mul(pitched.width as u64);
    let pitch = pitched.pitchInBytes as u64;
    ensure(row.is_some_and(|row| row <= pitch), CUDA_ERROR_INVALID_VALUE)?;
    ensure(pitch.is_multiple_of(TEXTURE_PITCH_ALIGNMENT), CUDA_ERROR_INVALID_VALUE)?;
    let extent = [pitched.width as u64, pitched.height as u64];
    in_memory(pitched.devPtr, extent, pitch, pitched.format, pitched.numChannels)
}

fn texel_bytes(format: CUarray_format, channels: u32) -> Result<u64> {
    ensure(matches!(channels, 1 | 2 | 4), CUDA_ERROR_INVALID_VALUE)?;
    Ok(channel_format(format)?.bytes() * u64::from(channels))
}

/// An image in memory of the device's that has to hold it.
fn in_memory(
    address: u64,
    [width, height]: [u64; 2],
    pitch: u64,
    format: CUarray_format,
    channels: u32,
) -> Result<Image> {
    let device = device::get()?;
    let most = |attribute| device.attribute(attribute).map(|most| most as u64);
    let limit = if height == 1 {
        most(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH)?
    } else {
        most(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH)?
    };
    let tallest = most(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT)?;
    ensure((1..=limit).contains(&width) && (1..=tallest).contains(&height), CUDA_ERROR_INVALID_VALUE)?;
    ensure(address.is_multiple_of(TEXTURE_ALIGNMENT), CUDA_ERROR_INVALID_VALUE)?;
    let image = Image {
        address,
        extent: [width as u32, height as u32, 1],
        pitch,
        layer: pitch.saturating_mul(height),
        format: channel_format(format)?,
        channels: channels as u8,
    };
    let found = device.memory.find(address).is_some_and(|found| found.holds(address, image.bytes()));
    ensure(found, CUDA_ERROR_INVALID_VALUE)?;
    Ok(image)
}

fn sampler(description: &CUDA_TEXTURE_DESC, integers: bool) -> Result<Sampler> {
    let flags = description.flags;
    // How sRGB is decoded is not documented to the bit.
    supported(flags & CU_TRSF_SRGB == 0, "textures that decode sRGB; decode it in the kernel")?;
    supported(
        flags & CU_TRSF_SEAMLESS_CUBEMAP == 0,
        "cube maps that filter across their edges; make the texture without CU_TRSF_SEAMLESS_CUBEMAP",
    )?;
    let known =
        CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
    ensure(flags & !known == 0, CUDA_ERROR_INVALID_VALUE)?;
    let mut address = [AddressMode::Clamp; 3];
    for (to, from) in address.iter_mut().zip(description.addressMode) {
        *to = match from {
            CU_TR_ADDRESS_MODE_WRAP => AddressMode::Wrap,
            CU_TR_ADDRESS_MODE_CLAMP => AddressMode::Clamp,
            CU_TR_ADDRESS_MODE_MIRROR => AddressMode::Mirror,
            CU_TR_ADDRESS_MODE_BORDER => AddressMode::Border,
            _ => return fail(CUDA_ERROR_INVALID_VALUE),
        };
    }
    let modes = [description.filterMode, description.mipmapFilterMode];
    ensure(modes.iter().all(|mode| *mode <= CU_TR_FILTER_MODE_LINEAR), CUDA_ERROR_INVALID_VALUE)?;
    Ok(Sampler {
        address,
        linear: description.filterMode == CU_TR_FILTER_MODE_LINEAR,
        normalized: flags & CU_TRSF_NORMALIZED_COORDINATES != 0,
        fractions: integers && flags & CU_TRSF_READ_AS_INTEGER == 0,
        border: description.borderColor,
        linear_levels: description.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR,
        level_bias: description.mipmapLevelBias,
        level_range: [description.minMipmapLevelClamp, description.maxMipmapLevelClamp],
    })
}
