//! The program's own code keeps the device waiting, for longer than launching explains.

use std::collections::BTreeSet;

use apex_trace::layout::{CallClass, MemoryKind};

use super::{
    Draft, NOT_MODELLED, Needs, Outcome, Rule, account, compilation_cache, confidence, counted,
    host_function, idle_during, in_pauses, is_mostly_xla, job_saving, known, percent, time,
};
use crate::finding::{Evidence, Level, Saving, Scope, Severity, Unit};
use apex_profile::{
    Activity, CopyDirection, Figure, IdleCause, Kernel, PhaseCall, Profile, SaturatingSum as _, total,
};

/// Idle for at least this share of the time in the program's own code …
const IDLE: f64 = 0.2;
/// … and for longer than this before a launch, on average: below, launching less often helps
/// (APEX-T24).
pub(super) const EACH_NS: f64 = 100e3;
/// Minimum copies to the device per iteration for its input to be the likely cause.
const COPIES: f64 = 0.9;

/// Maximum bytes of a copy that is not counted as input. Such a copy holds a number or an argument:
/// JAX makes one for many operations outside `jax.jit`.
const SCALAR: u64 = 1 << 10;

/// Minimum calls per iteration of the steady state that load code, for compilation to be the cause:
/// a program that has warmed up loads none.
const LOADS: f64 = 0.5;

/// Minimum launches per iteration of a JAX program that dispatches operations one by one.
const DISPATCHED: f64 = 20.0;

/// Maximum launches per iteration of a program whose host has little to launch: if it reads a
/// number in each iteration, that keeps it from preparing the next one.
const FEW: f64 = 4.0;

/// Minimum share of the GPU time of kernels that are given managed memory, for its pages to be what
/// the host waits for.
const MANAGED: f64 = 0.5;
/// Maximum share of these kernels' time that passes in page faults. In
/// testing/corpus/users/heliostat_field.cu a step without them took a fifth of one with them.
const FAULTS: f64 = 0.9;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T41",
    slug: "host-bound",
    title: "Host-bound: the GPU waits for host code",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: None,
    idle: &[IdleCause::HostCode],
    detects: "Outside long gaps (APEX-T16), the device is idle for at least 20% of the time while the host \
        is not in a driver call, in pauses of at least 1 ms, or for more than 100 µs before a launch or copy \
        on average. If each iteration copies data (more than 1 KiB) to the device, the input is named as the likely cause, or the way to the host and back if each copies as much to the host; \
        if iterations load code, compilation is; if each iteration launches at most 4 times and reads a number, reading is; \
        if kernels with half of the GPU time are given managed memory, its migration is.",
    source: "APEX; the reason as in the analysis of PyTorch's Kineto plugin (data loading above 5% of a step).",
    why: "The device has finished all queued work while the program prepares the next.",
    change: "Profile the host code with a CPU profiler (py-spy, perf), and move the work to another thread \
        or process that runs while the device works.",
    saving: "The idle time during host code, without long gaps: at least half of it; at most also the other \
        idle time and the copies, because a separate thread can copy the input too.",
    verify: "the GPU's busy share increases, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.activities.is_empty() {
        return Outcome::Clear;
    }
    if profile.activities.iter().all(|activity| activity.idle_share.is_none()) {
        return Outcome::Unjudged(NOT_MODELLED.to_owned());
    }
    let waits = |activity: &&Activity| idle(activity) >= IDLE * activity.span_ns;
    let waiting: Vec<&Activity> = profile.activities.iter().filter(waits).collect();
    let Some(lost) = Figure::sum(waiting.iter().map(|activity| activity.idle_part(idle(activity)))) else {
        return Outcome::Clear;
    };
    let span = total(waiting.iter().map(|activity| activity.span_ns));
    let (reason, loads, inputs) = Reason::of(profile, &waiting);
    let mut evidence = vec![
        Evidence::new(
            "share of time idle during host code",
            lost.scaled(1.0 / span).at_most(1.0),
            Unit::Share,
        )
        .decrease_towards(0.0),
    ];
    evidence.extend(inputs.map(|copies| {
        Evidence::new("copies to the device per iteration", Figure::measured(copies), Unit::Count)
    }));
    if reason == Reason::Compilation {
        evidence.push(
            Evidence::new("calls that load code per iteration", Figure::measured(loads), Unit::Count)
                .decrease_towards(0.0),
        );
    }
    Outcome::found(Draft {
        summary: format!(
            "{} idle for {} of the time while the host runs the program's own code, {}{}",
            which(profile, &waiting),
            percent(lost.value / span),
            before_what(&waiting, lost.value),
            reason.seen()
        ),
        evidence,
        kernels: Vec::new(),
        change: reason.change(profile).map(|change| match compilation_cache(profile) {
            Some(cache) if reason == Reason::Compilation => format!("{change}. {cache}"),
            _ => change,
        })
        .or_else(|| {
            let places = host_function::mostly_at(profile, |_, samples| samples.cause == IdleCause::HostCode)?;
            Some(format!(
                "Move the host's work to another thread or process that runs while the device works: most of the idle \
                    time in host code is at {places}"
            ))
        }),
        saving: Saving {
            beyond: Some(beside(profile, reason)),
            ..job_saving(profile, Figure::predicted(lost.value, (lost.bounds().0 / 2.0, lost.bounds().1)))
        },
        confidence: confidence(
            if matches!(reason, Reason::Input | Reason::RoundTrip) { Level::Medium } else { Level::Low },
            "it is unknown how much of the host code can overlap with the device's work",
        ),
    })
}

