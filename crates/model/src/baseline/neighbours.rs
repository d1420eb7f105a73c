//! Nearest neighbours: the mean of the most similar examples, nearer ones counting more.
//!
//! Similarity is the Euclidean distance `d` between standardised features; an example counts
//! `weight / (d + 0.001)`.

use super::{check, check_features, within};
use crate::network::{Range, Scaling};
use crate::train::Examples;
use crate::{Error, Matrix, Regressor};

/// What keeps an example at distance 0 from counting infinitely.
const NEAREST: f64 = 1e-3;

/// The examples, standardised.
#[derive(Clone, Debug)]
pub struct Neighbours {
    scaling: Scaling,
    ranges: Vec<Range>,
    count: usize,
    examples: Examples,
    /// The examples' features, standardised.
    scaled: Matrix,
}

impl Neighbours {
    /// Keeps `examples`, of which the nearest `count` that know a target will be asked for it.
    ///
    /// # Errors
    /// [`Error`] when there is not one range for each target, a target is never known, or `count`
    /// is 0.
    pub fn fit(examples: &Examples, ranges: &[Range], count: usize) -> Result<Neighbours, Error> {
        check(examples, ranges)?;
        Error::check_range(count > 0, "the number of neighbours", count as f64, "at least 1")?;
        let scaling = Scaling::of(examples.inputs());
        let mut scaled = Matrix::zeros(examples.rows(), examples.inputs().columns());
        for (index, row) in examples.inputs().iter().enumerate() {
            scaling.apply(row, scaled.row_mut(index));
        }
        Ok(Neighbours { scaling, ranges: ranges.to_vec(), count, examples: examples.clone(), scaled })
    }

    /// What the nearest say of `target`; `distances` are those of all examples.
    fn ask(&self, target: usize, distances: &[f32]) -> f64 {
        let known = |&(_, row): &(f32, usize)| {
            !self.examples.targets().row(row)[target].is_nan() && self.examples.weights()[row] > 0.0
        };
        let mut nearest: Vec<(f32, usize)> = distances
            .iter()
            .copied()
            .enumerate()
            .map(|(row, distance)| (distance, row))
            .filter(known)
            .collect();
        let by_distance = |a: &(f32, usize), b: &(f32, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        if nearest.len() > self.count {
            nearest.select_nth_unstable_by(self.count - 1, by_distance);
            nearest.truncate(self.count);
        }
        // The sum is rounded: its order is part of the result.
        nearest.sort_by(by_distance);
        let (mut sum, mut total) = (0.0, 0.0);
        for (distance, row) in nearest {
            let weight = f64::from(self.examples.weights()[row]) / (f64::from(distance) + NEAREST);
            sum += weight * f64::from(self.examples.targets().row(row)[target]);
            total += weight;
        }
        sum / total
    }
}

impl Regressor for Neighbours {
    fn predict_rows(&self, features: &Matrix) -> Result<Matrix, Error> {
        check_features(features, self.scaling.mean.len())?;
        let mut outputs = Matrix::zeros(features.rows(), self.ranges.len());
        let mut scaled = vec![0.0; features.columns()];
        for (index, row) in features.iter().enumerate() {
            self.scaling.apply(row, &mut scaled);
            let square =
                |example: &[f32]| example.iter().zip(&scaled).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
            let distances: Vec<f32> = self.scaled.iter().map(|example| square(example).sqrt()).collect();
            for (target, output) in outputs.row_mut(index).iter_mut().enumerate() {
                *output = within(self.ranges[target], self.ask(target, &distances));
            }
        }
        Ok(outputs)
    }
}
