//! A mixture of experts in f64 on the host: the definition, written down. Everything else is
//! compared with it.

mod expert_choice;

use std::cmp::Ordering;

pub use expert_choice::{ExpertChoices, expert_choice, expert_choice_backward, expert_choices};

use crate::Result;
use crate::moe::shape::{Gate, Options, Shape};
use crate::moe::{Auxiliary, Gradients, Inputs, check, check_bias};

/// The experts that tokens chose, each row of `[tokens, top_k]` in descending order of choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    /// The experts.
    pub experts: Vec<u32>,
    /// Their weights.
    pub weights: Vec<f64>,
    /// Whether the expert takes the choice: it does unless it has its capacity of choices of tokens
    /// before.
    pub taken: Vec<bool>,
}

/// Lets each token choose. `bias` is [`Inputs::bias`].
///
/// ```
/// use apex_kernels::moe::{Options, Shape, reference};
///
/// let shape = Shape { tokens: 1, experts: 3, top_k: 2, dim: 1, hidden: 1 };
/// let logits = [0.0, 3f64.ln(), -5.0];
/// let chosen = reference::route(&logits, None, &shape, &Options::default());
/// assert_eq!(chosen.experts, [1, 0]);
/// assert!((chosen.weights[0] - 0.75).abs() < 1e-12); // of e^ln 3 and e^0
///
/// // A bias decides what is chosen, and weighs nothing.
/// let chosen = reference::route(&logits, Some(&[2.0, 0.0, 1.0]), &shape, &Options::default());
/// assert_eq!(chosen.experts, [0, 2]);
/// assert!(chosen.weights[0] > 0.99);
/// ```
///
/// # Panics
/// If the logits are not `[tokens, experts]`, or the bias is not `[experts]`.
pub fn route(logits: &[f64], bias: Option<&[f64]>, shape: &Shape, options: &Options) -> Choices {
    assert_eq!(logits.len(), shape.logits(), "logits of each token and expert");
    let mut choices = Choices::default();
    let mut loads = vec![0; shape.experts];
    for row in logits.chunks(shape.experts) {
        let scores = scores(row, options.gate);
        let rank = |expert: usize| {
            let rank = bias.map_or(row[expert], |bias| scores[expert] + bias[expert]);
            if rank.is_nan() { f64::NEG_INFINITY } else { rank }
        };
        let mut order: Vec<usize> = (0..shape.experts).collect();
        order.sort_by(|&a, &b| rank(b).total_cmp(&rank(a))); // stable: among equals, the lower expert
        let chosen = &order[..shape.top_k];
        let its = |values: &[f64]| -> Vec<f64> { chosen.iter().map(|&expert| values[expert]).collect() };
        let weights = match (options.gate, options.renormalise) {
            (_, false) => its(&scores),
            (Gate::Sigmoid, true) => quotients(its(&scores)),
            // Of the largest of these logits, which need not be the largest of all.
            (Gate::Softmax, true) => {
                let logits = its(row);
                quotients(logits.iter().map(|logit| (logit - most(&logits)).exp()).collect())
            }
        };
        choices.weights.extend(weights);
        choices.experts.extend(chosen.iter().map(|&expert| expert as u32));
        choices.taken.extend(chosen.iter().map(|&expert| {
            loads[expert] += 1;
            loads[expert] <= shape.most_taken(options)
        }));
    }
    choices
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// The scores of one token.
fn scores(logits: &[f64], gate: Gate) -> Vec<f64> {
    match gate {
        Gate::Softmax => {
            let top = most(logits);
            let all: f64 = logits.iter().map(|logit| (logit - top).exp()).sum();
            logits.iter().map(|logit| (logit - top).exp() / all).collect()
        }
        Gate::Sigmoid => logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(),
    }
}

/// Values divided by their sum, or zeros if that is 0.
fn quotients(values: Vec<f64>) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    values.into_iter().map(|value| if sum == 0.0 { 0.0 } else { value / sum }).collect()
}

