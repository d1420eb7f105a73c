//! Driver calls in every iteration, and functions on sampled call stacks, that show what the host
//! does there.

use apex_ordered::Order;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::{
    Draft, Needs, Outcome, Rule, confidence, cost_of_calls, counted, from_place, launch_bound,
};
use super::{Known, causes_for, host, is_worth, launches, likely_ns, outcome, saving, share_from};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_knowledge::{Cause, Claims, Knowledge};
use apex_profile::{Call, Figure, IdleCause, Profile, StackCount, total};
use apex_trace::layout::CallClass;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-L96",
    slug: "known-host-work",
    title: "Known host work in every iteration",
    severity: Severity::Medium,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &IdleCause::ALL,
    detects: "Driver calls that a cause of the table of known causes names, by their names or by the functions on their call \
        stacks, about once per iteration or more often (at least 20 in a run without iterations); or functions that a cause \
        names on the sampled call stacks of the host while the device is idle (at least 10 samples), or, in a launch-bound \
        program, on the call stacks of launches that its remedy makes needless; if it saves at least 2% of the time. The cause \
        that saves most is the finding.",
    source: "Each cause names its public documentation; docs/knowledge.md describes the table.",
    why: "The calls show work that belongs before the loop: set-up of a library, compilation, a checkpoint.",
    change: "The cause has the remedy in the words of the program's framework.",
    saving: "A share of the CPU time of these calls, or of the idle time that goes with them, as the cause says; for sampled \
        functions a share of the idle time in them, or of the idle time around their launches.",
    verify: "these calls disappear from the steps, and the GPU's busy share increases",
    judge,
};

/// Minimum number of calls in a run without iterations, and of stacks for a share of them.
const CALLS: f64 = 20.0;
/// Share of all call stacks that have the function of a cause, for calls without stacks to be
/// counted among its calls.
const OF_ALL_STACKS: f64 = 0.25;
/// Share of a call that a cause must have for the call to belong to it alone.
const MOST_OF_THEM: f64 = 0.5;

fn judge(profile: &Profile) -> Outcome {
    if profile.on_cpu_device() {
        // Its calls take as long as the kernels that they execute.
        return Outcome::Clear;
    }
    let knowledge: Arc<Knowledge> = Knowledge::current();
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    let places = host::Places::of(profile);
    let launching = launch_bound::lost(profile);
    let saves = |known: &Known<'_>| known.saves_ns.unwrap_or(0.0);
    for (cause, remedy) in causes_for(profile, &knowledge) {
        let by_calls = known_by_calls(profile, cause, remedy, &mut taken);
        let seen = host::known(profile, &places, cause, remedy);
        let launching = launching.and_then(|lost| launches::known(profile, lost, cause, remedy));
        // What was seen says more than what calls suggest.
        let seen = seen.filter(|_| !cause.both || by_calls.is_some());
        let known = if seen.is_some() { [seen, launching] } else { [launching, by_calls] };
        found.extend(known.into_iter().flatten().max_by(|a, b| saves(a).total_cmp(&saves(b))));
    }
    outcome(found)
}

/// Returns the finding that the calls of a cause support. A call belongs to the first cause that
/// names it: it is `taken`.
fn known_by_calls<'k, 'p>(
    profile: &'p Profile,
    cause: &'k Cause,
    remedy: &'k str,
    taken: &mut BTreeSet<&'p str>,
) -> Option<Known<'k>> {
    if !is_about_calls(cause) {
        return None;
    }
    let mut calls = calls_of(profile, cause);
    calls.retain(|(call, _)| !taken.contains(&call.name[..]));
    let known = known(profile, cause, remedy, &calls)?;
    taken.extend(calls.iter().filter(|(_, share)| *share >= MOST_OF_THEM).map(|(call, _)| &call.name[..]));
    Some(known)
}

fn is_about_calls(cause: &Cause) -> bool {
    cause.kernels.is_empty() && !(cause.calls.is_empty() && cause.functions.is_empty())
}

