//! Images in memory, which textures and surfaces access, and the step for both.
//!
//! An [`Image`] is texels in rows and layers at an address. The driver describes it; a step checks,
//! each time, that the whole image is still in accessible memory. An access to a texture over freed
//! memory is therefore a fault, and code after the check reads texels directly.

pub(crate) mod sampling;
pub(crate) mod surface;

use crate::arithmetic::half::f16_to_f32;
use crate::arithmetic::soft::{self, Rounding};
use crate::fault::FaultKind;
use crate::image::sampling::TextureOp;
use crate::image::surface::SurfaceOp;
use crate::memory::spaces::{AccessFault, Accessed, Spaces};
use crate::operands::{Reg, Role};
use crate::registers::lanes::{Lanes, WARP};

/// The type of one channel of a texel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelFormat {
    /// `CU_AD_FORMAT_UNSIGNED_INT8`
    U8,
    /// `CU_AD_FORMAT_UNSIGNED_INT16`
    U16,
    /// `CU_AD_FORMAT_UNSIGNED_INT32`
    U32,
    /// `CU_AD_FORMAT_SIGNED_INT8`
    S8,
    /// `CU_AD_FORMAT_SIGNED_INT16`
    S16,
    /// `CU_AD_FORMAT_SIGNED_INT32`
    S32,
    /// `CU_AD_FORMAT_HALF`
    F16,
    /// `CU_AD_FORMAT_FLOAT`
    F32,
}

impl ChannelFormat {
    /// Bytes of a channel.
    pub fn bytes(self) -> u64 {
        match self {
            ChannelFormat::U8 | ChannelFormat::S8 => 1,
            ChannelFormat::U16 | ChannelFormat::S16 | ChannelFormat::F16 => 2,
            ChannelFormat::U32 | ChannelFormat::S32 | ChannelFormat::F32 => 4,
        }
    }

    /// Whether it holds floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, ChannelFormat::F16 | ChannelFormat::F32)
    }

    /// Reads a channel: an integer extended to 32 bits, or the bits of an `f32`.
    ///
    /// # Safety
    /// `address` is valid for a read of [`bytes`](Self::bytes) bytes.
    unsafe fn read(self, address: u64) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                ChannelFormat::U8 => (address as *const u8).read().into(),
                ChannelFormat::S8 => (address as *const i8).read() as i32 as u32,
                ChannelFormat::U16 => (address as *const u16).read_unaligned().into(),
                ChannelFormat::S16 => (address as *const i16).read_unaligned() as i32 as u32,
                ChannelFormat::F16 => f16_to_f32((address as *const u16).read_unaligned()).to_bits(),
                _ => (address as *const u32).read_unaligned(),
            }
        }
    }

    /// Writes a channel as `sust.p` converts it: integers saturate, numbers are rounded towards
    /// zero.
    ///
    /// # Safety
    /// `address` is valid for a write of [`bytes`](Self::bytes) bytes.
    unsafe fn write(self, address: u64, bits: u32) {
        let signed = bits.cast_signed();
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                ChannelFormat::U8 => (address as *mut u8).write(bits.min(0xff) as u8),
                ChannelFormat::S8 => (address as *mut i8).write(signed.clamp(-0x80, 0x7f) as i8),
                ChannelFormat::U16 => (address as *mut u16).write_unaligned(bits.min(0xffff) as u16),
                ChannelFormat::S16 => {
                    (address as *mut i16).write_unaligned(signed.clamp(-0x8000, 0x7fff) as i16);
                }
                ChannelFormat::F16 => (address as *mut u16).write_unaligned(half_towards_zero(bits)),
                _ => (address as *mut u32).write_unaligned(bits),
            }
        }
    }
}

/// An `f32` as an `f16`, rounded towards zero; of a NaN the upper bits stay.
fn half_towards_zero(bits: u32) -> u16 {
    if !f32::from_bits(bits).is_nan() {
        return soft::convert(bits.into(), soft::F32, soft::F16, Rounding::Zero) as u16;
    }
    let fraction = (bits >> 13 & 0x3ff).max(1);
    (bits >> 16 & 0x8000 | 0x7c00 | fraction) as u16
}

/// Texels in rows and layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// The address of the first texel.
    pub address: u64,
    /// Texels in a row, rows in a layer, layers (or slices, or faces of cubes): at least 1 each.
    pub extent: [u32; 3],
    /// From a row to the next, in bytes.
    pub pitch: u64,
    /// From a layer to the next, in bytes.
    pub layer: u64,
    /// The type of a channel.
    pub format: ChannelFormat,
    /// Channels of a texel: 1, 2 or 4.
    pub channels: u8,
}

impl Image {
    /// Bytes of a texel.
    pub fn texel_bytes(&self) -> u64 {
        self.format.bytes() * u64::from(self.channels)
    }

    /// Bytes from the first texel to behind the last.
    pub fn bytes(&self) -> u64 {
        let [width, height, depth] = self.extent.map(u64::from);
        (depth - 1) * self.layer + (height - 1) * self.pitch + width * self.texel_bytes()
    }

    /// The address of a texel.
    pub(crate) fn texel(&self, [x, y, z]: [u32; 3]) -> u64 {
        self.row(y, z) + u64::from(x) * self.texel_bytes()
    }

    /// The address of a row.
    pub(crate) fn row(&self, y: u32, z: u32) -> u64 {
        self.address + u64::from(z) * self.layer + u64::from(y) * self.pitch
    }

