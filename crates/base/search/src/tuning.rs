//! A whole tuning: the search, and the paired confirmation of what it found.
//!
//! The measured function is asked for one configuration after another. It is asked
//!
//! 1. for the original, before everything else and again from time to time, so that a drift of the
//!    machine is seen;
//! 2. for what the strategy chooses. What is known from an earlier run is not measured again, and a
//!    new best is measured a second time, because the least of many noisy times is too low;
//! 3. in turn for the original and the few best ones, in an order drawn at random. That chooses the
//!    candidate;
//! 4. for pairs of the candidate and the original, which did not choose it.
//!
//! Invariants: the original stays unless the 95% interval of the pairs' median ratio lies below
//! [`MOST_RATIO`](crate::paired::MOST_RATIO). What is asked depends on the space, the options
//! and the outcomes alone.

use crate::paired::{Ratio, median};
use crate::results::{Invalid, Outcome, Results};
use crate::space::{Number, Space};
use crate::strategy::{Stop, Strategy, Trials};
use apex_ordered::Order;
use apex_random::Random;
use std::collections::BTreeMap;

/// Trials between two looks at the original.
const BETWEEN_LOOKS: usize = 25;
/// Candidates that are compared with each other at most, beside the original.
const FINALISTS: usize = 4;
/// A finalist costs at most this much more than the best, as far as the search saw.
const CLOSE: f64 = 1.1;
/// Rounds in which finalists are compared.
const ROUNDS: usize = 5;

/// How to tune.
#[derive(Clone, Debug)]
pub struct Options {
    /// The strategy.
    pub strategy: Strategy,
    /// The seed of all random draws.
    pub seed: u64,
    /// Trials of the search at most, besides the original and the confirmation.
    pub trials: usize,
    /// Pairs of the confirmation; 0 for none.
    pub pairs: usize,
    /// The configuration of the program without tuning.
    pub original: Option<Number>,
}

impl Options {
    /// The default for a space: 5% of its configurations, at least 100 and at most 1,000.
    pub fn for_space(space: &Space) -> Self {
        let trials = (space.len() / 20).clamp(100, 1000);
        let strategy = if trials < space.len() { Strategy::Model } else { Strategy::Exhaustive };
        Self { strategy, seed: 0, trials, pairs: 20, original: None }
    }
}

/// Why a configuration is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It is the original, looked at before and during the search.
    Original,
    /// It is a trial of the search, with its number from 1.
    Trial(usize),
    /// It is a new best, measured once more.
    Again,
    /// The best ones are compared.
    Final,
    /// A pair decides.
    Pair,
}

/// A question to the measured function.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The configuration.
    pub number: Number,
    /// Why it is measured.
    pub purpose: Purpose,
    /// The least cost that was found so far, in milliseconds.
    pub best: Option<f64>,
}

/// Why the original stays, or nothing is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// No configuration that was tried costs less.
    NoneBetter,
    /// The interval of the pairs does not lie below 0.99.
    Tie,
    /// Fewer pairs succeeded than decide.
    FewPairs,
}

/// The outcome of a tuning.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Trials that were made, with those whose results were known.
    pub trials: usize,
    /// Trials whose results were known.
    pub known: usize,
    /// Trials that failed, by reason.
    pub failed: BTreeMap<Invalid, usize>,
    /// The median cost of the original, in milliseconds, if there is one and it succeeds.
    pub original: Option<f64>,
    /// The largest cost of the original divided by the least.
    pub drift: Option<f64>,
    /// The configuration of choice, with the median of its times in milliseconds.
    pub best: Option<(Number, f64)>,
    /// The candidate's time divided by the original's.
    pub ratio: Option<Ratio>,
    /// Why the original is the choice, if it is.
    pub kept: Option<Kept>,
    /// Whether the measured function asked to stop.
    pub is_stopped: bool,
}

