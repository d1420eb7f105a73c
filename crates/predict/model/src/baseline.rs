//! The baseline that a network must beat: gradient-boosted regression trees (Friedman, 2001) on
//! histograms, as in LightGBM (Ke et al., 2017).
//!
//! Trees are fitted to [`Examples`]; unknown targets are left out. They predict one number for each
//! target, through the same [`crate::Regressor`] as a network; fractions are kept from 0 to 1.
//!
//! Features are first put into at most [`BINS`] bins of about as many examples each. Each tree is
//! fitted to the residuals of the trees before it; it grows leaf by leaf, always splitting where
//! the squared error falls most. With `G` the sum of a leaf's residuals, `C` the number of its
//! examples and `p` the penalty, a leaf predicts `rate G / (C + p)`, and a split gains
//! `GL^2 / (CL + p) + GR^2 / (CR + p) - G^2 / (C + p)`.
//!
//! A leaf's histograms are those of its parent less those of its sibling: only the smaller of two
//! children is counted.

use crate::network::Range;
use crate::parallel::in_parallel;
use crate::train::Examples;
use crate::{Error, Matrix, Regressor};
use apex_random::Random;

/// Most bins of a feature: what a byte can tell apart.
pub const BINS: usize = 256;

/// Options of growing trees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boosting {
    /// Determines the examples that each tree sees.
    pub seed: u64,
    /// Trees for each target.
    pub trees: usize,
    /// Most leaves of a tree.
    pub leaves: usize,
    /// The share of the residuals that a tree takes away.
    pub rate: f64,
    /// Least number of examples in a leaf.
    pub least: usize,
    /// The part of the examples that each tree sees.
    pub share: f64,
    /// Added to the number of a leaf's examples: see the module's documentation.
    pub penalty: f64,
    /// Most threads, each of which grows the trees of one target at a time. Results do not depend
    /// on it.
    pub threads: usize,
}

impl Default for Boosting {
    fn default() -> Boosting {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Boosting { seed: 1, trees: 400, leaves: 31, rate: 0.05, least: 10, share: 0.8, penalty: 1.0, threads }
    }
}

/// Trees, for each target.
#[derive(Clone, Debug)]
pub struct Trees {
    features: usize,
    ranges: Vec<Range>,
    forests: Vec<Forest>,
}

/// The trees of one target.
#[derive(Clone, Debug)]
struct Forest {
    /// The prediction without any tree.
    mean: f64,
    trees: Vec<Vec<Node>>,
}

/// A node; 0 is the root.
#[derive(Clone, Copy, Debug)]
enum Node {
    /// Goes to the first child where the feature is at most the limit, else to the second.
    Split {
        feature: usize,
        limit: f32,
        children: [usize; 2],
    },
    Leaf(f64),
}

impl Trees {
    /// Fits `examples`.
    ///
    /// # Errors
    /// [`Error`] when there is not one range for each target, a target is never known, or an option
    /// is out of its range.
    pub fn fit(examples: &Examples, ranges: &[Range], options: &Boosting) -> Result<Trees, Error> {
        check(examples, ranges)?;
        Error::check_range(options.leaves >= 2, "the number of leaves", options.leaves as f64, "at least 2")?;
        let fraction = |value: f64| value > 0.0 && value <= 1.0;
        Error::check_range(
            fraction(options.rate),
            "the rate of boosting",
            options.rate,
            "above 0, at most 1",
        )?;
        Error::check_range(
            fraction(options.share),
            "the share of examples",
            options.share,
            "above 0, at most 1",
        )?;
        let penalty = options.penalty;
        Error::check_range(penalty.is_finite() && penalty >= 0.0, "the penalty", penalty, "not negative")?;
        let binned = Binned::new(examples.inputs());
        let mut forests = vec![Forest { mean: 0.0, trees: Vec::new() }; ranges.len()];
        in_parallel(options.threads, &mut forests, |target, forest| {
            *forest = Forest::grow(examples, target, &binned, options);
        });
        Ok(Trees { features: examples.inputs().columns(), ranges: ranges.to_vec(), forests })
    }
}

/// `Ok` when trees can be fitted: one range for each target, and an example that knows each.
fn check(examples: &Examples, ranges: &[Range]) -> Result<(), Error> {
    Error::check_length("the ranges of targets", examples.targets().columns(), ranges.len())?;
    let is_known = |target| examples.targets().column(target).any(|value| !value.is_nan());
    match (0..ranges.len()).all(is_known) {
        true => Ok(()),
        false => Err(Error::TooFew { what: "examples with a known target", needed: 1, found: 0 }),
    }
}

