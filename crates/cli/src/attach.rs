//! `apex attach`: watches a running process from outside.
//!
//! Two threads of `apex` take samples, as under `apex run`: one of the process's call stacks, one
//! of the state of the machine.
//!
//! Invariants: the process is not stopped, gets no signal, and runs no code of APEX; therefore its
//! launches are not seen. A process that cannot be watched is refused before a session is made.

mod target;

use crate::interrupt;
use crate::output::{self, Color};
use crate::report;
use crate::run::{host_stacks, machine, real_ns};
use crate::session::{self, Fresh};
use crate::text::Style;
use crate::{loaded, units};
use anyhow::bail;
use apex_host_stacks::HostStacks;
use apex_ordered::Gather;
use apex_trace::checksums;
use apex_trace::control::{MappedControl, Settings};
use apex_trace::meta::{self, Host, Meta};
use clap::builder::FalseyValueParser;
use host_stacks::Rate;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use target::Target;

/// Maximum value of `--seconds`.
const MOST_SECONDS: f64 = 1e6;
/// Time between two looks at whether the process still runs.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Watches a process that runs already: what its threads do on the host, and the GPUs. Launches are
/// not seen.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex attach 4711                          until the process ends, or Ctrl-C
  apex attach 4711 --seconds 10 --report    for ten seconds, then print the report
  apex attach 4711 -s 5 -o stuck            into a session of that name
  apex report stuck                         threads, and where they were
  apex report --html stuck.html stuck
  apex export --format speedscope -o stuck.json stuck

It records the call stacks of the process's threads and of the processes that it started (Python and compiled code), CPU and memory \
of the machine, and, if one of these processes has loaded libcuda, NVML's readings of all GPUs: power, clocks, use, memory. It does \
not see launches, copies, allocations of GPU memory, steps, or why a GPU is idle: for these, start the program under `apex run`.

Reading another process needs the permission to trace it: the same user and kernel.yama.ptrace_scope 0, or CAP_SYS_PTRACE \
(sudo). Exits with status 0 if something was sampled, also after Ctrl-C, and with 125 if not.")]
pub struct Args {
    /// Identifier of the process
    #[arg(value_name = "PID")]
    pid: u32,
    /// Seconds to watch [default: until the process ends, or Ctrl-C]
    #[arg(short, long, value_name = "N", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Session folder to create [default: apex-attach-DATE-TIME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Samples per second of each host thread's call stack
    #[arg(long, value_name = "HZ", default_value = "100")]
    host_stacks: Rate,
    /// Do not sample the machine: power, clocks, temperature, memory, CPU usage
    #[arg(long, value_parser = FalseyValueParser::new())]
    no_machine: bool,
    /// Print the report on stderr at the end
    #[arg(long, value_parser = FalseyValueParser::new())]
    report: bool,
    /// Print only errors on stderr
    #[arg(short, long, value_parser = FalseyValueParser::new())]
    quiet: bool,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.trim().parse().ok().filter(|seconds: &f64| (0.0..=MOST_SECONDS).contains(seconds));
    let positive = seconds.filter(|&seconds| seconds > 0.0).map(Duration::from_secs_f64);
    positive.ok_or_else(|| format!("`{text}` is no number of seconds; write one such as 10 or 0.5"))
}

/// Runs `apex attach`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    if args.host_stacks == Rate::Off {
        bail!("--host-stacks off leaves nothing to watch: name a number of samples in a second");
    }
    let target = Target::of(args.pid)?;
    let fresh = Fresh::make(args.output.as_deref(), OsStr::new("attach"))?;
    let mut meta = describe(&target);
    meta.store(&fresh.folder)?;
    let settings = Settings { recording: false, ..Settings::default() };
    let control = MappedControl::create_in(&fresh.folder, settings)?;
    if !args.quiet {
        let until = args.seconds.map_or("until it ends, or Ctrl-C".to_owned(), |seconds| {
            format!("for {}, or until Ctrl-C", units::time(seconds.as_nanos() as f64))
        });
        output::remark(format!("watching {} {until}; its launches are not seen", target.in_words()));
    }
    let stop = interrupt::stop_on_signals();
    let pid = args.pid;
    let machine = || machine::start_when(&fresh.folder, pid, None, cuda_watch(target.clone()));
    let sampler = (!args.no_machine).then(machine).flatten();
    let stacks = host_stacks::start_for(&fresh.folder, args.host_stacks, None, move || vec![pid]);
    wait(&target, args.seconds, || stop.load(Ordering::Relaxed));
    host_stacks::finish(stacks);
    machine::finish(sampler);
    meta.ended_real_ns = Some(real_ns());
    meta.store(&fresh.folder)?;
    // Without checksums, the session is read unchecked, as older sessions are.
    if checksums::store(&fresh.folder, session::has_checksum).is_ok() {
        control.has_checksums.store(1, Ordering::Relaxed);
    }
    conclude(args, &target, fresh, color)
}

