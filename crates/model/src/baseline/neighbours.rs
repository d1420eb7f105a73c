//! Nearest neighbours: the mean of the most similar examples, nearer ones counting more.
//!
//! Similarity is the Euclidean distance `d` between standardised features; an example counts `weight / (d + 0.001)`.

use super::{check, within};
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
    /// [`Error`] when there is not one range for each target, a target is never known, or `count` is 0.
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

    /// What the nearest of `order` say of `target`.
    fn ask(&self, target: usize, order: &[(f64, usize)]) -> f64 {
        let known = order.iter().filter_map(|&(distance, row)| {
            let value = self.examples.targets().row(row)[target];
            let weight = f64::from(self.examples.weights()[row]);
            (!value.is_nan() && weight > 0.0).then(|| (f64::from(value), weight / (distance + NEAREST)))
        });
        let (sum, total) = known
            .take(self.count)
            .fold((0.0, 0.0), |(sum, total), (value, weight)| (sum + value * weight, total + weight));
        sum / total
    }
}

impl Regressor for Neighbours {
    fn predict_rows(&self, features: &Matrix) -> Result<Matrix, Error> {
        Error::check_length("a row of features", self.scaling.mean.len(), features.columns())?;
        let mut outputs = Matrix::zeros(features.rows(), self.ranges.len());
        let mut scaled = vec![0.0; features.columns()];
        for (index, row) in features.iter().enumerate() {
            self.scaling.apply(row, &mut scaled);
            let squares = self
                .scaled
                .iter()
                .map(|example| example.iter().zip(&scaled).map(|(a, b)| (a - b) * (a - b)).sum::<f32>());
            let mut order: Vec<(f64, usize)> =
                squares.enumerate().map(|(row, square)| (f64::from(square).sqrt(), row)).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (target, output) in outputs.row_mut(index).iter_mut().enumerate() {
                *output = within(self.ranges[target], self.ask(target, &order));
            }
        }
        Ok(outputs)
    }
}
