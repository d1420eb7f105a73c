//! How much timing may cost: how rarely a configuration is sampled, and the token bucket of all of
//! them.

use crate::tables::Zeroable;
use apex_trace::now;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicU32};

/// What a pair costs a stream (H200: 2.8 µs busy, 4.4 µs idle).
const PAIR_COST_NS: u32 = 5000;
/// About how many ticks a microsecond has.
const TICKS_PER_US: u64 = 2000;
/// Logarithm of the longest interval.
const LONGEST_RAMP_LOG2: u32 = 12;
/// What the token bucket holds at most, and at first: some milliseconds.
const BUCKET_TICKS: u64 = 10_000_000;
/// What a timed launch is expected to cost.
const EXPECTED_TICKS: u64 = 5_000;

/// How far the sampling of a configuration or graph is.
#[derive(Default)]
pub struct Progress {
    /// Launches that were chosen, as far as the interval depends on them.
    chosen: AtomicU16,
    /// Microseconds by which the stream was delayed for the last reading.
    delay_us: AtomicU16,
    /// Mean of what was read, less the pair's cost, ns; 0 before the first reading.
    mean_ns: AtomicU32,
    /// Graphs: launches until the next decision. Kernels: how often they were met again.
    pub until: AtomicU32,
}

// SAFETY: integers.
unsafe impl Zeroable for Progress {}

impl Progress {
    /// Launches from this sample to the next. Doubles with every fourth sample, until pairs take a
    /// thousandth of the time.
    pub fn interval(&self) -> u32 {
        let ramp = 1 << (u32::from(self.chosen.load(Relaxed)) / 4).min(LONGEST_RAMP_LOG2);
        let cost_ns = PAIR_COST_NS + 1000 * u32::from(self.delay_us.load(Relaxed));
        match self.mean_ns.load(Relaxed) {
            0 => ramp,
            mean => ramp.min((cost_ns.saturating_mul(1000) / mean).max(1)),
        }
    }

    /// Notes that a launch was chosen.
    pub fn choose(&self) {
        if u32::from(self.chosen.load(Relaxed)) < 4 * LONGEST_RAMP_LOG2 {
            self.chosen.fetch_add(1, Relaxed);
        }
    }

    /// Takes a reading, less the pair's cost, into the mean; the stream was delayed for it by so
    /// many microseconds.
    pub fn add(&self, ns: u64, delay_us: u16) {
        self.delay_us.store(delay_us, Relaxed);
        let (ns, mean) = (i64::try_from(ns).unwrap_or(i64::MAX), i64::from(self.mean_ns.load(Relaxed)));
        // A moving mean over about eight readings.
        let next = if mean == 0 { ns } else { mean + (ns - mean) / 8 };
        self.mean_ns.store(next.clamp(1, u32::MAX.into()) as u32, Relaxed);
    }
}

/// What may be spent on timing. A thread that finds it taken does without.
pub struct Budget(Mutex<Bucket>);

impl Budget {
    /// A full bucket.
    pub fn new() -> Budget {
        Budget(Mutex::new(Bucket { tokens: BUCKET_TICKS, filled: now() }))
    }

    /// Whether there is room for another sample, where `ppm` of the process's time may be spent.
    pub fn can_afford(&self, ppm: u32) -> bool {
        let Ok(mut bucket) = self.0.try_lock() else { return false };
        bucket.fill(now(), ppm);
        bucket.tokens >= EXPECTED_TICKS
    }

    /// Takes what a delay of a stream costs the program if it waits for the stream.
    pub fn spend_delay(&self, us: u16) {
        self.spend(u64::from(us) * TICKS_PER_US);
    }

    /// Takes what was spent.
    pub fn spend(&self, ticks: u64) {
        if let Ok(mut bucket) = self.0.try_lock() {
            bucket.tokens = bucket.tokens.saturating_sub(ticks);
        }
    }
}

/// A token bucket, in ticks.
struct Bucket {
    tokens: u64,
    filled: u64,
}

impl Bucket {
    /// Fills by `ppm` of the ticks since it was last filled.
    fn fill(&mut self, at: u64, ppm: u32) {
        let earned = u128::from(at.saturating_sub(self.filled)) * u128::from(ppm) / 1_000_000;
        if earned > 0 {
            self.tokens = (self.tokens + earned.min(BUCKET_TICKS.into()) as u64).min(BUCKET_TICKS);
            self.filled = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_get_rarer_until_they_cost_a_thousandth() {
        let intervals_at = |mean_ns: u32| {
            let progress = Progress::default();
            progress.add(mean_ns.into(), 0);
            (0..100)
                .map(|_| {
                    let interval = progress.interval();
                    progress.choose();
                    interval
                })
                .collect::<Vec<_>>()
        };
        for (mean_ns, longest) in
            [(5_000, 1000), (50_000, 100), (5_000_000, 1), (100, 1 << LONGEST_RAMP_LOG2)]
        {
            let intervals = intervals_at(mean_ns);
            assert!(intervals.is_sorted());
            assert_eq!(intervals[0], 1, "the first launches are timed");
            assert_eq!(intervals[99], longest);
        }
        let progress = Progress::default();
        (0..100_000).for_each(|_| progress.choose());
        progress.add(50_000, 15);
        assert_eq!(progress.interval(), 400, "a delay is part of the cost");
    }

    #[test]
    fn the_bucket_gives_its_share_and_saves_little() {
        let mut bucket = Bucket { tokens: 0, filled: 0 };
        let mut spent = 0;
        for at in (0..100_000_000_000).step_by(1_000_000) {
            bucket.fill(at, 5000);
            spent += std::mem::take(&mut bucket.tokens);
        }
        assert!((499_000_000..=500_000_000).contains(&spent), "0.5% of 100 G ticks, not {spent}");
        bucket.fill(u64::MAX, 5000);
        assert_eq!(bucket.tokens, BUCKET_TICKS);
    }

    #[test]
    fn the_mean_follows() {
        let progress = Progress::default();
        progress.add(1000, 0);
        assert_eq!(progress.mean_ns.load(Relaxed), 1000);
        (0..100).for_each(|_| progress.add(3000, 0));
        assert!((2900..=3000).contains(&progress.mean_ns.load(Relaxed)));
        progress.add(u64::MAX, 0);
        assert!(progress.mean_ns.load(Relaxed) > 3000);
    }
}
