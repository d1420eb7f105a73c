//! Measures how much longer the time of an event pair is than the kernel between its events, and
//! whether streams can be delayed.
//!
//! The GPU's front end records events, so a pair around a kernel measures more than the kernel. The
//! difference is measured once for each context, on a stream of the library, with an empty kernel,
//! while no work of the program runs in the context: after a delay, in a long queue, and on an idle
//! stream, where the launch's way to the GPU lies between the events too.
//!
//! A kernel of one thread delays a stream. It ends after a number of clock cycles, and after as
//! many iterations at the latest. Work that is launched in the meantime runs back to back.

use crate::driver::{self, Scratch};
use cuda_abi::types::*;

/// The time by which a pair's reading exceeds the time between its events, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCost {
    /// The cost on a stream that is delayed while the pair is recorded, and has little to do after
    /// it.
    pub delayed: u32,
    /// In a long queue.
    pub busy: u32,
    /// The cost on a stream that was idle.
    pub idle: u32,
}

/// The calibration of a context's pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    pub cost: PairCost,
    /// The way in which streams are delayed; `None` if they cannot be.
    pub delay: Option<Delay>,
}

/// A kernel that delays the stream that it is launched into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The kernel, which is in the context for as long as the context lives.
    pub kernel: CUfunction,
    /// The increments of its clock in a microsecond.
    pub cycles_per_us: u32,
}

impl Delay {
    /// Delays a stream by `us` microseconds; returns false if the driver refuses.
    ///
    /// # Safety
    /// The context that was calibrated lives.
    pub unsafe fn launch(self, us: u16, stream: CUstream) -> bool {
        // SAFETY: by contract; the kernel takes one number.
        unsafe { driver::launch_thread(self.kernel, Some(self.cycles(us)), stream) }
    }

    fn cycles(self, us: u16) -> u32 {
        self.cycles_per_us.saturating_mul(us.into())
    }
}

/// An empty kernel and one that delays, in PTX that every driver since CUDA 10 takes for every
/// device since Volta.
const KERNELS: &std::ffi::CStr = cr".version 6.0
.target sm_50
.address_size 64

.visible .entry apex_empty()
{
	ret;
}

.visible .entry apex_delay(.param .u32 cycles)
{
	.reg .pred %again<3>;
	.reg .u32 %cycles, %left, %start, %now, %passed;
	ld.param.u32 %cycles, [cycles];
	mov.u32 %left, %cycles;
	mov.u32 %start, %clock;
wait:
	mov.u32 %now, %clock;
	sub.u32 %passed, %now, %start;
	setp.lt.u32 %again1, %passed, %cycles;
	sub.u32 %left, %left, 1;
	setp.ne.and.u32 %again2, %left, 0, %again1;
	@%again2 bra wait;
	ret;
}
";

/// The time of an empty kernel, in nanoseconds. By CUPTI it is 0.54 to 0.61 µs on an H200, and the
/// pairs of kernels that use memory cost 0.1 to 0.2 µs more than its own.
pub const EMPTY_KERNEL_NS: u32 = 400;

/// Pairs that are recorded together at most.
const PAIRS: usize = 24;
/// Pairs of which the median is taken where they are recorded one by one.
const ALONE: usize = 16;
/// The number of pairs in a long queue that have a long queue behind them. (The last eight cost
/// 0.6 µs less on an H200.)
const IN_QUEUE: usize = 12;
/// Kernels queued ahead of the pairs where the stream cannot be delayed.
const AHEAD: usize = 32;
/// Cycles in which the rate of the clock is measured.
const RATE_CYCLES: u32 = 50_000;
/// Rates that a clock can have, cycles in a microsecond.
const RATES: std::ops::RangeInclusive<u64> = 100..=20_000;
/// Delay ahead of one pair, and ahead of a queue: several times what the host needs.
const DELAYS_US: [u16; 2] = [30, 400];

/// Measures in the current context; `None` if anything fails. Takes a few milliseconds, most of
/// them to load the kernels.
pub fn measure() -> Option<Calibration> {
    let mut scratch = Scratch::new(KERNELS, PAIRS)?;
    let (empty, delay) = (scratch.kernel(c"apex_empty")?, scratch.kernel(c"apex_delay")?);
    let idle = idle(&scratch, empty)?;
    let delay = rate(&scratch, delay).map(|cycles_per_us| Delay { kernel: delay, cycles_per_us });
    let delayed = delay.and_then(|delay| delayed(&scratch, empty, delay));
    let delay = delay.filter(|_| delayed.is_some()).map(|delay| {
        scratch.keep_module();
        // The clocks of a device that has just got work may still rise.
        let later = rate(&scratch, delay.kernel).unwrap_or_default();
        Delay { cycles_per_us: delay.cycles_per_us.max(later), ..delay }
    });
    let busy = match delay.and_then(|delay| queued(&scratch, empty, delay)) {
        Some(busy) => busy,
        None => behind_kernels(&scratch, empty)?,
    };
    let less_empty = |ns: u32| ns.saturating_sub(EMPTY_KERNEL_NS);
    let delayed = delayed.unwrap_or(busy);
    let cost = PairCost { delayed: less_empty(delayed), busy: less_empty(busy), idle: less_empty(idle) };
    Some(Calibration { cost, delay })
}

