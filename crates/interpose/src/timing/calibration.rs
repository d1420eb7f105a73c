//! What an event pair reads around a kernel that does nothing.
//!
//! Events are recorded by the GPU's front end, so a pair around a kernel reads more than the kernel
//! took: some 2.8 µs on a busy stream of an H200, 4.4 µs on an idle one, where the launch's way to
//! the GPU lies between them too. Both are measured once for a context, on a stream of our own,
//! with an empty kernel, while nothing of the program runs in it.

use crate::driver::Scratch;

/// What pairs read around nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairCost {
    /// On a stream that is busy, ns.
    pub busy_ns: u32,
    /// On a stream that was idle, ns.
    pub idle_ns: u32,
}

/// An empty kernel, in PTX that every driver since CUDA 10 takes for every device since Volta.
const EMPTY_KERNEL: &std::ffi::CStr =
    c".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry apex_empty()\n{\n\tret;\n}\n";

/// Pairs of which the median is taken.
const PAIRS: usize = 16;
/// Kernels queued ahead of the pairs, so that the stream is busy when the GPU comes to them.
const AHEAD: usize = 32;

/// Measures in the current context; `None` if anything fails. Takes a few milliseconds, most of
/// them to load the kernel.
pub fn measure() -> Option<PairCost> {
    let scratch = Scratch::new(EMPTY_KERNEL, c"apex_empty", PAIRS)?;
    scratch.launch()?;
    scratch.wait()?;
    let mut idle = [0; PAIRS];
    for (index, reading) in idle.iter_mut().enumerate() {
        scratch.launch_between_events(index)?;
        scratch.wait()?;
        *reading = scratch.elapsed_ns(index)?;
    }
    for _ in 0..AHEAD {
        scratch.launch()?;
    }
    for index in 0..PAIRS {
        scratch.launch_between_events(index)?;
    }
    scratch.wait()?;
    let mut busy = [0; PAIRS];
    for (index, reading) in busy.iter_mut().enumerate() {
        *reading = scratch.elapsed_ns(index)?;
    }
    Some(PairCost { busy_ns: median(busy), idle_ns: median(idle) })
}

fn median(mut readings: [u64; PAIRS]) -> u32 {
    readings.sort_unstable();
    readings[PAIRS / 2].try_into().unwrap_or(u32::MAX)
}
