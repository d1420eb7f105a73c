//! A multilayer perceptron as data: inputs, layers, outputs.
//!
//! With `x` the features of one case, `m` and `s` of [`Scaling`]:
//!
//! ```text
//! a0 = (x - m) / s                    each feature standardised
//! ak = activation(Wk a(k-1) + bk)     hidden layers
//! z  = W a + b                        last layer, one unit for each output
//! y  = logistic(z)                    where the target is a fraction
//! y  = m + s z                        where it is any number
//! ```
//!
//! A [`Target`] has one output for its point estimate and one for each of its quantiles; outputs
//! are in the order of the targets. Scaling is part of the network: who predicts hands in raw
//! features and gets raw values.

use crate::{Error, Matrix};
use apex_random::Random;

/// The widest layer. Sums of that many products of 8-bit numbers fit 32 bits:
/// `2^16 * 255 * 127 < 2^31`.
pub const MAX_WIDTH: usize = 1 << 16;

/// The function of hidden units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(z, 0)`.
    Relu,
    /// `z / (1 + e^-z)` (Elfwing, Uchibe, Doya, 2017).
    Silu,
    /// `z / (1 + e^-u)`, `u = sqrt(8 / pi) (z + 0.044715 z^3)`: the hyperbolic-tangent form of
    /// Hendrycks and Gimpel (2016), since `(1 + tanh v) / 2` is the logistic function of `2 v`.
    Gelu,
}

/// The values that a target may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// From 0 to 1: occupancy, utilisation, efficiency.
    Fraction,
    /// Any number: the logarithm of a time.
    Real,
}

/// One quantity that is predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// The values that it may have.
    pub range: Range,
    /// Levels of the quantiles that are predicted beside the point estimate, each between 0 and 1,
    /// rising.
    pub quantiles: Vec<f32>,
}

impl Target {
    /// A fraction without quantiles.
    pub fn fraction(name: &str) -> Target {
        Target { name: name.to_owned(), range: Range::Fraction, quantiles: Vec::new() }
    }

    /// Any number, without quantiles.
    pub fn real(name: &str) -> Target {
        Target { name: name.to_owned(), range: Range::Real, quantiles: Vec::new() }
    }

    /// The same with quantiles of these levels.
    #[must_use]
    pub fn with_quantiles(mut self, levels: &[f32]) -> Target {
        self.quantiles = levels.to_vec();
        self
    }

    /// Returns the number of its outputs: one, and one for each quantile.
    pub fn outputs(&self) -> usize {
        1 + self.quantiles.len()
    }
}

/// Centre and spread of each of several numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// The numbers that are subtracted.
    pub mean: Vec<f32>,
    /// The numbers that are divided by; never 0.
    pub scale: Vec<f32>,
}

impl Scaling {
    /// Leaves `count` numbers as they are.
    pub fn identity(count: usize) -> Scaling {
        Scaling { mean: vec![0.0; count], scale: vec![1.0; count] }
    }

    /// Mean and standard deviation of each column, over its finite values. A column that does not
    /// vary keeps the scale 1, so that it becomes 0.
    pub fn of(matrix: &Matrix) -> Scaling {
        let mut scaling = Scaling::identity(matrix.columns());
        for column in 0..matrix.columns() {
            let finite = || matrix.column(column).filter(|value| value.is_finite()).map(f64::from);
            let count = finite().count().max(1) as f64;
            let mean = finite().sum::<f64>() / count;
            let deviation = (finite().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
            scaling.mean[column] = mean as f32;
            // Below this the column holds one value, give or take its rounding.
            if deviation > mean.abs().max(1e-30) * f64::from(f32::EPSILON) {
                scaling.scale[column] = deviation as f32;
            }
        }
        scaling
    }

    /// Scales one row: `(x - mean) / scale`, computed as a product with the reciprocal.
    pub(crate) fn apply(&self, row: &[f32], scaled: &mut [f32]) {
        for (column, scaled) in scaled.iter_mut().enumerate() {
            *scaled = (row[column] - self.mean[column]) * (1.0 / self.scale[column]);
        }
    }

    fn check(&self, what: &'static str, count: usize) -> Result<(), Error> {
        Error::check_length(what, count, self.mean.len())?;
        Error::check_length(what, count, self.scale.len())?;
        Error::check_finite(what, &self.mean)?;
        for &scale in &self.scale {
            let usable = scale.is_normal() && scale > 0.0 && (1.0 / scale).is_normal();
            Error::check_range(usable, what, f64::from(scale), "a positive scale with a finite reciprocal")?;
        }
        Ok(())
    }
}

/// One layer: `weights x + bias`.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The number of inputs.
    pub inputs: usize,
    /// The number of outputs.
    pub outputs: usize,
    /// `outputs` rows of `inputs` weights.
    pub weights: Vec<f32>,
    /// One for each output.
    pub bias: Vec<f32>,
}

