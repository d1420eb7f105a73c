//! A kernel of a few blocks that is launched again and again.

use super::{
    AROUND_LAUNCHES, Draft, Fault, Needs, Outcome, Rule, about_kernels, account, confidence, idle_during,
    job_saving, kernel_finding, multiprocessors, share_of_launches,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_ordered::Order;
use apex_profile::names::{Operation, Owner, OwnerKind};
use apex_profile::{Figure, IdleCause, Kernel, Profile};

/// Minimum share of SMs that a tiny launch leaves without a block …
const EMPTY: f64 = 0.875;
/// … with maximum duration, or, if not timed, maximum threads.
const SHORT_NS: f64 = 10e3;
const THREADS: u64 = 1024;
/// Minimum launches of one kernel …
const MANY: u64 = 1000;
/// … and minimum share of all launches …
const SHARE: f64 = 0.3;
/// … and so few kernels make nearly all launches: what alternates between more is a computation in
/// steps, which cannot be one launch.
const KERNELS: usize = 2;
const NEARLY_ALL: f64 = 0.9;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L42",
    slug: "tiny-launches",
    title: "Many launches of few blocks",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: AROUND_LAUNCHES,
    detects: "At least 1000 launches of one kernel whose blocks leave seven eighths of the SMs empty, for \
        less than 10 µs (if not timed, with at most 1024 threads); at least 30% of all launches, in a loop \
        over at most two kernels, which are not XLA's.",
    source: "APEX. A launch takes the host at least 2.5 µs on an H200 (data/h200/driver/call-costs.csv), and its \
        block leaves all SMs but one idle.",
    why: "The device runs few blocks at a time, and waits for the next launch.",
    change: "Combine the launches into one with a block for each, if they are independent; otherwise capture \
        them into a CUDA graph.",
    saving: "The idle time during launch calls and the host's own code, by the share of launches that these \
        are, and the part of the kernels' time that filling the SMs saves. At most both in full.",
    verify: "launches decrease, and the run time decreases",
    judge,
};

/// Whether a kernel is what this rule is about: others then leave its launch alone.
pub(super) fn is_tiny(kernel: &Kernel, profile: &Profile) -> bool {
    let calls = kernel.launches.calls;
    let empty = kernel.has_configuration()
        && kernel.blocks() as f64 <= (1.0 - EMPTY) * f64::from(multiprocessors(profile, kernel));
    let short = match &kernel.gpu {
        Some(gpu) if !profile.on_cpu_device() => gpu.each.mean_ns < SHORT_NS,
        _ => kernel.threads() <= THREADS,
    };
    empty
        && short
        && kernel.traits.operation != Operation::Collective
        && calls >= MANY
        && calls as f64 >= SHARE * profile.totals.launches as f64
}

/// Whether nearly all launches are of one kernel or two.
fn is_loop(profile: &Profile) -> bool {
    let mut calls: Vec<u64> = profile.kernels.iter().map(|kernel| kernel.launches.calls).collect();
    calls.order_by(|a, b| b.cmp(a));
    let most: u64 = calls.iter().take(KERNELS).sum();
    most as f64 >= NEARLY_ALL * profile.totals.launches as f64
}

fn judge(profile: &Profile) -> Outcome {
    // (XLA decides what its kernels are: the program cannot combine their launches.)
    let combinable = |kernel: &Kernel| is_tiny(kernel, profile) && kernel.traits.owner != Owner::Xla;
    let tiny: Vec<(usize, &Kernel)> =
        profile.kernels.iter().enumerate().filter(|(_, kernel)| combinable(kernel)).collect();
    if tiny.is_empty() || !is_loop(profile) {
        return Outcome::Clear;
    }
    let share = share_of_launches(profile, tiny.iter().map(|(_, kernel)| *kernel));
    let kernels = tiny.iter().map(|(index, kernel)| kernel_finding(profile, *index, fault(kernel))).collect();
    let saving = match idle_during(profile, RULE.idle) {
        Some(idle) => {
            let idle = idle.scaled(share);
            Saving {
                beyond: Some(time_of_kernels(profile, &tiny, share)),
                ..job_saving(profile, Figure::predicted(idle.value, (idle.bounds().0 / 2.0, idle.bounds().1)))
            }
        }
        None => Saving {
            unknown_because: Some("the idle time of the device is unknown".to_owned()),
            ..Saving::default()
        },
    };
    let sure = confidence(
        Level::Medium,
        "it is unknown whether the launches depend on each other; a graph keeps their order",
    );
    let draft = about_kernels(profile, kernels, sure, |who| format!("{who}: each launch has few blocks"));
    Outcome::found(Draft { saving, ..draft })
}

