//! Sampled call stacks of the host while devices were idle, as collapsed stacks: one line for each
//! stack, frames from the outermost to the innermost with semicolons between, and a count.
//!
//! Flame-graph tools read this format (`flamegraph.pl`, speedscope, inferno). The first frame is
//! the idle account, the second the thread; counts are samples.

use apex_profile::{Account, HostStack, Profile};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the stacks of a profile.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for group in profile.activities.iter().flat_map(|activity| &activity.host_samples) {
        for one in &group.stacks {
            let line = line(Account::Idle(group.cause).name(), &profile.host_stacks[one.stack]);
            let samples = lines.entry(line).or_default();
            *samples = samples.saturating_add(one.samples);
        }
    }
    lines.into_iter().try_for_each(|(line, samples)| writeln!(out, "{line} {samples}"))?;
    out.flush()
}

fn line(account: &str, stack: &HostStack) -> String {
    let frames = stack.frames.iter().rev().map(|frame| frame.frame.to_string());
    let all = [account.to_owned(), format!("thread {}", stack.thread)].into_iter().chain(frames);
    let all: Vec<String> = all.map(|frame| plain(&frame)).collect();
    all.join(";")
}

/// A frame without what ends a frame or a line, and without what a terminal would interpret.
fn plain(frame: &str) -> String {
    let shown = |c: char| if c == ';' || !apex_untrusted::text::is_printable(c) { '_' } else { c };
    frame.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_profile::{Activity, Frame, HostFrame, HostState, IdleCause, IdleSamples, IdleStack, PhaseKind};

    #[test]
    fn stacks_are_lines_with_counts_and_frames_cannot_break_them() {
        let frame = |file: &str, function: &str| HostFrame {
            frame: Frame { file: file.into(), line: Some(7), function: function.into() },
            is_native: false,
        };
        let stack = |frames| HostStack { frames, thread: "main".into(), ..HostStack::default() };
        let group = |is_pause, stacks| IdleSamples {
            phase: PhaseKind::Steady,
            cause: IdleCause::HostCode,
            is_pause,
            idle_ns: 1.0,
            sampled_ns: 1.0,
            read: 1,
            stacks,
        };
        let one = |stack, samples| IdleStack { samples, stack, state: HostState::Running, other: None };
        let host_samples = vec![group(true, vec![one(0, 5), one(1, 2)]), group(false, vec![one(0, 1)])];
        let profile = Profile {
            host_stacks: vec![
                stack(vec![frame("/a/inner.py", "f"), frame("/a/outer.py", "main")]),
                stack(vec![frame("/a/x.py", "a;b\nc")]),
            ],
            activities: vec![Activity { host_samples, ..Activity::default() }],
            ..Profile::default()
        };
        let mut out = Vec::new();
        write(&profile, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "idle: host code;thread main;outer.py:7 main;inner.py:7 f 6\n\
             idle: host code;thread main;x.py:7 a_b_c 2\n"
        );
    }
}
