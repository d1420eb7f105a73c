//! The sampling of one launch: the choice of warps, the steps of each, and the sum of their work.
//!
//! Sampled blocks are distributed over the grid. If two neighbouring samples differ, a block
//! between them is sampled too, because the blocks between them are uncertain; this locates the
//! boundary of an idle part of the grid. A block in the middle represents half of the blocks up to
//! each neighbour. The first and the last block, which are often special, represent only
//! themselves.

use std::collections::BTreeMap;

use super::contention::Contention;
use super::reuse::Reuse;
use super::selection::{self, Density};
use super::sum::Sum;
use super::value::Value;
use super::warp::{Counters, Warp};
use super::{Estimator, Shape, Work};

/// The maximum ratio of all sampled warps to those of the initial selection.
const REFINEMENT: usize = 4;
/// Counters of steps that blocks may need together, beyond which no more are looked at.
const MOST_COUNTERS: usize = 1 << 21;
/// Doubt about what lies between two blocks, over all that the launch executes, that is let be.
const DOUBT: f64 = 0.004;
/// Places of a grid where its blocks begin to be unlike those before, beyond which it is not looked
/// for such places.
const MOST_EDGES: usize = 3;
/// Warps of a block that has no more than this may all be sampled.
const MOST_WARPS: u64 = 65;

/// A launch on its way.
pub(super) struct Sampling<'w> {
    estimator: &'w Estimator,
    shape: Shape,
    warp: Warp<'w>,
    /// Registers before a warp begins.
    fresh: Vec<Value>,
    /// Steps that may still be taken.
    left: u64,
    sum: Sum,
    blocks: BTreeMap<u64, Block>,
}

/// A block that was sampled.
struct Block {
    /// The work of all of its warps.
    counters: Counters,
    /// Instructions.
    total: f64,
}