fn known<'k>(
    profile: &Profile,
    cause: &'k Cause,
    remedy: &'k str,
    calls: &[(&Call, f64)],
) -> Option<Known<'k>> {
    let count = total(calls.iter().map(|(call, share)| share * call.after_launch.count as f64));
    let cpu_ns = total(calls.iter().map(|(call, share)| share * call.after_launch.cpu_ns));
    let iterations = profile.activities.iter().filter_map(|activity| activity.iterations.as_ref());
    let iterations = iterations.map(|iterations| iterations.count).max();
    let least = iterations.map_or(CALLS, |count| cause.each_iteration * count as f64);
    if calls.is_empty() || count < least {
        return None;
    }
    let during: Vec<IdleCause> = calls.iter().filter_map(|(call, _)| call.class).map(cause_of).collect();
    let saving = saving(profile, cause, cpu_ns, &during);
    if !is_worth(profile, &saving) {
        return None;
    }
    let each = iterations.map(|steps| count / steps.max(1) as f64);
    let mut evidence = vec![
        Evidence::new("time in these calls", Figure::measured(cpu_ns), Unit::Nanoseconds)
            .decrease_towards(0.0),
    ];
    evidence.extend(each.map(|each| {
        Evidence::new("calls per iteration", Figure::measured(each), Unit::Count).decrease_towards(0.0)
    }));
    let names: Vec<String> = calls.iter().take(2).map(|(call, _)| format!("`{}`", call.name)).collect();
    let level = if cause.claims == Claims::Matched { Level::Medium } else { Level::Low };
    let draft = Draft {
        summary: format!(
            "{} of {}{}{}: {}",
            counted(count.round() as u64, "call", "calls"),
            names.join(" and "),
            cost_of_calls(profile, " took ", cpu_ns, " of CPU time"),
            from_place(profile, calls.iter().map(|(call, _)| &call.stacks)),
            cause.meaning.trim_end_matches('.')
        ),
        evidence,
        kernels: Vec::new(),
        change: None,
        confidence: confidence(
            level,
            "the calls show the work; how much of the time around them belongs to it is estimated",
        ),
        saving,
    };
    let saves_ns = likely_ns(&draft.saving);
    Some(Known { cause, remedy, draft, saves_ns })
}

/// The calls of a cause, the costliest first, and which share of each.
fn calls_of<'p>(profile: &'p Profile, cause: &Cause) -> Vec<(&'p Call, f64)> {
    let mut found = Vec::new();
    let everywhere =
        || share_from(profile, &all_stacks(profile), cause).is_some_and(|of| of >= OF_ALL_STACKS);
    for call in &profile.calls {
        if !(cause.calls.is_empty() || cause.names_call(&call.name)) || call.after_launch.count == 0 {
            continue;
        }
        let is_about_call = !cause.calls.is_empty();
        let share = share_from(profile, &call.stacks, cause)
            .or_else(|| (is_about_call && everywhere()).then_some(1.0))
            .unwrap_or(0.0);
        if share > 0.0 {
            found.push((call, share));
        }
    }
    found.order_by(|(a, _), (b, _)| b.after_launch.cpu_ns.total_cmp(&a.after_launch.cpu_ns));
    found
}

/// Call stacks of all calls and launches.
fn all_stacks(profile: &Profile) -> Vec<StackCount> {
    let of_calls = profile.calls.iter().flat_map(|call| &call.stacks);
    let of_kernels = profile.kernels.iter().flat_map(|kernel| &kernel.stacks);
    of_calls.chain(of_kernels).copied().collect()
}

/// Returns the cause of idle time that calls of this class belong to.
fn cause_of(class: CallClass) -> IdleCause {
    match class {
        CallClass::Allocate | CallClass::Free => IdleCause::Allocating,
        CallClass::Copy | CallClass::Set => IdleCause::Transferring,
        CallClass::Synchronize => IdleCause::Synchronising,
        CallClass::Module => IdleCause::Loading,
        CallClass::Graph => IdleCause::Capturing,
        _ => IdleCause::OtherCalls,
    }
}
