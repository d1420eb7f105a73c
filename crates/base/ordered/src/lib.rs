//! Sorts short lists and fills maps with little machine code.
//!
//! The standard library's sort is compiled for each type and each comparison, 5 to 9 kB of code
//! each time, and so is `collect` into a `BTreeMap` or a `BTreeSet`, which sorts first. A hundred
//! such places, whose lists have tens of entries, were a twelfth of the command's size.
//!
//! * [`Order`] sorts indices with code that is compiled once, then moves the entries.
//! * [`Gather`] fills a collection entry by entry.
//!
//! Invariants: the results are those of `sort_by`, `sort_by_key` and `collect`, also for equal
//! entries and duplicate keys. Lists that grow with the number of launches use the standard
//! library's sort, which needs no list of indices and is faster by half.

use std::cmp::Ordering;

/// Stable sorting with little machine code, for short lists.
pub trait Order<T> {
    /// Sorts as `sort_by` does.
    fn order_by(&mut self, compare: impl Fn(&T, &T) -> Ordering);

    /// Sorts as `sort_by_key` does.
    fn order_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        self.order_by(|a, b| key(a).cmp(&key(b)));
    }
}

impl<T> Order<T> for [T] {
    fn order_by(&mut self, compare: impl Fn(&T, &T) -> Ordering) {
        let mut places = sorted_places(self.len(), &|a, b| compare(&self[a], &self[b]));
        for first in 0..places.len() {
            put_circle(self, &mut places, first);
        }
    }
}

/// The indices of a list's entries, in sorted order.
fn sorted_places(length: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..length).collect();
    places.sort_by(|&a, &b| compare(a, b));
    places
}

/// Moves the entries of the permutation cycle that contains `first`, and marks their places as
/// done.
fn put_circle<T>(entries: &mut [T], places: &mut [usize], first: usize) {
    let mut at = first;
    loop {
        let from = std::mem::replace(&mut places[at], at);
        if from == first {
            return;
        }
        entries.swap(at, from);
        at = from;
    }
}

/// Collecting with little machine code, for small maps and sets.
pub trait Gather: Iterator + Sized {
    /// Collects as `collect` does, into maps and sets.
    fn gathered<C: Default + Extend<Self::Item>>(self) -> C {
        let mut collection = C::default();
        collection.extend(self);
        collection
    }
}

impl<I: Iterator> Gather for I {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #[test]
        fn lists_are_sorted_as_by_the_standard_library(keys in prop::collection::vec(0u8..20, 0..200)) {
            let list: Vec<(u8, String)> =
                keys.iter().enumerate().map(|(at, key)| (*key, at.to_string())).collect();
            let (mut ours, mut theirs) = (list.clone(), list);
            ours.order_by_key(|(key, _)| *key);
            theirs.sort_by_key(|(key, _)| *key);
            prop_assert_eq!(&ours, &theirs);
            ours.order_by(|a, b| b.1.cmp(&a.1));
            theirs.sort_by(|a, b| b.1.cmp(&a.1));
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn maps_hold_the_last_of_a_key(pairs in prop::collection::vec((0u8..20, any::<u8>()), 0..60)) {
            let map: BTreeMap<u8, u8> = pairs.iter().copied().gathered();
            prop_assert_eq!(map, pairs.iter().copied().collect::<BTreeMap<_, _>>());
            let set: BTreeSet<u8> = pairs.iter().map(|(_, value)| *value).gathered();
            prop_assert_eq!(set, pairs.iter().map(|(_, value)| *value).collect::<BTreeSet<_>>());
        }
    }

    #[test]
    fn a_comparison_that_panics_leaves_the_list() {
        let mut list = [3, 1, 2];
        let order = || list.order_by(|_, _| panic!("no order"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(order)).is_err());
        assert_eq!(list, [3, 1, 2]);
    }
}