/// `value`, or the nearest that the target may have.
fn within(range: Range, value: f64) -> f32 {
    match range {
        Range::Fraction => value.clamp(0.0, 1.0) as f32,
        Range::Real => value as f32,
    }
}

impl Regressor for Trees {
    fn predict_rows(&self, features: &Matrix) -> Result<Matrix, Error> {
        Error::check_length("a row of features", self.features, features.columns())?;
        features.iter().try_for_each(|row| Error::check_finite("a row of features", row))?;
        let mut outputs = Matrix::zeros(features.rows(), self.ranges.len());
        for (index, row) in features.iter().enumerate() {
            for (target, output) in outputs.row_mut(index).iter_mut().enumerate() {
                let forest = &self.forests[target];
                let sum = forest.trees.iter().map(|tree| say(tree, row)).sum::<f64>();
                *output = within(self.ranges[target], forest.mean + sum);
            }
        }
        Ok(outputs)
    }
}

/// Returns a tree's value for a row of features.
fn say(tree: &[Node], row: &[f32]) -> f64 {
    let mut node = 0;
    loop {
        match tree[node] {
            Node::Leaf(value) => return value,
            Node::Split { feature, limit, children } => {
                node = children[usize::from(row[feature] > limit)];
            }
        }
    }
}

/// Features as numbers of bins.
struct Binned {
    /// For each feature the greatest value of each bin but the last, rising.
    limits: Vec<Vec<f32>>,
    /// For each feature the bin of each example.
    bins: Vec<Vec<u8>>,
}

impl Binned {
    fn new(inputs: &Matrix) -> Binned {
        let limits: Vec<Vec<f32>> = (0..inputs.columns()).map(|column| limits(inputs, column)).collect();
        let bin = |limits: &[f32], value| limits.partition_point(|&limit| limit < value) as u8;
        let bins = limits
            .iter()
            .enumerate()
            .map(|(column, limits)| inputs.column(column).map(|value| bin(limits, value)).collect());
        Binned { bins: bins.collect(), limits }
    }
}

/// Values that part a feature into bins of about as many examples each; equal values share a bin.
fn limits(inputs: &Matrix, column: usize) -> Vec<f32> {
    let mut values: Vec<f32> = inputs.column(column).collect();
    values.sort_by(f32::total_cmp);
    let at = |bin: usize| values[(bin * values.len() / BINS).min(values.len() - 1)];
    let mut limits: Vec<f32> = (1..BINS).map(at).collect();
    limits.dedup();
    // Nothing lies beyond the greatest value: as a limit it would part nothing.
    if limits.last() == values.last() {
        limits.pop();
    }
    limits
}

/// Sum of the residuals and number of examples.
#[derive(Clone, Copy, Default)]
struct Sum {
    residual: f64,
    count: u64,
}

/// The sums of a leaf's examples, feature by feature and bin by bin: [`BINS`] for each feature.
type Histogram = Vec<Sum>;

impl Sum {
    fn add(&mut self, other: Sum) {
        self.residual += other.residual;
        self.count += other.count;
    }

    fn without(self, other: Sum) -> Sum {
        Sum { residual: self.residual - other.residual, count: self.count - other.count }
    }

    fn score(self, penalty: f64) -> f64 {
        self.residual * self.residual / self.divisor(penalty)
    }

    /// The number of examples with the penalty; never 0.
    fn divisor(self, penalty: f64) -> f64 {
        (self.count as f64 + penalty).max(f64::MIN_POSITIVE)
    }
}

/// A leaf that may still be split.
struct Open {
    node: usize,
    rows: Vec<u32>,
    histogram: Histogram,
    split: Split,
}

/// The best split of a leaf.
#[derive(Clone, Copy)]
struct Split {
    gain: f64,
    feature: usize,
    /// The last bin that goes to the first child.
    bin: u8,
}

/// The data from which trees of one target are grown.
struct Grower<'a> {
    binned: &'a Binned,
    options: &'a Boosting,
    residuals: Vec<f64>,
}

