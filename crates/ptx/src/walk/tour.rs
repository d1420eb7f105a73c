//! The walks of one launch: which warps, how many, and how long each may take.

use super::sample::{self, Density, Sample};
use super::sum::Sum;
use super::value::Value;
use super::warp::Warp;
use super::{Shape, Walker, Work};

/// Rounds through the grid, each with other warps, at most.
const MOST_ROUNDS: u64 = 6;
/// The standard error of a warp's mean instructions, over the mean, below which no further round is made.
const DOUBT: f64 = 0.03;

/// A launch on its way.
pub(super) struct Tour<'w> {
    walker: &'w Walker,
    shape: Shape,
    warp: Warp<'w>,
    /// Registers before a warp begins.
    fresh: Vec<Value>,
    /// Steps that may still be taken.
    left: u64,
}

impl<'w> Tour<'w> {
    /// With a warp whose registers hold what is the same for all.
    pub(super) fn new(walker: &'w Walker, shape: Shape, warp: Warp<'w>, budget: u64) -> Tour<'w> {
        Tour { walker, shape, fresh: warp.registers.clone(), warp, left: budget.max(1) }
    }

    /// Walks warps until they agree well enough, or the budget says no.
    pub(super) fn go(mut self) -> Work {
        let budget = self.left;
        let mut sum = Sum::new(&self.walker.code);
        // What a warp costs is known when one has been walked; it stands for none.
        let first = Sample { index: 0, weight: 0.0 };
        self.walk(first, first, budget / 8, &mut sum);
        let density = Density::of(budget / 2, self.warp.taken, self.shape.blocks, self.shape.warps);
        let mut rounds = 0;
        loop {
            let before = self.left;
            let picked = sample::warps_of_grid(self.shape.blocks, self.shape.warps, density, rounds);
            for (index, &(block, warp)) in picked.iter().enumerate() {
                let share = self.left / (picked.len() - index) as u64;
                self.walk(block, warp, share, &mut sum);
            }
            rounds += 1;
            let affordable = self.left > budget / 2 && self.left > 2 * (before - self.left);
            if rounds == MOST_ROUNDS || !affordable || sum.doubt() < DOUBT {
                return self.work(&sum, rounds);
            }
        }
    }

    fn walk(&mut self, block: Sample, of_block: Sample, share: u64, sum: &mut Sum) {
        let warp = &mut self.warp;
        warp.registers.clone_from(&self.fresh);
        let mask = self.walker.place(&mut warp.registers, &self.shape, block.index, of_block.index);
        warp.begin(share.max(1));
        warp.run(mask);
        self.left = self.left.saturating_sub(warp.taken);
        sum.add(&warp.counters, block.weight * of_block.weight);
    }

    fn work(&self, sum: &Sum, rounds: u64) -> Work {
        let warps = (self.shape.blocks as f64) * (self.shape.warps as f64);
        let work = sum.work(&self.walker.code, rounds as f64);
        Work {
            warps,
            barriers_per_warp: work.barriers_per_warp / warps,
            assumed: self.warp.assumed || self.walker.code.incomplete,
            extrapolated: self.warp.extrapolated,
            ..work
        }
    }
}
