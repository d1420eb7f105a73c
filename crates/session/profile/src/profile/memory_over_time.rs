//! Allocated memory over time: equal parts of a process's time, few enough for a picture, however
//! long the process runs and however often it allocates.
//!
//! A part shows the moment in it at which most was allocated, by the place in the program that
//! allocated it, so that no peak is lost; beside that the least, and how much was allocated.
//!
//! The place of an allocation is that of the stack that was read on it. Where none was read, it is
//! the place of other allocations of the same call and size, if all of these that were read are of
//! one place ([`MemoryOverTime::inferred`]).
//!
//! Invariant: the places of a part and its rest add up to the most of the part.

use apex_ordered::Order;
use std::collections::HashMap;
use std::ops::Range;

use serde::Serialize;

use super::stacks::NO_STACK;

/// Parts of a process's time.
pub(super) const PARTS: usize = 240;
/// Maximum number of listed places: those with most memory at the peak.
const LISTED: usize = 8;
/// Maximum number of places while records are read; further ones count for the rest.
const PLACES: usize = 1000;
/// Calls and sizes by which places are inferred.
const SIZES: usize = 4096;

/// The memory that a process had allocated on its devices, or pinned on the host, over the time in
/// which it used CUDA.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryOverTime {
    /// Index into [`super::Profile::processes`].
    pub process: usize,
    /// Whether it is pinned memory of the host. Managed memory counts to the devices.
    pub on_host: bool,
    /// The start of the first part, in nanoseconds after the process's start.
    pub start_ns: f64,
    /// Length of a part.
    pub part_ns: f64,
    /// The most bytes at once.
    pub peak_bytes: u64,
    /// The first time of the peak, in nanoseconds after the process's start.
    pub peak_at_ns: u64,
    /// Most bytes at once in each part.
    pub most: Vec<u64>,
    /// Least bytes at once in each part.
    pub least: Vec<u64>,
    /// Bytes that were allocated in each part, whether or not they were freed in it.
    pub allocated: Vec<u64>,
    /// Bytes of `most` on whose allocation no stack was read, and whose place is that of other
    /// allocations of the same call and size.
    pub inferred: Vec<u64>,
    /// The places that had most at the peak, those with most first.
    pub places: Vec<PlaceOverTime>,
    /// Bytes of `most` of all other places.
    pub rest: Vec<u64>,
}

/// The memory that one place in the program had allocated over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlaceOverTime {
    /// The place, as in [`super::SiteTotals::place`].
    pub place: String,
    /// Its bytes at the peak.
    pub peak_bytes: u64,
    /// Its bytes of [`MemoryOverTime::most`] in each part.
    pub bytes: Vec<u64>,
}

/// A place among those of a process.
type Place = u32;
/// No stack was read, and none of another allocation stands for it.
const UNREAD: Place = 0;
/// The place that stands for those beyond [`PLACES`].
const BEYOND: Place = 1;
/// No place: counts what is inferred of all places.
const INFERRED: Place = 2;

/// The places of allocations of one call and size.
enum OfSize {
    One(Place),
    Several,
}

/// An allocation while it is live.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    on_host: bool,
    bytes: u64,
    place: Place,
    is_inferred: bool,
    /// The turn in which it came, if that had begun with more than there was with it.
    below: Option<u64>,
}

/// The size of allocations, with their entry point: (entry point, bytes).
type Size = (u32, u64);

/// Memory over time, while the records of a process are read.
pub(super) struct OverTime {
    window: Range<f64>,
    names: Vec<String>,
    by_name: HashMap<String, Place>,
    by_stack: HashMap<usize, Place>,
    by_size: HashMap<Size, OfSize>,
    device: Series,
    host: Series,
}

/// One picture. A turn begins whenever the part that is read has a new most.
#[derive(Default)]
struct Series {
    /// Bytes by place.
    live: Vec<i128>,
    total: i128,
    now: Part,
    /// The changes since the part was at its maximum, by place.
    since: HashMap<Place, i128>,
    turn: u64,
    parts: Vec<Part>,
}

#[derive(Default)]
struct Part {
    most: i128,
    at: u64,
    least: i128,
    allocated: u64,
    /// Bytes at its most, of places that have any.
    places: Vec<(Place, i128)>,
}

