//! Phases, from the repetition of launches.
//!
//! A program that trains or generates launches the same functions in each iteration, in other
//! configurations perhaps (shapes grow). An *iteration* is found by a *mark*: a function whose
//! launches are separated by the same number of other launches, again and again. Of all functions,
//! the mark is the one whose iterations cover the most launches and time; of equal ones, the one
//! with the most iterations. What lies before its first iteration is the start-up, what lies
//! between iterations and is unlike them (an evaluation) is neither.
//!
//! In a process that launches nothing, copies, sets and waits take the place of launches; those of
//! one sort that follow each other count as one launch of several kernels, so that an iteration is
//! not one of its many copies.
//!
//! A graph counts as many launches as it has kernels. Otherwise a loop that launches one graph in
//! each iteration would look short beside the compilation before it.
//!
//! Several iterations must not be taken for one. Two things would make them look better than each
//! alone: a pause, which is long beside one iteration and short beside sixteen, and launches that
//! only every so many iterations make (one that logs). So pauses are cut for all marks alike
//! ([`Launched::times`]), and an iteration counts by what it has in common with most others.
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
use crate::profile::by_id::ById;
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
/// … or this much with most of the kernels: a short run behind a long start-up.
const SHORT_NS: u64 = 30_000_000;
/// Iterations are alike if their launches differ by at most this part.
const ALIKE: u64 = 10;
/// The least weight of an iteration that is as long as the others, but not of the same functions.
const OTHER_FUNCTIONS: f64 = 0.7;
/// A mark this close to the best is as good.
const AS_GOOD: f64 = 0.99;
/// Parts of equal numbers of launches in which the longest intervals between two launches are
/// looked for.
const PARTS: usize = 2 * LEAST;
/// An interval between two launches counts no more than the longest one of this quantile of the
/// parts: that a program compiles or loads code for seconds is no reason to prefer the mark that
/// has it.
const USUAL_PART: f64 = 0.75;
/// The factor by which an iteration's weight falls with the share of its launches that others do
/// not have. It is more than 1, because iterations that consist of several units, with a few
/// launches between them, differ by more than iterations that log do.
const STRICT: f64 = 3.0;
/// An iteration of the warm-up takes this many times what a later one takes.
const SLOW: f64 = 1.5;

/// The launches, in the order of time.
#[derive(Default)]
pub(crate) struct Launched {
    functions: Vec<u32>,
    starts: Vec<u64>,
    /// Kernels of each.
    kernels: Vec<u32>,
}

/// The properties of each launch by which marks are compared.
struct Compared {
    /// The content before each launch.
    sums: Vec<Content>,
    /// The time since the first one, without long pauses.
    times: Vec<u64>,
    /// Kernels before it; one more row has all.
    kernels: Vec<u64>,
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
    /// A launch of a function, or of a graph with this number of kernels (0 if unknown).
    pub fn launch(&mut self, function: u32, start: u64, kernels: u32) {
        if self.functions.len() < KEPT {
            self.functions.push(function);
            self.starts.push(start);
            self.kernels.push(kernels.max(1));
        }
    }

