//! Samples for the formats of call stacks: those of the host while devices were idle, by
//! account and stack, with the idle time that they stand for.

use std::collections::BTreeMap;

use apex_profile::{IdleCause, Profile};

/// Samples of one stack in one account.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    /// Samples, each as often as it stands for others.
    pub samples: u64,
    /// The sampled idle time, divided among the account's stacks as their samples are, nanoseconds.
    pub idle_ns: f64,
}

/// Whether a profile holds stacks, of which [`crate::collapsed`], [`crate::speedscope`],
/// [`crate::pprof`] and [`crate::firefox`] are made.
pub fn has_stacks(profile: &Profile) -> bool {
    !of(profile).is_empty()
}

/// Sums by account, and by index into [`Profile::host_stacks`].
pub(crate) fn of(profile: &Profile) -> BTreeMap<(IdleCause, usize), Sum> {
    let mut sums: BTreeMap<(IdleCause, usize), Sum> = BTreeMap::new();
    for group in profile.activities.iter().flat_map(|activity| &activity.host_samples) {
        let all = group.stacks.iter().map(|one| one.samples).fold(0, u64::saturating_add);
        let each_ns = group.sampled_ns / all.max(1) as f64;
        for one in &group.stacks {
            let sum = sums.entry((group.cause, one.stack)).or_default();
            sum.samples = sum.samples.saturating_add(one.samples);
            sum.idle_ns += each_ns * one.samples as f64;
        }
    }
    sums
}

#[cfg(test)]
pub(crate) mod fixture {
    use apex_profile::{
        Activity, Frame, HostFrame, HostStack, HostState, IdleCause, IdleSamples, IdleStack, PhaseKind,
        Profile,
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
}
