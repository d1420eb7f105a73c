//! Warp splits: the paths on which the lanes of a warp are, and the choice of the one that runs
//! next.
//!
//! Invariants: the masks of the paths are disjoint, and together they are the lanes that have not
//! exited.

use crate::budget::Share;
use crate::code::BarrierKind;
use crate::operands::Reg;
use crate::registers::{Extent, Shortage};
use crate::warp::Warp;

/// The start of a function's registers and local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(super) registers: Extent,
    pub(super) local: u32,
}

/// The place to which a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Return {
    pub(super) function: u32,
    /// The step after the call.
    pub(super) pc: u32,
    pub(super) frame: Frame,
}

/// The state of a path: ready, or the reason why it does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It does.
    Ready,
    /// It waits for the lanes of this mask at a warp instruction.
    Warp(u32),
    /// They have all come: the instruction may be executed.
    Met,
    /// It waits at a barrier of the block.
    Barrier(Waiting),
}

/// A path at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) barrier: u32,
    pub(crate) kind: BarrierKind,
    /// Expected threads, if the instruction says.
    pub(crate) threads: Option<u32>,
    /// For reductions: lanes whose predicate is true.
    pub(crate) votes: u32,
    /// For reductions: where the outcome goes.
    pub(super) result: Reg,
}

/// Lanes at the same place.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) function: u32,
    pub(crate) pc: u32,
    pub(crate) mask: u32,
    pub(super) frame: Frame,
    pub(super) returns: Vec<Return>,
    pub(super) epoch: u32,
    /// Whether it meets no other until it has been picked: it may be in another round of a loop.
    pub(super) apart: bool,
    pub(crate) state: State,
}

impl Path {
    /// Lanes at the start of a kernel.
    pub(super) fn new(function: u32, mask: u32) -> Path {
        let frame = Frame::default();
        let (returns, state) = (Vec::new(), State::Ready);
        Path { function, pc: 0, mask, frame, returns, epoch: 0, apart: false, state }
    }

    /// Makes it what [`new`](Self::new) makes, field by field: a path made elsewhere and moved has
    /// to wait for all that this CPU has still to write.
    pub(super) fn rewind(&mut self, function: u32, mask: u32) {
        (self.function, self.pc, self.mask, self.epoch) = (function, 0, mask, 0);
        self.frame = Frame::default();
        self.returns.clear();
        self.apart = false;
        self.state = State::Ready;
    }

    pub(crate) fn same_place(&self, other: &Path) -> bool {
        self.pc == other.pc && self.same_calls(other)
    }

    /// Whether it is in the kernel itself, not in a function that it called.
    pub(crate) fn is_outermost(&self) -> bool {
        self.returns.is_empty()
    }

    fn same_calls(&self, other: &Path) -> bool {
        self.function == other.function && self.frame == other.frame && self.returns == other.returns
    }

    /// Returns the path's progress: calls from the outside in (at the call itself), then the place.
    fn progress(&self) -> impl Iterator<Item = (u32, u32)> {
        let calls = self.returns.iter().map(|call| (call.function, call.pc - 1));
        calls.chain(std::iter::once((self.function, self.pc)))
    }

    fn runs_before(&self, other: &Path) -> bool {
        self.epoch.cmp(&other.epoch).then_with(|| self.progress().cmp(other.progress())).is_lt()
    }
}

/// Returns the start of a callee's frame, behind a frame of `bytes` bytes at `local`; `None` if no
/// thread has as much local memory.
pub(super) fn frame_behind(local: u32, bytes: u32, align: u32) -> Option<u32> {
    local.checked_add(bytes)?.checked_next_multiple_of(align)
}

/// Makes room for one more place to return to.
pub(super) fn room_for_a_return(returns: &mut Vec<Return>, share: &mut Share) -> Result<(), Shortage> {
    if returns.len() < returns.capacity() {
        return Ok(());
    }
    let more = returns.len().max(4);
    let granted = share.take((more * size_of::<Return>()) as u64) && returns.try_reserve_exact(more).is_ok();
    if granted { Ok(()) } else { Err(Shortage::Memory) }
}

impl Warp {
    /// Releases lanes that have found each other, merges, and picks the path to run.
    pub(super) fn choose(&mut self) -> Option<usize> {
        if self.paths.len() == 1 && self.paths[0].state == State::Ready {
            self.paths[0].apart = false;
            return Some(0);
        }
        self.release_members();
        self.merge();
        let ready = |path: &&Path| matches!(path.state, State::Ready | State::Met);
        let first = self.paths.iter().filter(ready).reduce(|a, b| if b.runs_before(a) { b } else { a })?;
        let index = self.paths.iter().position(|path| path.mask == first.mask)?;
        self.paths[index].apart = false;
        Some(index)
    }

    /// Lets paths go that wait for lanes which now wait too, or have exited.
    fn release_members(&mut self) {
        for index in 0..self.paths.len() {
            let State::Warp(members) = self.paths[index].state else { continue };
            let waiting = |path: &Path| path.state == State::Warp(members);
            let arrived = self.paths.iter().filter(|f| waiting(f)).fold(0, |mask, path| mask | path.mask);
            if members & self.live & !arrived == 0 {
                self.paths.iter_mut().filter(|f| waiting(f)).for_each(|f| f.state = State::Met);
            }
        }
    }

    /// Joins paths that are at the same place.
    pub(super) fn merge(&mut self) {
        let mut index = 0;
        while index < self.paths.len() {
            let mut other = index + 1;
            while other < self.paths.len() {
                let (a, b) = (&self.paths[index], &self.paths[other]);
                let state = matches!(a.state, State::Ready | State::Met) && a.state == b.state;
                if state && !a.apart && !b.apart && a.same_place(b) {
                    let joined = self.paths.swap_remove(other);
                    let path = &mut self.paths[index];
                    path.mask |= joined.mask;
                    path.epoch = path.epoch.min(joined.epoch);
                } else {
                    other += 1;
                }
            }
            index += 1;
        }
    }

    /// The place at which a path may meet another, and has to stop to see.
    pub(super) fn limit(&self, index: usize) -> u32 {
        let path = &self.paths[index];
        let others = self
            .paths
            .iter()
            .filter(|other| other.state == State::Ready && other.pc > path.pc && other.same_calls(path));
        others.map(|other| other.pc).min().unwrap_or(u32::MAX)
    }

    /// Makes a path of its own of the lanes of `mask`, which the path has; returns it. If these are
    /// all its lanes it stays what it is.
    pub(super) fn split(&mut self, index: usize, mask: u32) -> &mut Path {
        let path = &mut self.paths[index];
        if path.mask == mask {
            return &mut self.paths[index];
        }
        path.mask &= !mask;
        let part = Path { mask, ..path.clone() };
        self.paths.push(part);
        let last = self.paths.len() - 1;
        &mut self.paths[last]
    }
}
