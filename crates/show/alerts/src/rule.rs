//! The rules of alerts and their limits.

use apex_profile::units;
use serde::Serialize;

/// A rule: a condition that a user should know about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// A step takes longer than in the last good run.
    Slower,
    /// The occupancy of what runs has fallen.
    Occupancy,
    /// Ranks wait for one of them.
    Straggler,
    /// A device has nothing to do.
    Idle,
    /// Records are lost for want of space.
    LostRecords,
    /// A device lowers its clocks because it has reached its power limit.
    PowerCapped,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Slower, Self::Occupancy, Self::Straggler, Self::Idle, Self::LostRecords, Self::PowerCapped];

    /// Its name, as options and messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Occupancy => "occupancy",
            Self::Straggler => "straggler",
            Self::Idle => "idle",
            Self::LostRecords => "lost-records",
            Self::PowerCapped => "power-capped",
        }
    }

    /// Its name as alerts of Prometheus are named.
    pub fn alert_name(self) -> &'static str {
        match self {
            Self::Slower => "ApexSlower",
            Self::Occupancy => "ApexOccupancyFell",
            Self::Straggler => "ApexStraggler",
            Self::Idle => "ApexGpuIdle",
            Self::LostRecords => "ApexRecordsLost",
            Self::PowerCapped => "ApexPowerCapped",
        }
    }

    /// Returns the default limit, a share from 0 to 1. `None` if any value counts.
    pub fn default_limit(self) -> Option<f64> {
        match self {
            Self::Slower | Self::Straggler => Some(0.1),
            Self::Occupancy => Some(0.25),
            Self::Idle | Self::PowerCapped => Some(0.5),
            Self::LostRecords => None,
        }
    }
}

/// The limit of each rule; `None` for rules that are not judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits([Option<f64>; Rule::ALL.len()]);

impl Default for Limits {
    /// All rules, with their default limits.
    fn default() -> Self {
        Self(Rule::ALL.map(|rule| Some(rule.default_limit().unwrap_or(0.0))))
    }
}

impl Limits {
    /// The limit of a rule; `None` where it is off.
    pub fn of(&self, rule: Rule) -> Option<f64> {
        self.0[rule as usize]
    }

    /// Sets what a text says: `slower=20%`, `idle=off`.
    ///
    /// # Errors
    /// Says what is wrong with it, and how to write it.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let names = || Rule::ALL.map(Rule::name).join(", ");
        let explain =
            || format!("`{text}` sets no rule: write NAME=PERCENT or NAME=off; names are {}", names());
        let (name, value) = text.split_once('=').ok_or_else(explain)?;
        let rule = Rule::ALL.into_iter().find(|rule| rule.name() == name).ok_or_else(explain)?;
        self.0[rule as usize] = match (value, rule.default_limit()) {
            ("off", _) => None,
            ("on", _) => Some(rule.default_limit().unwrap_or(0.0)),
            (_, None) => return Err(format!("`{name}` has no limit: write {name}=off or {name}=on")),
            (percent, Some(_)) => Some(units::parse_percent(percent)? / 100.0),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_name() {
        let mut limits = Limits::default();
        assert_eq!(Rule::ALL.map(|rule| limits.of(rule)), [0.1, 0.25, 0.1, 0.5, 0.0, 0.5].map(Some));
        limits.set("slower=20%").unwrap();
        limits.set("idle=80").unwrap();
        limits.set("lost-records=off").unwrap();
        assert_eq!(limits.of(Rule::Slower), Some(0.2));
        assert_eq!(limits.of(Rule::Idle), Some(0.8));
        assert_eq!(limits.of(Rule::LostRecords), None);
        limits.set("lost-records=on").unwrap();
        assert_eq!(limits.of(Rule::LostRecords), Some(0.0));
        for wrong in ["", "slower", "slow=1", "slower=", "slower=101", "lost-records=5%"] {
            assert!(limits.set(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_those_of_the_documents() {
        for rule in Rule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.name());
        }
    }
}
