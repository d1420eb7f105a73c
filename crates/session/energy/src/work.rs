//! What a program did for its energy, in units that it names.
//!
//! The name of an NVTX range may end in a number with a unit, such as `step [4096 tokens]`: each
//! time that the range begins, the program does so much.

use crate::Estimate;
use apex_profile::Profile;
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of units reported.
const MOST_UNITS: usize = 8;
/// Maximum length of a unit, bytes.
const MOST_UNIT_BYTES: usize = 32;

/// Work of the session in a unit that the program names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Work {
    /// The unit, such as `tokens`.
    pub unit: String,
    /// How much was done, counted.
    pub count: f64,
    /// How much for a joule of all devices; `None` where the session is too short to say.
    pub per_joule: Option<Estimate>,
}

impl Work {
    /// The work that the ranges of a profile name, for this energy of all devices.
    pub fn of(profile: &Profile, joules: Option<Estimate>) -> Vec<Self> {
        let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
        for range in &profile.ranges {
            if let Some((number, unit)) = named(&range.name) {
                *counts.entry(unit).or_default() += number * range.count as f64;
            }
        }
        let work = |(unit, count): (&str, f64)| {
            let per_joule = joules.filter(|joules| joules.low > 0.0).map(|joules| Estimate {
                value: count / joules.value,
                low: count / joules.high,
                high: count / joules.low,
            });
            Self { unit: unit.to_owned(), count, per_joule }
        };
        counts.into_iter().filter(|(_, count)| *count > 0.0).take(MOST_UNITS).map(work).collect()
    }
}

/// The number and the unit at the end of a range's name.
fn named(name: &str) -> Option<(f64, &str)> {
    let (_, inside) = name.strip_suffix(']')?.rsplit_once('[')?;
    let (number, unit) = inside.split_once(' ')?;
    let number = number.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)?;
    let is_unit =
        (1..=MOST_UNIT_BYTES).contains(&unit.len()) && unit.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_unit.then_some((number, unit))
}
