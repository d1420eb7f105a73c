//! A block: its warps, its memory, its barriers.
//!
//! Warps run on one thread, one after the other or as a [warp batch](crate::warp::batch), each
//! until it waits, ends or is out of fuel. So shared memory needs no atomics, and what a block
//! computes without races does not depend on the order.

use std::ops::Range;

use crate::budget::{Arena, Share};
use crate::code::BarrierKind;
use crate::device::Region;
use crate::fault::{FaultKind, Stop};
use crate::launch::{Launch, SHARED_ALIGNMENT};
use crate::memory::spaces::Spaces;
use crate::observe::probe::{Probe, Unwatched};
use crate::registers::Registers;
use crate::registers::lanes::{Lanes, WARP};
use crate::registers::pattern::Pattern;
use crate::warp::barrier::{BARRIERS, Barriers, CLUSTER_BARRIER, ClusterBarrier};
use crate::warp::batch::{self, Parting};
use crate::warp::{Counts, Pause, State, Surroundings, Waiting, Warp};

/// Rounds over all warps, most of which spin, after which a block lets others have its thread.
const PATIENCE: u32 = 16;

/// The state of a block after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All threads have exited.
    Done,
    /// It may wait for other blocks.
    Waiting,
    /// Nothing goes on before the other blocks of the cluster have come to its barrier.
    AtClusterBarrier,
}

/// One resident block; used for one block after the other.
pub(crate) struct Block<'l, P> {
    launch: &'l Launch<'l>,
    pub(crate) index: [u32; 3],
    warps: Vec<Warp>,
    /// Warps that have executed a step of this block.
    begun: usize,
    /// Registers of warps that have exited: the next batch finds them in the cache.
    idle: Vec<Registers>,
    barriers: Barriers,
    spaces: Spaces<'l>,
    /// Its shared memory, unless that is part of its cluster's.
    shared: Option<Arena>,
    // The windows in `spaces` point into it.
    _local: Arena,
    /// The block's share of the launch's budget.
    share: Share<'l>,
    /// Most warps of a batch.
    batch: usize,
    /// The lanes of the last batch.
    lanes: Vec<Lanes>,
    /// The pattern of the threads, if the kernel has a prologue.
    threads: Option<Pattern>,
    /// Whether they are those of all warps where the kernel begins.
    ready: bool,
    started: bool,
    pub(crate) counts: Counts,
    pub(crate) probe: P,
    /// Whether the probe watches the warps that run now.
    watched: bool,
}

impl<'l, P: Probe> Block<'l, P> {
    /// Room for a block of `launch`, with its shared memory at `place` or of its own; `None` if
    /// there is not enough memory for it.
    pub(crate) fn new(launch: &'l Launch<'l>, probe: P, place: Option<Region>) -> Option<Self> {
        let mut share = Share::new(&launch.budget);
        let shared = match place {
            Some(_) => None,
            None => Some(Arena::new(launch.allocated_shared(), SHARED_ALIGNMENT, &mut share)?),
        };
        let warps = launch.warps();
        let local_total = launch.local_of_block();
        let local = Arena::new(local_total, u64::from(launch.local_align), &mut share)?;
        let window = |start: u64, bytes: u64| Region { start, end: start + bytes, writable: true };
        let own = shared.as_ref().map(|arena| window(arena.start(), launch.allocated_shared()));
        let (shared_window, local_window) = (place.or(own)?, window(local.start(), local_total));
        let mut spaces =
            Spaces::new(launch.memory, launch.params, shared_window, local_window, launch.local_bytes);
        spaces.requested_shared = launch.shared_bytes;
        let warp_local = |index: u32| local.start() + u64::from(index) * WARP as u64 * launch.local_bytes;
        Some(Block {
            launch,
            index: [0; 3],
            warps: (0..warps)
                .map(|index| Warp::new(index, launch, shared_window.start, warp_local(index)))
                .collect(),
            begun: 0,
            idle: Vec::new(),
            barriers: Barriers { cluster: ClusterBarrier::new(warps as usize), ..Barriers::default() },
            spaces,
            shared,
            _local: local,
            share,
            batch: batch::most(launch.code(launch.kernel_function).registers),
            lanes: Vec::new(),
            threads: None,
            ready: false,
            started: false,
            counts: Counts::default(),
            probe,
            watched: false,
        })
    }

    /// Sets all threads at the start of the kernel, in block `index`.
    pub(crate) fn start(&mut self, index: [u32; 3]) {
        self.index = index;
        self.barriers.clear();
        self.spaces.cluster = self.launch.cluster_memory(self.spaces.shared.start, index);
        if let Some(shared) = &mut self.shared
            && self.started
            && self.launch.shared_bytes > 0
        {
            // What the last block left there is nobody's business.
            shared.clear();
        }
        (self.begun, self.started) = (0, true);
        self.probe.block_starts(index);
    }

