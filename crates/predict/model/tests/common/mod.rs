//! Random networks and a reference that computes what `apex_model::network` states, in double
//! precision.

#![allow(dead_code, reason = "each test file uses some of this")]

use apex_model::network::{Activation, Layer, Network, Range, Scaling, Target};
use apex_random::Random;

/// Normal numbers.
pub fn normals(count: usize, deviation: f64, random: &mut Random) -> Vec<f32> {
    (0..count).map(|_| (random.normal() * deviation) as f32).collect()
}

/// Scaling with centres around 0 and spreads of every magnitude.
fn scaling(count: usize, random: &mut Random) -> Scaling {
    let scale = (0..count).map(|_| (2.0 * random.normal()).exp() as f32).collect();
    Scaling { mean: normals(count, 3.0, random), scale }
}

/// A network with random weights, biases and scaling, whose targets are by turns fractions and any
/// number.
pub fn network(
    inputs: usize,
    hidden: &[usize],
    outputs: usize,
    activation: Activation,
    seed: u64,
) -> Network {
    let mut random = Random::new(seed);
    let widths: Vec<usize> = [inputs].iter().chain(hidden).chain(&[outputs]).copied().collect();
    let layer = |pair: &[usize]| Layer {
        inputs: pair[0],
        outputs: pair[1],
        weights: normals(pair[0] * pair[1], (2.0 / pair[0] as f64).sqrt(), &mut random),
        bias: normals(pair[1], 0.3, &mut random),
    };
    let layers = widths.windows(2).map(layer).collect();
    let target = |index| match index % 2 {
        0 => Target::fraction(&format!("fraction {index}")),
        _ => Target::real(&format!("number {index}")),
    };
    let (input, mut output) = (scaling(inputs, &mut random), scaling(outputs, &mut random));
    for fraction in (0..outputs).step_by(2) {
        (output.mean[fraction], output.scale[fraction]) = (0.0, 1.0);
    }
    Network::from_parts(activation, input, layers, (0..outputs).map(target).collect(), output).unwrap()
}

/// Features as they would be for `network`.
pub fn features(network: &Network, random: &mut Random) -> Vec<f32> {
    let scaling = network.input_scaling();
    let value = |(mean, scale): (&f32, &f32)| (f64::from(*mean) + f64::from(*scale) * random.normal()) as f32;
    scaling.mean.iter().zip(&scaling.scale).map(value).collect()
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn activate(activation: Activation, z: f64) -> f64 {
    match activation {
        Activation::Relu => z.max(0.0),
        Activation::Silu => z * logistic(z),
        Activation::Gelu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (z + 0.044715 * z.powi(3));
            0.5 * z * (1.0 + inner.tanh())
        }
    }
}

/// Returns the outputs of `network` for `features`, in double precision.
pub fn reference(network: &Network, features: &[f32]) -> Vec<f64> {
    let scaling = network.input_scaling();
    let mut values: Vec<f64> = features
        .iter()
        .zip(scaling.mean.iter().zip(&scaling.scale))
        .map(|(&x, (&mean, &scale))| (f64::from(x) - f64::from(mean)) / f64::from(scale))
        .collect();
    for (index, layer) in network.layers().iter().enumerate() {
        let last = index + 1 == network.layers().len();
        let sum = |(row, bias): (&[f32], &f32)| {
            let products = row.iter().zip(&values).map(|(&weight, value)| f64::from(weight) * value);
            let sum = f64::from(*bias) + products.sum::<f64>();
            if last { sum } else { activate(network.activation(), sum) }
        };
        values = layer.weights.chunks(layer.inputs).zip(&layer.bias).map(sum).collect();
    }
    let scaling = network.output_scaling();
    for (value, (target, _)) in values.iter_mut().zip(network.output_roles()) {
        *value = match network.targets()[target].range {
            Range::Fraction => logistic(*value),
            Range::Real => f64::from(scaling.mean[target]) + f64::from(scaling.scale[target]) * *value,
        };
    }
    values
}

/// Returns the distance of `found` from `expected`: the greatest error relative to an output's size
/// or spread, whichever is larger.
pub fn distance(network: &Network, found: &[f32], expected: &[f64]) -> f64 {
    let scaling = network.output_scaling();
    let roles = network.output_roles();
    let apart = found.iter().zip(expected).zip(roles).map(|((&found, expected), (target, _))| {
        (f64::from(found) - expected).abs() / f64::from(scaling.scale[target]).max(expected.abs())
    });
    apart.fold(0.0, f64::max)
}
