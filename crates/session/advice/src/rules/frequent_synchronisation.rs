//! A host that waits for the device again and again, between few launches.

mod loops;

use apex_trace::layout::{CallClass, MemoryKind};

use super::small_copies::{SMALL, is_small};
use super::synchronous_calls::synchronous_transfers;
use super::{
    Draft, Fault, JAX_CACHE, Needs, Outcome, Rule, confidence, cost_of_calls, counted, framework, from_place,
    idle_during, job_saving, kernel_finding, known,
};
use crate::finding::{Evidence, KernelFinding, Level, Saving, Scope, Severity, Unit};
use apex_profile::names::Owner;
use apex_profile::{Copies, CopyDirection, Figure, IdleCause, Profile, SaturatingSum as _, StackCount};
use loops::Loop;

/// Minimum number of waits …
const MANY: u64 = 100;
/// … and maximum number of launches for each …
const LAUNCHES_EACH: u64 = 10;
/// … or this maximum, if the waits cost at least this share of the time.
const LAUNCHES_EACH_THAT_COSTS: u64 = 100;
const COSTS: f64 = 0.1;
/// Maximum share of the time of a loop's kernels that one call in its place saves.
const ONE_CALL: f64 = 0.95;

/// The change to make in JAX.
const IN_JAX: &str = "Read results (float(x), numpy.asarray, print) once for many steps. In compiled loops prefer fori_loop \
                      or scan, whose number of rounds is fixed, to while_loop, whose condition the host reads in each round; \
                      compute several samples or chains in one call (jax.vmap)";

/// The beginning of the name of the kernel that XLA launches around each candidate that it
/// measures.
const AUTOTUNES: &str = "xla redzone_allocator";

