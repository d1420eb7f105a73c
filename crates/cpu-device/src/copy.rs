//! Copies and fills: every `cuMemcpy…` and `cuMemset…` in one normal form.
//!
//! A copy moves a box of rows; a flat copy is a box of one row. What a side is (host memory, the device's, or
//! whichever its address says) is settled and checked when the copy is submitted, so that a bad one is
//! refused by the call that asked for it and never fails later.

use crate::device::{self, Device};
use crate::error::{Error, Result, ensure, fail};
use crate::memory::{Allocation, Kind};
use cuda_abi::types::*;
use std::sync::Arc;

/// Where one side of a copy starts, and how its rows lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The address of the first byte of the box.
    pub address: u64,
    /// From the start of one row to that of the next, in bytes.
    pub pitch: u64,
    /// From the start of one layer of rows to that of the next, in bytes.
    pub layer: u64,
}

impl Side {
    /// A side that is one run of bytes.
    pub fn flat(address: u64) -> Side {
        Side { address, pitch: 0, layer: 0 }
    }

    fn row(&self, row: u64, layer: u64) -> u64 {
        self.address + row * self.pitch + layer * self.layer
    }
}

/// A box in bytes, rows and layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes in a row.
    pub width: u64,
    /// Rows in a layer.
    pub height: u64,
    /// Layers.
    pub depth: u64,
}

impl Extent {
    /// One run of bytes.
    pub fn flat(bytes: u64) -> Extent {
        Extent { width: bytes, height: 1, depth: 1 }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }

    /// From the first byte of a side's box to behind the last.
    fn span(&self, side: &Side) -> Option<u64> {
        let rows = (self.height - 1).checked_mul(side.pitch)?;
        let layers = (self.depth - 1).checked_mul(side.layer)?;
        self.width.checked_add(rows)?.checked_add(layers)
    }
}

/// What the caller says a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Host memory. It may be anything that the program can address.
    Host,
    /// The device's memory, or host memory that the device knows.
    Device,
    /// Whatever the address says.
    Unified,
    /// The CUDA array with this handle, whose texels the side points at.
    Array(u64),
}

/// What a side turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// Host memory that the device does not know.
    Pageable,
    /// Host memory that it does.
    Pinned,
    /// The device's own.
    Device,
    /// A CUDA array, by its handle.
    Array(u64),
}

/// A copy that has been checked.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Where from.
    pub source: Side,
    /// Where to.
    pub destination: Side,
    /// How much.
    pub extent: Extent,
    /// What the source is.
    pub from: Residence,
    /// What the destination is.
    pub to: Residence,
    /// The source's bytes, where they were taken when the copy was submitted.
    staged: Option<Arc<[u8]>>,
}

impl Copy {
    /// Checks a copy; `None` when there is nothing to do.
    pub fn new(
        device: &Device,
        (source, from): (Side, Place),
        (destination, to): (Side, Place),
        extent: Extent,
    ) -> Result<Option<Copy>> {
        if extent.is_empty() {
            return Ok(None);
        }
        for side in [&source, &destination] {
            ensure(extent.height == 1 || side.pitch >= extent.width, CUDA_ERROR_INVALID_VALUE)?;
        }
        let from = check_side(device, &source, from, &extent)?;
        let to = check_side(device, &destination, to, &extent)?;
        Ok(Some(Copy { source, destination, extent, from, to, staged: None }))
    }

    /// Whether the program may touch its host memory as soon as an asynchronous call returns, so that the
    /// call has to be done with it by then.
    pub fn touches_pageable_memory(&self) -> bool {
        self.from == Residence::Pageable || self.to == Residence::Pageable
    }

    /// Whether both sides are the device's own.
    pub fn is_inside_the_device(&self) -> bool {
        [self.from, self.to].iter().all(|side| matches!(side, Residence::Device | Residence::Array(_)))
    }

