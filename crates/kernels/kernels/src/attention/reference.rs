//! Attention in f64 on the host: the definition, written down. Everything else is compared with it.

use std::ops::Range;

use crate::Result;
use crate::attention::problem::Problem;
use crate::attention::shape::{Mask, Options, Shape};

/// The output, in the layout of the queries, and the log-sum-exps, `[batch, heads, queries]`. Rows
/// that see no key give zeros and minus infinity. [`Options::form`] is not looked at.
///
/// ```
/// use apex_kernels::{Options, Shape, reference};
///
/// let shape = Shape { batch: 1, heads: 1, key_heads: 1, queries: 1, keys: 2, dim: 64 };
/// let (q, k) = (vec![0.0; 64], vec![1.0; 128]);
/// let v: Vec<f64> = (0..128).map(f64::from).collect();
/// let (output, log_sum_exp) = reference::forward(&q, &k, &v, &shape, &Options::default())?;
/// assert_eq!(output[..3], [32.0, 33.0, 34.0]); // the mean of both rows
/// assert_eq!(log_sum_exp, [2f64.ln()]);
/// # apex_kernels::Result::Ok(())
/// ```
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape), as on a device.
pub fn forward(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    shape: &Shape,
    options: &Options,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let problem = Problem::new(shape, options)?;
    shape.check_queries("Q", q.len())?;
    shape.check_keys("K", k.len())?;
    shape.check_keys("V", v.len())?;
    let dim = shape.dim;
    let mut output = vec![0.0; shape.query_elements()];
    let mut log_sum_exps = Vec::with_capacity(shape.rows());
    for_rows(q, k, shape, options, &problem, |start, weights, log_sum_exp| {
        for &(key, weight) in weights {
            add(&mut output[start..][..dim], weight, &v[key..][..dim]);
        }
        log_sum_exps.push(log_sum_exp);
    });
    Ok((output, log_sum_exps))
}

/// The gradients of Q, K and V, each in the layout of what it belongs to, from that of the output.
/// [`Options::form`] is not looked at.
///
/// ```
/// use apex_kernels::{Options, Shape, reference};
///
/// let shape = Shape { batch: 1, heads: 1, key_heads: 1, queries: 1, keys: 2, dim: 64 };
/// let (q, k, v) = (vec![0.0; 64], vec![1.0; 128], vec![2.0; 128]);
/// let [dq, _, dv] = reference::backward(&q, &k, &v, &[3.0; 64], &shape, &Options::default())?;
/// assert_eq!(dv, [1.5; 128]); // both keys have half of the weight
/// assert_eq!(dq, [0.0; 64]); // and keys that are equal, so the query decides nothing
/// # apex_kernels::Result::Ok(())
/// ```
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape), as on a device.
pub fn backward(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    output_gradient: &[f64],
    shape: &Shape,
    options: &Options,
) -> Result<[Vec<f64>; 3]> {
    let problem = Problem::new(shape, options)?;
    shape.check_queries("Q", q.len())?;
    shape.check_keys("K", k.len())?;
    shape.check_keys("V", v.len())?;
    shape.check_queries("the output's gradient", output_gradient.len())?;
    let scale = f64::from(problem.scale);
    let dim = shape.dim;
    let mut gradients = [q, k, v].map(|of| vec![0.0; of.len()]);
    for_rows(q, k, shape, options, &problem, |start, weights, _| {
        let [dq, dk, dv] = &mut gradients;
        let given = &output_gradient[start..][..dim];
        let of_weights: Vec<f64> = weights.iter().map(|&(key, _)| dot(given, &v[key..][..dim])).collect();
        let mean: f64 = weights.iter().zip(&of_weights).map(|((_, weight), of)| weight * of).sum();
        for (&(key, weight), of) in weights.iter().zip(&of_weights) {
            let of_score = scale * weight * (of - mean);
            add(&mut dq[start..][..dim], of_score, &k[key..][..dim]);
            add(&mut dk[key..][..dim], of_score, &q[start..][..dim]);
            add(&mut dv[key..][..dim], weight, given);
        }
    });
    Ok(gradients)
}

