//! What the tiles of `fpga/rtl` compute, bit by bit.
//!
//! [`attention`] and [`product`] follow the hardware's numbers (widths, table, order of additions),
//! not its registers; [`cycles`] says how long it takes. [`reference`](mod@reference) is the same
//! attention in 64-bit floating point, and [`quantize`] how real numbers become the tiles' INT8.
//! [`cases`] draws inputs, extreme ones among them, and [`vectors`] writes them for the testbenches.
//!
//! Invariant: a result here equals the simulators' result in every bit, for every input that the
//! tiles accept. `fpga/check` compares.

pub mod attention;
pub mod cases;
pub mod cpu;
pub mod cycles;
pub mod error;
pub mod exp2;
pub mod product;
pub mod quantize;
pub mod reference;
pub mod vectors;

/// Sizes of a tile, which are parameters of the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows of queries, and keys of a block; a power of two.
    pub size: usize,
    /// Elements of a row (`DIM`); a power of two, at least `size`.
    pub dimension: usize,
}
