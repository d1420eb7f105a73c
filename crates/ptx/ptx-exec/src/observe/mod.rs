//! Observation of launches: counts and defects.
//!
//! A [`Watch`] belongs to a launch; each resident block has its own observer, and their results are
//! merged when the blocks end. Reading order: `site` (the kind of a step), `survey` (the addresses
//! of its lanes), `request` (sectors and wavefronts), `tally` (counts), `lines` (counts by line);
//! `happens_before`, `race`, `undefined`, `check`, `uses` (detection of defects), `defects` (their
//! report).

mod check;
mod defects;
mod happens_before;
mod lines;
pub(crate) mod probe;
mod race;
mod request;
mod site;
mod survey;
mod tally;
mod undefined;
mod uses;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use apex_counts::Counted;

use crate::launch::Launch;
use crate::observe::probe::{Moment, Probe};
use crate::warp::Warp;
use check::Checker;
use defects::Defects;
pub use defects::{Group, LatentDefect};
use site::Sites;
use tally::Tallies;

/// A step: function and index.
type StepId = (u32, u32);

/// The observations that a launch is watched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// Count instructions, transactions, divergence.
    pub count: bool,
    /// The number of warp instructions to count at the start of a longer launch, and about as many
    /// in a sample of the rest, which stands for the whole. `None` counts everything.
    pub sample: Option<u64>,
    /// Look for defects.
    pub check: bool,
}

impl WatchOptions {
    /// Whether the launch has to be watched at all, which makes it many times slower.
    pub fn watch(self) -> bool {
        self.count || self.check
    }
}

/// The observations of a launch.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The counts, if they were requested.
    pub counts: Option<Counted>,
    /// The defects that were found.
    pub defects: Vec<Group>,
    /// Copies of what nobody had written: defects once the host reads them.
    pub latent: Vec<LatentDefect>,
}

/// The sampling interval after the start of a sampled launch, in instructions. Counting takes about
/// 30 times as long, so a launch takes a twentieth longer.
const ONE_IN: u64 = 640;

/// Warp instructions up to which a block is counted completely or not at all. The code between two
/// barriers differs from what follows (a tile is loaded, then multiplied), but blocks seldom
/// differ: parts of blocks would be a biased sample. Only longer blocks are counted in part.
const LONG_BLOCK: u64 = 1 << 16;

/// The progress of execution and observation, in warp instructions, by stratum: the start of the
/// launch and the rest of it.
#[derive(Default)]
struct Strata {
    executed: [AtomicU64; 2],
    watched: [AtomicU64; 2],
}

/// The merged results of observers.
#[derive(Default)]
struct Results {
    tallies: [Tallies; 2],
    defects: Defects,
    latent: Defects,
}

/// Watches a launch.
pub(super) struct Watch<'l> {
    launch: &'l Launch<'l>,
    options: WatchOptions,
    sites: Sites<'l>,
    strata: Strata,
    seen: Mutex<Results>,
}

impl<'l> Watch<'l> {
    pub(super) fn new(launch: &'l Launch<'l>, options: WatchOptions) -> Self {
        let (strata, seen) = (Strata::default(), Mutex::default());
        Watch { launch, options, sites: Sites::new(launch), strata, seen }
    }

    /// An observer for one block after the other, if there is memory for what it keeps.
    pub(super) fn observer(&self) -> Option<Observer<'_, 'l>> {
        let checker = if self.options.check { Some(Checker::new(self.launch)?) } else { None };
        let tallies = Default::default();
        Some(Observer {
            watch: self,
            tallies,
            stratum: 0,
            executed: 0,
            block: SampledBlock::default(),
            steps: 0,
            checker,
        })
    }

