//! The common beginning of kernels as data; [`crate::warp::prologue`] executes it.

use ptx::instruction::Comparison;

use crate::operands::Reg;

/// A word that is the same in all lanes: an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uniform {
    /// A value that differs from block to block: `%ctaid` along an axis.
    Block(u8),
    /// A value that is the same in all blocks.
    Register(Reg),
}

/// The beginning of a kernel. Registers are places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prologue {
    /// The factors of a product; the index is the sum of the product and the thread.
    pub(crate) factors: [Uniform; 2],
    /// `%tid` along an axis.
    pub(crate) thread: Reg,
    pub(crate) index: Reg,
    pub(crate) check: Option<Check>,
}

/// A branch by how the index compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// The relation between index and bound that the comparison tests.
    pub(crate) relation: Comparison,
    pub(crate) signed: bool,
    pub(crate) bound: Uniform,
    /// Whether those branch for which the comparison holds, rather than the others.
    pub(crate) wanted: bool,
    pub(crate) target: u32,
}
