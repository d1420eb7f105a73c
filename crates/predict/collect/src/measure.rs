//! The duration of a launch: the time between two events, above that of an empty kernel.
//!
//! For each repeat, a kernel that spins keeps the device busy while the host queues an event, the
//! launch and an event, which hides the host's time. Each pair of events completes before the next
//! is queued: with several pairs queued, an empty kernel took 4.3 to 7.7 µs on an H200, and with
//! one it takes 4.26 to 4.45 µs (data/h200/launches). That is the pair's own cost. It is measured
//! repeatedly and subtracted: a time is what a kernel adds to an empty one.

use apex_gpu::{Kind, Result};
use apex_ordered::Order;

use crate::bench::{Bench, Loaded, output_bytes};
use crate::plan::Launch;
use crate::suite::Before;
use apex_dataset::Timing;
use apex_random::Random;

/// Repeats from which the empty kernel's time is taken.
const CALIBRATION: usize = 51;
/// The time for which the device spins before each pair, in clock cycles: 50 µs or more, several
/// times the time of queueing.
const LEAD_CYCLES: u32 = 100_000;
/// Elements of an output that are looked at.
const LOOKS: u64 = 8;

/// Times launches on a device.
#[derive(Debug)]
pub struct Timer {
    /// On a GPU.
    spin: Option<apex_gpu::Kernel>,
    empty: apex_gpu::Kernel,
    empty_us: f64,
}

/// The outcome of a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Its time.
    pub timing: Timing,
    /// Empty if all is well.
    pub missing: String,
}

impl Timer {
    /// Prepares and calibrates the measurement.
    ///
    /// # Errors
    /// The driver's error.
    pub fn new(bench: &mut Bench) -> Result<Timer> {
        let is_gpu = *bench.device().kind() == Kind::Gpu;
        let spin = is_gpu.then(|| bench.spin()).transpose()?;
        let mut timer = Timer { spin, empty: bench.empty()?, empty_us: 0.0 };
        timer.calibrate(bench)?;
        Ok(timer)
    }

    /// Measures again what an empty kernel takes, in microseconds.
    ///
    /// # Errors
    /// The driver's error.
    pub fn calibrate(&mut self, bench: &mut Bench) -> Result<f64> {
        let empty = &self.empty;
        let launch = |_: &mut Bench| {
            // SAFETY: the kernel does nothing.
            unsafe { empty.launch([1, 1, 1], [32, 1, 1]).launch() }
        };
        self.readings(bench, CALIBRATION, &launch)?;
        self.empty_us = median(&mut self.readings(bench, CALIBRATION, &launch)?);
        Ok(self.empty_us)
    }

    /// Times a launch, after a first one that is not counted, and looks whether it wrote its
    /// output.
    ///
    /// # Errors
    /// The driver's error. A launch that was refused does no harm to the next; a kernel's fault
    /// ends the context.
    pub fn time(&self, bench: &mut Bench, loaded: &Loaded, launch: &Launch) -> Result<Timed> {
        bench.reset_output(&loaded.kernel, launch)?;
        let run = |bench: &mut Bench| bench.launch(loaded, launch);
        let first = self.readings(bench, 1, &run)?[0];
        let written = is_written(bench, loaded, launch)?;
        let mut readings = self.readings(bench, repeats(first), &run)?;
        let samples = readings.len();
        let middle = median(&mut readings);
        let spread = readings[samples * 3 / 4] - readings[samples / 4];
        let time = middle - self.empty_us;
        let missing = match (written, time > 0.0) {
            (false, _) => "the kernel left part of its output unwritten",
            (true, false) => "too short: not longer than an empty kernel",
            (true, true) => "",
        };
        let timing = match missing {
            "" => Timing {
                time_us: Some(time),
                time_spread: Some(spread / time),
                time_samples: Some(samples as u64),
            },
            _ => Timing::default(),
        };
        Ok(Timed { timing, missing: missing.to_owned() })
    }

    /// Measures the microseconds between the events around `run`, `count` times.
    fn readings(
        &self,
        bench: &mut Bench,
        count: usize,
        run: &dyn Fn(&mut Bench) -> Result<()>,
    ) -> Result<Vec<f64>> {
        let stream = bench.device().stream().clone();
        let mut reading = || {
            if let Some(spin) = &self.spin {
                // SAFETY: the kernel touches no memory.
                unsafe { spin.launch([1, 1, 1], [1, 1, 1]).arg(LEAD_CYCLES).launch()? };
            }
            let before = stream.record()?;
            run(bench)?;
            let after = stream.record()?;
            Ok(after.since(&before)?.as_secs_f64() * 1e6)
        };
        (0..count).map(|_| reading()).collect()
    }
}

/// Returns the number of runs of a launch that takes this time.
fn repeats(us: f64) -> usize {
    match us {
        us if us < 200.0 => 15,
        us if us < 2000.0 => 9,
        _ => 5,
    }
}

/// The middle of some numbers, which it sorts.
pub(crate) fn median(numbers: &mut [f64]) -> f64 {
    numbers.order_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Whether the first, the last and some other elements of the output are no longer marked.
fn is_written(bench: &Bench, loaded: &Loaded, launch: &Launch) -> Result<bool> {
    if loaded.kernel.before == Before::Zero {
        return Ok(true);
    }
    let size = loaded.kernel.out.bytes();
    let elements = output_bytes(&loaded.kernel, launch) / size;
    let mut random = Random::named(elements, loaded.kernel.name);
    let places = [0, elements - 1].into_iter().chain((2..LOOKS).map(|_| random.below(elements)));
    for place in places {
        if bench.output(place * size, size)?.iter().all(|&byte| byte == 0xff) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [5.0]), 5.0);
    }
}
