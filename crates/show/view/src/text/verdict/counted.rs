//! The verdict without a GPU. It is about counted work: times of the CPU device say nothing about a
//! GPU.

use apex_advice::{Advice, Finding, Scope, Severity};
use apex_profile::{Profile, units};

use super::{Part, launches, what_is_missing};

/// A kernel with less of the counted work is no verdict on a program.
const COUNTED: f64 = 0.03;

/// The first finding that matters without a GPU: its kernels do at least [`COUNTED`] of the counted
/// work (a grid that leaves SMs empty weighs more), or it is about the host and does not depend on
/// times.
pub(super) fn counted_first<'a>(job: &Profile, advice: &'a Advice) -> Option<&'a Finding> {
    let shares = job.counted_shares();
    let matters = |finding: &&Finding| {
        finding.counted_weight(&shares) >= COUNTED
            || (finding.scope == Scope::Host && finding.severity >= Severity::Low)
    };
    match shares.iter().all(|share| *share == 0.0) {
        true => advice.findings.first(),
        false => advice.findings.iter().find(matters),
    }
}

/// Without a GPU the first defect is the verdict, or the first finding: how long things took says
/// nothing about a GPU.
pub(super) fn on_cpu(part: &Part<'_>, first: Option<&Finding>) -> String {
    if let Some(defect) = part.job.defects.first() {
        let more = match part.job.defects.len() - 1 {
            0 => String::new(),
            more => format!(", and {} more", units::count(more as u64)),
        };
        let kernel = apex_profile::names::identify(&defect.kernel).short_name;
        return format!(
            "Defects in kernels: {} in `{kernel}` at {}{more}.",
            defect.kind,
            defect.place.shown()
        );
    }
    match first {
        Some(first) => match first.kernels.first() {
            Some(kernel) => {
                format!("{}, mostly in `{}`{}.", first.title, kernel.name, how_much(part.job, kernel.kernel))
            }
            None => format!("{}: {}.", first.title, first.summary),
        },
        None if part.job.kernels.is_empty() => format!("No {}.", what_is_missing(part.job)),
        None => without_fault(part.job),
    }
}

/// Says how much a kernel executes or accesses that does less than half of what was counted.
pub(super) fn how_much(job: &Profile, kernel: usize) -> String {
    match job.counted_part([kernel]) {
        Some((share, what)) if share < 0.5 => format!(", which has {} of the {what}", units::share(share)),
        _ => String::new(),
    }
}

/// Says that the rules found nothing that matters, and names the kernel that does most of the work.
fn without_fault(job: &Profile) -> String {
    let shares = job.counted_shares();
    let most = (0..shares.len()).max_by(|&a, &b| shares[a].total_cmp(&shares[b]));
    match most.and_then(|most| Some((&job.kernels[most], job.counted_part([most])?))) {
        Some((kernel, (share, what))) => format!(
            "The rules found nothing in `{}`, which has {} of the {what}.",
            kernel.short_name,
            units::share(share)
        ),
        None => {
            let launches = launches(job);
            format!("{launches} on the CPU device: the rules found nothing; the times are not a GPU's.")
        }
    }
}
