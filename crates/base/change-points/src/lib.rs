//! Whether a series of durations has changed, and when.
//!
//! For each point of a series, Wilcoxon's rank sum compares the runs before it with those after it.
//! Whether there is more than chance says the largest standardised sum, against that of the same
//! durations in random order ([`ORDERS`] of them, drawn from a fixed seed). Ranks prefer points in
//! the middle, so where the change is says another estimate: the point that leaves the least
//! squares of logarithms, of which outliers are clipped ([`CLIP`]). Its 90% interval comes from
//! [`DRAWS`] series whose deviations are drawn from the series' own. The size of the change is
//! Hodges' and Lehmann's estimate, the median of all quotients between the two sides, with the 90%
//! interval of Moses. No distribution of the values is assumed; the clip and the limits of the
//! interval of the size use normal approximations. One slow run among many changes little.
//!
//! # Invariants
//! 1. The same series gives the same result, because the seed is fixed.
//! 2. Each side of a change has at least three runs.

use apex_random::Random;

/// Runs on each side of a change at least.
const SIDE: usize = 3;
/// Runs of a series at least.
pub const LEAST_RUNS: usize = 8;
/// Runs that are looked at, the newest.
const MOST_RUNS: usize = 60;
/// Random orders. The least chance that can be told is one of so many and one.
const ORDERS: usize = 999;
/// A change is reported if chance gives as much in at most this share of all orders.
const CHANCE: f64 = 0.01;
/// Random orders that show as large a change, and with which it is no longer reported: no more need
/// to be drawn, so that a series without a change takes a fiftieth of the time.
const TOO_MANY: usize = (CHANCE * (ORDERS + 1) as f64) as usize;
/// Deviations beyond so many standard deviations (by the median of their sizes) are clipped.
const CLIP: f64 = 3.0;
/// Median size of deviations of a normal distribution, in standard deviations.
const MEDIAN_SIZE: f64 = 0.6745;
/// Series that are drawn for the interval of the point.
const DRAWS: usize = 200;
/// Standard errors on each side of a 90% interval.
const NINETY_PERCENT: f64 = 1.645;

/// A change of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Index of the first run after it.
    pub at: usize,
    /// The ends of the 90% interval of that index.
    pub between: (usize, usize),
    /// Duration after it over duration before it.
    pub factor: f64,
    /// The ends of the 90% interval of the factor.
    pub interval: (f64, f64),
    /// The share of random orders of the same durations that show as large a change.
    pub chance: f64,
}

/// All changes of a series of durations, the first run first: where there is one, each side of it
/// is looked at again. Of long series, the newest runs of each part are looked at.
pub fn changes(durations: &[f64]) -> Vec<Change> {
    let Some(found) = change(durations) else { return Vec::new() };
    let moved = |change: Change| Change {
        at: change.at + found.at,
        between: (change.between.0 + found.at, change.between.1 + found.at),
        ..change
    };
    let mut all = changes(&durations[..found.at]);
    all.push(found);
    all.extend(changes(&durations[found.at..]).into_iter().map(moved));
    all
}

/// The change of a series of durations, the first run first; `None` if there is none that is more
/// than chance, or if its interval holds 1.
pub fn change(durations: &[f64]) -> Option<Change> {
    let skipped = durations.len().saturating_sub(MOST_RUNS);
    let durations = &durations[skipped..];
    if durations.len() < LEAST_RUNS || durations.iter().any(|ns| !ns.is_finite() || *ns <= 0.0) {
        return None;
    }
    let mut ranks = ranks(durations);
    let (at, most) = largest(&ranks);
    let mut random = Random::new(7);
    let as_large = (0..ORDERS).filter(|_| {
        random.shuffle(&mut ranks);
        largest(&ranks).1 >= most
    });
    let as_large = as_large.take(TOO_MANY).count();
    if as_large == TOO_MANY {
        return None;
    }
    let chance = (as_large + 1) as f64 / (ORDERS + 1) as f64;
    let (at, between) = point(durations, at, &mut random);
    let (factor, interval) = quotient(&durations[..at], &durations[at..]);
    let is_sure = interval.0 > 1.0 || interval.1 < 1.0;
    let between = (between.0 + skipped, between.1 + skipped);
    is_sure.then_some(Change { at: at + skipped, between, factor, interval, chance })
}

