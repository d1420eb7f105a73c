//! The model chooses: among the configurations that were not measured, those for which it promises
//! most.
//!
//! A round has a new model. It measures the most promising configurations of the whole space, and
//! the best ones of some slices: configurations that share the values of three parameters, drawn at
//! random. Without slices, a model stays where the first sample was good, and a region that it
//! judges by a few bad neighbours is never entered. A descent follows each new best.

use super::{Stop, Trials, descend, random};
use crate::Value;
use crate::forest::Forest;
use crate::space::{Number, Parameter, Space};

/// Before the first model, one trial in so many is drawn at random, but at least the second number.
const FIRST: (usize, usize) = (20, 16);
/// Configurations of the whole space that a round measures, while few were measured.
const BEST: usize = 2;
/// Slices of which a round measures one configuration each, while few were measured.
const SLICES: usize = 4;
/// A round measures [`BEST`] and [`SLICES`] once more for each so many measured configurations,
/// because a model of many takes longer, and learns less from a few more.
const MORE_AFTER: usize = 250;
/// Parameters whose values a slice fixes.
const FIXED: usize = 3;
/// A descent after a new best has at most one in so many of the trials.
const DESCENT: usize = 20;
/// Configurations that a model judges at most, beside the neighbours of the best.
const JUDGED: usize = 6_000;
/// Best configurations whose neighbours are judged in any case.
const NEIGHBOURS_OF: usize = 10;
/// Standard deviations of the trees that an optimistic estimate is below their mean.
const HOPE: f32 = 2.0;

/// Measures what models choose, until the trials are over.
pub fn search(trials: &mut Trials<'_>) -> Result<(), Stop> {
    let (part, least) = FIRST;
    let missing = least.max(trials.limit() / part).saturating_sub(trials.made().len());
    random(trials, missing)?;
    let features = Features::of(trials.space());
    loop {
        let chosen = choose(trials, &features);
        if chosen.is_empty() {
            return Ok(());
        }
        for number in chosen {
            let best = trials.best(1).first().map_or(f64::INFINITY, |(_, cost)| *cost);
            if trials.cost(number)? < best {
                let until = trials.made().len() + trials.limit() / DESCENT;
                descend::descend(trials, number, until)?;
            }
        }
    }
}

/// The configurations that a round measures; none if all are known.
fn choose(trials: &mut Trials<'_>, features: &Features) -> Vec<Number> {
    let candidates = candidates(trials);
    let space = trials.space();
    let rows: Vec<Vec<f32>> = trials.made().iter().map(|(number, _)| features.row(space, *number)).collect();
    let forest = Forest::grow(&rows, &targets(trials.made()), &mut trials.random);
    let judge = |&number: &Number| {
        let (mean, deviation) = forest.estimate(&features.row(space, number));
        Judged { number, mean, hoped: mean - HOPE * deviation }
    };
    let mut judged: Vec<Judged> = candidates.iter().map(judge).collect();
    judged.sort_by(|a, b| a.hoped.total_cmp(&b.hoped));
    let times = 1 + trials.made().len() / MORE_AFTER;
    let mut chosen: Vec<Number> = judged.iter().take(BEST * times).map(|judged| judged.number).collect();
    for _ in 0..SLICES * times {
        chosen.extend(best_of_slice(trials, features, &judged));
    }
    chosen
}

/// A configuration as a model judges it.
struct Judged {
    number: Number,
    mean: f32,
    /// The optimistic estimate: the mean less some standard deviations of the trees.
    hoped: f32,
}

/// The configuration with the least estimate among those that share values with one of the space.
fn best_of_slice(trials: &mut Trials<'_>, features: &Features, judged: &[Judged]) -> Option<Number> {
    let space = trials.space();
    let example = trials.random.index(space.len()) as Number;
    let fixed: Vec<usize> = (0..FIXED.min(features.own.len()))
        .map(|_| features.own[trials.random.index(features.own.len())].0)
        .collect();
    let shares =
        |judged: &&Judged| fixed.iter().all(|&at| space.digit(judged.number, at) == space.digit(example, at));
    let best = judged.iter().filter(shares).min_by(|a, b| a.mean.total_cmp(&b.mean));
    best.map(|judged| judged.number)
}

