//! Phases, from the repetition of launches.
//!
//! A program that trains or generates launches the same functions in each iteration, in other
//! configurations perhaps (shapes grow). An *iteration* is found by a *mark*: a function of which
//! every so many launches as many others lie between two of them. Of all functions, the mark is the
//! one whose iterations cover the most launches and time; of equal ones, the one with the most
//! iterations. What lies before its first iteration is the start-up, what lies between iterations
//! and is unlike them (an evaluation) is neither.
//!
//! What the host does belongs to the iteration in which it does it. What a device does belongs to
//! the iteration whose first work it has begun last, which may be much later: so the time of an
//! iteration holds the work of an iteration, however far the host runs ahead.
//!
//! Only the first [`KEPT`] launches of a process are looked at; what comes after them belongs to
//! the last phase.

use std::collections::HashMap;
use std::ops::Range;

use super::{Boundaries, Iterations, PhaseKind};
use crate::figure::Figure;
use crate::profile::places::ById;
use crate::sketch::Sketch;

/// Launches of a process that are looked at.
const KEPT: usize = 1 << 21;
/// Launches of the mark in one iteration, at most.
const MOST_MARKS: usize = 16;
/// Iterations that make a loop.
const LEAST: usize = 10;
/// The steady state takes at least this share of the time …
const SHARE: f64 = 0.1;
/// … or this much, nanoseconds …
const LONG_NS: u64 = 1_000_000_000;
/// … or this much with most of the launches: a short run behind a long start-up.
const SHORT_NS: u64 = 200_000_000;
/// Iterations are alike if their launches differ by at most this part.
const ALIKE: u32 = 10;
/// What an iteration counts that is as long as the others, but not of the same functions.
const OTHER_FUNCTIONS: f64 = 0.7;
/// A mark this close to the best is as good.
const AS_GOOD: f64 = 0.99;
/// An iteration that takes more than this many times the usual one counts as a usual one: a first
/// one that compiles or loads code for seconds is no reason to prefer the mark that has it.
const SLOWEST: u64 = 4;
/// An iteration of the warm-up takes this many times what a later one takes.
const SLOW: f64 = 1.5;

/// What was launched, in the order of time.
#[derive(Default)]
pub(crate) struct Launched {
    functions: Vec<u32>,
    starts: Vec<u64>,
}

/// The iterations of a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Loop {
    /// Times from the mark of one to that of the next, nanoseconds after the process's start.
    iterations: Vec<Range<u64>>,
    /// Launches of all of them.
    launches: u64,
    /// Iterations that belong to the warm-up.
    warmup: usize,
    /// The last iteration that was looked at is not the last one.
    goes_on: bool,
}

/// A mark that was tried.
struct Tried {
    places: Vec<usize>,
    score: f64,
    launches: u64,
}

impl Launched {
    /// A launch of a function, or of a graph.
    pub fn launch(&mut self, function: u32, start: u64) {
        if self.functions.len() < KEPT {
            self.functions.push(function);
            self.starts.push(start);
        }
    }

    /// The loop that the launches are, if they are one that takes a good part of the time until
    /// `end`.
    pub fn find_loop(&self, end: u64) -> Option<Loop> {
        let first = *self.starts.first()?;
        let span = end.saturating_sub(first).max(1);
        let mut places: ById<Vec<u32>> = ById::default();
        for (place, &function) in self.functions.iter().enumerate() {
            places.entry(function, Vec::new).push(place as u32);
        }
        let sums = self.sums();
        let mark = self.best_mark(&places, &sums, span)?;
        let iterations: Vec<Range<u64>> =
            mark.places.chunks_exact(2).map(|ends| self.starts[ends[0]]..self.starts[ends[1]]).collect();
        let covered: u64 = iterations.iter().map(|one| one.end - one.start).sum();
        let most = 2 * mark.launches as usize >= self.functions.len();
        let long = if most { SHORT_NS } else { LONG_NS };
        let counts = iterations.len() >= LEAST && (covered as f64 >= SHARE * span as f64 || covered >= long);
        counts.then(|| Loop {
            warmup: warmup(&iterations),
            iterations,
            launches: mark.launches,
            goes_on: self.functions.len() == KEPT,
        })
    }

