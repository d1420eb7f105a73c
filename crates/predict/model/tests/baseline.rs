//! Boosted trees against what they should give on data of a known kind.

use apex_model::baseline::{Boosting, Trees};
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

fn error(regressor: &Trees, examples: &Examples) -> f64 {
    let found = regressor.predict_rows(examples.inputs()).unwrap();
    let squares = found.column(0).zip(examples.targets().column(0));
    let sum: f64 = squares.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (sum / examples.rows() as f64).sqrt()
}

#[test]
fn trees_find_steps_and_products() {
    let steps =
        |a: f64, b: f64| if a > 0.3 { 2.0 } else { 0.0 } + if b > -0.2 && a < 0.0 { 1.0 } else { 0.0 };
    let (training, test) = (examples(3000, 0.1, 5, steps), examples(500, 0.0, 6, steps));
    let trees = Trees::fit(&training, &[Range::Real], &Boosting::default()).unwrap();
    assert!(error(&trees, &test) < 0.15, "{}", error(&trees, &test));
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
    let trees = Trees::fit(&training, &ranges, &Boosting::default()).unwrap();
    let found = trees.predict_rows(&far).unwrap();
    assert!(found.column(0).all(|value| (0.0..=1.0).contains(&value)), "{found:?}");
    assert!(found.row(0)[0] > 0.9 && found.row(1)[0] < 0.1, "{found:?}");
    let narrow = Matrix::zeros(1, 1);
    assert!(matches!(trees.predict_rows(&narrow), Err(Error::Length { .. })));
    let mut unknown = Matrix::zeros(1, 2);
    unknown.row_mut(0)[1] = f32::NAN;
    assert!(matches!(trees.predict_rows(&unknown), Err(Error::NotFinite { index: 1, .. })));
    let mut targets = Matrix::empty(1);
    targets.push(&[f32::NAN]).unwrap();
    let never = Examples::new(Matrix::zeros(1, 2), targets).unwrap();
    assert!(matches!(Trees::fit(&never, &ranges, &Boosting::default()), Err(Error::TooFew { .. })));
}
