//! Every instruction set that this processor has, against each other and against double precision.

mod common;

use apex_model::network::{Activation, Network};
use apex_model::{Error, InstructionSet, Precision, Predictor, Scratch};
use apex_random::Random;
use common::{distance, features, network, reference};

const ACTIVATIONS: [Activation; 3] = [Activation::Relu, Activation::Silu, Activation::Gelu];

/// Shapes that leave vectors, groups of vectors and fours of inputs partly filled, and those of
/// real use.
fn networks() -> Vec<Network> {
    let shapes: [(usize, &[usize], usize); 9] = [
        (8, &[16, 8], 4),
        (1, &[1], 1),
        (3, &[5, 7, 2], 3),
        (17, &[33, 65, 31], 9),
        (64, &[64, 64, 64], 16),
        (5, &[], 20),
        (60, &[100, 130, 70, 50], 12),
        (8, &[256, 512, 512, 256], 4),
        (61, &[48, 80, 112], 17),
    ];
    let with = |activation| {
        let make = move |(index, shape): (usize, &(usize, &'static [usize], usize))| {
            network(shape.0, shape.1, shape.2, activation, 100 + index as u64)
        };
        shapes.iter().enumerate().map(make).collect::<Vec<_>>()
    };
    ACTIVATIONS.into_iter().flat_map(with).collect()
}

fn predict(predictor: &Predictor, features: &[f32], scratch: &mut Scratch) -> Vec<f32> {
    let mut outputs = vec![f32::NAN; predictor.outputs()];
    predictor.predict(features, scratch, &mut outputs).unwrap();
    outputs
}

/// Single precision: within 2e-5 of double precision, relative to an output's size or spread, on
/// every instruction set. Those with fused multiply-add agree bit by bit.
#[test]
fn single_precision_is_close_to_double() {
    let mut random = Random::new(1);
    let mut scratch = Scratch::new();
    for network in networks() {
        for _ in 0..5 {
            let features = features(&network, &mut random);
            let exact = reference(&network, &features);
            let mut fused: Option<Vec<f32>> = None;
            for set in InstructionSet::available() {
                let predictor = Predictor::with_instructions(&network, Precision::F32, set).unwrap();
                assert_eq!(predictor.instructions(), set);
                let found = predict(&predictor, &features, &mut scratch);
                let apart = distance(&network, &found, &exact);
                assert!(apart < 2e-5, "{set:?}: {apart:e}: {found:?} {exact:?}");
                if set != InstructionSet::Portable {
                    assert_eq!(*fused.get_or_insert_with(|| found.clone()), found, "{set:?}");
                }
            }
        }
    }
}

/// 8 bits: all instruction sets are near double precision, and those whose layers in single
/// precision agree bit by bit agree as a whole. (That layers in 8 bits agree on all of them is held
/// where these are written.)
#[test]
fn eight_bits_are_near_double() {
    let mut random = Random::new(2);
    let mut scratch = Scratch::new();
    let mut sum = 0.0;
    let mut count = 0;
    for network in networks() {
        for _ in 0..5 {
            let features = features(&network, &mut random);
            let exact = reference(&network, &features);
            let mut fused: Option<Vec<f32>> = None;
            for set in InstructionSet::available() {
                let predictor = Predictor::with_instructions(&network, Precision::Int8, set).unwrap();
                let found = predict(&predictor, &features, &mut scratch);
                let apart = distance(&network, &found, &exact);
                assert!(apart < 0.15, "{set:?}: {apart:e}: {found:?} {exact:?}");
                sum += apart;
                count += 1;
                if set != InstructionSet::Portable {
                    assert_eq!(*fused.get_or_insert_with(|| found.clone()), found, "{set:?}");
                }
            }
        }
    }
    let mean = sum / f64::from(count);
    assert!(mean > 1e-6 && mean < 0.03, "the mean error is {mean}");
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    let network = network(3, &[4], 2, Activation::Silu, 1);
    let predictor = Predictor::new(&network, Precision::F32);
    let mut scratch = Scratch::new();
    let mut outputs = [7.0; 2];
    let mut refused = |features: &[f32]| predictor.predict(features, &mut scratch, &mut outputs).unwrap_err();
    assert_eq!(refused(&[1.0; 2]), Error::Length { what: "the features", expected: 3, found: 2 });
    let infinite = refused(&[1.0, f32::INFINITY, 1.0]);
    assert_eq!(infinite, Error::NotFinite { what: "the features", index: 1, value: f32::INFINITY });
    assert!(matches!(refused(&[1.0, 1.0, f32::NAN]), Error::NotFinite { index: 2, .. }));
    assert_eq!(outputs, [7.0; 2]);
    let short = predictor.predict(&[1.0; 3], &mut scratch, &mut outputs[..1]).unwrap_err();
    assert_eq!(short, Error::Length { what: "the place for the outputs", expected: 2, found: 1 });
}

/// Features far outside of what a network was trained on give numbers, and fractions stay
/// fractions.
#[test]
fn wild_features_give_numbers() {
    for activation in ACTIVATIONS {
        for precision in [Precision::F32, Precision::Int8] {
            let network = network(3, &[16, 16, 16], 1, activation, 4);
            let predictor = Predictor::new(&network, precision);
            for value in [-1e9, -1e-30, 0.0, 1e-30, 1e9] {
                let found = predict(&predictor, &[value, 1.0, -value], &mut Scratch::new());
                assert!((0.0..=1.0).contains(&found[0]), "{activation:?} {precision:?} {value}: {found:?}");
            }
        }
    }
}

/// One scratch serves predictors of any size in any order, as after a model was replaced by a
/// larger one.
#[test]
fn a_scratch_serves_every_predictor() {
    let mut random = Random::new(3);
    let (small, large) =
        (network(3, &[4], 2, Activation::Relu, 1), network(40, &[90, 70], 33, Activation::Silu, 2));
    let mut shared = Scratch::new();
    for _ in 0..3 {
        for network in [&small, &large] {
            let predictor = Predictor::new(network, Precision::Int8);
            let features = features(network, &mut random);
            let fresh = predict(&predictor, &features, &mut Scratch::new());
            assert_eq!(predict(&predictor, &features, &mut shared), fresh);
        }
    }
}