impl<'w> Sampling<'w> {
    /// Creates the sampling with a warp whose registers hold the values that are the same for all.
    pub(super) fn new(estimator: &'w Estimator, shape: Shape, warp: Warp<'w>, budget: u64) -> Sampling<'w> {
        let sum = Sum::new(&estimator.code);
        let fresh = warp.registers.clone();
        Sampling { estimator, shape, fresh, warp, left: budget.max(1), sum, blocks: BTreeMap::new() }
    }

    /// Walks blocks until nothing is in doubt, or the budget says no.
    pub(super) fn go(mut self) -> Work {
        let budget = self.left;
        // What a warp costs is known when one has been executed.
        self.warp(0, 0, budget / 8);
        self.warp.contention = Contention::default();
        self.warp.reuse = Reuse::new(self.estimator.code.steps.len());
        self.warp.stored = Reuse::new(self.estimator.code.steps.len());
        let density = Density::of(budget / 4 * 3, self.warp.taken, self.shape.blocks, self.shape.warps);
        let picked = selection::blocks(self.shape.blocks, density);
        for (walked, &block) in picked.iter().enumerate() {
            self.block(block, density, self.left / (picked.len() - walked) as u64);
        }
        let dearest = (budget - self.left.min(budget)) / picked.len() as u64;
        let room = MOST_COUNTERS / self.estimator.code.steps.len().max(1);
        for _ in 0..room.min(picked.len() * (REFINEMENT - 1)) {
            let Some(block) = self.doubtful().filter(|_| self.left > budget / 4 && self.left > 2 * dearest)
            else {
                break;
            };
            self.block(block, density, self.left / 2);
        }
        self.work()
    }

    /// Walks a warp.
    fn warp(&mut self, block: u64, warp: u64, share: u64) {
        let walk = &mut self.warp;
        walk.registers.clone_from(&self.fresh);
        let mask = self.estimator.place(&mut walk.registers, &self.shape, block, warp);
        walk.begin(share.max(1));
        walk.run(mask);
        self.left = self.left.saturating_sub(walk.taken);
    }

    /// Walks warps of a block that stand for all of it, or all, if they differ and there is time.
    fn block(&mut self, index: u64, density: Density, share: u64) {
        self.warp.begin_block();
        let mut counters = Counters::new(self.estimator.code.steps.len());
        let picked = selection::warps(self.shape.warps, density, self.blocks.len() as u64);
        let end = self.left.saturating_sub(share);
        let mut seen = Vec::with_capacity(picked.len());
        for (walked, sample) in picked.iter().enumerate() {
            let share = self.left.saturating_sub(end) / (picked.len() - walked) as u64;
            self.warp(index, sample.index, share);
            self.sum.see(&self.warp.counters);
            counters.add(&self.warp.counters, sample.weight);
            seen.push(self.warp.taken);
        }
        let most = seen.iter().max().copied().unwrap_or(0);
        let mean = seen.iter().sum::<u64>() / seen.len() as u64;
        let time = self.left.saturating_sub(end) / mean.max(1);
        if seen.len() as u64 != self.shape.warps && 2 * mean < most && self.shape.warps < time.min(MOST_WARPS)
        {
            counters.clear();
            self.warp.begin_block();
            for warp in 0..self.shape.warps {
                let share = self.left.saturating_sub(end) / (self.shape.warps - warp);
                self.warp(index, warp, share.max(most));
                self.sum.see(&self.warp.counters);
                counters.add(&self.warp.counters, 1.0);
            }
        }
        let total = self.sum.instructions(&counters);
        self.blocks.insert(index, Block { counters, total });
    }

    /// Neighbours among the blocks that were sampled, with others between them, and how many those
    /// are.
    fn gaps(&self) -> impl Iterator<Item = ((u64, &Block), (u64, &Block), u64)> {
        let pairs = self.blocks.iter().zip(self.blocks.iter().skip(1));
        pairs.map(|((&i, a), (&j, b))| ((i, a), (j, b), j - i - 1)).filter(|(_, _, between)| *between > 0)
    }

    /// The block to sample next, if any: where the most is in doubt; or, if that is everywhere,
    /// where the most lies unseen. To ask only beside blocks that are unlike their neighbours would
    /// make these seem rarer than they are.
    fn doubtful(&self) -> Option<u64> {
        let all: f64 = self.weights().map(|(block, weight)| block.total * weight).sum();
        let turn = self.blocks.len() as u64;
        let gaps = self.gaps().map(|((i, a), (j, b), between)| {
            let difference = (a.total - b.total).abs() / 2.0;
            (i, j, between as f64, difference * between as f64)
        });
        let gaps: Vec<(u64, u64, f64, f64)> = gaps.collect();
        let doubtful = gaps.iter().filter(|(.., doubt)| *doubt > DOUBT * all).count();
        let everywhere = doubtful > MOST_EDGES || turn % 2 == 1;
        let key = |gap: &(u64, u64, f64, f64)| if everywhere { gap.2 } else { gap.3 };
        let (i, j, ..) = gaps.iter().filter(|_| doubtful > 0).max_by(|a, b| key(a).total_cmp(&key(b)))?;
        Some(selection::between(*i, *j, turn))
    }

    /// The blocks that were sampled, and how many each stands for.
    fn weights(&self) -> impl Iterator<Item = (&Block, f64)> {
        let end = self.shape.blocks - 1;
        let own = self.blocks.values().map(|block| (block, 1.0));
        own.chain(self.gaps().flat_map(move |((i, a), (j, b), between)| {
            let between = between as f64;
            let of_first = match (i == 0, j == end) {
                (true, false) => 0.0,
                (false, true) => between,
                _ => between / 2.0,
            };
            [(a, of_first), (b, between - of_first)]
        }))
    }

    fn work(self) -> Work {
        let mut counters = Counters::new(self.estimator.code.steps.len());
        self.weights().for_each(|(block, weight)| counters.add(&block.counters, weight));
        let warps = (self.shape.blocks as f64) * (self.shape.warps as f64);
        let work = self.sum.work(&self.estimator.code, &counters);
        Work {
            warps,
            barriers_per_warp: work.barriers_per_warp / warps,
            latency_cycles: (work.latency_cycles / warps).max(0.0),
            serial_loads: (work.serial_loads / warps).max(0.0),
            issue_cycles: work.issue_cycles / warps,
            span_sectors: self.warp.reuse.span(),
            atomic_sectors: self.warp.contention.sectors(work.atomic_sectors),
            assumed: self.warp.assumed || work.unknown_calls > 0.0,
            extrapolated: self.warp.extrapolated,
            ..work
        }
    }
}
