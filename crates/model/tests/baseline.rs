//! The plain methods: each against what it should give on data of a known kind.

use apex_model::baseline::{Boosting, LeastSquares, Neighbours, Trees};
use apex_model::network::Range;
use apex_model::train::Examples;
use apex_model::{Error, Matrix, Regressor};
use apex_random::Random;

/// Examples of `function` at random points of the square from -1 to 1, with noise.
fn examples(rows: usize, noise: f64, seed: u64, function: impl Fn(f64, f64) -> f64) -> Examples {
    let mut random = Random::new(seed);
    let (mut inputs, mut targets) = (Matrix::empty(2), Matrix::empty(1));
    for _ in 0..rows {
        let (a, b) = (2.0 * random.uniform() - 1.0, 2.0 * random.uniform() - 1.0);
        inputs.push(&[(a * 1000.0) as f32, b as f32]).unwrap();
        targets.push(&[(function(a, b) + noise * random.normal()) as f32]).unwrap();
    }
    Examples::new(inputs, targets).unwrap()
}

fn error(regressor: &dyn Regressor, examples: &Examples) -> f64 {
    let found = regressor.predict_rows(examples.inputs()).unwrap();
    let squares = found.column(0).zip(examples.targets().column(0));
    let sum: f64 = squares.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (sum / examples.rows() as f64).sqrt()
}

#[test]
fn least_squares_finds_a_line() {
    let line = |a, b| 3.0 * a - 2.0 * b + 7.0;
    let fitted = LeastSquares::fit(&examples(500, 0.0, 1, line), &[Range::Real], 1e-9).unwrap();
    assert!(error(&fitted, &examples(100, 0.0, 2, line)) < 1e-5);
    // Weights decide between examples that contradict each other.
    let (mut inputs, mut targets) = (Matrix::empty(1), Matrix::empty(1));
    for (x, y) in [(0.0, 1.0), (1.0, 1.0), (0.0, 5.0), (1.0, 5.0)] {
        inputs.push(&[x]).unwrap();
        targets.push(&[y]).unwrap();
    }
    let weighted = Examples::new(inputs, targets).unwrap().with_weights(vec![3.0, 3.0, 1.0, 1.0]).unwrap();
    let fitted = LeastSquares::fit(&weighted, &[Range::Real], 1e-9).unwrap();
    let found = fitted.predict_rows(weighted.inputs()).unwrap();
    assert!(found.column(0).all(|value| (value - 2.0).abs() < 1e-4), "{found:?}");
}

#[test]
fn neighbours_remember_and_interpolate() {
    let wave = |a: f64, b: f64| (3.0 * a).sin() + b * b;
    let training = examples(2000, 0.0, 3, wave);
    let nearest = Neighbours::fit(&training, &[Range::Real], 1).unwrap();
    assert_eq!(error(&nearest, &training), 0.0);
    let few = Neighbours::fit(&training, &[Range::Real], 5).unwrap();
    assert!(error(&few, &examples(200, 0.0, 4, wave)) < 0.05);
}

#[test]
fn trees_find_steps_and_products() {
    let steps =
        |a: f64, b: f64| if a > 0.3 { 2.0 } else { 0.0 } + if b > -0.2 && a < 0.0 { 1.0 } else { 0.0 };
    let (training, test) = (examples(3000, 0.1, 5, steps), examples(500, 0.0, 6, steps));
    let line = LeastSquares::fit(&training, &[Range::Real], 1e-9).unwrap();
    let trees = Trees::fit(&training, &[Range::Real], &Boosting::default()).unwrap();
    assert!(error(&trees, &test) < 0.15, "{}", error(&trees, &test));
    assert!(error(&trees, &test) < error(&line, &test) / 3.0);
}

#[test]
fn one_step_of_one_tree_is_what_the_formula_says() {
    let (mut inputs, mut targets) = (Matrix::empty(1), Matrix::empty(1));
    for (x, y) in [(1.0, 0.0), (2.0, 2.0), (3.0, 10.0), (4.0, 12.0)] {
        inputs.push(&[x]).unwrap();
        targets.push(&[y]).unwrap();
    }
    let examples = Examples::new(inputs, targets).unwrap();
    let options =
        Boosting { trees: 1, leaves: 2, rate: 0.5, least: 1, share: 1.0, penalty: 1.0, seed: 1, threads: 1 };
    let trees = Trees::fit(&examples, &[Range::Real], &options).unwrap();
    // The mean is 6; the best split leaves residuals -6 -4 and 4 6; a leaf says 0.5 * 10 / (2 + 1).
    let found: Vec<f32> = trees.predict_rows(examples.inputs()).unwrap().column(0).collect();
    let (low, high) = (6.0 - 5.0 / 3.0, 6.0 + 5.0 / 3.0);
    assert_eq!(found, [low, low, high, high].map(|value: f64| value as f32));
}

#[test]
fn the_seed_decides_the_trees() {
    let training = examples(300, 0.3, 7, |a, b| a * b);
    let found = |seed| {
        let options = Boosting { trees: 20, seed, ..Boosting::default() };
        Trees::fit(&training, &[Range::Real], &options).unwrap().predict_rows(training.inputs()).unwrap()
    };
    assert_eq!(found(1), found(1));
    assert_ne!(found(1), found(2));
}

#[test]
fn fractions_stay_fractions_and_unknown_targets_are_left_out() {
    let mut training = examples(400, 0.0, 8, |a, _| if a > 0.0 { 1.0 } else { 0.0 });
    let mut targets = training.targets().clone();
    (0..400).step_by(7).for_each(|row| targets.row_mut(row)[0] = f32::NAN);
    training = Examples::new(training.inputs().clone(), targets).unwrap();
    let ranges = [Range::Fraction];
    let far = {
        let mut far = Matrix::empty(2);
        [[1e5, 3.0], [-1e5, -3.0], [0.0, 0.0]].iter().for_each(|row| far.push(row).unwrap());
        far
    };
    let all: [Box<dyn Regressor>; 3] = [
        Box::new(LeastSquares::fit(&training, &ranges, 1e-6).unwrap()),
        Box::new(Neighbours::fit(&training, &ranges, 9).unwrap()),
        Box::new(Trees::fit(&training, &ranges, &Boosting::default()).unwrap()),
    ];
    for regressor in all {
        let found = regressor.predict_rows(&far).unwrap();
        assert!(found.column(0).all(|value| (0.0..=1.0).contains(&value)), "{found:?}");
        assert!(found.row(0)[0] > 0.9 && found.row(1)[0] < 0.1, "{found:?}");
        let narrow = Matrix::zeros(1, 1);
        assert!(matches!(regressor.predict_rows(&narrow), Err(Error::Length { .. })));
        let mut unknown = Matrix::zeros(1, 2);
        unknown.row_mut(0)[1] = f32::NAN;
        assert!(matches!(regressor.predict_rows(&unknown), Err(Error::NotFinite { index: 1, .. })));
    }
    let never =
        Examples::new(Matrix::zeros(1, 2), Matrix::zeros(1, 1)).unwrap().with_weights(vec![0.0]).unwrap();
    assert!(matches!(LeastSquares::fit(&never, &ranges, 1.0), Err(Error::TooFew { .. })));
}