    /// Runs until the block is done, or seems to wait for something outside.
    pub(crate) fn run(&mut self) -> Result<Progress, Box<Stop>> {
        let mut spinning_rounds = 0;
        loop {
            let (mut live, mut tired, mut spinning) = (false, false, false);
            self.watched = self.probe.watches(self.counts.warp_instructions);
            let mut at = 0;
            while let Some((which, fresh)) = self.choose(at) {
                at = which.end;
                match self.run_warps(which, fresh)? {
                    Pause::Exited => {}
                    Pause::Waiting => live = true,
                    Pause::Tired { spinning: this } => {
                        (live, tired, spinning) = (true, true, spinning | this)
                    }
                }
            }
            if !live {
                return Ok(Progress::Done);
            }
            let released = self.release_barriers();
            if !released && !tired {
                return match self.waits_for_cluster() {
                    true => Ok(Progress::AtClusterBarrier),
                    false => Err(self.deadlock()),
                };
            }
            spinning_rounds = if spinning && !released { spinning_rounds + 1 } else { 0 };
            if spinning_rounds == PATIENCE {
                return Ok(Progress::Waiting);
            }
        }
    }

    /// The next warps from `at` on that have not exited and can set out together, and whether that
    /// is their first step.
    fn choose(&mut self, at: usize) -> Option<(Range<usize>, bool)> {
        let most = if self.watched { 1 } else { self.batch };
        let begun = &self.warps[..self.begun];
        if let Some(first) = (at..begun.len()).find(|&index| begun[index].live != 0) {
            return Some((first..first + batch::size(&begun[first..], most), false));
        }
        let first = self.begun.max(at);
        self.begun = self.warps.len().min(first + most);
        (first < self.begun).then_some((first..self.begun, true))
    }

    /// Runs warps that can set out together until each has exited, waits or is tired: together as
    /// far as they get, then one after the other. What comes back is why the one that got furthest
    /// paused.
    fn run_warps(&mut self, which: Range<usize>, fresh: bool) -> Result<Pause, Box<Stop>> {
        let (all, together) = (self.warps.len(), which.len());
        let others = || self.warps.iter().enumerate().filter(|(index, _)| !which.contains(index));
        let everyone = all == together || self.begun == all && others().all(|(_, warp)| warp.live == 0);
        let (launch, block) = (self.launch, self.index);
        let warps = &mut self.warps[which];
        // A block whose warps end together leaves all as the next one needs it.
        let ready = std::mem::take(&mut self.ready) && fresh && all == together;
        if fresh && !ready {
            for warp in &mut *warps {
                warp.take_registers(launch, block, self.spaces.shared.start, &mut self.idle);
            }
        }
        let mut around = Surroundings {
            launch,
            spaces: &mut self.spaces,
            barriers: &mut self.barriers,
            counts: &mut self.counts,
            share: &mut self.share,
            block,
        };
        let mut parting = Parting::Alone;
        if together > 1 && !launch.cancelled() {
            if !ready {
                self.lanes.clear();
                let lanes = warps.iter_mut();
                self.lanes.extend(
                    lanes.map(|warp| if fresh { warp.first_lanes(launch) } else { warp.whole_lanes() }),
                );
                let prologue = launch.code(launch.kernel_function).prologue.as_ref();
                // SAFETY: these are frames of the kernel.
                self.threads =
                    prologue.filter(|_| fresh).and_then(|prologue| unsafe { prologue.threads(&self.lanes) });
            }
            let threads = self.threads.as_ref();
            parting = batch::run(warps, &mut self.lanes, &mut around, everyone, fresh, threads);
            self.ready = fresh && all == together && parting == Parting::Exited;
        } else if fresh {
            warps.iter_mut().for_each(|warp| warp.start(launch, block));
        }
        if let Parting::Tired { spinning } = parting {
            return Ok(Pause::Tired { spinning });
        }
        let mut last = Pause::Exited;
        for warp in &mut *warps {
            if parting == Parting::Alone && warp.live != 0 {
                if launch.cancelled() {
                    return Err(cancelled(warp));
                }
                last = last.max(match self.watched {
                    true => warp.run(&mut around, &mut self.probe)?,
                    false => warp.run(&mut around, &mut Unwatched)?,
                });
            }
            // With fewer warps each keeps its own: its inputs stay in them.
            if all > self.batch && warp.live == 0 {
                warp.give_registers(&mut self.idle);
            }
        }
        Ok(last)
    }

    /// Lets those go on whose barrier is complete; whether any was.
    fn release_barriers(&mut self) -> bool {
        let is_alone = self.launch.cluster_blocks() == 1;
        let mut released = is_alone && self.has_arrived_at_cluster() && self.pass_cluster_barrier();
        let mut waited_for = 0u32;
        for path in self.warps.iter().flat_map(|warp| &warp.paths) {
            if let State::Barrier(waiting) = path.state {
                waited_for |= 1 << (waiting.barrier as usize % BARRIERS);
            }
        }
        for barrier in (0..BARRIERS as u32).filter(|barrier| waited_for >> barrier & 1 != 0) {
            let Some((arrived, expected)) = self.count(barrier) else { continue };
            let complete = match expected {
                Some(expected) => arrived >= expected,
                None => self.everyone_waits(barrier),
            };
            if !complete {
                continue;
            }
            let (votes, voters) = self.votes(barrier);
            let outcome = |kind| match kind {
                BarrierKind::Popc => votes,
                BarrierKind::And => u32::from(votes == voters),
                _ => u32::from(votes != 0),
            };
            self.probe.barrier_opens(barrier, &self.warps);
            self.warps.iter_mut().for_each(|warp| warp.release(barrier, outcome));
            self.barriers.arrived[barrier as usize] = 0;
            self.barriers.expected[barrier as usize] = None;
            released = true;
        }
        released
    }

