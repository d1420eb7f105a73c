//! Copies and fills: every `cuMemcpy…` and `cuMemset…` in one normal form.
//!
//! A copy moves a box of rows; a flat copy is a box of one row. The kind of each side (host memory,
//! device memory, or whatever its address belongs to) is determined and checked when the copy is
//! submitted, so that the call which requested an invalid copy refuses it. Memory may be freed
//! before the copy executes, especially in a graph. Each side is therefore looked up again when
//! bytes are moved; memory that no longer exists is a fault of the context. Only addresses count: a
//! new allocation at the same address is as valid as the original one.

use crate::device::{self, Device};
use crate::error::{Error, Result, ensure, fail};
use crate::fault::Access;
use crate::memory::host::{self, Missing};
use crate::memory::{Allocation, Kind, Memory};
use crate::thread;
use cuda_abi::types::*;
use std::sync::Arc;

/// The start of one side of a copy, and the layout of its rows.
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

/// The kind of memory that the caller declares for a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredMemory {
    /// Host memory. It may be anything that the program can address.
    Host,
    /// The device's memory, or host memory that the device knows.
    Device,
    /// Whatever the address says.
    Unified,
    /// The CUDA array with this handle, whose texels the side points at.
    Array(u64),
}

/// The kind of memory that a side was found to be.
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
    /// The source.
    pub source: Side,
    /// The destination.
    pub destination: Side,
    /// The size of the copied box.
    pub extent: Extent,
    /// The source's kind of memory.
    pub from: Residence,
    /// The destination's kind of memory.
    pub to: Residence,
    /// The driver function that asked for it.
    call: &'static str,
    /// The source's bytes, where they were taken when the copy was submitted.
    staged: Option<Arc<[u8]>>,
}

impl Copy {
    /// Checks a copy; `None` when there is nothing to do.
    pub fn new(
        device: &Device,
        (source, from): (Side, DeclaredMemory),
        (destination, to): (Side, DeclaredMemory),
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
        Ok(Some(Copy { source, destination, extent, from, to, call: thread::call(), staged: None }))
    }

    /// Whether the program may touch its host memory as soon as an asynchronous call returns, so
    /// that the call has to be done with it by then.
    pub fn touches_pageable_memory(&self) -> bool {
        self.from == Residence::Pageable || self.to == Residence::Pageable
    }

    /// Whether both sides are the device's own.
    pub fn is_inside_the_device(&self) -> bool {
        [self.from, self.to].iter().all(|side| matches!(side, Residence::Device | Residence::Array(_)))
    }

    /// Takes a small pageable source now, as the driver does: the copy itself can then be done
    /// later. False where that is not possible.
    pub fn stage(&mut self) -> bool {
        // Copies of 1 MiB return before they are done, those of 4 MiB wait: seen on an H200,
        // driver 580.
        const STAGED: u64 = 1 << 20;
        let flat = self.extent.height == 1 && self.extent.depth == 1;
        if self.from != Residence::Pageable
            || self.to == Residence::Pageable
            || !flat
            || self.extent.width > STAGED
        {
            return false;
        }
        let mut bytes = vec![0; self.extent.width as usize];
        // SAFETY: the source is the program's, the vector is this function's.
        let copied = unsafe { host::copy(self.source.address, bytes.as_mut_ptr() as u64, self.extent.width) };
        self.staged = copied.is_ok().then(|| bytes.into());
        self.staged.is_some()
    }

    /// Moves the bytes.
    pub fn execute(&self) -> Result {
        let memory = &device::get()?.memory;
        let _pin = memory.pin();
        let to = self.owner(memory, true)?;
        if let Some(staged) = &self.staged {
            let (source, bytes) = (staged.as_ptr() as u64, staged.len() as u64);
            // SAFETY: what was staged is this copy's; the destination is the program's, or stays
            // mapped while it is pinned.
            unsafe { to.copy(&[(source, self.destination.address)], bytes) }
                .map_err(|missing| self.missing(memory, missing))?;
            memory.note_written(self.destination.address, bytes);
            return Ok(());
        }
        let owner = to.or(self.owner(memory, false)?);
        let Extent { width, height, depth } = self.extent;
        for layer in 0..depth {
            for first in (0..height).step_by(ROWS_AT_ONCE as usize) {
                let rows = first..height.min(first + ROWS_AT_ONCE);
                let rows: Vec<(u64, u64)> =
                    rows.map(|row| (self.source.row(row, layer), self.destination.row(row, layer))).collect();
                // SAFETY: both sides belong to the program, or stay mapped while they are pinned.
                unsafe { owner.copy(&rows, width) }.map_err(|missing| self.missing(memory, missing))?;
                for (source, destination) in rows {
                    memory.note_copied(destination, source, width);
                }
            }
        }
        Ok(())
    }

