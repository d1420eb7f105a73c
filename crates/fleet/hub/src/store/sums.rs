//! Sums of times, as rows have them.

use apex_aggregate::{PARTS, Times};
use serde::{Serialize, Serializer};

/// Sums of times. Documents have them with their names: `held_us`, `busy_us`, and all parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The times of each process's use of each GPU.
    pub times: Times,
    /// Excess of these over the time of the devices, because processes shared some.
    pub shared_us: u64,
    /// The time of GPUs that a scheduler gave and no process used. It is not among the others.
    pub unused_us: u64,
}

impl From<Times> for Sums {
    /// Nothing is shared, or unused.
    fn from(times: Times) -> Self {
        Self { times, ..Self::default() }
    }
}

impl Sums {
    /// The time that devices were held: each device's once, however many processes shared it.
    pub fn held_us(&self) -> u64 {
        self.times.held_us().saturating_sub(self.shared_us)
    }

    /// The time in which kernels ran. Where processes shared devices, it is the share of their
    /// times in which kernels of theirs ran.
    pub fn busy_us(&self) -> u64 {
        self.in_proportion(self.times.busy_us())
    }

    /// The time that was held and not busy.
    pub fn lost_us(&self) -> u64 {
        self.held_us().saturating_sub(self.busy_us())
    }

    /// The same share of the held time as `us` is of the parts.
    fn in_proportion(&self, us: u64) -> u64 {
        let (held, parts) = (u128::from(self.held_us()), u128::from(self.times.held_us()));
        u64::try_from(u128::from(us) * held / parts.max(1)).unwrap_or(u64::MAX)
    }

    /// Adds other sums. Saturates.
    pub fn add(&mut self, other: &Self) {
        self.times.add(&other.times);
        self.shared_us = self.shared_us.saturating_add(other.shared_us);
        self.unused_us = self.unused_us.saturating_add(other.unused_us);
    }
}

impl Serialize for Sums {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sums = [
            ("held_us", self.held_us()),
            ("busy_us", self.busy_us()),
            ("idle_us", self.in_proportion(self.times.idle_us())),
            ("shared_us", self.shared_us),
            ("unused_us", self.unused_us),
        ];
        let sums = sums.map(|(name, us)| (name.to_owned(), us));
        let parts = PARTS.iter().zip(self.times.parts()).map(|((name, _), us)| (format!("{name}_us"), us));
        serializer.collect_map(sums.into_iter().chain(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_device_is_held_once_and_busy_in_proportion() {
        let times = Times { kernels_us: 60, outside_us: 140, ..Times::default() };
        let alone = Sums::from(times);
        assert_eq!((alone.held_us(), alone.busy_us(), alone.lost_us()), (200, 60, 140));
        let shared = Sums { shared_us: 100, ..alone };
        assert_eq!((shared.held_us(), shared.busy_us(), shared.lost_us()), (100, 30, 70));
        let impossible = Sums { shared_us: 300, ..alone };
        assert_eq!((impossible.held_us(), impossible.busy_us()), (0, 0));
        assert_eq!(Sums::default().busy_us(), 0);
    }
}
