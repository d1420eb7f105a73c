//! Expert choice in f64 on the host: the definition.

use super::{Row, check_inputs, dot, outputs, row_gradients, scores};
use crate::Result;
use crate::moe::shape::{Gate, Shape};
use crate::moe::{ExpertOptions, Gradients, Inputs};

/// The choices of experts, each row of `[experts, capacity]` in the order of tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpertChoices {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Their weights.
    pub weights: Vec<f64>,
}

impl ExpertChoices {
    fn rows(&self, shape: &Shape, options: &ExpertOptions) -> impl Iterator<Item = Row> {
        let capacity = options.rows_of_expert(shape);
        let all = self.tokens.iter().zip(&self.weights).enumerate();
        all.map(move |(choice, (&token, &weight))| Row {
            choice,
            token: token as usize,
            expert: choice / capacity,
            weight,
        })
    }
}

/// Lets each expert choose.
///
/// ```
/// use apex_kernels::moe::{ExpertOptions, Gate, Shape, reference};
///
/// let shape = Shape { tokens: 3, experts: 2, top_k: 1, dim: 1, hidden: 1 };
/// let options = ExpertOptions { gate: Gate::Sigmoid, capacity: Some(2), form: None };
/// let chosen = reference::expert_choices(&[0.0, 1.0, 5.0, 1.0, 2.0, 1.0], &shape, &options);
/// assert_eq!(chosen.tokens, [1, 2, 0, 1]); // of 5 and 2; and of three that are equal
/// ```
///
/// # Panics
/// If the logits are not `[tokens, experts]`.
pub fn expert_choices(logits: &[f64], shape: &Shape, options: &ExpertOptions) -> ExpertChoices {
    assert_eq!(logits.len(), shape.logits(), "logits of each token and expert");
    let scores: Vec<f64> = logits.chunks(shape.experts).flat_map(|row| scores(row, options.gate)).collect();
    let mut choices = ExpertChoices::default();
    for expert in 0..shape.experts {
        let score = |token: usize| scores[token * shape.experts + expert];
        let rank = |token: usize| if score(token).is_nan() { f64::NEG_INFINITY } else { score(token) };
        let mut order: Vec<usize> = (0..shape.tokens).collect();
        order.sort_by(|&a, &b| rank(b).total_cmp(&rank(a))); // stable: among equals, the lower token
        order.truncate(options.rows_of_expert(shape));
        order.sort_unstable();
        choices.weights.extend(order.iter().map(|&token| score(token)));
        choices.tokens.extend(order.iter().map(|&token| token as u32));
    }
    choices
}

/// The output, `[tokens, dim]`, and what experts chose. [`ExpertOptions::form`] is not looked at.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape), as on a device.
pub fn expert_choice(
    inputs: &Inputs<'_, [f64], [f64]>,
    shape: &Shape,
    options: &ExpertOptions,
) -> Result<(Vec<f64>, ExpertChoices)> {
    check_inputs(inputs, shape)?;
    options.check(shape, inputs.bias.is_some())?;
    let choices = expert_choices(inputs.logits, shape, options);
    let output = outputs(inputs.tokens, inputs.up, inputs.down, shape, choices.rows(shape, options));
    Ok((output, choices))
}

/// The gradients of what [`expert_choice`] reads from that of its output, `[tokens, dim]`.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape), as on a device.
///
/// # Panics
/// If `output_gradient` is not `[tokens, dim]`.
pub fn expert_choice_backward(
    inputs: &Inputs<'_, [f64], [f64]>,
    output_gradient: &[f64],
    shape: &Shape,
    options: &ExpertOptions,
) -> Result<Gradients<Vec<f64>, Vec<f64>>> {
    check_inputs(inputs, shape)?;
    options.check(shape, inputs.bias.is_some())?;
    assert_eq!(output_gradient.len(), shape.token_elements(), "gradients of all outputs");
    let choices = expert_choices(inputs.logits, shape, options);
    let rows = || choices.rows(shape, options);
    let (mut gradients, of_weights) =
        row_gradients(inputs, output_gradient, shape, choices.weights.len(), rows());
    let mut of_scores = vec![0.0; shape.logits()];
    for row in rows() {
        of_scores[row.token * shape.experts + row.expert] = of_weights[row.choice];
    }
    let tokens = inputs.logits.chunks(shape.experts).zip(of_scores.chunks(shape.experts));
    gradients.logits =
        tokens.flat_map(|(row, of_scores)| through_scores(row, of_scores, options.gate)).collect();
    Ok(gradients)
}

/// The gradients of one token's logits from those of its scores.
fn through_scores(logits: &[f64], of_scores: &[f64], gate: Gate) -> Vec<f64> {
    let scores = scores(logits, gate);
    let common = dot(&scores, of_scores);
    let slopes = scores.iter().zip(of_scores).zip(logits);
    slopes
        .map(|((score, of_score), logit)| match gate {
            Gate::Softmax => score * (of_score - common),
            Gate::Sigmoid => score * of_score / (1.0 + logit.exp()),
        })
        .collect()
}
