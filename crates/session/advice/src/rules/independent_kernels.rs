//! Kernels of a step that share no data run one after the other.
//!
//! The profile has the data flow of repeated steps ([`DataFlow`]); this rule says what launching
//! independent kernels side by side would save. The saving is predicted, and never more than the
//! longest chain of dependent launches allows. On the CPU device it claims none.

use super::{CPU_SAVING, Fault, Needs, Outcome, Rule, confidence, judge_all_kernels, percent, time};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{DataFlow, Figure, Profile};

/// Minimum share of a step's time that concurrent launches save, by the graph and the GPU's size.
const SAVED: f64 = 0.1;
/// Minimum repetitions of a step.
const REPEATS: u64 = 10;
/// Share of the computed saving that is predicted: the median of what programs gained on an H200
/// (docs/results/schedule-h200.md).
const REALISED: f64 = 0.9;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T148",
    slug: "independent-kernels",
    title: "Independent kernels run one after the other",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "A sequence of launches of one stream repeats at least 10 times; by the access sets of their PTX and their recorded \
        arguments (--code) some of them share no data, and side by side, within what the GPU's size allows, the sequence would \
        take at least 10% less time.",
    source: "APEX. Access sets are those of --fast=schedule (docs/access.md). Launches that wait for each other's data, or whose \
        accesses are not known, keep their order; those that together need more than the GPU's places for blocks, or than its most \
        used part, share it.",
    why: "Kernels of one stream run one after the other. Where each of them leaves much of the GPU free, independent ones can run \
        beside each other.",
    change: "Launch independent kernels into different streams with events between them, or capture them so into a CUDA graph. apex \
        run --fast=schedule does that for repeated launches of kernels that the driver compiles from PTX.",
    saving: "From nothing (they compete for memory or caches) to all that the longest chain and the GPU's size allow; 90% of \
        what launches side by side would save is predicted.",
    verify: "GPU time of the step decreases: apex run --fast=schedule says what it saved",
    judge,
};

/// The flows of which a part of the time can be saved.
fn slow(profile: &Profile) -> impl Iterator<Item = &DataFlow> {
    profile.data_flows.iter().filter(|flow| flow.repeats >= REPEATS && flow.saved() >= SAVED)
}

fn judge(profile: &Profile) -> Outcome {
    let Some(first) = slow(profile).next() else { return Outcome::Clear };
    let of_kernel =
        |index: usize| slow(profile).find(|flow| flow.launches.iter().any(|one| one.kernel == index));
    let because = "computed from access sets, mean kernel times and the GPU's size; kernels that run side by side compete \
        for caches and memory";
    let judged = judge_all_kernels(
        profile,
        confidence(Level::Medium, because),
        |subject| {
            let index = profile.kernels.iter().position(|kernel| std::ptr::eq(kernel, subject.kernel))?;
            of_kernel(index).map(|flow| fault(profile, flow, index))
        },
        |who| {
            format!(
                "{who} run one after the other in a sequence of {} launches of which the longest chain that shares data has \
                 {}; side by side they would take {} less of {}",
                first.launches.len(),
                first.chain.len(),
                percent(first.saved()),
                time(first.serial_ns)
            )
        },
    );
    match judged {
        Outcome::Found(mut draft) => {
            draft.evidence = evidence(profile, first);
            Outcome::Found(draft)
        }
        other => other,
    }
}

/// What is changed, at the kernel that saves most.
const CHANGE: &str = "launch independent kernels into different streams with events between them, or as a CUDA graph with \
    branches (apex run --fast=schedule, where the driver compiles the PTX)";

fn fault(profile: &Profile, flow: &DataFlow, index: usize) -> Fault {
    let saves = Figure::predicted(REALISED * flow.saved(), (0.0, flow.saved_at_most()));
    let share = flow.launches.iter().find(|launch| launch.kernel == index).map_or(1.0, |launch| launch.share);
    Fault {
        evidence: vec![Evidence::new(
            "share of the GPU that a launch needs",
            Figure::computed(share),
            Unit::Share,
        )],
        change: CHANGE.to_owned(),
        saves: if profile.on_cpu_device() { Err(CPU_SAVING) } else { Ok(saves) },
        threads: None,
    }
}

fn evidence(profile: &Profile, flow: &DataFlow) -> Vec<Evidence> {
    let count = |name: &str, value: usize| Evidence::new(name, Figure::computed(value as f64), Unit::Count);
    let ns = |name: &str, value: f64| Evidence::new(name, Figure::computed(value), Unit::Nanoseconds);
    let mut evidence = vec![
        count("launches of the sequence", flow.launches.len()),
        count("launches of the longest chain", flow.chain.len()),
    ];
    if !profile.on_cpu_device() {
        evidence.extend([
            ns("kernel time of the sequence", flow.serial_ns).decrease_towards(flow.concurrent_ns),
            ns("kernel time of the longest chain", flow.chain_ns),
            ns("least time that chain and GPU allow", flow.concurrent_ns),
        ]);
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear_in, assert_finds_in, evidence, kernel_of, on_cpu_device, profile_of, timed,
    };
    use super::RULE;
    use apex_profile::{DataFlow, FlowLaunch, Profile};

    /// A step of two launches of 10 µs, side by side in this time.
    fn two(concurrent_ns: f64, repeats: u64) -> Profile {
        let launch =
            |kernel| FlowLaunch { kernel, ns: 10_000.0, share: 0.2, is_known: true, waits_for: Vec::new() };
        let flow = DataFlow {
            launches: vec![launch(0), launch(1)],
            repeats,
            serial_ns: 20_000.0,
            chain_ns: 10_000.0,
            chain: vec![0],
            concurrent_ns,
            ..DataFlow::default()
        };
        let kernels = [timed(kernel_of(32, 128), 10_000.0), timed(kernel_of(16, 128), 10_000.0)];
        Profile { data_flows: vec![flow], ..profile_of(kernels) }
    }

    #[test]
    fn fires_where_independent_kernels_leave_the_gpu_free() {
        let finding = assert_finds_in(&RULE, two(10_000.0, 500));
        let saving = finding.kernels[0].saving.of_kernel.expect("a share");
        assert!((saving.value - 0.45).abs() < 1e-9, "{saving:?}");
        let (low, high) = saving.interval().expect("an interval");
        assert!(low == 0.0 && (0.5..0.51).contains(&high), "{saving:?}");
        assert_eq!(evidence(&finding, "launches of the longest chain").value, 1.0);
        assert!(finding.summary.contains("50% less of 20.0 µs"), "{}", finding.summary);
    }

    #[test]
    fn is_clear_where_the_gpu_is_full_and_where_little_repeats() {
        assert_clear_in(&RULE, two(19_000.0, 500));
        assert_clear_in(&RULE, two(10_000.0, 9));
        assert_clear_in(&RULE, Profile { data_flows: Vec::new(), ..two(10_000.0, 500) });
    }

    #[test]
    fn on_the_cpu_device_it_has_no_times() {
        let finding = assert_finds_in(&RULE, on_cpu_device(two(10_000.0, 500)));
        assert!(finding.kernels[0].saving.of_kernel.is_none());
        assert_eq!(finding.evidence.len(), 2);
    }
}