    /// Of each launch, the sum of [`mixed`] functions before it.
    fn sums(&self) -> Vec<u64> {
        let sums = self.functions.iter().scan(0u64, |sum, &function| {
            let before = *sum;
            *sum = sum.wrapping_add(mixed(function));
            Some(before)
        });
        sums.collect()
    }

    /// The best mark.
    ///
    /// A score cannot exceed what the first to the last launch of a function covers. A mark that
    /// comes close enough to that is as good as any, so that those which can only have fewer
    /// iterations need not be tried.
    fn best_mark(&self, places: &ById<Vec<u32>>, sums: &[u64], span: u64) -> Option<Tried> {
        let covered = |places: &Vec<u32>| {
            let (first, last) = (*places.first()? as usize, *places.last()? as usize);
            let time = (self.starts[last] - self.starts[first]) as f64 / span as f64;
            Some(((last - first) as f64 / self.functions.len() as f64 * time).sqrt())
        };
        let most = places.values().filter_map(covered).fold(0.0, f64::max);
        // (The rest is room for rounding.)
        let enough = AS_GOOD * most * (1.0 + 1e-9);
        let (mut tried, mut left_out, mut most_ends) = (Vec::<Tried>::new(), Vec::new(), 0);
        for marks in 1..=MOST_MARKS {
            for places in places.values().filter(|places| marks <= places.len() / LEAST) {
                if 2 * (places.len() - marks).div_ceil(marks) < most_ends {
                    left_out.push((places, marks));
                    continue;
                }
                let mark = self.try_mark(places, marks, sums, span);
                if let Some(mark) = mark.as_ref().filter(|mark| mark.score >= enough) {
                    most_ends = most_ends.max(mark.places.len());
                }
                tried.extend(mark);
            }
        }
        if best(&tried).is_none_or(|mark| tried[mark].score < enough) {
            tried.extend(
                left_out.into_iter().filter_map(|(places, marks)| self.try_mark(places, marks, sums, span)),
            );
        }
        best(&tried).map(|mark| tried.swap_remove(mark))
    }

    /// Iterations between every `marks`-th of these places, and how good they are.
    fn try_mark(&self, places: &[u32], marks: usize, sums: &[u64], span: u64) -> Option<Tried> {
        let ends = |at: usize| (places[at] as usize, places[at + marks] as usize);
        let length = |at: usize| places[at + marks] - places[at];
        let count = places.len() - marks;
        let mut lengths: Vec<u32> = (0..count).map(length).collect();
        let usual = *lengths.select_nth_unstable(count / 2).1;
        let alike = |at: usize| length(at).abs_diff(usual) <= usual / ALIKE;
        let content = |at: usize| sums[ends(at).1].wrapping_sub(sums[ends(at).0]);
        // The content of most iterations, by a sample of the later ones.
        let mut contents: HashMap<u64, usize> = HashMap::new();
        (count / 2..count).step_by((count / 128).max(1)).filter(|&at| alike(at)).for_each(|at| {
            *contents.entry(content(at)).or_default() += 1;
        });
        let (&content_of_most, _) = contents.iter().max_by_key(|&(content, count)| (*count, *content))?;
        let mut tried = Tried { places: Vec::new(), score: 0.0, launches: 0 };
        let (mut launches, mut durations, mut at) = (0.0, Vec::new(), 0);
        while at < count {
            if !alike(at) {
                at += 1;
                continue;
            }
            let (from, to) = ends(at);
            let weight = if content(at) == content_of_most { 1.0 } else { OTHER_FUNCTIONS };
            launches += weight * (to - from) as f64;
            durations.push((self.starts[to] - self.starts[from], weight));
            tried.launches += (to - from) as u64;
            tried.places.extend([from, to]);
            at += marks;
        }
        if durations.is_empty() {
            return None;
        }
        let middle = durations.len() / 2;
        let usual = durations.select_nth_unstable_by_key(middle, |one| one.0).1.0;
        let counted = |duration: u64| if duration > SLOWEST * usual { usual } else { duration };
        let time: f64 = durations.iter().map(|&(duration, weight)| weight * counted(duration) as f64).sum();
        tried.score = (launches / self.functions.len() as f64 * time / span as f64).sqrt();
        Some(tried)
    }
}

