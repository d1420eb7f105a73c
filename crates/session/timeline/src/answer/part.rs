//! A part of a timeline: lanes in columns or by their events, and what lies between two moments.

use apex_ordered::Gather;
use std::collections::{BTreeMap, BTreeSet};

use apex_conventions::documents::{TIMELINE, TIMELINE_SPAN};
use serde::Serialize;

use super::{Asked, Head, Missing, Unanswered, basis, id_of, json};
use crate::cell::{Cell, Detail};
use crate::event::What;
use crate::query::{Columns, Numbered};
use crate::store::{Look, Timeline};
use crate::tables::{LaneKind, LaneRow, Phase, Process};

/// Names that take most of a span.
const TOP: usize = 10;

#[derive(Serialize)]
struct Whole<'t> {
    #[serde(flatten)]
    head: Head,
    progress: Option<f64>,
    growing: bool,
    start_ns: u64,
    end_ns: u64,
    from_ns: u64,
    to_ns: u64,
    column_ns: u64,
    column_count: usize,
    processes: &'t [Process],
    phases: &'t [Phase],
    names: BTreeMap<u32, &'t str>,
    lanes: Vec<ShownLane<'t>>,
}

#[derive(Serialize)]
struct ShownLane<'t> {
    id: String,
    kind: LaneKind,
    process: usize,
    device: Option<&'t str>,
    device_uuid: Option<&'t str>,
    name: &'t str,
    start_ns: u64,
    end_ns: u64,
    count: u64,
    columns: Option<ShownColumns>,
    events: Option<ShownEvents>,
}

#[derive(Serialize)]
struct ShownColumns {
    time: BTreeMap<&'static str, Vec<u64>>,
    #[serde(flatten)]
    counts: Option<ShownCounts>,
}

#[derive(Serialize)]
struct ShownCounts {
    count: Vec<u64>,
    shortest_ns: Vec<Option<u64>>,
    longest_ns: Vec<Option<u64>>,
    median_ns: Vec<Option<u64>>,
    top: Vec<Option<u32>>,
    top_ns: Vec<u64>,
}

#[derive(Default, Serialize)]
struct ShownEvents {
    start_ns: Vec<u64>,
    end_ns: Vec<u64>,
    #[serde(rename = "use")]
    what: Vec<&'static str>,
    name: Vec<Option<u32>>,
    basis: Vec<&'static str>,
    collective: Vec<Option<[u64; 2]>>,
}

#[derive(Serialize)]
struct Sums<'t> {
    #[serde(flatten)]
    head: Head,
    from_ns: u64,
    to_ns: u64,
    names: BTreeMap<u32, &'t str>,
    lanes: Vec<Sum>,
}

#[derive(Serialize)]
struct Sum {
    lane: String,
    time: BTreeMap<&'static str, u64>,
    count: u64,
    shortest_ns: Option<u64>,
    longest_ns: Option<u64>,
    median_ns: Option<u64>,
    top: Vec<TopName>,
}

#[derive(Serialize)]
struct TopName {
    name: u32,
    time_ns: u64,
}

impl Look {
    /// The part of the timeline that is asked for.
    ///
    /// # Errors
    /// If there is no such lane, or the index is damaged.
    pub fn answer(&self, asked: &Asked) -> Result<String, Unanswered> {
        match &self.timeline {
            Some(timeline) => Ok(json(TIMELINE, &self.whole(timeline, asked)?)),
            None => Ok(whole_without(&self.building())),
        }
    }

    /// Returns the progress of the first timeline, while there is none.
    pub fn building(&self) -> Missing {
        Missing::Building(self.progress.unwrap_or(0.0))
    }

    fn whole<'t>(&self, timeline: &'t Timeline, asked: &Asked) -> Result<Whole<'t>, Unanswered> {
        let (from, to) = timeline.part(asked);
        let columns = Columns::of(from, to, asked.columns);
        let span = columns.span();
        let chosen = timeline.chosen(asked)?;
        let (mut names, mut lanes) = (BTreeSet::new(), Vec::new());
        for (place, row) in timeline.rows(asked) {
            let mut shown = ShownLane::of(place, row);
            if chosen.contains(&place) {
                let lane = timeline.lane(row);
                match lane.events_in(&span, asked.events)?.filter(|_| asked.events > 0) {
                    Some(events) => {
                        names.extend(events.iter().map(|(event, _)| event.name));
                        shown.events = Some(ShownEvents::of(row, &events));
                    }
                    None => {
                        let is_counted = !asked.only_time && row.kind != LaneKind::Device;
                        let detail = if is_counted { Detail::All } else { Detail::Time };
                        let cells = lane.columns(&columns, detail)?;
                        let counts = is_counted.then(|| ShownCounts::of(&cells));
                        names.extend(counts.iter().flat_map(|counts| counts.top.iter().flatten()));
                        shown.columns = Some(ShownColumns { time: time_of(&cells), counts });
                    }
                }
            }
            lanes.push(shown);
        }
        let lacks = timeline.tables.lacks.iter().chain(&timeline.note);
        let message: Vec<&str> = lacks.map(String::as_str).collect();
        let message = (!message.is_empty()).then(|| message.join(" "));
        Ok(Whole {
            head: Head { message, ..Head::of(timeline) },
            progress: self.progress,
            growing: self.growing,
            start_ns: 0,
            end_ns: timeline.end(),
            from_ns: span.start,
            to_ns: span.end,
            column_ns: 1 << columns.shift,
            column_count: columns.count,
            processes: &timeline.tables.processes,
            phases: &timeline.tables.phases,
            names: timeline.names(names),
            lanes,
        })
    }
}

