//! Memory that is allocated and freed again and again.

use apex_trace::layout::{CallClass, MemoryKind};

use super::{
    Draft, Needs, Outcome, Rule, account, confidence, cost_of_calls, counted, from_place, idle_during,
    job_saving, known,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{Call, Figure, IdleCause, Memory, Profile, SaturatingSum as _, total};

/// Minimum number of allocations.
const LOOP: u64 = 10;
/// Share of the time that the device must be idle meanwhile: calls that wait for kernels cost
/// nothing.
const LEAST: f64 = 0.01;
/// Nanoseconds of a `cuMemAllocAsync` and a `cuMemFreeAsync`: measured on an H200, independent of
/// size.
const POOL_PAIR_NS: f64 = 1_200.0;
/// Maximum share of time that kernels lose in newly mapped memory.
const FRESH: f64 = 0.1;

/// The case of page-locked memory alone, which no pool of the driver holds.
const PINNED: &str = "repeated-allocation/pinned";

pub(super) const RULE: Rule = Rule {
    id: "APEX-L23",
    slug: "repeated-allocation",
    title: "Memory allocated and freed in a loop",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &[IdleCause::Allocating],
    detects: "At least 10 allocations, between first and last launch of a process, of a size that had been \
        freed before; stream-ordered allocations (pools) do not count. The rule does not apply if the device \
        is idle for less than 1% of the time during these calls: a free that waits for kernels costs \
        nothing.",
    source: "APEX. On an H200, allocating and freeing 16 MiB takes 85 µs, 1 GiB 820 µs, from a pool 1.2 µs at any size.",
    why: "Allocation and free map and unmap memory, and wait for the device.",
    change: "Allocate once before the loop, or use a pool: cudaMallocAsync and cudaFreeAsync, or the \
        framework's caching allocator. Without changing the program, apex run --fast=memory reuses freed \
        memory for later allocations of the same size.",
    saving: "CPU time of these allocations and frees, less 1.2 µs for each pair. At most also the other idle \
        time (the host runs ahead if no call waits) and a tenth of the kernels' time, in proportion to the \
        share of time in allocation (kernels are slower in newly mapped memory).",
    verify: "allocations between launches disappear, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let churn = |memory: &&Memory| memory.kind != MemoryKind::Pool && looped(memory) >= LOOP;
    let pairs = profile.memory.iter().filter(churn).map(looped).saturating_sum();
    let costs_nothing = |idle: Figure| idle.bounds().1 < LEAST * profile.totals.span_ns;
    if pairs == 0 || (!profile.on_cpu_device() && idle_during(profile, RULE.idle).is_some_and(costs_nothing))
    {
        return Outcome::Clear;
    }
    let allocates = |call: &&Call| call.class == Some(CallClass::Allocate) && !call.name.contains("Async");
    let spent: f64 = profile.memory.iter().filter(churn).map(cost).sum();
    let saved = (spent - pairs as f64 * POOL_PAIR_NS).max(0.0);
    Outcome::found(Draft {
        summary: format!(
            "{} of a size that was freed before{}{}",
            counted(pairs, "allocation", "allocations"),
            cost_of_calls(profile, "; with their frees ", spent, " of CPU time"),
            from_place(profile, profile.calls.iter().filter(allocates).map(|call| &call.stacks))
        ),
        evidence: vec![
            Evidence::new("repeated allocations", Figure::measured(pairs as f64), Unit::Count)
                .decrease_towards(0.0),
            Evidence::new("CPU time of these and of their frees", Figure::computed(spent), Unit::Nanoseconds)
                .decrease_towards(spent - saved),
        ],
        kernels: Vec::new(),
        change: (profile.memory.iter().filter(churn).all(is_pinned))
            .then(|| known::remedy_of_case(profile, PINNED))
            .flatten(),
        saving: Saving {
            beyond: Some(up_to_run_ahead(profile)),
            ..job_saving(profile, Figure::predicted(saved, (surely_saved(profile, saved), saved)))
        },
        confidence: confidence(
            Level::Medium,
            "the calls disappear; the run becomes faster only if the device waited for them",
        ),
    })
}

/// What may be saved beside the calls themselves: the other idle time, if nothing else makes the
/// host wait, and half of what kernels lose in newly mapped memory, or all of it.
fn up_to_run_ahead(profile: &Profile) -> Figure {
    let idle = idle_during(profile, &[IdleCause::Launching, IdleCause::HostCode, IdleCause::Synchronising]);
    let kernels = account(profile, |accounts| accounts.kernels).value;
    let share =
        idle_during(profile, RULE.idle).map_or(0.0, |idle| idle.value / profile.totals.span_ns.max(1.0));
    let fresh = FRESH * share * kernels;
    Figure::predicted(fresh / 2.0, (0.0, idle.map_or(0.0, |idle| idle.bounds().1) + fresh))
}

/// The device is idle for part of the time of allocating and freeing: without these calls the next
/// launch comes so much earlier. `saved` has its share of it; nothing is sure where idle time was
/// not modelled.
fn surely_saved(profile: &Profile, saved: f64) -> f64 {
    let all = total(profile.memory.iter().map(|memory| memory.cpu_ns));
    let idle = idle_during(profile, RULE.idle).map_or(0.0, |idle| idle.bounds().0);
    if all > 0.0 { (idle * saved / all).clamp(0.0, saved) } else { 0.0 }
}

fn is_pinned(memory: &Memory) -> bool {
    memory.kind == MemoryKind::Pinned
}

/// Allocations in a loop of launches.
fn looped(memory: &Memory) -> u64 {
    memory.repeated.min(memory.among_launches)
}

/// Their part of the CPU time of all allocations and frees of the kind.
fn cost(memory: &Memory) -> f64 {
    memory.cpu_ns * looped(memory) as f64 / memory.allocations.max(1) as f64
}

#[cfg(test)]
mod tests {
    use apex_trace::layout::MemoryKind::{Device, Pinned, Pool};

    use super::super::fixture::{
        assert_clear_in, assert_finds_in, evidence, idle_during, memory, profile_with,
    };
    use super::RULE;
    use apex_profile::{IdleCause, Memory, Profile};

    fn profile(memory: Memory) -> Profile {
        Profile { memory: vec![memory], ..profile_with([idle_during(IdleCause::Allocating, 1e9, 0.5)]) }
    }

    #[test]
    fn fires_on_a_loop() {
        // 100 allocations and frees of 50 µs each pair, all of them repeated.
        let finding = assert_finds_in(&RULE, profile(memory(Device, 100, 100, 5e6)));
        let saving = finding.saving.time_ns.expect("a time");
        // The device is idle during all of these calls, so all of it is sure to be saved.
        // At most the kernels, half of the time, are a tenth of another half faster; likely half of
        // that.
        let (calls, fresh) = (5e6 - 100.0 * 1200.0, 0.1 * 0.5 * 0.5e9);
        let (low, high) = saving.interval().expect("it is predicted");
        assert!((saving.value - calls - fresh / 2.0).abs() < 1.0, "{saving:?}");
        assert!((low - calls).abs() < 1.0 && (high - calls - fresh).abs() < 1.0, "{saving:?}");
        assert_eq!(evidence(&finding, "repeated allocations").value, 100.0);
        assert_eq!(evidence(&finding, "CPU time of these and of their frees").value, 5e6);
    }

    #[test]
    fn page_locked_memory_has_a_remedy_of_its_own() {
        assert_eq!(assert_finds_in(&RULE, profile(memory(Device, 100, 100, 5e6))).change, RULE.change);
        let pinned = assert_finds_in(&RULE, profile(memory(Pinned, 100, 100, 5e6))).change;
        assert!(pinned.contains("cudaMallocHost") && !pinned.contains("--fast"), "{pinned}");
    }

    #[test]
    fn saves_for_sure_what_the_device_waits_for() {
        // Of 100 ms of allocating the device waits for 10, known to a tenth; half of the
        // allocations repeat.
        let mut one = profile(memory(Device, 100, 50, 1e8));
        one.activities = vec![idle_during(IdleCause::Allocating, 1e9, 0.01)];
        let saving = assert_finds_in(&RULE, one).saving.time_ns.expect("a time");
        let (low, high) = saving.interval().expect("it is predicted");
        assert!(
            (saving.value - 1e7 - 0.05 * 0.01 * 0.99e9).abs() < 1.0
                && (high - 1.1e7 - 0.1 * 0.01 * 0.99e9).abs() < 1.0,
            "{saving:?}"
        );
        let share = (0.5e8 - 50.0 * 1200.0) / 1e8;
        assert!((low - 0.9e7 * share).abs() < 1.0, "{saving:?}");
    }

    #[test]
    fn the_boundary_is_ten() {
        assert_finds_in(&RULE, profile(memory(Device, 100, 10, 5e6)));
        assert_clear_in(&RULE, profile(memory(Device, 100, 9, 5e6)));
    }

    #[test]
    fn is_clear_on_pools_and_outside_of_launches() {
        assert_clear_in(&RULE, profile(memory(Pool, 100, 100, 5e6)));
        assert_clear_in(&RULE, profile(Memory { among_launches: 0, ..memory(Device, 100, 100, 5e6) }));
    }
}
