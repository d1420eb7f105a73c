//! The cost limit of timing: the sampling interval of a configuration, and the token bucket of all
//! configurations, which holds the limit over minutes.

use crate::tables::Zeroable;
use apex_trace::now;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64};

/// The cost of a pair for a stream, in ns (H200: 2.8 µs busy, 4.4 µs idle).
const PAIR_COST_NS: u32 = 5000;
/// The value of [`Progress::chosen`] for collectives.
const COLLECTIVE: u16 = u16::MAX;
/// Maximum share of a collective's own time that its pairs take: 1 in this. Each pair says which
/// rank came last, which a mean over some launches does not; other kernels have 1 in 1000.
const COLLECTIVE_COST: u32 = 50;
/// About how many ticks a microsecond has.
const TICKS_PER_US: u64 = 2000;
/// Logarithm of the longest interval.
const LONGEST_RAMP_LOG2: u32 = 12;
/// The capacity of the token bucket, and its initial content: some milliseconds.
const BUCKET_TICKS: i64 = 10_000_000;
/// The debt that collectives may make, 20 ms: what starting a program has spent on other kernels
/// must not leave them untimed. The others wait until it is earned.
pub const RESERVE_TICKS: i64 = 4 * BUCKET_TICKS;
/// The expected cost of a timed launch.
const EXPECTED_TICKS: i64 = 5_000;
/// Maximum time without samples after a cost that exceeds the budget: some 10 s. A cost below the
/// budget's share of that time is paid back in full. A larger one means that the thread lost its
/// processor, or that every launch was timed before.
const LONGEST_SILENCE_TICKS: u64 = 20_000_000_000;

/// The progress of sampling a configuration or graph.
#[derive(Default)]
pub struct Progress {
    /// Launches that were chosen, as far as the interval depends on them; [`COLLECTIVE`].
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
    /// thousandth of the time. Collectives do not wait for that.
    pub fn interval(&self) -> u32 {
        let chosen = self.chosen.load(Relaxed);
        let cost_ns = PAIR_COST_NS + 1000 * u32::from(self.delay_us.load(Relaxed));
        let within = |share: u32, mean: u32| (cost_ns.saturating_mul(share) / mean).max(1);
        let ramp = || 1 << (u32::from(chosen) / 4).min(LONGEST_RAMP_LOG2);
        match self.mean_ns.load(Relaxed) {
            0 if chosen == COLLECTIVE => 1,
            mean if chosen == COLLECTIVE => within(COLLECTIVE_COST, mean),
            0 => ramp(),
            mean => ramp().min(within(1000, mean)),
        }
    }

    /// Notes that its launches are collectives.
    pub fn set_collective(&self) {
        self.chosen.store(COLLECTIVE, Relaxed);
    }

    /// Whether its launches are collectives.
    pub fn is_collective(&self) -> bool {
        self.chosen.load(Relaxed) == COLLECTIVE
    }

    /// Notes that a launch was chosen.
    pub fn choose(&self) {
        if u32::from(self.chosen.load(Relaxed)) < 4 * LONGEST_RAMP_LOG2 {
            self.chosen.fetch_add(1, Relaxed);
        }
    }

    /// Takes a reading, less the pair's cost, into the mean; the stream was delayed for it by
    /// `delay_us` microseconds.
    pub fn add(&self, ns: u64, delay_us: u16) {
        self.delay_us.store(delay_us, Relaxed);
        let (ns, mean) = (i64::try_from(ns).unwrap_or(i64::MAX), i64::from(self.mean_ns.load(Relaxed)));
        // A moving mean over about eight readings.
        let next = if mean == 0 { ns } else { mean + (ns - mean) / 8 };
        self.mean_ns.store(next.clamp(1, u32::MAX.into()) as u32, Relaxed);
    }
}

/// The budget for timing: a token bucket, in ticks, that may be overdrawn. The cost of a sample is
/// known only afterwards, so it is spent whether or not the bucket holds it, and the debt has to be
/// earned before the next sample is affordable. Threads change it without a lock, and no cost is
/// lost between them.
pub struct Budget {
    /// Negative where more was spent than earned.
    tokens: AtomicI64,
    /// The time until which tokens have been earned, in ticks.
    filled: AtomicU64,
}

impl Budget {
    /// A full bucket.
    pub fn new() -> Budget {
        Budget::full_at(now())
    }

    fn full_at(at: u64) -> Budget {
        Budget { tokens: AtomicI64::new(BUCKET_TICKS), filled: AtomicU64::new(at) }
    }

    /// Whether there is room for another sample, where `ppm` of the process's time may be spent,
    /// and a debt of `reserve` ticks be made.
    pub fn can_afford(&self, ppm: u32, reserve: i64) -> bool {
        self.can_afford_at(now(), ppm, reserve)
    }

    fn can_afford_at(&self, at: u64, ppm: u32, reserve: i64) -> bool {
        self.fill(at, ppm);
        self.tokens.load(Relaxed) >= EXPECTED_TICKS - reserve
    }

    /// Takes what a delay of a stream costs the program if it waits for the stream.
    pub fn spend_delay(&self, us: u16) {
        self.spend(u64::from(us) * TICKS_PER_US);
    }

