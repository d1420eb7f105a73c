//! Loss and gradient of a chunk of examples: the network forwards, its derivatives backwards.

use super::input_dropout::InputDropout;
use super::loss::{OutputLoss, TargetLoss};
use super::real::{Real, View};
use super::{CHUNK, Examples};
use crate::math::{GELU_CUBIC, GELU_FACTOR};
use crate::network::{Activation, Network, Range, Scaling};
use crate::parallel::in_parallel;
use crate::{Error, Matrix};
use std::ops::Range as Span;

/// The position of a layer's parameters among all.
#[derive(Clone, Debug)]
pub(super) struct LayerPosition {
    inputs: usize,
    outputs: usize,
    pub(super) weights: Span<usize>,
    pub(super) bias: Span<usize>,
}

/// The structure of a network for training. Its parameters are in one row: layer by layer, first
/// the weights and then the bias.
pub(super) struct Plan {
    pub(super) places: Vec<LayerPosition>,
    activation: Activation,
    input: Scaling,
    output: Scaling,
    losses: Vec<OutputLoss>,
    ranges: Vec<Range>,
}

/// Examples that one thread works on at a time, and what it found.
pub(super) struct Chunk<T> {
    /// For the features and for each layer: sums before the activation, which then make way for its
    /// derivative there; values after it; derivatives of the loss with respect to the sums.
    sums: Vec<Vec<T>>,
    values: Vec<Vec<T>>,
    slopes: Vec<Vec<T>>,
    /// Derivative of [`Chunk::loss`] with respect to each parameter.
    pub(super) gradient: Vec<T>,
    /// Sum of the losses.
    pub(super) loss: f64,
}

impl Plan {
    pub(super) fn new(network: &Network, losses: &[TargetLoss]) -> Plan {
        let mut end = 0;
        let place = |layer: &crate::network::Layer| {
            let weights = end..end + layer.weights.len();
            let bias = weights.end..weights.end + layer.bias.len();
            end = bias.end;
            LayerPosition { inputs: layer.inputs, outputs: layer.outputs, weights, bias }
        };
        let output_loss = |(target, level): (usize, Option<f32>)| OutputLoss {
            target,
            level,
            range: network.targets()[target].range,
            point: losses[target].point,
            weight: losses[target].weight,
        };
        Plan {
            places: network.layers().iter().map(place).collect(),
            activation: network.activation(),
            input: network.input_scaling().clone(),
            output: network.output_scaling().clone(),
            losses: network.output_roles().map(output_loss).collect(),
            ranges: network.targets().iter().map(|target| target.range).collect(),
        }
    }

    /// `Ok` when the examples can be used with the network.
    pub(super) fn check(&self, examples: &Examples) -> Result<(), Error> {
        if examples.rows() == 0 {
            return Err(Error::TooFew { what: "examples", needed: 1, found: 0 });
        }
        Error::check_length("a row of features", self.places[0].inputs, examples.inputs.columns())?;
        Error::check_length("a row of targets", self.ranges.len(), examples.targets.columns())?;
        for row in examples.targets.iter() {
            for (&value, &range) in row.iter().zip(&self.ranges) {
                let usable = range == Range::Real || value.is_nan() || (0.0..=1.0).contains(&value);
                Error::check_range(usable, "a fraction to be learned", f64::from(value), "from 0 to 1")?;
            }
        }
        Ok(())
    }

    /// Returns the number of parameters.
    pub(super) fn parameters(&self) -> usize {
        self.places.last().map_or(0, |place| place.bias.end)
    }

    pub(super) fn parameters_of<T: Real>(&self, network: &Network) -> Vec<T> {
        let numbers = network.layers().iter().flat_map(|layer| layer.weights.iter().chain(&layer.bias));
        numbers.map(|&number| T::of(f64::from(number))).collect()
    }

    pub(super) fn parameters_into(&self, parameters: &[f32], network: &mut Network) {
        for (place, layer) in self.places.iter().zip(network.layers_mut()) {
            layer.weights.copy_from_slice(&parameters[place.weights.clone()]);
            layer.bias.copy_from_slice(&parameters[place.bias.clone()]);
        }
    }

    /// Room for `examples` examples.
    pub(super) fn chunks<T: Real>(&self, examples: usize) -> Vec<Chunk<T>> {
        let widths: Vec<usize> = [self.places[0].inputs]
            .into_iter()
            .chain(self.places.iter().map(|place| place.outputs))
            .collect();
        let buffers = || widths.iter().map(|width| vec![T::default(); CHUNK * width]).collect();
        let chunk = |_| Chunk {
            sums: buffers(),
            values: buffers(),
            slopes: buffers(),
            gradient: vec![T::default(); self.parameters()],
            loss: 0.0,
        };
        (0..examples.div_ceil(CHUNK)).map(chunk).collect()
    }

