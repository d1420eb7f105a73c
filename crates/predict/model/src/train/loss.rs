//! The loss that is minimised, and its derivative with respect to the last layer's sums.
//!
//! With `z` a sum of the last layer, `y` the target, in standard units where it is any number, and
//! `p = logistic(z)`:
//!
//! | loss | of a fraction | of any number |
//! | --- | --- | --- |
//! | cross entropy | `ln(1 + e^z) - y z` | |
//! | squared | `(p - y)^2 / 2` | `(z - y)^2 / 2` |
//! | Huber (1964) | the same within `delta`, beyond it `delta (abs(p - y) - delta / 2)` | with `z` for `p` |
//! | quantile (Koenker and Bassett, 1978) | `max(t (y - p), (t - 1) (y - p))` | with `z` for `p` |

use super::real::Real;
use crate::Error;
use crate::network::Range;

/// The loss of a point estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointLoss {
    /// Cross entropy between Bernoulli distributions; for fractions. Least at the mean, and never
    /// flat.
    CrossEntropy,
    /// Half the squared error; least at the mean.
    Squared,
    /// Half the squared error up to `delta`, in standard units, and linear beyond.
    Huber {
        /// The error at which it becomes linear.
        delta: f32,
    },
}

/// The loss of one target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetLoss {
    /// The loss of its point estimate. Its quantiles, if it has any, have the quantile loss.
    pub point: PointLoss,
    /// The weight of the target beside others.
    pub weight: f32,
}

impl TargetLoss {
    /// Cross entropy for fractions, Huber's loss with `delta = 1` for the rest.
    pub fn usual(range: Range) -> TargetLoss {
        let point = match range {
            Range::Fraction => PointLoss::CrossEntropy,
            Range::Real => PointLoss::Huber { delta: 1.0 },
        };
        TargetLoss { point, weight: 1.0 }
    }

    pub(super) fn check(&self, range: Range) -> Result<(), Error> {
        let usable = self.weight.is_finite() && self.weight >= 0.0;
        Error::check_range(
            usable,
            "the weight of a loss",
            f64::from(self.weight),
            "finite and not negative",
        )?;
        match self.point {
            PointLoss::Huber { delta } => {
                let usable = delta.is_finite() && delta > 0.0;
                Error::check_range(usable, "delta of Huber's loss", f64::from(delta), "positive")
            }
            PointLoss::CrossEntropy if range == Range::Real => {
                Err(Error::Range { what: "cross entropy's target", value: f64::NAN, range: "a fraction" })
            }
            PointLoss::CrossEntropy | PointLoss::Squared => Ok(()),
        }
    }
}

/// The loss of one output.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputLoss {
    /// The position of its target.
    pub(super) target: usize,
    pub(super) range: Range,
    /// The level, if it is a quantile; else `point` counts.
    pub(super) level: Option<f32>,
    pub(super) point: PointLoss,
    pub(super) weight: f32,
}

impl OutputLoss {
    /// Loss and derivative at the sum `z` for the scaled target `y`, the weight included.
    pub(super) fn at<T: Real>(&self, z: T, y: T) -> (T, T) {
        let one = T::of(1.0);
        let (loss, slope) = match (self.level, self.point, self.range) {
            (None, PointLoss::CrossEntropy, _) => (softplus(z) - y * z, z.logistic() - y),
            (_, _, Range::Real) => self.of_estimate(z, y),
            (_, _, Range::Fraction) => {
                let p = z.logistic();
                let (loss, slope) = self.of_estimate(p, y);
                (loss, slope * p * (one - p))
            }
        };
        let weight = T::of(f64::from(self.weight));
        (loss * weight, slope * weight)
    }

    /// Loss and derivative of the estimate itself.
    fn of_estimate<T: Real>(&self, estimate: T, y: T) -> (T, T) {
        let (one, half) = (T::of(1.0), T::of(0.5));
        let error = estimate - y;
        match (self.level, self.point) {
            (Some(level), _) => {
                let level = T::of(f64::from(level));
                let slope = if error < T::default() { -level } else { one - level };
                (slope * error, slope)
            }
            (None, PointLoss::Huber { delta }) => {
                let delta = T::of(f64::from(delta));
                if error > delta {
                    (delta * (error - half * delta), delta)
                } else if error < -delta {
                    (delta * (-error - half * delta), -delta)
                } else {
                    (half * error * error, error)
                }
            }
            (None, _) => (half * error * error, error),
        }
    }
}

/// `ln(1 + e^z)`, without overflow.
fn softplus<T: Real>(z: T) -> T {
    let z = z.to_f64();
    T::of(z.max(0.0) + (-z.abs()).exp().ln_1p())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(range: Range, level: Option<f32>, point: PointLoss, z: f64, y: f64) -> f64 {
        OutputLoss { target: 0, range, level, point, weight: 2.0 }.at(z, y).0 / 2.0
    }

    /// By hand, from the module's table.
    #[test]
    fn losses_are_those_of_the_table() {
        let close =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        let (fraction, real) = (Range::Fraction, Range::Real);
        let (entropy, squared, huber) =
            (PointLoss::CrossEntropy, PointLoss::Squared, PointLoss::Huber { delta: 0.5 });
        // logistic(ln 3) is 3/4.
        let z = 3f64.ln();
        close(loss(fraction, None, entropy, z, 1.0), -(0.75f64.ln()));
        close(loss(fraction, None, entropy, z, 0.25), -0.25 * 0.75f64.ln() - 0.75 * 0.25f64.ln());
        close(loss(fraction, None, entropy, 800.0, 0.0), 800.0);
        close(loss(fraction, None, squared, z, 0.25), 0.125);
        close(loss(fraction, None, huber, z, 0.0), 0.5 * (0.75 - 0.25));
        close(loss(fraction, Some(0.125), entropy, z, 1.0), 0.125 * 0.25);
        close(loss(real, None, squared, 3.0, 1.0), 2.0);
        close(loss(real, None, huber, 1.25, 1.0), 0.5 * 0.0625);
        close(loss(real, None, huber, -1.0, 1.0), 0.5 * (2.0 - 0.25));
        close(loss(real, Some(0.75), huber, 1.0, 3.0), 1.5);
        close(loss(real, Some(0.75), huber, 3.0, 1.0), 0.5);
    }
}