/// The output, `[tokens, dim]`, and what tokens chose. [`Options::form`] is not looked at.
///
/// ```
/// use apex_kernels::moe::{Inputs, Options, Shape, reference};
///
/// let shape = Shape { tokens: 1, experts: 2, top_k: 1, dim: 2, hidden: 1 };
/// let up = [0.0, 0.0, 0.0, 0.0, /* expert 1, gate: */ 100.0, 0.0, /* up: */ 0.0, 1.0];
/// let (tokens, logits, down) = ([1.0, 3.0], [0.0, 1.0], [0.0, 0.0, 1.0, -1.0]);
/// let inputs =
///     Inputs { tokens: &tokens[..], logits: &logits[..], bias: None, up: &up[..], down: &down[..] };
/// let (output, _) = reference::forward(&inputs, &shape, &Options::default())?;
/// assert_eq!(output, [300.0, -300.0]); // silu(100) is 100
/// # apex_kernels::Result::Ok(())
/// ```
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape), as on a device.
pub fn forward(
    inputs: &Inputs<'_, [f64], [f64]>,
    shape: &Shape,
    options: &Options,
) -> Result<(Vec<f64>, Choices)> {
    check_inputs(inputs, shape)?;
    options.check()?;
    let Inputs { tokens, logits, bias, up, down } = *inputs;
    let choices = route(logits, bias, shape, options);
    let output = outputs(tokens, up, down, shape, choices.rows(shape.top_k));
    Ok((output, choices))
}

pub(super) fn check_inputs(inputs: &Inputs<'_, [f64], [f64]>, shape: &Shape) -> Result<()> {
    let Inputs { tokens, logits, bias, up, down } = *inputs;
    check(shape, [tokens.len(), logits.len(), up.len(), down.len()])?;
    check_bias(shape, bias.map(<[f64]>::len))
}

/// One choice, which its expert takes.
#[derive(Clone, Copy)]
struct Row {
    choice: usize,
    token: usize,
    expert: usize,
    weight: f64,
}

impl Choices {
    fn rows(&self, top_k: usize) -> impl Iterator<Item = Row> {
        let all = self.experts.iter().zip(&self.weights).zip(&self.taken).enumerate();
        all.filter(|(_, (_, taken))| **taken).map(move |(choice, ((&expert, &weight), _))| Row {
            choice,
            token: choice / top_k,
            expert: expert as usize,
            weight,
        })
    }
}

/// The sum of rows of each token.
fn outputs(
    tokens: &[f64],
    up: &[f64],
    down: &[f64],
    shape: &Shape,
    rows: impl Iterator<Item = Row>,
) -> Vec<f64> {
    let (dim, hidden) = (shape.dim, shape.hidden);
    let mut output = vec![0.0; shape.token_elements()];
    for Row { token, expert, weight, .. } in rows {
        let start = token * dim;
        let token = &tokens[start..][..dim];
        let (gate, gated) = up[expert * 2 * hidden * dim..][..2 * hidden * dim].split_at(hidden * dim);
        let inner: Vec<f64> = gate
            .chunks(dim)
            .zip(gated.chunks(dim))
            .map(|(gate, gated)| silu(dot(gate, token)) * dot(gated, token))
            .collect();
        let rows = down[expert * dim * hidden..][..dim * hidden].chunks(hidden);
        for (to, row) in output[start..][..dim].iter_mut().zip(rows) {
            *to += weight * dot(row, &inner);
        }
    }
    output
}