    /// A copy, set or wait of a sort.
    pub fn call(&mut self, sort: u32, start: u64) {
        match (self.functions.last(), self.kernels.last_mut()) {
            (Some(&last), Some(calls)) if last == sort => *calls = calls.saturating_add(1),
            _ => self.launch(sort, start, 1),
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
        let compared = self.compared();
        let mark = best_mark(&places, &compared)?;
        let iterations: Vec<Range<u64>> =
            mark.places.chunks_exact(2).map(|ends| self.starts[ends[0]]..self.starts[ends[1]]).collect();
        let covered: u64 = iterations.iter().map(|one| one.end - one.start).sum();
        let kernels: u64 = mark.places.chunks_exact(2).map(|ends| compared.kernels(ends[0]..ends[1])).sum();
        let most = 2 * kernels >= compared.kernels(0..self.functions.len());
        let long = if most { SHORT_NS } else { LONG_NS };
        let counts = iterations.len() >= LEAST && (covered as f64 >= SHARE * span as f64 || covered >= long);
        counts.then(|| Loop {
            warmup: warmup(&iterations),
            iterations,
            launches: mark.launches,
            goes_on: self.functions.len() == KEPT,
        })
    }

    fn compared(&self) -> Compared {
        Compared { sums: self.sums(), times: self.times(), kernels: self.kernels_before() }
    }

    /// Returns the content before each launch.
    fn sums(&self) -> Vec<Content> {
        let mut lanes: ById<u32> = ById::default();
        let mut known = 0;
        let sums = self.functions.iter().scan(Content(0), |sum, &function| {
            let lane = *lanes.entry(function, || {
                known += 1;
                known - 1
            });
            let before = *sum;
            sum.add(lane);
            Some(before)
        });
        sums.collect()
    }

    /// Returns the time from the first launch to each launch, without long pauses.
    fn times(&self) -> Vec<u64> {
        let interval = |two: &[u64]| two[1].saturating_sub(two[0]);
        let intervals: Vec<u64> = self.starts.windows(2).map(interval).collect();
        let part = intervals.len().div_ceil(PARTS).max(1);
        let mut longest: Vec<u64> =
            intervals.chunks(part).filter_map(|part| part.iter().copied().max()).collect();
        longest.sort_unstable();
        let usual = (longest.len() as f64 * USUAL_PART) as usize;
        let most = longest.get(usual).copied().unwrap_or(u64::MAX);
        let sum = |sum: &mut u64, interval: u64| {
            *sum = sum.saturating_add(interval.min(most));
            Some(*sum)
        };
        std::iter::once(0).chain(intervals.iter().copied().scan(0, sum)).collect()
    }

    /// Returns the number of kernels before each launch and before the end.
    fn kernels_before(&self) -> Vec<u64> {
        let sum = |sum: &mut u64, &kernels: &u32| {
            *sum += u64::from(kernels);
            Some(*sum)
        };
        std::iter::once(0).chain(self.kernels.iter().scan(0, sum)).collect()
    }
}

/// The best mark.
///
/// A score cannot exceed what the first to the last launch of a function covers. A mark that
/// comes close enough to that is as good as any, so that those which can only have fewer
/// iterations need not be tried.
fn best_mark(places: &ById<Vec<u32>>, compared: &Compared) -> Option<Tried> {
    let covered = |places: &Vec<u32>| {
        let (first, last) = (*places.first()? as usize, *places.last()? as usize);
        Some(compared.score(compared.kernels(first..last) as f64, compared.time(first..last) as f64))
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
            let mark = try_mark(places, marks, compared);
            if let Some(mark) = mark.as_ref().filter(|mark| mark.score >= enough) {
                most_ends = most_ends.max(mark.places.len());
            }
            tried.extend(mark);
        }
    }
    if best(&tried).is_none_or(|mark| tried[mark].score < enough) {
        tried.extend(left_out.into_iter().filter_map(|(places, marks)| try_mark(places, marks, compared)));
    }
    best(&tried).map(|mark| tried.swap_remove(mark))
}

impl Compared {
    fn time(&self, of: Range<usize>) -> u64 {
        self.times[of.end] - self.times[of.start]
    }

    fn kernels(&self, of: Range<usize>) -> u64 {
        self.kernels[of.end] - self.kernels[of.start]
    }

    /// Returns the score of a mark whose iterations cover this number of kernels and this time.
    fn score(&self, kernels: f64, time: f64) -> f64 {
        let of = |part: f64, all: &[u64]| part / all.last().map_or(1, |&last| last.max(1)) as f64;
        (of(kernels, &self.kernels) * of(time, &self.times)).sqrt()
    }
}

/// Iterations between every `marks`-th of these places, and how good they are.
fn try_mark(places: &[u32], marks: usize, compared: &Compared) -> Option<Tried> {
    let from_to = |at: usize| places[at] as usize..places[at + marks] as usize;
    let length = |at: usize| compared.kernels(from_to(at));
    let count = places.len() - marks;
    let mut lengths: Vec<u64> = (0..count).map(length).collect();
    let usual = *lengths.select_nth_unstable(count / 2).1;
    let alike = |at: usize| length(at).abs_diff(usual) <= usual / ALIKE;
    let content = |at: usize| compared.sums[from_to(at).end].since(compared.sums[from_to(at).start]);
    // The content of most iterations, by a sample of the later ones.
    let mut contents: HashMap<Content, usize> = HashMap::new();
    (count / 2..count).step_by((count / 128).max(1)).filter(|&at| alike(at)).for_each(|at| {
        *contents.entry(content(at)).or_default() += 1;
    });
    let (&content_of_most, _) = contents.iter().max_by_key(|&(content, count)| (*count, *content))?;
    let mut tried = Tried { places: Vec::new(), score: 0.0, launches: 0 };
    let (mut kernels, mut time, mut at) = (0.0, 0.0, 0);
    while at < count {
        if !alike(at) {
            at += 1;
            continue;
        }
        let iteration = from_to(at);
        // (Of the launches from one mark to the next: or else longer iterations would differ less.)
        let others = f64::from(content(at).differs_by(content_of_most)) * marks as f64;
        let weight = (1.0 - STRICT * others / usual as f64).max(OTHER_FUNCTIONS);
        kernels += weight * compared.kernels(iteration.clone()) as f64;
        time += weight * compared.time(iteration.clone()) as f64;
        tried.launches += iteration.len() as u64;
        tried.places.extend([iteration.start, iteration.end]);
        at += marks;
    }
    tried.score = compared.score(kernels, time);
    (!tried.places.is_empty()).then_some(tried)
}

