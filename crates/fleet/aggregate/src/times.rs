//! The times of devices that a recording held, and what they went into.

use serde::{Deserialize, Serialize};

/// Most microseconds of one time, and of all times of a message: four years and a half.
pub const MOST_US: u64 = 1 << 47;

/// Names of what the host did while a device was idle, as messages and columns have them, and what
/// pages call them.
pub const IDLE_CAUSES: [(&str, &str); 8] = [
    ("launching", "launch calls"),
    ("allocating", "allocating and freeing"),
    ("transferring", "copy calls"),
    ("synchronising", "synchronising"),
    ("loading", "loading code"),
    ("capturing", "capturing graphs"),
    ("other_calls", "other driver calls"),
    ("host_code", "the program's own code"),
];

/// The parts of the time that devices are held: column, and name on pages.
pub const PARTS: [(&str, &str); 14] = [
    ("kernels", "kernels"),
    ("collectives", "collectives"),
    ("waiting", "waiting for another rank"),
    ("copies", "copies"),
    ("idle_launching", "idle: launch calls"),
    ("idle_allocating", "idle: allocating and freeing"),
    ("idle_transferring", "idle: copy calls"),
    ("idle_synchronising", "idle: synchronising"),
    ("idle_loading", "idle: loading code"),
    ("idle_capturing", "idle: capturing graphs"),
    ("idle_other_calls", "idle: other driver calls"),
    ("idle_host_code", "idle: the program's own code"),
    ("unknown", "unknown"),
    ("outside", "before the first and after the last work"),
];

/// Microseconds that devices were held, and their parts. [`Self::held_us`] is their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Kernels ran, except those of collectives.
    pub kernels_us: u64,
    /// Collectives ran, and no other kernel.
    pub collectives_us: u64,
    /// The part of the time in collectives in which this rank waits for another one.
    pub waiting_us: u64,
    /// The device copied or set memory, and no kernel ran.
    pub copies_us: u64,
    /// The device was idle, by what the host did meanwhile, in the order of [`IDLE_CAUSES`].
    pub idle_us: [u64; 8],
    /// Kernels may or may not have run, because their durations are unknown.
    pub unknown_us: u64,
    /// The recording ran, before the device's first work or after its last.
    pub outside_us: u64,
}

impl Times {
    /// The parts, in the order of [`PARTS`].
    pub fn parts(&self) -> [u64; PARTS.len()] {
        let [a, b, c, d, e, f, g, h] = self.idle_us;
        [
            self.kernels_us,
            self.collectives_us,
            self.waiting_us,
            self.copies_us,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            self.unknown_us,
            self.outside_us,
        ]
    }

    /// The times that have these parts, in the order of [`PARTS`].
    pub fn of_parts(parts: [u64; PARTS.len()]) -> Self {
        let [kernels_us, collectives_us, waiting_us, copies_us, idle @ .., unknown_us, outside_us] = parts;
        Self { kernels_us, collectives_us, waiting_us, copies_us, idle_us: idle, unknown_us, outside_us }
    }

    /// The time that the devices were held. Saturates.
    pub fn held_us(&self) -> u64 {
        self.parts().into_iter().fold(0, u64::saturating_add)
    }

    /// The time in which kernels ran, those of collectives among them. Saturates.
    pub fn busy_us(&self) -> u64 {
        [self.kernels_us, self.collectives_us, self.waiting_us].into_iter().fold(0, u64::saturating_add)
    }

    /// The time in which something ran on the device, or may have run. Saturates.
    pub fn active_us(&self) -> u64 {
        [self.copies_us, self.unknown_us].into_iter().fold(self.busy_us(), u64::saturating_add)
    }

    /// The time in which the device was idle, between its first and its last work. Saturates.
    pub fn idle_us(&self) -> u64 {
        self.idle_us.into_iter().fold(0, u64::saturating_add)
    }

    /// Adds other times. Saturates.
    pub fn add(&mut self, other: &Self) {
        let (mine, theirs) = (self.parts(), other.parts());
        *self = Self::of_parts(std::array::from_fn(|part| mine[part].saturating_add(theirs[part])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_place_that_their_names_say() {
        let times = Times::of_parts(std::array::from_fn(|part| 1 << part));
        assert_eq!(
            (times.kernels_us, times.waiting_us, times.unknown_us, times.outside_us),
            (1, 4, 4096, 8192)
        );
        assert_eq!(times.idle_us[0], 16);
        assert_eq!(times.parts(), std::array::from_fn(|part| 1 << part));
        assert_eq!((times.held_us(), times.busy_us(), times.idle_us()), ((1 << 14) - 1, 7, 255 << 4));
        for (at, (name, _)) in IDLE_CAUSES.iter().enumerate() {
            assert_eq!(PARTS[4 + at].0, format!("idle_{name}"));
        }
    }

    #[test]
    fn sums_saturate() {
        let mut most = Times { unknown_us: u64::MAX, ..Times::default() };
        most.add(&Times { unknown_us: 1, kernels_us: 2, ..Times::default() });
        assert_eq!((most.unknown_us, most.kernels_us, most.held_us()), (u64::MAX, 2, u64::MAX));
    }
}
