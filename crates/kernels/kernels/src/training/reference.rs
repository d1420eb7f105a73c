//! The embedding's gradient and AdamW in f64 on the host: the definition, with which kernels are
//! compared.

use super::Rates;

/// Row `ids[i]` of `table`, which has rows of `dim` elements, for each `i`; zeros where the table
/// has no such row.
///
/// ```
/// let table = [1.0, 2.0, 3.0, 4.0];
/// let rows = apex_kernels::training::reference::embedding(&table, &[1, 7], 2);
/// assert_eq!(rows, [3.0, 4.0, 0.0, 0.0]);
/// ```
pub fn embedding(table: &[f64], ids: &[u32], dim: usize) -> Vec<f64> {
    let row = |&id: &u32| table.chunks(dim).nth(id as usize).map_or(vec![0.0; dim], <[f64]>::to_vec);
    ids.iter().flat_map(row).collect()
}

/// The gradient of a table of `vocabulary` rows from that of [`embedding`]'s output.
///
/// ```
/// use apex_kernels::training::reference::embedding_gradient;
/// assert_eq!(embedding_gradient(&[1, 1], &[1.0, 2.0, 3.0, 4.0], 2, 2), [0.0, 0.0, 4.0, 6.0]);
/// ```
pub fn embedding_gradient(ids: &[u32], output_gradient: &[f64], vocabulary: usize, dim: usize) -> Vec<f64> {
    let mut gradient = vec![0.0; vocabulary * dim];
    for (&id, given) in ids.iter().zip(output_gradient.chunks(dim)) {
        if let Some(row) = gradient.chunks_mut(dim).nth(id as usize) {
            row.iter_mut().zip(given).for_each(|(sum, given)| *sum += given);
        }
    }
    gradient
}

/// A weight, the mean of its gradients, and that of their squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weight {
    /// The weight.
    pub value: f64,
    /// The mean of its gradients.
    pub first: f64,
    /// The mean of their squares.
    pub second: f64,
}

/// The `step`th step of AdamW of one weight, counted from 1.
///
/// ```
/// use apex_kernels::training::{Rates, reference};
///
/// let weight = reference::Weight { value: 1.0, ..Default::default() };
/// let rates = Rates { learning: 0.5, decay: 0.0, ..Rates::default() };
/// let after = reference::adamw(weight, 3.0, &rates, 1);
/// assert!((after.value - 0.5).abs() < 1e-8);
/// ```
pub fn adamw(weight: Weight, gradient: f64, rates: &Rates, step: u32) -> Weight {
    let gradient = gradient * rates.gradient_scale;
    let [keep_first, keep_second] = rates.betas;
    let first = keep_first * weight.first + (1.0 - keep_first) * gradient;
    let second = keep_second * weight.second + (1.0 - keep_second) * gradient * gradient;
    let corrected = |moment: f64, keep: f64| moment / (1.0 - keep.powf(f64::from(step)));
    let change = corrected(first, keep_first) / (corrected(second, keep_second).sqrt() + rates.epsilon);
    let value = weight.value * (1.0 - rates.learning * rates.decay) - rates.learning * change;
    Weight { value, first, second }
}
