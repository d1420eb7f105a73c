//! The layout of a matrix's elements in the registers of a warp.
//!
//! A fragment is read and written as *lines*: a row of A, a column of B or a row of the
//! accumulator, each contiguous. So a product is always the dot product of two lines. The layouts
//! are those that the PTX ISA gives for `mma`. For `wmma`, where it gives none, they are those of
//! the `mma` instructions into which ptxas 13.0 turns it for sm_80 and sm_90: seen in its SASS,
//! m16n16 is two m16n8 side by side, m32n8 two on top of each other, and m8n32 the transpose of
//! m32n8.
//!
//! The lane `4g + t` belongs to the group `g` of eight, and is the `t`th of the four lanes in it.

use crate::registers::lanes::WARP;

/// The line, and the element of it, that each place of a fragment holds.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Registers of the fragment that differ; what comes after them repeats them.
    pub(crate) registers: usize,
    /// Elements in a register.
    pub(super) per: usize,
    /// Bits of an element in a register.
    pub(crate) bits: u32,
    /// Lines, and elements of a line.
    pub(super) lines: usize,
    pub(super) length: usize,
    /// The element that each place holds, counted through the lines: register by register, in it
    /// lane by lane.
    pub(super) places: Box<[u16]>,
}

/// The shape of a product: A is m by k, B is k by n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

impl Layout {
    fn new(
        (lines, length): (usize, usize),
        bits: u32,
        per: usize,
        registers: usize,
        place: impl Fn(usize, usize, usize) -> (usize, usize),
    ) -> Layout {
        let mut places = Vec::with_capacity(registers * WARP * per);
        for register in 0..registers {
            for lane in 0..WARP {
                for element in 0..per {
                    let (line, at) = place(register, lane, element);
                    places.push((line * length + at) as u16);
                }
            }
        }
        Layout { registers, per, bits, lines, length, places: places.into() }
    }

    /// A, or B transposed: `lines` lines of `length` elements, of which `per` with `bits` bits lie
    /// in a register.
    ///
    /// Lines come in tiles of eight, or of sixteen where the instruction takes them two and two.
    pub(crate) fn factor(lines: usize, paired: bool, length: usize, bits: u32) -> Layout {
        let per = if bits >= 32 { 1 } else { 32 / bits as usize };
        let fold = if paired { 2 } else { 1 };
        let in_tile = fold * length / (4 * per);
        let registers = in_tile * lines / (8 * fold);
        Layout::new((lines, length), bits, per, registers, |register, lane, element| {
            let (tile, register) = (register / in_tile, register % in_tile);
            let line = 8 * (fold * tile + register % fold) + lane / 4;
            (line, per * (lane % 4 + 4 * (register / fold)) + element)
        })
    }

    /// A of `mma`, and of `wmma`.
    pub(crate) fn a(shape: Shape, bits: u32) -> Layout {
        Layout::factor(shape.m, shape.m >= 16, shape.k, bits)
    }

    /// B of `mma`, and of `wmma`.
    pub(crate) fn b(shape: Shape, bits: u32) -> Layout {
        Layout::factor(shape.n, shape.n == 32, shape.k, bits)
    }

    /// C and D of `mma`, and of `wmma`.
    pub(crate) fn accumulator(shape: Shape, bits: u32) -> Layout {
        let Shape { m, n, .. } = shape;
        let per = if bits == 16 { 2 } else { 1 };
        // Elements of a lane in a tile of 8 or 16 rows and 8 columns.
        let in_tile = if m.max(n) == 8 { 2 } else { 4 };
        let registers = m * n / (WARP * per);
        Layout::new((m, n), bits, per, registers, |register, lane, element| {
            let index = register * per + element;
            let (tile, index) = (index / in_tile, index % in_tile);
            let (group, pair) = (8 * (index / 2) + lane / 4, 2 * (lane % 4) + index % 2);
            match (m, n) {
                (_, 32) => (pair, group + 16 * tile),
                (32, _) => (group + 16 * tile, pair),
                _ => (group, pair + 8 * tile),
            }
        })
    }