/// Returns the mark with the most iterations, of those that are about as good as any.
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

/// The numbers of launches of functions: sixteen counters, which functions share in turn, of eight
/// bits each. A difference of two is exact where no counter differs by [`Content::MOST`] and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Content(u128);

impl Content {
    const COUNTERS: u32 = 16;
    const BITS: u32 = u128::BITS / Self::COUNTERS;
    const MOST: u128 = 1 << (Self::BITS - 1);

    /// Counts a launch of the function with this number.
    fn add(&mut self, function: u32) {
        self.0 = self.0.wrapping_add(1 << (function % Self::COUNTERS * Self::BITS));
    }

    fn since(self, before: Self) -> Self {
        Self(self.0.wrapping_sub(before.0))
    }

    /// Returns a lower bound of the number of launches by which it differs from another content.
    fn differs_by(self, other: Self) -> u32 {
        // Adding the same to each counter makes all differences positive.
        let each = u128::MAX / ((1 << Self::BITS) - 1) * Self::MOST;
        let shifted = self.0.wrapping_sub(other.0).wrapping_add(each).to_le_bytes();
        shifted.into_iter().map(|byte| u32::from(byte.abs_diff(Self::MOST as u8))).sum()
    }
}

impl Loop {
    /// Returns the interval of each iteration on the host.
    pub fn all(&self) -> &[Range<u64>] {
        &self.iterations
    }

    /// Returns the starts of iterations and of the time between them on the host.
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

    /// Nanoseconds between two launches.
    const GAP: u64 = 10_000;

    /// Returns a training step of this number of layers: forward, backward, and an optimizer of
    /// `chunks` launches.
    fn step(layers: u32, chunks: usize) -> Vec<u32> {
        let forward = (0..layers).flat_map(|layer| [0, 1, 2 + layer % 3]);
        let backward = (0..layers).flat_map(|layer| [5, 6, 0, 7 + layer % 3]);
        [100].into_iter().chain(forward).chain(backward).chain(std::iter::repeat_n(20, chunks)).collect()
    }

    /// Launches of these steps, the first one after `pause`, and the number of iterations that are
    /// found.
    fn iterations(steps: impl Iterator<Item = Vec<u32>>, pause: impl Fn(usize) -> u64) -> usize {
        let (mut launched, mut now) = (Launched::default(), 0);
        // The start-up: parameters are made.
        for _ in 0..100 {
            now += GAP;
            launched.launch(200, now, 1);
        }
        for (number, step) in steps.enumerate() {
            now += pause(number);
            for function in step {
                now += GAP;
                launched.launch(function, now, 1);
            }
        }
        launched.find_loop(now).map_or(0, |found| found.iterations.len())
    }

    #[test]
    fn steps_that_log_now_and_then_are_steps() {
        for every in 2..=10_usize {
            let found = iterations(
                (0..206).map(|number: usize| {
                    let mut step = step(50, 12);
                    if number.is_multiple_of(every) {
                        step.extend([30, 31]);
                    }
                    step
                }),
                |_| 100 * GAP,
            );
            assert!((204..=206).contains(&found), "{found} steps where one of {every} logs");
        }
    }

