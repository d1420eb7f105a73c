//! The time that the program spends on queueing a call: a sample of the calls, as mean and median.
//!
//! The median comes from a histogram whose buckets are a sixteenth of an octave wide, so its error
//! is at most 6%. The time of one clock reading is subtracted from each sample.

use super::wait::now_ns;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Logarithm of the buckets of an octave.
const LOG2_STEPS: u32 = 4;
/// Octaves: up to some seconds.
const OCTAVES: usize = 32;
const BUCKETS: usize = OCTAVES << LOG2_STEPS;
/// Pairs of readings of which the shortest is the clock's own time.
const READINGS: usize = 32;

/// See the [module](self). Times are nanoseconds.
#[repr(align(64))]
pub struct EnqueueCost {
    clock_ns: u64,
    samples: AtomicU64,
    ns: AtomicU64,
    buckets: [AtomicU32; BUCKETS],
}

impl Default for EnqueueCost {
    fn default() -> EnqueueCost {
        let mut own = u64::MAX;
        for _ in 0..READINGS {
            let begun = now_ns();
            own = own.min(now_ns().saturating_sub(begun));
        }
        EnqueueCost {
            clock_ns: own,
            samples: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
        }
    }
}

impl EnqueueCost {
    /// Takes a call that was queued between two readings of the clock.
    pub fn add(&self, begun: u64, end: u64) {
        let ns = end.saturating_sub(begun).saturating_sub(self.clock_ns);
        self.samples.fetch_add(1, Relaxed);
        self.ns.fetch_add(ns, Relaxed);
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
    }

    /// Calls that were taken.
    pub fn samples(&self) -> u64 {
        self.samples.load(Relaxed)
    }

    /// Their time in all.
    pub fn ns(&self) -> u64 {
        self.ns.load(Relaxed)
    }

    /// Their median; 0 without samples.
    pub fn median_ns(&self) -> u64 {
        let half = self.samples().div_ceil(2);
        let mut below = 0;
        let at = self.buckets.iter().position(|bucket| {
            below += u64::from(bucket.load(Relaxed));
            half > 0 && below >= half
        });
        at.map_or(0, |at| middle(at).max(1))
    }
}

/// The bucket of a time: the first ones hold one nanosecond each.
fn bucket(ns: u64) -> usize {
    let octave = ns.max(1).ilog2().saturating_sub(LOG2_STEPS);
    let step = (ns >> octave) as usize;
    (((octave as usize) << LOG2_STEPS) + step).min(BUCKETS - 1)
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let octave = (bucket >> LOG2_STEPS).saturating_sub(1);
    let step = bucket - (octave << LOG2_STEPS);
    ((step as u64) << octave) + ((1 << octave) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_times_bucket_is_within_a_sixteenth() {
        let mut last = 0;
        for ns in (0..5000).chain((13..33).map(|shift| 1 << shift)) {
            let found = bucket(ns);
            assert!(found >= last, "{ns}");
            last = found;
            assert!(middle(found).abs_diff(ns) <= ns / 16, "{ns}: {}", middle(found));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_median_leaves_out_what_is_rare() {
        let cost = EnqueueCost::default();
        assert_eq!(cost.median_ns(), 0);
        for _ in 0..60 {
            cost.add(1000, 1080 + cost.clock_ns);
        }
        for _ in 0..40 {
            cost.add(1000, 1_001_000 + cost.clock_ns);
        }
        assert!((75..=85).contains(&cost.median_ns()), "{}", cost.median_ns());
        assert_eq!((cost.samples(), cost.ns()), (100, 60 * 80 + 40 * 1_000_000));
    }
}
