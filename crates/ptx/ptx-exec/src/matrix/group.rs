//! `wgmma`: a product of a warp group, of which each warp computes 16 rows.
//!
//! B and often A lie in shared memory, as a descriptor of 64 bits says: its start, the distances
//! between parts, and how 16-byte units are permuted (PTX ISA, "Matrix Descriptor"). The product
//! is done when it is issued, by each warp for itself. The sums are those of `mma` on the same
//! formats.

use crate::fault::FaultKind;
use crate::matrix::layout::{Layout, Shape};
use crate::matrix::product::Arithmetic;
use crate::matrix::sparse::Sparse;
use crate::matrix::{gather, run_wide, scatter};
use crate::memory::spaces::{AccessFault, Accessed, Spaces};
use crate::operands::{Class, Reg, Role};
use crate::registers::lanes::Lanes;

/// Rows of a warp.
const ROWS: usize = 16;

/// Columns that are computed at a time: those of a tile of the accumulator.
const COLUMNS: usize = 8;

/// A product of a warp group. The sources of its step are the registers of A, if A is in registers,
/// and of C; the results are those of D.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) arithmetic: Arithmetic,
    /// Columns of B.
    pub(crate) n: usize,
    /// Elements of a line of A and B, and bits of an element.
    pub(crate) k: usize,
    pub(crate) bits: u32,
    /// Bits of an element of C and D.
    pub(crate) sum_bits: u32,
    /// A in shared memory; `None` if it is in registers.
    pub(crate) a: Option<Factor>,
    pub(crate) b: Factor,
    /// Whether the factors are negated.
    pub(crate) negated: [bool; 2],
    /// Whether C is added: a predicate, or always or never.
    pub(crate) adds: Adds,
    /// How A is sparse, if it is, and its metadata: then a line of A has half as many elements.
    pub(crate) sparse: Option<(Sparse, Reg)>,
    /// The number of the warp in its block.
    pub(crate) warp: Reg,
}

/// Whether C is added.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Adds {
    If(Reg),
    Known(bool),
}

/// A factor in shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factor {
    /// The descriptor.
    pub(crate) descriptor: Reg,
    /// Whether the elements along k are apart and those of different lines together.
    pub(crate) across: bool,
}

impl Group {
    /// A tile of the accumulator.
    fn tile(&self) -> Layout {
        Layout::accumulator(Shape { m: ROWS, n: COLUMNS, k: self.k }, self.sum_bits)
    }

    /// Elements of a line of A.
    fn length(&self) -> usize {
        if self.sparse.is_some() { self.k / 2 } else { self.k }
    }

    /// A in registers.
    fn rows(&self) -> Layout {
        Layout::a(Shape { m: ROWS, n: COLUMNS, k: self.length() }, self.bits)
    }

