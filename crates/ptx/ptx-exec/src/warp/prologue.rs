//! The prologue of most kernels: the index of the thread in the grid, and whether it is within
//! bounds.
//!
//! ```text
//! mad.lo.s32 %r1, %ctaid.x, %ntid.x, %tid.x;  setp.ge.s32 %p1, %r1, %n;  @%p1 bra END;
//! ```
//!
//! The index rises by one from lane to lane, so neither it nor the comparison has to be computed
//! for each lane: the [`Pattern`] of `%tid` moved by one product is that of the index, its least
//! and its largest value tell how all lanes compare, and accesses to elements of arrays find their
//! addresses from it. [`crate::compile`] finds the kernels that begin so, and in which nobody else
//! reads what these steps compute; [`crate::warp::batch`] *passes* their prologue.
//!
//! Invariants:
//!
//! 1. A prologue is passed only if no index is beyond `i32::MAX`: then signed and unsigned are the
//!    same and nothing wraps. And only if all lanes act, and all compare alike. Else its steps are
//!    executed as any others are.
//! 2. Of warps that have passed it the prologue is *deferred*: its registers are not what they
//!    should be, nor are those of `%ctaid`. They are computed ([`Surroundings::flush_prologue`])
//!    before anybody reads them: an access whose addresses have no pattern, or a warp that goes on
//!    alone. They have places of their own, so that late is not too late.

use ptx_lower::holds;

use crate::code::Op;
use crate::code::prologue::{Prologue, Uniform};
use crate::memory::spaces::DeferredIndex;
use crate::registers::lanes::Lanes;
use crate::registers::pattern::Pattern;
use crate::warp::Surroundings;

impl Prologue {
    /// Steps before the branch, or before the rest of a kernel that has none.
    pub(crate) fn steps(&self) -> usize {
        1 + usize::from(self.check.is_some())
    }

    /// Returns the pattern of `%tid` in the lanes of some warps, if all lanes act and it has one.
    ///
    /// # Safety
    /// The frames have the registers of the prologue's function.
    pub(crate) unsafe fn threads(&self, warps: &[Lanes]) -> Option<Pattern> {
        let whole = warps.iter().all(|lanes| lanes.mask == u32::MAX);
        let warps = warps.iter().filter(|_| whole);
        // SAFETY: the caller's promise.
        Pattern::of_words(warps.map(|lanes| unsafe { lanes.source(self.thread) }), false)
    }

    /// Returns the index, and whether the threads, which have this pattern, branch; `None` if that
    /// is not easily determined.
    ///
    /// # Safety
    /// As for [`threads`](Self::threads).
    #[inline(always)]
    pub(crate) unsafe fn pass(
        &self,
        warp: &Lanes,
        block: [u32; 3],
        threads: &Pattern,
    ) -> Option<(Pattern, bool)> {
        let value = |of: Uniform| match of {
            Uniform::Block(axis) => block[axis as usize % 3],
            // SAFETY: the caller's promise.
            Uniform::Register(reg) => unsafe { warp.source::<u32>(reg)[0] },
        };
        let [a, b] = self.factors.map(value);
        let index = threads.moved(i64::from(a.wrapping_mul(b)));
        if index.most > i64::from(i32::MAX) {
            return None;
        }
        let Some(check) = &self.check else { return Some((index, false)) };
        let bound = value(check.bound);
        let bound = if check.signed { i64::from(bound as i32) } else { i64::from(bound) };
        let least_holds = holds(check.relation, index.least, bound);
        // What holds at both ends holds between them.
        (least_holds == holds(check.relation, index.most, bound))
            .then_some((index, least_holds == check.wanted))
    }
}

impl Surroundings<'_, '_, '_> {
    /// Sets what differs between the blocks of a launch.
    ///
    /// # Safety
    /// `warps` are frames of the kernel, in which all lanes act that have not exited.
    #[inline(always)]
    pub(crate) unsafe fn set_block_inputs(&self, warps: &[Lanes]) {
        for &(reg, class, which) in &self.launch.block_inputs {
            let value = self.launch.block_value(self.block, which);
            for lanes in warps {
                // SAFETY: the frame has the register, of this class.
                unsafe { lanes.fill(class, reg, value) };
            }
        }
    }

    /// Computes the registers of a deferred prologue, if it is deferred.
    ///
    /// # Safety
    /// As for [`set_block_inputs`](Self::set_block_inputs).
    #[inline(always)]
    pub(crate) unsafe fn flush_prologue(&mut self, warps: &[Lanes]) {
        if self.spaces.found.is_some() {
            // SAFETY: the caller's promise.
            unsafe { self.compute_prologue(warps) };
        }
    }

    /// Puts the index of a deferred prologue into its register, for those who read nothing else of
    /// it; it stays deferred.
    ///
    /// # Safety
    /// As for [`set_block_inputs`](Self::set_block_inputs).
    #[inline(always)]
    pub(crate) unsafe fn write_index(&self, warps: &[Lanes]) {
        let Some(DeferredIndex { index, pattern }) = &self.spaces.found else { return };
        for (warp, lanes) in warps.iter().enumerate() {
            let moved = pattern.between.wrapping_mul(warp as i64);
            for (part, first) in pattern.first.iter().enumerate() {
                let first = first.wrapping_add(moved);
                let value = |lane: usize| first.wrapping_add(pattern.step.wrapping_mul(lane as i64)) as u32;
                // SAFETY: the frame has the register, a word, and the parts are those of a pattern.
                unsafe { lanes.write_part(*index, part, std::array::from_fn(value)) };
            }
        }
    }

    /// # Safety
    /// As for [`flush_prologue`](Self::flush_prologue).
    #[cold]
    unsafe fn compute_prologue(&mut self, warps: &[Lanes]) {
        self.spaces.found = None;
        let code = self.launch.code(self.launch.kernel_function);
        let steps = code.prologue.as_ref().map_or(0, Prologue::steps);
        // SAFETY: the caller's promise; the registers are those that the kernel's code names.
        unsafe {
            self.set_block_inputs(warps);
            for step in &code.steps[..steps] {
                if let Op::Lanes { run, args, .. } = &step.op {
                    run(warps, args);
                }
            }
        }
    }
}
