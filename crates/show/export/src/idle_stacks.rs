//! Samples for the formats of call stacks: those of the host while devices were idle, by
//! account, process and stack, with the idle time that they stand for. A session of `apex attach`
//! knows no device: there all threads count, by their state in place of an account.
//!
//! Ranks run the same code, and their processes and threads have the same names. Where there are
//! several, each process has the name that reports give it.

use apex_ordered::Gather;
use std::collections::{BTreeMap, BTreeSet};

use apex_profile::{Account, HostState, IdleCause, Profile};

/// Samples of one stack in one account.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    /// Samples, each as often as it stands for others.
    pub samples: u64,
    /// The sampled idle time, divided among the account's stacks as their samples are, or the time
    /// of the threads, nanoseconds.
    pub ns: f64,
}

/// What samples are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub category: Category,
    /// Index into [`Profile::processes`]; the identifier itself in a session without launches.
    pub process: usize,
    /// Index into [`Profile::host_stacks`].
    pub stack: usize,
}

/// The idle account of samples, or what their thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Category {
    Idle(IdleCause),
    Host(HostState),
}

impl Category {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle(cause) => Account::Idle(cause).name(),
            Self::Host(state) => state.in_words(),
        }
    }
}

/// What the times of a profile's stacks are, in a few words.
pub(crate) fn what(profile: &Profile) -> &'static str {
    match profile.host {
        Some(_) => "host stacks of all threads",
        None => "host stacks while the GPU is idle",
    }
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
                let (category, process) = (Category::Idle(group.cause), activity.process);
                let sum = sums.entry(Key { category, process, stack: one.stack }).or_default();
                sum.samples = sum.samples.saturating_add(one.samples);
                sum.ns += each_ns * one.samples as f64;
            }
        }
    }
    for (host, one) in profile.host.iter().flat_map(|host| host.stacks.iter().map(move |one| (host, one))) {
        let (category, process) = (Category::Host(one.state), host.threads[one.thread].pid as usize);
        let sum = sums.entry(Key { category, process, stack: one.stack }).or_default();
        sum.samples = sum.samples.saturating_add(one.samples);
        sum.ns += one.time_ns;
    }
    sums
}

/// Names of the processes of these samples, by index; none where they are of one process alone.
pub(crate) fn processes(profile: &Profile, sums: &BTreeMap<Key, Sum>) -> BTreeMap<usize, String> {
    let sampled: BTreeSet<usize> = sums.keys().map(|key| key.process).gathered();
    let several = sampled.len() > 1;
    let named = |process| match profile.host {
        Some(_) => Some((process, format!("process {process}"))),
        None => Some((process, profile.process_in_words(process)?)),
    };
    sampled.into_iter().filter(|_| several).filter_map(named).collect()
}

#[cfg(test)]
pub(crate) mod fixture {
    use apex_profile::{
        Activity, Frame, HostFrame, HostProfile, HostStack, HostState, HostThread, IdleCause, IdleSamples,
        IdleStack, PhaseKind, Process, Profile, ThreadStack,
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

    /// A session of `apex attach`: the threads of two processes on these stacks, of which one runs
    /// for 6 ms and the other sleeps for 2 ms.
    pub(crate) fn attached() -> Profile {
        let thread = |pid| HostThread { pid, ..HostThread::default() };
        let one = |thread, state, samples: u64| ThreadStack {
            thread,
            state,
            stack: thread,
            samples,
            time_ns: 1e6 * samples as f64,
        };
        let stacks = vec![one(0, HostState::Running, 6), one(1, HostState::Sleeps, 2)];
        let host = HostProfile { threads: vec![thread(650), thread(651)], stacks, ..HostProfile::default() };
        Profile { host: Some(host), activities: Vec::new(), ..profile() }
    }
}
