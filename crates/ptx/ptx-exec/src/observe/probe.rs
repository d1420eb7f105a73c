//! The interface by which execution may be watched.
//!
//! A launch is executed by code that is generic over a [`Probe`] and compiled twice: with
//! [`Unwatched`], in which nothing is left of the calls below, and with an observer that sees every
//! step before it is executed. A probe changes nothing, and belongs to one block at a time: blocks
//! share none.

use crate::code::Step;
use crate::memory::spaces::Spaces;
use crate::operands::Class;
use crate::registers::Extent;
use crate::registers::lanes::Lanes;
use crate::warp::Warp;

/// A step that a path of a warp is about to execute.
pub(crate) struct Moment<'a> {
    /// The function, by index.
    pub(crate) function: u32,
    /// The step, by index.
    pub(crate) pc: u32,
    pub(crate) step: &'a Step,
    /// Registers; their mask has the lanes that execute the step, none if the guard holds back all.
    pub(crate) lanes: &'a Lanes,
    /// Lanes of the path, before the guard.
    pub(crate) mask: u32,
    pub(crate) spaces: &'a Spaces<'a>,
    /// The warp, counted through the block.
    pub(crate) warp: u32,
    /// The start of the function's frame in the thread's local memory.
    pub(crate) local: u32,
    /// The start of its registers.
    pub(crate) registers: Extent,
    /// Classes of the step's registers, in the order in which it shows them.
    pub(crate) classes: &'a [Class],
}

/// An observer of a block's execution.
pub(crate) trait Probe {
    /// Whether it wants to be called at all.
    const WATCHES: bool;

    /// Returns whether the probe watches the block's warps, which are about to run, until all
    /// pause. They and earlier blocks have executed `executed` instructions.
    fn watches(&mut self, executed: u64) -> bool;

    /// The block `block` of the grid begins.
    fn block_starts(&mut self, block: [u32; 3]);

    /// A step is about to be executed. Warp instructions are shown once all of their lanes have
    /// come.
    fn step(&mut self, moment: &Moment);

    /// All that `barrier` waits for have come; those of `warps` that wait there are about to go on.
    fn barrier_opens(&mut self, barrier: u32, warps: &[Warp]);
}

/// The probe of launches that nobody watches.
pub(crate) struct Unwatched;

impl Probe for Unwatched {
    const WATCHES: bool = false;

    #[inline(always)]
    fn watches(&mut self, _: u64) -> bool {
        false
    }

    #[inline(always)]
    fn block_starts(&mut self, _: [u32; 3]) {}

    #[inline(always)]
    fn step(&mut self, _: &Moment) {}

    #[inline(always)]
    fn barrier_opens(&mut self, _: u32, _: &[Warp]) {}
}
