//! Surfaces: reading and writing images without a sampler.
//!
//! The first coordinate counts bytes, except in formatted stores (`sust.p`), where it counts
//! texels. What lies outside of the image is a fault, the nearest place inside, or nothing, as the
//! instruction says.

use crate::fault::FaultKind;
use crate::image::{self, Geometry, Image, ImageStep, Lookup, Query};
use crate::memory::spaces::{Accessed, Spaces};
use crate::operands::Reg;
use crate::registers::lanes::{Lanes, WARP};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The effect of an access outside of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bounds {
    /// It stops the kernel.
    Trap,
    /// It goes to the nearest place inside.
    Clamp,
    /// Loads read 0, and stores do nothing.
    Zero,
}

/// The operation of `sured` on memory and its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    Add,
    Min { signed: bool },
    Max { signed: bool },
    And,
    Or,
}

/// Instructions on surfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SurfaceOp {
    /// `suld.b`: `count` elements of `bytes` bytes.
    Load { geometry: Geometry, bytes: u8, count: u8, bounds: Bounds },
    /// `sust.b`.
    Store { geometry: Geometry, bytes: u8, count: u8, bounds: Bounds },
    /// `sust.p`: channels of 32 bits, converted to the image's format.
    StoreTexel { geometry: Geometry, count: u8, bounds: Bounds },
    /// `sured.b` on `bytes` bytes.
    Reduce { geometry: Geometry, bytes: u8, combine: Combine, bounds: Bounds },
    /// `suq`.
    Query(Query),
}

impl SurfaceOp {
    /// Whether its data registers are read rather than written.
    pub(crate) fn stores(self) -> bool {
        matches!(self, SurfaceOp::Store { .. } | SurfaceOp::StoreTexel { .. } | SurfaceOp::Reduce { .. })
    }

    /// # Safety
    /// The frame has the registers of `step`.
    pub(crate) unsafe fn run(self, step: &ImageStep, lanes: &Lanes, spaces: &mut Spaces) -> Accessed {
        let mut lookup: Lookup<Image> = Lookup::new();
        for lane in (0..WARP).filter(|lane| lanes.mask >> lane & 1 != 0) {
            // SAFETY: the caller's promise.
            let (handle, sources) =
                unsafe { (lanes.source::<u64>(step.object)[lane], step.sources_of(lanes, lane)) };
            let image = *lookup
                .get(handle, || find(handle, self.stores(), spaces))
                .map_err(|error| image::fault(lane, handle, error))?;
            // SAFETY: the caller's promise; `find` has checked that the image may be accessed.
            let done = unsafe {
                self.perform(step, &Lanes { mask: 1 << lane, full: false, ..*lanes }, lane, &image, &sources)
            };
            done.map_err(|error| image::fault(lane, image.address, error))?;
        }
        Ok(())
    }

    /// Does it for one lane, the only active one of `lanes`.
    ///
    /// # Safety
    /// The frame has the registers of `step`, and the image may be accessed.
    unsafe fn perform(
        self,
        step: &ImageStep,
        lanes: &Lanes,
        lane: usize,
        image: &Image,
        sources: &[u32; 10],
    ) -> Result<(), (FaultKind, String)> {
        match self {
            SurfaceOp::Load { geometry, bytes, count, bounds } => {
                let place = place(image, geometry, sources, u64::from(bytes) * u64::from(count), bounds)?;
                for (element, &reg) in step.data.iter().enumerate().take(count.into()) {
                    // SAFETY: all elements lie inside of the image, and the frame has the register.
                    unsafe {
                        let value = place.map_or(0, |at| read(at + element as u64 * u64::from(bytes), bytes));
                        match bytes {
                            8 => lanes.write(reg, &[value; WARP]),
                            _ => lanes.write(reg, &[value as u32; WARP]),
                        }
                    }
                }
            }
            SurfaceOp::Store { geometry, bytes, count, bounds } => {
                let place = place(image, geometry, sources, u64::from(bytes) * u64::from(count), bounds)?;
                let Some(at) = place else { return Ok(()) };
                for (element, &reg) in step.data.iter().enumerate().take(count.into()) {
                    // SAFETY: all elements lie inside of the image, and the frame has the register.
                    unsafe {
                        let value = data(lanes, reg, bytes, lane);
                        write(at + element as u64 * u64::from(bytes), bytes, value);
                    }
                }
            }
            SurfaceOp::StoreTexel { geometry, count, bounds } => {
                let mut bytewise = *sources;
                let x = usize::from(geometry.layered);
                bytewise[x] = sources[x].wrapping_mul(image.texel_bytes() as u32);
                if let Some(at) = place(image, geometry, &bytewise, image.texel_bytes(), bounds)? {
                    let mut values = [0; 4];
                    for (value, &reg) in values.iter_mut().zip(&step.data).take(count.into()) {
                        // SAFETY: the frame has the register, a word.
                        *value = unsafe { lanes.source::<u32>(reg) }[lane];
                    }
                    let texel = Image { address: at, extent: [1; 3], ..*image };
                    // SAFETY: the texel lies inside of the image.
                    unsafe { texel.write([0; 3], &values) };
                }
            }
            SurfaceOp::Reduce { geometry, bytes, combine, bounds } => {
                if let Some(at) = place(image, geometry, sources, bytes.into(), bounds)? {
                    // SAFETY: the frame has the register; the place lies inside of the image and is
                    // aligned.
                    unsafe { reduce(at, bytes, combine, data(lanes, step.data[0], bytes, lane)) };
                }
            }
            SurfaceOp::Query(query) => {
                let value = answer(image, query);
                // SAFETY: the frame has the register, a word.
                unsafe { lanes.write(step.data[0], &[value; WARP]) };
            }
        }
        Ok(())
    }
}