/// The devices that wait, with the verb. If only some of several wait, the shares are for these
/// alone.
fn which(profile: &Profile, waiting: &[&Activity]) -> String {
    let devices = |activities: &mut dyn Iterator<Item = &Activity>| -> BTreeSet<Option<usize>> {
        activities.map(|activity| activity.device).collect()
    };
    let all = devices(&mut profile.activities.iter()).len();
    let these = devices(&mut waiting.iter().copied());
    match these.first() {
        _ if all == 1 => "the GPU is".to_owned(),
        Some(&one) if these.len() == 1 && one.is_some() => {
            format!("{} is", profile.device_names().in_words(one))
        }
        _ if these.len() == all => "the GPUs are on average".to_owned(),
        _ => format!("{} of {all} GPUs are on average", these.len()),
    }
}

/// Returns the change to make to host code that the calls around it explain; `None` if they do not.
pub(super) fn reason(profile: &Profile) -> Option<String> {
    let waiting: Vec<&Activity> = profile.activities.iter().collect();
    let (reason, ..) = Reason::of(profile, &waiting);
    reason.change(profile)
}

/// The likely activity of the host while the device waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Compilation,
    Input,
    /// Each iteration fetches data, and brings data back.
    RoundTrip,
    /// Each iteration waits for a number.
    Number,
    /// JAX dispatches operations one by one.
    Dispatch,
    /// Kernels are given managed memory, which the host's accesses bring back page by page.
    Migration,
    Unknown,
}

impl Reason {
    /// Also returns how many calls load code and how many copies bring input in an iteration.
    fn of(profile: &Profile, waiting: &[&Activity]) -> (Self, f64, Option<f64>) {
        let inputs = waiting.iter().filter_map(|activity| inputs(activity)).reduce(f64::max);
        let loads = waiting.iter().filter_map(|activity| loads(activity)).fold(0.0, f64::max);
        let reason = if loads >= LOADS {
            Self::Compilation
        } else if inputs.is_some_and(|copies| copies >= COPIES) {
            if waiting.iter().all(|activity| fetches(activity)) { Self::RoundTrip } else { Self::Input }
        } else if waiting.iter().all(|activity| reads_each_time(activity)) {
            Self::Number
        } else if is_dispatched_by_jax(profile, waiting) {
            Self::Dispatch
        } else if managed_part(profile) >= MANAGED {
            Self::Migration
        } else {
            Self::Unknown
        };
        (reason, loads, inputs)
    }

    /// The most that it costs in work of the device, nanoseconds: data that goes to the host and
    /// back need not be copied.
    fn of_work(self, profile: &Profile) -> f64 {
        match self {
            Self::RoundTrip => account(profile, |accounts| accounts.copies).value,
            Self::Migration => FAULTS * account(profile, |accounts| accounts.kernels).value,
            _ => 0.0,
        }
    }