/// The configurations that may be measured next: all, or a sample with the neighbours of the best.
fn candidates(trials: &mut Trials<'_>) -> Vec<Number> {
    let space = trials.space();
    if space.len() <= JUDGED {
        return (0..space.len() as Number).filter(|&number| !trials.is_known(number)).collect();
    }
    let mut all: Vec<Number> = (0..JUDGED).map(|_| trials.random.index(space.len()) as Number).collect();
    for (number, _) in trials.best(NEIGHBOURS_OF) {
        all.extend(space.neighbours(number));
    }
    all.sort_unstable();
    all.dedup();
    all.retain(|&number| !trials.is_known(number));
    all
}

/// The targets of the trees: logarithms of costs. Costs above the median, and failures, count as
/// the median: trees need not tell the bad from the worse.
fn targets(made: &[(Number, f64)]) -> Vec<f32> {
    let mut costs: Vec<f64> = made.iter().map(|(_, cost)| *cost).filter(|cost| cost.is_finite()).collect();
    costs.sort_by(f64::total_cmp);
    let most = costs.get(costs.len() / 2).copied().unwrap_or(1.0);
    made.iter().map(|(_, cost)| cost.min(most).max(f64::MIN_POSITIVE).ln() as f32).collect()
}

/// The features of configurations: each parameter, products of two, and how often 2 divides each.
struct Features {
    /// For each parameter that has several values, its place, and a number for each value.
    own: Vec<(usize, Vec<f32>)>,
    /// Pairs of entries of `own` whose values are multiplied.
    products: Vec<(usize, usize)>,
    /// For each parameter of positive integers, its place, and how often 2 divides each value.
    twos: Vec<(usize, Vec<f32>)>,
}

/// Products of two parameters at most.
const MOST_PRODUCTS: usize = 64;

impl Features {
    fn of(space: &Space) -> Self {
        let several =
            || space.parameters().iter().enumerate().filter(|(_, parameter)| parameter.values.len() > 1);
        let own: Vec<(usize, Vec<f32>)> =
            several().map(|(at, parameter)| (at, scaled(&parameter.values))).collect();
        let is_size = |at: usize| own[at].1.iter().all(|&value| value >= 0.0) && own[at].1.len() > 2;
        let pairs = (0..own.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let products = pairs.filter(|&(a, b)| is_size(a) && is_size(b)).take(MOST_PRODUCTS).collect();
        let twos = several().filter_map(|(at, parameter)| Some((at, twos(parameter)?))).collect();
        Self { own, products, twos }
    }

    fn row(&self, space: &Space, number: Number) -> Vec<f32> {
        let mut row = Vec::with_capacity(self.own.len() + self.products.len() + self.twos.len());
        row.extend(self.own.iter().map(|(at, values)| values[space.digit(number, *at)]));
        for &(a, b) in &self.products {
            row.push(row[a] + row[b]);
        }
        row.extend(self.twos.iter().map(|(at, values)| values[space.digit(number, *at)]));
        row
    }
}

/// How often 2 divides each value of a parameter that has more than two, all positive integers.
fn twos(parameter: &Parameter) -> Option<Vec<f32>> {
    let times = |value: &Value| value.int().filter(|&int| int > 0).map(|int| int.trailing_zeros() as f32);
    (parameter.values.len() > 2).then(|| parameter.values.iter().map(times).collect())?
}

/// A number for each value: the logarithm of positive ones, so that sums stand for products; the
/// place among the values for others.
fn scaled(values: &[Value]) -> Vec<f32> {
    let numbers: Option<Vec<f64>> = values.iter().map(Value::number).collect();
    match numbers {
        Some(numbers) if numbers.iter().all(|&number| number > 0.0) => {
            numbers.iter().map(|number| number.log2() as f32).collect()
        }
        Some(numbers) => numbers.iter().map(|&number| number as f32).collect(),
        None => (0..values.len()).map(|at| at as f32).collect(),
    }
}