    #[test]
    fn steps_whose_launches_vary_a_little_are_steps() {
        // The loader's copy comes in another place, the optimizer has more chunks for a while, and
        // every 16th step writes a summary.
        let found = iterations(
            (0..206).map(|number: usize| {
                let mut step = step(50, 12 + number % 4 / 2);
                step.insert(number * 7 % 40, 40);
                step.extend(std::iter::repeat_n(50, if number.is_multiple_of(16) { 3 } else { 0 }));
                step
            }),
            |_| 0,
        );
        assert!((204..=206).contains(&found), "{found} steps");
    }

    #[test]
    fn a_pause_does_not_make_several_steps_one() {
        // As long as some 30 steps: 16 steps and the pause are less than four times 16 steps.
        let pause = |number: usize| if number == 3 { 30 * 360 * GAP } else { number as u64 % 7 * GAP };
        let found = iterations((0..206).map(|_| step(50, 12)), pause);
        assert!((204..=206).contains(&found), "{found} steps");
    }

    #[test]
    fn runs_of_a_short_loop_have_its_iterations() {
        // As XLA runs a scan: two kernels in each iteration, and some more after the last.
        let found =
            iterations((0..12).map(|_| [1, 2].repeat(500).into_iter().chain([3, 4, 5, 6]).collect()), |_| {
                100 * GAP
            });
        assert!((5980..=6000).contains(&found), "{found} steps");
    }

    #[test]
    fn a_loop_of_graphs_counts_by_their_kernels() {
        // As JAX runs a step: it tries kernels for seconds, then launches a graph each time.
        let (mut launched, mut now) = (Launched::default(), 0);
        for trial in 0..2700 {
            now += if trial % 200 == 0 { 10_000 * GAP } else { 30 * GAP };
            launched.launch(trial % 5, now, 1);
        }
        let first = now;
        for _ in 0..600 {
            now += 90 * GAP;
            launched.launch(100, now, 36);
        }
        let found = launched.find_loop(now).expect("a loop");
        assert_eq!((found.iterations.len(), found.launches), (599, 599));
        assert_eq!(found.iterations[0].start, first + 90 * GAP);
    }

    #[test]
    fn micro_batches_of_one_optimizer_step_are_one_iteration() {
        let found = iterations((0..200).map(|number| step(50, if number % 4 == 3 { 30 } else { 0 })), |_| 0);
        assert!((48..=50).contains(&found), "{found} steps");
    }

    proptest! {
        #[test]
        fn contents_differ_by_at_most_their_launches(
            one in prop::collection::vec(0u32..40, 0..100),
            other in prop::collection::vec(0u32..40, 0..100),
        ) {
            let of = |functions: &[u32]| {
                let mut content = Content(u128::MAX - 7);
                functions.iter().for_each(|&function| content.add(function));
                content.since(Content(u128::MAX - 7))
            };
            let count = |functions: &[u32], counter: u32| {
                functions.iter().filter(|&function| function % Content::COUNTERS == counter).count()
            };
            let differences = (0..Content::COUNTERS).map(|counter| {
                count(&one, counter).abs_diff(count(&other, counter)) as u32
            });
            prop_assert_eq!(of(&one).differs_by(of(&other)), differences.sum::<u32>());
            prop_assert_eq!(of(&other).differs_by(of(&one)), of(&one).differs_by(of(&other)));
        }
    }

    /// A start-up of `odd` launches of different functions over `start_ns`, and then `marks`
    /// iterations of three launches, one each `gap`; and when the last one begins.
    fn after_startup(odd: u32, start_ns: u64, marks: u64, gap: u64) -> (Launched, u64) {
        let (mut launched, mut now) = (Launched::default(), 0);
        for number in 0..odd {
            launched.launch(1000 + number, u64::from(number) * start_ns / u64::from(odd), 1);
        }
        for number in 0..marks * 3 {
            now = start_ns + number * gap;
            launched.launch((number % 3) as u32, now, 1);
        }
        (launched, now)
    }

    fn finds_a_loop((launched, end): (Launched, u64)) -> bool {
        launched.find_loop(end).is_some()
    }

    #[test]
    fn a_graph_of_unknown_size_is_a_kernel_and_calls_of_a_sort_are_one_launch() {
        let mut launched = Launched::default();
        launched.launch(1, 0, 0);
        launched.launch(1, 1, 4);
        assert_eq!(launched.kernels, [1, 4]);
        let mut calls = Launched::default();
        [7, 7, 8, 7].into_iter().zip(0..).for_each(|(sort, start)| calls.call(sort, start));
        assert_eq!((calls.functions, calls.kernels), (vec![7, 8, 7], vec![2, 1, 1]));
    }

