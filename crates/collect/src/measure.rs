//! How long a launch takes: between two events, above what an empty kernel takes there.
//!
//! A launch is repeated on a device that is kept busy meanwhile, so that the host's time does not show: a kernel that spins,
//! an event, the launch, an event, as often as it pays. While the kernel spins, the device fetches what follows; where pair
//! follows pair without it, an empty kernel reads from 3.8 to 6.4 us on an H200, else 2.6 to 2.9 (data/event-pairs-h200.csv).
//! That is the pair's own cost, which is measured again and again and subtracted: a time is what a kernel adds to an empty one.

use gpu::{Kind, Result};

use crate::bench::{Bench, Loaded, output_bytes};
use crate::dataset::Timing;
use crate::plan::Launch;
use crate::random::Random;
use crate::suite::Before;

/// Repeats from which the empty kernel's time is taken.
const CALIBRATION: usize = 51;
/// Clock cycles in a microsecond, at most: how long to spin.
const CYCLES_PER_US: f64 = 2000.0;
/// What queueing one repeat takes the host, in microseconds, at most.
const QUEUEING_US: f64 = 25.0;
/// How long the device spins before each pair, in microseconds.
const LEAD_US: f64 = 30.0;
/// Launches above this need no spinning: what follows is fetched while they run.
const LONG_US: f64 = 500.0;
/// Elements of an output that are looked at.
const LOOKS: u64 = 8;

/// Times launches on a device.
#[derive(Debug)]
pub struct Timer {
    spin: Option<gpu::Kernel>,
    empty: gpu::Kernel,
    empty_us: f64,
}

/// What came of a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Its time.
    pub timing: Timing,
    /// Empty if all is well.
    pub missing: String,
}

impl Timer {
    /// Prepares, and calibrates.
    ///
    /// # Errors
    /// What the driver says.
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
    /// What the driver says.
    pub fn calibrate(&mut self, bench: &mut Bench) -> Result<f64> {
        let empty = &self.empty;
        let launch = |_: &mut Bench| {
            // SAFETY: the kernel does nothing.
            unsafe { empty.launch([1, 1, 1], [32, 1, 1]).launch() }
        };
        self.readings(bench, CALIBRATION, 0.0, &launch)?;
        self.empty_us = median(&mut self.readings(bench, CALIBRATION, 0.0, &launch)?);
        Ok(self.empty_us)
    }

    /// Times a launch, after a first one that is not counted, and looks whether it wrote its output.
    ///
    /// # Errors
    /// What the driver says. A launch that was refused does no harm to the next; a kernel's fault ends the context.
    pub fn time(&self, bench: &mut Bench, loaded: &Loaded, launch: &Launch) -> Result<Timed> {
        bench.reset_output(&loaded.kernel, launch)?;
        let run = |bench: &mut Bench| bench.launch(loaded, launch);
        let first = self.readings(bench, 1, LONG_US, &run)?[0];
        let written = is_written(bench, loaded, launch)?;
        let mut readings = self.readings(bench, repeats(first), first, &run)?;
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

    /// Microseconds between the events of so many pairs around `run`, which takes about `expected` microseconds.
    fn readings(
        &self,
        bench: &mut Bench,
        count: usize,
        expected_us: f64,
        run: &dyn Fn(&mut Bench) -> Result<()>,
    ) -> Result<Vec<f64>> {
        let stream = bench.device().stream().clone();
        let spin = |us: f64| match self.spin.as_ref().filter(|_| expected_us < LONG_US) {
            // SAFETY: the kernel touches no memory.
            Some(spin) => unsafe {
                spin.launch([1, 1, 1], [1, 1, 1]).arg((CYCLES_PER_US * us) as u32).launch()
            },
            None => Ok(()),
        };
        spin(QUEUEING_US * (count + 2) as f64)?;
        let mut pairs = Vec::with_capacity(count);
        for _ in 0..count {
            spin(LEAD_US)?;
            let before = stream.record()?;
            run(bench)?;
            pairs.push((before, stream.record()?));
        }
        stream.synchronize()?;
        pairs.iter().map(|(before, after)| Ok(after.since(before)?.as_secs_f64() * 1e6)).collect()
    }
}

/// How often to run what takes so long.
fn repeats(us: f64) -> usize {
    match us {
        us if us < 200.0 => 15,
        us if us < 2000.0 => 9,
        _ => 5,
    }
}

/// The middle of some numbers, which it sorts.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Whether the first, the last and some other elements of the output are no longer marked.
fn is_written(bench: &Bench, loaded: &Loaded, launch: &Launch) -> Result<bool> {
    if loaded.kernel.before == Before::Zero {
        return Ok(true);
    }
    let size = loaded.kernel.out.bytes();
    let elements = output_bytes(&loaded.kernel, launch) / size;
    let mut random = Random::of(elements, loaded.kernel.name);
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