/// Returns the reading of pairs on an idle stream, in nanoseconds.
fn idle(scratch: &Scratch, empty: CUfunction) -> Option<u32> {
    let mut readings = [0; ALONE];
    // SAFETY: the kernel takes nothing.
    unsafe { scratch.launch(empty, None) }?;
    scratch.wait()?;
    for (pair, reading) in readings.iter_mut().enumerate() {
        // SAFETY: as above.
        unsafe { scratch.launch_between_events(pair, empty, None) }?;
        scratch.wait()?;
        *reading = scratch.elapsed_ns(pair)?;
    }
    median(&mut readings)
}

/// Returns the increments in a microsecond of the clock of the kernel that delays, if they can be
/// believed. The second launch counts, for the first loads code.
fn rate(scratch: &Scratch, delay: CUfunction) -> Option<u32> {
    let mut ns = 0;
    for pair in 0..2 {
        // SAFETY: the kernel takes one number.
        unsafe { scratch.launch_between_events(pair, delay, Some(RATE_CYCLES)) }?;
        scratch.wait()?;
        ns = scratch.elapsed_ns(pair)?;
    }
    let cycles_per_us = u64::from(RATE_CYCLES) * 1000 / ns.max(1);
    RATES.contains(&cycles_per_us).then_some(cycles_per_us as u32)
}

/// Delays the stream, records pairs, and waits. Says whether the GPU came to the first event after
/// the last one had been recorded.
fn record_behind(
    scratch: &Scratch,
    empty: CUfunction,
    (delay, us): (Delay, u16),
    pairs: std::ops::Range<usize>,
) -> Option<bool> {
    let first = pairs.start;
    // SAFETY: the context is current, and the kernels take what they are given.
    unsafe {
        scratch.launch(delay.kernel, Some(delay.cycles(us)))?;
        for pair in pairs {
            scratch.launch_between_events(pair, empty, None)?;
        }
    }
    let is_queued = scratch.is_pending(first);
    scratch.wait()?;
    Some(is_queued)
}

/// Returns the reading of pairs on a delayed stream, in nanoseconds; `None` if the driver refuses,
/// or if the GPU reached most of them while they were still being recorded: a delay is of no use
/// then.
fn delayed(scratch: &Scratch, empty: CUfunction, delay: Delay) -> Option<u32> {
    let mut readings = [0; ALONE];
    let mut queued = 0;
    for pair in 0..ALONE {
        if record_behind(scratch, empty, (delay, DELAYS_US[0]), pair..pair + 1)? {
            readings[queued] = scratch.elapsed_ns(pair)?;
            queued += 1;
        }
    }
    if queued > ALONE / 2 { median(&mut readings[..queued]) } else { None }
}

/// Returns the reading of pairs in a long queue, in nanoseconds; `None` if it could not be made
/// long.
fn queued(scratch: &Scratch, empty: CUfunction, delay: Delay) -> Option<u32> {
    let is_queued = record_behind(scratch, empty, (delay, DELAYS_US[1]), 0..PAIRS)?;
    if is_queued { median_of(scratch, IN_QUEUE) } else { None }
}

/// Returns the reading of pairs behind a few empty kernels, in nanoseconds.
fn behind_kernels(scratch: &Scratch, empty: CUfunction) -> Option<u32> {
    // SAFETY: the kernel takes nothing.
    unsafe {
        for _ in 0..AHEAD {
            scratch.launch(empty, None)?;
        }
        for pair in 0..ALONE {
            scratch.launch_between_events(pair, empty, None)?;
        }
    }
    scratch.wait()?;
    median_of(scratch, ALONE)
}

/// The median of what the first pairs read.
fn median_of(scratch: &Scratch, pairs: usize) -> Option<u32> {
    let readings: Option<Vec<u64>> = (0..pairs).map(|pair| scratch.elapsed_ns(pair)).collect();
    median(&mut readings?)
}

fn median(readings: &mut [u64]) -> Option<u32> {
    readings.sort_unstable();
    readings.get(readings.len() / 2).map(|&ns| ns.try_into().unwrap_or(u32::MAX))
}