    /// Registers of A, and of C or D.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let a = if self.a.is_some() { 0 } else { self.rows().registers };
        (a, self.tile().registers * self.n / COLUMNS)
    }

    /// Shows the registers that are no elements.
    pub(super) fn registers(&mut self, show: &mut dyn FnMut(&mut Reg, Role)) {
        if let Some(a) = &mut self.a {
            show(&mut a.descriptor, Role::Use);
        }
        show(&mut self.b.descriptor, Role::Use);
        if let Adds::If(predicate) = &mut self.adds {
            show(predicate, Role::Use);
        }
        if let Some((_, metadata)) = &mut self.sparse {
            show(metadata, Role::Use);
        }
        show(&mut self.warp, Role::Use);
    }

    /// Whether these have the right classes.
    pub(super) fn takes(&self, class: impl Fn(Reg) -> Class) -> bool {
        let mut descriptors = self.a.iter().chain([&self.b]);
        descriptors.all(|factor| class(factor.descriptor) == Class::Long)
            && class(self.warp) == Class::Word
            && self.sparse.is_none_or(|(_, metadata)| class(metadata) == Class::Word)
            && match self.adds {
                Adds::If(predicate) => class(predicate) == Class::Predicate,
                Adds::Known(_) => true,
            }
    }

    /// Multiplies for a warp.
    ///
    /// # Safety
    /// As for [`MatrixStep::run`](super::MatrixStep::run).
    pub(super) unsafe fn run(
        &self,
        lanes: &Lanes,
        spaces: &Spaces,
        sources: &[Reg],
        results: &[Reg],
    ) -> Accessed {
        let (a, c) = sources.split_at(self.counts().0);
        // SAFETY: the caller's promise, here and below.
        let (warp, adds) = unsafe {
            let adds = match self.adds {
                Adds::If(predicate) => lanes.predicate(predicate) & 1 != 0,
                Adds::Known(adds) => adds,
            };
            (lanes.source::<u32>(self.warp)[0] as usize % 4, adds)
        };
        // SAFETY: as above.
        let metadata = self.sparse.map(|(_, metadata)| unsafe { lanes.source::<u32>(metadata) });
        let mut rows = match self.a {
            // SAFETY: as above.
            None => unsafe { gather::<u32>(lanes, &self.rows(), a) },
            // SAFETY: as above.
            Some(factor) => unsafe { self.lines(lanes, spaces, factor, (warp * ROWS, ROWS), self.length())? },
        };
        // SAFETY: as above.
        let mut columns = unsafe { self.lines(lanes, spaces, self.b, (0, self.n), self.k)? };
        let sign = 1 << (self.bits - 1);
        for (elements, negated) in [&mut rows, &mut columns].into_iter().zip(self.negated) {
            if negated {
                elements.iter_mut().for_each(|element| *element ^= sign);
            }
        }
        let (tile, shape) = (self.tile(), Shape { m: ROWS, n: COLUMNS, k: self.k });
        let tiles = columns.chunks_exact(COLUMNS * self.k);
        let sums = c.chunks_exact(tile.registers).zip(results.chunks_exact(tile.registers));
        for (columns, (c, d)) in tiles.zip(sums) {
            let c = match adds {
                // SAFETY: as above.
                true => unsafe { gather::<u32>(lanes, &tile, c) },
                false => vec![0; ROWS * COLUMNS],
            };
            let mut sum = vec![0; ROWS * COLUMNS];
            run_wide(
                #[inline(always)]
                || match (self.sparse, &metadata) {
                    (Some((sparse, _)), Some(metadata)) => {
                        sparse.multiply(&self.arithmetic, metadata, shape, (&rows, columns), (&c, &mut sum));
                    }
                    _ => self.arithmetic.multiply(shape, (&rows, columns), &c, &mut sum),
                },
            );
            // SAFETY: as above.
            unsafe { scatter(lanes, &tile, &sum, d) };
        }
        Ok(())
    }

    /// Lines of a factor in shared memory, one after the other, of `length` elements each.
    ///
    /// # Safety
    /// The frame has the descriptor; the window in `spaces` is this block's.
    unsafe fn lines(
        &self,
        lanes: &Lanes,
        spaces: &Spaces,
        factor: Factor,
        (first, count): (usize, usize),
        length: usize,
    ) -> Result<Vec<u32>, Box<AccessFault>> {
        // SAFETY: the caller's promise.
        let bits = unsafe { lanes.source::<u64>(factor.descriptor)[0] };
        let descriptor = Descriptor::of_bits(bits);
        let (size, window) = (u64::from(self.bits / 8), spaces.shared.end - spaces.shared.start);
        let mut elements = Vec::with_capacity(count * length);
        for line in first..first + count {
            for at in 0..length {
                let offset = descriptor.place(line as u64, at as u64, size, factor.across);
                if offset + size > window {
                    let text = format!(
                        "a matrix descriptor leads to offset {offset:#x} of {window} bytes of shared memory"
                    );
                    let kind = FaultKind::OutOfBounds;
                    return Err(Box::new(AccessFault { lane: 0, address: offset, kind, text }));
                }
                let mut element = [0; 4];
                // SAFETY: the bytes lie in the window, as has just been seen.
                unsafe {
                    let from = (spaces.shared.start + offset) as *const u8;
                    std::ptr::copy_nonoverlapping(from, element.as_mut_ptr(), size as usize);
                }
                elements.push(u32::from_le_bytes(element));
            }
        }
        Ok(elements)
    }
}

/// A matrix descriptor, taken apart; all in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descriptor {
    start: u64,
    leading: u64,
    stride: u64,
    /// Bytes within which units of 16 bytes are permuted: 128, 64 or 32; 16 without.
    width: u64,
}

impl Descriptor {
    fn of_bits(bits: u64) -> Descriptor {
        let field = |shift: u32| (bits >> shift & 0x3fff) << 4;
        let width = match bits >> 62 {
            0 => 16,
            1 => 128,
            2 => 64,
            _ => 32,
        };
        Descriptor { start: field(0), leading: field(16), stride: field(32), width }
    }

    /// The offset in shared memory of an element of `size` bytes: the one `at` along k of a line.
    fn place(&self, line: u64, at: u64, size: u64, across: bool) -> u64 {
        let Descriptor { start, leading, stride, width } = *self;
        // Byte along the direction that lies together, and place along the other.
        let (byte, other) = if across { (line * size, at) } else { (at * size, line) };
        let (part, inside) = (byte / width, byte % width);
        let rows = other % 8 * width;
        let plain = match (across, width) {
            // Eight units of 16 bytes make a core matrix.
            (false, 16) => part * leading + other / 8 * stride,
            (true, 16) => part * stride + other / 8 * leading,
            (false, _) => part * width * 8 + other / 8 * stride,
            (true, _) => part * leading + other / 8 * stride,
        };
        let address = start + plain + rows + inside;
        address ^ (address >> 7 & (width / 16 - 1)) << 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_taken_apart_as_the_isa_says() {
        let bits = 0x1234 >> 4 | 5 << 16 | 64 << 32 | 1 << 62;
        let expected = Descriptor { start: 0x1230, leading: 80, stride: 1024, width: 128 };
        assert_eq!(Descriptor::of_bits(bits), expected);
    }
}
