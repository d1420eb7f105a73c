//! A layer in single precision, laid out in the order in which it is read.
//!
//! Outputs are taken [`GROUP`] vectors at a time. For a group the weights of the first input come first, those of all
//! its outputs, then those of the second input: a kernel reads one stream, multiplies with one input at a time, and
//! never has to add across a vector.

use super::{Kernel, LANES, Vector};
use crate::network::Layer;

/// Vectors of outputs that are summed at once: enough sums in flight to hide the latency of an addition.
pub(super) const GROUP: usize = 4;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Dense {
    inputs: usize,
    weights: Vec<Vector<f32>>,
    /// One vector for each vector of outputs; lanes without an output are 0, as their weights are.
    bias: Vec<Vector<f32>>,
}

impl Dense {
    pub(super) fn new(layer: &Layer) -> Dense {
        let weight = |output: usize, input| layer.weights.get(output * layer.inputs + input);
        let weights = (0..layer.outputs.div_ceil(LANES)).collect::<Vec<_>>();
        let weights = weights.chunks(GROUP).flat_map(|group| {
            (0..layer.inputs).flat_map(move |input| {
                group.iter().map(move |vector| {
                    Vector(std::array::from_fn(|lane| {
                        let output = vector * LANES + lane;
                        if output < layer.outputs {
                            weight(output, input).copied().unwrap_or(0.0)
                        } else {
                            0.0
                        }
                    }))
                })
            })
        });
        Dense { inputs: layer.inputs, weights: weights.collect(), bias: vectors_of(&layer.bias) }
    }

    /// `output = weights input + bias`. Gives how many vectors that are.
    ///
    /// # Safety
    /// The processor has the instruction set of `K`.
    #[inline(always)]
    pub(super) unsafe fn apply<K: Kernel>(&self, input: &[f32], output: &mut [Vector<f32>]) -> usize {
        let input = &input[..self.inputs];
        let mut weights = self.weights.as_slice();
        for (bias, output) in self.bias.chunks(GROUP).zip(output.chunks_mut(GROUP)) {
            let (group, rest) = weights.split_at(bias.len() * self.inputs);
            weights = rest;
            // SAFETY: this function's contract.
            unsafe {
                match bias.len() {
                    4 => sum::<K, 4>(group, bias, input, output),
                    3 => sum::<K, 3>(group, bias, input, output),
                    2 => sum::<K, 2>(group, bias, input, output),
                    _ => sum::<K, 1>(group, bias, input, output),
                }
            }
        }
        self.bias.len()
    }
}

/// One group of `W` vectors.
///
/// # Safety
/// The processor has the instruction set of `K`.
#[inline(always)]
unsafe fn sum<K: Kernel, const W: usize>(
    weights: &[Vector<f32>],
    bias: &[Vector<f32>],
    input: &[f32],
    output: &mut [Vector<f32>],
) {
    let mut sums = *bias.first_chunk::<W>().expect("the group has W vectors");
    // SAFETY: this function's contract.
    unsafe { K::dense(weights, input, &mut sums) };
    output[..W].copy_from_slice(&sums);
}

/// Numbers as vectors, the last one filled up with 0.
pub(super) fn vectors_of(values: &[f32]) -> Vec<Vector<f32>> {
    let vector =
        |values: &[f32]| Vector(std::array::from_fn(|lane| values.get(lane).copied().unwrap_or(0.0)));
    values.chunks(LANES).map(vector).collect()
}
