//! A kernel of one or two small blocks that is launched again and again.

use super::{
    Draft, Fault, Needs, Outcome, Rule, about_kernels, confidence, idle_during, job_saving, kernel_finding,
    up_to,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Figure, IdleCause, Kernel, Profile};

/// Blocks of a tiny launch, at most …
const BLOCKS: u64 = 2;
/// … and its threads.
const THREADS: u64 = 1024;
/// Launches of one kernel that are many …
const MANY: u64 = 1000;
/// … where they are at least this share of all.
const SHARE: f64 = 0.3;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L42",
    slug: "tiny-launches",
    title: "Many launches of one tiny block",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: Some("APEX-T24"),
    idle: &[IdleCause::Launching, IdleCause::HostCode],
    detects: "At least 1000 launches of one kernel of at most 2 blocks and 1024 threads in all, and at least 30 % of all launches.",
    source: "APEX. A launch costs the host 2.5 µs and more on an H200 (data/call-costs-h200.csv), and its block leaves all \
             multiprocessors but one idle.",
    why: "The device runs one block at a time, and waits for the next launch.",
    change: "Launch once for all of them: a block for each, if they do not depend on each other; else capture them into a CUDA \
             graph.",
    saving: "The idle time during launch calls and the host's own code, by the share of launches that these are.",
    verify: "fewer launches, and the job's time falls",
    judge,
};

/// Whether a kernel is what this rule is about: others then leave its launch alone.
pub(super) fn is_tiny(kernel: &Kernel, profile: &Profile) -> bool {
    let calls = kernel.launches.calls;
    kernel.blocks() <= BLOCKS
        && kernel.threads() <= THREADS
        && calls >= MANY
        && calls as f64 >= SHARE * profile.totals.launches as f64
}

fn judge(profile: &Profile) -> Outcome {
    let idle = idle_during(profile, RULE.idle);
    let all = profile.totals.launches.max(1) as f64;
    let kernels: Vec<_> = profile
        .kernels
        .iter()
        .enumerate()
        .filter(|(_, kernel)| is_tiny(kernel, profile))
        .map(|(index, kernel)| {
            let mut finding = kernel_finding(profile, index, fault(kernel));
            let share = kernel.launches.calls as f64 / all;
            finding.saving = match idle {
                Some(idle) => job_saving(profile, up_to(idle.bounds().1 * share)),
                None => Saving {
                    unknown_because: Some("when the device is idle is not known".to_owned()),
                    ..Saving::default()
                },
            };
            finding
        })
        .collect();
    if kernels.is_empty() {
        return Outcome::Clear;
    }
    let saved = Figure::sum(kernels.iter().filter_map(|kernel| kernel.saving.time_ns));
    let saving = saved.map_or_else(|| kernels[0].saving.clone(), |saved| job_saving(profile, saved));
    let sure = confidence(
        Level::Medium,
        "whether the launches depend on each other is not known; a graph keeps their order",
    );
    let draft = about_kernels(profile, kernels, sure, |who| format!("{who}: each launch is a block or two"));
    Outcome::found(Draft { saving, ..draft })
}

fn fault(kernel: &Kernel) -> Fault {
    let calls = kernel.launches.calls;
    Fault {
        evidence: vec![
            Evidence::new("launches", Figure::measured(calls as f64), Unit::Count).decrease_towards(1.0),
            Evidence::new("blocks", Figure::measured(kernel.blocks() as f64), Unit::Count),
            Evidence::new("threads in all", Figure::measured(kernel.threads() as f64), Unit::Count),
        ],
        change: format!(
            "launch it once with {} blocks instead of {calls} times, if the launches do not depend on each other; else \
             capture them into a CUDA graph",
            kernel.blocks().saturating_mul(calls)
        ),
        saves: Err("it is the host's time that is saved"),
        threads: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear_in, assert_finds_in, called, idle_during, kernel_of, profile_of, profile_with,
    };
    use super::RULE;
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
        assert!(finding.change.starts_with("launch it once with 3000 blocks"), "{}", finding.change);
        assert!((finding.saving.of_job.expect("a share").value - 0.8).abs() < 0.09, "{:?}", finding.saving);
        let advice = crate::advise(&profile, &crate::Options::default());
        assert!(advice.findings.iter().all(|finding| finding.slug != "small-grid"));
    }

    #[test]
    fn the_boundaries_are_a_thousand_launches_two_blocks_and_a_third_of_all() {
        assert_clear_in(&RULE, profile(vec![tiny(999)]));
        assert_clear_in(&RULE, profile(vec![called(kernel_of(3, 64), 3000, 4000.0)]));
        assert_clear_in(&RULE, profile(vec![tiny(1000), called(kernel_of(3000, 64), 3000, 4000.0)]));
        assert_finds_in(&RULE, profile_of([called(kernel_of(2, 64), 1000, 4000.0)]));
    }
}
