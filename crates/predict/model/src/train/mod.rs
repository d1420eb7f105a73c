//! Training: AdamW over minibatches, the same weights for the same seed.
//!
//! A minibatch is cut into chunks of [`CHUNK`] examples. A chunk's gradient is computed by one
//! thread with one order of additions, chunks are added in their order, and each weight is stepped
//! by itself: so the number of threads changes how long training takes and nothing else. Matrix
//! products come from a library that picks its kernels by processor: weights are the same bit by
//! bit on one kind of processor, and close on others.
//!
//! Nothing is printed: a callback gets each epoch and may end the training.

mod adam;
mod gradient;
mod input_dropout;
mod loss;
mod real;

use crate::network::Network;
use crate::{Error, Matrix};
use adam::Adam;
use apex_random::Random;
use gradient::{Chunk, Plan};
use input_dropout::InputDropout;
use std::ops::ControlFlow;

pub use loss::{PointLoss, TargetLoss};

/// Examples in a chunk: see the module's documentation.
pub const CHUNK: usize = 64;

/// Parameters times examples of a minibatch for which a thread more takes longer to start than it
/// saves.
const WORK: usize = 1 << 21;

/// Cases with known outcome.
#[derive(Clone, Debug)]
pub struct Examples {
    inputs: Matrix,
    targets: Matrix,
}

impl Examples {
    /// Features and targets, row by row. A target that is not a number is unknown and teaches
    /// nothing.
    ///
    /// # Errors
    /// [`Error`] when the numbers of rows differ, a feature is not finite or a target is infinite.
    pub fn new(inputs: Matrix, targets: Matrix) -> Result<Examples, Error> {
        Error::check_length("the column of targets", inputs.rows(), targets.rows())?;
        inputs.iter().try_for_each(|row| Error::check_finite("a row of features", row))?;
        for row in targets.iter() {
            if let Some(index) = row.iter().position(|value| value.is_infinite()) {
                return Err(Error::NotFinite { what: "a row of targets", index, value: row[index] });
            }
        }
        Ok(Examples { inputs, targets })
    }

    /// Returns the number of examples.
    pub fn rows(&self) -> usize {
        self.inputs.rows()
    }

    /// Features, row by row.
    pub fn inputs(&self) -> &Matrix {
        &self.inputs
    }

    /// Targets, row by row; not a number where unknown.
    pub fn targets(&self) -> &Matrix {
        &self.targets
    }

    /// The rows with these numbers, in this order.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn select(&self, rows: &[usize]) -> Examples {
        Examples { inputs: self.inputs.select(rows), targets: self.targets.select(rows) }
    }
}

/// Options of training.
#[derive(Clone, Debug)]
pub struct Options {
    /// Determines the order of the examples.
    pub seed: u64,
    /// Most passes over the examples.
    pub epochs: usize,
    /// Examples in a minibatch. Memory for one gradient is taken for each [`CHUNK`] of them.
    pub batch: usize,
    /// Step size at its highest, reached after [`Options::warmup`] epochs; then it falls along a
    /// half cosine (Loshchilov and Hutter, 2016) to a hundredth.
    pub learning_rate: f64,
    /// Epochs over which the step size rises from 0.
    pub warmup: f64,
    /// Decay of weights, not of biases, for each step and unit of step size (Loshchilov and Hutter,
    /// 2017).
    pub weight_decay: f64,
    /// Fraction of the features that is left out of each example, drawn anew each time, 0 for none;
    /// see Srivastava et al. (2014).
    pub input_dropout: f64,
    /// Epochs without a lower validation loss after which training ends. Without validation
    /// examples it never does.
    pub patience: usize,
    /// The loss of each target, in their order.
    pub losses: Vec<TargetLoss>,
    /// Most threads that work on a minibatch; small networks take fewer. Results do not depend on
    /// it.
    pub threads: usize,
}

