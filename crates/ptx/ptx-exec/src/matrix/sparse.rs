//! Products whose A has two of each four elements of a line, or one of each two: what A has, and
//! metadata that tell at which places of the line (PTX ISA, "Sparse matrix storage").
//!
//! A row has two bits for each of its elements (in `.tf32` four, of four-bit elements two for each
//! pair). Of elements of up to eight bits, they are in the lane `4 (row mod 8) + 2 t + row / 8`,
//! where `t` is the selector that the instruction names; where a row has 64 bits, their upper half
//! is in the lane with the next `t`. Of wider elements, 16 bits of a row and those of the row eight
//! further share a word, in lane `4 (row mod 8) + t`, or, where a row has 32 bits, in that lane
//! with `2 t` and the next one. An H200 gave the same bits.

use crate::matrix::layout::Shape;
use crate::matrix::product::Arithmetic;
use crate::registers::lanes::WARP;

/// What the metadata count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Two elements of each four.
    TwoOfFour,
    /// One of each two, as two halves of four.
    OneOfTwo,
    /// Two pairs of neighbours of each four.
    PairsOfFour,
}

/// How a factor is sparse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sparse {
    pub(crate) kept: Kept,
    /// Which lanes have the metadata.
    pub(crate) selector: usize,
    /// Whether elements have 16 bits or more.
    pub(crate) wide: bool,
}

impl Sparse {
    /// The place in a line of B that belongs to element `at` of a row of A, which has `length`.
    fn place(self, metadata: &[u32; WARP], (row, length): (usize, usize), at: usize) -> usize {
        let (first, bits) = match self.kept {
            Kept::TwoOfFour => (2 * at, 2),
            Kept::OneOfTwo => (4 * at, 4),
            Kept::PairsOfFour => (at / 2 * 2, 2),
        };
        let (lane, shift) = match self.wide {
            true => (self.selector * (length * bits / 16) + first / 16, 16 * (row / 8) + first % 16),
            false => (2 * (self.selector + first / 32) + row / 8, first % 32),
        };
        let word = metadata[(4 * (row % 8) + lane) % WARP];
        let field = (word >> shift) as usize & ((1 << bits) - 1);
        match self.kept {
            Kept::TwoOfFour => at / 2 * 4 + field,
            Kept::OneOfTwo => at * 2 + (field & 3) / 2,
            Kept::PairsOfFour => at / 4 * 8 + 2 * field + at % 2,
        }
    }

    /// `d = a * b + c` of a warp; `shape` has the k of B, of which a row of A has half.
    pub(super) fn multiply(
        self,
        arithmetic: &Arithmetic,
        metadata: &[u32; WARP],
        shape: Shape,
        (a, b): (&[u32], &[u32]),
        (c, d): (&[u32], &mut [u32]),
    ) {
        let Shape { n, k, .. } = shape;
        let one_row = Shape { m: 1, n, k: k / 2 };
        let rows = a.chunks_exact(k / 2).zip(c.chunks_exact(n).zip(d.chunks_exact_mut(n)));
        for (row, (a, (c, d))) in rows.enumerate() {
            let places: Vec<usize> = (0..k / 2).map(|at| self.place(metadata, (row, k / 2), at)).collect();
            let chosen = |line: &[u32]| places.iter().map(|place| line[*place]).collect::<Vec<_>>();
            let b: Vec<u32> = b.chunks_exact(k).flat_map(chosen).collect();
            arithmetic.multiply(one_row, (a, &b), c, d);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::product::Integer;

    const BYTES: Integer = Integer { bits: 8, signed: true };

    #[test]
    fn elements_meet_those_that_the_metadata_name() {
        let sparse = Sparse { kept: Kept::TwoOfFour, selector: 1, wide: false };
        let mut metadata = [0x4444_4444; WARP];
        // Row 9: the second and the last of the first four elements.
        metadata[4 + 2 + 1] = 0x4444_444d;
        let arithmetic = Arithmetic::Integer { a: BYTES, b: BYTES, saturate: false };
        let shape = Shape { m: 16, n: 1, k: 32 };
        let b: Vec<u32> = (0..32).collect();
        let (mut a, mut d) = (vec![0; 16 * 16], vec![0; 16]);
        for row in [8, 9] {
            (a[16 * row], a[16 * row + 1], a[16 * row + 2]) = (1, 10, 100);
        }
        sparse.multiply(&arithmetic, &metadata, shape, (&a, &b), (&[7; 16], &mut d));
        assert_eq!(d[8..10], [7 + 10 + 400, 7 + 1 + 30 + 400]);
        assert_eq!(d[0], 7);
    }

    #[test]
    fn fields_count_elements_halves_and_pairs() {
        let metadata = [0xe; WARP];
        let place = |kept, at| Sparse { kept, selector: 0, wide: false }.place(&metadata, (0, 32), at);
        assert_eq!([0, 1].map(|at| place(Kept::TwoOfFour, at)), [2, 3]);
        assert_eq!(place(Kept::OneOfTwo, 0), 1);
        assert_eq!([0, 1, 2, 3].map(|at| place(Kept::PairsOfFour, at)), [4, 5, 6, 7]);
    }
}
