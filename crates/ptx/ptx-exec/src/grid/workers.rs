//! The worker pool of a launch: each worker takes blocks until there are none. Where a launch has
//! clusters, a block here is a cluster of them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::block::Progress;
use super::cluster::Cluster;
use crate::fault::{Fault, Stop};
use crate::launch::Launch;
use crate::observe::probe::Probe;
use crate::warp::Counts;

/// The minimum number of times that each thread takes blocks. A higher number makes them end closer
/// together.
const SHARES: u64 = 32;

/// Most blocks that a thread takes at a time.
const MAX_SHARE: u64 = 16;

/// Most blocks that one thread takes turns with.
const MAX_RESIDENT: usize = 4096;

/// Executes all blocks, each worker's under a probe that `probe` makes if there is memory for it.
///
/// A worker that gets no thread, or no memory for a block, is left out: the others do its part.
/// Without memory for any block there is no launch.
pub(super) fn execute<P: Probe>(
    launch: &Launch,
    blocks: u64,
    workers: usize,
    probe: impl Fn() -> Option<P> + Sync,
) -> Result<Counts, Fault> {
    let work = Work {
        launch,
        probe,
        next: AtomicU64::new(0),
        share: (blocks / (workers as u64 * SHARES)).clamp(1, MAX_SHARE),
        blocks,
        outcome: Mutex::new(Ok(Counts::default())),
    };
    let Some(first) = work.room() else {
        return Err(launch.fault(launch.no_room(), [0; 3]));
    };
    std::thread::scope(|scope| {
        let worker = || {
            let thread = launch.memory.can_start_thread().then(std::thread::Builder::new)?;
            thread.spawn_scoped(scope, || work.run(None)).ok()
        };
        let workers: Vec<_> = (1..workers).map_while(|_| worker()).collect();
        work.run(Some(first));
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    work.outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The blocks that are still to be run.
struct Work<'w, 'a, F> {
    launch: &'w Launch<'a>,
    /// Makes the probe of a block.
    probe: F,
    next: AtomicU64,
    /// Blocks that a thread takes at a time: neighbours often access neighbouring memory.
    share: u64,
    blocks: u64,
    outcome: Mutex<Result<Counts, Fault>>,
}

impl<P: Probe, F: Fn() -> Option<P> + Sync> Work<'_, '_, F> {
    /// The next block; `mine` has those that this thread has taken already.
    fn take(&self, mine: &mut Range<u64>) -> Option<[u32; 3]> {
        if mine.is_empty() {
            let first = self.next.fetch_add(self.share, Ordering::Relaxed);
            *mine = first..first.saturating_add(self.share).min(self.blocks);
        }
        let index = mine.next()?;
        let [x, y, z] = self.launch.cluster_grid().map(u64::from);
        Some(match (y, z) {
            (1, 1) => [index as u32, 0, 0],
            _ => [index % x, index / x % y, index / x / y].map(|at| at as u32),
        })
    }

    /// Room for a block, if there is memory for it.
    fn room(&self) -> Option<Box<Cluster<'_, P>>> {
        Cluster::new(self.launch, &self.probe).map(Box::new)
    }

    /// Runs blocks until there are none, one has failed, or there is no memory for one: those are
    /// left to others.
    fn run<'b>(&'b self, mut spare: Option<Box<Cluster<'b, P>>>) {
        let mut mine = 0..0;
        let mut resident: VecDeque<Box<Cluster<P>>> = VecDeque::new();
        let mut counts = Counts::default();
        loop {
            let mut block = match resident.pop_front() {
                Some(block) => block,
                None => match self.start(&mut mine, &mut spare) {
                    Some(block) => block,
                    None => break,
                },
            };
            match block.run() {
                Ok(Progress::Done) => {
                    if let Some(other) = spare.replace(block) {
                        counts.add(&other.counts());
                    }
                }
                Ok(Progress::Waiting | Progress::AtClusterBarrier) => {
                    resident.push_back(block);
                    // What it waits for may not have started.
                    let another =
                        (resident.len() < MAX_RESIDENT).then(|| self.start(&mut mine, &mut spare)).flatten();
                    match another {
                        Some(block) => resident.push_front(block),
                        None => std::thread::yield_now(),
                    }
                }
                Err(stop) => {
                    self.fail(*stop, block.index());
                    return;
                }
            }
        }
        if let Some(block) = spare {
            counts.add(&block.counts());
        }
        if let Ok(total) = &mut *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) {
            total.add(&counts);
        }
    }

    /// The next block, at its start.
    fn start<'b>(
        &'b self,
        mine: &mut Range<u64>,
        spare: &mut Option<Box<Cluster<'b, P>>>,
    ) -> Option<Box<Cluster<'b, P>>> {
        if self.launch.failed.load(Ordering::Relaxed) {
            return None;
        }
        // A block is taken only once there is room for it.
        if spare.is_none() && (!mine.is_empty() || self.next.load(Ordering::Relaxed) < self.blocks) {
            *spare = self.room();
        }
        let mut block = spare.take()?;
        match self.take(mine) {
            Some(index) => block.start(index),
            None => {
                *spare = Some(block);
                return None;
            }
        }
        Some(block)
    }

    /// Keeps the first fault.
    fn fail(&self, stop: Stop, block: [u32; 3]) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let first = !self.launch.failed.swap(true, Ordering::Relaxed);
        if first {
            *outcome = Err(self.launch.fault(stop, block));
        }
    }
}