    #[test]
    fn ten_iterations_are_a_loop_and_nine_are_none() {
        assert!(finds_a_loop(after_startup(0, 0, 11, GAP)));
        assert!(!finds_a_loop(after_startup(0, 0, 10, GAP)));
    }

    #[test]
    fn a_loop_takes_a_tenth_of_the_time_or_long_or_has_most_kernels() {
        let (ms, s) = (1_000_000, 1_000_000_000);
        // 60 iterations in 60 launches' time each third: their time is 177 gaps.
        let of = |odd, start_ns, time| finds_a_loop(after_startup(odd, start_ns, 60, time / 180));
        assert!(of(30, 16 * ms, 4 * ms), "a fifth of the time");
        assert!(!of(30, 16 * ms, ms), "a twentieth, and short");
        assert!(of(100, 10 * s, 40 * ms), "short, with most of the kernels");
        assert!(!of(100, 10 * s, 20 * ms), "shorter");
        assert!(!of(300, 10 * s, 40 * ms), "short, with less than half of the kernels");
        assert!(of(300, 100 * s, 2 * s), "long");
    }

    #[test]
    fn a_pause_counts_no_more_than_usual_intervals() {
        let (mut launched, mut now) = (Launched::default(), 0);
        for number in 0..40 {
            now += if number == 20 { 1_000_000 } else { 10 };
            launched.launch(1, now, 1);
        }
        assert_eq!(launched.times().last(), Some(&390));
    }

    #[test]
    fn the_warmup_is_what_is_slower_than_later_iterations() {
        let iterations = |durations: &[u64]| -> Vec<Range<u64>> {
            let ends = durations.iter().scan(0, |now, duration| {
                *now += duration;
                Some(*now - duration..*now)
            });
            ends.collect()
        };
        let slow = [[200; 5].as_slice(), &[100; 20]].concat();
        assert_eq!(warmup(&iterations(&slow)), 5);
        let bearable = [[150; 5].as_slice(), &[100; 20]].concat();
        assert_eq!(warmup(&iterations(&bearable)), 0);
    }

    /// Two iterations of warm-up, two that follow each other, and one behind a pause.
    fn five(goes_on: bool) -> Loop {
        let iterations = vec![10..30, 30..50, 50..60, 60..70, 90..100];
        Loop { iterations, launches: 16, warmup: 2, goes_on }
    }

    #[test]
    fn phases_begin_with_iterations_and_where_there_are_none() {
        use PhaseKind::{Between, End, Startup, Steady, Warmup};
        let begun = vec![
            (0, Startup),
            (10, Warmup),
            (30, Warmup),
            (50, Steady),
            (60, Steady),
            (70, Between),
            (90, Steady),
        ];
        let ended: Vec<_> = begun.iter().copied().chain([(100, End)]).collect();
        assert_eq!(format!("{:?}", five(true).boundaries()), format!("{:?}", Boundaries::from(begun)));
        assert_eq!(format!("{:?}", five(false).boundaries()), format!("{:?}", Boundaries::from(ended)));
    }

    #[test]
    fn iterations_of_a_window_lie_in_it_as_a_whole() {
        let steady = |window: Range<u64>| {
            let found = five(false).iterations(&window)?;
            Some((found.count, found.start_ns, found.launches, found.warmup))
        };
        assert_eq!(steady(0..100), Some((3, 50.0, 3.2, 2)));
        assert_eq!(steady(55..99), Some((1, 60.0, 3.2, 2)));
        assert_eq!(steady(0..59), None);
    }

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
                launched.launch(noise.iter().find(|(place, _)| *place == at).map_or(function, |one| one.1), now, 1);
            }
            let mut places: ById<Vec<u32>> = ById::default();
            for (&function, place) in launched.functions.iter().zip(0..) {
                places.entry(function, Vec::new).push(place);
            }
            let compared = launched.compared();
            let mut all = Vec::new();
            for marks in 1..=MOST_MARKS {
                let often = places.values().filter(|places| marks <= places.len() / LEAST);
                all.extend(often.filter_map(|places| try_mark(places, marks, &compared)));
            }
            let found = best_mark(&places, &compared).map(|mark| mark.places);
            prop_assert_eq!(found, best(&all).map(|mark| all[mark].places.clone()));
        }
    }
}