impl Forest {
    fn grow(examples: &Examples, target: usize, binned: &Binned, options: &Boosting) -> Forest {
        let values: Vec<f64> = examples.targets().column(target).map(f64::from).collect();
        let known = |&row: &u32| !values[row as usize].is_nan();
        let mut rows: Vec<u32> = (0..examples.rows() as u32).filter(known).collect();
        let mean = rows.iter().map(|row| values[*row as usize]).sum::<f64>() / rows.len() as f64;
        let residuals = values.iter().map(|value| value - mean).collect();
        let mut grower = Grower { binned, options, residuals };
        let mut random = Random::for_purpose(options.seed, 2 + target as u64);
        let seen = ((rows.len() as f64 * options.share).ceil() as usize).clamp(1, rows.len());
        let tree = |_| {
            random.shuffle(&mut rows);
            let tree = grower.tree(&rows[..seen]);
            for &row in &rows {
                grower.residuals[row as usize] -= say(&tree, examples.inputs().row(row as usize));
            }
            tree
        };
        let trees = (0..options.trees).map(tree).collect();
        Forest { mean, trees }
    }
}

impl Grower<'_> {
    fn tree(&self, rows: &[u32]) -> Vec<Node> {
        let mut rows = rows.to_vec();
        // Memory is read in order.
        rows.sort_unstable();
        let mut nodes = Vec::new();
        let histogram = self.histogram(&rows);
        let mut open: Vec<Open> = self.leaf(&mut nodes, rows, histogram).into_iter().collect();
        for _ in 1..self.options.leaves {
            let gain = |leaf: usize| open[leaf].split.gain;
            let best = (0..open.len()).max_by(|&a, &b| gain(a).total_cmp(&gain(b)));
            let Some(best) = best else { break };
            let Open { node, rows, histogram, split: Split { feature, bin, .. } } = open.swap_remove(best);
            let bins = &self.binned.bins[feature];
            let (low, high): (Vec<u32>, Vec<u32>) =
                rows.into_iter().partition(|&row| bins[row as usize] <= bin);
            let limit = self.binned.limits[feature][usize::from(bin)];
            nodes[node] = Node::Split { feature, limit, children: [nodes.len(), nodes.len() + 1] };
            let smaller = self.histogram(if low.len() <= high.len() { &low } else { &high });
            let mut larger = histogram;
            larger.iter_mut().zip(&smaller).for_each(|(sum, less)| *sum = sum.without(*less));
            let (first, second) = if low.len() <= high.len() { (smaller, larger) } else { (larger, smaller) };
            open.extend(self.leaf(&mut nodes, low, first));
            open.extend(self.leaf(&mut nodes, high, second));
        }
        nodes
    }

    fn sum(&self, row: u32) -> Sum {
        Sum { residual: self.residuals[row as usize], count: 1 }
    }

    fn histogram(&self, rows: &[u32]) -> Histogram {
        let sums: Vec<Sum> = rows.iter().map(|&row| self.sum(row)).collect();
        let mut histogram = vec![Sum::default(); self.binned.bins.len() * BINS];
        for (bins, slots) in self.binned.bins.iter().zip(histogram.chunks_exact_mut(BINS)) {
            rows.iter().zip(&sums).for_each(|(&row, &sum)| slots[usize::from(bins[row as usize])].add(sum));
        }
        histogram
    }

    /// Adds a leaf to the tree; gives it back if it is worth splitting.
    fn leaf(&self, nodes: &mut Vec<Node>, rows: Vec<u32>, histogram: Histogram) -> Option<Open> {
        let mut total = Sum::default();
        rows.iter().for_each(|&row| total.add(self.sum(row)));
        let node = nodes.len();
        let value = self.options.rate * total.residual / total.divisor(self.options.penalty);
        nodes.push(Node::Leaf(value));
        let split = self.best_split(&histogram, total)?;
        Some(Open { node, rows, histogram, split })
    }

    /// Returns the best split of a leaf with these sums, if any split gains.
    fn best_split(&self, histogram: &[Sum], total: Sum) -> Option<Split> {
        let Boosting { penalty, least, .. } = *self.options;
        let least = least.max(1) as u64;
        let before = total.score(penalty);
        // A difference by rounding alone is not a gain.
        let mut best = Split { gain: 1e-9 * before + 1e-12, feature: usize::MAX, bin: 0 };
        for (feature, (slots, limits)) in histogram.chunks_exact(BINS).zip(&self.binned.limits).enumerate() {
            let mut low = Sum::default();
            for (bin, sum) in slots[..limits.len()].iter().enumerate() {
                if sum.count == 0 {
                    continue;
                }
                low.add(*sum);
                let high = total.without(low);
                if low.count < least || high.count < least {
                    continue;
                }
                let gain = low.score(penalty) + high.score(penalty) - before;
                if gain > best.gain {
                    best = Split { gain, feature, bin: bin as u8 };
                }
            }
        }
        (best.feature != usize::MAX).then_some(best)
    }
}