impl Layer {
    /// Normal weights of variance `gain / inputs`, zero bias (He, Zhang, Ren, Sun, 2015).
    fn random(inputs: usize, outputs: usize, gain: f64, random: &mut Random) -> Layer {
        let deviation = (gain / inputs as f64).sqrt();
        let weights = (0..inputs * outputs).map(|_| (random.normal() * deviation) as f32).collect();
        Layer { inputs, outputs, weights, bias: vec![0.0; outputs] }
    }

    fn check(&self, inputs: usize) -> Result<(), Error> {
        Error::check_length("the input of a layer", inputs, self.inputs)?;
        check_width("the width of a layer", self.outputs)?;
        Error::check_length("the weights of a layer", self.inputs * self.outputs, self.weights.len())?;
        Error::check_length("the bias of a layer", self.outputs, self.bias.len())?;
        Error::check_finite("the weights of a layer", &self.weights)?;
        Error::check_finite("the bias of a layer", &self.bias)
    }
}

/// A multilayer perceptron: see the module's documentation for what it computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    activation: Activation,
    input: Scaling,
    layers: Vec<Layer>,
    targets: Vec<Target>,
    output: Scaling,
}

impl Network {
    /// A network with random weights, which the seed and the shape determine.
    ///
    /// `inputs` features, hidden layers of the widths `hidden`, the outputs of `targets`. It does
    /// not scale yet: [`Network::fit_scaling`].
    ///
    /// # Errors
    /// [`Error`] when a width is 0 or above [`MAX_WIDTH`], there is no target, or a quantile's
    /// level is not between 0 and 1 or not above the one before.
    pub fn new(
        inputs: usize,
        hidden: &[usize],
        activation: Activation,
        targets: Vec<Target>,
        seed: u64,
    ) -> Result<Network, Error> {
        let outputs: usize = targets.iter().map(Target::outputs).sum();
        let widths: Vec<usize> = [inputs].iter().chain(hidden).chain(&[outputs]).copied().collect();
        widths.iter().try_for_each(|&width| check_width("the width of a layer", width))?;
        let mut random = Random::for_purpose(seed, 0);
        let last = hidden.len();
        let layer = |(index, pair): (usize, &[usize])| {
            let gain = if index == last { 1.0 } else { 2.0 };
            Layer::random(pair[0], pair[1], gain, &mut random)
        };
        let layers = widths.windows(2).enumerate().map(layer).collect();
        let output = Scaling::identity(targets.len());
        Network::from_parts(activation, Scaling::identity(inputs), layers, targets, output)
    }

    /// A network of these parts: scaling of the features, layers, targets, scaling of the targets
    /// (1 for fractions).
    ///
    /// # Errors
    /// [`Error`] when the parts do not fit each other, or hold numbers that cannot be computed
    /// with.
    pub fn from_parts(
        activation: Activation,
        input: Scaling,
        layers: Vec<Layer>,
        targets: Vec<Target>,
        output: Scaling,
    ) -> Result<Network, Error> {
        let Some(first) = layers.first() else {
            return Err(Error::TooFew { what: "layers", needed: 1, found: 0 });
        };
        check_width("the number of features", first.inputs)?;
        input.check("the scaling of the features", first.inputs)?;
        output.check("the scaling of the targets", targets.len())?;
        let mut width = first.inputs;
        for layer in &layers {
            layer.check(width)?;
            width = layer.outputs;
        }
        let outputs: usize = targets.iter().map(Target::outputs).sum();
        Error::check_length("the last layer", outputs, width)?;
        for target in &targets {
            check_levels(&target.quantiles)?;
        }
        Ok(Network { activation, input, layers, targets, output })
    }