/// The measured function; a closure is one.
pub trait Measure {
    /// Measures a configuration.
    ///
    /// # Errors
    /// [`Stop::Done`] ends the search, and what was found is confirmed; [`Stop::Asked`] ends the
    /// tuning.
    fn measure(&mut self, ask: Ask) -> Result<Outcome, Stop>;

    /// Is called after each result that is new, for a file.
    fn keep(&mut self, _results: &Results) {}
}

impl<F: FnMut(Ask) -> Result<Outcome, Stop>> Measure for F {
    fn measure(&mut self, ask: Ask) -> Result<Outcome, Stop> {
        self(ask)
    }
}

/// Tunes. `results` has what is known, and receives what is measured.
pub fn tune(space: &Space, options: &Options, results: &mut Results, measure: &mut dyn Measure) -> Found {
    let mut tuning = Tuning { space, options, results, measure, found: Found::default(), looks: Vec::new() };
    match tuning.search().and_then(|trials| tuning.confirm(&trials)) {
        Ok(()) | Err(Stop::Done) => {}
        Err(Stop::Asked) => tuning.found.is_stopped = true,
    }
    tuning.sum_up()
}

struct Tuning<'a> {
    space: &'a Space,
    options: &'a Options,
    results: &'a mut Results,
    measure: &'a mut dyn Measure,
    found: Found,
    /// Times of the original.
    looks: Vec<f64>,
}

