//! Textures: reading images through a sampler.
//!
//! The rules are those of the CUDA programming guide's appendix on texture fetching. Point sampling
//! reads the texel that holds the coordinate. Linear filtering weighs the texels around it, with
//! weights in 9-bit fixed point with 8 bits of fraction, so that 1 is among them; the sum is
//! computed exactly and rounded once to `f32`.

use std::sync::Arc;

use crate::arithmetic::half::{f16_to_f32, f32_to_f16};
use crate::fault::FaultKind;
use crate::image::{self, ChannelFormat, Geometry, Image, ImageStep, Lookup, Query};
use crate::memory::spaces::{Accessed, Spaces};
use crate::registers::lanes::{Lanes, WARP};

/// The result of reading at a coordinate outside of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressMode {
    /// The image repeats. Needs normalised coordinates.
    Wrap,
    /// The texel at the edge.
    Clamp,
    /// The image repeats, every second time mirrored. Needs normalised coordinates.
    Mirror,
    /// The border's colour.
    Border,
}

/// The way in which images are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// By dimension.
    pub address: [AddressMode; 3],
    /// Whether texels are filtered, rather than picked.
    pub linear: bool,
    /// Whether coordinates go from 0 to 1 over the image.
    pub normalized: bool,
    /// Whether 8- and 16-bit integers are read as fractions: 0 to 1, or -1 to 1.
    pub fractions: bool,
    /// The value that [`AddressMode::Border`] reads.
    pub border: [f32; 4],
    /// Whether two mipmap levels are filtered, rather than the nearer one read.
    pub linear_levels: bool,
    /// Added to the level.
    pub level_bias: f32,
    /// The least and the greatest level.
    pub level_range: [f32; 2],
}

/// An image, or several of halving size, with a sampler.
#[derive(Clone, Debug)]
pub struct Texture {
    /// By mipmap level; at least one.
    pub levels: Vec<Image>,
    /// The sampler with which they are read.
    pub sampler: Sampler,
    /// Whether the texels lie in linear memory: integer coordinates, and what is outside is 0.
    pub linear_memory: bool,
}

/// The mipmap level that a fetch reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The first.
    Base,
    /// The source after the coordinates says.
    Given,
    /// From the two gradients after the coordinates, each of as many sources as there are
    /// dimensions.
    Gradient,
}

/// Instructions on textures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextureOp {
    /// `tex`.
    Fetch { geometry: Geometry, integer: bool, level: Level },
    /// `tld4`: one channel of the four texels that filtering would weigh.
    Gather { geometry: Geometry, channel: u8 },
    /// `txq`; with a level as the only source, or none.
    Query(Query),
}

/// The part of an image that coordinates select from.
#[derive(Clone, Copy)]
struct Part {
    dimensions: usize,
    /// The layer, or the face of a cube.
    layer: Option<u32>,
    /// Whether it is a face of a cube, which is never left.
    cube: bool,
    /// Whether coordinates are integers: these have no address mode, what is outside is 0, in
    /// layers that are not there too.
    integer: bool,
}

/// A position in a level.
struct Position {
    /// In texels; the first texel's centre is at 0.5.
    at: [f64; 3],
    part: Part,
}

