//! A mixture of experts in f64 on the host: the definition, written down. Everything else is
//! compared with it.

use crate::Result;
use crate::moe::shape::{Gate, Options, Shape};
use crate::moe::{Inputs, check};

/// What tokens chose, each row of `[tokens, top_k]` from the largest logit down.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// The experts.
    pub experts: Vec<u32>,
    /// Their weights.
    pub weights: Vec<f64>,
}

/// Lets each token choose.
///
/// ```
/// use apex_kernels::moe::{Options, Shape, reference};
///
/// let shape = Shape { tokens: 1, experts: 3, top_k: 2, dim: 1, hidden: 1 };
/// let chosen = reference::route(&[0.0, 3f64.ln(), -5.0], &shape, &Options::default());
/// assert_eq!(chosen.experts, [1, 0]);
/// assert!((chosen.weights[0] - 0.75).abs() < 1e-12); // of e^ln 3 and e^0
/// ```
///
/// # Panics
/// If the logits are not `[tokens, experts]`.
pub fn route(logits: &[f64], shape: &Shape, options: &Options) -> Choices {
    assert_eq!(logits.len(), shape.logits(), "logits of each token and expert");
    let mut choices = Choices { experts: Vec::new(), weights: Vec::new() };
    for row in logits.chunks(shape.experts) {
        let rank = |expert: usize| if row[expert].is_nan() { f64::NEG_INFINITY } else { row[expert] };
        let mut order: Vec<usize> = (0..shape.experts).collect();
        order.sort_by(|&a, &b| rank(b).total_cmp(&rank(a))); // stable: among equals, the lower expert
        let top = rank(order[0]);
        let chosen = &order[..shape.top_k];
        let weight = |&expert: &usize| match options.gate {
            Gate::Softmax => (row[expert] - top).exp(),
            Gate::Sigmoid => 1.0 / (1.0 + (-row[expert]).exp()),
        };
        let all: f64 = match (options.renormalise, options.gate) {
            (true, _) => chosen.iter().map(weight).sum(),
            (false, Gate::Softmax) => order.iter().map(weight).sum(),
            (false, Gate::Sigmoid) => 1.0,
        };
        choices
            .weights
            .extend(chosen.iter().map(|expert| if all == 0.0 { 0.0 } else { weight(expert) / all }));
        choices.experts.extend(chosen.iter().map(|&expert| expert as u32));
    }
    choices
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
///     Inputs { tokens: &tokens[..], logits: &logits[..], up: &up[..], down: &down[..] };
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
    let Inputs { tokens, logits, up, down } = *inputs;
    check(shape, [tokens.len(), logits.len(), up.len(), down.len()])?;
    let choices = route(logits, shape, options);
    let (dim, hidden) = (shape.dim, shape.hidden);
    let mut output = vec![0.0; shape.token_elements()];
    for (choice, (&expert, weight)) in choices.experts.iter().zip(&choices.weights).enumerate() {
        let start = choice / shape.top_k * dim;
        let token = &tokens[start..][..dim];
        let (gate, gated) =
            up[expert as usize * 2 * hidden * dim..][..2 * hidden * dim].split_at(hidden * dim);
        let inner: Vec<f64> = gate
            .chunks(dim)
            .zip(gated.chunks(dim))
            .map(|(gate, gated)| silu(dot(gate, token)) * dot(gated, token))
            .collect();
        let rows = down[expert as usize * dim * hidden..][..dim * hidden].chunks(hidden);
        for (to, row) in output[start..][..dim].iter_mut().zip(rows) {
            *to += weight * dot(row, &inner);
        }
    }
    Ok((output, choices))
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