impl OverTime {
    /// Records a window of the process's time, in nanoseconds after its start.
    pub fn of(window: Range<f64>) -> Self {
        Self {
            window,
            names: vec![NO_STACK.to_owned(), String::new(), String::new()],
            by_name: HashMap::new(),
            by_stack: HashMap::new(),
            by_size: HashMap::new(),
            device: Series::default(),
            host: Series::default(),
        }
    }

    fn part_ns(&self) -> f64 {
        (self.window.end - self.window.start) / PARTS as f64
    }

    fn series(&mut self, on_host: bool) -> &mut Series {
        if on_host { &mut self.host } else { &mut self.device }
    }

    /// The series, with its parts up to a moment; `None` if that lies after them all.
    fn series_at(&mut self, on_host: bool, at: u64) -> Option<&mut Series> {
        let (Range { start, end }, part_ns) = (self.window.clone(), self.part_ns());
        let part = if part_ns > 0.0 { ((at as f64 - start) / part_ns).max(0.0) as usize } else { 0 };
        let series = self.series(on_host);
        series.close(part.min(PARTS - 1), |part| (start + part_ns * part as f64) as u64);
        (at as f64 <= end).then_some(series)
    }

    /// Adds `change` bytes to a place; returns the series, unless it has ended.
    fn change(&mut self, placed: &Placed, change: i128, at: u64) -> Option<&mut Series> {
        let start = self.window.start;
        let series = self.series_at(placed.on_host, at)?;
        series.add(placed, change, at);
        // What comes before the first part is there when it begins.
        if (at as f64) < start {
            series.begin(start as u64);
        }
        Some(series)
    }

    /// An allocation that succeeded.
    pub fn allocate(&mut self, on_host: bool, size: Size, at: u64) -> Placed {
        let (place, is_inferred) = match self.by_size.get(&size) {
            Some(&OfSize::One(place)) => (place, true),
            _ => (UNREAD, false),
        };
        let placed = Placed { on_host, bytes: size.1, place, is_inferred, below: None };
        let is_before = (at as f64) < self.window.start;
        match self.change(&placed, size.1.into(), at) {
            Some(series) => {
                let allocated = if is_before { 0 } else { size.1 };
                series.now.allocated = series.now.allocated.saturating_add(allocated);
                Placed { below: (!series.since.is_empty()).then_some(series.turn), ..placed }
            }
            // What comes afterwards has no part in the picture.
            None => Placed { bytes: 0, ..placed },
        }
    }

    /// It is freed, or something else has its address.
    pub fn free(&mut self, placed: &Placed, at: u64) {
        self.change(placed, -i128::from(placed.bytes), at);
    }

    /// The stack of an allocation was read: it has this place among all stacks.
    pub fn read(&mut self, placed: &mut Placed, api: u32, stack: usize, name: impl FnOnce() -> String) {
        let place = self.place(stack, name);
        let size = (api, placed.bytes);
        if self.by_size.len() < SIZES || self.by_size.contains_key(&size) {
            let of_size = self.by_size.entry(size).or_insert(OfSize::One(place));
            if !matches!(of_size, OfSize::One(known) if *known == place) {
                *of_size = OfSize::Several;
            }
        }
        self.series(placed.on_host).shift(placed, place);
        (placed.place, placed.is_inferred) = (place, false);
    }

    fn place(&mut self, stack: usize, name: impl FnOnce() -> String) -> Place {
        if let Some(&place) = self.by_stack.get(&stack) {
            return place;
        }
        let name = name();
        let place = match self.by_name.get(&name) {
            Some(&place) => place,
            None if self.names.len() >= PLACES => BEYOND,
            None => {
                self.names.push(name.clone());
                let place = self.names.len() as Place - 1;
                self.by_name.insert(name, place);
                place
            }
        };
        self.by_stack.insert(stack, place);
        place
    }

    /// The pictures of a process: of its devices' memory, and of the host's.
    pub fn finish(mut self, process: usize) -> Vec<MemoryOverTime> {
        [false, true].into_iter().filter_map(|on_host| self.picture(on_host, process)).collect()
    }