/// The part of a timeline that there is not: no lane is listed.
pub fn whole_without(missing: &Missing) -> String {
    json(
        TIMELINE,
        &Whole {
            head: Head::without(missing),
            progress: if let Missing::Building(share) = missing { Some(*share) } else { None },
            growing: false,
            start_ns: 0,
            end_ns: 0,
            from_ns: 0,
            to_ns: 0,
            column_ns: 1,
            column_count: 0,
            processes: &[],
            phases: &[],
            names: BTreeMap::new(),
            lanes: Vec::new(),
        },
    )
}

/// The sums of a timeline that there is not: those of no lane.
pub fn span_without(missing: &Missing) -> String {
    let head = Head::without(missing);
    json(TIMELINE_SPAN, &Sums { head, from_ns: 0, to_ns: 0, names: BTreeMap::new(), lanes: Vec::new() })
}

impl Timeline {
    /// Returns the exact sums between two moments.
    ///
    /// # Errors
    /// If there is no such lane, or the index is damaged.
    pub fn span(&self, asked: &Asked) -> Result<String, Unanswered> {
        let (from, to) = self.part(asked);
        let chosen = self.chosen(asked)?;
        let (mut names, mut lanes) = (BTreeSet::new(), Vec::new());
        for (place, row) in self.rows(asked).filter(|(place, _)| chosen.contains(place)) {
            let cell = self.lane(row).sum(from..to)?;
            let top = cell.names().into_iter().take(TOP);
            let sum = Sum::of(id_of(place, row), row, &cell, top);
            names.extend(sum.top.iter().map(|top| top.name));
            lanes.push(sum);
        }
        let (head, names) = (Head::of(self), self.names(names));
        Ok(json(TIMELINE_SPAN, &Sums { head, from_ns: from, to_ns: to, names, lanes }))
    }
}

impl<'t> ShownLane<'t> {
    fn of(place: u32, row: &'t LaneRow) -> Self {
        Self {
            id: id_of(place, row),
            kind: row.kind,
            process: row.process,
            device: row.device.as_deref(),
            device_uuid: row.device_uuid.as_deref(),
            name: &row.name,
            start_ns: row.index.span.0,
            end_ns: row.index.span.1,
            // (How many stretches a device's time falls into says nothing.)
            count: if row.kind == LaneKind::Device { 0 } else { row.index.count },
            columns: None,
            events: None,
        }
    }
}

/// The time of columns by what it was spent on; what takes none of it is left out.
fn time_of(cells: &[Cell]) -> BTreeMap<&'static str, Vec<u64>> {
    let of = |what: What| cells.iter().map(|cell| cell.time[what.place()]).collect::<Vec<u64>>();
    let all = What::all().map(|what| (what.name(), of(what)));
    all.filter(|(_, times)| times.iter().any(|&time| time > 0)).gathered()
}

impl ShownCounts {
    fn of(cells: &[Cell]) -> Self {
        let of = |pick: fn(&Cell) -> u64| -> Vec<Option<u64>> {
            cells.iter().map(|cell| (cell.count > 0).then(|| pick(cell))).collect()
        };
        let top: Vec<_> = cells.iter().map(Cell::top).collect();
        Self {
            count: cells.iter().map(|cell| cell.count).collect(),
            shortest_ns: of(|cell| cell.shortest),
            longest_ns: of(|cell| cell.longest),
            median_ns: cells.iter().map(Cell::median).collect(),
            top: top.iter().map(|top| top.map(|(name, _)| name)).collect(),
            top_ns: top.iter().map(|top| top.map_or(0, |(_, time)| time)).collect(),
        }
    }
}

impl ShownEvents {
    fn of(row: &LaneRow, events: &[Numbered]) -> Self {
        let mut shown = Self::default();
        for (event, number) in events {
            shown.start_ns.push(event.start);
            shown.end_ns.push(event.end);
            shown.what.push(event.what.name());
            shown.name.push((event.name > 0).then_some(event.name));
            shown.basis.push(basis(row, event).name());
            shown.collective.push(number.zip(row.group).map(|(number, group)| [group.into(), number]));
        }
        shown
    }
}

impl Sum {
    fn of(lane: String, row: &LaneRow, cell: &Cell, top: impl Iterator<Item = (u32, u64)>) -> Self {
        let times = What::all().map(|what| (what.name(), cell.time[what.place()]));
        let begun = Some(cell).filter(|cell| cell.count > 0 && row.kind != LaneKind::Device);
        Self {
            lane,
            time: times.filter(|(_, time)| *time > 0).collect(),
            count: begun.map_or(0, |cell| cell.count),
            shortest_ns: begun.map(|cell| cell.shortest),
            longest_ns: begun.map(|cell| cell.longest),
            median_ns: begun.and_then(Cell::median),
            top: top.map(|(name, time_ns)| TopName { name, time_ns }).collect(),
        }
    }
}
