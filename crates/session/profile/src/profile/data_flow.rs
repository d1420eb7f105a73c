//! Data flow: which launches of a repeated step wait for which, if only data orders them. The crate
//! `apex-data-flow` computes it from a session's arguments and PTX; a profile holds it for rules
//! and views.

/// Time from the end of a launch to the start of the next one in a CUDA graph, nanoseconds: an
/// empty kernel in a chain of 1000 takes an H200 that long.
const PAUSE_NS: f64 = 695.0;

/// The data flow of a step: of launches on one stream that repeat in the same order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataFlow {
    /// The process: an index into [`Profile::processes`](super::Profile::processes).
    pub process: usize,
    /// The launches, in their order.
    pub launches: Vec<FlowLaunch>,
    /// The number of times that the step was seen.
    pub repeats: u64,
    /// Time of the launches one after the other, nanoseconds: the sum of their kernels' means.
    pub serial_ns: f64,
    /// Time of the longest chain of launches that wait for each other, nanoseconds.
    pub chain_ns: f64,
    /// The launches of that chain, as indices into `launches`.
    pub chain: Vec<usize>,
    /// Time of the step if each launch starts when those that it waits for have ended, nanoseconds,
    /// where launches that need more than the whole GPU together share it: computed.
    pub concurrent_ns: f64,
}

/// A launch of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowLaunch {
    /// An index into [`Profile::kernels`](super::Profile::kernels).
    pub kernel: usize,
    /// The kernel's mean time, nanoseconds.
    pub ns: f64,
    /// The share of the GPU that it needs: of the places for blocks, or of its most used part if
    /// that is more. 1 if it is not known.
    pub share: f64,
    /// Whether the memory that it accesses is known. Otherwise it keeps its order with all others.
    pub is_known: bool,
    /// The launches that it waits for, without those that these wait for.
    pub waits_for: Vec<usize>,
}

impl DataFlow {
    /// Share of the step's time that concurrent launches would save, computed.
    pub fn saved(&self) -> f64 {
        if self.serial_ns > 0.0 { 1.0 - self.concurrent_ns / self.serial_ns } else { 0.0 }
    }

    /// The most that they could save: the longest chain is left, and what all launches together
    /// need of the GPU; and of the pauses between launches those of the chain.
    pub fn saved_at_most(&self) -> f64 {
        let pauses = |launches: usize| PAUSE_NS * launches as f64;
        let needed: f64 = self.launches.iter().map(|launch| launch.ns * launch.share).sum();
        let least = (self.chain_ns + pauses(self.chain.len())).max(needed);
        let serial = self.serial_ns + pauses(self.launches.len());
        if serial > 0.0 { (1.0 - least / serial).max(self.saved()) } else { 0.0 }
    }
}
