//! Images that a case reads through texture objects or changes through surface objects.

use crate::values::Values;
use apex_driver::image::{Layout, Storage};
use apex_driver::{Device, DriverError};
use cuda_abi::types::*;
use serde::{Deserialize, Serialize};

/// An image and the object that a kernel gets for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// The memory of its texels.
    pub memory: Memory,
    /// Width, height, and depth or layers; 0 where there is no such dimension.
    pub extent: [usize; 3],
    /// The format of a channel.
    pub format: Format,
    /// Channels of a texel.
    pub channels: u32,
    /// The values of channels.
    pub values: Values,
    /// The sampler of its texture object; `None` for a surface object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<Sampler>,
}

/// The memory of texels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// One row in linear memory.
    Linear,
    /// Rows in linear memory.
    Pitched,
    /// An array.
    Array,
    /// An array whose third dimension counts layers.
    Layers,
    /// An array of the six faces of a cube.
    Cube,
    /// An array of cubes, whose third dimension counts faces.
    Cubes,
    /// An array with this number of mipmap levels.
    Levels(u32),
}

/// The format of a channel: the names are those of `CU_AD_FORMAT_…` in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "signedness and bits")]
pub enum Format {
    U8,
    U16,
    U32,
    S8,
    S16,
    S32,
    F16,
    F32,
}

/// The address mode: what coordinates outside the image read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are CUDA's")]
pub enum Address {
    Wrap,
    Clamp,
    Mirror,
    Border,
}

/// The way in which a texture object reads its image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampler {
    /// The address mode of all dimensions.
    pub address: Address,
    /// Whether texels are filtered.
    pub linear: bool,
    /// Whether coordinates go from 0 to 1 over the image.
    pub normalized: bool,
    /// Whether integers are read as fractions.
    pub fractions: bool,
}

/// The value that is read outside of images if the address mode says so.
const BORDER: [f32; 4] = [0.25, -0.5, 1.0, 0.75];

impl Format {
    fn cuda(self) -> CUarray_format {
        match self {
            Format::U8 => CU_AD_FORMAT_UNSIGNED_INT8,
            Format::U16 => CU_AD_FORMAT_UNSIGNED_INT16,
            Format::U32 => CU_AD_FORMAT_UNSIGNED_INT32,
            Format::S8 => CU_AD_FORMAT_SIGNED_INT8,
            Format::S16 => CU_AD_FORMAT_SIGNED_INT16,
            Format::S32 => CU_AD_FORMAT_SIGNED_INT32,
            Format::F16 => CU_AD_FORMAT_HALF,
            Format::F32 => CU_AD_FORMAT_FLOAT,
        }
    }
}

impl Sampler {
    fn cuda(&self) -> CUDA_TEXTURE_DESC {
        let mut description = <CUDA_TEXTURE_DESC as cuda_abi::Plain>::zeroed();
        description.addressMode = [match self.address {
            Address::Wrap => CU_TR_ADDRESS_MODE_WRAP,
            Address::Clamp => CU_TR_ADDRESS_MODE_CLAMP,
            Address::Mirror => CU_TR_ADDRESS_MODE_MIRROR,
            Address::Border => CU_TR_ADDRESS_MODE_BORDER,
        }; 3];
        let filter = if self.linear { CU_TR_FILTER_MODE_LINEAR } else { CU_TR_FILTER_MODE_POINT };
        (description.filterMode, description.mipmapFilterMode) = (filter, filter);
        description.maxMipmapLevelClamp = 16.0;
        description.borderColor = BORDER;
        if self.normalized {
            description.flags |= CU_TRSF_NORMALIZED_COORDINATES;
        }
        if !self.fractions {
            description.flags |= CU_TRSF_READ_AS_INTEGER;
        }
        description
    }
}

impl Image {
    fn layout(&self) -> Layout {
        let surface = if self.sampler.is_none() { CUDA_ARRAY3D_SURFACE_LDST } else { 0 };
        let storage = match self.memory {
            Memory::Linear => Storage::Linear,
            Memory::Pitched => Storage::Pitched,
            Memory::Array => Storage::Array(surface),
            Memory::Layers => Storage::Array(CUDA_ARRAY3D_LAYERED | surface),
            Memory::Cube => Storage::Array(CUDA_ARRAY3D_CUBEMAP | surface),
            Memory::Cubes => Storage::Array(CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED | surface),
            Memory::Levels(levels) => Storage::Mipmapped(levels, surface),
        };
        let texel = self.channels as usize * self.values.bytes();
        Layout { storage, extent: self.extent, format: self.format.cuda(), channels: self.channels, texel }
    }

    /// Channels of all texels of all levels.
    pub fn values_in_all(&self) -> usize {
        self.layout().texels() * self.channels as usize
    }

    /// Makes the image with these texels, and its object.
    pub fn create<'d>(
        &self,
        device: &'d Device,
        texels: &[u8],
    ) -> Result<apex_driver::image::Image<'d>, DriverError> {
        let sampler = self.sampler.map(|sampler| sampler.cuda());
        apex_driver::image::Image::new(device, &self.layout(), texels, sampler.as_ref())
    }
}