impl Options {
    /// Sensible values for `network`: cross entropy for fractions, Huber's loss for the rest.
    pub fn for_network(network: &Network) -> Options {
        Options {
            seed: 1,
            epochs: 100,
            batch: 256,
            learning_rate: 2e-3,
            warmup: 1.0,
            weight_decay: 1e-3,
            input_dropout: 0.0,
            patience: 20,
            losses: network.targets().iter().map(|target| TargetLoss::usual(target.range)).collect(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Step size at a point of the training, in epochs from its beginning.
    fn rate(&self, epoch: f64) -> f64 {
        const LAST: f64 = 0.01;
        if epoch < self.warmup {
            return self.learning_rate * epoch / self.warmup;
        }
        let done = (epoch - self.warmup) / (self.epochs as f64 - self.warmup).max(1.0);
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos());
        self.learning_rate * (LAST + (1.0 - LAST) * cosine)
    }

    fn check(&self, network: &Network) -> Result<(), Error> {
        Error::check_length("the losses", network.targets().len(), self.losses.len())?;
        Error::check_range(self.batch > 0, "the size of a minibatch", self.batch as f64, "at least 1")?;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        Error::check_range(
            positive(self.learning_rate),
            "the learning rate",
            self.learning_rate,
            "positive",
        )?;
        for (what, value) in [("the warm-up", self.warmup), ("the weight decay", self.weight_decay)] {
            Error::check_range(value.is_finite() && value >= 0.0, what, value, "finite and not negative")?;
        }
        Error::check_range(
            (0.0..1.0).contains(&self.input_dropout),
            "the part of the features that is left out",
            self.input_dropout,
            "from 0 to below 1",
        )?;
        self.losses.iter().zip(network.targets()).try_for_each(|(loss, target)| loss.check(target.range))
    }
}

/// The state after an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Its number, from 1.
    pub number: usize,
    /// Mean loss over the training examples, taken while the weights changed.
    pub training_loss: f64,
    /// Mean loss over the validation examples, if there are any.
    pub validation_loss: Option<f64>,
    /// Step size at its end.
    pub learning_rate: f64,
}

/// The result of training.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// All epochs.
    pub epochs: Vec<Epoch>,
    /// The number of the epoch whose weights were kept: the one with the lowest validation loss, or
    /// the last.
    pub kept: usize,
}

/// Trains `network` on `training` and leaves in it the weights of the epoch with the lowest loss on
/// `validation`, or the last ones if there is no `validation`. Features and targets should have
/// been scaled first: [`Network::fit_scaling`]. After each epoch `progress` is called;
/// [`ControlFlow::Break`] ends the training there.
///
/// # Errors
/// [`Error`] when examples or options do not fit the network, there is no example, a fraction to be
/// learned lies outside 0 to 1, or the loss ceases to be finite; the network then stays as it was.
pub fn train(
    network: &mut Network,
    training: &Examples,
    validation: Option<&Examples>,
    options: &Options,
    mut progress: impl FnMut(&Epoch) -> ControlFlow<()>,
) -> Result<Outcome, Error> {
    options.check(network)?;
    let plan = Plan::new(network, &options.losses);
    plan.check(training)?;
    validation.map_or(Ok(()), |examples| plan.check(examples))?;
    let mut order: Vec<usize> = (0..training.rows()).collect();
    let mut random = Random::for_purpose(options.seed, 1);
    let mut trainer = Trainer::new(&plan, network, options, training.rows());
    let mut best = (f64::INFINITY, trainer.parameters.clone());
    let mut outcome = Outcome { epochs: Vec::new(), kept: 0 };
    for number in 1..=options.epochs {
        random.shuffle(&mut order);
        let (training_loss, learning_rate) = trainer.pass(training, &order, number)?;
        let validation_loss = validation.map(|examples| trainer.mean_loss(examples));
        let epoch = Epoch { number, training_loss, validation_loss, learning_rate };
        outcome.epochs.push(epoch);
        if validation_loss.is_none_or(|loss| loss < best.0) {
            best.0 = validation_loss.unwrap_or(best.0);
            best.1.clone_from(&trainer.parameters);
            outcome.kept = number;
        }
        if progress(&epoch).is_break() || number - outcome.kept >= options.patience.max(1) {
            break;
        }
    }
    plan.parameters_into(&best.1, network);
    Ok(outcome)
}

/// The state of a network's training.
struct Trainer<'a> {
    plan: &'a Plan,
    options: &'a Options,
    parameters: Vec<f32>,
    adam: Adam,
    chunks: Vec<Chunk<f32>>,
    threads: usize,
}

