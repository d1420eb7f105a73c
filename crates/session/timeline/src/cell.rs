//! The content of a section of a lane's time: the time of each use, and the durations of the events
//! that begin in it.
//!
//! Invariant: the cell of a section is the merge of the cells of its parts, in any grouping, except
//! that a stored cell holds only the names with the most time.

use crate::event::{Event, What};
use crate::leb128::{Taker, put};
use apex_ordered::Order;

/// Names that a stored cell keeps at most …
const KEPT: usize = 16;
/// … and one in which fewer than [`FEW`] events begin.
const KEPT_OF_FEW: usize = 8;
const FEW: u64 = 512;
/// Capacity of a list when it gets its first entry, so that it is seldom reallocated.
const AT_FIRST: usize = 16;
/// Buckets of durations to an octave: a median is off by half a bucket, 4.4%.
const TO_OCTAVE: f64 = 8.0;

/// The part of a cell that an answer uses; the rest stays empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// [`Cell::time`] alone.
    Time,
    /// Everything.
    All,
}

/// A stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Nanoseconds, by what they were spent on.
    pub time: [u64; What::COUNT],
    /// Events that begin in it.
    pub count: u64,
    /// The shortest and the longest of these.
    pub shortest: u64,
    pub longest: u64,
    /// The number of events with a duration in each bucket, in ascending order.
    durations: Vec<(u16, u64)>,
    /// The time that each name takes of it, in ascending order of the names.
    names: Vec<(u32, u64)>,
}

/// Adds up two lists in the order of their keys.
fn merged<K: Ord + Copy>(into: &mut Vec<(K, u64)>, other: &[(K, u64)]) {
    if let [(key, value)] = other {
        match into.binary_search_by_key(key, |&(key, _)| key) {
            Ok(at) => into[at].1 = into[at].1.saturating_add(*value),
            Err(at) => {
                if into.is_empty() {
                    into.reserve(AT_FIRST);
                }
                into.insert(at, (*key, *value));
            }
        }
        return;
    }
    let own = std::mem::take(into);
    into.reserve(own.len() + other.len());
    let (mut own, mut other) = (own.into_iter().peekable(), other.iter().copied().peekable());
    loop {
        let next = match (own.peek(), other.peek()) {
            (Some(a), Some(b)) if a.0 == b.0 => {
                let (a, b) = (own.next(), other.next());
                a.zip(b).map(|(a, b)| (a.0, a.1.saturating_add(b.1)))
            }
            (Some(a), Some(b)) if a.0 < b.0 => own.next(),
            (Some(_), None) => own.next(),
            _ => other.next(),
        };
        let Some(next) = next else { return };
        into.push(next);
    }
}

fn bucket(duration: u64) -> u16 {
    if duration == 0 { 0 } else { 1 + ((duration as f64).log2() * TO_OCTAVE) as u16 }
}

