//! Variables of the environment that slow programs, and what they do where they were not recorded.

use super::super::{
    Draft, NOT_MODELLED, Needs, Outcome, Rule, confidence, idle_during, percent, typical_launch_call,
};
use super::{Known, causes_for, is_worth, likely_ns, outcome, saving};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_knowledge::{Cause, Knowledge};
use apex_profile::{Figure, IdleCause, Kernel, Profile, SaturatingSum as _, total};

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-L97",
    slug: "known-variable",
    title: "A variable of the environment slows the program",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Records,
    parent: None,
    idle: &IdleCause::ALL,
    detects: "A variable of the program's environment with a value that a cause of the table of known causes names. \
        CUDA_LAUNCH_BLOCKING is also seen in its effect: nearly every launch call takes as long as its kernel, while the \
        device is idle for at least 20% of the time.",
    source: "Each cause names its public documentation; docs/knowledge.md describes the table.",
    why: "The variable is for debugging, or suits another machine, and was left set.",
    change: "The cause has the remedy in the words of the program's framework.",
    saving: "A share of the idle time that the variable causes; the cause says which. Unknown for most variables.",
    verify: "the variable is not set, and the run time decreases",
    judge,
};

/// Least mean GPU time of a kernel whose launch call shows whether it waits for the kernel …
const LONG_NS: f64 = 5e3;
/// … as a multiple of a call that only queues work, and least launches of it.
const LAUNCHES: u64 = 20;
/// Least number of such kernels.
const KERNELS: usize = 3;
/// Share of their time for which calls take as long as the kernel.
const NEARLY_ALL: f64 = 0.95;
/// A device that is idle for less has a full queue, where calls wait without any variable.
const IDLE: f64 = 0.2;
/// Above this share of timed launches, the recorder itself waits for kernels (`--timing all`).
const TIMED: f64 = 0.9;

fn judge(profile: &Profile) -> Outcome {
    let knowledge = Knowledge::current();
    let mut causes = causes_for(profile, &knowledge).filter(|(cause, _)| cause.variable.is_some());
    let found = causes.by_ref().filter_map(|(cause, remedy)| known(profile, cause, remedy)).collect();
    outcome(found)
}

fn known<'k>(profile: &Profile, cause: &'k Cause, remedy: &'k str) -> Option<Known<'k>> {
    let variable = cause.variable.as_deref()?;
    let values = profile.processes.iter().filter_map(|process| process.environment.get(variable));
    let seen = match values.into_iter().find(|value| cause.names_value(value)) {
        Some(value) => format!("{variable}={value} is set"),
        None => {
            let share = Some(blocking(profile)?).filter(|_| cause.blocking_launches)?;
            format!("launch calls take as long as their kernels for {} of the GPU time", percent(share))
        }
    };
    let mut saving = saving(profile, cause, 0.0, &[]);
    if profile.on_cpu_device() {
        (saving.time_ns, saving.of_job, saving.beyond) = (None, None, None);
        saving.unknown_because = Some(super::super::CPU_SAVING.to_owned());
    } else if saving.time_ns.is_none() && saving.unknown_because.is_none() {
        saving.unknown_because = Some(NOT_MODELLED.to_owned());
    }
    let draft = Draft {
        summary: format!("{seen}: {}", cause.meaning.trim_end_matches('.')),
        evidence: blocking(profile)
            .filter(|_| cause.blocking_launches)
            .map(|share| {
                Evidence::new("GPU time whose launch calls waited", Figure::measured(share), Unit::Share)
            })
            .into_iter()
            .collect(),
        kernels: Vec::new(),
        change: None,
        confidence: confidence(Level::Medium, "what the variable costs depends on the program"),
        saving,
    };
    let saves_ns = likely_ns(&draft.saving);
    is_worth(profile, &draft.saving).then_some(Known { cause, remedy, draft, saves_ns })
}

/// Whether nearly all launches were timed.
fn is_all_timed(profile: &Profile) -> bool {
    let timed = profile.kernels.iter().filter_map(|kernel| kernel.gpu.as_ref()).map(|gpu| gpu.each.count);
    let launches = profile.kernels.iter().map(|kernel| kernel.launches.calls).saturating_sum();
    timed.saturating_sum() as f64 >= TIMED * launches.max(1) as f64
}

/// Share of the GPU time of long kernels whose launch calls take as long as the kernel, if it is
/// nearly all and the device is often idle.
fn blocking(profile: &Profile) -> Option<f64> {
    let idle = idle_during(profile, &IdleCause::ALL)?.value;
    if profile.on_cpu_device() || is_all_timed(profile) || idle < IDLE * profile.totals.span_ns {
        return None;
    }
    let mean = |kernel: &Kernel| kernel.gpu.as_ref().map(|gpu| gpu.each.mean_ns);
    let is_long = |kernel: &&Kernel| {
        kernel.launches.ran() >= LAUNCHES && mean(kernel).is_some_and(|mean| mean >= LONG_NS)
    };
    let long: Vec<&Kernel> = profile.kernels.iter().filter(is_long).collect();
    let waits = |kernel: &&&Kernel| mean(kernel).is_some_and(|mean| kernel.cpu.median_ns >= mean);
    let time = |of: &mut dyn Iterator<Item = &&Kernel>| total(of.filter_map(|kernel| kernel.gpu_total_ns()));
    let share = time(&mut long.iter().filter(waits)) / time(&mut long.iter()).max(1.0);
    (long.len() >= KERNELS && share >= NEARLY_ALL && typical_launch_call(profile) >= LONG_NS).then_some(share)
}
