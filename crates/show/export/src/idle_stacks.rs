//! Samples for the formats of call stacks: those of the host while devices were idle, by
//! account, process and stack, with the idle time that they stand for.
//!
//! Ranks run the same code and have the same names of processes and threads: the processes are told
//! apart by what they are called in reports, where there are several.

use std::collections::{BTreeMap, BTreeSet};

use apex_profile::{IdleCause, Profile};

/// Samples of one stack in one account.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    /// Samples, each as often as it stands for others.
    pub samples: u64,
    /// The sampled idle time, divided among the account's stacks as their samples are, nanoseconds.
    pub idle_ns: f64,
}

/// What samples are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub cause: IdleCause,
    /// Index into [`Profile::processes`].
    pub process: usize,
    /// Index into [`Profile::host_stacks`].
    pub stack: usize,
}

/// Whether a profile holds stacks, of which [`crate::collapsed`], [`crate::speedscope`],
/// [`crate::pprof`] and [`crate::firefox`] are made.
pub fn has_stacks(profile: &Profile) -> bool {
    !of(profile).is_empty()
}

/// Sums by account, process and stack.
pub(crate) fn of(profile: &Profile) -> BTreeMap<Key, Sum> {
    let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
    for activity in &profile.activities {
        for group in &activity.host_samples {
            let all = group.stacks.iter().map(|one| one.samples).fold(0, u64::saturating_add);
            let each_ns = group.sampled_ns / all.max(1) as f64;
            for one in &group.stacks {
                let key = Key { cause: group.cause, process: activity.process, stack: one.stack };
                let sum = sums.entry(key).or_default();
                sum.samples = sum.samples.saturating_add(one.samples);
                sum.idle_ns += each_ns * one.samples as f64;
            }
        }
    }
    sums
}

/// Names of the processes of these samples, by index; none where they are of one process alone.
pub(crate) fn processes(profile: &Profile, sums: &BTreeMap<Key, Sum>) -> BTreeMap<usize, String> {
    let sampled: BTreeSet<usize> = sums.keys().map(|key| key.process).collect();
    let several = sampled.len() > 1;
    let named = |process| Some((process, profile.process_in_words(process)?));
    sampled.into_iter().filter(|_| several).filter_map(named).collect()
}

#[cfg(test)]
pub(crate) mod fixture {
    use apex_profile::{
        Activity, Frame, HostFrame, HostStack, HostState, IdleCause, IdleSamples, IdleStack, PhaseKind,
        Process, Profile,
    };

    fn frame(file: &str, function: &str) -> HostFrame {
        let frame = Frame { file: file.into(), line: Some(7), function: function.into() };
        HostFrame { frame, is_native: false }
    }

    fn stack(frames: Vec<HostFrame>) -> HostStack {
        HostStack { frames, thread: "main".into(), process: "python".into(), is_settled: true }
    }

    fn group(cause: IdleCause, is_pause: bool, stacks: &[(usize, u64)]) -> IdleSamples {
        let samples = stacks.iter().map(|&(_, samples)| samples).sum();
        let one = |&(stack, samples)| IdleStack { samples, stack, state: HostState::Running, other: None };
        IdleSamples {
            phase: PhaseKind::Steady,
            cause,
            is_pause,
            idle_ns: 2e6 * samples as f64,
            sampled_ns: 1e6 * samples as f64,
            read: samples,
            stacks: stacks.iter().map(one).collect(),
        }
    }

    /// `main` calls `f` in 6 samples of host code, and a function with an odd name in 2 of it and
    /// in 3 of launch calls; a sample is 1 ms.
    pub(crate) fn profile() -> Profile {
        let host_samples = vec![
            group(IdleCause::HostCode, true, &[(0, 5), (1, 2)]),
            group(IdleCause::HostCode, false, &[(0, 1)]),
            group(IdleCause::Launching, false, &[(1, 3)]),
        ];
        Profile {
            host_stacks: vec![
                stack(vec![frame("/a/inner.py", "f"), frame("/a/outer.py", "main")]),
                stack(vec![frame("/a/x.py", "a;b\nc")]),
            ],
            activities: vec![Activity { host_samples, ..Activity::default() }],
            ..Profile::default()
        }
    }
    /// Two ranks that do what [`profile`] does, on the same stacks.
    pub(crate) fn two_ranks() -> Profile {
        let one = profile();
        let of = |process| Activity { process, ..one.activities[0].clone() };
        let process = |rank| Process { pid: 650 + rank as u32, rank: Some(rank), ..Process::default() };
        Profile { activities: vec![of(0), of(1)], processes: vec![process(0), process(1)], ..one }
    }
}
