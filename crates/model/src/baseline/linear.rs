//! Linear least squares with a penalty on the weights (ridge regression: Hoerl and Kennard, 1970).
//!
//! In standardised features `x` and with the weight `c` of each example, it minimises
//!
//! ```text
//! sum of c (w x + b - y)^2 / sum of c + penalty |w|^2
//! ```
//!
//! by Cholesky's decomposition of the normal equations, in double precision.

use super::{check, check_features, within};
use crate::network::{Range, Scaling};
use crate::train::Examples;
use crate::{Error, Matrix, Regressor};

/// A fitted linear function for each target.
#[derive(Clone, Debug)]
pub struct LeastSquares {
    scaling: Scaling,
    ranges: Vec<Range>,
    /// For each target the weights of the standardised features, then the constant.
    coefficients: Vec<Vec<f64>>,
}

impl LeastSquares {
    /// Fits `examples`. The penalty must be positive: it also decides between features that say the
    /// same.
    ///
    /// # Errors
    /// [`Error`] when there is not one range for each target, a target is never known, or the
    /// penalty is not positive.
    pub fn fit(examples: &Examples, ranges: &[Range], penalty: f64) -> Result<LeastSquares, Error> {
        check(examples, ranges)?;
        Error::check_range(penalty.is_finite() && penalty > 0.0, "the penalty", penalty, "positive")?;
        let scaling = Scaling::of(examples.inputs());
        let coefficients = (0..ranges.len()).map(|target| solve_target(examples, &scaling, target, penalty));
        Ok(LeastSquares { coefficients: coefficients.collect(), scaling, ranges: ranges.to_vec() })
    }
}

impl Regressor for LeastSquares {
    fn predict_rows(&self, features: &Matrix) -> Result<Matrix, Error> {
        check_features(features, self.scaling.mean.len())?;
        let mut outputs = Matrix::zeros(features.rows(), self.ranges.len());
        let mut scaled = vec![1.0; features.columns() + 1];
        for (index, row) in features.iter().enumerate() {
            self.scaling.apply(row, &mut scaled[..row.len()]);
            let output = outputs.row_mut(index);
            for ((output, coefficients), &range) in
                output.iter_mut().zip(&self.coefficients).zip(&self.ranges)
            {
                let products =
                    coefficients.iter().zip(&scaled).map(|(weight, &value)| weight * f64::from(value));
                *output = within(range, products.sum());
            }
        }
        Ok(outputs)
    }
}

/// The coefficients of one target.
fn solve_target(examples: &Examples, scaling: &Scaling, target: usize, penalty: f64) -> Vec<f64> {
    let size = scaling.mean.len() + 1;
    let (mut matrix, mut right, mut total) = (vec![0.0; size * size], vec![0.0; size], 0.0);
    let mut row = vec![1.0f32; size];
    for (index, &weight) in examples.weights().iter().enumerate() {
        let (value, weight) = (f64::from(examples.targets().row(index)[target]), f64::from(weight));
        if value.is_nan() || weight == 0.0 {
            continue;
        }
        scaling.apply(examples.inputs().row(index), &mut row[..size - 1]);
        total += weight;
        for (i, &first) in row.iter().enumerate() {
            let first = weight * f64::from(first);
            right[i] += first * value;
            for (sum, &second) in matrix[i * size..].iter_mut().zip(&row[..=i]) {
                *sum += first * f64::from(second);
            }
        }
    }
    // The constant is penalised only as much as keeps the matrix positive definite.
    (0..size).for_each(|i| matrix[i * size + i] += total * if i + 1 < size { penalty } else { 1e-12 });
    solve(&mut matrix, &mut right, size);
    right
}

/// Replaces `right` by the solution of `matrix x = right`; `matrix` is positive definite, its lower
/// half is read.
fn solve(matrix: &mut [f64], right: &mut [f64], size: usize) {
    for i in 0..size {
        for j in 0..=i {
            let (row_i, row_j) = (i * size, j * size);
            let sum: f64 = (0..j).map(|k| matrix[row_i + k] * matrix[row_j + k]).sum();
            let left = matrix[row_i + j] - sum;
            matrix[row_i + j] = if i == j { left.sqrt() } else { left / matrix[row_j + j] };
        }
    }
    for i in 0..size {
        let sum: f64 = (0..i).map(|k| matrix[i * size + k] * right[k]).sum();
        right[i] = (right[i] - sum) / matrix[i * size + i];
    }
    for i in (0..size).rev() {
        let sum: f64 = (i + 1..size).map(|k| matrix[k * size + i] * right[k]).sum();
        right[i] = (right[i] - sum) / matrix[i * size + i];
    }
}