impl TextureOp {
    /// # Safety
    /// The frame has the registers of `step`.
    pub(crate) unsafe fn run(self, step: &ImageStep, lanes: &Lanes, spaces: &mut Spaces) -> Accessed {
        let mut lookup: Lookup<Arc<Texture>> = Lookup::new();
        let mut results = [[0; WARP]; 4];
        for lane in (0..WARP).filter(|lane| lanes.mask >> lane & 1 != 0) {
            // SAFETY: the caller's promise.
            let (handle, sources) =
                unsafe { (lanes.source::<u64>(step.object)[lane], step.sources_of(lanes, lane)) };
            let texture = lookup
                .get(handle, || find(handle, spaces))
                .map_err(|error| image::fault(lane, handle, error))?;
            // SAFETY: `find` has checked that the texture's images may be read.
            let texel = unsafe { self.perform(texture, &sources) };
            for (result, value) in results.iter_mut().zip(texel) {
                result[lane] = value;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { step.write_words(lanes, &results) };
        Ok(())
    }

    /// # Safety
    /// The texture's images may be read.
    unsafe fn perform(self, texture: &Texture, sources: &[u32; 10]) -> [u32; 4] {
        match self {
            // SAFETY: the caller's promise.
            TextureOp::Fetch { geometry, integer: true, level } => unsafe {
                texture.fetch_texel(geometry, sources, level)
            },
            TextureOp::Fetch { geometry, integer: false, level } => {
                let lod = match texture.levels.len() {
                    1 => 0.0,
                    _ => texture.level_of_detail(geometry, sources, level),
                };
                // SAFETY: the caller's promise.
                unsafe { texture.sample(geometry, sources, lod) }
            }
            // SAFETY: the caller's promise.
            TextureOp::Gather { geometry, channel } => unsafe { texture.gather(geometry, sources, channel) },
            TextureOp::Query(query) => [texture.answer(query, sources[0]), 0, 0, 0],
        }
    }
}

/// The texture that a handle names, all of whose images may be read.
fn find(handle: u64, spaces: &mut Spaces) -> Result<Arc<Texture>, (FaultKind, String)> {
    let texture = spaces
        .memory
        .texture(handle)
        .ok_or_else(|| (FaultKind::IllegalInstruction, format!("{handle:#x} is no texture object")))?;
    texture.levels.iter().try_for_each(|level| image::check(level, false, spaces))?;
    Ok(texture)
}

impl Texture {
    /// A texel by integer coordinates.
    ///
    /// # Safety
    /// The images may be read.
    unsafe fn fetch_texel(&self, geometry: Geometry, sources: &[u32; 10], level: Level) -> [u32; 4] {
        let has_level = level == Level::Given && !self.linear_memory;
        let given = if has_level { sources[geometry.coordinates()] as usize } else { 0 };
        let Some(image) = self.levels.get(given) else { return [0; 4] };
        let (layer, coordinates) = split(geometry, sources);
        let mut at = [0i64; 3];
        for (axis, &from) in coordinates.iter().enumerate() {
            let index = i64::from(from.cast_signed());
            // Where a level is given, what is outside of it is its edge.
            at[axis] = match level {
                Level::Given => index.clamp(0, i64::from(image.extent[axis]) - 1),
                _ => index,
            };
        }
        let part = Part { dimensions: geometry.dimensions.into(), layer, cube: false, integer: true };
        // SAFETY: the caller's promise.
        unsafe { self.texel(image, at, part) }
    }

    /// The channels at a position, filtered if the sampler says so.
    ///
    /// # Safety
    /// The images may be read.
    unsafe fn sample(&self, geometry: Geometry, sources: &[u32; 10], lod: f32) -> [u32; 4] {
        let last = (self.levels.len() - 1) as f64;
        let lod = f64::from(lod).clamp(0.0, last);
        let at = |level: f64| {
            let image = &self.levels[level as usize];
            let position = self.position(geometry, sources, image);
            // SAFETY: the caller's promise.
            unsafe {
                if self.sampler.linear { self.filter(image, &position) } else { self.pick(image, &position) }
            }
        };
        if self.levels.len() == 1 {
            return at(0.0);
        }
        if !self.sampler.linear_levels {
            return at((lod + 0.5).floor().min(last));
        }
        let weight = fixed(lod.fract()) as f64 / 256.0;
        if weight == 0.0 {
            return at(lod.floor());
        }
        let (fine, coarse) = (at(lod.floor()), at((lod.floor() + 1.0).min(last)));
        std::array::from_fn(|channel| {
            let [fine, coarse] = [fine, coarse].map(|texel| f64::from(f32::from_bits(texel[channel])));
            ((fine * (1.0 - weight) + coarse * weight) as f32).to_bits()
        })
    }

    /// The texel at a position.
    ///
    /// # Safety
    /// The image may be read.
    unsafe fn pick(&self, image: &Image, position: &Position) -> [u32; 4] {
        // SAFETY: the caller's promise.
        unsafe { self.texel(image, position.at.map(floor), position.part) }
    }

    /// The texels around a position, weighed.
    ///
    /// # Safety
    /// The image may be read.
    unsafe fn filter(&self, image: &Image, position: &Position) -> [u32; 4] {
        let part = position.part;
        let dimensions = part.dimensions;
        // The two texels of each axis, and the weight of the second.
        let (mut texels, mut weight) = ([[Some(0); 2]; 3], [0f64; 3]);
        for axis in 0..dimensions {
            // With weights rounded to 1/256, a weight of 1 is the next texel with a weight of 0.
            let at = fixed(position.at[axis] - 0.5);
            let index = |far: i64| self.index(image, (at >> 8) + far, axis, part);
            texels[axis] = [index(0), index(1)];
            weight[axis] = (at & 255) as f64 / 256.0;
        }
        let mut sum = [0f64; 4];
        for corner in 0..1usize << dimensions {
            let (mut at, mut share) = ([Some(0); 3], 1.0);
            for axis in 0..dimensions {
                let far = corner >> axis & 1;
                at[axis] = texels[axis][far];
                share *= if far != 0 { weight[axis] } else { 1.0 - weight[axis] };
            }
            if share != 0.0 {
                // SAFETY: the caller's promise; every index is inside.
                let texel = unsafe { self.texel_inside(image, at, part) };
                for (sum, value) in sum.iter_mut().zip(texel).take(image.channels.into()) {
                    *sum += share * f64::from(f32::from_bits(value));
                }
            }
        }
        sum.map(|sum| (sum as f32).to_bits())
    }

    /// One channel of the four texels that filtering in two dimensions would weigh:
    /// counter-clockwise from the one at the lower left, as `tld4` orders them.
    ///
    /// # Safety
    /// The images may be read.
    unsafe fn gather(&self, geometry: Geometry, sources: &[u32; 10], channel: u8) -> [u32; 4] {
        let image = &self.levels[0];
        let position = self.position(geometry, sources, image);
        let [x, y, _] = position.at.map(|at| fixed(at - 0.5) >> 8);
        [[x, y + 1], [x + 1, y + 1], [x + 1, y], [x, y]].map(|[x, y]| {
            // SAFETY: the caller's promise.
            let texel = unsafe { self.texel(image, [x, y, 0], position.part) };
            weighable(image.format, self.sampler.fractions, texel[usize::from(channel)])
        })
    }

    /// Converts coordinates to a position in a level.
    fn position(&self, geometry: Geometry, sources: &[u32; 10], image: &Image) -> Position {
        let (layer, coordinates) = split(geometry, sources);
        let mut at = [0f64; 3];
        for (to, &from) in at.iter_mut().zip(coordinates) {
            let number = f32::from_bits(from);
            // Subnormal coordinates count as 0.
            *to = if number.is_subnormal() { 0.0 } else { number.into() };
        }
        if geometry.cube {
            let (face, s, t) = face_of(at);
            let [width, height] = [image.extent[0], image.extent[1]].map(f64::from);
            let cubes = (image.extent[2] / 6).max(1);
            let layer = layer.unwrap_or(0).min(cubes - 1) * 6 + face;
            let part = Part { dimensions: 2, layer: Some(layer), cube: true, integer: false };
            return Position { at: [s * width, t * height, 0.0], part };
        }
        if self.sampler.normalized {
            at.iter_mut().zip(image.extent).for_each(|(at, extent)| *at *= f64::from(extent));
        }
        let part = Part { dimensions: geometry.dimensions.into(), layer, cube: false, integer: false };
        Position { at: at.map(bounded), part }
    }

    /// The channels of a texel as the destination registers get them; coordinates may be anything.
    ///
    /// # Safety
    /// The image may be read.
    unsafe fn texel(&self, image: &Image, at: [i64; 3], part: Part) -> [u32; 4] {
        let index = |axis: usize| match axis < part.dimensions {
            true => self.index(image, at[axis], axis, part),
            false => Some(0),
        };
        // SAFETY: the caller's promise; every index is inside.
        unsafe { self.texel_inside(image, [index(0), index(1), index(2)], part) }
    }

    /// Whether coordinates have address modes.
    fn has_modes(&self, part: Part) -> bool {
        !part.integer && !self.linear_memory
    }

    /// Applies the address mode to an index along an axis; `None` if nothing is read.
    fn index(&self, image: &Image, index: i64, axis: usize, part: Part) -> Option<u32> {
        let mode = match self.sampler.address[axis] {
            _ if part.cube => AddressMode::Clamp,
            _ if !self.has_modes(part) => AddressMode::Border,
            mode => mode,
        };
        self.address(mode, index, image.extent[axis])
    }

    /// The channels of the texel with these indices, or what is read where one leads nowhere.
    ///
    /// # Safety
    /// The image may be read, and each index is inside of its axis.
    unsafe fn texel_inside(&self, image: &Image, at: [Option<u32>; 3], part: Part) -> [u32; 4] {
        let [Some(x), Some(y), Some(z)] = at else {
            return if self.has_modes(part) { self.border(image) } else { [0; 4] };
        };
        let mut inside = [x, y, z];
        if let Some(layer) = part.layer {
            if part.integer && layer >= image.extent[2] {
                return [0; 4];
            }
            inside[2] = layer.min(image.extent[2] - 1);
        }
        // SAFETY: the caller's promise; every coordinate is inside.
        let raw = unsafe { image.read(inside) };
        if self.sampler.fractions { raw.map(|value| fraction(image.format, value)) } else { raw }
    }

    /// The border's colour as texels of the image's format would hold it: of 32 bits the bits of
    /// the number, smaller integers that are no fractions 0.
    fn border(&self, image: &Image) -> [u32; 4] {
        let mut colour = [0; 4];
        for (to, &from) in colour.iter_mut().zip(&self.sampler.border).take(image.channels.into()) {
            let nearest = |least: f32, greatest: f32| {
                let step = (from.clamp(least, 1.0) * greatest + 0.5).floor();
                fraction(image.format, (step as i32).cast_unsigned())
            };
            *to = match image.format {
                ChannelFormat::F32 | ChannelFormat::U32 | ChannelFormat::S32 => from.to_bits(),
                ChannelFormat::F16 => f16_to_f32(f32_to_f16(from)).to_bits(),
                _ if !self.sampler.fractions => 0,
                ChannelFormat::U8 => nearest(0.0, 255.0),
                ChannelFormat::U16 => nearest(0.0, 65535.0),
                ChannelFormat::S8 => nearest(-1.0, 127.0),
                ChannelFormat::S16 => nearest(-1.0, 32767.0),
            };
        }
        colour
    }

    /// Brings a texel's index into an extent; none where there is nothing.
    fn address(&self, mode: AddressMode, index: i64, extent: u32) -> Option<u32> {
        let size = i64::from(extent);
        // The same in every mode, and without a division.
        if (0..size).contains(&index) {
            return Some(index as u32);
        }
        let inside = match mode {
            AddressMode::Border => return None,
            AddressMode::Wrap if self.sampler.normalized => index.rem_euclid(size),
            AddressMode::Mirror if self.sampler.normalized => {
                let index = index.rem_euclid(2 * size);
                index.min(2 * size - 1 - index)
            }
            // Without normalised coordinates, nothing repeats.
            _ => index.clamp(0, size - 1),
        };
        Some(inside as u32)
    }

    /// The level that a fetch asks for, with the sampler's bias and bounds.
    fn level_of_detail(&self, geometry: Geometry, sources: &[u32; 10], level: Level) -> f32 {
        let more = &sources[geometry.coordinates()..];
        let wanted = match level {
            Level::Base => 0.0,
            Level::Given => f32::from_bits(more[0]),
            Level::Gradient => {
                let dimensions = usize::from(geometry.dimensions);
                let scale = |axis: usize| {
                    if self.sampler.normalized { self.levels[0].extent[axis] as f32 } else { 1.0 }
                };
                let length = |gradient: &[u32]| {
                    let squares = gradient
                        .iter()
                        .enumerate()
                        .map(|(axis, &bits)| (f32::from_bits(bits) * scale(axis)).powi(2));
                    squares.sum::<f32>().sqrt()
                };
                let (dx, dy) = more[..2 * dimensions].split_at(dimensions);
                length(dx).max(length(dy)).log2()
            }
        };
        let [least, greatest] = self.sampler.level_range;
        // A bound that is no number, or bounds in the wrong order, bound nothing.
        (wanted + self.sampler.level_bias).max(least).min(greatest.max(least))
    }

    fn answer(&self, query: Query, level: u32) -> u32 {
        // A level that is not there has no extent.
        let Some(image) = self.levels.get(level as usize) else { return 0 };
        match query {
            Query::Width => image.extent[0],
            Query::Height => image.extent[1],
            Query::Depth | Query::Layers => image.extent[2],
            Query::Levels => self.levels.len() as u32,
            Query::Normalized => self.sampler.normalized.into(),
            Query::Linear => self.sampler.linear.into(),
        }
    }
}

/// The layer, if there is one, and the other coordinates.
fn split(geometry: Geometry, sources: &[u32; 10]) -> (Option<u32>, &[u32]) {
    let dimensions = usize::from(geometry.dimensions);
    if geometry.layered {
        (Some(sources[0]), &sources[1..=dimensions])
    } else {
        (None, &sources[..dimensions])
    }
}

/// A coordinate far from every image, but within numbers that can be computed with; what is no
/// number is 0.
fn bounded(at: f64) -> f64 {
    const FAR: f64 = (1u64 << 40) as f64;
    if at.is_nan() { 0.0 } else { at.clamp(-FAR, FAR) }
}

/// In units of 1/256, rounded to the nearest.
fn fixed(value: f64) -> i64 {
    floor(value * 256.0 + 0.5)
}

/// The largest whole number that is not above a value of moderate size; without a call, which the
/// library's function is where CPUs may lack the instruction.
fn floor(value: f64) -> i64 {
    let towards_zero = value as i64;
    towards_zero - i64::from(towards_zero as f64 > value)
}

/// An integer channel as a fraction of its greatest value, in the bits of an `f32`.
fn fraction(format: ChannelFormat, value: u32) -> u32 {
    let signed = |greatest: f32| (value.cast_signed() as f32 / greatest).max(-1.0).to_bits();
    match format {
        ChannelFormat::U8 => (value as f32 / 255.0).to_bits(),
        ChannelFormat::U16 => (value as f32 / 65535.0).to_bits(),
        ChannelFormat::S8 => signed(127.0),
        ChannelFormat::S16 => signed(32767.0),
        _ => value,
    }
}

/// A channel as filters take it, in the bits of an `f32`: the GPU's have no subnormal numbers and
/// one NaN.
fn weighable(format: ChannelFormat, fractions: bool, value: u32) -> u32 {
    let number = f32::from_bits(value);
    match format {
        ChannelFormat::F32 if number.is_nan() => 0x7fff_ffff,
        ChannelFormat::F32 if number.is_subnormal() => value & 0x8000_0000,
        ChannelFormat::F16 if number.is_nan() => 0x7fff_e000,
        // Made 16 bits wide by repeating the 7 bits of the magnitude, one less for the last of a
        // negative number.
        ChannelFormat::S8 if fractions => {
            let magnitude = (number.abs() * 127.0).round() as u32;
            let last = magnitude.saturating_sub(number.is_sign_negative().into()) >> 6;
            let wide = magnitude << 8 | magnitude << 1 | last;
            (wide as f32 / 32767.0).copysign(number).to_bits()
        }
        _ => value,
    }
}

/// The face of a cube that a direction points at, and where on it, from 0 to 1: the programming
/// guide's table. Of axes that are equally long the last one counts.
fn face_of([x, y, z]: [f64; 3]) -> (u32, f64, f64) {
    let [ax, ay, az] = [x, y, z].map(f64::abs);
    let (face, m, s, t) = if az >= ax && az >= ay {
        if z >= 0.0 { (4, az, x, -y) } else { (5, az, -x, -y) }
    } else if ay >= ax {
        if y >= 0.0 { (2, ay, x, z) } else { (3, ay, x, -z) }
    } else if x >= 0.0 {
        (0, ax, -z, -y)
    } else {
        (1, ax, z, -y)
    };
    // A direction without length points at the middle.
    let on_face = |value: f64| if m == 0.0 { 0.5 } else { bounded((value / m + 1.0) / 2.0) };
    (face, on_face(s), on_face(t))
}
