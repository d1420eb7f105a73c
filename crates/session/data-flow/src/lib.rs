//! The data flow of the steps of a recorded session.
//!
//! A step is a sequence of launches of one stream that repeats ([`steps`]), with no other call in
//! between. For each of its launches, the PTX and the recorded arguments (`apex run --code`) tell
//! which memory it may access ([`spans`]); a launch waits for the earlier ones with which it shares
//! memory that one of the two writes ([`order`]). The longest chain of such waits is the least time
//! of the step. What the GPU's size allows is more ([`concurrency`]): launches that need all of it
//! do not overlap.
//!
//! # Invariants
//! 1. *Unknown means order.* A launch whose PTX, arguments or accesses are not known waits for all
//!    before it, and all behind it wait for it. A step of which too little is known is left out.
//! 2. *No time below what is possible*: never below the longest chain, nor below the sum of what
//!    each launch needs of the GPU.

mod concurrency;
mod order;
mod spans;
mod steps;

use apex_predict_session::programs::Programs;
use apex_profile::{DataFlow, FlowLaunch, Kernel, Profile};
use apex_trace::Session;
use concurrency::{concurrent_ns, share_of};
use order::{longest_chain, waits};
use spans::Memory;
use steps::Step;

/// Most steps of a session that are looked at, of those that were seen most often.
const MOST_STEPS: usize = 32;
/// Minimum share of a step's time in launches whose accesses are known.
const LEAST_KNOWN: f64 = 0.5;

/// The data flow of a session's steps, the one with most time first. Nothing of sessions that were
/// recorded without arguments.
pub fn of_session(session: &Session, profile: &Profile) -> Vec<DataFlow> {
    if profile.kernels.iter().all(|kernel| kernel.code.is_none()) {
        return Vec::new();
    }
    let programs = Programs::of(profile);
    let mut memory = Memory::new(profile, &programs);
    let mut all = Vec::new();
    for (at, process) in session.processes.iter().enumerate() {
        for step in steps::of_process(process, MOST_STEPS) {
            all.extend(flow(at, process, &step, profile, &mut memory));
        }
    }
    all.sort_by(|a: &DataFlow, b| time(b).total_cmp(&time(a)));
    all
}

fn time(flow: &DataFlow) -> f64 {
    flow.serial_ns * flow.repeats as f64
}

/// The data flow of a step; `None` if a kernel was not timed, or too little is known.
fn flow(
    at: usize,
    process: &apex_trace::Process,
    step: &Step,
    profile: &Profile,
    memory: &mut Memory<'_>,
) -> Option<DataFlow> {
    let kernels: Vec<usize> =
        step.launches.iter().map(|launch| memory.kernel(process, launch.config)).collect::<Option<_>>()?;
    let spans = memory.spans(process, &step.launches, &kernels);
    let waits = waits(&spans);
    let mut launches = Vec::new();
    for (at, (&kernel, waits_for)) in kernels.iter().zip(waits).enumerate() {
        let Kernel { gpu, .. } = &profile.kernels[kernel];
        let ns = gpu.as_ref()?.each.mean_ns.max(0.0);
        let share = share_of(&profile.kernels[kernel]);
        launches.push(FlowLaunch { kernel, ns, share, is_known: spans[at].known().is_some(), waits_for });
    }
    let serial_ns = launches.iter().map(|launch| launch.ns).sum();
    let known_ns: f64 = launches.iter().filter(|launch| launch.is_known).map(|launch| launch.ns).sum();
    if known_ns < LEAST_KNOWN * serial_ns {
        return None;
    }
    let (chain, chain_ns) = longest_chain(&launches);
    let concurrent_ns = concurrent_ns(&launches).clamp(chain_ns, f64::max(chain_ns, serial_ns));
    Some(DataFlow { process: at, launches, repeats: step.repeats, serial_ns, chain_ns, chain, concurrent_ns })
}
