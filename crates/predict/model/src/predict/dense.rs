//! A layer in single precision, laid out in the order in which it is read.
//!
//! Outputs are taken [`GROUP`] vectors at a time. For a group the weights of the first input come
//! first, those of all its outputs, then those of the second input: a kernel reads one stream,
//! multiplies with one input at a time, and never has to add across a vector.

use super::{Kernel, LANES, Vector};
use crate::network::Layer;

/// Vectors of outputs that are summed at once: enough sums in flight to hide the latency of an
/// addition.
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
        let weight = |output: usize, input: usize| match output < layer.outputs {
            true => layer.weights[output * layer.inputs + input],
            false => 0.0,
        };
        let weights = grouped(layer.outputs, layer.inputs, weight);
        Dense { inputs: layer.inputs, weights, bias: vectors_of(&layer.bias) }
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

/// `element` of each output and each of `steps` inputs, in the order in which kernels read them.
/// Outputs beyond the last fill up its vector.
pub(super) fn grouped<T>(
    outputs: usize,
    steps: usize,
    element: impl Fn(usize, usize) -> T,
) -> Vec<Vector<T>> {
    let vectors: Vec<usize> = (0..outputs.div_ceil(LANES)).collect();
    let mut all = Vec::with_capacity(vectors.len() * steps);
    for group in vectors.chunks(GROUP) {
        for step in 0..steps {
            let vector =
                |vector: &usize| Vector(std::array::from_fn(|lane| element(vector * LANES + lane, step)));
            all.extend(group.iter().map(vector));
        }
    }
    all
}

/// Numbers as vectors, the last one filled up with 0.
pub(super) fn vectors_of(values: &[f32]) -> Vec<Vector<f32>> {
    let vector =
        |values: &[f32]| Vector(std::array::from_fn(|lane| values.get(lane).copied().unwrap_or(0.0)));
    values.chunks(LANES).map(vector).collect()
}