/// Returns a check for whether the process uses CUDA. The check reads the mappings of all its
/// processes, so it does so often at first and then only every 16th time.
fn cuda_watch(target: Target) -> impl FnMut() -> bool {
    let mut looks = 0_u32;
    move || {
        looks = looks.wrapping_add(1);
        (looks.is_power_of_two() || looks.is_multiple_of(16)) && target.uses_cuda()
    }
}

/// Returns the session's description of the process.
fn describe(target: &Target) -> Meta {
    Meta {
        schema: meta::SCHEMA,
        apex_version: env!("CARGO_PKG_VERSION").into(),
        command: target.command.clone(),
        cwd: target.folder.clone(),
        pid: Some(target.pid),
        started_real_ns: real_ns(),
        ended_real_ns: None,
        exit: None,
        device: "host".into(),
        timing: "off".into(),
        host: Host::here(),
        rank: None,
        ranks: std::collections::BTreeMap::new(),
        universal: Vec::new(),
        capability: Vec::new(),
        imported: Vec::new(),
        checked: false,
        attached: true,
        watched_by: Some(std::process::id()),
    }
}

/// Waits until the process ends, the time is over, or a signal arrives.
fn wait(target: &Target, most: Option<Duration>, is_stopped: impl Fn() -> bool) {
    let end = most.and_then(|most| Instant::now().checked_add(most));
    while !is_stopped() && target.runs() {
        let left = end.map_or(LOOK_EVERY, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// Says what was sampled. If nothing was, removes the session and says why.
fn conclude(args: &Args, target: &Target, fresh: Fresh, color: Color) -> anyhow::Result<ExitCode> {
    let folder = fresh.folder.path().to_owned();
    let stacks = HostStacks::read(&folder);
    if stacks.spans.is_empty() {
        let why = match stacks.head.lost.first().or(stacks.problems.first()) {
            Some(why) => why.clone(),
            None if !target.runs() => "it ended before the first sample".to_owned(),
            None => "the time was too short for a sample: watch it longer with --seconds".to_owned(),
        };
        fresh.discard_all();
        bail!("nothing was sampled of process {}: {why}", target.pid);
    }
    if !args.quiet {
        output::remark(summary(&stacks, &folder, args.output.is_some()));
    }
    if args.report {
        let loaded = loaded::just_recorded(&folder)?;
        // An error is ignored: `apex report` can write the report again.
        let style = Style { color: color.on_stderr() };
        let _ = report::write(&mut std::io::stderr(), &loaded, style, output::width_of_stderr());
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(stacks: &HostStacks, folder: &Path, is_named: bool) -> String {
    let threads = stacks.spans.iter().map(|span| {
        let (process, thread) = stacks.thread(span);
        (process.pid, thread.tid)
    });
    let threads = threads.gathered::<BTreeSet<_>>().len() as u64;
    let shown = session::shown(folder);
    let named = if is_named { format!(" {shown}") } else { String::new() };
    format!(
        "{} of {}, in {shown}; read it with `apex report{named}`",
        units::counted(stacks.counters.samples, "sample", "samples"),
        units::counted(threads, "thread", "threads"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_a_positive_number() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "ten", "", "inf", "NaN", "1e7"] {
            assert!(parse_seconds(wrong).is_err_and(|why| why.contains("such as 10")), "{wrong}");
        }
    }
}
