//! One event with all that is known of it.

use apex_conventions::documents::TIMELINE_LAUNCH;
use serde::Serialize;

use super::{AskedLaunch, Head, Missing, Step, Unanswered, basis, id_of, json};
use crate::event::{Basis, Event, off_ns};
use crate::file::Damaged;
use crate::store::Timeline;
use crate::tables::{Frame, Kernel, KernelRow, LaneKind, LaneRow, Process};

/// Half the width of a 90% interval, in standard deviations.
const NINETY_PERCENT: f64 = 1.645;

#[derive(Serialize)]
struct Answer<'t> {
    #[serde(flatten)]
    head: Head,
    event: Option<Launch<'t>>,
}

#[derive(Serialize)]
struct Launch<'t> {
    lane: String,
    #[serde(rename = "use")]
    what: &'static str,
    name: Option<&'t str>,
    full_name: Option<&'t str>,
    start_ns: Figure,
    duration_ns: Figure,
    bytes: Option<u64>,
    call: Option<Call<'t>>,
    kernel: Option<ShownKernel<'t>>,
    stack: Option<Stack<'t>>,
    range: Option<&'t str>,
    collective: Option<Collective>,
}

/// A value in nanoseconds that says where it comes from.
#[derive(Serialize)]
struct Figure {
    value: u64,
    kind: &'static str,
    low: Option<u64>,
    high: Option<u64>,
}

#[derive(Serialize)]
struct Call<'t> {
    name: &'t str,
    lane: String,
    pid: u32,
    rank: Option<usize>,
    thread: Option<u32>,
    start_ns: u64,
    duration_ns: Option<u64>,
    /// The time from the call's return to the start of the work.
    return_to_work_ns: Option<u64>,
}

#[derive(Serialize)]
struct ShownKernel<'t> {
    #[serde(flatten)]
    row: &'t KernelRow,
    prediction: Option<Prediction>,
}

#[derive(Serialize)]
struct Prediction {
    duration_ns: Figure,
}

#[derive(Serialize)]
struct Stack<'t> {
    of_this_launch: bool,
    frames: &'t [Frame],
}

#[derive(Serialize)]
struct Collective {
    group: u32,
    ordinal: u64,
    ranks: Vec<OfRank>,
}

/// The same collective on another rank.
#[derive(Serialize)]
struct OfRank {
    rank: Option<usize>,
    pid: u32,
    lane: String,
    start_ns: u64,
    duration_ns: u64,
}

/// The answer where there is no timeline: no event.
pub fn without(missing: &Missing) -> String {
    json(TIMELINE_LAUNCH, &Answer { head: Head::without(missing), event: None })
}

impl Timeline {
    /// One event; where there is none, a message says so.
    ///
    /// # Errors
    /// If there is no such lane, or the index is damaged.
    pub fn launch(&self, asked: &AskedLaunch) -> Result<String, Unanswered> {
        let (place, row) = self.row(&asked.lane)?;
        let lane = self.lane(row);
        let found = match asked.step {
            None => lane.event_at(asked.at)?,
            Some(step) => lane.step(asked.at, step == Step::Next)?,
        };
        let head = Head::of(self);
        let Some((event, number)) = found else {
            let when = match asked.step {
                None => "at",
                Some(Step::Next) => "after",
                Some(Step::Previous) => "before",
            };
            let message = Some(format!("The lane {} has no event {when} this moment.", asked.lane));
            return Ok(json(TIMELINE_LAUNCH, &Answer { head: Head { message, ..head }, event: None }));
        };
        let name = self.name(event.name);
        let kernel = name.and_then(|name| self.tables.kernels.get(name.kernel?));
        let call = self.call(place, row, &event)?;
        let of_call = call.as_ref().and_then(|(_, call)| *call);
        let range = of_call.map_or(event.range, |call| call.range);
        let bytes = of_call.map_or(event.bytes, |call| call.bytes);
        let range = (range as usize).checked_sub(1).and_then(|range| self.tables.ranges.get(range));
        let event = Launch {
            lane: id_of(place, row),
            what: event.what.name(),
            name: name.map(|name| name.text.as_str()),
            full_name: kernel.map(|kernel| kernel.name.as_str()),
            start_ns: Figure::start(row, &event),
            duration_ns: Figure::duration(row, &event, kernel),
            bytes: (bytes > 0).then_some(bytes),
            call: call.map(|(call, _)| call),
            kernel: kernel.map(ShownKernel::of),
            stack: kernel
                .filter(|kernel| !kernel.frames.is_empty())
                .map(|kernel| Stack { of_this_launch: false, frames: &kernel.frames }),
            range: range.map(String::as_str),
            collective: number
                .zip(row.group)
                .map(|(ordinal, group)| self.collective(place, &event, group, ordinal))
                .transpose()?,
        };
        Ok(json(TIMELINE_LAUNCH, &Answer { head, event: Some(event) }))
    }

