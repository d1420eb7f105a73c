//! The barriers of a block, and the threads that have arrived.

use super::Waiting;

/// Barriers of a block.
pub(crate) const BARRIERS: usize = 16;

/// Threads that have arrived at barriers without waiting there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Barriers {
    pub(crate) arrived: [u32; BARRIERS],
    /// Expected threads, as the last `bar.arrive` said.
    pub(crate) expected: [Option<u32>; BARRIERS],
    pub(crate) cluster: ClusterBarrier,
}

impl Barriers {
    /// Whether the barrier exists and nobody has arrived there.
    pub(crate) fn is_unused(&self, barrier: u32) -> bool {
        let index = barrier as usize;
        index < BARRIERS && self.arrived[index] == 0 && self.expected[index].is_none()
    }

    /// Forgets what came before: a block begins.
    pub(crate) fn clear(&mut self) {
        self.arrived.fill(0);
        self.expected.fill(None);
        self.cluster.arrived.fill(0);
        self.cluster.passed.fill(0);
    }

    /// Counts threads that do not wait.
    pub(crate) fn arrive(&mut self, waiting: &Waiting, threads: u32) {
        let index = waiting.barrier as usize % BARRIERS;
        self.arrived[index] = self.arrived[index].saturating_add(threads);
        self.expected[index] = waiting.threads.or(self.expected[index]);
    }
}

/// The number of [`ClusterBarrier`], after those of the numbered barriers.
pub(crate) const CLUSTER_BARRIER: u32 = BARRIERS as u32;

/// The barrier of the block's cluster, which has no other blocks: lanes that have arrived in the
/// current phase, and lanes whose phase is over but which have not waited for it yet, by warp.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterBarrier {
    pub(crate) arrived: Vec<u32>,
    pub(crate) passed: Vec<u32>,
}

impl ClusterBarrier {
    pub(crate) fn new(warps: usize) -> Self {
        ClusterBarrier { arrived: vec![0; warps], passed: vec![0; warps] }
    }

    pub(crate) fn arrive(&mut self, warp: u32, lanes: u32) {
        self.arrived[warp as usize] |= lanes;
    }

    /// Whether the phase of all these lanes is over; then they have waited for it.
    pub(crate) fn pass(&mut self, warp: u32, lanes: u32) -> bool {
        let passed = &mut self.passed[warp as usize];
        let over = lanes & !*passed == 0;
        if over {
            *passed &= !lanes;
        }
        over
    }
}