    /// Takes over mean and spread of examples: of their features, `inputs`, and of those `targets`
    /// that are any number.
    ///
    /// # Errors
    /// [`Error`] when the examples are not for this network, or so spread that a reciprocal
    /// overflows.
    pub fn fit_scaling(&mut self, inputs: &Matrix, targets: &Matrix) -> Result<(), Error> {
        Error::check_length("a row of features", self.inputs(), inputs.columns())?;
        Error::check_length("a row of targets", self.targets.len(), targets.columns())?;
        let (input, mut output) = (Scaling::of(inputs), Scaling::of(targets));
        for (index, target) in self.targets.iter().enumerate() {
            if target.range == Range::Fraction {
                (output.mean[index], output.scale[index]) = (0.0, 1.0);
            }
        }
        input.check("the scaling of the features", self.inputs())?;
        output.check("the scaling of the targets", self.targets.len())?;
        (self.input, self.output) = (input, output);
        Ok(())
    }

    /// Returns the number of features.
    pub fn inputs(&self) -> usize {
        self.layers[0].inputs
    }

    /// Returns the number of outputs: [`Target::outputs`] of each target.
    pub fn outputs(&self) -> usize {
        self.layers[self.layers.len() - 1].outputs
    }

    /// Returns the number of weights and biases.
    pub fn parameters(&self) -> usize {
        self.layers.iter().map(|layer| layer.weights.len() + layer.bias.len()).sum()
    }

    /// Returns the function of hidden units.
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// The layers, first to last.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    pub(crate) fn layers_mut(&mut self) -> &mut [Layer] {
        &mut self.layers
    }

    /// Returns the targets.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Scaling of the features.
    pub fn input_scaling(&self) -> &Scaling {
        &self.input
    }

    /// Scaling of the targets: mean 0 and scale 1 for fractions.
    pub fn output_scaling(&self) -> &Scaling {
        &self.output
    }

    /// For each output: its target's position, and the level if it is a quantile.
    pub fn output_roles(&self) -> impl Iterator<Item = (usize, Option<f32>)> {
        self.targets.iter().enumerate().flat_map(|(index, target)| {
            let levels = target.quantiles.iter().copied().map(Some);
            std::iter::once(None).chain(levels).map(move |level| (index, level))
        })
    }
}

fn check_width(what: &'static str, width: usize) -> Result<(), Error> {
    Error::check_range((1..=MAX_WIDTH).contains(&width), what, width as f64, "from 1 to 65536")
}

/// Levels of quantiles lie between 0 and 1 and rise.
fn check_levels(levels: &[f32]) -> Result<(), Error> {
    let mut before = 0.0;
    for &level in levels {
        let usable = level > before && level < 1.0;
        Error::check_range(
            usable,
            "the level of a quantile",
            f64::from(level),
            "between the one before and 1",
        )?;
        before = level;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_determines_the_weights() {
        let make = |seed| Network::new(3, &[8, 8], Activation::Silu, vec![Target::real("t")], seed).unwrap();
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        assert_eq!(make(1).parameters(), 3 * 8 + 8 + 8 * 8 + 8 + 8 + 1);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let make =
            |inputs, hidden: &[usize], targets| Network::new(inputs, hidden, Activation::Relu, targets, 1);
        let real = || vec![Target::real("t")];
        assert!(matches!(make(0, &[8], real()), Err(Error::Range { .. })));
        assert!(matches!(make(3, &[0], real()), Err(Error::Range { .. })));
        assert!(matches!(make(3, &[MAX_WIDTH + 1], real()), Err(Error::Range { .. })));
        assert!(matches!(make(3, &[8], vec![]), Err(Error::Range { .. })));
        let quantiles = |levels: &[f32]| vec![Target::real("t").with_quantiles(levels)];
        assert!(matches!(make(3, &[8], quantiles(&[0.9, 0.1])), Err(Error::Range { .. })));
        assert!(matches!(make(3, &[8], quantiles(&[f32::NAN])), Err(Error::Range { .. })));
        assert_eq!(make(3, &[8], quantiles(&[0.1, 0.9])).unwrap().outputs(), 3);
    }

    #[test]
    fn scaling_ignores_what_is_missing_and_what_does_not_vary() {
        let mut matrix = Matrix::empty(2);
        for row in [[1.0, 5.0], [3.0, 5.0], [f32::NAN, 5.0]] {
            matrix.push(&row).unwrap();
        }
        let scaling = Scaling::of(&matrix);
        assert_eq!(scaling.mean, [2.0, 5.0]);
        assert_eq!(scaling.scale, [1.0, 1.0]);
    }
}