    /// Returns the evidence for it, as the end of a sentence.
    fn seen(self) -> &'static str {
        match self {
            Self::Compilation => "; iterations load new code, as after a compilation",
            Self::Input => "; each iteration copies its input to the device",
            Self::RoundTrip => "; each iteration copies data to the host and back to the device",
            Self::Number => "; each iteration reads a number from the device",
            Self::Migration => {
                "; its kernels are given managed memory: pages that host and GPU use in turn migrate by page faults, \
                 each way"
            }
            Self::Dispatch | Self::Unknown => "",
        }
    }

    /// Returns the change to make; `None` if the rule's general text applies.
    fn change(self, profile: &Profile) -> Option<String> {
        let case = match self {
            Self::Compilation => "host-bound/compilation",
            Self::Input => "host-bound/input",
            Self::RoundTrip => "host-bound/round-trip",
            Self::Number => "host-bound/number",
            Self::Dispatch => "host-bound/dispatch",
            Self::Migration => "host-bound/migration",
            Self::Unknown => return None,
        };
        known::remedy_of_case(profile, case)
    }
}

/// Share of the GPU time of the program's own kernels that are given managed memory. CUDA does not
/// tell which of its pages migrate.
fn managed_part(profile: &Profile) -> f64 {
    let time = |kernel: &Kernel| kernel.gpu_total_ns().unwrap_or(0.0);
    let is_managed = |kernel: &&Kernel| kernel.memory.iter().any(|memory| memory.kind == MemoryKind::Managed);
    let all = total(profile.kernels.iter().map(time));
    total(profile.kernels.iter().filter(is_managed).map(time)) / all.max(1.0)
}

/// Says how the idle time is distributed: over launches, or over pauses.
fn before_what(waiting: &[&Activity], lost: f64) -> String {
    let sum = |of: fn(&Activity) -> u64| waiting.iter().map(|activity| of(activity)).saturating_sum();
    if waiting.iter().any(|activity| is_slow(activity)) {
        let launches = sum(|activity| activity.launches);
        let each = time(lost / launches.max(1) as f64);
        return format!("{each} before each of {}", counted(launches, "launch", "launches"));
    }
    let pauses = sum(|activity| activity.accounts.pauses.count);
    let each = time(lost / pauses.max(1) as f64);
    format!("in {} of {each} on average", counted(pauses, "pause", "pauses"))
}

/// Idle time in host code that launching does not explain, without long gaps: all of it if the host
/// is slow before each launch or copy, otherwise the pauses. 0 if it was not modelled.
fn idle(activity: &Activity) -> f64 {
    if is_slow(activity) { in_own_code(activity) } else { in_pauses(activity) }
}

/// Whether the mean idle time before a launch or copy is longer than launching explains.
pub(super) fn is_slow(activity: &Activity) -> bool {
    in_own_code(activity) > EACH_NS * (activity.launches + transfers(activity)) as f64
}

/// Idle time in host code, without long gaps.
fn in_own_code(activity: &Activity) -> f64 {
    let of = |by: Option<&f64>| by.copied().unwrap_or(0.0);
    let long = total(activity.gaps.iter().map(|gap| of(gap.by.get(&IdleCause::HostCode))));
    (of(activity.idle_by.get(&IdleCause::HostCode)) - long).max(0.0)
}

/// Whether most launches are kernels of XLA, an iteration has many of them, and the host takes long
/// before each rather than in pauses between iterations: compiled whole, an iteration would launch
/// few, or one graph.
fn is_dispatched_by_jax(profile: &Profile, waiting: &[&Activity]) -> bool {
    let before_each = |activity: &&Activity| is_slow(activity) && 2.0 * in_pauses(activity) < idle(activity);
    if !waiting.iter().all(before_each) {
        return false;
    }
    let iterations = profile.activities.iter().filter_map(|activity| activity.iterations.as_ref());
    let many = iterations.map(|iterations| iterations.launches).fold(0.0, f64::max) >= DISPATCHED;
    many && is_mostly_xla(profile)
}

/// Other idle time, which may go with the code: a host that does not prepare the input runs ahead.
pub(super) fn behind_it(profile: &Profile) -> f64 {
    let others: Vec<IdleCause> =
        IdleCause::ALL.into_iter().filter(|cause| *cause != IdleCause::HostCode).collect();
    idle_during(profile, &others).map_or(0.0, |idle| idle.bounds().1)
}

/// What may go with the code: other idle time, and the work of the device that the reason explains,
/// of which half is likely.
fn beside(profile: &Profile, reason: Reason) -> Figure {
    let work = reason.of_work(profile);
    Figure::predicted(work / 2.0, (0.0, work + behind_it(profile)))
}

/// Copies: between small ones the host is as busy with calls as between launches.
fn transfers(activity: &Activity) -> u64 {
    let calls = activity.phases.iter().flat_map(|phase| &phase.calls);
    calls.filter(|call| call.direction.is_some()).map(|call| call.count).saturating_sum()
}

