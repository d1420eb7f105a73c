//! The NVTX ranges of the program: the launches inside each, their GPU time, and the device's idle
//! time before them.
//!
//! A launch belongs to the innermost range of its thread at the call and to all enclosing ranges,
//! and to all open ranges of the process. Idle time belongs to the range of the work that ended it:
//! if that work had come earlier, the device would not have been idle.

use apex_ordered::Order;
use std::collections::{BTreeMap, HashMap, HashSet};

use apex_trace::Process;
use apex_trace::layout::{RangeChange, flags};
use serde::Serialize;

use crate::figure::Figure;

/// A range of the program. What it counts and sums includes the ranges inside of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// Its name, in which `#` stands for numbers where ranges differ in them alone.
    pub name: String,
    /// Name of its domain; empty for the default domain.
    pub domain: String,
    /// The range around it: index into [`super::Profile::ranges`].
    pub parent: Option<usize>,
    /// Whether it is a range of the process (`nvtxRangeStart`), not of a thread.
    pub is_process_wide: bool,
    /// The number of times that it began while the process was recorded.
    pub count: u64,
    /// Time on the host from its beginnings to its ends.
    pub host_ns: f64,
    /// Launches of kernels and graphs that ran.
    pub launches: u64,
    /// Copies.
    pub copies: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
    /// GPU time of the launches whose time is known; `None` where it is known of none.
    pub gpu_time_ns: Option<Figure>,
    /// Launches whose GPU time is known.
    pub timed_launches: u64,
    /// Time in which the device was idle until work of the range began. Unknown of ranges of the
    /// process.
    pub idle_ns: Option<Figure>,
}

/// The identity of a range: the range around it, its domain and name, and whether it is the
/// process's.
type Key = (Option<usize>, String, String, bool);

/// Times of a range, by each of the three models: on average, at least, at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RangeTimes {
    pub gpu_ns: [u64; 3],
    pub idle_ns: [u64; 3],
    pub timed: u64,
}

/// Counts of a range alone, without those inside of it.
#[derive(Clone, Debug, Default)]
pub(super) struct RangeCounts {
    count: u64,
    host_ns: u64,
    pub launches: u64,
    copies: u64,
    copied_bytes: u64,
    pub times: RangeTimes,
}

impl RangeTimes {
    fn add(&mut self, other: &Self) {
        let add = |to: &mut [u64; 3], more: &[u64; 3]| {
            to.iter_mut().zip(more).for_each(|(to, more)| *to = to.saturating_add(*more));
        };
        add(&mut self.gpu_ns, &other.gpu_ns);
        add(&mut self.idle_ns, &other.idle_ns);
        self.timed += other.timed;
    }
}

impl RangeCounts {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.host_ns = self.host_ns.saturating_add(other.host_ns);
        self.launches += other.launches;
        self.copies += other.copies;
        self.copied_bytes = self.copied_bytes.saturating_add(other.copied_bytes);
        self.times.add(&other.times);
    }

    fn is_used(&self) -> bool {
        self.count + self.launches + self.copies > 0
    }

    /// The range was entered and left again after that time, where it is known.
    pub fn passed(&mut self, begun: bool, host_ns: u64) {
        self.count += u64::from(begun);
        self.host_ns = self.host_ns.saturating_add(host_ns);
    }

    pub fn copied(&mut self, bytes: u64) {
        self.copies += 1;
        self.copied_bytes = self.copied_bytes.saturating_add(bytes);
    }
}

/// The ranges of a profile that grows. A range comes after the one around it.
#[derive(Default)]
pub(super) struct Ranges {
    keys: Vec<Key>,
    counts: Vec<RangeCounts>,
    places: HashMap<Key, usize>,
}

impl Ranges {
    /// Returns the index of a range's counts.
    fn place(&mut self, key: Key) -> usize {
        *self.places.entry(key).or_insert_with_key(|key| {
            self.keys.push(key.clone());
            self.counts.push(RangeCounts::default());
            self.keys.len() - 1
        })
    }

    pub fn counts(&mut self, place: usize) -> &mut RangeCounts {
        &mut self.counts[place]
    }

    /// Adds the counts of others.
    pub fn merge(&mut self, others: Self) {
        let mut moved: Vec<usize> = Vec::new();
        for ((parent, domain, name, is_process_wide), counts) in others.keys.into_iter().zip(&others.counts) {
            let place = self.place((parent.map(|parent| moved[parent]), domain, name, is_process_wide));
            self.counts[place].add(counts);
            moved.push(place);
        }
    }

    /// All ranges in which something was recorded, each before those inside of it; beside each
    /// other by GPU time and idle time, then by launches.
    pub fn finish(mut self) -> Vec<Range> {
        for place in (0..self.keys.len()).rev() {
            if let Some(parent) = self.keys[place].0 {
                // A range that is entered twice counts once for those around it.
                let inner = RangeCounts { count: 0, host_ns: 0, ..self.counts[place].clone() };
                self.counts[parent].add(&inner);
            }
        }
        let mut inside: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
        for (place, key) in self.keys.iter().enumerate().rev() {
            let is_used = self.counts[place].is_used() || inside.contains_key(&Some(place));
            if is_used {
                inside.entry(key.0).or_default().push(place);
            }
        }
        let cost = |place: usize| {
            let counts = &self.counts[place];
            let time = counts.times.gpu_ns[0].saturating_add(counts.times.idle_ns[0]);
            std::cmp::Reverse((time, counts.launches, counts.host_ns))
        };
        for places in inside.values_mut() {
            places.order_by(|&a, &b| cost(a).cmp(&cost(b)).then_with(|| self.keys[a].cmp(&self.keys[b])));
            places.reverse();
        }
        let (mut list, mut at) = (Vec::new(), vec![None; self.keys.len()]);
        let mut waiting = inside.get(&None).cloned().unwrap_or_default();
        while let Some(place) = waiting.pop() {
            at[place] = Some(list.len());
            let (parent, domain, name, is_process_wide) = self.keys[place].clone();
            list.push(range(
                parent.and_then(|parent| at[parent]),
                domain,
                name,
                is_process_wide,
                &self.counts[place],
            ));
            waiting.extend(inside.get(&Some(place)).into_iter().flatten());
        }
        list
    }
}