    /// A texel's channels; those that it has not are 0.
    ///
    /// # Safety
    /// The image is memory that may be read, and the texel is in it.
    pub(crate) unsafe fn read(&self, at: [u32; 3]) -> [u32; 4] {
        let address = self.texel(at);
        let mut texel = [0; 4];
        for (channel, value) in texel.iter_mut().enumerate().take(self.channels.into()) {
            // SAFETY: the channel is one of the texel's.
            *value = unsafe { self.format.read(address + channel as u64 * self.format.bytes()) };
        }
        texel
    }

    /// Writes a texel's channels.
    ///
    /// # Safety
    /// The image is memory that may be written, and the texel is in it.
    pub(crate) unsafe fn write(&self, at: [u32; 3], values: &[u32]) {
        let address = self.texel(at);
        for (channel, &value) in values.iter().enumerate().take(self.channels.into()) {
            // SAFETY: the channel is one of the texel's.
            unsafe { self.format.write(address + channel as u64 * self.format.bytes(), value) };
        }
    }
}

/// The way in which an instruction's coordinates are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Coordinates apart from the layer: 1, 2 or 3.
    pub(crate) dimensions: u8,
    /// Whether the first coordinate is the index of a layer.
    pub(crate) layered: bool,
    /// Whether the three coordinates are a direction.
    pub(crate) cube: bool,
}

impl Geometry {
    /// Registers that coordinates take, without padding.
    pub(crate) fn coordinates(self) -> usize {
        usize::from(self.dimensions) + usize::from(self.layered)
    }
}

/// Sizes and settings that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    Width,
    Height,
    Depth,
    Layers,
    Levels,
    Normalized,
    Linear,
}

/// The operation on a texture or a surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageOp {
    /// `tex`, `tld4`, `txq`.
    Texture(TextureOp),
    /// `suld`, `sust`, `sured`, `suq`.
    Surface(SurfaceOp),
}

/// A step on a texture or a surface.
#[derive(Clone, Debug)]
pub(crate) struct ImageStep {
    pub(crate) op: ImageOp,
    /// The handle of the object: a long.
    pub(crate) object: Reg,
    /// Words: the coordinates, then what the operation wants besides.
    pub(crate) sources: Box<[Reg]>,
    /// The registers that are read or written: words, or longs if the operation moves 64 bits.
    pub(crate) data: [Reg; 4],
}

impl ImageStep {
    /// Shows every register.
    pub(crate) fn registers(&mut self, show: &mut dyn FnMut(&mut Reg, Role)) {
        show(&mut self.object, Role::Use);
        self.sources.iter_mut().for_each(|reg| show(reg, Role::Use));
        let stores = matches!(self.op, ImageOp::Surface(op) if op.stores());
        let role = if stores { Role::Use } else { Role::Def };
        self.data.iter_mut().for_each(|reg| show(reg, role));
    }

    /// Executes the step for the active lanes.
    ///
    /// # Safety
    /// The frame has the registers that the step names.
    pub(crate) unsafe fn run(&self, lanes: &Lanes, spaces: &mut Spaces) -> Accessed {
        // SAFETY: the caller's promise.
        unsafe {
            match self.op {
                ImageOp::Texture(op) => op.run(self, lanes, spaces),
                ImageOp::Surface(op) => op.run(self, lanes, spaces),
            }
        }
    }

    /// The values of the sources in one lane.
    ///
    /// # Safety
    /// The frame has the registers.
    pub(crate) unsafe fn sources_of(&self, lanes: &Lanes, lane: usize) -> [u32; 10] {
        let mut values = [0; 10];
        for (value, &reg) in values.iter_mut().zip(&self.sources) {
            // SAFETY: the caller's promise: sources are words.
            *value = unsafe { lanes.source::<u32>(reg) }[lane];
        }
        values
    }

    /// Writes the results, which are words.
    ///
    /// # Safety
    /// The frame has the registers.
    pub(crate) unsafe fn write_words(&self, lanes: &Lanes, values: &[[u32; WARP]; 4]) {
        for (&reg, values) in self.data.iter().zip(values).filter(|(reg, _)| reg.is_some()) {
            // SAFETY: the caller's promise.
            unsafe { lanes.write(reg, values) };
        }
    }
}

/// The object that a lane's handle names, looked up again only where the handle is another than the
/// lane before.
pub(crate) struct Lookup<T> {
    last: Option<(u64, T)>,
}

impl<T> Lookup<T> {
    pub(crate) fn new() -> Self {
        Lookup { last: None }
    }

    pub(crate) fn get(
        &mut self,
        handle: u64,
        find: impl FnOnce() -> Result<T, (FaultKind, String)>,
    ) -> Result<&T, (FaultKind, String)> {
        let found = match self.last.take() {
            Some((known, found)) if known == handle => found,
            _ => find()?,
        };
        Ok(&self.last.insert((handle, found)).1)
    }
}

/// Fails unless the whole image may be accessed.
pub(crate) fn check(image: &Image, write: bool, spaces: &mut Spaces) -> Result<(), (FaultKind, String)> {
    if spaces.covers(image.address, image.bytes(), write) {
        return Ok(());
    }
    let place = spaces.memory.describe(image.address);
    let text = format!("access to an image of {} bytes at {:#x}: {place}", image.bytes(), image.address);
    Err((FaultKind::OutOfBounds, text))
}

/// The fault of one lane.
pub(crate) fn fault(lane: usize, address: u64, (kind, text): (FaultKind, String)) -> Box<AccessFault> {
    Box::new(AccessFault { lane, address, kind, text })
}
