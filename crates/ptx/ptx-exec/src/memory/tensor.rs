//! `cp.async.bulk.tensor`: copies of boxes of a tensor by its map (TMA), or of pixels of an image.
//!
//! What a map holds is the business of the driver that encodes it and of the device that reads it;
//! programs pass the 128 bytes around. This module defines them for both sides. A copy is done when
//! it is issued, as every asynchronous copy is here.

use ptx::ScalarType;
use ptx::instruction::Atomic;

use crate::arithmetic::reduction::{self, Combine};
use crate::fault::FaultKind;
use crate::memory::access::AccessHandler;
use crate::memory::spaces::{AccessFault, Accessed, Spaces};
use crate::memory::{mbarrier, reduce};
use crate::operands::{AccessArgs, Class};
use crate::registers::lanes::{Lanes, WARP, each_lane};

/// Dimensions of a tensor at most.
pub const MAX_RANK: usize = 5;

/// Begins the bytes of every map.
const MAGIC: u64 = u64::from_le_bytes(*b"APEX-TM1");

/// Bytes of which a line of a box has a multiple, and which a swizzle moves together.
const UNIT: u64 = 16;

/// Bytes to which a box in shared memory is aligned. A swizzle moves bytes within as many.
const LINE: u64 = 128;

/// Numbers of types of elements, those of the driver.
const CU_UINT32: u32 = 2;
const CU_INT32: u32 = 3;
const CU_UINT64: u32 = 4;
const CU_INT64: u32 = 5;
const CU_FLOAT16: u32 = 6;
const CU_FLOAT32: u32 = 7;
const CU_FLOAT64: u32 = 8;
const CU_BFLOAT16: u32 = 9;
const CU_TFLOAT32: u32 = 11;
const CU_TFLOAT32_FTZ: u32 = 12;

/// Bits of infinity in `.f32`, and the NaN of `.tf32`.
const INFINITY: u32 = 0x7f80_0000;
const NAN_OF_TF32: u32 = 0x7fff_e000;

/// Offset of the word of a map that has the bytes of its box.
pub(crate) const BOX_BYTES: i64 = 12;

/// Bytes of a box at most: more than any block has of shared memory.
const MOST_BYTES: u64 = 256 << 10;

/// Marks a copy of pixels beside the number of its dimensions.
pub(crate) const PIXELS: u32 = 1 << 8;

/// Words of 32 bits of a map.
const WORDS: usize = 32;

/// Inner dimensions of an image at most, those of its pixels: width, height and depth.
pub const MAX_INNER: usize = MAX_RANK - 2;

/// Channels of a pixel, and pixels that one copy moves, at most.
const MOST_CHANNELS: u32 = 256;
const MOST_PIXELS: u32 = 1024;

/// Marks a map of pixels in the word that has its kind.
const OF_PIXELS: u32 = 1 << 24;

/// Where this word has the type of elements.
const TYPE_SHIFT: u32 = 28;

/// Where the number of an operation stands beside that of dimensions ([`reduction::number_of`]).
pub(crate) const OPERATION_SHIFT: u32 = 16;

/// The pixels of an image that copies go through (`im2col`): by width, height and depth, image
/// after image. The first dimension of the tensor are the channels, the last the images; of the
/// box's spans the first is the number of channels that are copied of a pixel, the second that of
/// pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corners {
    /// The first pixel along each inner dimension, from that of the image.
    pub lower: [i16; MAX_INNER],
    /// The last one, from the last one of the image.
    pub upper: [i16; MAX_INNER],
}

/// A tensor in global memory and the box of it that one copy moves, innermost dimension first.
/// Dimensions beyond the rank have one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// Address of the first element.
    pub address: u64,
    /// Bytes of an element: 1, 2, 4 or 8.
    pub element_bytes: u32,
    /// The type of elements, as the driver numbers them (`CUtensorMapDataType`), below 16.
    pub data_type: u32,
    /// Dimensions.
    pub rank: u32,
    /// The bits, again and again, that stand for elements outside the tensor: 0 or those of NaNs.
    pub outside: u32,
    /// Permutation of shared memory: in lines of 32 (1), 64 (2) or 128 bytes (3), or none (0).
    pub swizzle: u32,
    /// Elements along each dimension.
    pub sizes: [u64; MAX_RANK],
    /// Bytes from an element to the next along each dimension but the first.
    pub strides: [u64; MAX_RANK - 1],
    /// Elements of the tensor that the box spans along each dimension.
    pub spans: [u32; MAX_RANK],
    /// The box has every element, every second, … along each dimension.
    pub steps: [u32; MAX_RANK],
    /// Copies go through pixels of images, not through a box.
    pub pixels: Option<Corners>,
}

