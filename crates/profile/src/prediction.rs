//! What models say of a kernel, as plain data: `apex-predict` makes it, and views show it.

use serde::{Deserialize, Serialize};

use crate::figure::{Figure, Provenance};

/// A predicted value and an interval that holds the truth in nine of ten cases like those that it
/// was tested on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The point estimate. The unit is in the name of the field that holds it; shares are from 0 to
    /// 1.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Always [`Provenance::Predicted`].
    pub provenance: Provenance,
}

impl Estimate {
    /// The same estimate in another unit: `by` is positive.
    pub fn scaled(self, by: f64) -> Self {
        Self { value: self.value * by, low: self.low * by, high: self.high * by, ..self }
    }

    /// The share by which this is less than `whole`, which is positive.
    pub fn saved_of(self, whole: f64) -> Self {
        let saved = |part: f64| 1.0 - part / whole;
        Self { value: saved(self.value), low: saved(self.high), high: saved(self.low), ..self }
    }
}

/// What the models say of a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The kernel's own duration.
    pub duration_ns: Estimate,
    /// Warps resident on a multiprocessor while it is active, of the most possible.
    pub achieved_occupancy: Estimate,
    /// Compute (SM) throughput, of the most possible.
    pub sm_utilisation: Estimate,
    /// Threads that take part in a warp's instruction, of 32.
    pub warp_efficiency: Estimate,
    /// What the prediction was made from: `launch`, `kernel`, `code` or `work`.
    pub basis: String,
    /// Features outside of what the models were trained on: where there are any, no interval has
    /// been tested.
    pub unfamiliar: Vec<String>,
    /// The kernel's own duration as measured; `None` where it was not timed.
    pub measured_duration_ns: Option<Figure>,
    /// This over the predicted one.
    pub measured_over_predicted: Option<f64>,
}

impl Prediction {
    /// Sets a measured duration beside it.
    pub fn beside(mut self, measured_ns: Option<Figure>) -> Self {
        self.measured_duration_ns = measured_ns;
        self.measured_over_predicted = measured_ns
            .filter(|_| self.duration_ns.value > 0.0)
            .map(|measured| measured.value / self.duration_ns.value);
        self
    }
}
