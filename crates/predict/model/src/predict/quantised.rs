//! A layer in 8 bits.
//!
//! Each row of weights `w` is `s q` with signed bytes `q` and one scale `s = max |w| / 127`. The
//! inputs `x` are `t (u - z)` with unsigned bytes `u`, a scale `t` and a zero point `z` that come
//! from the least and the greatest input of this very prediction (0 included, so that 0 is exact),
//! as ONNX's DynamicQuantizeLinear defines them. Then
//!
//! ```text
//! sum of w x = s t (sum of q u - z sum of q)
//! ```
//!
//! and both sums are exact in 32 bits ([`crate::network::MAX_WIDTH`]). All other arithmetic is
//! elementwise without fused multiply-add, so all instruction sets give the same bits.

use super::dense::{GROUP, grouped, vectors_of};
use super::{Kernel, LANES, Vector, flat};
use crate::network::Layer;

/// See the module's documentation. Weights are grouped as in [`super::dense`], four inputs taking
/// the place of one.
#[derive(Debug)]
pub(super) struct Quantised {
    /// Inputs in fours.
    quads: usize,
    weights: Vec<Vector<u32>>,
    /// For each output: the scale of its weights, their sum, the bias.
    scale: Vec<Vector<f32>>,
    sums: Vec<Vector<i32>>,
    bias: Vec<Vector<f32>>,
}

/// A row of weights in 8 bits.
pub(crate) struct QuantisedRow {
    pub(crate) weights: Vec<i8>,
    pub(crate) scale: f32,
}

impl QuantisedRow {
    pub(crate) fn new(row: &[f32]) -> QuantisedRow {
        let greatest = row.iter().fold(0.0f32, |greatest, weight| greatest.max(weight.abs()));
        // A row of zeros, or of numbers too small to divide by, has no weight at all.
        let scale = if greatest > 127.0 * f32::MIN_POSITIVE { greatest / 127.0 } else { 0.0 };
        let byte =
            |weight: &f32| if scale > 0.0 { (weight / scale).round().clamp(-127.0, 127.0) as i8 } else { 0 };
        QuantisedRow { weights: row.iter().map(byte).collect(), scale }
    }
}

impl Quantised {
    pub(super) fn new(layer: &Layer) -> Quantised {
        let quads = layer.inputs.div_ceil(4);
        let rows: Vec<QuantisedRow> = layer.weights.chunks(layer.inputs).map(QuantisedRow::new).collect();
        let quad = |output: usize, quad: usize| {
            let weight =
                |input| rows.get(output).and_then(|row| row.weights.get(input)).copied().unwrap_or(0);
            u32::from_le_bytes(std::array::from_fn(|byte| weight(quad * 4 + byte).cast_unsigned()))
        };
        let sum = |output: usize, _| {
            rows.get(output).map_or(0, |row| row.weights.iter().map(|&weight| i32::from(weight)).sum())
        };
        let scales: Vec<f32> = rows.iter().map(|row| row.scale).collect();
        Quantised {
            quads,
            weights: grouped(layer.outputs, quads, quad),
            scale: vectors_of(&scales),
            sums: grouped(layer.outputs, 1, sum),
            bias: vectors_of(&layer.bias),
        }
    }

    /// `output = weights input + bias`. Gives how many vectors that are. Lanes of `input` that
    /// belong to no unit are multiplied with weights that are 0.
    ///
    /// # Safety
    /// The processor has the instruction set of `K`.
    #[inline(always)]
    pub(super) unsafe fn apply<K: Kernel>(
        &self,
        input: &[Vector<f32>],
        quads: &mut [u32],
        output: &mut [Vector<f32>],
    ) -> usize {
        let (step, zero) = quantise(&input[..(self.quads * 4).div_ceil(LANES)], quads);
        let quads = &quads[..self.quads];
        let mut weights = self.weights.as_slice();
        for (group, output) in output[..self.bias.len()].chunks_mut(GROUP).enumerate() {
            let (those, rest) = weights.split_at(output.len() * self.quads);
            weights = rest;
            let at = group * GROUP;
            // SAFETY: this function's contract.
            unsafe {
                match output.len() {
                    4 => self.sum::<K, 4>(those, quads, at, (step, zero), output),
                    3 => self.sum::<K, 3>(those, quads, at, (step, zero), output),
                    2 => self.sum::<K, 2>(those, quads, at, (step, zero), output),
                    _ => self.sum::<K, 1>(those, quads, at, (step, zero), output),
                }
            }
        }
        self.bias.len()
    }

    /// One group of `W` vectors, the first of which is `at`.
    ///
    /// # Safety
    /// The processor has the instruction set of `K`.
    #[inline(always)]
    unsafe fn sum<K: Kernel, const W: usize>(
        &self,
        weights: &[Vector<u32>],
        quads: &[u32],
        at: usize,
        (step, zero): (f32, i32),
        output: &mut [Vector<f32>],
    ) {
        // SAFETY: this function's contract.
        let sums: [Vector<i32>; W] = unsafe { K::quantised(weights, quads) };
        for (vector, output) in output.iter_mut().enumerate() {
            let (scale, bias) = (&self.scale[at + vector].0, &self.bias[at + vector].0);
            let rows = &self.sums[at + vector].0;
            for lane in 0..LANES {
                let exact = sums[vector].0[lane] - zero * rows[lane];
                output.0[lane] = exact as f32 * (step * scale[lane]) + bias[lane];
            }
        }
    }
}

