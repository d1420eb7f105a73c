//! New rates for networks that are there already.
//!
//! Rates, loads and margins of what is computed do not depend on the networks, nor these on them.
//! Where nothing else changed, training again would give the same networks: they are taken over,
//! with their scores. The report and the ranges of the features show whether the networks were
//! trained on the same data.

use super::plain::AGAIN;
use super::timing::COMPUTED;
use super::{FAMILIES, Options, Progress, Recipes, Run, Trained};
use crate::Error;
use crate::examples::Data;
use crate::learn::WorkerPool;
use crate::report::Report;
use apex_model::Model;
use apex_model::forecast::FeatureSet;
use apex_predict::Basis;
use apex_predict::features::Set;
use std::sync::atomic::AtomicBool;

/// Trained models and their report, with rates, loads and margins that are fitted anew to the data
/// that the networks were trained on.
///
/// # Errors
/// [`Error::Refused`] if the networks were trained on other data, or with another seed or other
/// features; [`Error`] if the caller stopped it.
pub fn refit(data: &Data, trained: Trained, options: &Options, stop: &AtomicBool) -> Result<Trained, Error> {
    let progress = Progress::default();
    let pool = WorkerPool { threads: options.threads, done: &progress.done, stop };
    let run = Run { data, options, recipes: Recipes::new(options.quick), pool };
    let Trained { models: [small, large, what_if], mut report } = trained;
    run.check_same(&small, &large, &report)?;
    let timed = run.timing()?;
    for test in &mut report.tests {
        test.scores.retain(|score| ![AGAIN, COMPUTED].contains(&&*score.method));
        if test.held_out == FAMILIES {
            run.measured_again().into_iter().for_each(|score| test.insert(score));
        }
        timed.judge(test, data);
    }
    let rates = timed.timing.notes();
    let kept = large.notes().iter().filter(|(name, _)| rates.iter().all(|(other, _)| other != name));
    let notes: Vec<(String, String)> =
        kept.cloned().chain(rates.iter().map(|(name, text)| ((*name).to_owned(), text.clone()))).collect();
    let calibrations = large.calibrations().to_vec();
    let large = Model::new(large.features().clone(), large.network().clone(), calibrations, notes)?;
    Ok(Trained { models: [small, large, what_if], report })
}

impl Run<'_> {
    /// Checks that networks were trained on this data. What-if takes the same numbers as large.
    fn check_same(&self, small: &Model, large: &Model, report: &Report) -> Result<(), Error> {
        let refused = |what: &str| {
            Err(Error::Refused(format!(
                "the networks were trained {what}: train them anew, without --networks"
            )))
        };
        let devices: Vec<_> =
            self.data.sources.iter().enumerate().map(|(source, of)| self.summary_of(source, of)).collect();
        if report.devices != devices || report.families != self.data.families.len() {
            return refused("on other data");
        }
        if report.seed != self.options.seed {
            return refused(&format!("with the seed {}", report.seed));
        }
        for (model, set, bases) in [
            (small, Set::Small, &[Basis::Launch][..]),
            (large, Set::Full, &[Basis::Kernel, Basis::Code, Basis::Work]),
        ] {
            let inputs = self.data.examples(set, &self.all(), bases)?.matrix()?;
            let names = set.names();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if *model.features() != FeatureSet::seen(set.name(), set.version(), &names, &inputs)? {
                return refused("with other features of the launches");
            }
        }
        Ok(())
    }
}
