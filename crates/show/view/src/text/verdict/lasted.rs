//! The sentence of how long a step or the whole takes.

use apex_profile::units;

use super::{Part, together};
use crate::text::figures;

/// Duration of a step, or of the whole.
pub(super) fn lasted(part: &Part<'_>) -> Option<String> {
    let accounts = part.job.accounts();
    // If nothing was timed, the kernels' time is unknown and left out.
    let busy = accounts.kernels.value + accounts.collectives.value;
    let kernels = |what: &str, by: f64, mark: &str| match busy > 0.0 {
        true => format!("; {what} take {}{mark}", units::time(busy / by)),
        false => String::new(),
    };
    // (An imported trace has the time of each kernel.)
    let mark = if accounts.kernels.interval().is_none() { "ᵐ" } else { "ᵖ" };
    let step_ns = part.job.step_ns().zip(part.steps);
    if let Some((iterations, (step_ns, steps))) = part.iterations.zip(step_ns) {
        let intervals = &iterations.duration;
        return Some(format!(
            "A step takes {}{} (mean of {}; launch intervals: p10 {}, p90 {}ᵐ){}.",
            units::time(step_ns.value),
            figures::mark(step_ns.provenance()),
            units::count(step_ns.samples),
            units::time(intervals.p10_ns),
            units::time(intervals.p90_ns),
            kernels("its kernels", steps, mark)
        ));
    }
    (accounts.span_ns > 0.0).then(|| {
        let none =
            if part.is_without_steps { " No launch sequence repeats, so there are no steps." } else { "" };
        if let Some(all) = together(part.job) {
            let kernels = kernels("the kernels of all", 1.0, " together");
            return format!("{}{kernels}.{none}", longest_span(part, &all));
        }
        let of = if part.is_window { "Of the window, from" } else { "From" };
        format!(
            "{of} its first to its last work {} pass{}.{none}",
            units::time(accounts.span_ns),
            kernels("kernels", 1.0, "")
        )
    })
}

/// How long the one of several ranks or GPUs takes that takes longest: the accounts are sums.
fn longest_span(part: &Part<'_>, all: &str) -> String {
    let spans = part.job.activities.iter().map(|activity| activity.accounts.span_ns);
    let within = if part.is_window { " within the window" } else { "" };
    let span = units::time(spans.fold(0.0, f64::max));
    format!("The longest of {all} takes {span} from its first to its last work{within}")
}