/// Puts `values` into bytes, four in each element of `quads`. Gives their step and the byte that
/// stands for 0.
#[inline(always)]
fn quantise(values: &[Vector<f32>], quads: &mut [u32]) -> (f32, i32) {
    let (mut least, mut greatest) = ([0.0f32; LANES], [0.0f32; LANES]);
    for vector in values {
        for lane in 0..LANES {
            let value = vector.0[lane];
            least[lane] = if value < least[lane] { value } else { least[lane] };
            greatest[lane] = if value > greatest[lane] { value } else { greatest[lane] };
        }
    }
    let least = least.into_iter().fold(0.0, f32::min);
    let greatest = greatest.into_iter().fold(0.0, f32::max);
    // Values that are all 0 need any step that is not 0.
    let step = ((greatest - least) / 255.0).max(f32::MIN_POSITIVE);
    let per_step = 1.0 / step;
    let zero = (-least * per_step).round_ties_even().clamp(0.0, 255.0);
    /// Added to a number below 2^22, it leaves the nearest integer in the low bits of the sum.
    const ROUND: f32 = (1 << 23) as f32;
    for (quad, four) in quads.iter_mut().zip(flat(values).chunks_exact(4)) {
        let mut packed = 0;
        for (byte, value) in four.iter().enumerate() {
            let moved = value * per_step + zero;
            let moved = if moved > 0.0 { moved } else { 0.0 };
            let moved = if moved < 255.0 { moved } else { 255.0 };
            packed |= ((moved + ROUND).to_bits() & 0xff) << (8 * byte);
        }
        *quad = packed;
    }
    (step, zero as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{InstructionSet, Portable};
    use apex_random::Random;

    fn applied<K: Kernel>(layer: &Quantised, input: &[Vector<f32>], set: InstructionSet) -> Option<Vec<u32>> {
        let mut quads = vec![0; input.len() * LANES / 4];
        let mut output = vec![Vector([f32::NAN; LANES]); layer.bias.len()];
        if !set.is_available() {
            test_skip::impossible_here(format!("this processor has no {set:?}"));
            return None;
        }
        // SAFETY: the instruction set is available.
        unsafe { layer.apply::<K>(input, &mut quads, &mut output) };
        Some(flat(&output).iter().map(|number| number.to_bits()).collect())
    }

    /// A layer in plain integers, as the module's documentation states it.
    fn reference(layer: &Layer, input: &[f32]) -> Vec<f64> {
        let (least, greatest) = input.iter().fold((0.0f32, 0.0f32), |(l, g), &x| (l.min(x), g.max(x)));
        let step = f64::from(greatest - least) / 255.0;
        let zero = (-f64::from(least) / step).round_ties_even();
        let bytes: Vec<f64> = input.iter().map(|&x| (f64::from(x) / step + zero).round_ties_even()).collect();
        let row = |(row, bias): (&[f32], &f32)| {
            let row = QuantisedRow::new(row);
            let products = row.weights.iter().zip(&bytes).map(|(&q, u)| f64::from(q) * (u - zero));
            products.sum::<f64>() * step * f64::from(row.scale) + f64::from(*bias)
        };
        layer.weights.chunks(layer.inputs).zip(&layer.bias).map(row).collect()
    }

    #[test]
    fn all_kernels_give_the_same_bits() {
        let mut random = Random::new(9);
        for (inputs, outputs) in [(1, 1), (4, 16), (7, 33), (65, 130), (512, 64), (1000, 17), (300, 200)] {
            for sign in [0.0, 0.5] {
                let mut numbers = |count: usize, shift: f64| -> Vec<f32> {
                    (0..count).map(|_| (random.uniform() - shift) as f32).collect()
                };
                let mut weights = numbers(inputs * outputs, 0.5);
                // A row without weight, and one of the greatest.
                weights[..inputs].fill(0.0);
                weights[(outputs - 1) * inputs..].fill(-1.0);
                let layer = Layer { inputs, outputs, weights, bias: numbers(outputs, 0.5) };
                let input = numbers(inputs, sign);
                let ready = Quantised::new(&layer);
                let vectors = vectors_of(&input);
                let plain = applied::<Portable>(&ready, &vectors, InstructionSet::Portable).unwrap();
                #[cfg(target_arch = "x86_64")]
                {
                    use crate::predict::x86::{Avx2, Avx512, Avx512Vnni};
                    let fast = [
                        applied::<Avx2>(&ready, &vectors, InstructionSet::Avx2),
                        applied::<Avx512>(&ready, &vectors, InstructionSet::Avx512),
                        applied::<Avx512Vnni>(&ready, &vectors, InstructionSet::Avx512Vnni),
                    ];
                    fast.into_iter().flatten().for_each(|fast| assert_eq!(fast, plain));
                }
                let expected = reference(&layer, &input);
                for (found, expected) in plain.iter().map(|bits| f32::from_bits(*bits)).zip(expected) {
                    // An input on the edge between two bytes may fall to the other side in single
                    // precision.
                    let bound = 1e-5 * inputs as f64 + 0.5 / 255.0;
                    assert!((f64::from(found) - expected).abs() < bound, "{inputs}: {found} {expected}");
                }
            }
        }
    }
}
