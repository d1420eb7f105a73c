//! A grid: its blocks, executed by a pool of worker threads.
//!
//! Each core has a thread, which takes the next cluster (without clusters: the next block) in order
//! and runs it to its end. One that spins without progress may wait for another that has not
//! started (a grid barrier): its thread then also starts that one and alternates between both. Such
//! kernels therefore end if they end on a GPU on which the whole grid is resident.

mod block;
mod cluster;
mod workers;

use std::sync::atomic::AtomicBool;

use crate::device::{KernelId, Memory, Region};
use crate::fault::{Fault, FaultKind};
use crate::float_control::DefaultFloats;
use crate::launch::{Launch, LaunchParams, Linked, kernel_name, prepare};
use crate::observe::probe::Unwatched;
use crate::observe::{Observation, Watch, WatchOptions};
use crate::warp::Counts;
use workers::execute;

/// The operations that a launch executed. Where branches diverge in machine code, only the counts
/// of threads are exact; for the other counts, each eight threads count as a quarter of a warp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchStats {
    /// Instructions, each counted once for all lanes of a warp that execute it together.
    pub warp_instructions: u64,
    /// Instructions, counted for each thread.
    pub thread_instructions: u64,
    /// Branches, by warp.
    pub branches: u64,
    /// Branches that lanes of a warp took differently.
    pub divergent_branches: u64,
}

/// Runs a kernel to its end.
///
/// # Errors
///
/// A [`Fault`] says what stopped it. Blocks that were running then have done part of their work.
pub fn launch(
    linked: &Linked,
    kernel: KernelId,
    params: &LaunchParams,
    memory: &dyn Memory,
    cancel: &AtomicBool,
) -> Result<LaunchStats, Fault> {
    launch_by(linked, kernel, params, memory, cancel, |launch, blocks, workers| {
        execute(launch, blocks, workers, || Some(Unwatched))
    })
}

/// Runs a kernel to its end and watches it: several times slower than [`launch`]. What was seen of
/// a launch that fails is what happened until then. Clusters of several blocks are not watched.
///
/// # Errors
///
/// As [`launch`], beside what was seen.
pub fn watch(
    linked: &Linked,
    kernel: KernelId,
    params: &LaunchParams,
    memory: &dyn Memory,
    cancel: &AtomicBool,
    options: WatchOptions,
) -> (Result<LaunchStats, Fault>, Observation) {
    if params.config.blocks_per_cluster() > 1 {
        // Observers know the shared memory of one block.
        return (launch(linked, kernel, params, memory, cancel), Observation::default());
    }
    let mut observation = Observation::default();
    let outcome = launch_by(linked, kernel, params, memory, cancel, |launch, blocks, workers| {
        let watch = Watch::new(launch, options);
        let outcome = execute(launch, blocks, workers, || watch.observer());
        observation = watch.finish(outcome.as_ref().ok().map(|counts| counts.warp_instructions));
        outcome
    });
    (outcome, observation)
}

/// Prepares a launch of this number of blocks and threads, and has `run` execute it.
fn launch_by(
    linked: &Linked,
    kernel: KernelId,
    params: &LaunchParams,
    memory: &dyn Memory,
    cancel: &AtomicBool,
    run: impl FnOnce(&Launch, u64, usize) -> Result<Counts, Fault>,
) -> Result<LaunchStats, Fault> {
    // The workers are made while it lives, so they inherit it.
    let _floats = DefaultFloats::enter();
    // Parameters are addressed like any memory: aligned, and theirs to read.
    let mut parameters = vec![0u128; params.params.len().div_ceil(16).max(1)];
    // SAFETY: the vector has at least as many bytes, and any bytes are a valid `u128`.
    unsafe {
        let start = parameters.as_mut_ptr().cast::<u8>();
        std::ptr::copy_nonoverlapping(params.params.as_ptr(), start, params.params.len());
    }
    let start = parameters.as_ptr() as u64;
    let region = Region { start, end: start + params.params.len() as u64, writable: false };
    let workspace = Workspace::new(memory, params.cooperative);
    let mut launch = prepare(linked, kernel, params, memory, cancel, region).map_err(|text| Fault {
        kind: FaultKind::InvalidLaunch,
        text,
        kernel: kernel_name(linked, kernel),
        block: [0; 3],
        thread: [0; 3],
        address: None,
        instruction: String::new(),
        line: 0,
        source: None,
        inlined_at: None,
    })?;
    launch.workspace = workspace.address;
    let blocks = launch.clusters();
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if params.workers == 0 { cores() } else { params.workers };
    let workers = workers.min(blocks.try_into().unwrap_or(usize::MAX));
    let outcome = run(&launch, blocks, workers);
    drop(parameters);
    outcome.map(|counts| LaunchStats {
        warp_instructions: counts.warp_instructions,
        thread_instructions: counts.thread_instructions,
        branches: counts.branches,
        divergent_branches: counts.divergent_branches,
    })
}

/// Memory that the blocks of a cooperative launch share, for the grid barrier of cooperative
/// groups: its counter is the second word. Whether there is one tells device code whether its grid
/// can synchronise.
struct Workspace<'a> {
    memory: &'a dyn Memory,
    address: u64,
}

impl<'a> Workspace<'a> {
    fn new(memory: &'a dyn Memory, cooperative: bool) -> Self {
        let address = if cooperative { memory.malloc(size_of::<u128>() as u64) } else { 0 };
        if address != 0 {
            // SAFETY: `malloc` has just given these bytes, aligned to 16.
            unsafe { (address as *mut u128).write(0) };
            if let Some(shadow) = memory.shadow(address) {
                shadow.mark(address, size_of::<u128>() as u64);
            }
        }
        Workspace { memory, address }
    }
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        if self.address != 0 {
            // It is what `malloc` returned; a kernel that has freed it has only harmed itself.
            let _ = self.memory.free(self.address);
        }
    }
}
