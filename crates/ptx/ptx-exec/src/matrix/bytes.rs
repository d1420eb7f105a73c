//! Tiles of bytes: `ldmatrix` of 8 by 16 and 16 by 16 elements of eight bits and less, and
//! `stmatrix` of 16 by 8 bytes.
//!
//! Each row has 16 bytes of shared memory, wherever it lies. Elements of six and four bits are
//! packed at the start of a row, the rest of which is padding; in a register each has a byte. The
//! places of a row's bytes are those of the PTX ISA for 8 by 16, and those of CUTLASS's copy atoms
//! for `ldmatrix` and `stmatrix` of `.b8` for transposed tiles.

use crate::matrix::transfer::{ROW, SIDE, row_lanes};
use crate::memory::spaces::{Accessed, Spaces};
use crate::operands::{AccessArgs, Reg};
use crate::registers::lanes::{Lanes, WARP, each_lane};

/// Elements of a row.
const ELEMENTS: usize = 16;

/// Bytes of a register.
const BYTES: usize = 4;

/// How elements lie in memory and in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteTiles {
    /// Bits of an element in memory: 8, 6 or 4.
    pub(crate) bits: u32,
    /// Whether a lane has elements of different rows: `.trans`.
    pub(crate) across: bool,
}

/// The row and the element in it that a lane has in a byte of a register that is loaded.
fn loaded(across: bool, (register, lane, byte): (usize, usize, usize)) -> (usize, usize) {
    let (group, thread) = (lane / 4, lane % 4);
    match across {
        false => (SIDE * register + group, BYTES * thread + byte),
        true => (
            2 * SIDE * (register / 2) + BYTES * thread + 2 * (register % 2) + byte % 2,
            group + SIDE * (byte / 2),
        ),
    }
}

/// The same of one that is stored.
fn stored((register, lane, byte): (usize, usize, usize)) -> (usize, usize) {
    (SIDE * register + 2 * (lane % 4) + byte % 2, lane / 4 + SIDE * (byte / 2))
}

/// The elements of a row, each in a byte.
fn unpacked(row: [u8; ELEMENTS], bits: u32) -> [u8; ELEMENTS] {
    let all = u128::from_le_bytes(row);
    let mask = (1u128 << bits) - 1;
    std::array::from_fn(|at| (all >> (bits as usize * at) & mask) as u8)
}

impl ByteTiles {
    /// # Safety
    /// The frame has the address register and the words `results`.
    pub(super) unsafe fn load(
        self,
        lanes: &Lanes,
        spaces: &mut Spaces,
        address: &AccessArgs,
        results: &[Reg],
    ) -> Accessed {
        let mut places = [0; WARP];
        let givers = row_lanes(lanes, results.len());
        if givers.mask == 0 {
            return Ok(());
        }
        let mut rows = [[0u8; ELEMENTS]; WARP];
        // SAFETY: the caller's promise; the rows are read after `locate` has approved them.
        unsafe {
            spaces.locate(&givers, address, ROW as u64, false, &mut places)?;
            each_lane(givers.mask, |lane| {
                rows[lane] = unpacked((places[lane] as *const [u8; ELEMENTS]).read(), self.bits);
            });
            for (register, &result) in results.iter().enumerate() {
                let byte = |lane: usize, byte: usize| {
                    let (row, at) = loaded(self.across, (register, lane, byte));
                    rows[row % WARP][at]
                };
                let word = |lane| u32::from_le_bytes(std::array::from_fn(|at| byte(lane, at)));
                lanes.write(result, &std::array::from_fn(word));
            }
        }
        Ok(())
    }

    /// # Safety
    /// The frame has the address register and the words `sources`.
    pub(super) unsafe fn store(
        lanes: &Lanes,
        spaces: &mut Spaces,
        address: &AccessArgs,
        sources: &[Reg],
    ) -> Accessed {
        let mut places = [0; WARP];
        let givers = row_lanes(lanes, sources.len());
        if givers.mask == 0 {
            return Ok(());
        }
        let mut rows = [[0u8; ELEMENTS]; WARP];
        // SAFETY: the caller's promise; the rows are written after `locate` has approved them.
        unsafe {
            spaces.locate(&givers, address, ROW as u64, true, &mut places)?;
            for (register, &source) in sources.iter().enumerate() {
                for (lane, word) in lanes.source::<u32>(source).iter().enumerate() {
                    for (byte, value) in word.to_le_bytes().into_iter().enumerate() {
                        let (row, at) = stored((register, lane, byte));
                        rows[row % WARP][at] = value;
                    }
                }
            }
            each_lane(givers.mask, |lane| (places[lane] as *mut [u8; ELEMENTS]).write(rows[lane]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte of every row goes to one place.
    fn is_complete(registers: usize, place: impl Fn((usize, usize, usize)) -> (usize, usize)) {
        let mut seen = vec![0; SIDE * registers * ELEMENTS];
        for register in 0..registers {
            for lane in 0..WARP {
                for byte in 0..BYTES {
                    let (row, at) = place((register, lane, byte));
                    seen[row * ELEMENTS + at] += 1;
                }
            }
        }
        assert!(seen.iter().all(|&count| count == 1), "{registers}: {seen:?}");
    }

    #[test]
    fn each_element_has_one_place() {
        for registers in [1, 2, 4] {
            is_complete(registers, |place| loaded(false, place));
            is_complete(registers, stored);
        }
        for registers in [2, 4] {
            is_complete(registers, |place| loaded(true, place));
        }
    }

    #[test]
    fn packed_elements_follow_each_other() {
        let row: [u8; 16] = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(unpacked(row, 8), row);
        assert_eq!(unpacked(row, 4)[..4], [0, 0, 1, 1]);
        let six = u128::MAX >> 122 << 6 | 5;
        assert_eq!(unpacked(six.to_le_bytes(), 6)[..3], [5, 63, 0]);
    }
}
