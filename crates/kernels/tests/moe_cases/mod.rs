//! Layers, shapes and options for the tests of mixtures of experts.

use apex_gpu::Device;
use apex_kernels::moe::{Form, Gate, Moe, Options, Routing, Shape};
use half::bf16;
use proptest::prelude::*;

use crate::common::{Number, random};

/// The tensors of a layer on the host.
pub struct Layer<T> {
    pub tokens: Vec<T>,
    pub logits: Vec<f32>,
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
            up: random(3, shape.up_elements(), scale(shape.dim)),
            down: random(4, shape.down_elements(), scale(shape.hidden)),
        }
    }
}

/// The forms that the device has for the shape.
pub fn forms(moe: &Moe, shape: &Shape) -> Vec<Form> {
    let best = moe.form_for(shape);
    if best == Form::Portable { vec![best] } else { vec![Form::Portable, best] }
}

/// Choices that no kernel has written.
pub fn poisoned(device: &Device, shape: &Shape) -> Routing {
    Routing {
        experts: device.upload(&vec![u32::MAX; shape.choices()]).unwrap(),
        weights: device.upload(&vec![f32::NAN; shape.choices()]).unwrap(),
        loads: device.upload(&vec![u32::MAX; shape.experts]).unwrap(),
    }
}

/// Shapes of which every tensor has dozens of numbers: where there are few, their terms may cancel
/// by chance, and errors of rounding are large beside what is left. Smaller ones have tests of their
/// own.
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
    (gate, any::<bool>()).prop_map(|(gate, renormalise)| Options { gate, renormalise, form: None })
}