/// The gradients of what a layer reads from that of its output, `[tokens, dim]`.
///
/// ```
/// use apex_kernels::moe::{Inputs, Options, Shape, reference};
///
/// let shape = Shape { tokens: 1, experts: 1, top_k: 1, dim: 1, hidden: 1 };
/// let inputs = Inputs { tokens: &[3.0][..], logits: &[0.0][..], bias: None, up: &[100.0, 2.0][..], down: &[0.5][..] };
/// let gradients = reference::backward(&inputs, &[1.0], &shape, &Options::default())?;
/// assert_eq!(gradients.down, [1800.0]); // silu(300) is 300, times 6
/// assert_eq!(gradients.tokens, [600.0]); // of 0.5 * 100 x * 2 x
/// assert_eq!(gradients.logits, [0.0]); // there is no choice
/// # apex_kernels::Result::Ok(())
/// ```
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape), as on a device.
///
/// # Panics
/// If `output_gradient` is not `[tokens, dim]`.
pub fn backward(
    inputs: &Inputs<'_, [f64], [f64]>,
    output_gradient: &[f64],
    shape: &Shape,
    options: &Options,
) -> Result<Gradients<Vec<f64>, Vec<f64>>> {
    check_inputs(inputs, shape)?;
    options.check()?;
    let Inputs { logits, bias, .. } = *inputs;
    assert_eq!(output_gradient.len(), shape.token_elements(), "gradients of all outputs");
    let choices = route(logits, bias, shape, options);
    let rows = choices.rows(shape.top_k);
    let (mut gradients, of_weights) =
        row_gradients(inputs, output_gradient, shape, choices.weights.len(), rows);
    gradients.logits = through_gate(logits, &choices, &of_weights, shape, options);
    Ok(gradients)
}

/// Computes gradients of tokens and weights, and those of the weights of `choices` choices.
fn row_gradients(
    inputs: &Inputs<'_, [f64], [f64]>,
    output_gradient: &[f64],
    shape: &Shape,
    choices: usize,
    rows: impl Iterator<Item = Row>,
) -> (Gradients<Vec<f64>, Vec<f64>>, Vec<f64>) {
    let Inputs { tokens, up, down, .. } = *inputs;
    let (dim, hidden) = (shape.dim, shape.hidden);
    let mut gradients = Gradients {
        tokens: vec![0.0; tokens.len()],
        logits: Vec::new(),
        up: vec![0.0; up.len()],
        down: vec![0.0; down.len()],
    };
    let mut of_weights = vec![0.0; choices];
    for Row { choice, token, expert, weight } in rows {
        let start = token * dim;
        let (token, of_output) = (&tokens[start..][..dim], &output_gradient[start..][..dim]);
        for unit in 0..hidden {
            let gate_row = (expert * 2 * hidden + unit) * dim;
            let up_row = gate_row + hidden * dim;
            let (gate, gated) = (dot(&up[gate_row..][..dim], token), dot(&up[up_row..][..dim], token));
            let inner = silu(gate) * gated;
            let column = |row: usize| (expert * dim + row) * hidden + unit;
            let of_inner: f64 = (0..dim).map(|row| of_output[row] * down[column(row)]).sum();
            of_weights[choice] += of_inner * inner;
            let logistic = 1.0 / (1.0 + (-gate).exp());
            let of_gate = weight * of_inner * gated * logistic * (1.0 + gate * (1.0 - logistic));
            let of_gated = weight * of_inner * silu(gate);
            for element in 0..dim {
                gradients.down[column(element)] += of_output[element] * weight * inner;
                gradients.up[gate_row + element] += of_gate * token[element];
                gradients.up[up_row + element] += of_gated * token[element];
                gradients.tokens[start + element] +=
                    of_gate * up[gate_row + element] + of_gated * up[up_row + element];
            }
        }
    }
    (gradients, of_weights)
}

