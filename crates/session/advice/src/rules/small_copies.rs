//! Copies of a few bytes each, one call for each of them.

use super::{
    Draft, NOT_MODELLED, Needs, Outcome, Rule, confidence, counted, idle_during, job_saving, percent, sizes,
    time,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Copies, Figure, IdleCause, Profile, SaturatingSum as _};
use apex_trace::layout::MemoryKind;

/// A copy of more bytes is a transfer: its own time matters, not the call's.
pub(super) const SMALL: u64 = 64 << 10;
/// Minimum number of copies.
pub(super) const MANY: u64 = 1000;
/// Minimum share of the time in which the device waits for them.
const IDLE: f64 = 0.2;

/// The remedy for small copies of which each waits, too.
pub(super) const COMBINE_FIRST: &str = "Combine the copies: cudaMemcpy2D or cudaMemcpy3D for rows and planes, one \
    buffer for scattered pieces (PyTorch: one indexed or strided assignment instead of a loop). Then copy \
    asynchronously from pinned memory.";

pub(super) const RULE: Rule = Rule {
    id: "APEX-T75",
    slug: "small-copies",
    title: "Many small copies",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: None,
    idle: &[IdleCause::Transferring],
    detects: "At least 1000 asynchronous copies of up to 64 KiB on average, more than there are launches, with the device idle during the calls \
              for at least 20% of the time. On the CPU device, which does not show what a call costs: these copies alone. Copies from and to pageable memory are APEX-L18's.",
    source: "APEX. A copy call takes 3 µs on an H200, as long as the copy of 10 MB within the device.",
    why: "Each call takes the host longer than the copy takes the device.",
    change: "Combine the copies: cudaMemcpy2DAsync or cudaMemcpy3DAsync for rows and planes, \
        cudaMemcpyBatchAsync for scattered pieces, or a kernel that copies all pieces (PyTorch: one indexed \
        or strided assignment instead of a loop).",
    saving: "The idle time during copy calls, at least half of it.",
    verify: "copies decrease, and the run time decreases",
    judge,
};

/// Whether copies of this sort are short of bytes.
pub(super) fn is_small(copy: &Copies) -> bool {
    copy.asynchronous && copy.bytes <= SMALL.saturating_mul(copy.count)
}

fn judge(profile: &Profile) -> Outcome {
    let pageable = |kind| kind == MemoryKind::Pageable;
    let small = |copy: &&Copies| is_small(copy) && !pageable(copy.source) && !pageable(copy.destination);
    let count = profile.copies.iter().filter(small).map(|copy| copy.count).saturating_sum();
    if count < MANY || count <= profile.totals.launches {
        return Outcome::Clear;
    }
    let sizes = sizes(profile.copies.iter().filter(small));
    if profile.on_cpu_device() {
        return Outcome::found(draft(
            count,
            format!("{}{sizes}, one call for each", counted(count, "copy", "copies")),
        ));
    }
    let Some(idle) = idle_during(profile, RULE.idle) else {
        return Outcome::Unjudged(NOT_MODELLED.to_owned());
    };
    let spent: f64 = profile.copies.iter().filter(small).map(|copy| copy.after_launch.cpu_ns).sum();
    let saved = idle.value.min(spent);
    let share = saved / profile.totals.span_ns.max(1.0);
    if share < IDLE {
        return Outcome::Clear;
    }
    let summary = format!(
        "{}{sizes}: the GPU is idle for {} during their calls, {} of the time",
        counted(count, "copy", "copies"),
        time(saved),
        percent(share)
    );
    let mut draft = draft(count, summary);
    draft.evidence.push(
        Evidence::new("CPU time of the calls", Figure::measured(spent), Unit::Nanoseconds)
            .decrease_towards(0.0),
    );
    draft.saving = job_saving(profile, Figure::predicted(saved, (saved / 2.0, idle.bounds().1)));
    Outcome::found(draft)
}

/// The finding without times, which the CPU device does not tell.
fn draft(count: u64, summary: String) -> Draft {
    Draft {
        summary,
        evidence: vec![
            Evidence::new("small copies", Figure::measured(count as f64), Unit::Count).decrease_towards(1.0),
        ],
        kernels: Vec::new(),
        change: None,
        saving: Saving::default(),
        confidence: confidence(
            Level::Medium,
            "one call can copy the pieces only if their addresses form a pattern",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear_in, assert_finds_in, assert_unjudged, copies, idle_during, on_cpu_device, profile_with,
    };
    use super::RULE;
    use apex_profile::{Activity, IdleCause, Profile};
    use apex_trace::layout::MemoryKind::{self, Device, Pageable};

    fn copying(source: MemoryKind, count: u64, idle: f64) -> Profile {
        let waiting = idle_during(IdleCause::Transferring, 1e9, idle);
        Profile { copies: vec![copies(Device, source, true, count, 4000)], ..profile_with([waiting]) }
    }

    #[test]
    fn fires_where_the_device_waits_for_many_small_copies() {
        let finding = assert_finds_in(&RULE, copying(Device, 100_000, 0.9));
        let saving = finding.saving.of_job.expect("a share");
        assert!((saving.value - 0.9).abs() < 1e-9 && (saving.bounds().0 - 0.45).abs() < 1e-9, "{saving:?}");
        assert_clear_in(&RULE, copying(Device, 999, 0.9));
        assert_clear_in(&RULE, copying(Device, 100_000, 0.1));
        assert_clear_in(&RULE, copying(Pageable, 100_000, 0.9));
        let mut more_launches = copying(Device, 100_000, 0.9);
        more_launches.totals.launches = 100_000;
        assert_clear_in(&RULE, more_launches);
    }

    #[test]
    fn on_the_cpu_device_their_number_is_enough() {
        let finding = assert_finds_in(&RULE, on_cpu_device(copying(Device, 5_120, 0.0)));
        assert_eq!(finding.summary, "5,120 copies of 3.91 KiB, one call for each");
        assert!(finding.saving.time_ns.is_none() && finding.change.contains("cudaMemcpy2DAsync"));
        assert_clear_in(&RULE, on_cpu_device(copying(Device, 999, 0.9)));
    }

    #[test]
    fn does_not_judge_what_was_not_timed() {
        let mut one = copying(Device, 100_000, 0.9);
        one.activities = vec![Activity { idle_share: None, ..one.activities[0].clone() }];
        assert_unjudged(&RULE, one);
    }
}
