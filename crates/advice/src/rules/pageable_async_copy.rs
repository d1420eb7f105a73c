//! Asynchronous copies that are not.

use apex_trace::layout::MemoryKind;

use super::{
    Draft, Needs, Outcome, Rule, bytes, confidence, counted_as, job_saving, time, typical_launch_call, up_to,
};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{AfterLaunch, Copies, Figure, IdleCause, Profile, SaturatingSum as _};

pub(super) const RULE: Rule = Rule {
    id: "APEX-L18",
    slug: "pageable-async-copy",
    title: "Asynchronous copies from or to pageable memory",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &[IdleCause::Transferring],
    detects: "Any asynchronous copy with pageable host memory at one end.",
    source: "Nsight Systems, rule cuda_memcpy_async: any. CUDA programming guide, page-locked host memory.",
    why: "The device cannot reach pageable memory: the driver copies through a buffer of its own, at a lower rate, and \
          the call waits for that.",
    change: "Allocate the host's side with cudaMallocHost or pin it with cudaHostRegister (PyTorch: pin_memory=True and \
             .to(device, non_blocking=True)).",
    saving: "CPU time of these calls, less a call that only queues the copy (the median launch call of this session).",
    verify: "the copies show pinned memory, and their calls take a few us",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let pageable = |copy: &&Copies| {
        copy.asynchronous && (copy.source == MemoryKind::Pageable || copy.destination == MemoryKind::Pageable)
    };
    let count = profile.copies.iter().filter(pageable).map(|copy| copy.count).saturating_sum();
    if count == 0 {
        return Outcome::Clear;
    }
    let moved = profile.copies.iter().filter(pageable).map(|copy| copy.bytes).saturating_sum();
    let spent: f64 = profile.copies.iter().filter(pageable).map(|copy| copy.cpu.total_ns).sum();
    let mut later = AfterLaunch::default();
    profile.copies.iter().filter(pageable).for_each(|copy| later.add(copy.after_launch));
    let saved = (later.cpu_ns - typical_launch_call(profile) * later.count as f64).max(0.0);
    let mean = moved as f64 / count as f64;
    Outcome::found(Draft {
        summary: format!(
            "{} of {}{} with pageable memory took {} of CPU time",
            counted_as(count, "asynchronous copy", "asynchronous copies"),
            bytes(mean),
            if count == 1 { "" } else { " on average" },
            time(spent)
        ),
        evidence: vec![
            Evidence::new(
                "asynchronous copies with pageable memory",
                Figure::measured(count as f64),
                Unit::Count,
            )
            .decrease_towards(0.0),
            Evidence::new("bytes copied", Figure::measured(moved as f64), Unit::Bytes),
            Evidence::new("CPU time of the calls", Figure::measured(spent), Unit::Nanoseconds)
                .decrease_towards(spent - saved),
        ],
        kernels: Vec::new(),
        change: None,
        saving: job_saving(profile, up_to(saved)),
        // The driver takes small copies along in the command itself.
        confidence: match mean > 65536.0 {
            true => confidence(
                Level::Medium,
                "what the host gains shows in the job's time where the device waited for it",
            ),
            false => confidence(Level::Low, "copies of up to 64 KiB are staged quickly"),
        },
    })
}

#[cfg(test)]
mod tests {
    use apex_trace::layout::MemoryKind::{Device, Pageable, Pinned};

    use super::super::fixture::{activity, assert_clear_in, assert_finds_in, copies, evidence, profile_with};
    use super::RULE;
    use crate::finding::Level;
    use apex_profile::{Copies, Profile};

    fn profile(copies: Copies) -> Profile {
        Profile { copies: vec![copies], ..profile_with([activity(1e9, 0.5)]) }
    }

    #[test]
    fn fires_on_either_end() {
        let finding = assert_finds_in(&RULE, profile(copies(Device, Pageable, true, 10, 1 << 20)));
        assert_eq!(finding.confidence.level, Level::Medium);
        assert!(
            finding.summary.starts_with("10 asynchronous copies of 1.0 MiB on average"),
            "{}",
            finding.summary
        );
        assert_eq!(evidence(&finding, "bytes copied").value, 10.0 * (1 << 20) as f64);
        assert_eq!(evidence(&finding, "CPU time of the calls").value, 1e6);
        let small = assert_finds_in(&RULE, profile(copies(Pageable, Device, true, 1, 16)));
        assert_eq!(small.confidence.level, Level::Low);
        assert!(small.summary.starts_with("1 asynchronous copy of 16 B with"), "{}", small.summary);
    }

    #[test]
    fn is_clear_on_pinned_memory_and_on_synchronous_copies() {
        assert_clear_in(&RULE, profile(copies(Device, Pinned, true, 10, 1 << 20)));
        assert_clear_in(&RULE, profile(copies(Device, Pageable, false, 10, 1 << 20)));
        assert_clear_in(&RULE, profile(copies(Device, Pageable, true, 0, 0)));
    }
}
