//! Moves matrices between registers and memory.
//!
//! `ldmatrix` and its like deal in *tiles*, 8 by 8 matrices of 16-bit elements whose rows lie
//! anywhere; `wmma.load` and `wmma.store` in matrices whose lines have one stride. Every access is
//! checked as any other is.

use crate::matrix::layout::Layout;
use crate::memory::spaces::{Accessed, Spaces};
use crate::operands::{AccessArgs, Class, Reg, Space};
use crate::registers::lanes::{Lanes, WARP, each_lane};
use crate::registers::vectors::Addresses;

/// Rows of a tile, and its elements in a row.
pub(super) const SIDE: usize = 8;

/// Bytes of a row of a tile.
pub(super) const ROW: usize = 2 * SIDE;

/// A tile: its rows.
type Tile = [[u16; SIDE]; SIDE];

fn transposed(tile: &Tile) -> Tile {
    std::array::from_fn(|row| std::array::from_fn(|column| tile[column][row]))
}

/// The register that holds a tile: lane `4g + t` has elements `2t` and `2t + 1` of row `g`.
fn to_register(tile: &Tile) -> [u32; WARP] {
    std::array::from_fn(|lane| {
        let (row, column) = (&tile[lane / 4], 2 * (lane % 4));
        u32::from(row[column]) | u32::from(row[column + 1]) << 16
    })
}

fn from_register(register: &[u32; WARP]) -> Tile {
    std::array::from_fn(|row| {
        std::array::from_fn(|column| (register[4 * row + column / 2] >> (16 * (column % 2))) as u16)
    })
}

/// # Safety
/// The frame has the words `sources[0]` and `results[0]`.
pub(super) unsafe fn transpose(lanes: &Lanes, sources: &[Reg], results: &[Reg]) {
    // SAFETY: the caller's promise.
    unsafe {
        let tile = from_register(lanes.source(sources[0]));
        lanes.write(results[0], &to_register(&transposed(&tile)));
    }
}

/// The lanes that give the addresses of the rows of `tiles` tiles.
pub(super) fn row_lanes(lanes: &Lanes, tiles: usize) -> Lanes {
    let mask = if tiles * SIDE >= WARP { u32::MAX } else { (1 << (tiles * SIDE)) - 1 };
    Lanes { mask: lanes.mask & mask, full: false, ..*lanes }
}

/// # Safety
/// The frame has the address register and the words `results`.
pub(super) unsafe fn load_tiles(
    lanes: &Lanes,
    spaces: &mut Spaces,
    address: &AccessArgs,
    transposes: bool,
    results: &[Reg],
) -> Accessed {
    let mut rows = [0; WARP];
    let givers = row_lanes(lanes, results.len());
    if givers.mask == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise; the rows are read after `locate` has approved them.
    unsafe {
        spaces.locate(&givers, address, ROW as u64, false, &mut rows)?;
        for (rows, &result) in rows.chunks_exact(SIDE).zip(results) {
            let tile: Tile = std::array::from_fn(|row| (rows[row] as *const [u16; SIDE]).read());
            lanes.write(result, &to_register(&if transposes { transposed(&tile) } else { tile }));
        }
    }
    Ok(())
}

/// # Safety
/// The frame has the address register and the words `sources`.
pub(super) unsafe fn store_tiles(
    lanes: &Lanes,
    spaces: &mut Spaces,
    address: &AccessArgs,
    transposes: bool,
    sources: &[Reg],
) -> Accessed {
    let mut rows = [0; WARP];
    let givers = row_lanes(lanes, sources.len());
    if givers.mask == 0 {
        return Ok(());
    }
    // SAFETY: the caller's promise; the rows are written after `locate` has approved them.
    unsafe {
        spaces.locate(&givers, address, ROW as u64, true, &mut rows)?;
        let mut tiles = [[[0; SIDE]; SIDE]; WARP / SIDE];
        for (tile, &source) in tiles.iter_mut().zip(sources) {
            *tile = from_register(lanes.source(source));
            if transposes {
                *tile = transposed(tile);
            }
        }
        each_lane(givers.mask, |lane| {
            (rows[lane] as *mut [u16; SIDE]).write(tiles[lane / SIDE][lane % SIDE]);
        });
    }
    Ok(())
}

/// The memory of an access: in each lane of `mask`, `bytes` bytes at an offset from the lane's
/// address.
pub(crate) struct Span {
    pub(crate) mask: u32,
    pub(crate) offsets: Addresses,
    pub(crate) bytes: u32,
}

/// The rows of tiles.
pub(super) fn tile_span(lanes: &Lanes, tiles: usize) -> Span {
    Span { mask: row_lanes(lanes, tiles).mask, offsets: [0; WARP], bytes: ROW as u32 }
}

/// The order of a line's elements in memory: one after the other, or a stride apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Lines,
    Across,
}

/// A matrix in memory as a fragment holds it.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub(crate) layout: Layout,
    pub(crate) order: Order,
    /// Bits by which a stride of 1 moves; bits of an element, but for `.b1`, where the layout's
    /// elements are words.
    pub(crate) stride_bits: u64,
}

/// Elements of a register that lie together in memory.
struct Piece {
    /// Number of the first, within the register.
    first: usize,
    /// Bits of all.
    bits: u32,
}

impl Fragment {
    /// The class of the fragment's registers.
    pub(super) fn class(&self) -> Class {
        if self.layout.bits == 64 { Class::Long } else { Class::Word }
    }

