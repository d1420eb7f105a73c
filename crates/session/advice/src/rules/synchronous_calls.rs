//! Synchronous copies.
//!
//! A memset of device memory is none, whatever its name says: it returns before it is done (CUDA
//! driver API, "API synchronization behavior").

use super::{
    Draft, Needs, Outcome, Rule, account, confidence, cost_of_calls, counted, from_place, idle_during,
    job_saving, sizes, small_copies, typical_launch_call,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{AfterLaunch, Copies, CopyDirection, Figure, IdleCause, Profile, StackCount};

/// Minimum number of copies after the first launch on the CPU device …
const LOOP: u64 = 10;
/// … and maximum number of launches for each.
const LAUNCHES_EACH: u64 = 10;

pub(super) const RULE: Rule = Rule {
    id: "APEX-L19",
    slug: "synchronous-calls",
    title: "Synchronous copies",
    severity: Severity::Low,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: Some("APEX-L43"),
    idle: &[IdleCause::Transferring],
    detects: "Any synchronous copy with the device. On the CPU device, which does not show what a copy \
        costs: at least 10 after the first launch, and more than one for every 10 launches.",
    source: "Nsight Systems, rule cuda_memcpy_sync: any.",
    why: "The host launches nothing until the copy is complete; then the device waits for the host.",
    change: "Use asynchronous copies on a stream with pinned memory, and launch independent work in the \
        meantime: with two buffers, the next input is copied while a kernel works on the current one.",
    saving: "CPU time of the copies while the device is idle, less that of asynchronous calls. At most also \
        the time in which the device copies, and the rest of the idle time, because a host that does not \
        wait runs ahead.",
    verify: "these calls decrease, and the GPU's busy share increases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let Transfers { count, bytes: moved, cpu_ns: spent, after_launch, stacks } =
        synchronous_transfers(profile);
    let is_loop = after_launch.count >= LOOP
        && after_launch.count.saturating_mul(LAUNCHES_EACH) > profile.totals.launches;
    if count == 0 || (profile.on_cpu_device() && !is_loop) {
        return Outcome::Clear;
    }
    let queued = typical_launch_call(profile) * after_launch.count as f64;
    let waited = idle_during(profile, RULE.idle);
    let most = (after_launch.cpu_ns - queued).max(0.0);
    let saved = most.min(waited.map_or(f64::INFINITY, |idle| idle.value));
    let ahead = [IdleCause::Launching, IdleCause::HostCode, IdleCause::Synchronising];
    let ahead = idle_during(profile, &ahead).map_or(0.0, |idle| idle.bounds().1);
    let copies = account(profile, |accounts| accounts.copies).bounds().1;
    // Nothing of the rest goes where the copies are a trifle.
    let beyond = if saved > 0.0 { (ahead + copies).min(after_launch.cpu_ns) } else { 0.0 };
    Outcome::found(Draft {
        summary: format!(
            "{}{}{}{}",
            counted(count, "synchronous copy", "synchronous copies"),
            sizes(synchronous(profile)),
            cost_of_calls(profile, " took ", spent, " of CPU time"),
            from_place(profile, stacks)
        ),
        evidence: vec![
            Evidence::new("synchronous copies", Figure::measured(count as f64), Unit::Count)
                .decrease_towards(0.0),
            Evidence::new("CPU time of these", Figure::measured(spent), Unit::Nanoseconds)
                .decrease_towards(0.0),
        ],
        kernels: Vec::new(),
        change: (is_many_small(profile, count, moved)).then(|| small_copies::COMBINE_FIRST.to_owned()),
        saving: Saving {
            beyond: Some(Figure::predicted(0.0, (0.0, beyond))),
            ..job_saving(profile, Figure::predicted(saved, (0.0, most)))
        },
        confidence: confidence(
            Level::Low,
            "part of the time is the device's work or the transfer itself, which remains",
        ),
    })
}

/// Whether one copy of all pieces helps more than an asynchronous copy of each.
fn is_many_small(profile: &Profile, count: u64, moved: u64) -> bool {
    count >= small_copies::MANY
        && count > profile.totals.launches
        && moved <= small_copies::SMALL.saturating_mul(count)
}

/// Synchronous copies.
#[derive(Default)]
pub(super) struct Transfers<'p> {
    pub count: u64,
    pub bytes: u64,
    pub cpu_ns: f64,
    pub after_launch: AfterLaunch,
    /// Call stacks that were read on some of them.
    pub stacks: Vec<&'p Vec<StackCount>>,
}

/// Synchronous copies between host and device. Those within the device do not wait.
pub(super) fn synchronous_transfers(profile: &Profile) -> Transfers<'_> {
    let mut sum = Transfers::default();
    for copy in synchronous(profile) {
        sum.count = sum.count.saturating_add(copy.count);
        sum.bytes = sum.bytes.saturating_add(copy.bytes);
        sum.cpu_ns += copy.cpu.total_ns;
        sum.after_launch.add(copy.after_launch);
        sum.stacks.push(&copy.stacks);
    }
    sum
}

fn synchronous(profile: &Profile) -> impl Iterator<Item = &Copies> {
    let waits =
        |copy: &&Copies| !copy.asynchronous && copy.wait() && copy.direction != CopyDirection::HostToHost;
    profile.copies.iter().filter(waits)
}

#[cfg(test)]
mod tests {
    use apex_trace::layout::CallClass::Set;
    use apex_trace::layout::MemoryKind::{Device, Pageable, Pinned};

    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, call, copies, evidence, idle_during, on_cpu_device,
        profile_with,
    };
    use super::RULE;
    use crate::finding::Unit;
    use apex_profile::{AfterLaunch, IdleCause, Profile};

    fn idle_half() -> Profile {
        profile_with([activity(1e9, 0.5)])
    }

    #[test]
    fn fires_on_any_synchronous_copy() {
        let copied = Profile { copies: vec![copies(Device, Pageable, false, 1, 64)], ..idle_half() };
        let finding = assert_finds_in(&RULE, copied);
        assert!(finding.saving.time_ns.is_some());
        assert!(finding.summary.starts_with("1 synchronous copy of 64 B took 100 µs"), "{}", finding.summary);
        assert_eq!(evidence(&finding, "CPU time of these").value, 100e3);
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
    fn on_the_cpu_device_copies_in_a_loop_are_found_without_their_times() {
        let copying = |count, launches| {
            let mut profile =
                Profile { copies: vec![copies(Device, Pinned, false, count, 1 << 20)], ..idle_half() };
            profile.totals.launches = launches;
            on_cpu_device(profile)
        };
        let finding = assert_finds_in(&RULE, copying(10, 99));
        assert_eq!(finding.summary, "10 synchronous copies of 1.00 MiB");
        assert!(finding.evidence.iter().all(|evidence| evidence.unit != Unit::Nanoseconds));
        assert_clear_in(&RULE, copying(9, 99));
        assert_clear_in(&RULE, copying(10, 100));
    }

    #[test]
    fn is_clear_on_asynchronous_forms_and_on_memsets() {
        assert_clear_in(&RULE, Profile { copies: vec![copies(Device, Pinned, true, 9, 64)], ..idle_half() });
        assert_clear_in(&RULE, Profile { calls: vec![call("cuMemsetD32_v2", Set, 9)], ..idle_half() });
        assert_clear_in(&RULE, Profile { copies: vec![copies(Device, Device, false, 9, 64)], ..idle_half() });
    }
}
