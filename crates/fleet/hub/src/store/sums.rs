//! Sums of times, as rows have them.

use apex_aggregate::{Energy, IDLE_CAUSES, PARTS, Times};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// Sums of times. Documents have them with their names: `held_us`, `busy_us`, and all parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The times of each process's use of each GPU.
    pub times: Times,
    /// Excess of these over the time of the devices, because processes shared some.
    pub shared_us: u64,
    /// The time of GPUs that a scheduler gave and no process used. It is not among the others.
    pub unused_us: u64,
    /// Energy of the uses.
    pub energy: Energy,
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

    /// Millijoules that the devices took, of the time that is known: each device's once. `None` if
    /// nothing is known.
    pub fn energy_mj(&self) -> Option<u64> {
        (self.energy.metered_us > 0).then(|| self.in_proportion(self.energy.mj))
    }

    /// The share of the held time that the energy is of.
    pub fn metered_share(&self) -> f64 {
        (self.energy.metered_us as f64 / self.times.held_us().max(1) as f64).min(1.0)
    }

    /// Millijoules that the devices took at least while nothing ran; `None` if that is not known.
    pub fn idle_mj(&self) -> Option<u64> {
        (self.energy.idle_mj > 0).then(|| self.in_proportion(self.energy.idle_mj))
    }

    /// [`Self::idle_mj`] by cause, in the proportion of the causes' times: what the host did
    /// meanwhile, and at last the time before the first work and after the last.
    pub fn idle_mj_by_cause(&self) -> Option<[(&'static str, u64); IDLE_CAUSES.len() + 1]> {
        let all_mj = u128::from(self.idle_mj()?);
        let times = self.times.idle_us.into_iter().chain([self.times.outside_us]);
        let all_us = times.clone().map(u128::from).sum::<u128>().max(1);
        let mut shares = times.map(|us| u64::try_from(all_mj * u128::from(us) / all_us).unwrap_or(u64::MAX));
        let mut names = IDLE_CAUSES.iter().map(|(name, _)| *name).chain(["outside"]);
        Some(std::array::from_fn(|_| (names.next().unwrap_or_default(), shares.next().unwrap_or(0))))
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
        self.energy.add(&other.energy);
    }
}

impl Sums {
    /// The energy as documents have it: joules, null where they are not known.
    fn energy_members(&self) -> [(String, Value); 4] {
        let joules = |mj: u64| mj as f64 / 1000.0;
        let of_cause = |(name, mj): (&str, u64)| (name.to_owned(), json!(joules(mj)));
        let by_cause =
            self.idle_mj_by_cause().map(|all| Value::Object(all.into_iter().map(of_cause).collect()));
        [
            ("energy_j", json!(self.energy_mj().map(joules))),
            ("energy_known", json!(self.metered_share())),
            ("idle_energy_j", json!(self.idle_mj().map(joules))),
            ("idle_energy_by_cause_j", json!(by_cause)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
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
        let sums = sums.map(|(name, us)| (name.to_owned(), json!(us)));
        let parts =
            PARTS.iter().zip(self.times.parts()).map(|((name, _), us)| (format!("{name}_us"), json!(us)));
        serializer.collect_map(sums.into_iter().chain(parts).chain(self.energy_members()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_of_the_known_time_and_its_causes_add_up() {
        let times =
            Times { kernels_us: 60, outside_us: 100, idle_us: [40, 0, 0, 0, 0, 0, 0, 0], ..Times::default() };
        let unknown = Sums::from(times);
        assert_eq!((unknown.energy_mj(), unknown.idle_mj(), unknown.idle_mj_by_cause()), (None, None, None));
        let energy = Energy { mj: 1000, metered_us: 100, idle_mj: 280 };
        let known = Sums { energy, ..unknown };
        assert_eq!((known.energy_mj(), known.metered_share(), known.idle_mj()), (Some(1000), 0.5, Some(280)));
        let causes = known.idle_mj_by_cause().unwrap();
        assert_eq!((causes[0], causes[8], causes[1].1), (("launching", 80), ("outside", 200), 0));
        let shared = Sums { shared_us: 100, ..known };
        assert_eq!((shared.energy_mj(), shared.idle_mj()), (Some(500), Some(140)));
        let document = serde_json::to_value(shared).unwrap();
        assert_eq!(
            (&document["energy_j"], &document["idle_energy_by_cause_j"]["outside"]),
            (&json!(0.5), &json!(0.1))
        );
        assert_eq!(serde_json::to_value(unknown).unwrap()["energy_j"], Value::Null);
    }

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