/// The balance and the z-loss, each without its coefficient, and the gradient of their sum, with
/// coefficients, in the logits.
///
/// ```
/// use apex_kernels::moe::{Auxiliary, Shape, reference};
///
/// let shape = Shape { tokens: 1, experts: 2, top_k: 1, dim: 1, hidden: 1 };
/// let z_alone = Auxiliary { balance: 0.0, z: 1.0 };
/// let ([balance, z], gradient) = reference::auxiliary(&[1.0, 1.0], &[1, 0], &shape, &z_alone);
/// let log_sum = 1.0 + 2f64.ln();
/// assert_eq!((balance, z), (1.0, log_sum * log_sum));
/// assert_eq!(gradient, [log_sum, log_sum]); // 2 * log_sum * softmax
/// ```
///
/// # Panics
/// If the logits are not `[tokens, experts]`, or there is not one load for each expert.
pub fn auxiliary(
    logits: &[f64],
    loads: &[u32],
    shape: &Shape,
    coefficients: &Auxiliary,
) -> ([f64; 2], Vec<f64>) {
    assert_eq!((logits.len(), loads.len()), (shape.logits(), shape.experts), "logits, and loads");
    let (tokens, experts) = (shape.tokens as f64, shape.experts as f64);
    let shares: Vec<f64> = loads.iter().map(|&load| f64::from(load) / shape.choices() as f64).collect();
    let (mut losses, mut gradient) = ([0.0; 2], Vec::new());
    for row in logits.chunks(shape.experts) {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let all: f64 = row.iter().map(|logit| (logit - top).exp()).sum();
        let softmax: Vec<f64> = row.iter().map(|logit| (logit - top).exp() / all).collect();
        let (shared, log_sum) = (dot(&shares, &softmax), top + all.ln());
        losses[0] += experts * shared / tokens;
        losses[1] += log_sum * log_sum / tokens;
        gradient.extend(softmax.iter().zip(&shares).map(|(p, share)| {
            let balance = f64::from(coefficients.balance) * experts * (share - shared);
            p * (balance + f64::from(coefficients.z) * 2.0 * log_sum) / tokens
        }));
    }
    (losses, gradient)
}

/// Adds `rate` to the bias of each expert with less than the mean load, and subtracts it from that
/// of each with more.
///
/// ```
/// let mut bias = [0.0, 0.0, 1.0];
/// apex_kernels::moe::reference::balance_bias(&mut bias, &[9, 5, 1], 0.25);
/// assert_eq!(bias, [-0.25, 0.0, 1.25]);
/// ```
///
/// # Panics
/// If there is not one load for each bias.
pub fn balance_bias(bias: &mut [f64], loads: &[u32], rate: f64) {
    assert_eq!(bias.len(), loads.len(), "a load for each bias");
    let mean = loads.iter().map(|&load| f64::from(load)).sum::<f64>() / loads.len() as f64;
    for (bias, &load) in bias.iter_mut().zip(loads) {
        match f64::from(load).total_cmp(&mean) {
            Ordering::Less => *bias += rate,
            Ordering::Equal => {}
            Ordering::Greater => *bias -= rate,
        }
    }
}

/// The gradients of logits from those of weights.
fn through_gate(
    logits: &[f64],
    choices: &Choices,
    of_weights: &[f64],
    shape: &Shape,
    options: &Options,
) -> Vec<f64> {
    let mut gradients = vec![0.0; shape.logits()];
    for (token, to) in gradients.chunks_mut(shape.experts).enumerate() {
        let row = &logits[token * shape.experts..][..shape.experts];
        let its = token * shape.top_k..(token + 1) * shape.top_k;
        let (experts, weights, of_weights) =
            (&choices.experts[its.clone()], &choices.weights[its.clone()], &of_weights[its]);
        let common = dot(weights, of_weights);
        for ((&expert, weight), of_weight) in experts.iter().zip(weights).zip(of_weights) {
            let expert = expert as usize;
            let slope = 1.0 / (1.0 + row[expert].exp()); // of the logistic function, over its value
            to[expert] = match (options.gate, options.renormalise) {
                (Gate::Softmax, true) => weight * (of_weight - common),
                (Gate::Softmax, false) => weight * of_weight,
                (Gate::Sigmoid, true) => weight * slope * (of_weight - common),
                (Gate::Sigmoid, false) => weight * slope * of_weight,
            };
        }
        if (options.gate, options.renormalise) == (Gate::Softmax, false) {
            for (to, score) in to.iter_mut().zip(scores(row, Gate::Softmax)) {
                *to -= score * common;
            }
        }
    }
    gradients
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
