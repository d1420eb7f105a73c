//! Training: what it learns, and that the seed alone decides.

mod common;

use apex_model::network::{Activation, Network, Target};
use apex_model::train::{Epoch, Examples, Options, Outcome, PointLoss, TargetLoss, train};
use apex_model::{Error, Matrix, Precision, Predictor, Regressor};
use apex_random::Random;
use common::normals;
use std::ops::ControlFlow;

/// A curved function of four features, as a fraction and as any number, with a little noise.
fn examples(rows: usize, random: &mut Random) -> Examples {
    let (mut inputs, mut targets) = (Matrix::empty(4), Matrix::empty(2));
    for _ in 0..rows {
        let x: Vec<f32> = (0..4).map(|_| (4.0 * random.uniform() - 2.0) as f32).collect();
        let curve = (1.5 * x[0]).sin() * x[1] + x[2].abs() - 0.5 * x[3] * x[3];
        let fraction = 1.0 / (1.0 + (-2.0 * curve).exp());
        let noise = 0.02 * random.normal() as f32;
        inputs.push(&[x[0] * 10.0 + 100.0, x[1], x[2] * 1e-3, x[3] * 1e4]).unwrap();
        targets.push(&[fraction, 50.0 + 20.0 * (curve + noise)]).unwrap();
    }
    Examples::new(inputs, targets).unwrap()
}

fn network(hidden: &[usize], seed: u64, examples: &Examples) -> Network {
    let targets = vec![Target::fraction("fraction"), Target::real("number").with_quantiles(&[0.1, 0.9])];
    let mut network = Network::new(4, hidden, Activation::Silu, targets, seed).unwrap();
    network.fit_scaling(examples.inputs(), examples.targets()).unwrap();
    network
}

fn silent(_: &Epoch) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Root of the mean squared error of one column of predictions.
fn error(found: &Matrix, column: usize, examples: &Examples, target: usize) -> f64 {
    let squares = found.column(column).zip(examples.targets().column(target));
    let sum: f64 = squares.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (sum / examples.rows() as f64).sqrt()
}

#[test]
fn a_curved_function_is_learned() {
    let mut random = Random::new(21);
    let (training, validation, test) =
        (examples(3000, &mut random), examples(500, &mut random), examples(1000, &mut random));
    let mut network = network(&[32, 32], 3, &training);
    let options = Options { epochs: 60, batch: 64, learning_rate: 5e-3, ..Options::for_network(&network) };
    let outcome = train(&mut network, &training, Some(&validation), &options, silent).unwrap();
    assert!(outcome.epochs[outcome.kept - 1].validation_loss < outcome.epochs[0].validation_loss);

    let found = Predictor::new(&network, Precision::F32).predict_rows(test.inputs()).unwrap();
    // Spread of the targets: 0.35 and 24; of the noise: 0 and 0.4.
    let (fraction, number) = (error(&found, 0, &test, 0), error(&found, 1, &test, 1));
    assert!(fraction < 0.05, "{fraction}");
    assert!(number < 2.0, "{number}");
}

#[test]
fn quantiles_hold_what_their_levels_say() {
    let mut random = Random::new(22);
    // One feature that sets the spread of the noise.
    let mut noisy = |rows: usize| {
        let (mut inputs, mut targets) = (Matrix::empty(1), Matrix::empty(1));
        for _ in 0..rows {
            let x = random.uniform();
            inputs.push(&[x as f32]).unwrap();
            targets.push(&[(3.0 * x + (0.2 + x) * random.normal()) as f32]).unwrap();
        }
        Examples::new(inputs, targets).unwrap()
    };
    let (training, test) = (noisy(6000), noisy(3000));
    let targets = vec![Target::real("y").with_quantiles(&[0.1, 0.9])];
    let mut network = Network::new(1, &[16], Activation::Silu, targets, 1).unwrap();
    network.fit_scaling(training.inputs(), training.targets()).unwrap();
    let options = Options { epochs: 40, learning_rate: 1e-2, ..Options::for_network(&network) };
    train(&mut network, &training, None, &options, silent).unwrap();
    let found = Predictor::new(&network, Precision::F32).predict_rows(test.inputs()).unwrap();
    // For small and for large spread alike.
    for half in [false, true] {
        let rows: Vec<usize> =
            (0..test.rows()).filter(|&row| (test.inputs().row(row)[0] > 0.5) == half).collect();
        for (column, level) in [(1, 0.1), (2, 0.9)] {
            let below =
                rows.iter().filter(|&&row| test.targets().row(row)[0] < found.row(row)[column]).count();
            let part = below as f64 / rows.len() as f64;
            assert!((part - level).abs() < 0.035, "{part} lie below the quantile {level}");
        }
    }
}