    /// Takes what was spent.
    pub fn spend(&self, ticks: u64) {
        let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
        self.change(|tokens| tokens.saturating_sub(ticks));
    }

    /// Adds `ppm` of the ticks since the bucket was last filled, after forgiving the debt that
    /// would take longer than [`LONGEST_SILENCE_TICKS`] to earn.
    fn fill(&self, at: u64, ppm: u32) {
        let filled = self.filled.load(Relaxed);
        let earned = share(at.saturating_sub(filled), ppm);
        // (Less would be rounded too often.)
        if earned >= EXPECTED_TICKS / 64 && self.filled.compare_exchange(filled, at, Relaxed, Relaxed).is_ok()
        {
            let most_debt = share(LONGEST_SILENCE_TICKS, ppm);
            self.change(|tokens| tokens.max(-most_debt).saturating_add(earned).min(BUCKET_TICKS));
        }
    }

    fn change(&self, change: impl Fn(i64) -> i64) {
        let mut tokens = self.tokens.load(Relaxed);
        while let Err(other) = self.tokens.compare_exchange_weak(tokens, change(tokens), Relaxed, Relaxed) {
            tokens = other;
        }
    }
}

/// `ppm` millionths of `ticks`.
fn share(ticks: u64, ppm: u32) -> i64 {
    i64::try_from(u128::from(ticks) * u128::from(ppm) / 1_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_long_collective_is_timed_and_some_of_the_short_ones() {
        let progress = Progress::default();
        progress.set_collective();
        for _ in 0..100 {
            assert_eq!(progress.interval(), 1);
            progress.choose();
        }
        progress.add(250_000, 0);
        assert_eq!(progress.interval(), 1);
        let short = Progress::default();
        short.set_collective();
        short.add(20_000, 0);
        assert_eq!(short.interval(), 12, "5 µs for 240 µs");
    }

    #[test]
    fn collectives_are_timed_while_others_wait_and_not_for_ever() {
        let budget = Budget::full_at(0);
        budget.spend(2 * BUCKET_TICKS as u64);
        assert!(!budget.can_afford_at(0, 5000, 0) && budget.can_afford_at(0, 5000, RESERVE_TICKS));
        budget.spend(RESERVE_TICKS as u64);
        assert!(!budget.can_afford_at(0, 5000, RESERVE_TICKS));
    }

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

    /// Plays launches `gap` ticks apart. Each that is affordable is timed and costs what `cost`
    /// returns. Returns what was spent until `end`.
    fn spent_until(end: u64, ppm: u32, mut gap: impl FnMut() -> u64, mut cost: impl FnMut() -> u64) -> u64 {
        let budget = Budget::full_at(0);
        let (mut at, mut spent) = (0, 0);
        while at < end {
            if budget.can_afford_at(at, ppm, 0) {
                let ticks = cost();
                budget.spend(ticks);
                spent += ticks;
                at += ticks;
            }
            at += gap();
        }
        spent
    }

    proptest! {
        #[test]
        fn the_share_holds_whatever_samples_cost(
            ppm in 100u32..=20_000,
            costs in prop::collection::vec(1_000u64..2_000_000, 1..40),
            gaps in prop::collection::vec(1_000u64..500_000, 1..40),
        ) {
            let (mut costs, mut gaps) = (costs.iter().copied().cycle(), gaps.iter().copied().cycle());
            let end = 100_000_000_000;
            let spent = spent_until(end, ppm, || gaps.next().unwrap(), || costs.next().unwrap());
            // The first bucket, what the last sample may overdraw, and the share.
            let most = BUCKET_TICKS as u64 + 2_000_000 + share(end + 2_500_000, ppm) as u64;
            prop_assert!(spent <= most, "{spent} of {most}");
        }

        #[test]
        fn a_huge_cost_silences_timing_for_seconds(ppm in 1u32..=1_000_000, ticks in 0..=u64::MAX) {
            let budget = Budget::full_at(0);
            budget.spend(ticks);
            budget.spend(ticks);
            let expected = EXPECTED_TICKS as u64 * 1_000_000 / u64::from(ppm) + 1_000_000;
            // The debt is forgiven when the bucket is filled next.
            budget.can_afford_at(1_000_000, ppm, 0);
            prop_assert!(budget.can_afford_at(1_000_000 + LONGEST_SILENCE_TICKS + expected, ppm, 0));
        }
    }

    #[test]
    fn the_bucket_gives_its_share_and_saves_little() {
        // Samples of 70 µs, four each millisecond, overdraw the bucket each time.
        let spent = spent_until(100_000_000_000, 5000, || 500_000, || 140_000);
        assert!(
            (500_000_000..=510_200_000).contains(&spent),
            "0.5% of 100 G ticks and the bucket, not {spent}"
        );
        let budget = Budget::full_at(0);
        budget.spend(1_000);
        budget.can_afford_at(u64::MAX, 5000, 0);
        assert_eq!(budget.tokens.load(Relaxed), BUCKET_TICKS);
    }

    #[test]
    fn no_cost_is_lost_between_threads() {
        let budget = Budget::full_at(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| budget.spend(3)));
            }
        });
        assert_eq!(budget.tokens.load(Relaxed), BUCKET_TICKS - 4 * 10_000 * 3);
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