    /// Computes the losses of the examples `rows` and their gradients, with some features left out.
    /// Gives the chunks that were used.
    pub(super) fn gradients<'a, T: Real>(
        &self,
        parameters: &[T],
        examples: &Examples,
        rows: &[usize],
        input_dropout: InputDropout,
        chunks: &'a mut [Chunk<T>],
        threads: usize,
    ) -> &'a [Chunk<T>] {
        let chunks = &mut chunks[..rows.len().div_ceil(CHUNK)];
        in_parallel(threads, chunks, |index, chunk| {
            let rows = &rows[index * CHUNK..rows.len().min((index + 1) * CHUNK)];
            self.load(&examples.inputs, rows, &mut chunk.values[0]);
            input_dropout.apply(index, &mut chunk.values[0][..rows.len() * self.places[0].inputs]);
            self.forward(parameters, examples, rows, chunk);
            self.backward(parameters, rows.len(), chunk);
        });
        chunks
    }

    /// Mean loss of all examples.
    pub(super) fn mean_loss<T: Real>(
        &self,
        parameters: &[T],
        examples: &Examples,
        chunks: &mut [Chunk<T>],
        threads: usize,
    ) -> f64 {
        let rows: Vec<usize> = (0..examples.rows()).collect();
        let mut loss = 0.0;
        for rows in rows.chunks(chunks.len() * CHUNK) {
            let chunks = &mut chunks[..rows.len().div_ceil(CHUNK)];
            in_parallel(threads, chunks, |index, chunk| {
                let rows = &rows[index * CHUNK..rows.len().min((index + 1) * CHUNK)];
                self.load(&examples.inputs, rows, &mut chunk.values[0]);
                self.forward(parameters, examples, rows, chunk);
            });
            loss += chunks.iter().map(|chunk| chunk.loss).sum::<f64>();
        }
        loss / rows.len() as f64
    }

    /// Values of all layers from the loaded features, the loss, and its derivatives with respect to
    /// the last layer's sums.
    fn forward<T: Real>(&self, parameters: &[T], examples: &Examples, rows: &[usize], chunk: &mut Chunk<T>) {
        let last = self.places.len();
        for (layer, place) in self.places.iter().enumerate() {
            let (before, after) = chunk.values.split_at_mut(layer + 1);
            let sums = &mut chunk.sums[layer + 1][..rows.len() * place.outputs];
            for row in sums.chunks_exact_mut(place.outputs) {
                row.copy_from_slice(&parameters[place.bias.clone()]);
            }
            let weights = View::new(&parameters[place.weights.clone()], place.outputs, place.inputs);
            let inputs = View::new(&before[layer], rows.len(), place.inputs);
            T::product(inputs, weights.transposed(), T::of(1.0), sums);
            if layer + 1 != last {
                for (value, sum) in after[0].iter_mut().zip(sums) {
                    (*value, *sum) = activation(self.activation, *sum);
                }
            }
        }
        chunk.loss = 0.0;
        let width = self.losses.len();
        for (index, &row) in rows.iter().enumerate() {
            let sums = &chunk.sums[last][index * width..][..width];
            let slopes = &mut chunk.slopes[last][index * width..][..width];
            chunk.loss += self.losses_of(examples.targets.row(row), sums, slopes);
        }
    }

    /// Sum of the losses of one example; their derivatives into `slopes`.
    fn losses_of<T: Real>(&self, targets: &[f32], sums: &[T], slopes: &mut [T]) -> f64 {
        let mut total = 0.0;
        for ((output, &sum), slope) in self.losses.iter().zip(sums).zip(slopes) {
            let target = f64::from(targets[output.target]);
            *slope = T::default();
            if target.is_nan() {
                continue;
            }
            let (mean, scale) = (self.output.mean[output.target], self.output.scale[output.target]);
            let scaled = (target - f64::from(mean)) / f64::from(scale);
            let (loss, derivative) = output.at(sum, T::of(scaled));
            total += loss.to_f64();
            *slope = derivative;
        }
        total
    }

    fn load<T: Real>(&self, inputs: &Matrix, rows: &[usize], into: &mut [T]) {
        let width = inputs.columns();
        let mut scaled = vec![0.0; width];
        for (&row, into) in rows.iter().zip(into.chunks_exact_mut(width)) {
            self.input.apply(inputs.row(row), &mut scaled);
            into.iter_mut().zip(&scaled).for_each(|(into, &value)| *into = T::of(f64::from(value)));
        }
    }

    /// The gradient, from the derivatives with respect to the last layer's sums.
    fn backward<T: Real>(&self, parameters: &[T], rows: usize, chunk: &mut Chunk<T>) {
        for (layer, place) in self.places.iter().enumerate().rev() {
            let (before, after) = chunk.slopes.split_at_mut(layer + 1);
            let slopes = View::new(&after[0], rows, place.outputs);
            let inputs = View::new(&chunk.values[layer], rows, place.inputs);
            let gradient = &mut chunk.gradient[place.weights.clone()];
            T::product(slopes.transposed(), inputs, T::default(), gradient);
            let bias = &mut chunk.gradient[place.bias.clone()];
            bias.fill(T::default());
            for row in after[0][..rows * place.outputs].chunks_exact(place.outputs) {
                bias.iter_mut().zip(row).for_each(|(bias, &slope)| *bias += slope);
            }
            if layer > 0 {
                let weights = View::new(&parameters[place.weights.clone()], place.outputs, place.inputs);
                T::product(slopes, weights, T::default(), &mut before[layer]);
                let derivatives = &chunk.sums[layer][..rows * place.inputs];
                for (slope, &derivative) in before[layer].iter_mut().zip(derivatives) {
                    *slope = *slope * derivative;
                }
            }
        }
    }
}