/// The point of a change, with the ends of its 90% interval, from a first guess.
fn point(durations: &[f64], guess: usize, random: &mut Random) -> (usize, (usize, usize)) {
    let logs: Vec<f64> = durations.iter().map(|ns| ns.ln()).collect();
    let sides = Sides::of(&logs, guess);
    let spread = median(sides.deviations(&logs).map(f64::abs).collect()) / MEDIAN_SIZE;
    let (low, high) = (sides.before.min(sides.after), sides.before.max(sides.after));
    let clipped: Vec<f64> =
        logs.iter().map(|log| log.clamp(low - CLIP * spread, high + CLIP * spread)).collect();
    let at = least_squares(&clipped);
    let sides = Sides::of(&clipped, at);
    let deviations: Vec<f64> = sides.deviations(&clipped).collect();
    let mut drawn: Vec<usize> = (0..DRAWS)
        .map(|_| {
            let mut deviation = || deviations[random.below(deviations.len() as u64) as usize];
            least_squares(&(0..logs.len()).map(|run| sides.level(run) + deviation()).collect::<Vec<_>>())
        })
        .collect();
    drawn.sort_unstable();
    (at, (drawn[DRAWS / 20].min(at), drawn[DRAWS - 1 - DRAWS / 20].max(at)))
}

/// The medians on both sides of a point.
struct Sides {
    at: usize,
    before: f64,
    after: f64,
}

impl Sides {
    fn of(values: &[f64], at: usize) -> Self {
        Self { at, before: median(values[..at].to_vec()), after: median(values[at..].to_vec()) }
    }

    fn level(&self, run: usize) -> f64 {
        if run < self.at { self.before } else { self.after }
    }

    fn deviations<'a>(&'a self, values: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        values.iter().enumerate().map(|(run, value)| value - self.level(run))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// The point with the least sum of squared deviations from the means of both sides.
fn least_squares(values: &[f64]) -> usize {
    let (count, all) = (values.len() as f64, values.iter().sum::<f64>());
    let mut sum = 0.0;
    let mut found = (SIDE, -1.0);
    for (at, value) in (1..).zip(values) {
        sum += value;
        let (before, after) = (at as f64, count - at as f64);
        let is_inside = at >= SIDE && values.len() - at >= SIDE;
        // What the two means explain.
        let explained = (sum / before - (all - sum) / after).powi(2) * before * after;
        if is_inside && explained > found.1 {
            found = (at, explained);
        }
    }
    found.0
}

/// The rank of each value from 1; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|other| **other < value).count() as f64;
    let equal = |value: f64| values.iter().filter(|other| **other == value).count() as f64;
    values.iter().map(|&value| below(value) + (equal(value) + 1.0) / 2.0).collect()
}

/// The point whose rank sum is farthest from what chance gives, and how far that is in standard
/// deviations.
fn largest(ranks: &[f64]) -> (usize, f64) {
    let count = ranks.len() as f64;
    let mut sum = 0.0;
    let mut found = (SIDE, 0.0);
    for (at, rank) in (1..).zip(ranks) {
        sum += rank;
        let (before, after) = (at as f64, count - at as f64);
        let is_inside = at >= SIDE && ranks.len() - at >= SIDE;
        let off = (sum - before * (count + 1.0) / 2.0).abs() / (before * after * (count + 1.0) / 12.0).sqrt();
        if is_inside && off > found.1 {
            found = (at, off);
        }
    }
    found
}

