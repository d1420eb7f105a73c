//! Ranges that the program names: intervals of a thread, which become changes of its innermost
//! range.
//!
//! Intervals of a thread should nest. One that ends after the interval around it ends with that.

use crate::bounds::{MOST_EVENTS, end};
use std::collections::HashMap;

/// Ranges that are told apart, at most; further ones count as the range around them.
const MOST_RANGES: usize = 60_000;
/// Ranges inside of one whose names differ in numbers alone, from which on they are one.
const MOST_ALIKE: u32 = 64;

/// An interval.
#[derive(Clone, Copy, Debug)]
struct Interval {
    thread: u32,
    start: i64,
    end: i64,
    /// Its name, among the names of the process.
    name: u32,
}

/// The ranges of a process.
#[derive(Debug, Default)]
pub struct Ranges {
    list: Vec<Interval>,
}

/// A change of a thread's innermost range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Time of the change.
    pub at: i64,
    /// The innermost range after it; 0 for none.
    pub inner: u32,
    /// The range that began or ended.
    pub changed: u32,
    /// Whether it began.
    pub begins: bool,
}

/// A range: the one around it (0 for none), and its name.
pub type Named = (u32, String);

impl Ranges {
    /// Adds an interval of a thread.
    pub fn add(&mut self, thread: u32, start: i64, ns: u64, name: u32) {
        if self.list.len() < MOST_EVENTS {
            self.list.push(Interval { thread, start, end: end(start, ns), name });
        }
    }

    /// Keeps the intervals whose start and duration please.
    pub fn retain(&mut self, pleases: impl Fn(i64, u64) -> bool) {
        self.list.retain(|of| pleases(of.start, of.end.abs_diff(of.start)));
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The changes by thread, each in the order of time, and the ranges, numbered from 1.
    /// `name` gives the text of a name.
    pub fn changes<'n>(mut self, name: impl Fn(u32) -> &'n str) -> (HashMap<u32, Vec<Change>>, Vec<Named>) {
        self.list.sort_by_key(|of| (of.thread, of.start, std::cmp::Reverse(of.end)));
        let mut table = Table::default();
        let mut threads: HashMap<u32, Vec<Change>> = HashMap::new();
        for of_thread in self.list.chunk_by(|a, b| a.thread == b.thread) {
            threads.insert(of_thread[0].thread, table.of_thread(of_thread, &name));
        }
        (threads, table.list)
    }
}

/// The ranges by their names and the ranges around them.
#[derive(Default)]
struct Table {
    list: Vec<Named>,
    numbers: HashMap<(u32, String), u32>,
    /// How many different ranges there are inside of one that have the same form.
    alike: HashMap<(u32, String), u32>,
}

impl Table {
    fn of_thread<'n>(&mut self, intervals: &[Interval], name: &impl Fn(u32) -> &'n str) -> Vec<Change> {
        let mut changes = Vec::with_capacity(2 * intervals.len());
        // The end of each open range, and its number.
        let mut open: Vec<(i64, u32)> = Vec::new();
        for interval in intervals {
            close(&mut open, interval.start, &mut changes);
            let (around, parent) = open.last().map_or((i64::MAX, 0), |&(end, number)| (end, number));
            let number = self.number(parent, name(interval.name));
            open.push((interval.end.min(around), number));
            changes.push(Change { at: interval.start, inner: number, changed: number, begins: true });
        }
        close(&mut open, i64::MAX, &mut changes);
        changes
    }

    fn number(&mut self, parent: u32, name: &str) -> u32 {
        if let Some(&known) = self.numbers.get(&(parent, name.to_owned())) {
            return known;
        }
        let form = apex_trace::definition::without_numbers(name);
        let alike = self.alike.entry((parent, form.clone())).or_default();
        *alike += 1;
        if *alike > MOST_ALIKE && form != name {
            return self.number(parent, &form);
        }
        if self.list.len() >= MOST_RANGES {
            return parent;
        }
        self.list.push((parent, name.to_owned()));
        let number = self.list.len() as u32;
        self.numbers.insert((parent, name.to_owned()), number);
        number
    }
}

/// Ends the open ranges that end by a moment.
fn close(open: &mut Vec<(i64, u32)>, by: i64, changes: &mut Vec<Change>) {
    while let Some((end, number)) = open.pop_if(|(end, _)| *end <= by) {
        let inner = open.last().map_or(0, |&(_, number)| number);
        changes.push(Change { at: end, inner, changed: number, begins: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_intervals_open_and_close_in_order() {
        let mut ranges = Ranges::default();
        ranges.add(0, 10, 20, 1);
        ranges.add(0, 0, 100, 0);
        // It crosses the end of the one around it.
        ranges.add(0, 90, 50, 1);
        let (threads, list) = ranges.changes(|name| ["step", "inner"][name as usize]);
        assert_eq!(list, [(0, "step".to_owned()), (1, "inner".to_owned())]);
        let seen: Vec<(i64, u32, bool)> = threads[&0].iter().map(|of| (of.at, of.inner, of.begins)).collect();
        let expected =
            [(0, 1, true), (10, 2, true), (30, 1, false), (90, 2, true), (100, 1, false), (100, 0, false)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn many_names_that_differ_in_numbers_become_one() {
        let mut ranges = Ranges::default();
        let names: Vec<String> = (0..500).map(|step| format!("ProfilerStep#{step}")).collect();
        (0..500).for_each(|step| ranges.add(3, i64::from(step) * 10, 5, step));
        let (_, list) = ranges.changes(|name| &names[name as usize]);
        assert_eq!(list.len(), MOST_ALIKE as usize + 1);
        assert_eq!(list.last().unwrap().1, "ProfilerStep#");
    }
}