    /// Returns the present owner of a side's memory.
    fn owner(&self, memory: &Memory, write: bool) -> Result<Owner> {
        let (side, residence) = if write { (&self.destination, self.to) } else { (&self.source, self.from) };
        let access = Access { call: self.call, address: side.address, bytes: self.extent.width, write };
        owner(memory, side, residence, &self.extent, access)
    }

    /// The fault of memory that the program does not have.
    fn missing(&self, memory: &Memory, missing: Missing) -> Error {
        missing_fault(memory, missing, self.call)
    }
}

/// Rows that are moved with one system call where the program's memory takes part.
const ROWS_AT_ONCE: u64 = 256;

/// The owner of the memory of one side or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// All of it is the device's: it stays mapped while it is pinned.
    Device,
    /// Some of it is the program's: it may be missing.
    Program,
}

impl Owner {
    fn or(self, other: Owner) -> Owner {
        if self == Owner::Device { other } else { self }
    }

    /// Copies rows of `width` bytes, from the first address of each pair to the second.
    ///
    /// # Safety
    ///
    /// All rows are the program's, or stay mapped; where the device owns them, all stay mapped.
    unsafe fn copy(self, rows: &[(u64, u64)], width: u64) -> std::result::Result<(), Missing> {
        if self == Owner::Program {
            // SAFETY: the caller's promise.
            return unsafe { host::copy_rows(rows, width) };
        }
        for (source, destination) in rows {
            // SAFETY: both rows stay mapped. They may overlap, which `copy` allows.
            unsafe { std::ptr::copy(*source as *const u8, *destination as *mut u8, width as usize) };
        }
        Ok(())
    }
}

/// Returns the owner of a side's memory at its execution; a fault if the memory was the device's
/// and has been freed.
fn owner(
    memory: &Memory,
    side: &Side,
    residence: Residence,
    extent: &Extent,
    access: Access,
) -> Result<Owner> {
    let span = extent.span(side).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
    match (residence, memory.find(side.address)) {
        (Residence::Pageable, _) => Ok(Owner::Program),
        (_, Some(found)) if found.holds(side.address, span) => {
            Ok(if found.kind == Kind::Registered { Owner::Program } else { Owner::Device })
        }
        // What is registered no more is pageable.
        (Residence::Pinned, None) if !memory.has_freed(side.address) => Ok(Owner::Program),
        _ => Err(access.fault(&memory.describe(side.address))),
    }
}

/// The fault of a call that has met memory which the program does not have.
fn missing_fault(memory: &Memory, missing: Missing, call: &'static str) -> Error {
    let Missing { address, write } = missing;
    let known = memory.find(address).is_some() || memory.has_freed(address);
    let place = if known {
        memory.describe(address)
    } else {
        "host memory that is not mapped, or is protected".to_owned()
    };
    Access { call, address, bytes: 1, write }.fault(&place)
}

/// A fill that has been checked.
#[derive(Clone, Debug)]
pub struct Fill {
    /// The destination.
    pub destination: Side,
    /// The value's low bytes are what is repeated.
    pub value: u32,
    /// The size of an element in bytes: 1, 2 or 4.
    pub element: u32,
    /// The size of the filled box; the width is a whole number of elements.
    pub extent: Extent,
    /// The driver function that asked for it.
    call: &'static str,
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
        check_side(device, &destination, DeclaredMemory::Device, &extent)?;
        Ok(Some(Fill { destination, value, element, extent, call: thread::call() }))
    }

    /// Writes the value.
    pub fn execute(&self) -> Result {
        let memory = &device::get()?.memory;
        let _pin = memory.pin();
        let Fill { destination, extent, call, .. } = self;
        let access = Access { call, address: destination.address, bytes: extent.width, write: true };
        let owner = owner(memory, destination, Residence::Device, extent, access)?;
        for row in 0..self.extent.height {
            let start = self.destination.row(row, 0);
            if owner == Owner::Program {
                let pattern = &self.value.to_le_bytes()[..self.element as usize];
                // SAFETY: the memory is the program's.
                unsafe { host::fill(start, extent.width, pattern) }
                    .map_err(|missing| missing_fault(memory, missing, call))?;
                continue;
            }
            memory.note_written(start, self.extent.width);
            let count = (self.extent.width / u64::from(self.element)) as usize;
            // SAFETY: the destination has just been found to hold the whole box, and stays mapped
            // while it is pinned; it was checked to be aligned to the element.
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
fn check_side(device: &Device, side: &Side, place: DeclaredMemory, extent: &Extent) -> Result<Residence> {
    let span = extent.span(side).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
    let is_device = matches!(place, DeclaredMemory::Device | DeclaredMemory::Array(_));
    match device.memory.find(side.address) {
        Some(allocation) if allocation.holds(side.address, span) => Ok(match place {
            DeclaredMemory::Array(handle) => Residence::Array(handle),
            _ => residence(&allocation),
        }),
        // A host pointer may start inside of a registered range and leave it: that much is
        // pageable.
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