    /// A or B of `mma.m8n8k4.f16`, which multiplies four times, each time for eight lanes, a *quad
    /// pair*: `4q` to `4q + 3` and `16 + 4q` to `16 + 4q + 3`. A lane has four elements `along` its
    /// line, or the same one of four lines.
    pub(crate) fn quad_factor(along: bool) -> Layout {
        Layout::new((4 * 8, 4), 16, 2, 2, |register, lane, element| {
            let (line, other) = (lane % 4, 2 * register + element);
            let (line, at) = if along { (line, other) } else { (other, line) };
            (quad_line(lane, line), at)
        })
    }

    /// C or D of `mma.m8n8k4.f16`: the rows of the four products one after the other.
    pub(crate) fn quad_accumulator(bits: u32) -> Layout {
        let per = 32 / bits as usize;
        Layout::new((4 * 8, 8), bits, per, 8 / per, |register, lane, element| {
            let index = register * per + element;
            match bits {
                16 => (quad_line(lane, lane % 4), index),
                _ => (quad_line(lane, lane & 1 | index & 2), index & 4 | lane & 2 | index & 1),
            }
        })
    }

    /// The line and the element in it that a place holds.
    pub(super) fn line_and_element(&self, place: u16) -> (usize, usize) {
        (usize::from(place) / self.length, usize::from(place) % self.length)
    }

    /// The places of a register, lane by lane.
    pub(super) fn register(&self, register: usize) -> &[u16] {
        let size = WARP * self.per;
        let first = register % self.registers * size;
        &self.places[first..first + size]
    }
}

/// Line `line` of the half product that a lane has, among the lines of all four products.
fn quad_line(lane: usize, line: usize) -> usize {
    8 * (lane % 16 / 4) + 4 * (lane / 16) + line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element has exactly one place.
    fn is_complete(layout: &Layout, what: &str) {
        let mut seen = vec![0; layout.lines * layout.length];
        layout.places.iter().for_each(|&place| seen[usize::from(place)] += 1);
        assert!(seen.iter().all(|&count| count == 1), "{what}: {seen:?}");
    }

    #[test]
    fn fragments_hold_each_element_once() {
        let shapes = [
            (8, 8, 4, 64),
            (8, 8, 16, 8),
            (8, 8, 32, 4),
            (16, 8, 4, 32),
            (16, 8, 8, 16),
            (16, 8, 16, 16),
            (16, 8, 16, 64),
            (16, 8, 64, 4),
            (16, 16, 16, 8),
            (16, 16, 8, 32),
            (32, 8, 16, 16),
            (8, 32, 16, 16),
        ];
        for (m, n, k, bits) in shapes {
            let shape = Shape { m, n, k };
            is_complete(&Layout::a(shape, bits), &format!("A of {shape:?}"));
            is_complete(&Layout::b(shape, bits), &format!("B of {shape:?}"));
            for bits in [16, 32, 64] {
                is_complete(&Layout::accumulator(shape, bits), &format!("C of {shape:?} in {bits} bits"));
            }
        }
        for along in [false, true] {
            is_complete(&Layout::quad_factor(along), "a factor of quad pairs");
        }
        for bits in [16, 32] {
            is_complete(&Layout::quad_accumulator(bits), "an accumulator of quad pairs");
        }
    }

    #[test]
    fn places_are_those_of_the_isa() {
        // From the figures of the ISA: the place of a register's first element in lane 13 (group 3,
        // thread 1).
        let shape = Shape { m: 16, n: 8, k: 16 };
        let first = |layout: &Layout| -> Vec<(usize, usize)> {
            let places = (0..layout.registers).map(|register| layout.register(register)[13 * layout.per]);
            places.map(|place| layout.line_and_element(place)).collect()
        };
        assert_eq!(first(&Layout::a(shape, 16)), [(3, 2), (11, 2), (3, 10), (11, 10)]);
        assert_eq!(first(&Layout::b(shape, 16)), [(3, 2), (3, 10)]);
        assert_eq!(first(&Layout::accumulator(shape, 32)), [(3, 2), (3, 3), (11, 2), (11, 3)]);
        assert_eq!(first(&Layout::accumulator(shape, 16)), [(3, 2), (11, 2)]);
        assert_eq!(first(&Layout::a(shape, 8)), [(3, 4), (11, 4)]);
        assert_eq!(first(&Layout::b(shape, 64)), [(3, 1), (3, 5), (3, 9), (3, 13)]);
    }
}