pub(super) const RULE: Rule = Rule {
    id: "APEX-L43",
    slug: "frequent-synchronisation",
    title: "Synchronisation in every iteration",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &[IdleCause::Transferring, IdleCause::Synchronising, IdleCause::Launching, IdleCause::HostCode],
    detects: "At least 100 synchronisations and small copies (up to 64 KiB) that the host waits for, and \
        more than one for every 10 launches, or for every 100 if the waits, up to the device's idle \
        time, take at least 10% of the time. At least half of them from one line, 8 or more in each step or with \
        kernels of a known loop, are told as a loop.",
    source: "Nsight Systems, rule cuda_api_sync; the thresholds are APEX's own, because every program \
        synchronises at its end.",
    why: "The host launches nothing while it waits, and the device is idle while the host launches again. A \
        CUDA graph cannot extend beyond a synchronisation.",
    change: "Synchronise only where the host needs the result, once for many iterations: check for \
        convergence or log every N steps, keep values on the device, synchronise streams by events. In \
        PyTorch, .item(), .cpu(), print and data-dependent control flow synchronise.",
    saving: "The idle time while the host waits, and half of the other idle time around launches and small \
        copies; at most all of it: without synchronisation the host runs ahead, and a CUDA graph can hold \
        whole iterations.",
    verify: "fewer of these calls, and the GPU's busy share increases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let waits = || profile.calls.iter().filter(|call| call.class == Some(CallClass::Synchronize));
    let synchronisations = waits().map(|call| call.count).saturating_sum();
    let copies = synchronous_transfers(profile);
    let small = copies.bytes <= SMALL.saturating_mul(copies.count);
    let copies = if small { copies } else { Default::default() };
    let launches = profile.totals.launches + profile.totals.graph_launches;
    let fetches = small_transfers(profile, CopyDirection::DeviceToHost);
    let often = copies.after_launch.count.saturating_add(synchronisations).max(fetches);
    let waited = copies.after_launch.cpu_ns
        + fetching(profile)
        + waits().map(|call| call.after_launch.cpu_ns).sum::<f64>();
    let each = if costs(profile, waited) { LAUNCHES_EACH_THAT_COSTS } else { LAUNCHES_EACH };
    if often < MANY || often.saturating_mul(each) <= launches {
        return Outcome::Clear;
    }
    let last = last_before(profile);
    let is_autotuning = last.as_ref().is_some_and(|kernel| kernel.name.starts_with(AUTOTUNES));
    let looped = Loop::of(profile, &stacks_of_waits(profile), often);
    let inputs = small_transfers(profile, CopyDirection::HostToDevice);
    let mut parts = Vec::new();
    if synchronisations > 0 {
        parts.push(counted(synchronisations, "synchronisation", "synchronisations"));
    }
    if copies.count > 0 {
        parts.push(counted(copies.count, "small synchronous copy", "small synchronous copies"));
    }
    if fetches >= MANY && fetches > synchronisations {
        parts.push(counted(fetches, "small copy to the host", "small copies to the host"));
    }
    if inputs >= MANY {
        parts.push(counted(inputs, "small copy to the device", "small copies to the device"));
    }
    Outcome::found(Draft {
        summary: format!(
            "{} among {}{}{}{}{}",
            parts.join(", "),
            counted(launches, "launch", "launches"),
            cost_of_calls(profile, ": the host waits for ", waited, " in them"),
            last.as_ref().map_or(String::new(), |kernel| format!(", most often after `{}`", kernel.name)),
            from_place(profile, waits().map(|call| &call.stacks).chain(copies.stacks.iter().copied())),
            looped.as_ref().map_or(String::new(), |looped| format!("; {}", looped.seen))
        ),
        evidence: vec![
            Evidence::new(
                "synchronisations and small copies with a wait",
                Figure::measured(often as f64),
                Unit::Count,
            )
            .decrease_towards((launches / each) as f64),
            Evidence::new("time waited", Figure::measured(waited), Unit::Nanoseconds).decrease_towards(0.0),
        ],
        kernels: last.into_iter().filter(|_| !is_autotuning).collect(),
        change: if is_autotuning {
            Some(format!(
                "XLA measures candidates for a kernel while it compiles (autotuning), and waits for each. {JAX_CACHE}"
            ))
        } else {
            change(profile, launches, looped.as_ref())
        },
        saving: Saving {
            beyond: looped.as_ref().map(of_one_call),
            ..without_waiting(profile, waited, copies.after_launch.cpu_ns + small_copies(profile))
        },
        confidence: confidence(
            Level::Low,
            "part of the time is the device's own work, which remains; other causes of slow launching are unknown",
        ),
    })
}

/// Returns the change to make, if it is not the rule's: known loops over elements, values that are
/// copied one by one, functions of libraries that are known to wait, memory that host and device
/// use in turn, other loops, results of XLA.
fn change(profile: &Profile, launches: u64, looped: Option<&Loop>) -> Option<String> {
    if let Some(remedy) = looped.and_then(|looped| looped.known.clone()) {
        return Some(remedy);
    }
    let inputs = |copy: &&Copies| {
        copy.direction == CopyDirection::HostToDevice && copy.bytes <= SMALL.saturating_mul(copy.count)
    };
    let inputs = profile.copies.iter().filter(inputs).map(|copy| copy.after_launch.count).saturating_sum();
    if inputs >= MANY.max(launches) {
        return Some(
            "copy all values at once: gather them in one pinned host array, and make one copy instead of \
                many small ones"
                .to_owned(),
        );
    }
    if let Some(remedy) = known::remedy_of_waits(profile, &stacks_of_waits(profile)) {
        return Some(remedy);
    }
    if profile.memory.iter().any(|memory| memory.kind == MemoryKind::Managed) {
        return Some(format!(
            "{} Managed memory moves between host and device if they use it in turn: keep it on one of them, or \
                move it ahead with cudaMemPrefetchAsync.",
            known::remedy_of_case(profile, RULE.slug).unwrap_or_default()
        ));
    }
    if looped.is_some_and(|looped| looped.is_in_step) {
        return known::remedy_of_case(profile, "frequent-synchronisation/loop");
    }
    (framework(profile) == Some(Owner::Xla)).then(|| IN_JAX.to_owned())
}