/// The median of all quotients, and the ends of its 90% interval.
fn quotient(before: &[f64], after: &[f64]) -> (f64, (f64, f64)) {
    let mut all: Vec<f64> = after.iter().flat_map(|a| before.iter().map(move |b| a / b)).collect();
    all.sort_by(f64::total_cmp);
    let (m, n) = (before.len() as f64, after.len() as f64);
    let off = m * n / 2.0 - NINETY_PERCENT * (m * n * (m + n + 1.0) / 12.0).sqrt();
    let cut = (off.floor().max(0.0) as usize).min((all.len() - 1) / 2);
    let middle = (all[(all.len() - 1) / 2] + all[all.len() / 2]) / 2.0;
    (middle, (all[cut], all[all.len() - 1 - cut]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Durations around 100 that differ by some percent.
    fn noisy(seed: u64, count: usize) -> Vec<f64> {
        let mut random = Random::new(seed);
        (0..count).map(|_| 100.0 * (0.03 * random.normal()).exp()).collect()
    }

    #[test]
    fn a_change_is_found_where_it_is_with_its_size() {
        for (seed, by) in [(1, 1.2), (2, 1.2), (3, 0.8), (4, 1.5)] {
            let mut durations = noisy(seed, 24);
            durations[15..].iter_mut().for_each(|ns| *ns *= by);
            let found = change(&durations).unwrap();
            assert!(found.at.abs_diff(15) <= 1, "{found:?}");
            assert!(found.interval.0 < by && by < found.interval.1, "{found:?}");
            assert!((found.factor / by - 1.0).abs() < 0.06, "{found:?}");
        }
    }

    #[test]
    fn each_of_several_changes_is_found() {
        let mut durations = noisy(8, 60);
        durations[20..].iter_mut().for_each(|ns| *ns *= 1.4);
        durations[40..].iter_mut().for_each(|ns| *ns /= 1.4);
        let found: Vec<usize> = changes(&durations).iter().map(|change| change.at).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].abs_diff(20) <= 1 && found[1].abs_diff(40) <= 1, "{found:?}");
    }

    #[test]
    fn intervals_hold_the_point_and_the_factor_also_near_an_end() {
        for (count, at, by) in [(24, 20, 1.2), (60, 56, 1.5), (24, 4, 0.8), (24, 12, 1.1)] {
            let (mut exact, mut points, mut factors, mut found) = (0, 0, 0, 0);
            for seed in 0..40 {
                let mut durations = noisy(1000 + seed, count);
                durations[at..].iter_mut().for_each(|ns| *ns *= by);
                // One run in a hundred is five times as slow.
                durations.iter_mut().enumerate().for_each(|(run, ns)| {
                    *ns *= if (seed as usize + run).is_multiple_of(100) { 5.0 } else { 1.0 };
                });
                let Some(change) = change(&durations) else { continue };
                found += 1;
                exact += usize::from(change.at == at);
                points += usize::from((change.between.0..=change.between.1).contains(&at));
                factors += usize::from(change.interval.0 < by && by < change.interval.1);
            }
            let said = format!("{count} {at} {by}: {found} found, {exact} exact, {points}, {factors}");
            // (Nine in ten are meant.)
            assert!(found >= 20 && exact * 10 >= found * 7, "{said}");
            assert!(points * 20 >= found * 17 && factors * 20 >= found * 16, "{said}");
        }
    }

    #[test]
    fn chance_is_rarely_a_change() {
        let found = (0..300).filter(|&seed| change(&noisy(seed, 20)).is_some()).count();
        // One in a hundred is expected.
        assert!(found <= 9, "{found}");
    }

    #[test]
    fn one_slow_run_and_too_few_runs_are_no_change() {
        let mut durations = noisy(5, 20);
        durations[19] *= 10.0;
        assert_eq!(change(&durations), None);
        assert_eq!(change(&[1.0, 1.0, 1.0, 2.0, 2.0, 2.0]), None);
        assert_eq!(change(&[0.0; 20]), None);
        assert_eq!(change(&[1.0; 20]), None);
    }

    #[test]
    fn the_newest_runs_of_a_long_series_are_looked_at() {
        let mut durations = noisy(6, 500);
        durations[490..].iter_mut().for_each(|ns| *ns *= 1.3);
        let found = change(&durations).unwrap();
        assert!(found.at.abs_diff(490) <= 1, "{found:?}");
    }
}
