//! Sampled call stacks of the host while devices were idle, as collapsed stacks: one line for each
//! stack, frames from the outermost to the innermost with semicolons between, and a count.
//!
//! Flame-graph tools read this format (`flamegraph.pl`, speedscope, inferno). The first frame is
//! the idle account, the second the thread; counts are samples.

use apex_profile::{Account, HostStack, Profile};
use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::idle_stacks;

/// Writes the stacks of a profile.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for ((cause, stack), sum) in idle_stacks::of(profile) {
        let line = line(Account::Idle(cause).name(), &profile.host_stacks[stack]);
        let samples = lines.entry(line).or_default();
        *samples = samples.saturating_add(sum.samples);
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
    use super::super::idle_stacks::fixture;
    use super::*;

    #[test]
    fn stacks_are_lines_with_counts_and_frames_cannot_break_them() {
        let mut out = Vec::new();
        write(&fixture::profile(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "idle: host code;thread main;outer.py:7 main;inner.py:7 f 6\n\
             idle: host code;thread main;x.py:7 a_b_c 2\n\
             idle: launch calls;thread main;x.py:7 a_b_c 3\n"
        );
    }
}
