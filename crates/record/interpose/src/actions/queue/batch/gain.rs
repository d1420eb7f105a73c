//! Compares the time of launches in batches with that of single launches. Batches stop if they save
//! no time.

/// Launches in batches after which the sum is drawn up.
const WINDOW: u64 = 1024;
/// Graphs in a row that the driver refused after which batches stop.
const REFUSALS: u32 = 8;
/// The pauses of batches in nanoseconds: the first, and the longest.
const PAUSE_NS: [u64; 2] = [1_000_000_000, 16_000_000_000];
/// Share of the time of single launches that must be gained, percent.
const LEAST_GAIN_PERCENT: u64 = 10;

/// See the [module](self). Times are nanoseconds.
#[derive(Default)]
pub struct BatchGain {
    stays_on: bool,
    /// Mean of launches that were made alone, over about sixteen of them.
    single_ns: u64,
    /// Launches in batches since the sum was drawn up, and their time.
    launches: u64,
    ns: u64,
    refusals: u32,
    on_from: u64,
    pause_ns: u64,
}

impl BatchGain {
    /// Creates the gain of batches that have not begun. They never stop if `stays_on`.
    pub fn new(stays_on: bool) -> BatchGain {
        BatchGain { stays_on, ..BatchGain::default() }
    }

    /// Whether batches may be made at this time.
    pub fn is_on(&self, now: u64) -> bool {
        now >= self.on_from
    }

    /// A launch was made alone.
    #[inline(always)]
    pub fn single(&mut self, ns: u64) {
        self.single_ns = (self.single_ns * 15 + ns) / 16;
    }

    /// The driver refused to make or change a graph.
    pub fn refused(&mut self, now: u64) {
        self.refusals += 1;
        if self.refusals >= REFUSALS {
            self.stop(now);
        }
    }

    /// Launches went out as a batch that says nothing about others. How much longer they would have
    /// taken alone.
    pub fn trial(&self, launches: u64, ns: u64) -> u64 {
        (launches * self.single_ns).saturating_sub(ns)
    }

    /// Launches went out as a batch. How much longer they would have taken alone.
    pub fn batch(&mut self, launches: u64, ns: u64, now: u64) -> u64 {
        let avoided = self.trial(launches, ns);
        self.refusals = 0;
        self.launches += launches;
        self.ns += ns;
        if self.launches < WINDOW {
            return avoided;
        }
        let alone = self.launches * self.single_ns;
        if self.ns * 100 > alone * (100 - LEAST_GAIN_PERCENT) {
            self.stop(now);
        } else {
            self.pause_ns = 0;
        }
        (self.launches, self.ns) = (0, 0);
        avoided
    }

    fn stop(&mut self, now: u64) {
        if !self.stays_on {
            self.pause_ns = (self.pause_ns * 2).clamp(PAUSE_NS[0], PAUSE_NS[1]);
            self.on_from = now + self.pause_ns;
        }
        self.refusals = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn after(single_ns: u64, batched_ns: u64) -> BatchGain {
        let mut gain = BatchGain::default();
        (0..200).for_each(|_| gain.single(single_ns));
        (0..WINDOW / 32).for_each(|_| _ = gain.batch(32, 32 * batched_ns, 0));
        gain
    }

    #[test]
    fn batches_stop_where_they_gain_less_than_a_tenth() {
        assert!(after(3000, 500).is_on(0));
        assert!(after(3000, 2600).is_on(0));
        let mut gain = after(3000, 2900);
        assert!(!gain.is_on(0) && gain.is_on(SECOND));
        (0..WINDOW).for_each(|_| _ = gain.batch(1, 5000, SECOND));
        assert!(!gain.is_on(2 * SECOND) && gain.is_on(3 * SECOND), "twice as long");
    }

    #[test]
    fn a_driver_that_refuses_graphs_is_left_alone() {
        let mut gain = BatchGain::default();
        (0..REFUSALS).for_each(|_| gain.refused(0));
        assert!(!gain.is_on(0));
        let mut gain = BatchGain::new(true);
        (0..REFUSALS).for_each(|_| gain.refused(0));
        assert!(gain.is_on(0));
    }
}
