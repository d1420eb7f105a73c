//! The filters that select a part of a session.

use crate::Error;
use apex_profile::{KernelPattern, PhaseKind, Profile, Selection, origin_ns, ranks};
use apex_text::units;
use apex_trace::Session;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::Range;
use std::str::FromStr;

/// The part of a session that is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// The phase of the run; `None` for the steady state where the session has one, unless there is
    /// a window.
    pub phase: Option<Phase>,
    /// Kernels that any of these names; all kernels if empty.
    pub kernels: Vec<KernelPattern>,
    /// Calls that began in this span, nanoseconds since the session's start.
    pub window: Option<Range<u64>>,
    /// Ranks, or identifiers of processes; all processes if empty.
    pub ranks: Vec<u32>,
}

/// A part of a program's run, found from the repetition of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the first iteration.
    Startup,
    /// First iterations, slower than later ones.
    Warmup,
    /// Iterations.
    Steady,
    /// The whole run.
    All,
}

impl Phase {
    /// All phases, in the order of the run.
    pub const ALL: [Self; 4] = [Self::Startup, Self::Warmup, Self::Steady, Self::All];

    /// Its name as a value of `--phase`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Warmup => "warmup",
            Self::Steady => "steady",
            Self::All => "all",
        }
    }
}

impl FromStr for Phase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let phase = Self::ALL.into_iter().find(|phase| phase.name() == text);
        phase.ok_or_else(|| format!("use {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The filters of a document.
#[derive(Serialize)]
pub struct Applied<'a> {
    /// The phase; `null` for all of the run, or of the window.
    phase: Option<PhaseKind>,
    /// Names and expressions, as they were given.
    kernels: Vec<&'a str>,
    window_ns: Option<Window>,
    /// Ranks, or identifiers of processes, as they were given.
    ranks: &'a [u32],
}

/// A span of a session's time, nanoseconds after its start.
#[derive(Serialize)]
struct Window {
    from: u64,
    /// `null`: the session's end.
    to: Option<u64>,
}

impl Filters {
    /// Filters that are given in words, as options would have them.
    ///
    /// # Errors
    /// Says which word makes no sense.
    pub fn of_words(
        phase: Option<&str>,
        kernels: &[String],
        window: Option<&str>,
        ranks: Option<&str>,
    ) -> Result<Self, String> {
        let phase = phase.map(|phase| phase.parse().map_err(|error| format!("phase: {error}")));
        let kernels = kernels.iter().map(|kernel| kernel.parse().map_err(|error| format!("kernel: {error}")));
        let window =
            window.map(|window| units::parse_window(window).map_err(|error| format!("window: {error}")));
        let ranks = ranks.into_iter().flat_map(|ranks| ranks.split(','));
        let ranks =
            ranks.map(|rank| rank.parse().map_err(|_| "rank: use numbers with commas between".to_owned()));
        Ok(Self {
            phase: phase.transpose()?,
            kernels: kernels.collect::<Result<_, _>>()?,
            window: window.transpose()?,
            ranks: ranks.collect::<Result<_, _>>()?,
        })
    }

    /// The filters for a document about this phase.
    pub(crate) fn applied(&self, phase: Option<PhaseKind>) -> Applied<'_> {
        let to = |end| if end == u64::MAX { None } else { Some(end) };
        let window = |window: &Range<u64>| Window { from: window.start, to: to(window.end) };
        Applied {
            phase,
            kernels: self.kernels.iter().map(KernelPattern::text).collect(),
            window_ns: self.window.as_ref().map(window),
            ranks: &self.ranks,
        }
    }

    /// What of a session is to be read.
    ///
    /// # Errors
    /// If it has no such rank.
    pub(crate) fn selection(&self, session: &Session) -> Result<Selection, Error> {
        let known = ranks(session);
        let process = |&rank: &u32| {
            let place = known.get(rank as usize).copied();
            place.or_else(|| known.contains(&rank).then_some(rank)).ok_or(rank)
        };
        let wanted: Result<BTreeSet<u32>, u32> = self.ranks.iter().map(process).collect();
        let processes = match wanted {
            Ok(wanted) if wanted.is_empty() => None,
            Ok(wanted) => Some(wanted),
            Err(rank) => return Err(Error::Empty(format!("--rank {rank}: {}", which_ranks(&known)))),
        };
        Ok(Selection { window: self.window.clone(), processes })
    }

    /// Refuses a window in which nothing began.
    ///
    /// # Errors
    /// Says what the session's time is.
    pub(crate) fn check_window(&self, session: &Session, profile: &Profile) -> Result<(), Error> {
        let Some(window) = self.window.clone() else { return Ok(()) };
        if profile.totals.kernels_run() > 0 || !profile.calls.is_empty() || !profile.activities.is_empty() {
            return Ok(());
        }
        let origin = origin_ns(session);
        let time =
            |process: &apex_trace::Process, ticks| process.clock.monotonic_ns(ticks).saturating_sub(origin);
        let spans = session.processes.iter().filter_map(|process| {
            let (first, last) = process.span?;
            Some((time(process, first), time(process, last)))
        });
        let (first, last) = spans.fold((u64::MAX, 0), |(a, b), (first, last)| (a.min(first), b.max(last)));
        if first > last {
            return Ok(());
        }
        let [first, last] = [first, last].map(|ns| units::time(ns as f64));
        Err(Error::Empty(format!(
            "--window {}: no call began in it; the calls of the session began between {first} and {last}",
            shown_window(&window)
        )))
    }
}

fn which_ranks(known: &[u32]) -> String {
    match known {
        [] => "no process of the session launched a kernel".to_owned(),
        [one] => format!("the session has one rank, 0 (process {one})"),
        many => {
            let pids: Vec<String> = many.iter().map(ToString::to_string).collect();
            format!("the session has the ranks 0 to {} (processes {})", many.len() - 1, pids.join(", "))
        }
    }
}

pub(crate) fn shown_window(window: &Range<u64>) -> String {
    let end = |ns: u64| units::time(ns as f64);
    let to = if window.end == u64::MAX { String::new() } else { end(window.end) };
    format!("{}..{to}", end(window.start))
}
