//! The messages of `apex run` after its program has ended, and its exit status.

use super::child::end_like;
use super::record::Recorded;
use super::{Args, to_hub, tuned, uncaptured};
use crate::output::{self, Color};
use crate::text::Style;
use crate::{exit, loaded, on_enough_stack, report, session, units};
use apex_trace::{Headers, Session};
use apex_view::Loaded;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Says what was captured, or loudly that nothing was; then ends as the program did.
pub(super) fn conclude(recorded: &mut Recorded, args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let failed_to_read = |error: anyhow::Error| output::remark(output::causes(&error));
    let agent = recorded.agent.take();
    let is_brief = args.quiet && !args.report && !args.recording.check && agent.is_none();
    if is_brief && tell_losses(&recorded.session) {
        stay(recorded);
        end_like(recorded.status);
    }
    let session = &recorded.session;
    if let Ok(loaded) = on_enough_stack(|| loaded::just_recorded(session)).map_err(failed_to_read) {
        let captured = summarize(&loaded, recorded, args);
        if captured && args.report {
            if let Err(error) = crate::knowledge::install(&[]) {
                output::remark(format!("{error:#}"));
            }
            let style = Style { color: color.on_stderr() };
            // Lost with the terminal, it can be had again with `apex report`.
            let _ = report::write(&mut io::stderr(), &loaded, style, output::width_of_stderr());
        }
        if let Some(agent) = agent {
            to_hub::finish(agent, &loaded);
        }
        stay(recorded);
        if is_empty(&loaded)
            && let Some(fresh) = recorded.fresh.take()
        {
            fresh.discard_all();
        }
        if !captured && args.require_capture && recorded.status.success() {
            return Ok(ExitCode::from(exit::NOTHING_CAPTURED));
        }
        if args.recording.check && recorded.status.success() && !loaded.profile.defects.is_empty() {
            return Ok(ExitCode::from(exit::DEFECTS));
        }
    }
    end_like(recorded.status)
}

/// Whether a session has nothing to report: no record, and no word about why there is none.
fn is_empty(loaded: &Loaded) -> bool {
    let recorder = &loaded.profile.recorder;
    let is_silent = recorder.records == 0 && recorder.lost() == 0 && recorder.problems.is_empty();
    let refused = loaded.session.meta.iter().any(|meta| !meta.universal.is_empty());
    is_silent && !refused && loaded.profile.defects.is_empty()
}

/// Has the dashboard stay, if there is one, as long as somebody may look at it.
fn stay(recorded: &Recorded) {
    if let Some((dashboard, signals)) = &recorded.shown {
        dashboard.stay(signals);
    }
}

/// Says what was lost of a session, without reading its records: all that `--quiet` wants to know.
/// False if the session has no records or cannot be read; then nothing was said.
fn tell_losses(session: &Path) -> bool {
    let Ok(headers) = Headers::read(session) else { return false };
    if !headers.has_records {
        return false;
    }
    let problems: Vec<_> = headers.session.problems.iter().map(ToString::to_string).collect();
    loaded::tell_problems(&problems);
    let waiting = headers.session.processes.iter().map(|process| (process.pid, process.queue_waiting));
    tell_lost(headers.lost(), &headers.session, waiting);
    true
}

/// Says how many records were lost and why, and how many queued calls, by process, were not made.
fn tell_lost(records: u64, session: &Session, not_made: impl Iterator<Item = (u32, u64)>) {
    if records > 0 {
        let causes = session.causes_of_loss().into_iter().collect::<Vec<_>>().join("; ");
        output::remark(format!("{} RECORDS WERE LOST: {causes}", units::count(records)));
    }
    for (pid, calls) in not_made.filter(|&(_, calls)| calls > 0) {
        output::remark(format!(
            "{} NOT MADE: process {pid} ended before the queue of --fast could make {}",
            units::counted(calls, "QUEUED CALL WAS", "QUEUED CALLS WERE"),
            if calls == 1 { "it" } else { "them" },
        ));
    }
}

/// The line at the end, or the warning that nothing was captured. Returns whether something was.
fn summarize(loaded: &Loaded, recorded: &Recorded, args: &Args) -> bool {
    let profile = &loaded.profile;
    let lost = profile.recorder.lost();
    if profile.recorder.records == 0 {
        let is_kept = recorded.fresh.is_none() || !is_empty(loaded);
        for line in uncaptured::message(&args.command, loaded, recorded, is_kept) {
            output::remark(line);
        }
        return false;
    }
    let waiting =
        profile.processes.iter().filter_map(|process| Some((process.pid, process.queue.as_ref()?.not_made)));
    tell_lost(lost, &loaded.session, waiting);
    tuned::tell(profile).into_iter().for_each(output::remark);
    let refused = loaded.session.meta.iter().flat_map(|meta| &meta.universal);
    refused
        .map(apex_view::text::universal::sentence)
        .for_each(|told| output::remark(format!("--universal: {told}")));
    let told = loaded.session.meta.iter().flat_map(|meta| &meta.capability).cloned();
    apex_view::text::capability::sentences(&told.collect::<Vec<_>>())
        .into_iter()
        .for_each(|told| output::remark(format!("--capability: {told}")));
    if !args.quiet {
        let session = session::shown(&recorded.session);
        let shared = args.output.as_deref().filter(|output| apex_trace::is_joined(output));
        let named = match (shared, &args.output) {
            (Some(shared), _) => format!(" --ranks {}", session::shown(shared)),
            (None, Some(_)) => format!(" {session}"),
            (None, None) => String::new(),
        };
        output::remark(format!(
            "{} of {}, {} dropped, in {session}; read it with `apex report{named}`",
            apex_view::text::verdict::launches(profile),
            units::counted(profile.kernels.len() as u64, "kernel", "kernels"),
            units::count(lost),
        ));
    }
    true
}
