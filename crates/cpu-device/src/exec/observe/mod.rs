//! Watching launches: counting what they do, and looking for defects in them.
//!
//! A [`Watch`] goes with a launch; each block that is resident has an observer of its own, and what these have seen is
//! put together when they go. Reading order: `site` (what a step is), `survey` (where its lanes access memory), `request` (how often),
//! `tally` (counting); `order`, `race`, `check` (looking for defects).

mod check;
mod order;
mod race;
mod request;
mod site;
mod survey;
mod tally;

use std::sync::{Mutex, PoisonError};

use trace::counts::{Counts, Defect, Hotspot};

use super::launch::Launch;
use super::probe::{Moment, Probe};
use super::warp::Warp;
use check::{Checker, Defects};
use site::Sites;
use tally::Tallies;

/// What an observed launch is watched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Count instructions, transactions, divergence.
    pub count: bool,
    /// Look for defects.
    pub check: bool,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// What was counted, and the worst places; none unless it was wished for.
    pub counts: Option<(Counts, Vec<Hotspot>)>,
    /// The defects that were found.
    pub defects: Vec<Defect>,
}

/// Watches a launch.
pub(super) struct Watch<'l> {
    launch: &'l Launch<'l>,
    wishes: Wishes,
    sites: Sites<'l>,
    seen: Mutex<(Tallies, Defects)>,
}

impl<'l> Watch<'l> {
    pub(super) fn new(launch: &'l Launch<'l>, wishes: Wishes) -> Self {
        Watch { launch, wishes, sites: Sites::new(launch), seen: Mutex::default() }
    }

    /// An observer for one block after the other, if there is memory for what it keeps.
    pub(super) fn observer(&self) -> Option<Observer<'_, 'l>> {
        let checker = if self.wishes.check { Some(Checker::new(self.launch)?) } else { None };
        Some(Observer { watch: self, tallies: Tallies::default(), checker })
    }

    /// What all observers have seen, once they are gone.
    pub(super) fn finish(self) -> Observation {
        let (tallies, defects) = self.seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        Observation {
            counts: self.wishes.count.then(|| tallies.finish(&self.sites)),
            defects: defects.finish(&self.launch.kernel_name(), &self.sites),
        }
    }
}

/// Watches one block after the other.
pub(super) struct Observer<'w, 'l> {
    watch: &'w Watch<'l>,
    tallies: Tallies,
    checker: Option<Checker<'l>>,
}

impl Probe for Observer<'_, '_> {
    const WATCHES: bool = true;

    fn block_starts(&mut self, block: [u32; 3]) {
        if let Some(checker) = &mut self.checker {
            checker.block_starts(block);
        }
    }

    fn step(&mut self, moment: &Moment) {
        let sites = self.watch.sites.of(moment.function);
        if self.watch.wishes.count {
            self.tallies.step(moment, sites);
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

impl Drop for Observer<'_, '_> {
    fn drop(&mut self) {
        let mut seen = self.watch.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.0.absorb(std::mem::take(&mut self.tallies));
        if let Some(checker) = &mut self.checker {
            seen.1.absorb(std::mem::take(&mut checker.defects));
        }
    }
}
