//! Conditions over time: when an alert fires, and when it resolves.
//!
//! A condition is *pending* from the first look at which it holds, and *fires* once it has held at
//! a number of consecutive looks. It *resolves* when it was over at [`LOOKS`] consecutive looks.
//! Between holding and being over lies a margin ([`Verdict::Unclear`]), so that a value that
//! fluctuates around one limit crosses it once.

use crate::Moment;
use std::collections::BTreeMap;

/// Consecutive looks after which an alert fires, and after which it resolves.
pub const LOOKS: u32 = 3;

/// Maximum number of tracked conditions, of all sessions together. Further conditions are not
/// reported until others are over.
pub const MOST_CONDITIONS: usize = 1024;

/// The state of a condition at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It lies between holding and being over, or it is unknown.
    Unclear,
    /// It does not hold, by some margin.
    Over,
}

/// The change of a condition that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It holds, since that moment.
    Fired(Moment),
    /// It still does.
    Repeated(Moment),
    /// It held since that moment, and no longer does.
    Resolved(Moment),
}

/// One condition that holds, or held a moment ago.
#[derive(Clone, Copy, Debug)]
struct Condition {
    /// The first look at which it held.
    since: Moment,
    /// Consecutive looks at which it held, while it is pending.
    held: u32,
    /// Consecutive looks at which it was over, while it fires.
    over: u32,
    /// The time of the last report; `None` while the condition is pending.
    reported: Option<Moment>,
}

/// All conditions, by what they are about.
#[derive(Debug)]
pub struct Tracker<K> {
    conditions: BTreeMap<K, Condition>,
    repeat_ns: u64,
}

impl<K: Ord + Clone> Tracker<K> {
    /// Creates a tracker that reports a firing alert again after `repeat_ns` nanoseconds.
    pub fn new(repeat_ns: u64) -> Self {
        Self { conditions: BTreeMap::new(), repeat_ns }
    }

    /// Records the state of a condition at a look; the condition fires after `looks` of them.
    pub fn look(&mut self, at: Moment, key: &K, verdict: Verdict, looks: u32) -> Option<Change> {
        let room = self.conditions.len() < MOST_CONDITIONS;
        let Some(condition) = self.conditions.get_mut(key) else {
            if verdict == Verdict::Holds && room {
                let fires = looks <= 1;
                let new = Condition { since: at, held: 1, over: 0, reported: fires.then_some(at) };
                self.conditions.insert(key.clone(), new);
                return fires.then_some(Change::Fired(at));
            }
            return None;
        };
        let since = condition.since;
        match (verdict, condition.reported) {
            (Verdict::Holds, None) => {
                condition.held += 1;
                let fires = condition.held >= looks;
                condition.reported = fires.then_some(at);
                fires.then_some(Change::Fired(since))
            }
            (Verdict::Holds, Some(reported)) => {
                condition.over = 0;
                let repeats = at.since(reported) >= self.repeat_ns;
                condition.reported = Some(if repeats { at } else { reported });
                repeats.then_some(Change::Repeated(since))
            }
            (Verdict::Unclear, Some(_)) => {
                condition.over = 0;
                None
            }
            (Verdict::Over, Some(_)) if condition.over + 1 < LOOKS => {
                condition.over += 1;
                None
            }
            (Verdict::Over, Some(_)) => self.remove(key),
            (Verdict::Unclear | Verdict::Over, None) => self.remove(key),
        }
    }

    /// Removes a condition; the change if it fired.
    pub fn remove(&mut self, key: &K) -> Option<Change> {
        let condition = self.conditions.remove(key)?;
        condition.reported.map(|_| Change::Resolved(condition.since))
    }

