//! Two-dimensional copies that are slow for their bytes: of few bytes of each of many rows.

use super::{Draft, Needs, Outcome, Rule, bytes, confidence, counted, from_place, job_saving, percent};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use crate::rules::host_function::of_what;
use apex_profile::{Call, Figure, IdleCause, Profile, SaturatingSum as _, total};

/// Minimum share of the time in these calls.
const SHARE: f64 = 0.25;
/// Minimum bytes of a copy on average: what smaller ones cost is not their rows.
const BYTES: u64 = 64 << 10;
/// Bytes in a nanosecond that PCIe 5 with 16 lanes moves.
const LINK: f64 = 50.0;
/// A copy at less than this share of that is slow.
const SLOW: f64 = 0.25;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L133",
    slug: "plane-copies",
    title: "Two-dimensional copies of short rows are slow",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &IdleCause::ALL,
    detects: "Calls of cuMemcpy2D and cuMemcpy2DAsync with at least 64 KiB on average take at least 25% of the time, at less than \
        12.5 GB/s: a quarter of what PCIe 5 with 16 lanes moves.",
    source: "CUDA C++ Best Practices Guide, data transfer between host and device. The thresholds are APEX's own.",
    why: "A copy of a plane moves each row by itself. A row of a few bytes costs as much as one of a hundred.",
    change: "Gather the values on the device in a kernel and copy them as one contiguous block (the same the other way), or copy \
        whole rows and choose on the host; store what is copied together side by side.",
    saving: "The time of the calls beyond what their bytes take at 50 GB/s; nothing where another link limits them.",
    verify: "the copies take less time",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let planes: Vec<&Call> =
        profile.calls.iter().filter(|call| call.name.starts_with("cuMemcpy2D")).collect();
    let count = planes.iter().map(|call| call.count).saturating_sum();
    let moved = planes.iter().map(|call| call.bytes).saturating_sum();
    let time = total(planes.iter().map(|call| call.cpu.total_ns));
    let span = profile.totals.span_ns.max(1.0);
    if time < SHARE * span || moved < BYTES.saturating_mul(count) || moved as f64 / time >= SLOW * LINK {
        return Outcome::Clear;
    }
    let (rate, saved) = (moved as f64 / time, (time - moved as f64 / LINK).min(span));
    let from = from_place(profile, planes.iter().map(|call| &call.stacks));
    Outcome::found(Draft {
        summary: format!(
            "{} of {} on average{from} take {} {} at {rate:.1} GB/s, where the device's link (PCIe 5, 16 lanes) moves about \
             {LINK} GB/s: rows of few bytes, by their rate",
            counted(count, "two-dimensional copy (cudaMemcpy2D)", "two-dimensional copies (cudaMemcpy2D)"),
            bytes(moved / count.max(1)),
            percent((time / span).min(1.0)),
            of_what(profile),
        ),
        evidence: vec![
            Evidence::new(
                "share of the time in these calls",
                Figure::measured((time / span).min(1.0)),
                Unit::Share,
            )
            .decrease_towards(0.0),
        ],
        kernels: Vec::new(),
        change: None,
        saving: job_saving(profile, Figure::predicted(saved, (0.0, saved))),
        confidence: confidence(
            Level::Medium,
            "the calls are timed; lengths of rows are not recorded, and the link's rate is computed from its generation",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{activity, assert_clear_in, assert_finds_in, call, profile_with};
    use super::RULE;
    use apex_profile::Profile;
    use apex_trace::layout::CallClass;

    /// A thousand copies of these bytes, in half of a second.
    fn copying(name: &str, bytes: u64) -> Profile {
        let mut profile = profile_with([activity(1e9, 1.0)]);
        let mut copies = call(name, CallClass::Copy, 1000);
        (copies.bytes, copies.cpu.total_ns) = (1000 * bytes, 5e8);
        profile.calls = vec![copies];
        profile
    }

    #[test]
    fn fires_on_planes_that_are_slow_for_their_bytes() {
        let finding = assert_finds_in(&RULE, copying("cuMemcpy2DAsync_v2", 256 << 10));
        assert!(finding.summary.contains("0.5 GB/s"), "{}", finding.summary);
        assert_clear_in(&RULE, copying("cuMemcpy2DAsync_v2", 16 << 20));
        assert_clear_in(&RULE, copying("cuMemcpy2DAsync_v2", 4 << 10));
        assert_clear_in(&RULE, copying("cuMemcpyDtoHAsync_v2", 256 << 10));
    }
}