    /// The picture, if anything was allocated.
    fn picture(&mut self, on_host: bool, process: usize) -> Option<MemoryOverTime> {
        let (start_ns, part_ns, end) = (self.window.start, self.part_ns(), self.window.end);
        self.series_at(on_host, end as u64);
        self.series(on_host).end();
        let parts = if on_host { &self.host.parts } else { &self.device.parts };
        let peak = parts.iter().rev().max_by_key(|part| part.most)?;
        if peak.most <= 0 || part_ns <= 0.0 {
            return None;
        }
        let listed = peak.listed();
        let of = |value: &dyn Fn(&Part) -> i128| parts.iter().map(|part| bytes(value(part))).collect();
        let listed_of = |part: &Part| listed.iter().map(|&(place, _)| part.of(place)).sum::<i128>();
        let place = |&(place, at_peak): &(Place, i128)| PlaceOverTime {
            place: self.names[place as usize].clone(),
            peak_bytes: bytes(at_peak),
            bytes: of(&|part| part.of(place)),
        };
        Some(MemoryOverTime {
            process,
            on_host,
            start_ns,
            part_ns,
            peak_bytes: bytes(peak.most),
            peak_at_ns: peak.at,
            most: of(&|part| part.most),
            least: of(&|part| part.least),
            allocated: parts.iter().map(|part| part.allocated).collect(),
            inferred: of(&|part| part.of(INFERRED)),
            places: listed.iter().map(place).collect(),
            rest: of(&|part| part.most - listed_of(part)),
        })
    }
}

/// A sum that a damaged file may have made absurd.
fn bytes(sum: i128) -> u64 {
    sum.clamp(0, u64::MAX.into()) as u64
}

impl Part {
    fn of(&self, place: Place) -> i128 {
        let at = self.places.binary_search_by_key(&place, |&(place, _)| place);
        at.map_or(0, |at| self.places[at].1)
    }

    /// The places to tell if this is the peak.
    fn listed(&self) -> Vec<(Place, i128)> {
        let can_be_listed = |(place, _): &&(Place, i128)| ![BEYOND, INFERRED].contains(place);
        let mut listed: Vec<(Place, i128)> = self.places.iter().filter(can_be_listed).copied().collect();
        listed.order_by_key(|&(place, bytes)| (-bytes, place));
        listed.truncate(LISTED);
        listed
    }
}

impl Series {
    /// A part begins.
    fn begin(&mut self, at: u64) {
        self.now = Part { most: self.total, least: self.total, at, ..Part::default() };
        self.since.clear();
        self.turn += 1;
    }

    /// Ends the parts before this one; `begins` says when each begins.
    fn close(&mut self, part: usize, begins: impl Fn(usize) -> u64) {
        while self.parts.len() < part {
            self.end();
            self.begin(begins(self.parts.len()));
        }
    }

    /// Ends the part.
    fn end(&mut self) {
        let at_most = |(place, &live): (usize, &i128)| {
            let place = place as Place;
            (place, live - self.since.get(&place).copied().unwrap_or(0))
        };
        let places = self.live.iter().enumerate().map(at_most).filter(|&(_, bytes)| bytes != 0);
        self.now.places = places.collect();
        self.parts.push(std::mem::take(&mut self.now));
    }

    /// Adds `change` bytes to a place.
    fn add(&mut self, placed: &Placed, change: i128, at: u64) {
        self.total += change;
        let inferred = placed.is_inferred.then_some(INFERRED);
        for place in [placed.place].into_iter().chain(inferred) {
            *self.live(place) += change;
            *self.since.entry(place).or_default() += change;
        }
        self.now.least = self.now.least.min(self.total);
        if self.total > self.now.most {
            (self.now.most, self.now.at) = (self.total, at);
            self.since.clear();
            self.turn += 1;
        }
    }

    fn live(&mut self, place: Place) -> &mut i128 {
        let at = place as usize;
        if self.live.len() <= at {
            self.live.resize(at + 1, 0);
        }
        &mut self.live[at]
    }

    /// An allocation is of another place than was thought.
    fn shift(&mut self, placed: &Placed, to: Place) {
        let bytes = i128::from(placed.bytes);
        let inferred = if placed.is_inferred { bytes } else { 0 };
        // If it has come since the part was at its most, it is no part of that.
        let is_later = placed.below == Some(self.turn);
        for (place, change) in [(placed.place, -bytes), (to, bytes), (INFERRED, -inferred)] {
            *self.live(place) += change;
            if is_later {
                *self.since.entry(place).or_default() += change;
            }
        }
    }
}

#[cfg(test)]
mod tests;