/// As [`forward`], for sequences of these shapes, which lie one after another.
///
/// # Errors
/// As [`forward`], of any sequence.
///
/// # Panics
/// If there are fewer elements than the shapes need.
pub fn forward_sequences(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    shapes: &[Shape],
    options: &Options,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut output, mut log_sum_exps) = (vec![], vec![]);
    for (shape, queries, keys) in places(shapes) {
        let (its, its_sums) = forward(&q[queries], &k[keys.clone()], &v[keys], &shape, options)?;
        output.extend(its);
        log_sum_exps.extend(its_sums);
    }
    Ok((output, log_sum_exps))
}

/// As [`backward`], for sequences of these shapes, which lie one after another.
///
/// # Errors
/// As [`backward`], of any sequence.
///
/// # Panics
/// If there are fewer elements than the shapes need.
pub fn backward_sequences(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    output_gradient: &[f64],
    shapes: &[Shape],
    options: &Options,
) -> Result<[Vec<f64>; 3]> {
    let mut gradients = [vec![], vec![], vec![]];
    for (shape, queries, keys) in places(shapes) {
        let (q, k, v) = (&q[queries.clone()], &k[keys.clone()], &v[keys]);
        let its = backward(q, k, v, &output_gradient[queries], &shape, options)?;
        gradients.iter_mut().zip(its).for_each(|(all, its)| all.extend(its));
    }
    Ok(gradients)
}

/// Each shape with where its elements lie in Q and in K, if one sequence lies behind the other.
fn places(shapes: &[Shape]) -> impl Iterator<Item = (Shape, Range<usize>, Range<usize>)> {
    let (mut query, mut key) = (0, 0);
    shapes.iter().map(move |shape| {
        let (first_query, first_key) = (query, key);
        query += shape.query_elements();
        key += shape.key_elements();
        (*shape, first_query..query, first_key..key)
    })
}

/// Calls `body` for each row of Q, in the order of `[batch, heads, queries]`: where the row begins,
/// where the keys that it sees begin and their weights, and the log-sum-exp.
fn for_rows(
    q: &[f64],
    k: &[f64],
    shape: &Shape,
    options: &Options,
    problem: &Problem,
    mut body: impl FnMut(usize, &[(usize, f64)], f64),
) {
    let (scale, dim) = (f64::from(problem.scale), shape.dim);
    let at = |batch: i64, row: i64, head: i64, [b, r, h]: [usize; 3]| {
        (batch * b as i64 + row * r as i64 + head * h as i64) as usize
    };
    for b in 0..shape.batch {
        for h in 0..shape.heads {
            for r in 0..shape.queries {
                let start = at(problem.query_batch, problem.query_row, problem.query_head, [b, r, h]);
                let key_head = h / (shape.heads / shape.key_heads);
                let key = |j| at(problem.key_batch, problem.key_row, problem.key_head, [b, j, key_head]);
                let mut weights: Vec<(usize, f64)> = (0..shape.keys)
                    .filter(|&j| sees(options.mask, shape, r, j))
                    .map(|j| (key(j), scale * dot(&q[start..][..dim], &k[key(j)..][..dim])))
                    .collect();
                let top = weights.iter().map(|score| score.1).fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = weights.iter().map(|score| (score.1 - top).exp()).sum();
                for (_, weight) in &mut weights {
                    *weight = (*weight - top).exp() / sum;
                }
                body(start, &weights, if sum == 0.0 { f64::NEG_INFINITY } else { top + sum.ln() });
            }
        }
    }
}

/// Adds `factor` times `from` to `to`.
fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Whether the query of this row sees this key.
fn sees(mask: Mask, shape: &Shape, row: usize, key: usize) -> bool {
    let (place, key) = ((row + shape.keys) as i64 - shape.queries as i64, key as i64);
    let within = |limit: Option<usize>, distance: i64| limit.is_none_or(|limit| distance <= limit as i64);
    match mask {
        Mask::Full => true,
        Mask::Causal => key <= place,
        Mask::Window { left, right } => within(left, place - key) && within(right, key - place),
    }
}
