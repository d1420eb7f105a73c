//! The sentence of what to change and what that saves, or of where to look next.

use apex_advice::rules::{COSTLY_LINE, Rule};
use apex_advice::{Advice, Finding, Severity};
use apex_profile::names::OwnerKind;
use apex_profile::{Profile, units};

use super::{LEAST, Part, keeps_busy, longest, together};

/// A kernel with this share of the kernels' time is what the GPU does.
const MAIN: f64 = 0.5;

/// The first finding whose saving is worth a word.
pub(super) fn worth(advice: &Advice) -> Option<&Finding> {
    advice.findings.iter().find(|finding| {
        let saves = finding.saving.of_job.is_some_and(|share| share.bounds().1 >= LEAST);
        saves || finding.rule == COSTLY_LINE
    })
}

/// Names the change, and what it saves.
pub(super) fn remedy(part: &Part<'_>, finding: &Finding) -> String {
    let change = &finding.remedy;
    let Some(saving) = finding.saving.time_ns else { return format!("→ {change}.") };
    let (saving, each) = match part.steps {
        Some(steps) => (saving.scaled(1.0 / steps), " a step"),
        _ => (saving, ""),
    };
    let of_all = together(part.job).filter(|_| part.steps.is_none());
    let of_all = of_all.map_or_else(String::new, |all| format!(" of {all} together"));
    let (low, high) = saving.bounds();
    // A change draws from an account that the bars show. Some on the host's side save busy time,
    // too.
    let (account, is_idle) = drawn_from(part.job, finding);
    let account = account / part.steps.unwrap_or(1.0);
    let saves_idle_time = is_idle && saving.value <= account * (1.0 + 1e-9);
    let high = if saves_idle_time || !is_idle { high.min(account.max(saving.value)) } else { high };
    let low = low.min(high);
    let kind = if saves_idle_time { " of idle time" } else { "" };
    let amount = if low > LEAST * high {
        format!("{} to {}", units::time(low), units::time(high))
    } else {
        format!("up to {}", units::time(high))
    };
    format!("→ {change}: saves {amount}{each}{kind}{of_all}.")
}

/// The time of the account that a finding draws from, nanoseconds of all devices, and whether it is
/// idle time; without limit where it is the kernels'.
fn drawn_from(job: &Profile, finding: &Finding) -> (f64, bool) {
    let accounts = job.accounts();
    match Rule::named(&finding.rule) {
        Some(rule) if !rule.idle.is_empty() => (accounts.idle_ns().value, true),
        Some(rule) if rule.slug == "slow-rank" && accounts.waiting.value > 0.0 => {
            (accounts.waiting.value, false)
        }
        _ => (f64::INFINITY, false),
    }
}

/// The first finding about the kernel that takes most of the GPU time of a busy device, where what
/// the change saves is unknown.
pub(super) fn fault_of_longest<'a>(job: &Profile, advice: &'a Advice) -> Option<&'a Finding> {
    let (kernel, share) = longest(job).filter(|_| !job.on_cpu_device() && keeps_busy(job))?;
    let is_about = |finding: &&Finding| {
        let mut kernels = finding.kernels.iter().filter_map(|found| job.kernels.get(found.kernel));
        finding.saving.of_job.is_none()
            && finding.severity > Severity::Info
            && kernels.any(|found| std::ptr::eq(found, kernel))
    };
    advice.findings.iter().filter(|_| share >= MAIN).find(is_about)
}

/// Where no rule names a change and one of the program's own kernels keeps the GPU busy: how to see
/// what limits it.
pub(super) fn next_look(part: &Part<'_>) -> Option<String> {
    if part.job.on_cpu_device() || part.kernels.is_some() || !keeps_busy(part.job) {
        return None;
    }
    let (kernel, share) = longest(part.job)?;
    let is_own = kernel.traits.owner.kind() == OwnerKind::Own;
    if !is_own || share < MAIN {
        return None;
    }
    // Triton's kernels come as machine code, which the CPU device does not execute.
    let is_in_python =
        part.job.kernels.iter().any(|kernel| kernel.traits.owner.kind() == OwnerKind::Framework);
    let code = part.job.code.is_none().then_some("`apex run --code` tells what bounds it");
    let counts = (!is_in_python)
        .then_some("`apex run --device cpu` counts its instructions and accesses by line, on a small input");
    let how: Vec<&str> = [code, counts].into_iter().flatten().collect();
    (!how.is_empty())
        .then(|| format!("No rule names a change. To look into `{}`: {}.", kernel.short_name, how.join("; ")))
}