/// The image of the surface that a handle names, if it may be accessed.
fn find(handle: u64, write: bool, spaces: &mut Spaces) -> Result<Image, (FaultKind, String)> {
    let image = spaces
        .memory
        .surface(handle)
        .ok_or_else(|| (FaultKind::IllegalInstruction, format!("{handle:#x} is no surface object")))?;
    image::check(&image, write, spaces)?;
    Ok(image)
}

/// Returns the address of `bytes` bytes; `None` if the access does nothing.
fn place(
    image: &Image,
    geometry: Geometry,
    sources: &[u32; 10],
    bytes: u64,
    bounds: Bounds,
) -> Result<Option<u64>, (FaultKind, String)> {
    let dimensions = usize::from(geometry.dimensions);
    let given = if geometry.layered { &sources[1..=dimensions] } else { &sources[..dimensions] };
    let mut at = [0i64; 3];
    for (to, &from) in at.iter_mut().zip(given) {
        *to = from.cast_signed().into();
    }
    if geometry.layered {
        at[2] = sources[0].into();
    }
    let row = u64::from(image.extent[0]) * image.texel_bytes();
    let last = [row as i64 - bytes as i64, i64::from(image.extent[1]) - 1, i64::from(image.extent[2]) - 1];
    if at.iter().zip(last).any(|(&at, last)| !(0..=last).contains(&at)) {
        match bounds {
            Bounds::Zero => return Ok(None),
            Bounds::Clamp if last[0] >= 0 => {
                at.iter_mut().zip(last).for_each(|(at, last)| *at = (*at).clamp(0, last));
            }
            Bounds::Clamp | Bounds::Trap => {
                let [x, y, z] = at;
                let [_, height, depth] = image.extent;
                let text = format!(
                    "surface access of {bytes} bytes at ({x},{y},{z}) of {row} bytes by {height} by {depth}"
                );
                return Err((FaultKind::OutOfBounds, text));
            }
        }
    }
    let address = image.row(at[1] as u32, at[2] as u32) + at[0] as u64;
    if !address.is_multiple_of(bytes) {
        let text = format!("misaligned surface access of {bytes} bytes at byte {} of a row", at[0]);
        return Err((FaultKind::Misaligned, text));
    }
    Ok(Some(address))
}

/// # Safety
/// The frame has `reg`, a long if `bytes` is 8 and else a word.
unsafe fn data(lanes: &Lanes, reg: Reg, bytes: u8, lane: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            8 => lanes.source::<u64>(reg)[lane],
            _ => lanes.source::<u32>(reg)[lane].into(),
        }
    }
}

/// # Safety
/// `address` is valid for an aligned read of 1, 2, 4 or 8 bytes.
unsafe fn read(address: u64, bytes: u8) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 => (address as *const u8).read().into(),
            2 => (address as *const u16).read().into(),
            4 => (address as *const u32).read().into(),
            _ => (address as *const u64).read(),
        }
    }
}

/// # Safety
/// `address` is valid for an aligned write of 1, 2, 4 or 8 bytes.
unsafe fn write(address: u64, bytes: u8, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 => (address as *mut u8).write(value as u8),
            2 => (address as *mut u16).write(value as u16),
            4 => (address as *mut u32).write(value as u32),
            _ => (address as *mut u64).write(value),
        }
    }
}

/// # Safety
/// `address` is valid for aligned atomic accesses of 4 or 8 bytes.
unsafe fn reduce(address: u64, bytes: u8, combine: Combine, operand: u64) {
    if bytes == 8 {
        // SAFETY: the caller's promise.
        let cell = unsafe { &*(address as *const AtomicU64) };
        let _ = cell
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |old| Some(combine.apply(old, operand, 64)));
    } else {
        // SAFETY: the caller's promise.
        let cell = unsafe { &*(address as *const AtomicU32) };
        let update = |old: u32| Some(combine.apply(old.into(), operand, 32) as u32);
        let _ = cell.fetch_update(Ordering::SeqCst, Ordering::Relaxed, update);
    }
}

impl Combine {
    /// Combines the low `bits` bits of two values, the upper ones of which are clear.
    fn apply(self, old: u64, operand: u64, bits: u32) -> u64 {
        let signed = |value: u64| (value << (64 - bits)).cast_signed();
        let less = |is_signed: bool| if is_signed { signed(old) < signed(operand) } else { old < operand };
        match self {
            Combine::Add => old.wrapping_add(operand),
            Combine::And => old & operand,
            Combine::Or => old | operand,
            Combine::Min { signed } => {
                if less(signed) {
                    old
                } else {
                    operand
                }
            }
            Combine::Max { signed } => {
                if less(signed) {
                    operand
                } else {
                    old
                }
            }
        }
    }
}

fn answer(image: &Image, query: Query) -> u32 {
    match query {
        Query::Width => image.extent[0],
        Query::Height => image.extent[1],
        Query::Depth | Query::Layers => image.extent[2],
        Query::Levels => 1,
        Query::Normalized | Query::Linear => 0,
    }
}