    /// Bits from the start of the matrix to an element.
    fn distance(&self, place: u16, stride: u64) -> u64 {
        let (line, at) = self.layout.line_and_element(place);
        let (far, near) = if self.order == Order::Lines { (line, at) } else { (at, line) };
        far as u64 * stride * self.stride_bits + near as u64 * u64::from(self.layout.bits)
    }

    /// Whether neighbours in a register are neighbours in memory.
    fn is_joined(&self) -> bool {
        let places = self.layout.register(0);
        self.layout.per == 1 || (places[1] - places[0] == 1) == (self.order == Order::Lines)
    }

    /// The pieces in which a register moves.
    fn pieces(&self) -> impl Iterator<Item = Piece> {
        let (per, bits) = (self.layout.per, self.layout.bits);
        let (count, together) = if self.is_joined() { (1, per) } else { (per, 1) };
        (0..count).map(move |piece| Piece { first: piece, bits: bits * together as u32 })
    }

    /// Bytes from the start of the matrix to a piece of a register, in each lane.
    fn offsets(&self, strides: &[u32; WARP], (register, piece): (usize, &Piece)) -> Addresses {
        let places = self.layout.register(register);
        std::array::from_fn(|lane| {
            let place = places[lane * self.layout.per + piece.first];
            self.distance(place, strides[lane].into()) / 8
        })
    }

    /// Returns the memory of each access.
    pub(super) fn spans(&self, strides: &[u32; WARP], mask: u32) -> Vec<Span> {
        let registers = 0..self.layout.registers;
        let pieces = registers.flat_map(|register| self.pieces().map(move |piece| (register, piece)));
        let span = |(register, piece): (usize, Piece)| Span {
            mask,
            offsets: self.offsets(strides, (register, &piece)),
            bytes: piece.bits / 8,
        };
        pieces.map(span).collect()
    }

    /// The addresses of a piece of a register: approved, for all lanes.
    fn addresses(
        &self,
        spaces: &mut Spaces,
        (space, base, strides): (Space, &Addresses, &[u32; WARP]),
        place: (usize, &Piece),
        mask: u32,
        write: bool,
    ) -> Result<Addresses, Box<crate::memory::spaces::AccessFault>> {
        let mut addresses = self.offsets(strides, place);
        addresses.iter_mut().zip(base).for_each(|(address, base)| *address = address.wrapping_add(*base));
        spaces.resolve(space, &mut addresses, mask, u64::from(place.1.bits) / 8, write)?;
        Ok(addresses)
    }

    /// `wmma.load`. Registers beyond the layout's repeat the first ones.
    ///
    /// # Safety
    /// The frame has the address register, the word `stride` and `results`, of the fragment's
    /// class.
    pub(super) unsafe fn load(
        &self,
        lanes: &Lanes,
        spaces: &mut Spaces,
        address: &AccessArgs,
        stride: Reg,
        results: &[Reg],
    ) -> Accessed {
        let mut base = [0; WARP];
        let mut loaded: Vec<[u64; WARP]> = Vec::with_capacity(self.layout.registers);
        // SAFETY: the caller's promise; memory is read after `addresses` has approved it.
        unsafe {
            spaces.locate(lanes, address, self.smallest(), false, &mut base)?;
            let matrix = (address.space, &base, lanes.source::<u32>(stride));
            for register in 0..self.layout.registers {
                let mut values = [0u64; WARP];
                for piece in self.pieces() {
                    let from = self.addresses(spaces, matrix, (register, &piece), lanes.mask, false)?;
                    for (value, &from) in values.iter_mut().zip(&from) {
                        let mut bytes = [0; 8];
                        let to = bytes.as_mut_ptr();
                        std::ptr::copy_nonoverlapping(from as *const u8, to, piece.bits as usize / 8);
                        *value |= u64::from_le_bytes(bytes) << (self.layout.bits as usize * piece.first);
                    }
                }
                loaded.push(values);
            }
            for (index, &result) in results.iter().enumerate() {
                let values = &loaded[index % self.layout.registers];
                match self.class() {
                    Class::Long => lanes.write(result, values),
                    _ => lanes.write(result, &values.map(|value| value as u32)),
                }
            }
        }
        Ok(())
    }

    /// `wmma.store`.
    ///
    /// # Safety
    /// As for [`load`](Self::load), with `sources` for `results`.
    pub(super) unsafe fn store(
        &self,
        lanes: &Lanes,
        spaces: &mut Spaces,
        address: &AccessArgs,
        stride: Reg,
        sources: &[Reg],
    ) -> Accessed {
        let mut base = [0; WARP];
        // SAFETY: the caller's promise; memory is written after `addresses` has approved it.
        unsafe {
            spaces.locate(lanes, address, self.smallest(), true, &mut base)?;
            let matrix = (address.space, &base, lanes.source::<u32>(stride));
            for (register, &source) in sources.iter().take(self.layout.registers).enumerate() {
                let values = match self.class() {
                    Class::Long => *lanes.source::<u64>(source),
                    _ => lanes.source::<u32>(source).map(u64::from),
                };
                for piece in self.pieces() {
                    let to = self.addresses(spaces, matrix, (register, &piece), lanes.mask, true)?;
                    each_lane(lanes.mask, |lane| {
                        let value = values[lane] >> (self.layout.bits as usize * piece.first);
                        let bytes = value.to_le_bytes();
                        let size = piece.bits as usize / 8;
                        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to[lane] as *mut u8, size);
                    });
                }
            }
        }
        Ok(())
    }

    /// Bytes of the smallest access.
    fn smallest(&self) -> u64 {
        self.pieces().map(|piece| u64::from(piece.bits) / 8).min().unwrap_or(1)
    }
}