fn range(
    parent: Option<usize>,
    domain: String,
    name: String,
    is_process_wide: bool,
    counts: &RangeCounts,
) -> Range {
    let figure = |[usual, short, long]: [u64; 3]| {
        let bounds = (usual.min(short).min(long) as f64, usual.max(short).max(long) as f64);
        Figure::predicted(usual as f64, bounds)
    };
    Range {
        name,
        domain,
        parent,
        is_process_wide,
        count: counts.count,
        host_ns: counts.host_ns as f64,
        launches: counts.launches,
        copies: counts.copies,
        copied_bytes: counts.copied_bytes,
        gpu_time_ns: (counts.times.timed > 0).then(|| figure(counts.times.gpu_ns)),
        timed_launches: counts.times.timed,
        idle_ns: (!is_process_wide && counts.launches + counts.copies > 0)
            .then(|| figure(counts.times.idle_ns)),
    }
}

/// The indices of one process's ranges among [`Ranges`].
#[derive(Default)]
pub(super) struct RangePlaces {
    of_threads: HashMap<u32, usize>,
    of_process: HashMap<u32, usize>,
}

impl RangePlaces {
    /// Finds the indices of all ranges that the process defines. A range whose parent is not
    /// defined before it has none.
    pub fn of(process: &Process, ranges: &mut Ranges) -> Self {
        let mut places = Self::default();
        let names = || process.definitions.ranges();
        let shared: HashSet<_> = names()
            .filter(|range| range.name.contains('#'))
            .map(|range| (range.parent, range.domain.as_str(), range.name.clone()))
            .collect();
        for range in names() {
            // Those that came before the names were shared belong with those that came after.
            let form = range.without_numbers();
            let is_shared = shared.contains(&(range.parent, range.domain.as_str(), form.clone()));
            let name = if is_shared { form } else { range.name.clone() };
            let parent = places.of_threads.get(&range.parent).copied();
            let place = ranges.place((parent, range.domain.clone(), name, false));
            places.of_threads.insert(range.id, place);
        }
        places
    }

    /// The place of a thread's range.
    pub fn of_thread(&self, id: u32) -> Option<usize> {
        if id == 0 { None } else { self.of_threads.get(&id).copied() }
    }

    /// The place of a range of the process.
    fn of_process(&mut self, id: u32, ranges: &mut Ranges) -> Option<usize> {
        let thread = *self.of_threads.get(&id)?;
        Some(*self.of_process.entry(id).or_insert_with(|| {
            let (_, domain, name, _) = ranges.keys[thread].clone();
            ranges.place((None, domain, name, true))
        }))
    }
}

/// Ranges that are open while a process is read in the order of time.
#[derive(Default)]
pub(super) struct OpenRanges {
    /// By thread: what began, and when.
    threads: HashMap<u32, Vec<(u32, u64)>>,
    /// By instance: place, and when it began.
    process: BTreeMap<u64, (usize, u64)>,
}

/// Ranges of a process that are open at a time and looked at.
const MOST_OPEN: usize = 256;

impl OpenRanges {
    /// A range begins or ends at `now`, in nanoseconds.
    pub fn change(
        &mut self,
        thread: u32,
        change: &RangeChange,
        now: u64,
        places: &mut RangePlaces,
        ranges: &mut Ranges,
    ) {
        let begins = change.head.flags & flags::RANGE_BEGUN != 0;
        let ends = change.head.flags & flags::RANGE_ENDED != 0;
        if begins == ends {
            return;
        }
        if change.head.flags & flags::PROCESS_WIDE != 0 {
            let Some(place) = places.of_process(change.changed, ranges) else { return };
            if begins {
                ranges.counts(place).passed(true, 0);
                if self.process.len() < MOST_OPEN {
                    self.process.insert(change.instance, (place, now));
                }
            } else if let Some((place, begun)) = self.process.remove(&change.instance) {
                ranges.counts(place).passed(false, now.saturating_sub(begun));
            }
            return;
        }
        let Some(place) = places.of_thread(change.changed) else { return };
        let open = self.threads.entry(thread).or_default();
        if begins {
            ranges.counts(place).passed(true, 0);
            if open.len() < MOST_OPEN {
                open.push((change.changed, now));
            }
        } else if let Some(at) = open.iter().rposition(|&(range, _)| range == change.changed) {
            let (_, begun) = open.remove(at);
            ranges.counts(place).passed(false, now.saturating_sub(begun));
        }
    }

    /// Places of the ranges of the process that are open.
    pub fn of_process(&self) -> impl Iterator<Item = usize> {
        self.process.values().map(|&(place, _)| place)
    }
}