    /// The conditions that are pending or fire, and that `meant` selects.
    pub fn keys(&self, meant: impl Fn(&K) -> bool) -> Vec<K> {
        self.conditions.keys().filter(|key| meant(key)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Holds, Over, Unclear};
    use proptest::prelude::*;

    fn at(second: usize) -> Moment {
        Moment { monotonic_ns: second as u64 * 1_000_000_000, real_ns: 0 }
    }

    /// Returns the changes, with the second of each, from a tracker that repeats after ten seconds
    /// and looks once a second.
    fn changes_of(verdicts: &[Verdict], looks: u32) -> Vec<(usize, Change)> {
        let mut tracker = Tracker::new(10_000_000_000);
        let each = verdicts.iter().enumerate();
        each.filter_map(|(second, &verdict)| Some((second, tracker.look(at(second), &"it", verdict, looks)?)))
            .collect()
    }

    #[test]
    fn it_fires_when_it_has_held_and_resolves_when_it_has_been_over() {
        let verdicts =
            [Over, Holds, Holds, Over, Holds, Holds, Holds, Holds, Over, Over, Holds, Over, Over, Over];
        assert_eq!(changes_of(&verdicts, 3), [(6, Change::Fired(at(4))), (13, Change::Resolved(at(4)))]);
        assert_eq!(
            changes_of(&[Holds, Over, Over, Over], 1),
            [(0, Change::Fired(at(0))), (3, Change::Resolved(at(0)))]
        );
        assert_eq!(changes_of(&[Holds, Holds, Unclear, Holds, Holds], 3), [], "not one after the other");
    }

    #[test]
    fn it_is_repeated_as_long_as_it_holds() {
        let changes = changes_of(&[Holds; 25], 3);
        let expected =
            [(2, Change::Fired(at(0))), (12, Change::Repeated(at(0))), (22, Change::Repeated(at(0)))];
        assert_eq!(changes, expected);
        assert_eq!(changes_of(&[[Holds; 3], [Unclear; 3], [Unclear; 3], [Unclear; 3]].concat(), 3).len(), 1);
    }

    #[test]
    fn there_are_no_more_than_so_many() {
        let mut tracker = Tracker::new(1);
        for key in 0..MOST_CONDITIONS + 5 {
            assert_eq!(tracker.look(at(0), &key, Holds, 1).is_some(), key < MOST_CONDITIONS);
        }
        assert_eq!(tracker.keys(|_| true).len(), MOST_CONDITIONS);
        assert_eq!(tracker.remove(&0), Some(Change::Resolved(at(0))));
        assert!(tracker.look(at(1), &MOST_CONDITIONS, Holds, 1).is_some(), "there is room again");
    }

    proptest! {
        /// Whatever is seen: what fires resolves before it fires again; before both lie looks that
        /// say so, one after the other; repeats keep their distance.
        #[test]
        fn nothing_flaps(verdicts in proptest::collection::vec(0..3u8, 0..200), looks in 1..5u32) {
            let verdicts: Vec<_> =
                verdicts.into_iter().map(|verdict| [Holds, Unclear, Over][usize::from(verdict)]).collect();
            let (mut fires, mut last_reported, mut last_resolved) = (false, 0, None);
            for (second, change) in changes_of(&verdicts, looks) {
                let behind = |count: u32| &verdicts[(second + 1).saturating_sub(count as usize)..=second];
                match change {
                    Change::Fired(since) => {
                        prop_assert!(!fires);
                        prop_assert_eq!(behind(looks), vec![Holds; looks as usize]);
                        prop_assert!(last_resolved.is_none_or(|resolved| second >= resolved + looks as usize));
                        prop_assert!(since == at(second + 1 - looks as usize));
                    }
                    Change::Repeated(_) => {
                        prop_assert!(fires && verdicts[second] == Holds && second >= last_reported + 10);
                    }
                    Change::Resolved(_) => {
                        prop_assert!(fires);
                        prop_assert_eq!(behind(LOOKS), vec![Over; LOOKS as usize]);
                        last_resolved = Some(second);
                    }
                }
                fires = !matches!(change, Change::Resolved(_));
                last_reported = second;
            }
        }

        /// A value that trembles around either limit, never crossing the margin, changes nothing.
        #[test]
        fn what_stays_on_one_side_of_the_margin_is_reported_once(shakes in proptest::collection::vec(any::<bool>(), 0..100)) {
            let around = |shaken: Verdict| shakes.iter().map(move |&shakes| if shakes { Unclear } else { shaken });
            let holds: Vec<_> = [Holds; 3].into_iter().chain(around(Holds)).collect();
            let alone: Vec<_> = changes_of(&holds, 3).into_iter().filter(|(_, change)| !matches!(change, Change::Repeated(_))).collect();
            prop_assert_eq!(alone, [(2, Change::Fired(at(0)))]);
            let over: Vec<_> = around(Over).collect();
            prop_assert_eq!(changes_of(&over, 3), []);
        }
    }
}
