//! A cluster: the blocks that see each other's shared memory and wait at a common barrier.
//!
//! Its blocks run on one thread, in turns, each until it waits for the others or spins. So the
//! shared memory of a cluster needs no atomics either. A block of a launch without clusters is a
//! cluster of its own.

use super::block::{Block, Progress};
use crate::budget::{Arena, Share};
use crate::device::Region;
use crate::fault::Stop;
use crate::launch::{Launch, SHARED_ALIGNMENT};
use crate::observe::probe::Probe;
use crate::warp::Counts;

/// Turns in which no barrier opens after which a cluster lets others have its thread.
const PATIENCE: u32 = 4;

/// One resident cluster; used for one cluster after the other.
pub(crate) struct Cluster<'l, P> {
    launch: &'l Launch<'l>,
    /// By rank.
    blocks: Vec<Block<'l, P>>,
    /// Whether each block has ended.
    done: Vec<bool>,
    /// The block that ran last.
    at: usize,
    /// The shared memory of several blocks.
    shared: Option<Arena>,
    _share: Share<'l>,
}

impl<'l, P: Probe> Cluster<'l, P> {
    /// Room for a cluster of `launch`, each block with a probe; `None` if there is not enough
    /// memory for it.
    pub(crate) fn new(launch: &'l Launch<'l>, probe: &impl Fn() -> Option<P>) -> Option<Self> {
        let (count, stride) = (launch.cluster_blocks(), launch.cluster_stride());
        let mut share = Share::new(&launch.budget);
        let shared = match count {
            1 => None,
            _ => Some(Arena::new(stride * u64::from(count), SHARED_ALIGNMENT, &mut share)?),
        };
        let blocks = (0..count).map(|rank| {
            let place = shared.as_ref().map(|arena| {
                let start = arena.start() + stride * u64::from(rank);
                Region { start, end: start + launch.allocated_shared(), writable: true }
            });
            Block::new(launch, probe()?, place)
        });
        let blocks = blocks.collect::<Option<Vec<_>>>()?;
        Some(Cluster { launch, done: vec![false; blocks.len()], blocks, at: 0, shared, _share: share })
    }

    /// Sets all threads at the start of the kernel, in the cluster `index` of the grid.
    pub(crate) fn start(&mut self, index: [u32; 3]) {
        if let Some(arena) = &mut self.shared {
            arena.clear();
        }
        for (rank, block) in self.blocks.iter_mut().enumerate() {
            block.start(self.launch.block_of_cluster(index, rank as u32));
        }
        self.done.fill(false);
    }

    /// Runs until all blocks are done, or seem to wait for something outside.
    pub(crate) fn run(&mut self) -> Result<Progress, Box<Stop>> {
        if let [only] = self.blocks.as_mut_slice() {
            return only.run();
        }
        let mut turns = 0;
        loop {
            let mut spinning = false;
            for at in 0..self.blocks.len() {
                if !self.done[at] {
                    self.at = at;
                    let progress = self.blocks[at].run()?;
                    self.done[at] = progress == Progress::Done;
                    spinning |= progress == Progress::Waiting;
                }
            }
            let Some(first) = self.done.iter().position(|done| !done) else { return Ok(Progress::Done) };
            if self.open_barrier() {
                turns = 0;
            } else if !spinning {
                self.at = first;
                return Err(self.blocks[first].deadlock());
            } else {
                turns += 1;
            }
            if turns == PATIENCE {
                return Ok(Progress::Waiting);
            }
        }
    }

    /// Ends the phase of the cluster's barrier if all threads have arrived there; whether some go
    /// on.
    fn open_barrier(&mut self) -> bool {
        let complete = self.blocks.iter().all(Block::has_arrived_at_cluster);
        complete && self.blocks.iter_mut().fold(false, |any, block| block.pass_cluster_barrier() | any)
    }

    /// The block that ran last.
    pub(crate) fn index(&self) -> [u32; 3] {
        self.blocks[self.at].index
    }

    /// Instructions that all blocks have executed.
    pub(crate) fn counts(&self) -> Counts {
        let mut all = Counts::default();
        self.blocks.iter().for_each(|block| all.add(&block.counts));
        all
    }
}
