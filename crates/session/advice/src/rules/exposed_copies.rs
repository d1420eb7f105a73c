//! Copies between host and device beside which nothing runs, though they could.

use super::{Draft, Needs, Outcome, Rule, account, bytes, confidence, copying, job_saving, percent};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Copies, CopyDirection, Figure, Profile};
use apex_trace::layout::MemoryKind;

/// Minimum share of the time in copies …
const COPYING: f64 = 0.2;
/// … and minimum share that overlapping saves.
const SAVED: f64 = 0.1;
/// Achievable share of an ideal overlap: the first copy in and the last copy out do not overlap.
const USUAL: f64 = 0.9;
pub(super) const RULE: Rule = Rule {
    id: "APEX-T76",
    slug: "exposed-copies",
    title: "Copies do not overlap with kernels",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "During at least 20% of the time the device copies, mostly from or to pinned host memory, and \
        no kernel runs; and overlapping copies in, kernels and copies out would save at least 10% of the \
        time.",
    source: "CUDA C++ Best Practices Guide, asynchronous and overlapping transfers with computation. The thresholds are APEX's own.",
    why: "A GPU can copy in both directions and compute at the same time; on one stream they wait for each other.",
    change: "Divide the data into chunks and distribute them over two to four streams \
        (cudaStreamNonBlocking): then the copy of one chunk to the device, the kernel of another and the \
        copy of a third from the device overlap.",
    saving: "The sum of copies in, copies out and kernels, less the longest of the three; the estimate is \
        nine tenths of it.",
    verify: "kernels run while the device copies, and the run time decreases",
    judge,
};

/// Whether copies of this sort can overlap with kernels and with copies in the other direction.
fn is_pinned(copy: &Copies, direction: CopyDirection) -> bool {
    copy.asynchronous
        && copy.direction == direction
        && copy.source != MemoryKind::Pageable
        && copy.destination != MemoryKind::Pageable
}

pub(super) fn inwards(copy: &Copies) -> bool {
    is_pinned(copy, CopyDirection::HostToDevice)
}

fn outwards(copy: &Copies) -> bool {
    is_pinned(copy, CopyDirection::DeviceToHost)
}

/// The time that an ideal overlap of copies in, copies out and kernels saves, nanoseconds.
fn overlapped(profile: &Profile) -> f64 {
    let kernels = account(profile, |accounts| accounts.kernels).value;
    let (inwards, outwards) = (copying(profile, inwards).value, copying(profile, outwards).value);
    inwards + outwards + kernels - inwards.max(outwards).max(kernels)
}

/// Whether an overlap would save enough for a finding.
pub(super) fn is_worth_overlapping(profile: &Profile) -> bool {
    overlapped(profile) >= SAVED * profile.totals.span_ns.max(1.0)
}

fn judge(profile: &Profile) -> Outcome {
    let span = profile.totals.span_ns.max(1.0);
    let copies = account(profile, |accounts| accounts.copies);
    let kernels = account(profile, |accounts| accounts.kernels);
    let moved = |of: &dyn Fn(&Copies) -> bool| -> f64 {
        profile.copies.iter().filter(|copy| of(copy)).map(|copy| copy.bytes as f64).sum()
    };
    let (to_device, from_device) = (moved(&inwards), moved(&outwards));
    let to_and_fro =
        moved(&|copy| !matches!(copy.direction, CopyDirection::DeviceToDevice | CopyDirection::PeerToPeer));
    if copies.value < COPYING * span || 2.0 * (to_device + from_device) < to_and_fro {
        return Outcome::Clear;
    }
    let saved = overlapped(profile);
    if saved < SAVED * span {
        return Outcome::Clear;
    }
    Outcome::found(Draft {
        summary: format!(
            "{} in and {} out: for {} of the time the device copies and no kernel runs",
            bytes(to_device as u64),
            bytes(from_device as u64),
            percent(copies.value / span)
        ),
        evidence: vec![
            Evidence::new("share of time with copies only", copies.scaled(1.0 / span), Unit::Share)
                .decrease_towards(0.0),
            Evidence::new("share of time in kernels", kernels.scaled(1.0 / span), Unit::Share),
        ],
        kernels: Vec::new(),
        change: None,
        saving: Saving {
            beyond: Some(Figure::predicted(USUAL * saved, (0.0, saved))),
            ..job_saving(profile, Figure::predicted(0.0, (0.0, 0.0)))
        },
        confidence: confidence(
            Level::Medium,
            "the time of copies is estimated from their bytes; dependences between chunks are unknown",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{activity, assert_clear_in, assert_finds_in, copies, profile_with};
    use super::RULE;
    use apex_profile::{Accounts, Activity, Figure, Profile};
    use apex_trace::layout::MemoryKind::{self, Device, Pageable, Pinned};

    fn copying(host: MemoryKind, share: f64) -> Profile {
        let base = activity(1e9, 0.0);
        let accounts = Accounts {
            copies: Figure::measured(share * 1e9),
            kernels: Figure::measured((1.0 - share) * 1e9),
            ..base.accounts.clone()
        };
        let both = vec![copies(Device, host, true, 100, 1 << 24), copies(host, Device, true, 100, 1 << 24)];
        Profile { copies: both, ..profile_with([Activity { accounts, ..base }]) }
    }

    #[test]
    fn fires_where_overlap_would_save() {
        let finding = assert_finds_in(&RULE, copying(Pinned, 0.9));
        // 45% in, 45% out, 10% in kernels: the longest remains.
        let saving = finding.saving.of_job.expect("a share");
        assert!((saving.value - 0.9 * 0.55).abs() < 1e-9 && saving.bounds().0 == 0.0, "{saving:?}");
        assert_clear_in(&RULE, copying(Pinned, 0.1));
        assert_clear_in(&RULE, copying(Pageable, 0.9));
    }

    #[test]
    fn copies_within_the_device_do_not_overlap_with_those_to_the_host() {
        let mut within = copying(Pinned, 0.9);
        within.copies.push(copies(Device, Device, true, 6000, 1 << 24));
        within.copies[..2].iter_mut().for_each(|copy| copy.bytes = 40);
        assert_clear_in(&RULE, within);
    }

    #[test]
    fn copies_in_one_direction_that_hide_nothing_are_fine() {
        let mut one = copying(Pinned, 0.95);
        one.copies.truncate(1);
        assert_clear_in(&RULE, one);
    }
}
