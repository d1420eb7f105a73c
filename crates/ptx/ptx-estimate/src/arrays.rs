//! The arrays of a launch: their sizes, and which of them hold offsets of rows in others.
//!
//! A compressed sparse matrix has an array of offsets: the elements of row `i` are those from
//! `offsets[i]` to `offsets[i + 1]`. Code that loads two neighbours, both of which bound a loop,
//! tells such an array ([`mark`]). What it holds is guessed accordingly: rows have
//! as many elements on average as the arrays that are accessed at guessed places have for each row,
//! between none and twice as many.

use super::ALLOCATION_BITS;
use super::code::{Action, Code, Kind};
use super::loops::Loops;
use super::value::guess;
use ptx::instruction::Direction;

/// Elements of a row if nothing is known.
const UNKNOWN_ELEMENTS: u64 = 8;
/// Allocations that are told apart where no sizes are known.
const MOST_UNKNOWN: usize = 64;
/// Loads of a function beyond which none is looked at.
const MOST_LOADS: usize = 64;

/// An allocation.
#[derive(Clone, Copy, Debug, Default)]
struct Array {
    /// Bytes of an element, of what is accessed at guessed places; 0 if nothing is.
    element: u64,
    /// Bytes of an offset, if it holds offsets.
    offset: u64,
}

/// The allocations of a launch.
#[derive(Clone, Debug)]
pub(super) struct Arrays<'s> {
    sizes: &'s [u64],
    arrays: Vec<Array>,
}

/// The allocation that an address is nearest to: its number, and where it begins.
fn nearest(address: u64) -> (usize, u64) {
    let allocation = address.wrapping_add(1 << (ALLOCATION_BITS - 1)) >> ALLOCATION_BITS;
    ((allocation as usize).wrapping_sub(1), allocation << ALLOCATION_BITS)
}

impl<'s> Arrays<'s> {
    pub(super) fn new(sizes: &'s [u64]) -> Arrays<'s> {
        Arrays { sizes, arrays: vec![Array::default(); sizes.len().max(MOST_UNKNOWN)] }
    }

    /// Whether sizes are known: of launches that a session recorded.
    pub(super) fn are_known(&self) -> bool {
        !self.sizes.is_empty()
    }

    /// Moves the guessed address of an access of `bytes` into the address's allocation.
    pub(super) fn within(&self, address: u64, bytes: u64) -> u64 {
        let (index, start) = nearest(address);
        let size = self.sizes.get(index).map(|size| size - size % bytes).filter(|size| *size > 0);
        size.map_or(address, |size| {
            start + (address.wrapping_sub(start) as i64).rem_euclid(size as i64) as u64
        })
    }

    /// Returns the number of times that an address can advance by `step` before an access of
    /// `bytes` leaves the allocation.
    pub(super) fn room(&self, address: u64, step: i64, bytes: u64) -> Option<u64> {
        let (index, start) = nearest(address);
        let size = *self.sizes.get(index)?;
        let offset = address.checked_sub(start)?;
        let left = if step < 0 { offset } else { size.checked_sub(offset.checked_add(bytes)?)? };
        left.checked_div(step.unsigned_abs())
    }

    /// Something is accessed at a guessed address.
    pub(super) fn scattered(&mut self, address: u64, bytes: u64) {
        if let Some(array) = self.arrays.get_mut(nearest(address).0) {
            array.element = if array.element == 0 { bytes } else { bytes.min(array.element) };
        }
    }

    /// A number at this address is one of the offsets of rows.
    pub(super) fn offsets(&mut self, address: u64, bytes: u64) {
        if let Some(array) = self.arrays.get_mut(nearest(address).0) {
            array.offset = bytes;
        }
    }

    /// The offset at this address, if the allocation holds such.
    pub(super) fn offset_at(&self, address: u64) -> Option<u64> {
        let (index, start) = nearest(address);
        let bytes = self.arrays.get(index)?.offset;
        let row = address.wrapping_sub(start).checked_div(bytes)?;
        let elements = self.elements(index, bytes);
        let own = guess(address, Kind::Integer { bits: 32, signed: false }) % elements;
        Some(row.wrapping_mul(elements).wrapping_add(own))
    }

    /// Elements of a row.
    fn elements(&self, offsets: usize, bytes: u64) -> u64 {
        let Some(rows) = self.sizes.get(offsets).map(|size| size / bytes).filter(|rows| *rows > 0) else {
            return UNKNOWN_ELEMENTS;
        };
        let others = self.sizes.iter().zip(&self.arrays).enumerate().filter(|(index, _)| *index != offsets);
        let counts = others.filter_map(|(_, (size, array))| size.checked_div(array.element));
        // Arrays with an element for each row are accessed too, at places that the elements name.
        counts.map(|count| count / rows).filter(|elements| *elements > 1).min().unwrap_or(UNKNOWN_ELEMENTS)
    }
}

/// Marks the loads of two neighbours that bound a loop together.
pub(super) fn mark(code: &mut Code, loops: &Loops) {
    let loads: Vec<usize> = code
        .steps
        .iter()
        .enumerate()
        .filter_map(|(index, step)| match &step.action {
            Action::Access(access)
                if access.direction == Direction::Load
                    && access.to.len() == 1
                    && matches!(access.element, Kind::Integer { bits: 32 | 64, .. }) =>
            {
                Some(index)
            }
            _ => None,
        })
        .collect();
    let address = |load: usize| match &code.steps[load].action {
        Action::Access(access) => (access.address, access.offset, i64::from(access.element.bits() / 8)),
        _ => (0, 0, 0),
    };
    let mut pairs = Vec::new();
    for (first, &one) in loads.iter().enumerate().take(MOST_LOADS) {
        for (second, &other) in loads.iter().enumerate().take(MOST_LOADS) {
            let ((base, offset, bytes), (next, behind, _)) = (address(one), address(other));
            if base == next && offset + bytes == behind {
                pairs.push((first, second));
            }
        }
    }
    if pairs.is_empty() {
        return;
    }
    let flows = flows(code, &loads);
    let of = |register: u32| flows.get(register as usize).copied().unwrap_or(0);
    let mut marked = Vec::new();
    for &bound in loops.loops.iter().flat_map(|of_loop| &of_loop.bounds) {
        let Action::Compare(comparison) = &code.steps[bound].action else { continue };
        let all = of(comparison.a) | of(comparison.b);
        let decides = |&&(one, other): &&(usize, usize)| (all >> one & all >> other) & 1 == 1;
        marked.extend(pairs.iter().filter(decides).flat_map(|&(one, other)| [loads[one], loads[other]]));
    }
    for index in marked {
        if let Action::Access(access) = &mut code.steps[index].action {
            access.is_offset = true;
        }
    }
}

/// Returns, for each register, a bit for each of these loads from which it is computed.
fn flows(code: &Code, loads: &[usize]) -> Vec<u64> {
    let mut flows = vec![0u64; code.registers];
    for (bit, &load) in loads.iter().enumerate().take(MOST_LOADS) {
        code.steps[load].action.writes(|to| flows[to as usize] |= 1 << bit);
    }
    loop {
        let mut changed = false;
        for step in &code.steps {
            let Action::Compute { to, .. } = step.action else { continue };
            let mut all = 0;
            step.action.reads(|register| all |= flows[register as usize]);
            if let Some(flow) = flows.get_mut(to as usize) {
                changed |= all & !*flow != 0;
                *flow |= all;
            }
        }
        if !changed {
            return flows;
        }
    }
}