/// Estimates the saving of filling the multiprocessors, in the kernels' time on the clock. Its
/// maximum includes copies between the launches.
fn time_of_kernels(profile: &Profile, tiny: &[(usize, &Kernel)], share: f64) -> Figure {
    let time: f64 = tiny.iter().filter_map(|(_, kernel)| kernel.gpu_total_ns()).sum();
    let busy = account(profile, |accounts| accounts.kernels);
    let other = idle_during(profile, &[IdleCause::Transferring]).map_or(0.0, |idle| idle.bounds().1);
    let copies = account(profile, |accounts| accounts.copies).value;
    Figure::predicted(
        (time * EMPTY).min(busy.value),
        (0.0, time.min(busy.bounds().1) + share * (copies + other)),
    )
}

fn fault(kernel: &Kernel) -> Fault {
    let calls = kernel.launches.calls;
    Fault {
        evidence: vec![
            Evidence::new("launches", Figure::measured(calls as f64), Unit::Count).decrease_towards(1.0),
            Evidence::new("blocks", Figure::measured(kernel.blocks() as f64), Unit::Count),
            Evidence::new("threads in all", Figure::measured(kernel.threads() as f64), Unit::Count),
        ],
        change: match kernel.traits.owner.kind() {
            OwnerKind::Own => format!(
                "combine all {calls} launches of `{}` into one with a block for each, if they are independent; \
                    otherwise capture them into a CUDA graph",
                kernel.short_name
            ),
            _ => format!(
                "call {} once for many inputs instead of {calls} times (`{}`), if the calls are independent; \
                    otherwise capture them into a CUDA graph",
                kernel.traits.owner.name(),
                kernel.short_name
            ),
        },
        saves: Err("the change saves the host's time"),
        threads: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear_in, assert_finds_in, called, idle_during, kernel_of, on_cpu_device, profile_of,
        profile_with, timed,
    };
    use super::RULE;
    use apex_profile::names::Owner;
    use apex_profile::{IdleCause, Kernel, Profile};

    fn tiny(launches: u64) -> Kernel {
        called(kernel_of(1, 64), launches, 4000.0)
    }

    fn profile(kernels: Vec<Kernel>) -> Profile {
        let mut profile = profile_with([idle_during(IdleCause::Launching, 1e9, 0.8)]);
        profile.totals.launches = kernels.iter().map(|kernel| kernel.launches.calls).sum();
        Profile { kernels, ..profile }
    }

    #[test]
    fn fires_on_thousands_of_tiny_launches_and_no_other_rule_speaks_of_their_grid() {
        let profile = profile(vec![tiny(3000)]);
        let finding = assert_finds_in(&RULE, profile.clone());
        assert!(
            finding.change.starts_with("combine all 3000 launches of `kernel` into one"),
            "{}",
            finding.change
        );
        assert!((finding.saving.of_job.expect("a share").value - 0.8).abs() < 0.09, "{:?}", finding.saving);
        let advice = crate::advise(&profile, &crate::Options::default());
        assert!(advice.findings.iter().all(|finding| finding.slug != "small-grid"));
    }

    #[test]
    fn on_the_cpu_device_launches_of_one_block_are_tiny_whatever_their_time() {
        let of = |blocks| {
            let kernel = timed(kernel_of(blocks, 64), 50e3);
            on_cpu_device(profile_of([called(kernel, 3000, 4000.0)]))
        };
        let advice = crate::advise(&of(1), &crate::Options::default());
        let rules: Vec<&str> = advice.findings.iter().map(|finding| &finding.rule[..]).collect();
        assert_eq!(rules, ["APEX-L42"]);
        assert_clear_in(&RULE, of(2));
    }

    #[test]
    fn the_boundaries_are_a_thousand_launches_an_eighth_of_the_device_and_a_third_of_all() {
        assert_clear_in(&RULE, profile(vec![tiny(999)]));
        assert_clear_in(&RULE, profile(vec![called(kernel_of(17, 32), 3000, 4000.0)]));
        assert_finds_in(&RULE, profile(vec![called(kernel_of(16, 32), 3000, 4000.0)]));
        assert_clear_in(&RULE, profile(vec![tiny(3000), tiny(3000), tiny(3000)]));
        assert_clear_in(&RULE, profile(vec![tiny(1000), called(kernel_of(3000, 64), 3000, 4000.0)]));
        assert_finds_in(&RULE, profile_of([called(kernel_of(2, 64), 1000, 4000.0)]));
    }

    #[test]
    fn kernels_of_xla_are_not_the_programs_to_combine() {
        let mut counter = tiny(3000);
        counter.traits.owner = Owner::Xla;
        assert_clear_in(&RULE, profile(vec![counter]));
    }
}
