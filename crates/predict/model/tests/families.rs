//! The way from examples to a model with honest intervals, on made-up families: split by whole
//! families, train, calibrate on what was held out, judge on families that neither has seen, save,
//! load, forecast.

use apex_model::evaluate::{Bootstrap, coverage, folds, pearson, quantile};
use apex_model::forecast::{Calibration, FeatureSet, Forecast, ForecastScratch, Model, Spread};
use apex_model::network::{Activation, Network, Target};
use apex_model::train::{Examples, Options, train};
use apex_model::{Matrix, Precision, Predictor, Regressor};
use apex_random::Random;
use std::ops::ControlFlow;

const FAMILIES: usize = 60;
const COVERAGE: f32 = 0.8;

/// Examples of families, each of which has its own features, its own number of cases, and its own
/// error that no feature explains.
fn families(random: &mut Random) -> (Examples, Vec<usize>) {
    let (mut inputs, mut targets, mut groups) = (Matrix::empty(3), Matrix::empty(1), Vec::new());
    for family in 0..FAMILIES {
        let own: [f64; 2] = [random.normal(), random.normal()];
        let unexplained = 0.3 * random.normal();
        for _ in 0..20 + random.index(30) {
            let size = 4.0 * random.uniform() - 2.0;
            let z = own[0] + size * own[1] - size * size + unexplained + 0.1 * random.normal();
            inputs.push(&[own[0] as f32, own[1] as f32, size as f32]).unwrap();
            targets.push(&[(1.0 / (1.0 + (-z).exp())) as f32]).unwrap();
            groups.push(family);
        }
    }
    (Examples::new(inputs, targets).unwrap(), groups)
}

fn column(matrix: &Matrix) -> Vec<f32> {
    matrix.column(0).collect()
}

fn of(groups: &[usize], rows: &[usize]) -> Vec<usize> {
    rows.iter().map(|&row| groups[row]).collect()
}

/// A model trained on some of `rows` and calibrated on the other families among them.
fn trained(examples: &Examples, groups: &[usize], rows: &[usize], seed: u64) -> Model {
    let split = &folds(&of(groups, rows), 3, seed).unwrap()[0];
    let pick = |positions: &[usize]| positions.iter().map(|&position| rows[position]).collect::<Vec<usize>>();
    let (fit, held) = (pick(&split.train), pick(&split.test));
    let (training, calibration) = (examples.select(&fit), examples.select(&held));
    let targets = vec![Target::fraction("utilisation").with_quantiles(&[0.1, 0.9])];
    let mut network = Network::new(3, &[24, 24], Activation::Silu, targets, seed).unwrap();
    network.fit_scaling(training.inputs(), training.targets()).unwrap();
    let options = Options { epochs: 40, batch: 64, learning_rate: 5e-3, ..Options::for_network(&network) };
    train(&mut network, &training, Some(&calibration), &options, |_| ControlFlow::Continue(())).unwrap();

    let found = Predictor::new(&network, Precision::F32).predict_rows(calibration.inputs()).unwrap();
    let outputs: Vec<&[f32]> = found.iter().collect();
    let (target, truths) = (&network.targets()[0], column(calibration.targets()));
    let groups = of(groups, &held);
    let calibration =
        Calibration::new(target, Spread::Between, &outputs, &truths, Some(&groups), COVERAGE).unwrap();
    let features = FeatureSet::seen("made up", 1, &["level", "slope", "size"], training.inputs()).unwrap();
    Model::new(features, network, vec![Some(calibration)], vec![]).unwrap()
}

#[test]
fn a_model_holds_on_families_that_it_has_not_seen() {
    let (examples, groups) = families(&mut Random::new(31));
    let (mut estimates, mut intervals) = (vec![0.0; examples.rows()], vec![(0.0, 0.0); examples.rows()]);
    for (number, fold) in folds(&groups, 3, 1).unwrap().iter().enumerate() {
        let model = trained(&examples, &groups, &fold.train, number as u64);
        let ready = Model::from_bytes(&model.to_bytes()).unwrap().ready(Precision::F32);
        let (mut scratch, mut forecast) = (ForecastScratch::default(), [Forecast::default()]);
        for &row in &fold.test {
            ready.forecast(examples.inputs().row(row), &mut scratch, &mut forecast).unwrap();
            estimates[row] = forecast[0].estimate;
            intervals[row] = forecast[0].interval.unwrap();
        }
    }
    let measured = column(examples.targets());
    let at = |values: &[f32], rows: &[usize]| rows.iter().map(|&row| values[row]).collect::<Vec<f32>>();
    let over = |rows: &[usize]| pearson(&at(&estimates, rows), &at(&measured, rows));
    let correlation = Bootstrap { resamples: 200, ..Bootstrap::default() }
        .run(measured.len(), Some(&groups), over)
        .unwrap();
    assert!(correlation.low > 0.9, "{correlation:?}");
    let errors: Vec<f64> = estimates
        .iter()
        .zip(&measured)
        .map(|(estimate, truth)| f64::from((estimate - truth).abs()))
        .collect();
    let median = quantile(&errors, 0.5).unwrap();
    assert!(median < 0.08, "{median}");
    // The standard error of a part of 60 families, if each were one case, is 0.05.
    let held = coverage(&intervals, &measured).unwrap();
    assert!((held - f64::from(COVERAGE)).abs() < 0.1, "{held}");
}
