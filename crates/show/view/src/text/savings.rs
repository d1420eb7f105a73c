//! The saving of a finding, in words.

use super::figures::{share, time};
use apex_advice::{Finding, Saving};
use apex_profile::Figure;

/// A finding that is known to save a smaller share is left to `apex advise`.
const MINOR: f64 = 0.02;

/// Whether a finding is known to save next to nothing.
pub fn is_minor(finding: &Finding) -> bool {
    finding.saving.of_job.is_some_and(|share| share.value < MINOR)
}

/// Saving of `of_what` (`each step`, `the job`).
pub fn saving(saving: &Saving, of_what: &str) -> String {
    match (&saving.of_job, &saving.time_ns) {
        // Capped: the time that it could save is the time that others save already.
        (Some(share), _) if share.value == 0.0 => "saves nothing beyond the findings above".into(),
        (Some(of_job), Some(saved)) => {
            format!("saves {} of {of_what}, {}{}", share(of_job), time(saved), faster(of_job))
        }
        (Some(of_job), None) => format!("saves {} of {of_what}", share(of_job)),
        _ => match &saving.unknown_because {
            Some(reason) => format!("unknown saving: {reason}"),
            None => "unknown saving".into(),
        },
    }
}

/// `, 1.04×`: how many times as fast the job would be; nothing where so much is saved that it says
/// nothing.
pub fn faster(of_job: &Figure) -> String {
    Saving::faster(of_job.value).map_or_else(String::new, |factor| format!(", {factor:.2}×"))
}
