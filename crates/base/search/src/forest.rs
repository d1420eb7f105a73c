//! A model of what was measured: an ensemble of random trees (Geurts, Ernst, Wehenkel, 2006).
//!
//! Each tree is grown on all measurements; a node splits at a random threshold of the best of a few
//! random features. The mean of the trees is the estimate, and their spread its uncertainty.
//! Trees need no scaling, take parameters without order as they are, and see interactions.
//!
//! Invariants: the same rows, targets and random numbers give the same trees; an estimate is a
//! mean of targets, so it lies among them.

use apex_random::Random;

/// Trees of a model.
const TREES: usize = 24;
/// Measurements in a leaf at most that is not split further.
const LEAF: usize = 3;

/// Splits that are tried for a node at most.
const MOST_SPLITS: usize = 16;

/// A node: an inner one has children at `left` and `left + 1`.
#[derive(Clone, Copy)]
struct Node {
    /// The feature that it splits by; of a leaf, the estimate is `threshold`.
    feature: u16,
    left: u32,
    threshold: f32,
}

/// The trees. There is at least one measurement, and all rows have the same length.
pub struct Forest {
    trees: Vec<Vec<Node>>,
}

/// The mark of a leaf.
const NONE: u16 = u16::MAX;

impl Forest {
    /// Grows trees on rows of features and what was measured for each.
    pub fn grow(rows: &[Vec<f32>], targets: &[f32], random: &mut Random) -> Self {
        let trees = (0..TREES).map(|_| {
            let mut growth = Growth { rows, targets, random, nodes: Vec::new() };
            growth.grow()
        });
        Self { trees: trees.collect() }
    }

    /// The estimate, and the standard deviation of the trees.
    pub fn estimate(&self, row: &[f32]) -> (f32, f32) {
        let (mut sum, mut squares) = (0.0, 0.0);
        for tree in &self.trees {
            let value = leaf(tree, row);
            sum += value;
            squares += value * value;
        }
        let count = self.trees.len() as f32;
        let mean = sum / count;
        (mean, (squares / count - mean * mean).max(0.0).sqrt())
    }
}

fn leaf(tree: &[Node], row: &[f32]) -> f32 {
    let mut node = tree[0];
    while node.feature != NONE {
        let goes_right = row[usize::from(node.feature)] > node.threshold;
        node = tree[node.left as usize + usize::from(goes_right)];
    }
    node.threshold
}

struct Growth<'a> {
    rows: &'a [Vec<f32>],
    targets: &'a [f32],
    random: &'a mut Random,
    nodes: Vec<Node>,
}

impl Growth<'_> {
    fn grow(&mut self) -> Vec<Node> {
        let mut places: Vec<u32> = (0..self.rows.len() as u32).collect();
        self.nodes.push(Node { feature: NONE, left: 0, threshold: 0.0 });
        self.fill(0, &mut places);
        std::mem::take(&mut self.nodes)
    }

    /// Makes the node at `at` of the measurements at `places`, and its children.
    fn fill(&mut self, at: usize, places: &mut [u32]) {
        let mean = self.mean(places);
        let split = if places.len() <= LEAF { None } else { self.split(places) };
        let Some((feature, threshold)) = split else {
            self.nodes[at].threshold = mean;
            return;
        };
        let middle = partition(places, |place| self.rows[place as usize][feature] <= threshold);
        let left = self.nodes.len();
        let empty = Node { feature: NONE, left: 0, threshold: 0.0 };
        self.nodes.extend([empty, empty]);
        self.nodes[at] = Node { feature: feature as u16, left: left as u32, threshold };
        let (low, high) = places.split_at_mut(middle);
        self.fill(left, low);
        self.fill(left + 1, high);
    }

    fn mean(&self, places: &[u32]) -> f32 {
        let sum: f32 = places.iter().map(|&place| self.targets[place as usize]).sum();
        sum / places.len().max(1) as f32
    }

    /// The best of random splits, half as many as there are features; `None` if no feature drawn
    /// has two values.
    fn split(&mut self, places: &[u32]) -> Option<(usize, f32)> {
        let features = self.rows[0].len();
        let mut best: Option<(f32, usize, f32)> = None;
        for _ in 0..features.div_ceil(2).clamp(2, MOST_SPLITS) {
            let feature = self.random.index(features);
            let Some(threshold) = self.threshold(places, feature) else { continue };
            let gain = self.gain(places, feature, threshold);
            if best.is_none_or(|(most, ..)| gain > most) {
                best = Some((gain, feature, threshold));
            }
        }
        best.map(|(_, feature, threshold)| (feature, threshold))
    }

    /// A random threshold between the least and the largest value of a feature.
    fn threshold(&mut self, places: &[u32], feature: usize) -> Option<f32> {
        let values = places.iter().map(|&place| self.rows[place as usize][feature]);
        let (low, high) =
            values.fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let threshold = low + (high - low) * self.random.uniform() as f32;
        (low < high).then_some(if threshold < high { threshold } else { low })
    }

    /// A measure of a split: the larger it is, the smaller is the sum of squares that is left.
    fn gain(&self, places: &[u32], feature: usize, threshold: f32) -> f32 {
        let (mut sums, mut counts) = ([0.0f32; 2], [0.0f32; 2]);
        for &place in places {
            let side = usize::from(self.rows[place as usize][feature] > threshold);
            sums[side] += self.targets[place as usize];
            counts[side] += 1.0;
        }
        let part = |side: usize| sums[side] * sums[side] / counts[side].max(1.0);
        part(0) + part(1)
    }
}

/// Moves the places for which `goes_left` holds to the front, and returns how many they are.
fn partition(places: &mut [u32], goes_left: impl Fn(u32) -> bool) -> usize {
    let mut middle = 0;
    for at in 0..places.len() {
        if goes_left(places[at]) {
            places.swap(at, middle);
            middle += 1;
        }
    }
    middle
}
