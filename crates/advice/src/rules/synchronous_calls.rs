//! Calls that make the host wait for the device.

use apex_trace::layout::CallClass;

use super::{
    Draft, Needs, Outcome, Rule, confidence, counted, counted_as, idle_during, job_saving, time,
    typical_launch_call, up_to,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{AfterLaunch, CopyDirection, Figure, IdleCause, Profile, SaturatingSum as _};

/// From here on synchronisations are part of a loop …
const MANY: u64 = 100;
/// … and one for so many launches keeps the queue from filling.
const LAUNCHES_EACH: u64 = 10;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L19",
    slug: "synchronous-calls",
    title: "Synchronous copies, or frequent synchronisation",
    severity: Severity::Low,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &[IdleCause::Transferring, IdleCause::Synchronising, IdleCause::Launching, IdleCause::HostCode],
    detects: "Any synchronous copy or memset with the device; or at least 100 synchronisations and synchronous copies, and more \
              than one for every 10 launches.",
    source: "Nsight Systems, rules cuda_memcpy_sync, cuda_memset_sync and cuda_api_sync: any. The second threshold is \
             APEX's own: a program synchronises at its end.",
    why: "The host waits until the device is done, and launches nothing meanwhile; then the device waits for the host.",
    change: "Use the asynchronous forms on a stream with pinned memory, and wait with an event only where the result is \
             needed. In PyTorch, .item(), .cpu(), print and data-dependent control flow synchronise.",
    saving: "Where they are frequent: the time that the host waits, and at most the time that the device is idle; without waiting, the \
             longer of the two remains. Else CPU time of the copies, less calls that only queue them, while the device is \
             idle.",
    verify: "fewer of these calls, and GPU busy share rises",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let Transfers { count: transfers, cpu_ns: spent, after_launch } = synchronous_transfers(profile);
    let waits = || profile.calls.iter().filter(|call| call.class == Some(CallClass::Synchronize));
    let synchronisations = waits().map(|call| call.count).saturating_sum();
    let waited: f64 = waits().map(|call| call.cpu.total_ns).sum();
    let launches = profile.totals.launches + profile.totals.graph_launches;
    let often = after_launch.count.saturating_add(synchronisations);
    let frequent = often >= MANY && often.saturating_mul(LAUNCHES_EACH) > launches;
    if transfers == 0 && !frequent {
        return Outcome::Clear;
    }
    let mut parts = Vec::new();
    let mut evidence = Vec::new();
    if transfers > 0 {
        parts.push(format!(
            "{} took {} of CPU time",
            counted_as(transfers, "synchronous copy or memset", "synchronous copies and memsets"),
            time(spent)
        ));
        evidence.push(
            Evidence::new("synchronous copies and memsets", Figure::measured(transfers as f64), Unit::Count)
                .decrease_towards(0.0),
        );
        evidence.push(
            Evidence::new("CPU time of these", Figure::measured(spent), Unit::Nanoseconds)
                .decrease_towards(0.0),
        );
    }
    if frequent && synchronisations > 0 {
        parts.push(format!(
            "{} waited for {}, among {}",
            counted(synchronisations, "synchronisation"),
            time(waited),
            counted_as(launches, "launch", "launches")
        ));
        evidence.push(
            Evidence::new("synchronisations", Figure::measured(synchronisations as f64), Unit::Count)
                .decrease_towards((launches / LAUNCHES_EACH) as f64),
        );
        evidence.push(Evidence::new("time waited", Figure::measured(waited), Unit::Nanoseconds));
    }
    let saving = match frequent {
        true => without_waiting(profile, after_launch.cpu_ns + waited_after_launch(profile)),
        false => {
            let queued = typical_launch_call(profile) * after_launch.count as f64;
            let idle = idle_during(profile, &[IdleCause::Transferring]);
            let most = idle.map_or(f64::INFINITY, |idle| idle.value);
            job_saving(profile, up_to((after_launch.cpu_ns - queued).clamp(0.0, most)))
        }
    };
    Outcome::found(Draft {
        summary: parts.join("; "),
        evidence,
        kernels: Vec::new(),
        change: None,
        saving,
        confidence: confidence(
            Level::Low,
            "part of the time is the device's own work or the transfer itself, which stays",
        ),
    })
}

/// Time that the host spent in synchronisations after the first launch.
fn waited_after_launch(profile: &Profile) -> f64 {
    let waits = profile.calls.iter().filter(|call| call.class == Some(CallClass::Synchronize));
    waits.map(|call| call.after_launch.cpu_ns).sum()
}

