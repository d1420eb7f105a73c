//! Rates of a device, fitted to measured durations.
//!
//! The rates' logarithms are moved from [`Rates::PRIOR`] until the logarithms of computed
//! durations come closest to those of measured ones, by the method of Levenberg and Marquardt:
//! errors count by their amount, small ones by their square, and so does how far the rates have
//! gone. Nothing is random: the same launches give the same rates.

use crate::Error;
use apex_predict::timing::{Demand, Rate, Rates};
use std::sync::atomic::{AtomicBool, Ordering};

/// Error, of logarithms to base 2, from which on its amount counts.
const SMALL: f64 = 0.15;
/// Weight of the squared distance from the prior.
const PRIOR_WEIGHT: f64 = 0.003;
/// How far a rate's logarithm may go.
const FARTHEST: f64 = 1.5;
/// Step of a logarithm for derivatives.
const STEP: f64 = 1e-4;
/// Attempts to improve a step before it is over.
const ATTEMPTS: usize = 5;

type Vector = [f64; Rate::COUNT];

/// What a launch asks for, and the microseconds that it took.
pub(crate) type Launch<'a> = (&'a Demand, f64);

/// Fits rates to launches, in at most so many steps.
///
/// # Errors
/// [`Error::Stopped`].
pub(crate) fn fit(launches: &[Launch<'_>], steps: usize, stop: &AtomicBool) -> Result<Rates, Error> {
    let mut moved: Vector = [0.0; Rate::COUNT];
    if launches.is_empty() {
        return Ok(Rates::PRIOR);
    }
    let mut damping = 1e-3;
    let mut before = loss(launches, &moved);
    for _ in 0..steps {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let (matrix, gradient) = normal(launches, &moved);
        let better = (0..ATTEMPTS).find_map(|_| {
            let step = solve(&matrix, &gradient, damping);
            let next: Vector =
                std::array::from_fn(|rate| (moved[rate] - step[rate]).clamp(-FARTHEST, FARTHEST));
            let after = loss(launches, &next);
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
    Ok(Rates(rates(&moved).0.map(rounded)))
}

/// With four digits, as reports and models have it.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("it was written as a number")
}

fn rates(moved: &Vector) -> Rates {
    Rates(std::array::from_fn(|rate| Rates::PRIOR.0[rate] * moved[rate].exp()))
}

fn errors(launches: &[Launch<'_>], moved: &Vector) -> Vec<f64> {
    let rates = rates(moved);
    launches.iter().map(|(demand, measured)| (demand.computed(&rates).us / measured).log2()).collect()
}

fn loss(launches: &[Launch<'_>], moved: &Vector) -> f64 {
    let cost = |error: &f64| match error.abs() {
        small if small < SMALL => 0.5 * small * small / SMALL,
        large => large - SMALL / 2.0,
    };
    let mean = errors(launches, moved).iter().map(cost).sum::<f64>() / launches.len() as f64;
    mean + PRIOR_WEIGHT * moved.iter().map(|moved| moved * moved).sum::<f64>()
}

/// The normal equations' matrix and right side at a place.
fn normal(launches: &[Launch<'_>], moved: &Vector) -> (Vec<Vector>, Vector) {
    let here = errors(launches, moved);
    let weights: Vec<f64> =
        here.iter().map(|error| 1.0 / error.abs().max(SMALL) / launches.len() as f64).collect();
    let slopes: Vec<Vec<f64>> = (0..Rate::COUNT)
        .map(|rate| {
            let mut beside = *moved;
            beside[rate] += STEP;
            let there = errors(launches, &beside);
            there.iter().zip(&here).map(|(there, here)| (there - here) / STEP).collect()
        })
        .collect();
    let product = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).zip(&weights).map(|((a, b), weight)| weight * a * b).sum()
    };
    let mut matrix = vec![[0.0; Rate::COUNT]; Rate::COUNT];
    let mut gradient = [0.0; Rate::COUNT];
    for row in 0..Rate::COUNT {
        for column in 0..=row {
            matrix[row][column] = product(&slopes[row], &slopes[column]);
            matrix[column][row] = matrix[row][column];
        }
        matrix[row][row] += 2.0 * PRIOR_WEIGHT;
        gradient[row] = product(&slopes[row], &here) + 2.0 * PRIOR_WEIGHT * moved[row];
    }
    (matrix, gradient)
}

/// Solves `(matrix + damping * its diagonal) x = right` by Cholesky's method.
fn solve(matrix: &[Vector], right: &Vector, damping: f64) -> Vector {
    let mut lower = vec![[0.0; Rate::COUNT]; Rate::COUNT];
    let mut x = *right;
    for row in 0..Rate::COUNT {
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
    for row in (0..Rate::COUNT).rev() {
        let known: f64 = (row + 1..Rate::COUNT).map(|k| lower[k][row] * x[k]).sum();
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
            (0..Rate::COUNT).map(|row| std::array::from_fn(|column| near(row, column))).collect();
        let right: Vector = std::array::from_fn(|row| row as f64 - 3.0);
        let x = solve(&matrix, &right, 0.0);
        for (row, right) in matrix.iter().zip(right) {
            let found: f64 = row.iter().zip(x).map(|(a, x)| a * x).sum();
            assert!((found - right).abs() < 1e-9, "{found} {right}");
        }
    }
}
