//! The document of `apex top --json`.

use super::watch::Looked;
use apex_advice::Advice;
use apex_machine::Summary;
use apex_profile::{Figure, Profile};
use apex_top::Look;
use apex_trace::meta::Meta;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

#[derive(Serialize)]
pub struct Document<'a> {
    /// Length of the windows, but of sessions that are shorter.
    last_ns: u64,
    sessions: Vec<Session<'a>>,
}

#[derive(Serialize)]
struct Session<'a> {
    session: String,
    /// The reason why there is no look; the members below are `null` then.
    problem: Option<&'a str>,
    /// Identifiers of the processes that run; none of a session that has ended.
    running: Option<&'a [u32]>,
    run: Option<&'a Meta>,
    window_ns: Option<Window>,
    launches_per_s: Option<Figure>,
    since_start: Option<SinceStart>,
    /// A sentence about the use of the window; `null` before the first launch.
    verdict: Option<String>,
    profile: Option<&'a Profile>,
    /// The state of the machine in the window, with everything else that ran on it.
    machine: Option<&'a Summary>,
    advice: Option<&'a Advice>,
}

/// Counts since the session's start.
#[derive(Serialize)]
struct SinceStart {
    launches: u64,
    graph_launches: u64,
    lost_records: u64,
}

impl SinceStart {
    fn of(counts: &apex_live::SinceStart) -> Self {
        let apex_live::SinceStart { launches, graph_launches, lost_records, .. } = *counts;
        Self { launches, graph_launches, lost_records }
    }
}

/// A span of a session's time, nanoseconds after its start.
#[derive(Serialize)]
struct Window {
    from: u64,
    to: u64,
}

/// The document of one look.
pub fn of(last: Duration, looked: &[Looked]) -> Document<'_> {
    let sessions = looked.iter().map(|(folder, look)| Session::of(folder, look.as_ref()));
    let last_ns = u64::try_from(last.as_nanos()).unwrap_or(u64::MAX);
    Document { last_ns, sessions: sessions.collect() }
}

impl<'a> Session<'a> {
    fn of(folder: &Path, look: Result<&'a Look, &'a String>) -> Self {
        let problem = look.err().map(String::as_str);
        let look = look.ok();
        Self {
            session: folder.to_string_lossy().into_owned(),
            problem,
            running: look.map(|look| &*look.running),
            run: look.and_then(|look| look.run.as_ref()),
            window_ns: look.map(|look| Window { from: look.window.start, to: look.window.end }),
            launches_per_s: look.and_then(Look::launches_per_s).map(Figure::measured),
            since_start: look.map(|look| SinceStart::of(&look.since_start)),
            verdict: look.and_then(Look::verdict),
            profile: look.map(|look| &look.profile),
            machine: look.and_then(|look| look.machine.as_ref()),
            advice: look.map(|look| &look.advice),
        }
    }
}