impl Cell {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.time.iter().all(|&time| time == 0)
    }

    /// An event begins in it.
    pub fn begin(&mut self, duration: u64) {
        self.shortest = if self.count == 0 { duration } else { self.shortest.min(duration) };
        self.longest = self.longest.max(duration);
        self.count += 1;
        merged(&mut self.durations, &[(bucket(duration), 1)]);
    }

    /// Adds `time` of an event.
    pub fn cover(&mut self, what: What, name: u32, time: u64) {
        let sum = &mut self.time[what.place()];
        *sum = sum.saturating_add(time);
        if name != 0 && time > 0 {
            merged(&mut self.names, &[(name, time)]);
        }
    }

    /// Adds the part of an event that lies between two moments.
    pub fn add(&mut self, event: &Event, from: u64, to: u64, detail: Detail) {
        if detail == Detail::All && (from..to).contains(&event.start) {
            self.begin(event.duration());
        }
        let (start, end) = (event.start.max(from), event.end.min(to));
        if start < end {
            let name = if detail == Detail::All { event.name } else { 0 };
            self.cover(event.what, name, end - start);
        }
    }

    /// Adds another stretch.
    pub fn merge(&mut self, other: &Self, detail: Detail) {
        self.time.iter_mut().zip(&other.time).for_each(|(sum, time)| *sum = sum.saturating_add(*time));
        if detail == Detail::Time {
            return;
        }
        if other.count > 0 {
            let least = if self.count == 0 { u64::MAX } else { self.shortest };
            self.shortest = least.min(other.shortest);
            self.longest = self.longest.max(other.longest);
            self.count = self.count.saturating_add(other.count);
        }
        merged(&mut self.durations, &other.durations);
        merged(&mut self.names, &other.names);
    }

    /// The median duration of what begins in it, within 4.4%; `None` if nothing does.
    pub fn median(&self) -> Option<u64> {
        let half = self.count.div_ceil(2);
        let mut seen = 0u64;
        let found = self.durations.iter().find(|(_, count)| {
            seen = seen.saturating_add(*count);
            seen >= half
        });
        let (bucket, _) = found.filter(|_| self.count > 0)?;
        let middle = |bucket: u16| ((f64::from(bucket) - 0.5) / TO_OCTAVE).exp2().round() as u64;
        let value = if *bucket == 0 { 0 } else { middle(*bucket) };
        Some(value.clamp(self.shortest, self.longest))
    }

    /// The name that takes most of it, and how much.
    pub fn top(&self) -> Option<(u32, u64)> {
        self.names.iter().copied().max_by_key(|&(name, time)| (time, std::cmp::Reverse(name)))
    }

    /// The names that take most of it, and how much, the first one first.
    pub fn names(&self) -> Vec<(u32, u64)> {
        let mut names = self.names.clone();
        names.order_by_key(|&(name, time)| (std::cmp::Reverse(time), name));
        names
    }

    /// Appends it to bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let used = self.time.iter().enumerate().filter(|(_, time)| **time > 0);
        put(out, used.clone().fold(0, |mask, (place, _)| mask | 1 << place));
        used.for_each(|(_, &time)| put(out, time));
        [self.count, self.shortest, self.longest].into_iter().for_each(|number| put(out, number));
        put(out, self.durations.len() as u64);
        for &(bucket, count) in &self.durations {
            put(out, bucket.into());
            put(out, count);
        }
        let mut names = self.names.clone();
        let kept = if self.count < FEW { KEPT_OF_FEW } else { KEPT };
        if names.len() > kept {
            names.select_nth_unstable_by_key(kept, |&(name, time)| (std::cmp::Reverse(time), name));
            names.truncate(kept);
            names.sort_unstable();
        }
        put(out, names.len() as u64);
        for (name, time) in names {
            put(out, name.into());
            put(out, time);
        }
    }

    /// The next cell of bytes; `None` if they hold none.
    pub fn decode(taker: &mut Taker<'_>) -> Option<Self> {
        let mask = taker.number().filter(|&mask| mask < 1 << What::COUNT)?;
        let mut cell = Self::default();
        for (place, time) in cell.time.iter_mut().enumerate() {
            if mask & 1 << place != 0 {
                *time = taker.number()?;
            }
        }
        [cell.count, cell.shortest, cell.longest] = [taker.number()?, taker.number()?, taker.number()?];
        if cell.shortest > cell.longest {
            return None;
        }
        for _ in 0..taker.number()? {
            let pair = (u16::try_from(taker.number()?).ok()?, taker.number()?);
            cell.durations.push(pair);
        }
        for _ in 0..taker.number().filter(|&count| count <= KEPT as u64)? {
            let pair = (taker.small()?, taker.number()?);
            cell.names.push(pair);
        }
        let ascending = |keys: &mut dyn Iterator<Item = u32>| keys.is_sorted_by(|a, b| a < b);
        let is_sound = ascending(&mut cell.durations.iter().map(|&(bucket, _)| bucket.into()))
            && ascending(&mut cell.names.iter().map(|&(name, _)| name));
        is_sound.then_some(cell)
    }
}
