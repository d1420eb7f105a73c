//! Prints where each thread of a session was on the host, the most frequent stacks first.
//!
//! `cargo run -p apex-host-stacks --example dump SESSION [STACKS]`

use apex_host_stacks::{Doing, HostStacks, Span};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (dir, most) = (arguments.next().unwrap_or_default(), arguments.next());
    let most = most.and_then(|most| most.parse().ok()).unwrap_or(5);
    let stacks = HostStacks::read(Path::new(&dir));
    let mut out = io::stdout().lock();
    for text in stacks.problems.iter().chain(&stacks.head.lost) {
        writeln!(out, "{text}")?;
    }
    writeln!(out, "{:?}", stacks.counters)?;
    let mut by_thread = BTreeMap::<u32, Vec<&Span>>::new();
    for span in &stacks.spans {
        by_thread.entry(span.thread).or_default().push(span);
    }
    for spans in by_thread.values() {
        print_thread(&mut out, &stacks, spans, most)?;
    }
    Ok(())
}

/// Prints the stacks and states of a thread, and the total time of each.
fn print_thread(out: &mut impl Write, stacks: &HostStacks, spans: &[&Span], most: usize) -> io::Result<()> {
    let Some(first) = spans.first() else { return Ok(()) };
    let (process, thread) = stacks.thread(first);
    writeln!(
        out,
        "\n{} {} (Python {:?}), thread {} {}",
        process.pid, process.name, process.python, thread.tid, thread.name
    )?;
    let mut times = BTreeMap::<(u32, u32, bool), f64>::new();
    for span in spans {
        let time = span.time_in(0, u64::MAX, stacks.head.period_ns);
        *times.entry((span.stack, span.doing, span.holds_gil)).or_default() += time;
    }
    let all: f64 = times.values().sum();
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by(|one, other| other.1.total_cmp(&one.1));
    for ((stack, doing, holds_gil), time) in times.into_iter().take(most) {
        let gil = if holds_gil { ", holds the GIL" } else { "" };
        let doing = stacks.doings.get(doing as usize).unwrap_or(&Doing::Running);
        writeln!(out, "  {:5.1}% {:.3} s {doing:?}{gil}", time / all * 100.0, time / 1e9)?;
        for frame in stacks.frames(stack) {
            writeln!(out, "      {} {}:{}", frame.function, frame.file, frame.line)?;
        }
    }
    Ok(())
}