    /// The call of an event: the event itself where it is one.
    fn call(
        &self,
        place: u32,
        row: &LaneRow,
        event: &Event,
    ) -> Result<Option<(Call<'_>, Option<Event>)>, Damaged> {
        let lane = match row.kind {
            LaneKind::Thread => place,
            LaneKind::Stream if event.call_lane > 0 => event.call_lane - 1,
            _ => return Ok(None),
        };
        let Some(thread) = self.tables.lanes.get(lane as usize) else { return Ok(None) };
        let found = self.lane(thread).event_at(event.call_start)?;
        let call = found.map(|(call, _)| call).filter(|call| call.start == event.call_start);
        let process = &self.tables.processes[thread.process];
        let name = call.and_then(|call| self.name(call.name));
        let returned = call.filter(|_| row.kind == LaneKind::Stream).map(|call| call.end);
        Ok(Some((
            Call {
                name: name.map_or("unknown", |name| {
                    if name.kernel.is_some() { "kernel launch" } else { &name.text }
                }),
                lane: id_of(lane, thread),
                pid: process.pid,
                rank: process.rank,
                thread: thread.thread,
                start_ns: event.call_start,
                duration_ns: call.map(|call| call.duration()),
                return_to_work_ns: returned.map(|returned| event.start.saturating_sub(returned)),
            },
            call,
        )))
    }

    /// Finds a collective on the other ranks: it has the same number on the same group of theirs.
    fn collective(&self, place: u32, event: &Event, group: u32, ordinal: u64) -> Result<Collective, Damaged> {
        let name = self.name(event.name).map(|name| &name.text);
        let mut ranks = Vec::new();
        for (other, row) in (0u32..).zip(&self.tables.lanes) {
            if other == place || row.group != Some(group) {
                continue;
            }
            let found = self.lane(row).collective(ordinal)?;
            let Some(found) = found.filter(|found| self.name(found.name).map(|name| &name.text) == name)
            else {
                continue;
            };
            let Process { rank, pid, .. } = self.tables.processes[row.process];
            let (start_ns, duration_ns) = (found.start, found.duration());
            ranks.push(OfRank { rank, pid, lane: id_of(other, row), start_ns, duration_ns });
        }
        Ok(Collective { group, ordinal, ranks })
    }
}

impl Figure {
    fn measured(value: u64) -> Self {
        Self { value, kind: "measured", low: None, high: None }
    }

    fn around(value: u64, off: u64, least: u64) -> Self {
        let low = value.saturating_sub(off).max(least).min(value);
        Self { value, kind: "predicted", low: Some(low), high: Some(value.saturating_add(off)) }
    }

    fn of(estimate: [f64; 3]) -> Self {
        let [value, low, high] = estimate.map(|ns| ns.max(0.0).round() as u64);
        Self { value, kind: "predicted", low: Some(low), high: Some(high) }
    }

    /// Returns the start of an event: calls are measured; work is modelled, and does not begin
    /// before its call.
    fn start(row: &LaneRow, event: &Event) -> Self {
        match row.kind {
            LaneKind::Thread | LaneKind::Range => Self::measured(event.start),
            LaneKind::Stream | LaneKind::Device => {
                Self::around(event.start, off_ns(event.off), event.call_start)
            }
        }
    }

    /// Returns the duration of an event: it varies as its kernel's timed launches do, if it was not
    /// timed itself.
    fn duration(row: &LaneRow, event: &Event, kernel: Option<&Kernel>) -> Self {
        let deviation = kernel.and_then(|kernel| kernel.row.timed?.deviation_ns);
        let off = deviation.map_or(off_ns(event.off), |deviation| (NINETY_PERCENT * deviation).ceil() as u64);
        match basis(row, event) {
            Basis::Measured => Self::measured(event.duration()),
            Basis::Modelled => Self::around(event.duration(), off, 0),
            Basis::Unknown => Self { low: Some(0), high: None, ..Self::around(event.duration(), 0, 0) },
        }
    }
}

impl<'t> ShownKernel<'t> {
    fn of(kernel: &'t Kernel) -> Self {
        let prediction = kernel.prediction.map(|estimate| Prediction { duration_ns: Figure::of(estimate) });
        Self { row: &kernel.row, prediction }
    }
}