impl TensorMap {
    /// Elements of the box along each dimension. The step along the first one has no effect.
    fn counts(&self) -> [u64; MAX_RANK] {
        if self.pixels.is_some() {
            return self.spans.map(u64::from);
        }
        let count =
            |axis: usize| self.spans[axis].div_ceil(if axis == 0 { 1 } else { self.steps[axis].max(1) });
        std::array::from_fn(|axis| u64::from(count(axis)))
    }

    /// Bytes of the box in shared memory.
    pub fn box_bytes(&self) -> u64 {
        self.counts().iter().product::<u64>() * u64::from(self.element_bytes)
    }

    /// The map as programs hold it.
    pub fn to_bytes(&self) -> [u8; 4 * WORDS] {
        let mut words = [0u32; WORDS];
        let mut put = |at: usize, value: u64| {
            words[at] = value as u32;
            words[at + 1] = (value >> 32) as u32;
        };
        put(0, MAGIC);
        put(4, self.address);
        self.strides.iter().enumerate().for_each(|(axis, stride)| put(12 + 2 * axis, *stride));
        words[2] = self.element_bytes | self.rank << 8 | self.swizzle << 16 | self.data_type << TYPE_SHIFT;
        words[BOX_BYTES as usize / 4] = self.box_bytes() as u32;
        words[6] = self.outside;
        for axis in 0..MAX_RANK {
            // A size may be 2^32.
            words[7 + axis] = self.sizes[axis].wrapping_sub(1) as u32;
            words[20 + axis] = self.spans[axis];
            words[25 + axis] = self.steps[axis];
        }
        if let Some(Corners { lower, upper }) = self.pixels {
            words[2] |= OF_PIXELS;
            // In place of the spans that a box of pixels does not have.
            for (axis, (lower, upper)) in lower.into_iter().zip(upper).enumerate() {
                words[22 + axis] = u32::from(lower as u16) | u32::from(upper as u16) << 16;
            }
        }
        let mut bytes = [0; 4 * WORDS];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// The map of these bytes, if they are one.
    pub fn from_bytes(bytes: &[u8; 4 * WORDS]) -> Option<TensorMap> {
        let word = |at: usize| {
            let at = 4 * at;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
        let kind = word(2);
        let corner = |shift: u32| std::array::from_fn(|axis| (word(22 + axis) >> shift) as i16);
        let pixels = (kind & OF_PIXELS != 0).then(|| Corners { lower: corner(0), upper: corner(16) });
        let map = TensorMap {
            address: long(4),
            element_bytes: kind & 0xff,
            data_type: kind >> TYPE_SHIFT,
            rank: kind >> 8 & 0xff,
            swizzle: kind >> 16 & 0xff,
            outside: word(6),
            sizes: std::array::from_fn(|axis| u64::from(word(7 + axis)) + 1),
            strides: std::array::from_fn(|axis| long(12 + 2 * axis)),
            spans: std::array::from_fn(|axis| if pixels.is_some() && axis > 1 { 1 } else { word(20 + axis) }),
            pixels,
            steps: std::array::from_fn(|axis| word(25 + axis)),
        };
        (long(0) == MAGIC && map.is_sound()).then_some(map)
    }

    /// Whether it is one that a driver encodes; only such ones are followed.
    fn is_sound(&self) -> bool {
        matches!(self.element_bytes, 1 | 2 | 4 | 8)
            && (1..=MAX_RANK as u32).contains(&self.rank)
            && self.swizzle <= 3
            && self.spans.iter().enumerate().all(|(axis, span)| (1..=self.most(axis)).contains(span))
            && (self.pixels.is_none() || self.rank >= 3)
            && self.steps.iter().all(|step| (1..=8).contains(step))
            && self.strides.iter().all(|stride| *stride < 1 << 40)
            && self.line_bytes() % UNIT == 0
            && self.box_bytes() <= MOST_BYTES
    }

    /// Elements that the box may span along an axis.
    fn most(&self, axis: usize) -> u32 {
        if self.pixels.is_some() && axis == 1 { MOST_PIXELS } else { MOST_CHANNELS }
    }

    /// The first pixel after `at`, the coordinates of a copy's pixel.
    fn following(&self, mut at: [i64; MAX_RANK], corners: &Corners) -> [i64; MAX_RANK] {
        let images = self.rank as usize - 1;
        for inner in 0..images - 1 {
            let axis = inner + 1;
            at[axis] += i64::from(self.steps[axis]);
            if at[axis] < self.sizes[axis] as i64 + i64::from(corners.upper[inner]) {
                return at;
            }
            at[axis] = corners.lower[inner].into();
        }
        at[images] += 1;
        at
    }

    /// What an operation makes of two elements; an error if it has no such type.
    fn combine(&self, operation: Atomic) -> Result<(usize, Combine), String> {
        let ty = match self.data_type {
            CU_UINT32 => Some(ScalarType::U32),
            CU_INT32 => Some(ScalarType::S32),
            CU_UINT64 => Some(ScalarType::U64),
            CU_INT64 => Some(ScalarType::S64),
            CU_FLOAT16 => Some(ScalarType::F16),
            CU_FLOAT32 => Some(ScalarType::F32),
            CU_FLOAT64 => Some(ScalarType::F64),
            CU_BFLOAT16 => Some(ScalarType::Bf16),
            _ => None,
        };
        // An H200 traps on the others of this type.
        let ordered = matches!(operation, Atomic::Minimum | Atomic::Maximum);
        let ty = ty.filter(|ty| *ty != ScalarType::S64 || ordered);
        let combine = ty.and_then(|ty| reduction::of(operation, ty));
        let combine = combine.filter(|(size, _)| *size == self.element_bytes as usize);
        combine.ok_or_else(|| format!("tensors of the type {} have no such reduction", self.data_type))
    }

    /// Bytes of a line of the box.
    fn line_bytes(&self) -> u64 {
        self.counts()[0] * u64::from(self.element_bytes)
    }

    /// Bytes from a line of the box in shared memory to the next: with a swizzle, a line takes the
    /// bytes that this permutes, even if it has fewer.
    fn pitch(&self) -> u64 {
        if self.swizzle == 0 { self.line_bytes() } else { UNIT << self.swizzle }
    }

    /// The bits that a copy makes of those of an element: `.tf32` rounds to nearest, with one NaN.
    fn converted(&self, bits: u32) -> u32 {
        match bits & 0x7fff_ffff {
            magnitude
                if !matches!(self.data_type, CU_TFLOAT32 | CU_TFLOAT32_FTZ) || magnitude == INFINITY =>
            {
                bits
            }
            magnitude if magnitude > INFINITY => NAN_OF_TF32,
            _ => (bits + 0xfff + (bits >> 13 & 1)) & !0x1fff,
        }
    }

    /// Where shared memory has the byte whose address would be `address` without swizzle.
    fn swizzled(&self, address: u64) -> u64 {
        // The upper address bits that select the unit of 16 bytes within a line.
        let mask = (1u64 << self.swizzle) - 1;
        address ^ (address >> 7 & mask) << 4
    }

    /// Elements of a line of the tensor that stores reach: those in the unit of 16 bytes with the
    /// last one, too. An H200 writes whole units.
    fn stored_width(&self) -> u64 {
        self.sizes[0].next_multiple_of(UNIT / u64::from(self.element_bytes))
    }

    /// The address of an element in global memory, of lines of `width` elements; `None` outside the
    /// tensor.
    fn element(&self, place: [i64; MAX_RANK], width: u64) -> Option<u64> {
        let size = |axis: usize| if axis == 0 { width } else { self.sizes[axis] };
        let inside = |axis: usize| u64::try_from(place[axis]).is_ok_and(|at| at < size(axis));
        if !(0..MAX_RANK).all(inside) {
            return None;
        }
        let outer = (1..MAX_RANK).fold(0u64, |sum, axis| {
            sum.wrapping_add(self.strides[axis - 1].wrapping_mul(place[axis] as u64))
        });
        let along = place[0] as u64 * u64::from(self.element_bytes);
        Some(self.address.wrapping_add(outer).wrapping_add(along))
    }
}

/// A copy into shared memory: `data` has the generic address of the map, that of an mbarrier, and
/// the coordinates in pairs; `address` is the box's place. A mask in `operands[1]` has the ranks of
/// the blocks of the cluster to which it goes.
pub(crate) fn load() -> AccessHandler {
    handler(run::<true>)
}

/// A copy from shared memory, or a reduction: `copied` has the number of an operation, too. There
/// is no mbarrier.
pub(crate) fn store() -> AccessHandler {
    handler(run::<false>)
}

fn handler(run: crate::memory::access::RunAccess) -> AccessHandler {
    AccessHandler { run, regular: None, data: Class::Long, operands: [Class::Word; 4] }
}

/// The error, and its place.
type Copied = Result<(), (u64, FaultKind, String)>;

/// # Safety
/// See [`crate::memory::access`].
unsafe fn run<const LOADS: bool>(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
    let mut places = [0; WARP];
    let mut outcome = Ok(());
    // SAFETY: the caller's promise; a host address is the generic address.
    unsafe {
        spaces.locate(lanes, args, LINE, LOADS, &mut places)?;
        let longs = |at: usize| lanes.source::<u64>(args.data[at]);
        let (maps, pairs) = (longs(0), [longs(2), longs(3), longs(4)]);
        let mbarriers = args.data[1].is_some().then(|| longs(1));
        let ranks = args.operands[1].is_some().then(|| lanes.source::<u32>(args.operands[1]));
        let of_pixels = args.data[5].is_some().then(|| [longs(5), longs(6)]);
        let offsets = |lane: usize| {
            let [first, last] = of_pixels.map_or([0; 2], |longs| longs.map(|long| long[lane]));
            // The registers have 16 bits.
            [first, first >> 32, last].map(|offset| i64::from(offset as u16))
        };
        each_lane(lanes.mask, |lane| {
            if outcome.is_ok() {
                let half = |axis: usize| (pairs[axis / 2][lane] >> (32 * (axis % 2))) as u32 as i32;
                let copy = Copy {
                    map: maps[lane],
                    shared: places[lane],
                    start: std::array::from_fn(|axis| half(axis).into()),
                    rank: args.copied & 0xff,
                    offsets: (args.copied & PIXELS != 0).then(|| offsets(lane)),
                    mbarrier: mbarriers.map(|mbarriers| mbarriers[lane]),
                    ranks: ranks.map(|ranks| ranks[lane]),
                    operation: reduction::operation(args.copied >> OPERATION_SHIFT),
                    combine: None,
                };
                outcome = copy
                    .execute::<LOADS>(spaces)
                    .map_err(|(address, kind, text)| Box::new(AccessFault { lane, address, kind, text }));
            }
        });
    }
    outcome
}

/// The copy of a lane; addresses are generic.
#[derive(Clone, Copy)]
struct Copy {
    map: u64,
    shared: u64,
    /// The coordinates of the box's first element.
    start: [i64; MAX_RANK],
    /// The dimensions that the instruction names.
    rank: u32,
    /// For pixels: how far from each the element lies that is copied.
    offsets: Option<[i64; MAX_INNER]>,
    mbarrier: Option<u64>,
    /// The blocks of the cluster to which it goes.
    ranks: Option<u32>,
    /// What is made of the elements in global memory, if they are not replaced.
    operation: Option<Atomic>,
    combine: Option<(usize, Combine)>,
}

impl Copy {
    fn execute<const LOADS: bool>(self, spaces: &mut Spaces) -> Copied {
        let map = self.read_map(spaces)?;
        let combine = self.operation.map(|operation| map.combine(operation)).transpose();
        let combine = combine.map_err(|text| (self.map, FaultKind::IllegalInstruction, text))?;
        for rank in spaces.ranks(self.ranks) {
            let own = |address| spaces.in_block(address, rank);
            let (shared, mbarrier) = (own(self.shared), self.mbarrier.map(own));
            Copy { shared, mbarrier, combine, ..self }.execute_once::<LOADS>(&map, spaces)?;
        }
        Ok(())
    }

    fn execute_once<const LOADS: bool>(self, map: &TensorMap, spaces: &mut Spaces) -> Copied {
        let bytes = map.box_bytes();
        let at = |(kind, text)| (self.shared, kind, text);
        self.check::<LOADS>(map)?;
        let lines = self.lines(map);
        let room = lines.len() as u64 * map.pitch();
        spaces.generic(self.shared, room.next_multiple_of(LINE), LOADS).map_err(at)?;
        for (index, line) in lines.into_iter().enumerate() {
            self.copy_line::<LOADS>(map, spaces, line, index as u64 * map.pitch())?;
        }
        match self.mbarrier {
            None => Ok(()),
            Some(address) => mbarrier::complete(spaces, address, bytes as u32)
                .map_err(|(kind, text)| (address, kind, text)),
        }
    }

    /// Refuses what an H200 traps on.
    fn check<const LOADS: bool>(&self, map: &TensorMap) -> Copied {
        let bytes = self.start[0] * i64::from(map.element_bytes);
        let text = if bytes % UNIT as i64 != 0 {
            format!(
                "the first coordinate is {bytes} bytes from the start: a GPU takes multiples of {UNIT} alone"
            )
        } else if !LOADS && map.pixels.is_some() {
            "GPUs trap on copies of pixels to global memory".to_owned()
        } else if !LOADS && self.start.iter().any(|at| *at < 0) {
            "GPUs trap on copies to global memory with a coordinate below 0".to_owned()
        } else {
            return Ok(());
        };
        Err((self.shared, FaultKind::IllegalInstruction, text))
    }

    /// The places of the first elements of the box's lines, or of its pixels, in the tensor.
    fn lines(&self, map: &TensorMap) -> Vec<[i64; MAX_RANK]> {
        let [_, y, z, u, v] = map.counts();
        let (Some(corners), Some(offsets)) = (&map.pixels, self.offsets) else {
            let outer = (0..v).flat_map(|v| (0..u).flat_map(move |u| (0..z).map(move |z| (z, u, v))));
            let lines = outer.flat_map(|(z, u, v)| (0..y).map(move |y| [0, y, z, u, v]));
            let place = |line: [u64; MAX_RANK]| {
                let along = |axis: usize| (line[axis] * u64::from(map.steps[axis])) as i64;
                std::array::from_fn(|axis| self.start[axis] + along(axis))
            };
            return lines.map(place).collect();
        };
        let pixels = std::iter::successors(Some(self.start), |at| Some(map.following(*at, corners)));
        let moved = |mut at: [i64; MAX_RANK]| {
            let inner = map.rank as usize - 2;
            at[1..=inner].iter_mut().zip(offsets).for_each(|(at, offset)| *at += offset);
            at
        };
        pixels.take(y as usize).map(moved).collect()
    }

    fn read_map(&self, spaces: &mut Spaces) -> Result<TensorMap, (u64, FaultKind, String)> {
        let illegal = |text: String| (self.map, FaultKind::IllegalInstruction, text);
        let bytes = 4 * WORDS as u64;
        spaces.generic(self.map, bytes, false).map_err(|(kind, text)| (self.map, kind, text))?;
        // SAFETY: `generic` has approved the bytes, which need no alignment.
        let bytes = unsafe { (self.map as *const [u8; 4 * WORDS]).read_unaligned() };
        let map = TensorMap::from_bytes(&bytes).ok_or_else(|| {
            illegal("this is no tensor map that cuTensorMapEncodeTiled has made".to_owned())
        })?;
        if map.pixels.is_some() != self.offsets.is_some() {
            return Err(illegal("a map of pixels goes with `.im2col`, and no other does".to_owned()));
        }
        match map.rank == self.rank {
            true => Ok(map),
            false => Err(illegal(format!("a map of {} dimensions, and {} coordinates", map.rank, self.rank))),
        }
    }

    /// Copies a line of the box, whose first element has the place `line` in the tensor, to or from
    /// `offset` in shared memory.
    fn copy_line<const LOADS: bool>(
        &self,
        map: &TensorMap,
        spaces: &mut Spaces,
        line: [i64; MAX_RANK],
        offset: u64,
    ) -> Copied {
        let size = u64::from(map.element_bytes);
        let width = if LOADS { map.sizes[0] } else { map.stored_width() };
        for x in 0..map.counts()[0] {
            let mut place = line;
            place[0] += x as i64;
            let shared = map.swizzled(self.shared + offset + x * size);
            let global = map.element(place, width);
            if let Some(global) = global {
                let approved = spaces.generic(global, size, !LOADS);
                if approved.is_err() && place[0] >= map.sizes[0] as i64 {
                    // Behind the tensor there is no memory of the program's.
                    continue;
                }
                approved.map_err(|(kind, text)| (global, kind, text))?;
            }
            // SAFETY: `generic` has approved both: the swizzle moves bytes within aligned lines, all
            // of which it has seen.
            unsafe {
                match (global, self.combine) {
                    (Some(global), Some(combine)) => {
                        reduce::combine(combine, shared as *const u8, global as *mut u8, size as usize);
                    }
                    _ => move_element::<LOADS>(global, shared, map),
                }
            };
        }
        Ok(())
    }
}

/// Moves an element between global and shared memory. What is outside the tensor is read as the
/// map says, and not written.
///
/// # Safety
/// Both addresses may be accessed.
unsafe fn move_element<const LOADS: bool>(global: Option<u64>, shared: u64, map: &TensorMap) {
    let size = map.element_bytes as usize;
    let shared = shared as *mut u8;
    // SAFETY: the caller's promise.
    unsafe {
        match (global, LOADS) {
            (Some(global), true) if size == 4 => {
                let bits = (global as *const u32).read_unaligned();
                shared.cast::<u32>().write_unaligned(map.converted(bits));
            }
            (Some(global), true) => std::ptr::copy(global as *const u8, shared, size),
            (Some(global), false) => std::ptr::copy(shared, global as *mut u8, size),
            (None, true) => {
                let fill = (u64::from(map.outside) << 32 | u64::from(map.outside)).to_le_bytes();
                std::ptr::copy_nonoverlapping(fill.as_ptr(), shared, size);
            }
            (None, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: TensorMap = TensorMap {
        address: 0x7000_0000_1000,
        element_bytes: 2,
        data_type: 6,
        rank: 3,
        outside: 0x7fff,
        swizzle: 3,
        sizes: [1 << 32, 7, 3, 1, 1],
        strides: [1 << 34, 1 << 36, 0, 0],
        spans: [64, 8, 2, 1, 1],
        steps: [1, 2, 1, 1, 1],
        pixels: None,
    };

    #[test]
    fn pixels_follow_each_other_within_their_corners() {
        let corners = Corners { lower: [-1, -2, 0], upper: [1, -1, 0] };
        let map = TensorMap {
            rank: 4,
            sizes: [8, 3, 4, 2, 1],
            spans: [8, 5, 1, 1, 1],
            steps: [1, 2, 1, 1, 1],
            pixels: Some(corners),
            ..MAP
        };
        assert_eq!(TensorMap::from_bytes(&map.to_bytes()), Some(map));
        assert_eq!(map.box_bytes(), 8 * 5 * 2);
        let mut at = [0, 1, 1, 0, 0];
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push([at[1], at[2], at[3]]);
            at = map.following(at, &corners);
        }
        // The width has -1, 1 and 3; the height -2 to 2.
        assert_eq!(seen, [[1, 1, 0], [3, 1, 0], [-1, 2, 0], [1, 2, 0]]);
        assert_eq!(map.following([0, 3, 2, 0, 0], &corners), [0, -1, -2, 1, 0]);
        assert_eq!(TensorMap::from_bytes(&TensorMap { rank: 2, ..map }.to_bytes()), None);
    }

    #[test]
    fn maps_survive_their_bytes_and_other_bytes_are_none() {
        assert_eq!(TensorMap::from_bytes(&MAP.to_bytes()), Some(MAP));
        assert_eq!(MAP.box_bytes(), 64 * 4 * 2 * 2);
        assert_eq!(TensorMap::from_bytes(&[0; 128]), None);
        for unsound in [
            TensorMap { rank: 6, ..MAP },
            TensorMap { element_bytes: 3, ..MAP },
            TensorMap { spans: [257, 1, 1, 1, 1], ..MAP },
            TensorMap { steps: [0, 1, 1, 1, 1], ..MAP },
            TensorMap { spans: [256, 256, 256, 1, 1], ..MAP },
            TensorMap { spans: [7, 1, 1, 1, 1], ..MAP },
        ] {
            assert_eq!(TensorMap::from_bytes(&unsound.to_bytes()), None, "{unsound:?}");
        }
    }

    #[test]
    fn swizzles_are_those_of_the_programming_guide() {
        // Of 128 bytes, the line's number within eight changes the unit; of 32, its upper bit.
        let unit = |swizzle, line: u64, unit: u64| {
            TensorMap { swizzle, ..MAP }.swizzled(line * 128 + unit * 16) % 128 / 16
        };
        assert_eq!([0, 1, 7, 8].map(|line| unit(3, line, 2)), [2, 3, 5, 2]);
        assert_eq!([0, 1, 2, 3].map(|line| unit(2, line, 1)), [1, 0, 3, 2]);
        assert_eq!([0, 1, 2, 3].map(|line| unit(1, line, 4)), [4, 5, 4, 5]);
        assert_eq!(unit(0, 5, 6), 6);
    }
}