fn trained(threads: usize, seed: u64) -> (Network, Outcome) {
    let mut random = Random::new(23);
    let (training, validation) = (examples(700, &mut random), examples(130, &mut random));
    // Large enough that every thread that is asked for gets work.
    let mut network = network(&[120, 131], 3, &training);
    let options = Options { epochs: 3, batch: 500, threads, seed, ..Options::for_network(&network) };
    let outcome = train(&mut network, &training, Some(&validation), &options, silent).unwrap();
    (network, outcome)
}

#[test]
fn the_seed_decides_and_the_number_of_threads_does_not() {
    let one = trained(1, 5);
    for threads in [1, 2, 3, 4] {
        assert_eq!(trained(threads, 5), one, "{threads} threads");
    }
    assert_ne!(trained(1, 6).0, one.0);
}

#[test]
fn unknown_targets_teach_nothing() {
    let mut random = Random::new(24);
    let clean = examples(200, &mut random);
    let network = network(&[8], 1, &clean);
    let mut unknown = Matrix::empty(2);
    (0..clean.rows()).for_each(|_| unknown.push(&[f32::NAN, f32::NAN]).unwrap());
    let nothing = Examples::new(clean.inputs().clone(), unknown).unwrap();
    let options = Options { epochs: 3, weight_decay: 0.0, ..Options::for_network(&network) };
    let mut untouched = network.clone();
    train(&mut untouched, &nothing, None, &options, silent).unwrap();
    assert_eq!(untouched, network);
}

#[test]
fn training_ends_early() {
    let mut random = Random::new(25);
    let training = examples(100, &mut random);
    // Validation that has nothing to do with the examples: the loss on it soon rises.
    let mut targets = Matrix::empty(2);
    (0..100).for_each(|_| {
        targets.push(&[random.uniform() as f32, 50.0 + 20.0 * normals(1, 1.0, &mut random)[0]]).unwrap()
    });
    let validation = Examples::new(training.inputs().clone(), targets).unwrap();
    let base = network(&[32], 1, &training);
    let options =
        Options { epochs: 500, batch: 32, patience: 5, learning_rate: 1e-2, ..Options::for_network(&base) };
    let mut kept = base.clone();
    let outcome = train(&mut kept, &training, Some(&validation), &options, silent).unwrap();
    assert!(outcome.epochs.len() < 500);
    assert_eq!(outcome.epochs.len(), outcome.kept + 5);
    let best =
        outcome.epochs.iter().map(|epoch| epoch.validation_loss.unwrap()).fold(f64::INFINITY, f64::min);
    assert_eq!(outcome.epochs[outcome.kept - 1].validation_loss, Some(best));

    // A callback that ends it.
    let stop =
        |epoch: &Epoch| if epoch.number == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let outcome = train(&mut base.clone(), &training, None, &options, stop).unwrap();
    assert_eq!((outcome.epochs.len(), outcome.kept), (3, 3));
}

#[test]
fn what_cannot_be_trained_is_refused_and_changes_nothing() {
    let mut random = Random::new(26);
    let good = examples(50, &mut random);
    let network = network(&[8], 1, &good);
    let options = Options::for_network(&network);
    let refused = |examples: &Examples, options: &Options| {
        let mut trained = network.clone();
        let error = train(&mut trained, examples, None, options, silent).unwrap_err();
        assert_eq!(trained, network);
        error
    };
    let mut beyond = good.targets().clone();
    beyond.row_mut(7)[0] = 1.5;
    let beyond = Examples::new(good.inputs().clone(), beyond).unwrap();
    let error = refused(&beyond, &options);
    assert_eq!(error.to_string(), "a fraction to be learned is 1.5, but must be from 0 to 1");
    assert!(matches!(refused(&good.select(&[]), &options), Error::TooFew { .. }));
    let wild = Options { learning_rate: 1e30, warmup: 0.0, ..options.clone() };
    assert!(matches!(refused(&good, &wild), Error::Diverged { .. }));
    let crossed = TargetLoss { point: PointLoss::CrossEntropy, weight: 1.0 };
    let wrong = Options { losses: vec![crossed, crossed], ..options };
    assert!(matches!(refused(&good, &wrong), Error::Range { .. }));
    let mut hole = good.inputs().clone();
    hole.row_mut(3)[1] = f32::NAN;
    assert!(matches!(Examples::new(hole, good.targets().clone()), Err(Error::NotFinite { index: 1, .. })));
}