/// Call stacks of synchronisations and of small copies to the host.
fn stacks_of_waits(profile: &Profile) -> Vec<StackCount> {
    let waits = profile.calls.iter().filter(|call| call.class == Some(CallClass::Synchronize));
    let fetches =
        profile.copies.iter().filter(|copy| copy.direction == CopyDirection::DeviceToHost && is_small(copy));
    waits.flat_map(|call| &call.stacks).chain(fetches.flat_map(|copy| &copy.stacks)).copied().collect()
}

/// Whether the waits cost so much that they matter among many launches: a host that did not wait
/// would run ahead, and the shorter one of its wait and the device's idle time would go.
fn costs(profile: &Profile, waited: f64) -> bool {
    let idle = idle_during(profile, &IdleCause::ALL).map_or(0.0, |idle| idle.value);
    !profile.on_cpu_device() && waited.min(idle) > COSTS * profile.totals.span_ns
}

/// CPU time of small copies to pageable memory, whose asynchronous form waits too.
fn fetching(profile: &Profile) -> f64 {
    let waits = |copy: &&Copies| {
        copy.direction == CopyDirection::DeviceToHost
            && copy.destination == MemoryKind::Pageable
            && is_small(copy)
    };
    profile.copies.iter().filter(waits).map(|copy| copy.after_launch.cpu_ns).sum()
}

/// CPU time of small asynchronous copies.
fn small_copies(profile: &Profile) -> f64 {
    profile.copies.iter().filter(|copy| is_small(copy)).map(|copy| copy.after_launch.cpu_ns).sum()
}

/// Asynchronous copies of few bytes between host and device, which callers wait for one by one: a
/// value that is fetched is looked at. Frameworks wait for it by polling, too.
fn small_transfers(profile: &Profile, direction: CopyDirection) -> u64 {
    let small = |copy: &&Copies| copy.direction == direction && is_small(copy);
    profile.copies.iter().filter(small).map(|copy| copy.after_launch.count).saturating_sum()
}

/// The kernel that is launched last before most waits: sequences end there.
fn last_before(profile: &Profile) -> Option<KernelFinding> {
    let whole = profile.sequences.iter().filter(|sequence| sequence.length == sequence.kernels.len() as u64);
    let most = whole.max_by_key(|sequence| sequence.repeats)?;
    let last = *most.kernels.last()?;
    profile.kernels.get(last)?;
    let fault = Fault {
        evidence: Vec::new(),
        change: "do not synchronise after it".to_owned(),
        saves: Err("the change saves the host's time"),
        threads: None,
    };
    Some(kernel_finding(profile, last, fault))
}

/// What one call in place of a loop saves beside the waits: at most nearly all of the time of the
/// loop's kernels, because a kernel over all elements takes hardly longer than over one; half of it
/// is the estimate where the loop is known.
fn of_one_call(looped: &Loop) -> Figure {
    let time = ONE_CALL * looped.kernels_ns;
    let likely = if looped.known.is_some() { time / 2.0 } else { 0.0 };
    Figure::predicted(likely, (0.0, time))
}

/// Estimates the saving if the host does not wait: it launches while the device works, and the
/// longer of the two remains. So the shorter one's wait for the other disappears: the host's, or
/// the device's idle time. Half of the rest of the idle time is the estimate, because longer CUDA
/// graphs are then possible. `copying` is the time in small copies; that in large ones is no wait.
fn without_waiting(profile: &Profile, waited: f64, copying: f64) -> Saving {
    let others = [IdleCause::Synchronising, IdleCause::Launching, IdleCause::HostCode];
    let idle = idle_during(profile, &others).zip(idle_during(profile, &[IdleCause::Transferring]));
    match idle {
        Some((others, copies)) => {
            let idle = others.value + copies.value.min(copying);
            let most = others.bounds().1 + copies.bounds().1.min(copying);
            let surely = waited.min(idle);
            job_saving(profile, Figure::predicted(surely + (idle - surely) / 2.0, (0.0, most)))
        }
        None => Saving { unknown_because: Some(super::NOT_MODELLED.to_owned()), ..Saving::default() },
    }
}