    /// Whether threads wait at the barrier of a cluster that has other blocks.
    fn waits_for_cluster(&self) -> bool {
        let waits = |warp: &Warp| waiting_at(warp, CLUSTER_BARRIER).next().is_some();
        self.launch.cluster_blocks() > 1 && self.warps.iter().any(waits)
    }

    /// Whether no thread is missing at the cluster's barrier; those that have exited are not.
    pub(crate) fn has_arrived_at_cluster(&self) -> bool {
        // Warps that have not begun have not come either.
        let arrived = self.warps.iter().zip(&self.barriers.cluster.arrived);
        self.begun == self.warps.len() && arrived.clone().all(|(warp, arrived)| warp.live & !arrived == 0)
    }

    /// Ends the phase of the cluster's barrier, at which all have arrived; whether that lets any
    /// thread go on.
    pub(crate) fn pass_cluster_barrier(&mut self) -> bool {
        if self.barriers.cluster.arrived.iter().all(|&lanes| lanes == 0) {
            return false;
        }
        self.probe.barrier_opens(CLUSTER_BARRIER, &self.warps);
        let cluster = &mut self.barriers.cluster;
        let mut released = false;
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let waiting = waiting_at(warp, CLUSTER_BARRIER).fold(0, |mask, (here, _)| mask | here);
            cluster.passed[index] |= std::mem::take(&mut cluster.arrived[index]) & !waiting;
            released |= waiting != 0;
            warp.release(CLUSTER_BARRIER, |_| 0);
        }
        released
    }

    /// Threads that have come to a barrier and how many it expects (all, if nobody says); `None` if
    /// nobody waits.
    ///
    /// A warp whose threads have all come counts as 32 threads, as thread counts of barriers do.
    fn count(&self, barrier: u32) -> Option<(u32, Option<u32>)> {
        let mut arrived = self.barriers.arrived[barrier as usize];
        let mut expected = self.barriers.expected[barrier as usize];
        let mut anybody = false;
        for warp in &self.warps {
            let mut mask = 0u32;
            for (fragment_mask, waiting) in waiting_at(warp, barrier) {
                mask |= fragment_mask;
                expected = waiting.threads.or(expected);
            }
            if mask != 0 {
                anybody = true;
                arrived += if mask == warp.live { WARP as u32 } else { mask.count_ones() };
            }
        }
        anybody.then_some((arrived, expected))
    }

    fn everyone_waits(&self, barrier: u32) -> bool {
        // Threads that arrived without waiting are counted, not known.
        let mut missing = 0;
        for warp in &self.warps {
            let mask = waiting_at(warp, barrier).fold(0, |mask, (here, _)| mask | here);
            missing += (warp.live & !mask).count_ones();
        }
        missing <= self.barriers.arrived[barrier as usize]
    }

    /// True predicates at a barrier, and threads that brought one.
    fn votes(&self, barrier: u32) -> (u32, u32) {
        let (mut votes, mut voters) = (0, 0);
        for (mask, waiting) in self.warps.iter().flat_map(|warp| waiting_at(warp, barrier)) {
            if waiting.kind != BarrierKind::Sync {
                votes += waiting.votes.count_ones();
                voters += mask.count_ones();
            }
        }
        (votes, voters)
    }

    pub(super) fn deadlock(&self) -> Box<Stop> {
        let text = "every thread of the block waits, at a barrier or for other lanes, and none can go on";
        let stuck = self.warps.iter().find_map(|warp| warp.stuck(FaultKind::Deadlock, text));
        stuck.unwrap_or_else(|| Box::new(Stop::nowhere(FaultKind::Deadlock, text)))
    }
}

/// The end of a launch that somebody cancelled while `warp` was to run.
#[cold]
fn cancelled(warp: &Warp) -> Box<Stop> {
    let text = "the launch was cancelled";
    let stop = warp.stuck(FaultKind::Cancelled, text);
    stop.unwrap_or_else(|| Box::new(Stop::nowhere(FaultKind::Cancelled, text)))
}

/// Masks and conditions of a warp's paths that wait at `barrier`.
fn waiting_at(warp: &Warp, barrier: u32) -> impl Iterator<Item = (u32, Waiting)> {
    warp.paths.iter().filter_map(move |path| match path.state {
        State::Barrier(waiting) if waiting.barrier == barrier => Some((path.mask, waiting)),
        _ => None,
    })
}