impl<'a> Trainer<'a> {
    fn new(plan: &'a Plan, network: &Network, options: &'a Options, rows: usize) -> Trainer<'a> {
        let batch = options.batch.min(rows);
        Trainer {
            plan,
            options,
            parameters: plan.parameters_of(network),
            adam: Adam::new(plan, options),
            chunks: plan.chunks(batch),
            threads: options.threads.min(plan.parameters() * batch / WORK + 1),
        }
    }

    /// One pass over all examples: their mean loss, and the step size at the end.
    fn pass(&mut self, examples: &Examples, order: &[usize], number: usize) -> Result<(f64, f64), Error> {
        let batches = order.chunks(self.options.batch);
        let steps = batches.len() as f64;
        let (mut loss, mut rate) = (0.0, 0.0);
        for (step, batch) in batches.enumerate() {
            let turn = (number * steps as usize + step) as u64;
            let seed = self.options.seed.wrapping_add(turn << 32);
            let input_dropout = InputDropout { fraction: self.options.input_dropout, seed };
            let Trainer { plan, parameters, chunks, .. } = self;
            let used = plan.gradients(parameters, examples, batch, input_dropout, chunks, self.threads);
            loss += used.iter().map(|chunk| chunk.loss).sum::<f64>();
            rate = self.options.rate((number - 1) as f64 + (step + 1) as f64 / steps);
            self.adam.step(&mut self.parameters, used, batch.len(), rate, self.threads);
        }
        let loss = loss / order.len() as f64;
        // The last step comes after the last loss.
        if !loss.is_finite() || self.parameters.iter().any(|parameter| !parameter.is_finite()) {
            return Err(Error::Diverged { epoch: number });
        }
        Ok((loss, rate))
    }

    fn mean_loss(&mut self, examples: &Examples) -> f64 {
        self.plan.mean_loss(&self.parameters, examples, &mut self.chunks, self.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Activation, Layer, Scaling, Target};

    #[test]
    fn the_step_size_rises_and_falls() {
        let network = Network::new(1, &[], Activation::Relu, vec![Target::real("y")], 1).unwrap();
        let options =
            Options { epochs: 12, warmup: 2.0, learning_rate: 1.0, ..Options::for_network(&network) };
        let close = |epoch: f64, expected: f64| {
            assert!((options.rate(epoch) - expected).abs() < 1e-12, "{epoch}: {}", options.rate(epoch));
        };
        close(0.5, 0.25);
        close(2.0, 1.0);
        close(7.0, 0.5 * (1.0 + 0.01));
        close(12.0, 0.01);
    }

    /// `y = w x + b` with `w = 2`, `b = 1` and one example. Adam's first two steps by hand: each is
    /// the rate times the mean of the gradients over the root of the mean of their squares, both
    /// without bias.
    #[test]
    fn the_first_steps_are_those_of_the_formula() {
        let layer = Layer { inputs: 1, outputs: 1, weights: vec![2.0], bias: vec![1.0] };
        let identity = Scaling::identity(1);
        let targets = vec![Target::real("y")];
        let mut network =
            Network::from_parts(Activation::Relu, identity.clone(), vec![layer], targets, identity).unwrap();
        let (mut inputs, mut targets) = (Matrix::empty(1), Matrix::empty(1));
        inputs.push(&[3.0]).unwrap();
        targets.push(&[5.0]).unwrap();
        let examples = Examples::new(inputs, targets).unwrap();
        let (rate, decay) = (0.1, 0.5);
        let options = Options {
            epochs: 2,
            // Both steps are in the warm-up: half the rate, then all of it.
            warmup: 2.0,
            learning_rate: rate,
            weight_decay: decay,
            losses: vec![TargetLoss { point: PointLoss::Squared, weight: 1.0 }],
            ..Options::for_network(&network)
        };
        train(&mut network, &examples, None, &options, |_| ControlFlow::Continue(())).unwrap();

        let (mut w, mut b) = (2.0f64, 1.0f64);
        let (mut means, mut squares) = ([0.0; 2], [0.0; 2]);
        for step in 1..=2 {
            let error = w * 3.0 + b - 5.0;
            let at = rate * f64::from(step) / 2.0;
            let mut moves = [0.0; 2];
            for (index, gradient) in [error * 3.0, error].into_iter().enumerate() {
                means[index] = 0.9 * means[index] + 0.1 * gradient;
                squares[index] = 0.999 * squares[index] + 0.001 * gradient * gradient;
                let mean = means[index] / (1.0 - 0.9f64.powi(step));
                let square: f64 = squares[index] / (1.0 - 0.999f64.powi(step));
                moves[index] = at * mean / square.sqrt();
            }
            w = w * (1.0 - at * decay) - moves[0];
            b -= moves[1];
        }
        let layer = &network.layers()[0];
        assert!((f64::from(layer.weights[0]) - w).abs() < 1e-5, "{} {w}", layer.weights[0]);
        assert!((f64::from(layer.bias[0]) - b).abs() < 1e-5, "{} {b}", layer.bias[0]);
    }
}
