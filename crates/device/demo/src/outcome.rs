//! Compares a device's results with the host's.

use crate::error::{DemoError, Result};
use std::fmt;

/// The result of a program that was found right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The number of values that were compared with the reference.
    pub checked: usize,
    /// The largest difference, as a share of what is allowed: 1 would be just right enough.
    pub worst: f64,
    /// The sum of all values; depends on the order in which the device adds, if that is left to it.
    pub checksum: f64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { checked, worst, checksum } = self;
        write!(
            formatter,
            "{checked} values right, largest error {:.0}% of allowed, checksum {checksum:.6e}",
            worst * 100.0
        )
    }
}

impl Outcome {
    /// Checks `found` against a reference. `expected` gives, for each index, the value in double
    /// precision and how far off it rounding may take the device.
    pub fn check<T: Copy + Into<f64>>(
        &mut self,
        what: &'static str,
        found: &[T],
        expected: impl Fn(usize) -> (f64, f64),
    ) -> Result {
        for (index, found) in found.iter().copied().map(Into::into).enumerate() {
            let (expected, allowed) = expected(index);
            let error = (found - expected).abs();
            if error.is_nan() || error > allowed {
                return Err(DemoError::Wrong { what, index, expected, found, allowed });
            }
            self.worst = self.worst.max(if allowed > 0.0 { error / allowed } else { 0.0 });
            self.checksum += found;
        }
        self.checked += found.len();
        Ok(())
    }
}

/// Returns the largest error of a sum or a chain of `operations` in single precision: half a unit
/// in the last place each, of terms whose magnitudes add up to `magnitude`.
pub fn rounding(operations: usize, magnitude: f64) -> f64 {
    operations as f64 * f64::from(f32::EPSILON) / 2.0 * magnitude
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_is_near_and_rejects_what_is_not() {
        let mut outcome = Outcome::default();
        outcome.check("near", &[1.0f32, 2.0], |index| (index as f64 + 1.25, 0.5)).unwrap();
        assert_eq!(outcome, Outcome { checked: 2, worst: 0.5, checksum: 3.0 });
        let far = outcome.check("far", &[0.0f32, 1.0], |_| (0.0, 0.5));
        assert!(matches!(far, Err(DemoError::Wrong { what: "far", index: 1, .. })));
        assert!(outcome.check("not a number", &[f32::NAN], |_| (0.0, 0.5)).is_err());
    }
}
