//! The steps of two runs, without the rest of a comparison: for a viewer that compares one of them
//! again and again.

use super::Change;
use apex_profile::{Figure, Profile};

/// Steps are of the same loop if the launches of one differ by at most this part of it from those
/// of the other, or of a number of the other's steps.
const ALIKE: f64 = 0.1;

/// The steps of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// Steps in the steady state of the device that makes the most of them.
    pub count: u64,
    /// Their mean time, nanoseconds, on all devices ([`Profile::step_ns`]).
    pub mean_ns: Figure,
    /// Launch calls of one.
    launches: f64,
}

impl Steps {
    /// The steps of a run, or of a part of it; `None` where it repeats nothing.
    pub fn of(profile: &Profile) -> Option<Self> {
        let loops = profile.activities.iter().filter_map(|activity| activity.iterations.as_ref());
        let most = loops.max_by_key(|loops| loops.count)?;
        let mean_ns = profile.step_ns()?;
        Some(Self { count: mean_ns.samples, mean_ns, launches: most.launches })
    }

    /// Compares the time of a step, with the significance of [`super::compare`], in steps of
    /// `before`. (In the records of a moment, the repeated unit may be two steps or more, or half
    /// of one.) `None` if they are not steps of the same loop, by their launches.
    pub fn compare(before: &Self, after: &Self) -> Option<Change> {
        let times = before.times_of(after)?;
        let mut mean_ns = after.mean_ns.scaled(times);
        mean_ns.samples = (after.count as f64 / times).round() as u64;
        Some(Change::of(&[Some(before.mean_ns)], &[Some(mean_ns)]))
    }

    /// Returns the number of the other's steps that make one of these, or the reciprocal of the
    /// number of these that make one of the other's.
    fn times_of(&self, other: &Self) -> Option<f64> {
        let (few, many) = (self.launches.min(other.launches), self.launches.max(other.launches));
        let times = (many / few).round();
        let alike = few > 0.0 && (many - times * few).abs() <= ALIKE * few;
        let times = if self.launches < other.launches { 1.0 / times } else { times };
        alike.then_some(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_profile::{Activity, Iterations};

    fn steps(count: u64, mean_ns: f64, launches: f64) -> Steps {
        let step_ns = Figure::predicted(mean_ns, (0.99 * mean_ns, 1.01 * mean_ns)).of_samples(count);
        let iterations = Iterations { count, step_ns, launches, ..Iterations::default() };
        let activity = Activity { iterations: Some(iterations), ..Activity::default() };
        let other = Activity::default();
        Steps::of(&Profile { activities: vec![other, activity], ..Profile::default() }).expect("steps")
    }

    #[test]
    fn what_is_found_to_be_several_steps_or_a_part_of_one_is_compared_in_steps() {
        let before = steps(100, 10e6, 40.0);
        for (after, samples) in [(steps(8, 120e6, 400.0), 80), (steps(80, 6e6, 20.0), 40)] {
            let change = Steps::compare(&before, &after).expect("the same loop");
            let figure = change.after.expect("known");
            assert!((figure.value - 12e6).abs() < 1.0, "{figure:?}");
            assert_eq!((figure.samples, change.significant), (samples, Some(true)));
        }
    }

    #[test]
    fn steps_of_the_same_loop_are_compared_and_few_of_them_say_nothing() {
        let before = steps(100, 10e6, 40.0);
        let change = Steps::compare(&before, &steps(50, 12e6, 41.0)).expect("the same loop");
        assert!(change.rose_above(1.19) && !change.rose_above(1.2), "{change:?}");
        assert!(!Steps::compare(&before, &steps(50, 10.05e6, 40.0)).expect("the same").rose_above(1.0));
        assert_eq!(Steps::compare(&before, &steps(4, 20e6, 40.0)).expect("the same").significant, None);
        assert_eq!(Steps::compare(&before, &steps(50, 12e6, 70.0)), None, "another loop");
        assert_eq!(Steps::compare(&before, &steps(50, 12e6, 0.0)), None);
        assert_eq!(Steps::of(&Profile::default()), None);
    }
}
