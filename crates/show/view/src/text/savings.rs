//! The saving of a finding, in words. A saving that may be nothing is never named by its upper end
//! alone.

use super::figures::{mark, share, time};
use apex_advice::{Finding, Saving};
use apex_profile::{Figure, units};

/// A finding that is known to save a smaller share is left to `apex advise`.
const MINOR: f64 = 0.02;

/// Whether a finding is known to save next to nothing.
pub fn is_minor(finding: &Finding) -> bool {
    finding.saving.of_job.is_some_and(|share| share.value < MINOR)
}

/// Saving of `of_what` (`each step`, `the job`); its time is of `all` ([`together`]), where they
/// are several.
///
/// [`together`]: super::verdict::together
pub fn saving(saving: &Saving, of_what: &str, all: Option<&str>) -> String {
    match (&saving.of_job, &saving.time_ns) {
        // Capped: the time that it could save is the time that others save already.
        (Some(share), _) if share.value == 0.0 => "saves nothing beyond the findings above".into(),
        (Some(of_job), Some(saved)) => {
            let of_all = all.map_or_else(String::new, |all| format!(" of {all} together"));
            format!("saves {} of {of_what}, {}{of_all}{}", amount(of_job), time_of(saved), faster(of_job))
        }
        (Some(of_job), None) => format!("saves {} of {of_what}", amount(of_job)),
        _ => match &saving.unknown_because {
            Some(reason) => format!("unknown saving: {reason}"),
            None => "unknown saving".into(),
        },
    }
}

/// A saving whose interval begins at less than this share of its end may be nothing.
const NOTHING: f64 = 0.02;

/// Whether a saving may be nothing and its value is the most that it can be.
pub fn is_upper_end(saving: &Figure) -> bool {
    let is_end = |(low, high): (f64, f64)| low <= NOTHING * high && saving.value >= (1.0 - NOTHING) * high;
    saving.interval().is_some_and(|ends| saving.value > 0.0 && is_end(ends))
}

/// A share that is saved: `38.1% (30.0–45.0)ᵖ`, or `up to 87.0%ᵖ`.
pub fn amount(of_job: &Figure) -> String {
    match is_upper_end(of_job) {
        true => format!("up to {}{}", units::percent(of_job.value), mark(of_job.provenance())),
        false => share(of_job),
    }
}

/// A time that is saved, in the same way.
fn time_of(saved: &Figure) -> String {
    match is_upper_end(saved) {
        true => format!("up to {}{}", units::time(saved.value), mark(saved.provenance())),
        false => time(saved),
    }
}

/// `, 1.04×`: how many times as fast the job would be; nothing where so much is saved, or where it
/// is so uncertain, that it says nothing.
pub fn faster(of_job: &Figure) -> String {
    if is_upper_end(of_job) {
        return String::new();
    }
    Saving::faster(of_job.value).map_or_else(String::new, |factor| format!(", {factor:.2}×"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_nothing_is_not_sold_by_its_upper_end() {
        let saving = |value: f64, low: f64, high: f64| {
            let mut saving = Saving::default();
            saving.of_job = Some(Figure::predicted(value, (low, high)));
            saving.time_ns = Some(Figure::predicted(value * 1e9, (low * 1e9, high * 1e9)));
            saving
        };
        let said = |value, low, high| super::saving(&saving(value, low, high), "each step", None);
        assert_eq!(said(0.87, 0.0, 0.87), "saves up to 87.0%ᵖ of each step, up to 870 msᵖ");
        assert_eq!(said(0.4, 0.0, 0.87), "saves 40.0% (0–87.0)ᵖ of each step, 400 ms (0–870)ᵖ, 1.67×");
        assert_eq!(said(0.5, 0.25, 0.5), "saves 50.0% (25.0–50.0)ᵖ of each step, 500 ms (250–500)ᵖ, 2.00×");
        let of_four = super::saving(&saving(0.5, 0.25, 0.5), "each step", Some("4 ranks"));
        assert!(of_four.ends_with(", 500 ms (250–500)ᵖ of 4 ranks together, 2.00×"), "{of_four}");
        assert!(!is_upper_end(&Figure::measured(0.5)) && !is_upper_end(&Figure::predicted(0.0, (0.0, 0.0))));
    }
}
