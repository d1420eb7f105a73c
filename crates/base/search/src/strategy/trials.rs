//! The trials of a search: which configurations were measured, and what each costs.

use crate::space::{Number, Space};
use apex_random::Random;
use std::collections::HashMap;

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All trials were made, or the space has no other configuration.
    Done,
    /// The measured function asked for it.
    Asked,
}

/// Configurations that are kept as the best, at most.
pub const MOST_BEST: usize = 16;

/// See the [module](self).
pub struct Trials<'a> {
    space: &'a Space,
    limit: usize,
    measure: &'a mut dyn FnMut(Number) -> Result<f64, Stop>,
    costs: HashMap<Number, f64>,
    /// In the order of the trials.
    made: Vec<(Number, f64)>,
    /// The best ones, the best first.
    best: Vec<(Number, f64)>,
    /// Configurations in an order drawn at random, which draws take from the end.
    order: Option<Vec<Number>>,
    /// For the strategy.
    pub random: Random,
}

impl<'a> Trials<'a> {
    /// At most `limit` trials, each of which `measure` makes. It returns the cost, a positive
    /// number, infinity if the configuration fails.
    pub fn new(
        space: &'a Space,
        limit: usize,
        seed: u64,
        measure: &'a mut dyn FnMut(Number) -> Result<f64, Stop>,
    ) -> Self {
        let random = Random::named(seed, "search");
        let (costs, made, best) = (HashMap::new(), Vec::new(), Vec::new());
        Self { space, limit, measure, costs, made, best, order: None, random }
    }

    /// The space.
    pub fn space(&self) -> &'a Space {
        self.space
    }

    /// Trials at most.
    pub fn limit(&self) -> usize {
        self.limit.min(self.space.len())
    }

    /// The measured configurations with their costs, in the order of the trials.
    pub fn made(&self) -> &[(Number, f64)] {
        &self.made
    }

    /// Whether a configuration was measured.
    pub fn is_known(&self, number: Number) -> bool {
        self.costs.contains_key(&number)
    }

    /// The cost of a configuration, which is measured if it was not.
    pub fn cost(&mut self, number: Number) -> Result<f64, Stop> {
        if let Some(&cost) = self.costs.get(&number) {
            return Ok(cost);
        }
        if self.made.len() >= self.limit() {
            return Err(Stop::Done);
        }
        let cost = (self.measure)(number)?;
        self.costs.insert(number, cost);
        self.made.push((number, cost));
        if cost.is_finite() {
            let place = self.best.partition_point(|(_, of)| *of <= cost);
            self.best.insert(place, (number, cost));
            self.best.truncate(MOST_BEST);
        }
        Ok(cost)
    }

    /// A configuration that was not measured, at random; `None` if there is no other.
    pub fn draw(&mut self) -> Option<Number> {
        let mut order = self.order.take().unwrap_or_else(|| {
            let mut all: Vec<Number> = (0..self.space.len() as Number).collect();
            self.random.shuffle(&mut all);
            all
        });
        while order.last().is_some_and(|&number| self.is_known(number)) {
            order.pop();
        }
        self.order.insert(order).last().copied()
    }

    /// The best configurations, at most [`MOST_BEST`], the best first; failed ones are left out.
    pub fn best(&self, count: usize) -> Vec<(Number, f64)> {
        self.best.iter().copied().take(count).collect()
    }
}
