//! A profile with predictions: a profile is complete when it is built, and predictions are an
//! argument of it.

use std::collections::BTreeMap;

use super::{CodeFact, Kernel, KnownCode, Profile};
use crate::prediction::Prediction;

/// The predictions for the kernels of a profile.
#[derive(Clone, Debug, Default)]
pub struct Predictions {
    /// The prediction for each kernel, in the order of [`Profile::kernels`].
    pub kernels: Vec<KernelPrediction>,
    /// For each device without predictions, the reason.
    pub missing: Vec<String>,
}

/// The predictions for one kernel.
#[derive(Clone, Debug, Default)]
pub struct KernelPrediction {
    /// The part of its code that is known.
    pub known: Option<KnownCode>,
    /// The prediction of the models.
    pub said: Option<Prediction>,
    /// Facts that its code tells about its cost, if it is busy.
    pub facts: Vec<CodeFact>,
}

impl Profile {
    /// The profile with predictions for its kernels.
    pub fn with(mut self, predictions: Predictions) -> Self {
        for (kernel, KernelPrediction { known, said, facts }) in
            self.kernels.iter_mut().zip(predictions.kernels)
        {
            kernel.prediction = said;
            if let Some(code) = &mut kernel.code {
                (code.known, code.facts) = (known, facts);
            }
        }
        let basis = self.timed(|kernel| kernel.prediction.as_ref().map(|said| said.basis.as_str()));
        self.prediction_basis = basis_shares(basis);
        let known = self.timed(|kernel| {
            let known = kernel.code.as_ref().and_then(|code| code.known.as_ref());
            Some(known.map_or("none", KnownCode::name))
        });
        let known = basis_shares(known);
        if let Some(code) = &mut self.code {
            code.known = known;
        }
        self.unpredicted = predictions.missing;
        self
    }

    /// The kernels of which this holds something, each with its GPU time.
    fn timed<'p>(
        &'p self,
        of: impl Fn(&'p Kernel) -> Option<&'p str>,
    ) -> impl Iterator<Item = (&'p str, f64)> {
        self.kernels.iter().filter_map(move |kernel| Some((of(kernel)?, kernel.gpu_total_ns()?)))
    }
}

/// The shares of the time that each basis, or whatever else divides kernels, accounts for, of
/// kernels each with its basis and its time.
pub fn basis_shares<'a>(kernels: impl Iterator<Item = (&'a str, f64)>) -> BTreeMap<String, f64> {
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for (basis, time) in kernels {
        *shares.entry(basis.to_owned()).or_default() += time;
    }
    let all: f64 = shares.values().sum();
    shares.retain(|_, time| *time > 0.0);
    shares.values_mut().for_each(|time| *time /= all);
    shares
}