impl Tuning<'_> {
    /// Makes the trials, and returns what they cost, the best first.
    fn search(&mut self) -> Result<Vec<(Number, f64)>, Stop> {
        self.look()?;
        let mut since_look = 0;
        let (space, options) = (self.space, self.options);
        let mut measure = |number| {
            if since_look == BETWEEN_LOOKS {
                since_look = 0;
                self.look()?;
            }
            let was_known = self.results.get(number).is_some();
            since_look += usize::from(!was_known);
            self.trial(number, was_known)
        };
        let mut trials = Trials::new(space, options.trials, options.seed, &mut measure);
        let stop = options.strategy.search(&mut trials);
        let best = trials.best(FINALISTS + 1);
        self.found.best = best.first().copied();
        if stop == Stop::Asked { Err(stop) } else { Ok(best) }
    }

    /// The cost of a configuration: known, or measured.
    fn trial(&mut self, number: Number, was_known: bool) -> Result<f64, Stop> {
        let number_of_trial = self.found.trials + 1;
        let mut outcome = match self.results.get(number) {
            Some(known) => known.clone(),
            None => self.ask(number, Purpose::Trial(number_of_trial))?,
        };
        let is_best = outcome.cost() < self.found.best.map_or(f64::INFINITY, |(_, cost)| cost);
        if is_best && !was_known && self.found.best.is_some() {
            outcome = both(outcome, self.ask(number, Purpose::Again)?);
        }
        self.count(number, was_known, &outcome);
        if !was_known {
            self.put(number, outcome.clone());
        }
        Ok(outcome.cost())
    }

    fn count(&mut self, number: Number, was_known: bool, outcome: &Outcome) {
        self.found.trials += 1;
        self.found.known += usize::from(was_known);
        match outcome {
            Outcome::Failed(invalid, _) => *self.found.failed.entry(*invalid).or_default() += 1,
            Outcome::Times(_) if self.found.best.is_none_or(|(_, cost)| outcome.cost() < cost) => {
                self.found.best = Some((number, outcome.cost()));
            }
            Outcome::Times(_) => {}
        }
    }

    fn ask(&mut self, number: Number, purpose: Purpose) -> Result<Outcome, Stop> {
        let best = self.found.best.map(|(_, cost)| cost);
        self.measure.measure(Ask { number, purpose, best })
    }

    fn put(&mut self, number: Number, outcome: Outcome) {
        self.results.put(self.space, number, outcome, None);
        self.measure.keep(self.results);
    }

    /// Measures the original.
    fn look(&mut self) -> Result<(), Stop> {
        if let Some(original) = self.options.original {
            let outcome = self.ask(original, Purpose::Original)?;
            if self.results.get(original).is_none() {
                self.put(original, outcome.clone());
            }
            self.looks.extend(Some(outcome.cost()).filter(|cost| cost.is_finite()));
        }
        Ok(())
    }

    /// Compares the best ones with each other, and the best of them with the original.
    fn confirm(&mut self, best: &[(Number, f64)]) -> Result<(), Stop> {
        let original = self.options.original.filter(|_| !self.looks.is_empty());
        let Some(&(first, least)) = best.first() else { return Ok(()) };
        let close = best.iter().filter(|(number, cost)| *cost <= least * CLOSE && Some(*number) != original);
        let finalists: Vec<Number> = close.map(|(number, _)| *number).take(FINALISTS).collect();
        if Some(first) == original || finalists.is_empty() {
            self.found.kept = Some(Kept::NoneBetter);
            return Ok(());
        }
        if self.options.pairs == 0 {
            return Ok(());
        }
        let mut random = Random::named(self.options.seed, "confirmation");
        let candidate = self.compare(&finalists, &mut random)?;
        if let Some(original) = original {
            self.pair(original, candidate, &mut random)?;
        }
        Ok(())
    }

    /// Measures the finalists in rounds, and returns the best.
    fn compare(&mut self, finalists: &[Number], random: &mut Random) -> Result<Number, Stop> {
        let mut times: Vec<(Number, Vec<f64>)> =
            finalists.iter().map(|&number| (number, Vec::new())).collect();
        for _ in 0..ROUNDS {
            random.shuffle(&mut times);
            for (number, times) in &mut times {
                times.push(self.ask(*number, Purpose::Final)?.cost());
            }
        }
        let mut costs: Vec<(Number, f64)> =
            times.iter().map(|(number, times)| (*number, median(times).unwrap_or(f64::INFINITY))).collect();
        costs.order_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        if costs[0].1.is_finite() {
            self.found.best = Some(costs[0]);
        }
        Ok(costs[0].0)
    }

    /// Lets pairs decide between the original and a candidate.
    fn pair(&mut self, original: Number, candidate: Number, random: &mut Random) -> Result<(), Stop> {
        let (mut ratios, mut times) = (Vec::new(), Vec::new());
        for _ in 0..self.options.pairs {
            let mut both = [(original, 0.0), (candidate, 0.0)];
            let begins_with = random.index(2);
            for place in [begins_with, 1 - begins_with] {
                both[place].1 = self.ask(both[place].0, Purpose::Pair)?.cost();
            }
            let [(_, own), (_, other)] = both;
            self.looks.extend(Some(own).filter(|own| own.is_finite()));
            if own.is_finite() && other.is_finite() {
                ratios.push(other / own);
                times.push(other);
            }
        }
        self.found.ratio = Ratio::of(ratios);
        self.found.kept = match self.found.ratio {
            None => Some(Kept::FewPairs),
            Some(ratio) if ratio.is_better() => None,
            Some(_) => Some(Kept::Tie),
        };
        if let Some(median) = median(&times) {
            self.found.best = Some((candidate, median));
        }
        Ok(())
    }

    fn sum_up(mut self) -> Found {
        let of_looks = |worse: fn(f64, f64) -> f64| self.looks.iter().copied().reduce(worse);
        self.found.drift = of_looks(f64::max).zip(of_looks(f64::min)).map(|(most, least)| most / least);
        self.found.original = median(&self.looks);
        if self.found.kept.is_some() {
            self.found.best = self.options.original.zip(self.found.original);
        }
        self.found
    }
}

/// Both outcomes of a configuration as one; a failure outweighs.
fn both(first: Outcome, second: Outcome) -> Outcome {
    match (first, second) {
        (Outcome::Times(first), Outcome::Times(second)) => Outcome::Times([first, second].concat()),
        (_, failed @ Outcome::Failed(..)) | (failed, _) => failed,
    }
}