/// Calls that load code in an iteration of the steady state.
fn loads(activity: &Activity) -> Option<f64> {
    in_iteration(activity, |call| call.class == Some(CallClass::Module) && call.name.contains("Load"))
}

/// Whether an iteration of the steady state launches little and copies a number to the host.
fn reads_each_time(activity: &Activity) -> bool {
    let is_number = |call: &PhaseCall| {
        call.direction == Some(CopyDirection::DeviceToHost) && call.bytes <= SCALAR.saturating_mul(call.count)
    };
    activity.iterations.as_ref().is_some_and(|iterations| iterations.launches <= FEW)
        && in_iteration(activity, is_number).is_some_and(|copies| copies >= COPIES)
}

/// Copies to the device in an iteration of the steady state, without those of single numbers.
fn inputs(activity: &Activity) -> Option<f64> {
    in_iteration(activity, |call| {
        call.direction == Some(CopyDirection::HostToDevice) && call.bytes > SCALAR.saturating_mul(call.count)
    })
}

/// Whether an iteration of the steady state copies more than numbers to the host.
fn fetches(activity: &Activity) -> bool {
    let is_data = |call: &PhaseCall| {
        call.direction == Some(CopyDirection::DeviceToHost) && call.bytes > SCALAR.saturating_mul(call.count)
    };
    in_iteration(activity, is_data).is_some_and(|copies| copies >= COPIES)
}

