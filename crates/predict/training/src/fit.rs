//! Positive parameters of a formula, fitted by the method of Levenberg and Marquardt.
//!
//! The parameters' logarithms are moved from a prior until the errors come closest to nothing:
//! errors count by their amount, small ones by their square, and so does how far the parameters
//! have gone. Nothing is random: the same errors give the same parameters.

use crate::Error;
use std::sync::atomic::{AtomicBool, Ordering};

/// The maximum change of a parameter's logarithm.
const FARTHEST: f64 = 1.5;
/// Step of a logarithm for derivatives.
const STEP: f64 = 1e-4;
/// Attempts to improve a step before it is over.
const ATTEMPTS: usize = 5;

/// Logarithms of how far parameters are from the prior.
type Vector = Vec<f64>;

/// The function to fit.
pub(crate) struct Fit<E> {
    /// The errors of all cases, by how far the parameters have gone.
    pub(crate) errors: E,
    /// The error from which on its amount counts.
    pub(crate) small: f64,
    /// Weight of the squared distance from the prior.
    pub(crate) prior: f64,
}

impl<E: Fn(&[f64]) -> Vec<f64>> Fit<E> {
    /// Returns the changes of `parameters` parameters, after at most `steps` steps.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub(crate) fn run(&self, parameters: usize, steps: usize, stop: &AtomicBool) -> Result<Vector, Error> {
        let mut moved: Vector = vec![0.0; parameters];
        let mut damping = 1e-3;
        let mut before = self.loss(&moved);
        for _ in 0..steps {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let (matrix, gradient) = self.normal(&moved);
            let better = (0..ATTEMPTS).find_map(|_| {
                let step = solve(&matrix, &gradient, damping);
                let next: Vector =
                    moved.iter().zip(step).map(|(at, by)| (at - by).clamp(-FARTHEST, FARTHEST)).collect();
                let after = self.loss(&next);
                damping *= if after < before { 0.3 } else { 10.0 };
                (after < before).then_some((next, after))
            });
            let Some((next, after)) = better else { break };
            let gained = before - after;
            (moved, before) = (next, after);
            if gained < 1e-5 * before {
                break;
            }
        }
        Ok(moved)
    }

    fn loss(&self, moved: &[f64]) -> f64 {
        let errors = (self.errors)(moved);
        let cost = |error: &f64| match error.abs() {
            small if small < self.small => 0.5 * small * small / self.small,
            large => large - self.small / 2.0,
        };
        let mean = errors.iter().map(cost).sum::<f64>() / errors.len() as f64;
        mean + self.prior * moved.iter().map(|moved| moved * moved).sum::<f64>()
    }

    /// The normal equations' matrix and right side at a place.
    fn normal(&self, moved: &[f64]) -> (Vec<Vector>, Vector) {
        let here = (self.errors)(moved);
        let weights: Vec<f64> =
            here.iter().map(|error| 1.0 / error.abs().max(self.small) / here.len() as f64).collect();
        let slopes: Vec<Vec<f64>> = (0..moved.len())
            .map(|parameter| {
                let mut beside = moved.to_vec();
                beside[parameter] += STEP;
                let there = (self.errors)(&beside);
                there.iter().zip(&here).map(|(there, here)| (there - here) / STEP).collect()
            })
            .collect();
        let product = |a: &[f64], b: &[f64]| -> f64 {
            a.iter().zip(b).zip(&weights).map(|((a, b), weight)| weight * a * b).sum()
        };
        let mut matrix = vec![vec![0.0; moved.len()]; moved.len()];
        let mut gradient = vec![0.0; moved.len()];
        for row in 0..moved.len() {
            for column in 0..=row {
                matrix[row][column] = product(&slopes[row], &slopes[column]);
                matrix[column][row] = matrix[row][column];
            }
            matrix[row][row] += 2.0 * self.prior;
            gradient[row] = product(&slopes[row], &here) + 2.0 * self.prior * moved[row];
        }
        (matrix, gradient)
    }
}

/// Rounds to four digits, as in reports and models.
pub(crate) fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("it was written as a number")
}

/// Solves `(matrix + damping * its diagonal) x = right` by Cholesky's method.
fn solve(matrix: &[Vector], right: &[f64], damping: f64) -> Vector {
    let mut lower = vec![vec![0.0; right.len()]; right.len()];
    let mut x = right.to_vec();
    for row in 0..right.len() {
        for column in 0..=row {
            let known: f64 = (0..column).map(|k| lower[row][k] * lower[column][k]).sum();
            let value = matrix[row][column] - known;
            lower[row][column] = match row == column {
                true => (value + damping * matrix[row][row]).max(f64::MIN_POSITIVE).sqrt(),
                false => value / lower[column][column],
            };
        }
        let known: f64 = (0..row).map(|k| lower[row][k] * x[k]).sum();
        x[row] = (x[row] - known) / lower[row][row];
    }
    for row in (0..right.len()).rev() {
        let known: f64 = (row + 1..right.len()).map(|k| lower[k][row] * x[k]).sum();
        x[row] = (x[row] - known) / lower[row][row];
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved() {
        let near = |a: usize, b: usize| if a == b { 4.0 } else { 1.0 / (1.0 + a.abs_diff(b) as f64) };
        let matrix: Vec<Vector> =
            (0..37).map(|row| (0..37).map(|column| near(row, column)).collect()).collect();
        let right: Vector = (0..37).map(|row| f64::from(row) - 3.0).collect();
        let x = solve(&matrix, &right, 0.0);
        for (row, right) in matrix.iter().zip(right) {
            let found: f64 = row.iter().zip(&x).map(|(a, x)| a * x).sum();
            assert!((found - right).abs() < 1e-9, "{found} {right}");
        }
    }
}
