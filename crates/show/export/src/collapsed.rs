//! Sampled call stacks of the host while devices were idle, as collapsed stacks: one line for each
//! stack, frames from the outermost to the innermost with semicolons between, and a count.
//!
//! Flame-graph tools read this format (`flamegraph.pl`, speedscope, inferno). The first frame is
//! the idle account (what the thread did, in a session of `apex attach`), the next ones the process
//! (where there are several) and the thread; counts are samples.

use apex_profile::{HostStack, Profile};
use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::idle_stacks;

/// Writes the stacks of a profile.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    let sums = idle_stacks::of(profile);
    let processes = idle_stacks::processes(profile, &sums);
    for (key, sum) in sums {
        let process = processes.get(&key.process).map(String::as_str);
        let line = line(key.category.name(), process, &profile.host_stacks[key.stack]);
        let samples = lines.entry(line).or_default();
        *samples = samples.saturating_add(sum.samples);
    }
    lines.into_iter().try_for_each(|(line, samples)| writeln!(out, "{line} {samples}"))?;
    out.flush()
}

fn line(account: &str, process: Option<&str>, stack: &HostStack) -> String {
    let frames = stack.frames.iter().rev().map(|frame| frame.frame.to_string());
    let first =
        [Some(account.to_owned()), process.map(str::to_owned), Some(format!("thread {}", stack.thread))];
    let all = first.into_iter().flatten().chain(frames);
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

    #[test]
    fn ranks_are_kept_apart() {
        let mut out = Vec::new();
        write(&fixture::two_ranks(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap().lines().take(2).collect::<Vec<_>>(),
            [
                "idle: host code;rank 0 (process 650);thread main;outer.py:7 main;inner.py:7 f 6",
                "idle: host code;rank 0 (process 650);thread main;x.py:7 a_b_c 2",
            ]
        );
    }

    #[test]
    fn without_launches_stacks_are_told_apart_by_what_the_threads_did() {
        let mut out = Vec::new();
        write(&fixture::attached(), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "runs;process 650;thread main;outer.py:7 main;inner.py:7 f 6\n\
             sleeps;process 651;thread main;x.py:7 a_b_c 2\n"
        );
    }
}