/// What is saved if the host does not wait: it launches while the device works, and the longer of
/// the two remains. So the shorter one's wait for the other goes: the host's, or the device's idle
/// time.
fn without_waiting(profile: &Profile, waited: f64) -> Saving {
    match idle_during(profile, RULE.idle) {
        Some(idle) => job_saving(profile, up_to(waited.min(idle.value))),
        None => Saving { unknown_because: Some(super::NOT_MODELLED.to_owned()), ..Saving::default() },
    }
}

/// Synchronous transfers.
#[derive(Default)]
struct Transfers {
    count: u64,
    cpu_ns: f64,
    after_launch: AfterLaunch,
}

/// Synchronous copies that touch the device and synchronous memsets.
fn synchronous_transfers(profile: &Profile) -> Transfers {
    let copies = profile
        .copies
        .iter()
        .filter(|copy| !copy.asynchronous && copy.direction != CopyDirection::HostToHost)
        .map(|copy| (copy.count, copy.cpu.total_ns, copy.after_launch));
    let sets = profile
        .calls
        .iter()
        .filter(|call| call.class == Some(CallClass::Set) && !call.name.contains("Async"))
        .map(|call| (call.count, call.cpu.total_ns, call.after_launch));
    let mut sum = Transfers::default();
    for (count, cpu_ns, after_launch) in copies.chain(sets) {
        sum.count = sum.count.saturating_add(count);
        sum.cpu_ns += cpu_ns;
        sum.after_launch.add(after_launch);
    }
    sum
}

#[cfg(test)]
mod tests {
    use apex_trace::layout::CallClass::{Set, Synchronize};
    use apex_trace::layout::MemoryKind::{Device, Pageable, Pinned};

    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, call, copies, evidence, idle_during, profile_with,
    };
    use super::RULE;
    use crate::finding::Finding;
    use apex_profile::{Activity, AfterLaunch, IdleCause, Profile};

    fn idle_half() -> Profile {
        profile_with([activity(1e9, 0.5)])
    }

    #[test]
    fn fires_on_any_synchronous_copy_or_memset() {
        let copied = Profile { copies: vec![copies(Device, Pageable, false, 1, 64)], ..idle_half() };
        let finding = assert_finds_in(&RULE, copied);
        assert!(finding.saving.time_ns.is_some());
        assert!(
            finding.summary.starts_with("1 synchronous copy or memset took 100.0 µs"),
            "{}",
            finding.summary
        );
        assert_eq!(evidence(&finding, "CPU time of these").value, 100e3);
        assert_finds_in(&RULE, Profile { calls: vec![call("cuMemsetD32_v2", Set, 1)], ..idle_half() });
    }

    #[test]
    fn what_came_before_the_first_launch_saves_nothing_after_it() {
        let mut copies = copies(Device, Pageable, false, 10, 64);
        copies.after_launch = AfterLaunch { count: 4, cpu_ns: 0.4e6 };
        let all = Profile {
            copies: vec![copies.clone()],
            ..profile_with([idle_during(IdleCause::Transferring, 1e9, 0.5)])
        };
        assert_eq!(assert_finds_in(&RULE, all.clone()).saving.time_ns.expect("a time").value, 0.4e6);
        copies.after_launch = AfterLaunch::default();
        let none = assert_finds_in(&RULE, Profile { copies: vec![copies], ..all });
        assert_eq!(none.saving.of_job.expect("a share").value, 0.0);
    }

    #[test]
    fn is_clear_on_asynchronous_forms() {
        assert_clear_in(&RULE, Profile { copies: vec![copies(Device, Pinned, true, 9, 64)], ..idle_half() });
        assert_clear_in(&RULE, Profile { calls: vec![call("cuMemsetD32Async", Set, 9)], ..idle_half() });
    }

    #[test]
    fn synchronisations_count_when_many_and_often() {
        let synchronising = |count, launches| {
            let mut profile =
                Profile { calls: vec![call("cuStreamSynchronize", Synchronize, count)], ..idle_half() };
            profile.totals.launches = launches;
            profile
        };
        assert_clear_in(&RULE, synchronising(99, 200));
        assert_clear_in(&RULE, synchronising(100, 1000));
        let finding = assert_finds_in(&RULE, synchronising(100, 999));
        let saves = |finding: Finding| finding.saving.time_ns.map(|time| time.value);
        assert_eq!(
            saves(finding),
            Some(2e6),
            "the host waits 20 µs each time; the device is idle for longer"
        );
        let busy = Profile { activities: vec![activity(1e9, 0.001)], ..synchronising(100, 999) };
        assert_eq!(saves(assert_finds_in(&RULE, busy)), Some(1e6), "the device is idle for less");
        let unknown = Activity { idle_share: None, ..activity(1e9, 0.5) };
        let untimed = Profile { activities: vec![unknown], ..synchronising(100, 999) };
        assert!(assert_finds_in(&RULE, untimed).saving.unknown_because.is_some());
    }
}