/// Value and derivative of the hidden units' function.
fn activation<T: Real>(activation: Activation, z: T) -> (T, T) {
    let one = T::of(1.0);
    match activation {
        Activation::Relu => {
            if z > T::default() {
                (z, one)
            } else {
                (T::default(), T::default())
            }
        }
        Activation::Silu => {
            let s = z.logistic();
            (z * s, s + z * s * (one - s))
        }
        Activation::Gelu => {
            let factor = T::of(f64::from(GELU_FACTOR));
            let cubic = T::of(f64::from(GELU_CUBIC));
            let s = (factor * (z + cubic * z * z * z)).logistic();
            let slope = factor * (one + T::of(3.0) * cubic * z * z);
            (z * s, s + z * s * (one - s) * slope)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Target;
    use crate::train::PointLoss;
    use apex_random::Random;

    /// Random examples for two targets, some of them unknown.
    fn examples(rows: usize, inputs: usize, random: &mut Random) -> Examples {
        let (mut features, mut targets) = (Matrix::empty(inputs), Matrix::empty(2));
        for row in 0..rows {
            let feature: Vec<f32> = (0..inputs).map(|_| random.normal() as f32).collect();
            features.push(&feature).unwrap();
            let fraction = if row % 5 == 4 { f32::NAN } else { random.uniform() as f32 };
            targets.push(&[fraction, 3.0 + 2.0 * random.normal() as f32]).unwrap();
        }
        Examples::new(features, targets).unwrap()
    }

    const DROPOUT: InputDropout = InputDropout { fraction: 0.2, seed: 7 };

    fn total_loss(plan: &Plan, parameters: &[f64], examples: &Examples, rows: &[usize]) -> f64 {
        let mut chunks = plan.chunks::<f64>(rows.len());
        plan.gradients(parameters, examples, rows, DROPOUT, &mut chunks, 1)
            .iter()
            .map(|chunk| chunk.loss)
            .sum()
    }

    /// Every derivative, for every activation and loss, against central differences in double
    /// precision.
    #[test]
    fn gradients_are_the_slopes_of_the_loss() {
        let points = [PointLoss::CrossEntropy, PointLoss::Squared, PointLoss::Huber { delta: 0.3 }];
        for activation in [Activation::Relu, Activation::Silu, Activation::Gelu] {
            for fraction in points {
                let mut random = Random::new(11);
                let targets = vec![
                    Target::fraction("f").with_quantiles(&[0.1]),
                    Target::real("r").with_quantiles(&[0.25, 0.9]),
                ];
                let mut network = Network::new(3, &[7, 5], activation, targets, 5).unwrap();
                let examples = examples(CHUNK + 9, 3, &mut random);
                network.fit_scaling(examples.inputs(), examples.targets()).unwrap();
                let losses = [
                    TargetLoss { point: fraction, weight: 0.7 },
                    TargetLoss { point: PointLoss::Huber { delta: 0.8 }, weight: 1.3 },
                ];
                let plan = Plan::new(&network, &losses);
                let rows: Vec<usize> = (0..examples.rows()).collect();
                let parameters = plan.parameters_of::<f64>(&network);
                let mut chunks = plan.chunks::<f64>(rows.len());
                let used = plan.gradients(&parameters, &examples, &rows, DROPOUT, &mut chunks, 1);
                for parameter in 0..plan.parameters() {
                    let gradient: f64 = used.iter().map(|chunk| chunk.gradient[parameter]).sum();
                    let at = |step: f64| {
                        let mut moved = parameters.clone();
                        moved[parameter] += step;
                        total_loss(&plan, &moved, &examples, &rows)
                    };
                    let step = 1e-6;
                    let slope = (at(step) - at(-step)) / (2.0 * step);
                    let bound = 1e-5 * (1.0 + slope.abs());
                    assert!(
                        (gradient - slope).abs() < bound,
                        "{activation:?} {fraction:?}: {gradient}, {slope}"
                    );
                }
            }
        }
    }
}
