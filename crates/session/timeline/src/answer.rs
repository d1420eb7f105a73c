//! Answers about a timeline, as JSON (docs/api.md): the questions, and the common part of all
//! answers.

mod launch;
mod part;

use apex_ordered::Gather;
use std::collections::{BTreeMap, BTreeSet};

use apex_conventions::documents::{Document, Envelope};
use serde::Serialize;

use crate::event::{Basis, END, Event};
use crate::file::Damaged;
use crate::store::Timeline;
use crate::tables::{LaneKind, LaneRow};

/// Columns of a lane.
pub const MOST_COLUMNS: usize = 4096;
/// Single events of a lane.
pub const MOST_EVENTS: usize = 2000;
/// Lanes with data, where none are named.
const MOST_LANES: usize = 64;
/// The part of a timeline that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The start, in nanoseconds since the session's start; the session's start if `None`.
    pub from: Option<u64>,
    /// The end; that of the last event if `None`.
    pub to: Option<u64>,
    /// Columns at most.
    pub columns: usize,
    /// Lanes to give data of; as many as can be if empty.
    pub lanes: Vec<String>,
    /// Ranks or identifiers of processes; all of them if empty.
    pub ranks: Vec<u32>,
    /// Whether columns hold the time alone.
    pub only_time: bool,
    /// The number of events up to which a lane has events in place of columns.
    pub events: usize,
}

/// The event that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedLaunch {
    /// Its lane.
    pub lane: String,
    /// Nanoseconds since the session's start.
    pub at: u64,
    /// The event beside that moment; the one that runs then if `None`.
    pub step: Option<Step>,
}

/// The choice of an event of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The one that begins next after the moment.
    Next,
    /// The one that begins last before it.
    Previous,
}

/// A question about a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A part of the timeline, as [`Look::answer`](crate::Look::answer) answers it.
    Part(Asked),
    /// The sums of a part, as [`Timeline::span`] answers it.
    Span(Asked),
    /// One event, as [`Timeline::launch`] answers it.
    Launch(AskedLaunch),
}

/// The reason why there is no timeline to answer from.
#[derive(Clone, Debug, PartialEq)]
pub enum Missing {
    /// The first one is being made: the share of it that is done, from 0 to 1.
    Building(f64),
    /// The session cannot be read, or its index not be written: the reason.
    Unreadable(String),
    /// The session is gone: the message.
    Deleted(String),
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The timeline has no lane or rank of that name.
    Nothing(String),
    /// The index must be rebuilt.
    Damaged,
}

impl From<Damaged> for Unanswered {
    fn from(Damaged: Damaged) -> Self {
        Self::Damaged
    }
}

/// The first fields of each answer.
#[derive(Serialize)]
struct Head {
    state: &'static str,
    message: Option<String>,
    version: String,
}

impl Head {
    fn of(timeline: &Timeline) -> Self {
        Self { state: "ready", message: None, version: timeline.version() }
    }

    fn without(missing: &Missing) -> Self {
        let (state, message) = match missing {
            Missing::Building(_) => ("building", None),
            Missing::Unreadable(why) => ("unreadable", Some(why)),
            Missing::Deleted(why) => ("deleted", Some(why)),
        };
        Self { state, message: message.cloned(), version: String::new() }
    }
}

impl Question {
    /// The answer while there is no timeline: its `state` says why.
    pub fn without(&self, missing: &Missing) -> String {
        match self {
            Self::Part(_) => part::whole_without(missing),
            Self::Span(_) => part::span_without(missing),
            Self::Launch(_) => launch::without(missing),
        }
    }
}

fn json(document: Document, content: &impl Serialize) -> String {
    serde_json::to_string(&Envelope::of(document, content)).expect("plain data")
}

fn id_of(place: u32, row: &LaneRow) -> String {
    format!("{}{place}", row.kind.letter())
}

/// Returns the basis of an event's duration: the stretches of a device are the model's.
fn basis(row: &LaneRow, event: &Event) -> Basis {
    if row.kind == LaneKind::Device { Basis::Modelled } else { event.basis }
}

impl Timeline {
    /// Returns a version that changes with the data.
    pub(crate) fn version(&self) -> String {
        format!("{:016x}", self.identity)
    }

    /// Returns the end of the last event.
    fn end(&self) -> u64 {
        self.tables.lanes.iter().map(|lane| lane.index.span.1).max().unwrap_or(0)
    }

    fn part(&self, asked: &Asked) -> (u64, u64) {
        let from = asked.from.unwrap_or(0).min(END - 1);
        (from, asked.to.unwrap_or_else(|| self.end()).clamp(from + 1, END))
    }

    /// The lanes of the ranks that are asked for, in their order.
    fn rows(&self, asked: &Asked) -> impl Iterator<Item = (u32, &LaneRow)> {
        let rows = self.tables.order.iter().map(|&place| (place, &self.tables.lanes[place as usize]));
        rows.filter(|(_, row)| {
            let process = &self.tables.processes[row.process];
            asked.ranks.is_empty() || asked.ranks.iter().any(|&rank| process.is(rank))
        })
    }

    fn row(&self, id: &str) -> Result<(u32, &LaneRow), Unanswered> {
        let unknown = || {
            let id = apex_untrusted::printable(id);
            Unanswered::Nothing(format!("the timeline has no lane {id}: an answer without `lane` lists them"))
        };
        let place = id.get(1..).and_then(|place| place.parse::<u32>().ok()).ok_or_else(unknown)?;
        let row = self.tables.lanes.get(place as usize).filter(|row| id_of(place, row) == id);
        Ok((place, row.ok_or_else(unknown)?))
    }

    /// The lanes to give data of.
    fn chosen(&self, asked: &Asked) -> Result<BTreeSet<u32>, Unanswered> {
        let unknown = |rank: &&u32| !self.tables.processes.iter().any(|process| process.is(**rank));
        if let Some(rank) = asked.ranks.iter().find(unknown) {
            let known: Vec<String> =
                self.tables.processes.iter().filter_map(|process| Some(process.rank?.to_string())).collect();
            return Err(Unanswered::Nothing(format!(
                "the session has no rank {rank}: it has {}",
                known.join(", ")
            )));
        }
        if asked.lanes.is_empty() {
            return Ok(self.rows(asked).take(MOST_LANES).map(|(place, _)| place).collect());
        }
        asked.lanes.iter().take(MOST_LANES).map(|id| Ok(self.row(id)?.0)).collect()
    }

    fn name(&self, name: u32) -> Option<&crate::tables::Name> {
        self.tables.names.get((name as usize).checked_sub(1)?)
    }

    fn names(&self, used: BTreeSet<u32>) -> BTreeMap<u32, &str> {
        used.into_iter().filter_map(|name| Some((name, self.name(name)?.text.as_str()))).gathered()
    }
}