#[cfg(test)]
mod tests {
    use apex_trace::layout::CallClass::Synchronize;
    use apex_trace::layout::MemoryKind::{Device, Managed, Pageable, Pinned};

    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, call, called, copies, evidence, memory, named,
        profile_with,
    };
    use super::RULE;
    use crate::finding::Finding;
    use apex_profile::{
        Activity, Call, CallStack, Figure, Frame, Iterations, Kernel, Profile, Sequence, StackCount,
    };
    use cuda_launch::LaunchConfig;

    fn idle_half() -> Profile {
        profile_with([activity(1e9, 0.5)])
    }

    #[test]
    fn fires_on_waits_that_are_many_and_frequent() {
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
            Some(251e6),
            "the host waits 20 µs each time, and half of the other idle time may go"
        );
        let busy = Profile { activities: vec![activity(1e9, 0.001)], ..synchronising(100, 999) };
        assert_eq!(saves(assert_finds_in(&RULE, busy)), Some(1e6), "the device is idle for less");
        let unknown = Activity { idle_share: None, ..activity(1e9, 0.5) };
        let untimed = Profile { activities: vec![unknown], ..synchronising(100, 999) };
        assert!(assert_finds_in(&RULE, untimed).saving.unknown_because.is_some());
    }

    #[test]
    fn names_the_cache_of_kernels_that_xla_measures() {
        let mut profile =
            Profile { calls: vec![call("cuStreamSynchronize", Synchronize, 100)], ..idle_half() };
        profile.kernels = vec![named("_ZN15stream_executor3gpu26RedzoneAllocatorKernelImplEPhhmPj")];
        profile.sequences =
            vec![Sequence { kernels: vec![0], length: 1, repeats: 500, ..Sequence::default() }];
        let finding = assert_finds_in(&RULE, profile);
        assert!(finding.change.contains("jax_compilation_cache_dir"), "{}", finding.change);
        assert!(finding.kernels.is_empty());
    }

    #[test]
    fn names_the_copies_and_the_memory_that_make_the_host_wait() {
        let waiting = |profile: Profile| Profile {
            calls: vec![call("cuStreamSynchronize", Synchronize, 200)],
            ..profile
        };
        let change = |profile: Profile| assert_finds_in(&RULE, waiting(profile)).change;
        let general = change(idle_half());
        assert!(general.starts_with("Synchronise only where") && !general.contains("PyTorch"), "{general}");
        for asynchronous in [false, true] {
            let values = vec![copies(Device, Pageable, asynchronous, 5000, 4)];
            let change = change(Profile { copies: values, ..idle_half() });
            assert!(change.starts_with("copy all values at once"), "{change}");
        }
        let managed = Profile { memory: vec![memory(Managed, 1, 0, 0.0)], ..idle_half() };
        assert!(change(managed).ends_with("cudaMemPrefetchAsync."));
    }

    /// 100 steps, in each of which so many waits come from one line; kernels from this line.
    fn looping(each: u64, kernels: Vec<Kernel>) -> Profile {
        let waits = each * 100;
        let stacks = vec![StackCount { stack: 0, first_seen: 0, sampled: 20 }];
        let line = Frame { file: "/home/me/train.py".into(), line: Some(7), function: "step".into() };
        let steps = Iterations { count: 100, step_ns: Figure::measured(1e7), ..Iterations::default() };
        let kernels = kernels.into_iter().map(|kernel| Kernel { stacks: stacks.clone(), ..kernel });
        let mut profile = Profile {
            call_stacks: vec![CallStack { frames: vec![line], ..CallStack::default() }],
            kernels: kernels.collect(),
            calls: vec![Call { stacks: stacks.clone(), ..call("cuStreamSynchronize", Synchronize, waits) }],
            activities: vec![Activity { iterations: Some(steps), ..activity(1e9, 0.5) }],
            ..idle_half()
        };
        profile.totals.launches = waits;
        profile
    }

    #[test]
    fn waits_of_one_line_again_and_again_in_a_step_are_a_loop() {
        let sum = || vec![called(named("_Z3sumPf"), 100, 4e3)];
        let finding = assert_finds_in(&RULE, looping(8, sum()));
        let said = "; train.py:7 step waits 8 times in each step, as a loop over elements does";
        assert!(finding.summary.ends_with(said), "{}", finding.summary);
        assert!(finding.change.starts_with("Replace the loop by one call"), "{}", finding.change);
        // Seven waits, and a line that launches nothing in these steps: of the start-up.
        for other in [looping(7, sum()), looping(8, Vec::new())] {
            let other = assert_finds_in(&RULE, other);
            assert!(!other.summary.contains("loop") && !other.change.contains("loop"), "{}", other.change);
        }
    }

    #[test]
    fn a_known_loop_has_the_call_on_the_batch() {
        let factor = |blocks, launches| {
            let kernel = called(named("_Z20xxtrf4_set_info_kerPi"), launches, 4e3);
            Kernel { launch: LaunchConfig::new(blocks, 32), ..kernel }
        };
        let finding = assert_finds_in(&RULE, looping(8, vec![factor(1, 800)]));
        assert!(
            finding.summary.contains("waits 8 times in each step: a loop factors"),
            "{}",
            finding.summary
        );
        assert!(finding.change.contains("potrfBatched"), "{}", finding.change);
        // Where a step is one round of the loop, the kernels alone tell.
        let rounds = assert_finds_in(&RULE, looping(1, vec![factor(1, 100)]));
        assert!(rounds.change.contains("potrfBatched"), "{}", rounds.change);
        // Large matrices, and waits that have nothing to do with them.
        for other in [factor(9, 100), factor(1, 49)] {
            let finding = assert_finds_in(&RULE, looping(1, vec![other]));
            assert!(!finding.change.contains("potrfBatched"), "{}", finding.change);
        }
    }

    #[test]
    fn a_small_value_that_is_fetched_is_waited_for() {
        let fetching = |count, launches| {
            let mut profile = Profile { copies: vec![copies(Pinned, Device, true, count, 4)], ..idle_half() };
            profile.totals.launches = launches;
            profile
        };
        let finding = assert_finds_in(&RULE, fetching(200, 1000));
        assert!(finding.summary.starts_with("200 small copies to the host among"), "{}", finding.summary);
        assert_clear_in(&RULE, fetching(99, 200));
        assert_clear_in(&RULE, fetching(200, 3000));
    }

    #[test]
    fn waits_among_many_launches_count_where_they_cost() {
        // 200 fetches into pageable memory, 100 µs each, among 3,000 launches in a second.
        let fetching = |idle, count| {
            let mut profile = Profile {
                copies: vec![copies(Pageable, Device, true, count, 4)],
                ..profile_with([activity(100e6, idle)])
            };
            (profile.totals.launches, profile.totals.span_ns) = (3000, 100e6);
            profile
        };
        assert_finds_in(&RULE, fetching(0.5, 200));
        assert_clear_in(&RULE, fetching(0.05, 200));
        let rare = Profile { ..fetching(0.5, 200) };
        let many = apex_profile::Totals { launches: 30_000, ..rare.totals.clone() };
        assert_clear_in(&RULE, Profile { totals: many, ..rare });
    }

    #[test]
    fn small_synchronous_copies_wait_and_large_ones_are_transfers() {
        let copying = |bytes| {
            let mut profile =
                Profile { copies: vec![copies(Pageable, Device, false, 100, bytes)], ..idle_half() };
            profile.totals.launches = 500;
            profile
        };
        let finding = assert_finds_in(&RULE, copying(64 << 10));
        assert!(
            finding.summary.starts_with("100 small synchronous copies among 500 launches"),
            "{}",
            finding.summary
        );
        assert_eq!(evidence(&finding, "time waited").value, 1e7);
        assert_clear_in(&RULE, copying(65 << 10));
    }
}
