//! Copies of the same sizes from the host in every step, which take much of it.
//!
//! What a step copies anew is its input. Copies whose sizes and number are the same in every step
//! may hold something else: weights, tables, or constants that are kept in the host's memory and
//! passed to each call. Their contents are not recorded, so the finding says what is known: how
//! much of a step they take, and that only fewer bytes help, because overlapping would not.

use super::{
    Draft, Needs, Outcome, Rule, bytes, confidence, copying, exposed_copies, from_place, job_saving, percent,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_ordered::Order;
use apex_profile::{Copies, Figure, Profile, SizeGroup, Sizes, units};

/// Minimum share of the time in copies to the device.
const COPYING: f64 = 0.2;
/// Maximum distance of the number of copies in a step from a whole number, as a part of it.
const WHOLE: f64 = 0.05;
/// Minimum share of the copied bytes in such sizes.
const SAME: f64 = 0.9;
/// Share of their time that is usually avoidable: all of it where the data stays the same.
const USUAL: f64 = 0.8;
/// Minimum steps: in fewer, counts agree by chance.
const STEPS: f64 = 10.0;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T125",
    slug: "repeated-copies",
    title: "The same sizes are copied to the device in every step",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "During at least 20% of the time the device copies from pinned host memory and no kernel runs; at least 90% of \
        these bytes are copies of exact sizes of which each step makes the same number (within 5%, over at least 10 steps); \
        and overlapping them with kernels would save less than 10% of the time (APEX-T76).",
    source: "CUDA C++ Best Practices Guide, data transfer between host and device: transfers are to be minimised. The \
        thresholds are APEX's own.",
    why: "The link to the host has a hundredth of the bandwidth of the device's memory. What does not change needs to cross it \
        once.",
    change: "Copy what does not change (weights, tables, constants) to the device once, before the loop, and pass the device's \
        pointer; copy of what does change only the part that did, or in a smaller type.",
    saving: "The time of these copies, between nothing (all of it is new in each step) and all of it: the estimate is four \
        fifths of it.",
    verify: "bytes copied to the device decrease, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let span = profile.totals.span_ns.max(1.0);
    let time = copying(profile, exposed_copies::inwards);
    let steps = profile.steps().filter(|steps| *steps >= STEPS);
    let Some(steps) = steps.filter(|_| time.value >= COPYING * span) else { return Outcome::Clear };
    if exposed_copies::is_worth_overlapping(profile) {
        return Outcome::Clear;
    }
    let inwards: Vec<&Copies> = profile.copies.iter().filter(|copy| exposed_copies::inwards(copy)).collect();
    let Some(groups) = same_in_each_step(&inwards, steps) else { return Outcome::Clear };
    let named = |(each, size): &(f64, u64)| format!("{} of {}", units::count(*each as u64), bytes(*size));
    let moved = groups.iter().map(|(each, size)| each * *size as f64).sum::<f64>();
    Outcome::found(Draft {
        summary: format!(
            "each step copies {} to the device, in the same sizes ({}){}: for {} of the time the device copies and no kernel \
                runs",
            bytes(moved as u64),
            groups.iter().map(named).collect::<Vec<_>>().join(", "),
            from_place(profile, inwards.iter().map(|copy| &copy.stacks)),
            percent(time.value / span)
        ),
        evidence: vec![
            Evidence::new(
                "share of time with copies to the device only",
                time.scaled(1.0 / span),
                Unit::Share,
            )
            .decrease_towards(0.0),
            Evidence::new("bytes copied to the device per step", Figure::measured(moved), Unit::Bytes),
        ],
        kernels: Vec::new(),
        change: None,
        saving: Saving {
            beyond: Some(Figure::predicted(USUAL * time.value, (0.0, time.bounds().1))),
            ..job_saving(profile, Figure::predicted(0.0, (0.0, 0.0)))
        },
        confidence: confidence(
            Level::Low,
            "the time of copies is estimated from their bytes; whether their contents change is not recorded",
        ),
    })
}

/// The sizes of which each step makes the same number of copies, with that number, the largest
/// first; `None` unless nearly all bytes are in such copies.
fn same_in_each_step(copies: &[&Copies], steps: f64) -> Option<Vec<(f64, u64)>> {
    let mut sizes = Sizes::default();
    copies.iter().for_each(|copy| sizes.merge(&copy.sizes));
    let is_same = |group: &&SizeGroup| {
        let each = group.count as f64 / steps;
        group.least == group.most
            && each.round() >= 1.0
            && (each - each.round()).abs() <= WHOLE * each.round()
    };
    let mut same: Vec<(f64, u64)> = sizes
        .groups()
        .filter(is_same)
        .map(|group| ((group.count as f64 / steps).round(), group.least))
        .collect();
    same.order_by(|a, b| (b.0 * b.1 as f64).total_cmp(&(a.0 * a.1 as f64)));
    let all: f64 = copies.iter().map(|copy| copy.bytes as f64).sum();
    let moved: f64 = same.iter().map(|(each, size)| each * steps * *size as f64).sum();
    (moved >= SAME * all && moved > 0.0).then_some(same)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{activity, assert_clear_in, assert_finds_in, copies, profile_with};
    use super::RULE;
    use apex_profile::{Accounts, Activity, Figure, Iterations, Phase, PhaseKind, Profile, Sizes};
    use apex_trace::layout::MemoryKind::{Device, Pinned};

    /// A hundred steps in a second, which copy for this share of it, with so many copies of 16 MiB.
    fn copying(share: f64, count: u64) -> Profile {
        let base = activity(1e9, 0.0);
        let accounts = Accounts {
            copies: Figure::measured(share * 1e9),
            kernels: Figure::measured(0.05e9),
            ..base.accounts.clone()
        };
        let steps = Iterations { count: 100, step_ns: Figure::measured(1e7), ..Iterations::default() };
        let phase = Phase {
            kind: PhaseKind::Steady,
            accounts: accounts.clone(),
            launches: 100,
            kernels: vec![],
            graphs: vec![],
            calls: vec![],
        };
        let one = Activity { accounts, iterations: Some(steps), phases: vec![phase], ..base };
        let mut profile = profile_with([one]);
        profile.copies = vec![copies(Device, Pinned, true, count, 1 << 24)];
        profile
    }

    #[test]
    fn copies_of_the_same_sizes_in_each_step_are_named_with_their_number() {
        let finding = assert_finds_in(&RULE, copying(0.57, 202));
        assert!(finding.summary.starts_with("each step copies 32.0 MiB"), "{}", finding.summary);
        assert!(finding.summary.contains("(2 of 16.0 MiB)"), "{}", finding.summary);
        assert!((finding.saving.of_job.expect("a share").value - 0.8 * 0.57).abs() < 1e-9);
    }

    #[test]
    fn other_copies_are_no_finding() {
        assert_clear_in(&RULE, copying(0.19, 200));
        assert_clear_in(&RULE, copying(0.57, 250));
        let mut varied = copying(0.57, 200);
        varied.copies[0].sizes = Sizes::of(1 << 24, 100);
        varied.copies[0].sizes.merge(&Sizes::of((1 << 24) + 512, 100));
        assert_clear_in(&RULE, varied);
        let mut without_steps = copying(0.57, 200);
        without_steps.activities[0].iterations = None;
        assert_clear_in(&RULE, without_steps);
    }

    #[test]
    fn copies_that_overlapping_hides_are_another_rule_s() {
        let mut one = copying(0.45, 200);
        one.activities[0].accounts.kernels = Figure::measured(0.5e9);
        assert_clear_in(&RULE, one);
    }
}
