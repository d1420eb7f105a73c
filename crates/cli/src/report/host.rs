//! The tables of a session of `apex attach`: its threads, and the functions on their stacks by the
//! state of the threads.

use super::idle::{in_words, of, told};
use super::places::write;
use crate::text::figures::share;
use crate::text::{Align, Style, Table};
use crate::units;
use apex_ordered::{Gather, Order};
use apex_profile::{HostProfile, HostSampling, HostThread, Profile};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Maximum number of threads in the table.
const THREADS: usize = 12;
/// Minimum share of the threads' time for a state to be listed.
const LEAST: f64 = 0.02;
/// Part of the wished samples below which it is told.
const WISHED: f64 = 0.8;
const LEGEND_OF_THREADS: &str = "ᵐ measured: samples of the thread, and the time in which it ran or was ready to. Mostly at: the place with most of \
    its time, the innermost line outside of libraries.";
const LEGEND: &str = "ᵖ predicted from samples: share of the time of all threads in that state in which the thread was in the function \
    itself (self) or also in what it calls (total), with Wilson's 90% interval. A thread that runs has its Python frames alone.";

/// The tables of a session without launches; nothing for others.
pub fn tables(out: &mut dyn Write, profile: &Profile, style: Style, width: usize) -> io::Result<()> {
    let Some(host) = profile.host.as_ref().filter(|host| !host.threads.is_empty()) else { return Ok(()) };
    let title = format!(
        "{} of {}, by running time, in {}{}{}",
        host.threads.len().min(THREADS),
        units::counted(host.threads.len() as u64, "thread", "threads"),
        units::time(host.span_ns),
        only_process(host),
        left_out(profile)
    );
    let legend = format!("{LEGEND_OF_THREADS}{}", rate(profile));
    writeln!(out)?;
    write(out, &title, &threads(profile, host), &legend, style, width)?;
    functions(out, profile, style, width)
}

/// How many threads there were beside those that were sampled.
fn left_out(profile: &Profile) -> String {
    let left_out = profile.host_sampling.as_ref().map_or(0, HostSampling::threads_left_out);
    match left_out {
        0 => String::new(),
        more => format!(" ({} more, on average, were not sampled: too many)", units::count(more)),
    }
}

/// How many of the wished samples were taken, where that were fewer.
fn rate(profile: &Profile) -> String {
    let taken = profile.host_sampling.as_ref().map(|sampling| (sampling, sampling.part_taken()));
    match taken.filter(|&(_, part)| part < WISHED) {
        None => String::new(),
        Some((sampling, part)) => format!(
            " Each thread was sampled {} times, which is {} of what was wished: sampling takes at most 3% of a \
             processor, and waits where the machine is busy.",
            units::count(sampling.rounds),
            units::share(part)
        ),
    }
}

fn threads(profile: &Profile, host: &HostProfile) -> Table {
    let several = processes(host) > 1;
    let mut columns = vec![("thread", Align::Left)];
    columns.extend(several.then_some(("process", Align::Left)));
    columns.extend([("samplesᵐ", Align::Optional), ("runsᵐ", Align::Right), ("mostly at", Align::Flexible)]);
    let mut table = Table::new(&columns);
    for (number, thread) in host.threads.iter().enumerate().take(THREADS) {
        let mostly = profile.host_places(|one| one.thread == number).into_iter().next();
        let mut cells = vec![format!("{} ({})", thread.name, thread.tid)];
        cells.extend(several.then(|| process(thread)));
        cells.extend([
            units::count(thread.samples),
            units::share(thread.running_ns / thread.sampled_ns.max(1.0)),
            mostly.map_or_else(String::new, |(place, _)| place),
        ]);
        table.row(cells);
    }
    table
}

/// How many processes were watched.
pub fn processes(host: &HostProfile) -> usize {
    host.threads.iter().map(|thread| thread.pid).gathered::<BTreeSet<_>>().len()
}

/// The process and its interpreter, where there is one process.
fn only_process(host: &HostProfile) -> String {
    let first = host.threads.first().filter(|_| processes(host) == 1);
    first.map_or_else(String::new, |thread| format!(": {}", process(thread)))
}

/// The process, with its interpreter.
fn process(thread: &HostThread) -> String {
    let python = if thread.python.is_empty() { String::new() } else { format!(", Python {}", thread.python) };
    format!("{} ({}{python})", thread.process, thread.pid)
}

fn functions(out: &mut dyn Write, profile: &Profile, style: Style, width: usize) -> io::Result<()> {
    let mut states = profile.host_functions();
    let all: f64 = states.iter().map(|state| state.time_ns).sum();
    states.retain(|state| state.time_ns >= LEAST * all && !state.functions.is_empty());
    // Running threads first: they cost time, while waiting may be intended.
    states.order_by_key(|state| state.state);
    let mut table = Table::new(&[
        ("the thread", Align::Left),
        ("function", Align::Flexible),
        ("self", Align::Right),
        ("total", Align::Right),
    ]);
    for state in &states {
        let mut name = state.state.in_words();
        for function in told(&state.functions) {
            let shares = [of(&function.self_share), share(&function.total_share)];
            table.row([name.into(), in_words(function)].into_iter().chain(shares).collect());
            name = "";
        }
    }
    let samples: u64 = states.iter().map(|state| state.samples).fold(0, u64::saturating_add);
    let title = format!("Host functions ({})", units::counted(samples, "sample", "samples"));
    if states.is_empty() { Ok(()) } else { write(out, &title, &table, LEGEND, style, width) }
}