/// Of marks that are about as good as any, the one with the most iterations.
fn best(tried: &[Tried]) -> Option<usize> {
    let best = tried.iter().map(|tried| tried.score).fold(0.0, f64::max);
    let good = (0..tried.len()).filter(|&mark| tried[mark].score >= AS_GOOD * best);
    good.max_by_key(|&mark| (tried[mark].places.len(), std::cmp::Reverse(tried[mark].places[0])))
}

/// Iterations at the beginning that are slower than the later half.
fn warmup(iterations: &[Range<u64>]) -> usize {
    let durations: Vec<u64> = iterations.iter().map(|one| one.end - one.start).collect();
    let mut later = durations[durations.len() / 2..].to_vec();
    let middle = later.len() / 2;
    let usual = *later.select_nth_unstable(middle).1 as f64;
    let settled = |three: &[u64]| three.iter().all(|&duration| duration as f64 <= SLOW * usual);
    durations[..durations.len() / 2].windows(3).position(settled).unwrap_or(0)
}

/// A number for each function whose sums differ where the functions do (the finaliser of
/// SplitMix64).
fn mixed(function: u32) -> u64 {
    let mut x = u64::from(function).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Loop {
    /// From when to when each iteration lasts, on the host.
    pub fn all(&self) -> &[Range<u64>] {
        &self.iterations
    }

    /// When the host begins iterations, and what is none.
    pub fn boundaries(&self) -> Boundaries {
        let mut boundaries = vec![(0, PhaseKind::Startup)];
        let mut end = None;
        for (number, iteration) in self.iterations.iter().enumerate() {
            if let Some(end) = end.filter(|&end| end < iteration.start) {
                boundaries.push((end, PhaseKind::Between));
            }
            let kind = if number < self.warmup { PhaseKind::Warmup } else { PhaseKind::Steady };
            boundaries.push((iteration.start, kind));
            end = Some(iteration.end);
        }
        if let Some(end) = end.filter(|_| !self.goes_on) {
            boundaries.push((end, PhaseKind::End));
        }
        boundaries.into()
    }

    /// The iterations of the steady state that lie in a window; `None` where there are none. Their
    /// time is the host's; what they take is the device's to say.
    pub fn iterations(&self, window: &Range<u64>) -> Option<Iterations> {
        let lies = |one: &&Range<u64>| window.start <= one.start && one.end <= window.end;
        let steady: Vec<_> = self.iterations[self.warmup..].iter().filter(lies).collect();
        let mut intervals = Sketch::default();
        steady.iter().for_each(|one| intervals.add(one.end - one.start));
        let duration = intervals.distribution();
        (!steady.is_empty()).then(|| Iterations {
            count: steady.len() as u64,
            step_ns: Figure::measured(duration.mean_ns).of_samples(duration.count),
            duration,
            launches: self.launches as f64 / self.iterations.len() as f64,
            warmup: self.warmup as u64,
            start_ns: steady.first().map_or(0.0, |first| first.start as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn marks_that_are_not_tried_are_not_the_best(
            startup in prop::collection::vec(0u32..4, 0..30),
            body in prop::collection::vec((0u32..4, 1u64..50), 1..12),
            steps in 10usize..60,
            noise in prop::collection::vec((0usize..400, 0u32..5), 0..6),
        ) {
            let mut launched = Launched::default();
            let mut now = 0;
            let steady = (0..steps).flat_map(|_| &body).copied();
            for (at, (function, gap)) in startup.into_iter().map(|function| (function, 1000)).chain(steady).enumerate() {
                now += gap;
                launched.launch(noise.iter().find(|(place, _)| *place == at).map_or(function, |one| one.1), now);
            }
            let mut places: ById<Vec<u32>> = ById::default();
            for (&function, place) in launched.functions.iter().zip(0..) {
                places.entry(function, Vec::new).push(place);
            }
            let sums = launched.sums();
            let mut all = Vec::new();
            for marks in 1..=MOST_MARKS {
                let often = places.values().filter(|places| marks <= places.len() / LEAST);
                all.extend(often.filter_map(|places| launched.try_mark(places, marks, &sums, now)));
            }
            let found = launched.best_mark(&places, &sums, now).map(|mark| mark.places);
            prop_assert_eq!(found, best(&all).map(|mark| all[mark].places.clone()));
        }
    }
}