    /// Takes a small pageable source now, as the driver does: the copy itself can then be done later. False
    /// where that is not possible.
    ///
    /// # Safety
    ///
    /// The source is readable.
    pub unsafe fn stage(&mut self) -> bool {
        const STAGED: u64 = 64 << 10;
        let flat = self.extent.height == 1 && self.extent.depth == 1;
        if self.from != Residence::Pageable
            || self.to == Residence::Pageable
            || !flat
            || self.extent.width > STAGED
        {
            return false;
        }
        // SAFETY: the caller vouches for the source; it is `width` bytes long, as the extent is flat.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.source.address as *const u8, self.extent.width as usize)
        };
        self.staged = Some(bytes.into());
        true
    }

    /// Moves the bytes.
    pub fn execute(&self) -> Result {
        let memory = &device::get()?.memory;
        let Extent { width, height, depth } = self.extent;
        if let Some(staged) = &self.staged {
            // SAFETY: the destination was checked to hold `width` bytes, the length of what was staged.
            unsafe { std::ptr::copy(staged.as_ptr(), self.destination.address as *mut u8, staged.len()) };
            memory.note_written(self.destination.address, staged.len() as u64);
            return Ok(());
        }
        for layer in 0..depth {
            for row in 0..height {
                let source = self.source.row(row, layer) as *const u8;
                let destination = self.destination.row(row, layer) as *mut u8;
                // SAFETY: sides that the device knows were checked to hold the whole box when the copy was
                // made, and freeing waits for work that has been submitted; the program vouches for the
                // others. The ranges may overlap, which `copy` allows.
                unsafe { std::ptr::copy(source, destination, width as usize) };
                memory.note_copied(destination as u64, source as u64, width);
            }
        }
        Ok(())
    }
}

/// A fill that has been checked.
#[derive(Clone, Debug)]
pub struct Fill {
    /// Where to.
    pub destination: Side,
    /// The value's low bytes are what is repeated.
    pub value: u32,
    /// How many bytes of it: 1, 2 or 4.
    pub element: u32,
    /// How much; the width is a whole number of elements.
    pub extent: Extent,
}

impl Fill {
    /// Checks a fill of `width` elements by `height` rows; `None` when there is nothing to do.
    pub fn new(
        device: &Device,
        destination: Side,
        value: u32,
        element: u32,
        width: u64,
        height: u64,
    ) -> Result<Option<Fill>> {
        ensure(matches!(element, 1 | 2 | 4), CUDA_ERROR_INVALID_VALUE)?;
        let width = width.checked_mul(element.into()).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        let extent = Extent { width, height, depth: 1 };
        if extent.is_empty() {
            return Ok(None);
        }
        let aligned = |address: u64| address.is_multiple_of(element.into());
        ensure(aligned(destination.address), CUDA_ERROR_INVALID_VALUE)?;
        ensure(
            height == 1 || (destination.pitch >= width && aligned(destination.pitch)),
            CUDA_ERROR_INVALID_VALUE,
        )?;
        check_side(device, &destination, Place::Device, &extent)?;
        Ok(Some(Fill { destination, value, element, extent }))
    }

    /// Writes the value.
    pub fn execute(&self) -> Result {
        let memory = &device::get()?.memory;
        for row in 0..self.extent.height {
            let start = self.destination.row(row, 0);
            memory.note_written(start, self.extent.width);
            let count = (self.extent.width / u64::from(self.element)) as usize;
            // SAFETY: the destination was checked to hold the whole box, to be aligned to the element, and to
            // belong to the device; freeing waits for work that has been submitted.
            unsafe {
                match self.element {
                    1 => std::ptr::write_bytes(start as *mut u8, self.value as u8, count),
                    2 => std::slice::from_raw_parts_mut(start as *mut u16, count).fill(self.value as u16),
                    _ => std::slice::from_raw_parts_mut(start as *mut u32, count).fill(self.value),
                }
            }
        }
        Ok(())
    }
}

/// Holds a side against what the device knows of its address.
fn check_side(device: &Device, side: &Side, place: Place, extent: &Extent) -> Result<Residence> {
    let span = extent.span(side).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
    let is_device = matches!(place, Place::Device | Place::Array(_));
    match device.memory.find(side.address) {
        Some(allocation) if allocation.holds(side.address, span) => Ok(match place {
            Place::Array(handle) => Residence::Array(handle),
            _ => residence(&allocation),
        }),
        // A host pointer may start inside of a registered range and leave it: that much is pageable.
        Some(allocation) if !is_device && allocation.kind.is_host() => Ok(Residence::Pageable),
        Some(_) => fail(CUDA_ERROR_INVALID_VALUE),
        None if is_device || side.address == 0 => fail(CUDA_ERROR_INVALID_VALUE),
        None => Ok(Residence::Pageable),
    }
}

fn residence(allocation: &Allocation) -> Residence {
    match allocation.kind {
        Kind::Pinned | Kind::Registered => Residence::Pinned,
        _ => Residence::Device,
    }
}