    /// Merges the results of all observers, once they are gone, for a launch that executed
    /// `executed` instructions to its end.
    pub(super) fn finish(self, executed: Option<u64>) -> Observation {
        let Results { tallies, defects, latent } =
            self.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        let [start, rest] = self.strata.executed.map(AtomicU64::into_inner);
        let [first, sampled] = self.strata.watched.map(AtomicU64::into_inner);
        // The strata have not been given what ran last; nor has anything of a launch that failed,
        // and that ends there.
        let executed = executed.unwrap_or(start + rest).max(first + sampled);
        let [mut sums, mut others] = tallies;
        if rest > 0 {
            match sampled {
                0 => sums.scale(executed, first),
                _ => others.scale(executed - first, sampled),
            }
        }
        let watched = if rest > 0 { first + sampled } else { executed };
        sums.absorb(others);
        let (counts, hotspots, lines) = sums.finish(&self.sites);
        let (lines, lines_left_out) = lines.finish(self.launch);
        let counted = Counted { counts, hotspots, lines, lines_left_out, watched, executed };
        Observation {
            counts: self.options.count.then_some(counted),
            defects: defects.finish(&self.launch.kernel_name(), &self.sites),
            latent: latent.finish_latent(&self.launch.kernel_name(), &self.sites),
        }
    }
}

/// The block that an observer is at, where a sample is counted.
#[derive(Default)]
struct SampledBlock {
    /// Whether it has run at all.
    has_begun: bool,
    /// Whether it is counted.
    is_watched: bool,
    /// Instructions of warps that it has executed.
    executed: u64,
}

/// Watches one block after the other.
pub(super) struct Observer<'w, 'l> {
    watch: &'w Watch<'l>,
    /// By stratum.
    tallies: [Tallies; 2],
    /// The stratum of what runs now.
    stratum: usize,
    /// Instructions that its blocks had executed before.
    executed: u64,
    block: SampledBlock,
    /// The number of steps that it has watched since.
    steps: u64,
    checker: Option<Checker<'l>>,
}

impl Probe for Observer<'_, '_> {
    const WATCHES: bool = true;

    fn watches(&mut self, executed: u64) -> bool {
        let whole = match self.watch.options.sample {
            Some(whole) if self.checker.is_none() => whole,
            _ => return true,
        };
        self.account(executed - self.executed);
        if self.block.has_begun {
            self.block.executed += executed - self.executed;
        }
        self.executed = executed;
        if !self.block.has_begun || self.block.executed >= LONG_BLOCK {
            let Strata { executed, watched } = &self.watch.strata;
            let [first, sampled] = [&watched[0], &watched[1]].map(|count| count.load(Ordering::Relaxed));
            self.stratum = usize::from(first >= whole);
            let rest = executed[1].load(Ordering::Relaxed);
            self.block.is_watched = self.stratum == 0 || sampled.saturating_mul(ONE_IN) <= rest;
            self.block.has_begun = true;
        }
        self.block.is_watched
    }

    fn block_starts(&mut self, block: [u32; 3]) {
        self.block = SampledBlock::default();
        if let Some(checker) = &mut self.checker {
            checker.block_starts(block);
        }
    }

    fn step(&mut self, moment: &Moment) {
        let sites = self.watch.sites.of_function(moment.function);
        if self.watch.options.count {
            self.tallies[self.stratum].step(moment, sites);
            self.steps += 1;
        }
        if let Some(checker) = &mut self.checker {
            checker.step(moment, sites);
        }
    }

    fn barrier_opens(&mut self, barrier: u32, warps: &[Warp]) {
        if let Some(checker) = &mut self.checker {
            checker.barrier_opens(barrier, warps, &self.watch.sites);
        }
    }
}

impl Observer<'_, '_> {
    /// Accounts for `executed` instructions since the last call.
    fn account(&mut self, executed: u64) {
        let strata = &self.watch.strata;
        strata.executed[self.stratum].fetch_add(executed, Ordering::Relaxed);
        strata.watched[self.stratum].fetch_add(std::mem::take(&mut self.steps), Ordering::Relaxed);
    }
}

impl Drop for Observer<'_, '_> {
    fn drop(&mut self) {
        self.account(0);
        let mut seen = self.watch.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for (sums, tallies) in seen.tallies.iter_mut().zip(&mut self.tallies) {
            sums.absorb(std::mem::take(tallies));
        }
        if let Some(checker) = &mut self.checker {
            seen.defects.absorb(std::mem::take(&mut checker.defects));
            seen.latent.absorb(std::mem::take(&mut checker.latent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_watched_only_to_count_or_to_check() {
        let sample = Some(1 << 20);
        assert!(!WatchOptions { sample, ..WatchOptions::default() }.watch());
        assert!(WatchOptions { sample, count: true, ..WatchOptions::default() }.watch());
        assert!(WatchOptions { check: true, ..WatchOptions::default() }.watch());
    }
}
