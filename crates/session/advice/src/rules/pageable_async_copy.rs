//! Asynchronous copies of pageable memory, which are not asynchronous.

use apex_trace::layout::MemoryKind;

use super::small_copies::is_small;
use super::{
    Draft, Needs, Outcome, Rule, account, confidence, cost_of_calls, counted, from_place, idle_during,
    job_saving, sizes, typical_launch_call,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{AfterLaunch, Copies, Figure, IdleCause, Profile, SaturatingSum as _};

/// Bytes per nanosecond from pinned memory over PCIe 5; half of that over PCIe 4.
const PINNED: f64 = 55.0;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L18",
    slug: "pageable-async-copy",
    title: "Asynchronous copies from or to pageable memory",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &[IdleCause::Transferring],
    detects: "Asynchronous copies with pageable host memory at one end, of more than 64 KiB on average. \
        Smaller ones cost their calls and the waits for them, not the transfer (APEX-L43).",
    source: "Nsight Systems, rule cuda_memcpy_async: any. CUDA programming guide, page-locked host memory. \
        Calls that copy up to 1 MiB to the device return before the copy is done, those of 4 MiB wait (seen on \
        an H200, driver 580).",
    why: "The device cannot access pageable memory: the driver copies through a staging buffer at a lower \
        rate, and the call waits until the buffer has the last bytes.",
    change: "Allocate the host buffer with cudaMallocHost, or pin it with cudaHostRegister (PyTorch: \
        pin_memory=True and .to(device, non_blocking=True)).",
    saving: "CPU time of these calls while the device is idle or copies, less the time of the same copies \
        from pinned memory (55 GB/s). At most all of their time, if the copies overlap with kernels, and the \
        rest of the idle time, because a host that does not wait runs ahead.",
    verify: "the copies use pinned memory, and their calls take a few µs",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let pageable = |copy: &&Copies| {
        let is_pageable = copy.source == MemoryKind::Pageable || copy.destination == MemoryKind::Pageable;
        copy.asynchronous && is_pageable && !is_small(copy)
    };
    let count = profile.copies.iter().filter(pageable).map(|copy| copy.count).saturating_sum();
    if count == 0 {
        return Outcome::Clear;
    }
    let moved = profile.copies.iter().filter(pageable).map(|copy| copy.bytes).saturating_sum();
    let spent: f64 = profile.copies.iter().filter(pageable).map(|copy| copy.cpu.total_ns).sum();
    let mut later = AfterLaunch::default();
    profile.copies.iter().filter(pageable).for_each(|copy| later.add(copy.after_launch));
    let queued = typical_launch_call(profile) * later.count as f64;
    let copied = later.count as f64 / count.max(1) as f64 * moved as f64 / PINNED;
    let most = (later.cpu_ns - queued).max(0.0);
    let saved = (later.cpu_ns - copied.max(queued)).max(0.0);
    Outcome::found(Draft {
        summary: format!(
            "{}{} with pageable memory{}{}",
            counted(count, "asynchronous copy", "asynchronous copies"),
            sizes(profile.copies.iter().filter(pageable)),
            cost_of_calls(profile, " took ", spent, " of CPU time"),
            from_place(profile, profile.copies.iter().filter(pageable).map(|copy| &copy.stacks))
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
        saving: Saving {
            beyond: Some(while_copying(profile, saved)),
            ..job_saving(profile, Figure::predicted(saved, (0.0, most)))
        },
        confidence: confidence(
            Level::Medium,
            "the run time decreases only if the device waited for the host",
        ),
    })
}

/// Returns the part of the saving in which the device copies. Its maximum is all that the device
/// copies, and the idle time that disappears if the host runs ahead.
fn while_copying(profile: &Profile, saved: f64) -> Figure {
    let copies = account(profile, |accounts| accounts.copies);
    let idle = |causes: &[IdleCause]| idle_during(profile, causes).unwrap_or_default();
    let waiting = idle(RULE.idle).value;
    let ahead = idle(&[IdleCause::Launching, IdleCause::HostCode, IdleCause::Synchronising]).bounds().1;
    let part = (saved - waiting).clamp(0.0, copies.value);
    Figure::predicted(part, (0.0, copies.bounds().1 + ahead))
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
        assert!(finding.summary.starts_with("10 asynchronous copies of 1.00 MiB"), "{}", finding.summary);
        assert_eq!(evidence(&finding, "bytes copied").value, 10.0 * (1 << 20) as f64);
        assert_eq!(evidence(&finding, "CPU time of the calls").value, 1e6);
        let one = assert_finds_in(&RULE, profile(copies(Pageable, Device, true, 1, 1 << 20)));
        assert!(one.summary.starts_with("1 asynchronous copy of 1.00 MiB with"), "{}", one.summary);
    }

    #[test]
    fn small_copies_are_waited_for_and_hardly_transferred() {
        assert_clear_in(&RULE, profile(copies(Pageable, Device, true, 10, 64 << 10)));
        assert_finds_in(&RULE, profile(copies(Pageable, Device, true, 10, (64 << 10) + 1)));
    }

    #[test]
    fn is_clear_on_pinned_memory_and_on_synchronous_copies() {
        assert_clear_in(&RULE, profile(copies(Device, Pinned, true, 10, 1 << 20)));
        assert_clear_in(&RULE, profile(copies(Device, Pageable, false, 10, 1 << 20)));
        assert_clear_in(&RULE, profile(copies(Device, Pageable, true, 0, 0)));
    }
}
