//! Shared parts of rules that judge kernels by their names.

use super::{Draft, Fault, Outcome, UNTIMED, about_kernels, confidence, counted, kernel_finding, percent};
use crate::finding::{Evidence, Level, Unit};
use apex_profile::{Figure, Kernel, Profile};

/// Least share of the GPU time that kernels with a fault must have together.
pub(super) const SHARE: f64 = 0.02;

/// Asks about every timed kernel which share of its time a change would save; one finding for all
/// that have a share, if together they take [`SHARE`] of the GPU time. `headline` words the summary
/// from who they are.
pub(super) fn judge(
    profile: &Profile,
    change: &str,
    reason: &str,
    saves: impl Fn(&Kernel) -> Option<Figure>,
    headline: impl Fn(&str) -> String,
) -> Outcome {
    judge_rows(profile, change, reason, |row| saves(&profile.kernels[row]), headline)
}

/// As [`judge`], about kernels by their place in the profile.
pub(super) fn judge_rows(
    profile: &Profile,
    change: &str,
    reason: &str,
    saves: impl Fn(usize) -> Option<Figure>,
    headline: impl Fn(&str) -> String,
) -> Outcome {
    let Some(all) = profile.totals.gpu_time_ns.map(|time| time.value).filter(|&time| time > 0.0) else {
        return Outcome::Unjudged(UNTIMED.to_owned());
    };
    let mut time = 0.0;
    let mut kernels = Vec::new();
    for (index, kernel) in profile.kernels.iter().enumerate() {
        let Some((own, share)) = kernel.gpu_total_ns().zip(saves(index)) else { continue };
        if kernel.launches.ran() == 0 {
            continue;
        }
        time += own;
        kernels.push(kernel_finding(profile, index, fault(kernel, own / all, share)));
    }
    if kernels.is_empty() || time < SHARE * all {
        return Outcome::Clear;
    }
    let draft = about_kernels(profile, kernels, confidence(Level::Medium, reason), headline);
    let summary = format!("{}; {} of GPU time", draft.summary, percent(time / all));
    let share = Evidence::new("share of GPU time", Figure::measured(time / all), Unit::Share);
    Outcome::found(Draft { summary, change: Some(change.to_owned()), evidence: vec![share], ..draft })
}

fn fault(kernel: &Kernel, share: f64, saves: Figure) -> Fault {
    let mut evidence = vec![Evidence::new("share of GPU time", Figure::measured(share), Unit::Share)];
    if let Some(gpu) = &kernel.gpu {
        let mean = Figure::sampled(gpu.each.mean_ns, gpu.each.count, None);
        evidence.push(Evidence::new("mean GPU time", mean, Unit::Nanoseconds));
    }
    let change =
        format!("its {} become faster or fewer", counted(kernel.launches.ran(), "launch", "launches"));
    Fault { evidence, change, saves: Ok(saves), threads: None }
}

/// Whether the function's short name begins with one of these: `addcdiv` for `addcdiv<float>
/// strided`.
pub(super) fn is_any(kernel: &Kernel, names: &[&str]) -> bool {
    let name = kernel.short_name.split(['<', ' ', '[']).next().unwrap_or_default();
    names.contains(&name)
}

/// Launches of all kernels whose function has one of these names.
pub(super) fn launches_of(profile: &Profile, names: &[&str]) -> u64 {
    let counts =
        profile.kernels.iter().filter(|kernel| is_any(kernel, names)).map(|kernel| kernel.launches.ran());
    counts.fold(0, u64::saturating_add)
}
