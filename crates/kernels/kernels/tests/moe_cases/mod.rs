//! Layers, shapes and options for the tests of mixtures of experts.

use apex_gpu::Device;
use apex_kernels::moe::{Gate, Moe, MoeForm, Options, Routing, Shape};
use half::{bf16, f16};
use proptest::prelude::*;

use crate::common::{Number, random};

/// The tensors of a layer on the host.
pub struct Layer<T> {
    pub tokens: Vec<T>,
    pub logits: Vec<f32>,
    pub bias: Option<Vec<f32>>,
    pub up: Vec<T>,
    pub down: Vec<T>,
}

impl<T: Number> Layer<T> {
    /// Weights are small enough for hidden layers and outputs to be about as large as tokens.
    pub fn random(shape: &Shape) -> Layer<T> {
        let scale = |inner: usize| 2.0 / (inner as f64).sqrt();
        Layer {
            tokens: random(1, shape.token_elements(), 2.0),
            logits: random::<bf16>(2, shape.logits(), 4.0).into_iter().map(f32::from).collect(),
            bias: None,
            up: random(3, shape.up_elements(), scale(shape.dim)),
            down: random(4, shape.down_elements(), scale(shape.hidden)),
        }
    }

    /// The same with a bias. Where sums of scores and biases are so close that rounding decides
    /// which is larger, the token's logits are others.
    pub fn biased(mut self, shape: &Shape, gate: Gate) -> Layer<T> {
        let bias: Vec<f32> = random::<f16>(6, shape.experts, 0.5).into_iter().map(f32::from).collect();
        for row in self.logits.chunks_mut(shape.experts) {
            while closest(row, &bias, gate) < 1e-6 {
                row.iter_mut().enumerate().for_each(|(expert, logit)| *logit += 0.01 * expert as f32);
            }
        }
        self.bias = Some(bias);
        self
    }

    /// The logits and the bias, wide.
    pub fn router(&self) -> (Vec<f64>, Option<Vec<f64>>) {
        let wide = |values: &Vec<f32>| values.iter().map(|&value| f64::from(value)).collect();
        (wide(&self.logits), self.bias.as_ref().map(wide))
    }
}

/// The smallest difference between two sums of score and bias.
fn closest(row: &[f32], bias: &[f32], gate: Gate) -> f64 {
    let exponentials = row.iter().map(|&logit| f64::from(logit).exp());
    let all: f64 = exponentials.clone().sum();
    let score = |exponential: f64| match gate {
        Gate::Softmax => exponential / all,
        Gate::Sigmoid => exponential / (1.0 + exponential),
    };
    let mut sums: Vec<f64> =
        exponentials.zip(bias).map(|(exponential, &bias)| score(exponential) + f64::from(bias)).collect();
    sums.sort_by(f64::total_cmp);
    sums.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min)
}

/// The forms that the device has for the shape.
pub fn forms(moe: &Moe, shape: &Shape) -> Vec<MoeForm> {
    let best = moe.form_for(shape);
    if best == MoeForm::Portable { vec![best] } else { vec![MoeForm::Portable, best] }
}

/// Choices that no kernel has written.
pub fn poisoned(device: &Device, shape: &Shape) -> Routing {
    Routing {
        experts: device.upload(&vec![u32::MAX; shape.choices()]).unwrap(),
        weights: device.upload(&vec![f32::NAN; shape.choices()]).unwrap(),
        loads: device.upload(&vec![u32::MAX; shape.experts]).unwrap(),
        drops: device.upload(&[[u32::MAX; 2]]).unwrap(),
    }
}

/// Shapes of which every tensor has dozens of numbers: where there are few, their terms may cancel
/// by chance, and errors of rounding are large beside what is left. Smaller ones have tests of
/// their own.
pub fn shapes() -> impl Strategy<Value = Shape> {
    // A multiple of 8 in half of the cases: those have a Hopper form, on a GPU.
    let side = |most: usize| prop_oneof![8..most, (1..most / 8).prop_map(|eighth| 8 * eighth)];
    let experts = (1..9usize).prop_flat_map(|experts| (Just(experts), 1..=experts));
    let tokens = prop_oneof![1 => Just(0), 15 => 8..150usize];
    (tokens, experts, side(72), side(56)).prop_map(|(tokens, (experts, top_k), dim, hidden)| Shape {
        tokens,
        experts,
        top_k,
        dim,
        hidden,
    })
}

pub fn options() -> impl Strategy<Value = Options> {
    let gate = prop::sample::select(vec![Gate::Softmax, Gate::Sigmoid]);
    // Shapes have up to 150 tokens.
    let capacity = prop::option::of(1..160usize);
    (gate, any::<bool>(), capacity).prop_map(|(gate, renormalise, capacity)| Options {
        gate,
        renormalise,
        capacity,
        form: None,
    })
}

/// Checks by differences that a loss has the expected gradients of four tensors.
pub fn differences(
    values: &mut [Vec<f64>; 4],
    expected: &[Vec<f64>; 4],
    loss: impl Fn(&[Vec<f64>; 4]) -> f64,
) {
    for (which, expected) in expected.iter().enumerate() {
        for (at, expected) in expected.iter().enumerate() {
            let (step, before) = (1e-5, values[which][at]);
            values[which][at] = before + step;
            let above = loss(values);
            values[which][at] = before - step;
            let below = loss(values);
            values[which][at] = before;
            let found = (above - below) / (2.0 * step);
            let off = (found - expected).abs();
            assert!(off < 1e-7 * (1.0 + expected.abs()), "input {which}, element {at}: {found}, {expected}");
        }
    }
}