/// Counts such calls in an iteration of the steady state.
fn in_iteration(activity: &Activity, is_such: impl Fn(&PhaseCall) -> bool) -> Option<f64> {
    let iterations = activity.iterations.as_ref()?.count.max(1);
    let steady = activity.phase(apex_profile::PhaseKind::Steady)?;
    let calls = steady.calls.iter().filter(|call| is_such(call));
    Some(calls.map(|call| call.count).sum::<u64>() as f64 / iterations as f64)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        activity, assert_clear_in, assert_finds_in, assert_unjudged, evidence, gap, launched_by, profile_with,
    };
    use super::RULE;
    use apex_profile::names::Owner;
    use apex_profile::{
        Activity, CopyDirection, Device, Figure, Iterations, Pauses, Phase, PhaseCall, PhaseKind, Profile,
        Sizes,
    };
    use apex_trace::layout::CallClass;

    fn waiting() -> Activity {
        Activity { launches: 1000, ..activity(1e9, 0.5) }
    }

    #[test]
    fn fires_on_code_between_launches() {
        let finding = assert_finds_in(&RULE, profile_with([waiting()]));
        assert!((finding.saving.of_job.expect("a share").value - 0.5).abs() < 1e-9);
        assert!(finding.change.starts_with("Profile the host code"), "{}", finding.change);
    }

    #[test]
    fn names_the_gpus_that_wait_where_there_are_several() {
        let on = |ordinal: u32, one: Activity| Activity { device: Some(ordinal as usize), ..one };
        let device = |ordinal| Device { ordinals: vec![ordinal], ..Device::default() };
        let summary = |activities: [Activity; 2]| {
            let devices = vec![device(0), device(1)];
            assert_finds_in(&RULE, Profile { devices, ..profile_with(activities) }).summary
        };
        let busy = Activity { launches: 1000, ..activity(1e9, 0.01) };
        let one = summary([on(0, busy), on(1, waiting())]);
        assert!(one.starts_with("GPU 1 is idle for 50% of the time"), "{one}");
        let both = summary([on(0, waiting()), on(1, waiting())]);
        assert!(both.starts_with("the GPUs are on average idle for 50% of the time"), "{both}");
    }

    /// Iterations of `launches` launches of XLA's kernels.
    fn by_xla(launches: f64, activity: Activity) -> Profile {
        let iterations = Some(Iterations { count: 10, launches, ..Iterations::default() });
        launched_by(Owner::Xla, profile_with([Activity { iterations, ..activity }]))
    }

    #[test]
    fn names_jit_where_jax_dispatches_operations_one_by_one() {
        let change = |launches, activity| assert_finds_in(&RULE, by_xla(launches, activity)).change;
        assert!(change(20.0, waiting()).starts_with("Compile the whole step with jax.jit"));
        assert!(change(19.0, waiting()).starts_with("Profile the host code"));
        // A compiled step launches at once, and the host pauses between steps.
        let mut pausing = waiting();
        pausing.accounts.pauses = Pauses { count: 50, time: Figure::measured(0.3e9) };
        assert!(change(20.0, pausing).starts_with("Profile the host code"));
    }

    #[test]
    fn names_the_input_where_each_iteration_copies_it() {
        let mut one = waiting();
        one.iterations = Some(Iterations { count: 100, ..Iterations::default() });
        let call = PhaseCall {
            name: "cuMemcpyHtoDAsync_v2".into(),
            class: None,
            direction: Some(CopyDirection::HostToDevice),
            pageable: false,
            asynchronous: true,
            count: 200,
            bytes: 200 << 20,
            sizes: Sizes::of(1 << 20, 200),
            cpu_ns: 1e6,
        };
        let accounts = one.accounts.clone();
        one.phases = vec![Phase {
            kind: PhaseKind::Steady,
            accounts,
            launches: 1000,
            kernels: vec![],
            graphs: vec![],
            calls: vec![call],
        }];
        let finding = assert_finds_in(&RULE, profile_with([one.clone()]));
        assert!(finding.change.starts_with("Prepare the next input"), "{}", finding.change);
        assert_eq!(evidence(&finding, "copies to the device per iteration").value, 2.0);
        let copy = one.phases[0].calls[0].clone();
        let mut round_trip = one.clone();
        round_trip.phases[0].calls.push(PhaseCall {
            name: "cuMemcpyDtoHAsync_v2".into(),
            direction: Some(CopyDirection::DeviceToHost),
            ..copy.clone()
        });
        let finding = assert_finds_in(&RULE, profile_with([round_trip]));
        assert!(finding.change.starts_with("Keep the data on the device"), "{}", finding.change);
        let mut compiling = one.clone();
        compiling.phases[0].calls.push(PhaseCall {
            name: "cuModuleLoadData".into(),
            class: Some(CallClass::Module),
            direction: None,
            count: 50,
            ..copy
        });
        let finding = assert_finds_in(&RULE, profile_with([compiling.clone()]));
        assert!(finding.change.starts_with("Keep what is compiled"), "{}", finding.change);
        assert!(!finding.change.contains("cache"), "{}", finding.change);
        let by_xla = launched_by(Owner::Xla, profile_with([compiling.clone()]));
        assert!(assert_finds_in(&RULE, by_xla).change.contains("jax_compilation_cache_dir"));
        assert_eq!(evidence(&finding, "calls that load code per iteration").value, 0.5);
        compiling.phases[0].calls[1].count = 49;
        let finding = assert_finds_in(&RULE, profile_with([compiling]));
        assert!(finding.change.starts_with("Prepare the next input"), "{}", finding.change);
        // Numbers of 4 bytes are no input.
        one.phases[0].calls[0].bytes = 200 * 4;
        let finding = assert_finds_in(&RULE, profile_with([one]));
        assert!(finding.change.starts_with("Profile the host code"), "{}", finding.change);
    }

    #[test]
    fn the_boundaries_are_a_fifth_and_100_microseconds_a_launch() {
        assert_clear_in(&RULE, profile_with([Activity { launches: 1000, ..activity(1e9, 0.19) }]));
        assert_clear_in(&RULE, profile_with([Activity { launches: 5000, ..waiting() }]));
        assert_finds_in(&RULE, profile_with([Activity { launches: 4999, ..waiting() }]));
        let paused = Activity { gaps: vec![gap(0.0, 0.4e9)], ..waiting() };
        assert_clear_in(&RULE, profile_with([paused]));
    }

    #[test]
    fn fires_on_pauses_among_many_launches() {
        // 100 000 launches: 5 µs before each.
        let mut one = activity(1e9, 0.5);
        one.accounts.pauses = Pauses { count: 20, time: Figure::measured(0.4e9) };
        let finding = assert_finds_in(&RULE, profile_with([one.clone()]));
        assert!((finding.saving.of_job.expect("a share").value - 0.4).abs() < 1e-9);
        assert!(finding.summary.ends_with("in 20 pauses of 20.0 ms on average"), "{}", finding.summary);
        let within_a_gap = Activity { gaps: vec![gap(0.0, 0.3e9)], ..one.clone() };
        assert_clear_in(&RULE, profile_with([within_a_gap]));
        one.accounts.pauses.time = Figure::measured(0.19e9);
        assert_clear_in(&RULE, profile_with([one]));
    }

    #[test]
    fn does_not_judge_what_was_not_modelled() {
        assert_unjudged(&RULE, profile_with([Activity { idle_share: None, ..waiting() }]));
    }
}
