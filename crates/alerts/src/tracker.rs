//! Conditions over time: when one begins to matter, and when it is over.
//!
//! A condition is *pending* from the first look at which it holds, and *fires* once it has held at
//! so many looks one after the other. It *resolves* when it was over at [`LOOKS`] looks one after
//! the other. Between holding and being over lies a margin ([`Verdict::Unclear`]), so that a value
//! that trembles around one limit crosses it once.

use crate::Moment;
use std::collections::BTreeMap;

/// Looks one after the other that make an alert, and that end it.
pub const LOOKS: u32 = 3;

/// Conditions that are tracked, of all sessions: of those that come when there are so many, nothing
/// is told until others are over.
pub const MOST_CONDITIONS: usize = 1024;

/// What a look says of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It holds.
    Holds,
    /// It lies between holding and being over, or nothing is known of it.
    Unclear,
    /// It does not hold, by some margin.
    Over,
}

/// The change of a condition that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It holds, since that moment.
    Fired(Moment),
    /// It still does.
    Repeated(Moment),
    /// It did, since that moment, and does not any more.
    Resolved(Moment),
}

/// One condition that holds, or held a moment ago.
#[derive(Clone, Copy, Debug)]
struct Condition {
    /// When it was first seen.
    since: Moment,
    /// Looks at which it held, one after the other, while it is pending.
    held: u32,
    /// Looks at which it was over, one after the other, while it fires.
    over: u32,
    /// When it was reported last; none while it is pending.
    told: Option<Moment>,
}

/// All conditions, by what they are about.
#[derive(Debug)]
pub(crate) struct Tracker<K> {
    conditions: BTreeMap<K, Condition>,
    repeat_ns: u64,
}

impl<K: Ord + Clone> Tracker<K> {
    /// Repeats what fires after so many nanoseconds.
    pub fn new(repeat_ns: u64) -> Self {
        Self { conditions: BTreeMap::new(), repeat_ns }
    }

    /// Takes what a look says of a condition that fires after `looks` of them.
    pub fn look(&mut self, at: Moment, key: &K, verdict: Verdict, looks: u32) -> Option<Change> {
        let room = self.conditions.len() < MOST_CONDITIONS;
        let Some(condition) = self.conditions.get_mut(key) else {
            if verdict == Verdict::Holds && room {
                let fires = looks <= 1;
                let new = Condition { since: at, held: 1, over: 0, told: fires.then_some(at) };
                self.conditions.insert(key.clone(), new);
                return fires.then_some(Change::Fired(at));
            }
            return None;
        };
        let since = condition.since;
        match (verdict, condition.told) {
            (Verdict::Holds, None) => {
                condition.held += 1;
                let fires = condition.held >= looks;
                condition.told = fires.then_some(at);
                fires.then_some(Change::Fired(since))
            }
            (Verdict::Holds, Some(told)) => {
                condition.over = 0;
                let repeats = at.since(told) >= self.repeat_ns;
                condition.told = Some(if repeats { at } else { told });
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

    /// Forgets a condition, whatever it does.
    pub fn remove(&mut self, key: &K) -> Option<Change> {
        let condition = self.conditions.remove(key)?;
        condition.told.map(|_| Change::Resolved(condition.since))
    }

    /// What is pending or fires, of those that are meant.
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

    /// What a tracker that repeats after ten seconds says, a look each second.
    fn told(verdicts: &[Verdict], looks: u32) -> Vec<(usize, Change)> {
        let mut tracker = Tracker::new(10_000_000_000);
        let each = verdicts.iter().enumerate();
        each.filter_map(|(second, &verdict)| Some((second, tracker.look(at(second), &"it", verdict, looks)?)))
            .collect()
    }

    #[test]
    fn it_fires_when_it_has_held_and_resolves_when_it_has_been_over() {
        let verdicts =
            [Over, Holds, Holds, Over, Holds, Holds, Holds, Holds, Over, Over, Holds, Over, Over, Over];
        assert_eq!(told(&verdicts, 3), [(6, Change::Fired(at(4))), (13, Change::Resolved(at(4)))]);
        assert_eq!(
            told(&[Holds, Over, Over, Over], 1),
            [(0, Change::Fired(at(0))), (3, Change::Resolved(at(0)))]
        );
        assert_eq!(told(&[Holds, Holds, Unclear, Holds, Holds], 3), [], "not one after the other");
    }

    #[test]
    fn it_is_repeated_as_long_as_it_holds() {
        let changes = told(&[Holds; 25], 3);
        let expected =
            [(2, Change::Fired(at(0))), (12, Change::Repeated(at(0))), (22, Change::Repeated(at(0)))];
        assert_eq!(changes, expected);
        assert_eq!(told(&[[Holds; 3], [Unclear; 3], [Unclear; 3], [Unclear; 3]].concat(), 3).len(), 1);
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
            let (mut fires, mut last_told, mut last_resolved) = (false, 0, None);
            for (second, change) in told(&verdicts, looks) {
                let behind = |count: u32| &verdicts[(second + 1).saturating_sub(count as usize)..=second];
                match change {
                    Change::Fired(since) => {
                        prop_assert!(!fires);
                        prop_assert_eq!(behind(looks), vec![Holds; looks as usize]);
                        prop_assert!(last_resolved.is_none_or(|resolved| second >= resolved + looks as usize));
                        prop_assert!(since == at(second + 1 - looks as usize));
                    }
                    Change::Repeated(_) => {
                        prop_assert!(fires && verdicts[second] == Holds && second >= last_told + 10);
                    }
                    Change::Resolved(_) => {
                        prop_assert!(fires);
                        prop_assert_eq!(behind(LOOKS), vec![Over; LOOKS as usize]);
                        last_resolved = Some(second);
                    }
                }
                fires = !matches!(change, Change::Resolved(_));
                last_told = second;
            }
        }

        /// A value that trembles around either limit, never crossing the margin, changes nothing.
        #[test]
        fn what_stays_on_one_side_of_the_margin_is_told_once(shakes in proptest::collection::vec(any::<bool>(), 0..100)) {
            let around = |shaken: Verdict| shakes.iter().map(move |&shakes| if shakes { Unclear } else { shaken });
            let holds: Vec<_> = [Holds; 3].into_iter().chain(around(Holds)).collect();
            let alone: Vec<_> = told(&holds, 3).into_iter().filter(|(_, change)| !matches!(change, Change::Repeated(_))).collect();
            prop_assert_eq!(alone, [(2, Change::Fired(at(0)))]);
            let over: Vec<_> = around(Over).collect();
            prop_assert_eq!(told(&over, 3), []);
        }
    }
}
