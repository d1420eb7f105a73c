//! `apex ctl`: steers recording while programs run, through the session's control page.

use crate::run::Timing;
use crate::{exit, output, session, units};
use anyhow::bail;
use apex_conventions::documents;
use apex_trace::control::{Control, MappedControl, TimingMode};
use apex_trace::{Process, Session};
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Switches recording or timing while the program runs.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  apex ctl status                     the newest session in this folder
  apex ctl off; apex ctl on           skip a phase of the program
  apex ctl timing all apex-train-20261121-093011

A change takes effect at the next call of each thread. Timing is calibrated at the first launch in a CUDA context: if \
timing was off then, the context stays untimed. Exits with status 1 if no program of the session is running.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Start recording
    On(Target),
    /// Stop recording; the program continues
    Off(Target),
    /// Choose which kernels are timed
    Timing {
        /// Which kernels
        mode: Timing,
        #[command(flatten)]
        target: Target,
    },
    /// Show the recording settings of the session
    Status(Target),
}

#[derive(clap::Args)]
struct Target {
    /// Session folder [default: the newest one in this folder]
    session: Option<PathBuf>,
    #[arg(long, help = format!("Print JSON (schema {})", documents::CTL), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// The state of a session's recording at this moment.
#[derive(Serialize)]
struct State {
    #[serde(serialize_with = "output::path_in_document")]
    session: PathBuf,
    recording: bool,
    timing: &'static str,
    budget_percent: f64,
    used_bytes: u64,
    max_bytes: Option<u64>,
    running: Vec<u32>,
    /// The change that this command made.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<String>,
}

/// Runs `apex ctl`.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let (Action::On(target) | Action::Off(target) | Action::Status(target) | Action::Timing { target, .. }) =
        &args.action;
    let path = session::choose(target.session.as_deref())?;
    if apex_trace::is_joined(&path) {
        let shown = apex_untrusted::shown(&path);
        bail!("each rank of {shown} is recorded on its own: name the folder of one, such as {shown}/0000");
    }
    let control = MappedControl::open(&path)?;
    let session = Session::open(&path)?;
    let running = apex_live::running(&session);
    let changes = !matches!(args.action, Action::Status(_));
    if changes && running.is_empty() {
        output::remark(format!("no program of {} is running", apex_untrusted::shown(&path)));
        return Ok(ExitCode::from(exit::NO));
    }
    let before = describe(&control);
    match args.action {
        Action::On(_) => control.set_recording(true),
        Action::Off(_) => control.set_recording(false),
        Action::Timing { mode, .. } => {
            control.set_timing(mode.into());
            let untimed = untimed_contexts(&session, &running);
            if mode != Timing::Off && untimed > 0 {
                let made = match untimed {
                    1 => "1 CUDA context stays untimed, because timing was off at its first launch".into(),
                    _ => format!(
                        "{untimed} CUDA contexts stay untimed, because timing was off at their first launch"
                    ),
                };
                output::remark(made);
            }
        }
        Action::Status(_) => {}
    }
    let after = describe(&control);
    let changed = changes.then(|| {
        if before == after { format!("already so: {after}") } else { format!("{before} → {after}") }
    });
    show(&State::of(path, &control, running, changed), target.json)
}

/// Contexts of running processes in which kernels can't be timed.
fn untimed_contexts(session: &Session, running: &[u32]) -> usize {
    let processes = session.processes.iter().filter(|process| running.contains(&process.pid));
    processes.map(Process::untimed_contexts).sum()
}

fn describe(control: &Control) -> String {
    format!("recording {}, timing {}", on_off(control.is_recording()), mode_name(control.timing_mode()))
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn mode_name(mode: TimingMode) -> &'static str {
    match mode {
        TimingMode::Off => "off",
        TimingMode::Sampled => "sampled",
        TimingMode::All => "all",
    }
}

impl State {
    fn of(session: PathBuf, control: &Control, running: Vec<u32>, changed: Option<String>) -> Self {
        let max_bytes = control.max_bytes.load(Ordering::Relaxed);
        Self {
            session,
            recording: control.is_recording(),
            timing: mode_name(control.timing_mode()),
            budget_percent: f64::from(control.budget_ppm.load(Ordering::Relaxed)) / 1e4,
            used_bytes: control.used_bytes.load(Ordering::Relaxed),
            max_bytes: (max_bytes > 0).then_some(max_bytes),
            running,
            changed,
        }
    }
}

fn show(state: &State, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        return output::json(documents::CTL, state);
    }
    output::page(|out| {
        if let Some(changed) = &state.changed {
            return writeln!(out, "{}: {changed}", apex_untrusted::shown(&state.session));
        }
        writeln!(out, "session    {}", apex_untrusted::shown(&state.session))?;
        writeln!(out, "recording  {}", on_off(state.recording))?;
        writeln!(
            out,
            "timing     {}, at most {}% of the program's time",
            state.timing, state.budget_percent
        )?;
        let limit = state.max_bytes.map_or("no limit".into(), |max| format!("limit {}", units::bytes(max)));
        writeln!(out, "size       {}, {limit}", units::bytes(state.used_bytes))?;
        let running: Vec<_> = state.running.iter().map(ToString::to_string).collect();
        writeln!(out, "running    {}", if running.is_empty() { "nothing".into() } else { running.join(", ") })
    })
}
