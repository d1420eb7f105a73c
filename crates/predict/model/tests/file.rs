//! Model files: what was written is read back, and everything else is refused.

mod common;

use apex_model::conformal::Margin;
use apex_model::file::{FileError, PREAMBLE};
use apex_model::forecast::{Calibration, Feature, FeatureSet, Forecast, ForecastScratch, Model, Spread};
use apex_model::network::{Activation, Network, Target};
use apex_model::{Error, Matrix, Precision};
use apex_random::Random;
use common::{network, normals};
use proptest::prelude::*;

/// A model with targets of every kind.
fn model(activation: Activation, hidden: &[usize], seed: u64) -> Model {
    let targets = vec![
        Target::fraction("achieved occupancy").with_quantiles(&[0.05, 0.95]),
        Target::real("log time, ns"),
        Target::real("other").with_quantiles(&[0.1, 0.5, 0.9]),
    ];
    let network = Network::new(5, hidden, activation, targets, seed).unwrap();
    let calibration = |spread, margin| Some(Calibration { spread, margin: Margin { coverage: 0.9, margin } });
    let calibrations = vec![calibration(Spread::Between, 0.01), None, calibration(Spread::Quantiles, 1.5)];
    let feature =
        |index| Feature { name: format!("feature {index} µs"), least: -1.0, greatest: index as f32 };
    let features = (0..5).map(feature).collect();
    let features = FeatureSet { name: "launch".into(), version: 3, features };
    let notes = vec![("data".to_owned(), "a test".to_owned()), (String::new(), "§".to_owned())];
    Model::new(features, network, calibrations, notes).unwrap()
}

#[test]
fn what_is_written_is_read_back() {
    for activation in [Activation::Relu, Activation::Silu, Activation::Gelu] {
        for hidden in [vec![], vec![7], vec![20, 3, 11]] {
            let model = model(activation, &hidden, 4);
            assert_eq!(Model::from_bytes(&model.to_bytes()).unwrap(), model);
        }
    }
}

#[test]
fn files_are_replaced_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small.model");
    let (one, other) = (model(Activation::Silu, &[4], 1), model(Activation::Silu, &[8], 2));
    for model in [&one, &other] {
        model.save(&path).unwrap();
        assert_eq!(Model::open(&path).unwrap(), *model);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let nowhere = dir.path().join("none").join("small.model");
    for error in [one.save(&nowhere).unwrap_err(), Model::open(&nowhere).unwrap_err()] {
        assert!(error.to_string().starts_with(&format!("{}: ", nowhere.display())), "{error}");
    }
}

fn refused(bytes: &[u8]) -> String {
    Model::from_bytes(bytes).unwrap_err().to_string()
}

/// Bytes 48 to 55 over those before them, as a writer would put them.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = |bytes: &[u8]| apex_random::hash(0, bytes);
    let head = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize;
    if let Some((head, numbers)) = bytes[PREAMBLE..].split_at_checked(head) {
        let sums = [sum(head), sum(numbers)];
        bytes[32..40].copy_from_slice(&sums[0].to_le_bytes());
        bytes[40..48].copy_from_slice(&sums[1].to_le_bytes());
    }
    let preamble = sum(&bytes[..48]);
    bytes[48..56].copy_from_slice(&preamble.to_le_bytes());
    bytes
}

#[test]
fn what_is_no_model_is_named() {
    let bytes = model(Activation::Relu, &[6], 1).to_bytes();
    assert!(refused(b"").contains("not a model file"));
    assert!(refused(b"{\"a\": 1}").contains("not a model file"));
    assert!(refused(&bytes[..5]).contains("has 5 bytes, 56 are needed"));
    let cut = refused(&bytes[..bytes.len() - 1]);
    assert!(cut.contains(&format!("{} bytes, {} are needed", bytes.len() - 1, bytes.len())), "{cut}");
    assert!(refused(&[&bytes[..], &[0]].concat()).contains("copy it again"));
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert!(refused(&newer).contains("format 2, this program reads up to 1: update the program"));
    let mut other = bytes.clone();
    other[12] = 9;
    assert!(matches!(Model::from_bytes(&sealed(other)), Err(FileError::UnknownKind { found: 9 })));
    for (at, part) in [(20, "preamble"), (PREAMBLE + 3, "head"), (bytes.len() - 2, "numbers")] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(refused(&damaged).contains(&format!("checksum of its {part} is wrong")));
    }
    let mut infinite = bytes.clone();
    let end = infinite.len();
    infinite[end - 4..].copy_from_slice(&f32::INFINITY.to_le_bytes());
    assert!(refused(&sealed(infinite)).contains("is inf, which cannot be computed with"));
    let mut huge = bytes.clone();
    huge[16..24].fill(0xff);
    assert!(matches!(Model::from_bytes(&sealed(huge)), Err(FileError::Length { expected: u64::MAX, .. })));
}

/// Every single changed byte is noticed.
#[test]
fn no_changed_byte_passes() {
    let bytes = model(Activation::Silu, &[3], 1).to_bytes();
    for at in 0..bytes.len() {
        for change in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            assert!(Model::from_bytes(&damaged).is_err(), "byte {at} ^ {change}");
        }
    }
}

proptest! {
    /// Bytes changed, cut out and put in, under checksums that hold: an error or another valid
    /// model, never a panic.
    #[test]
    fn damage_under_valid_checksums_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of((any::<prop::sample::Index>(), 0usize..40)),
        added in prop::option::of((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..20))),
    ) {
        let mut bytes = model(Activation::Gelu, &[3, 2], 1).to_bytes();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some((at, count)) = cut {
            let at = at.index(bytes.len());
            bytes.drain(at..bytes.len().min(at + count));
        }
        if let Some((at, more)) = added {
            let at = at.index(bytes.len());
            bytes.splice(at..at, more);
        }
        let sealed = if bytes.len() > PREAMBLE { sealed(bytes) } else { bytes };
        if let Ok(model) = Model::from_bytes(&sealed) {
            prop_assert_eq!(model.to_bytes().len(), sealed.len());
        }
    }

    #[test]
    fn anything_at_all_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), begins in any::<bool>()) {
        let magic: &[u8] = if begins { b"APEXMODL\x01\0\0\0\x01\0\0\0" } else { b"" };
        prop_assert!(Model::from_bytes(&[magic, &bytes].concat()).is_err());
    }
}

#[test]
fn forecasts_have_intervals_where_calibrated() {
    let mut random = Random::new(5);
    let model = model(Activation::Silu, &[16, 16], 7);
    for precision in [Precision::F32, Precision::Int8] {
        let ready = model.ready(precision);
        assert_eq!((ready.inputs(), ready.targets()), (5, 3));
        let (mut scratch, mut forecasts) = (ForecastScratch::default(), [Forecast::default(); 3]);
        for _ in 0..20 {
            let features = normals(5, 2.0, &mut random);
            ready.forecast(&features, &mut scratch, &mut forecasts).unwrap();
            let [occupancy, time, other] = forecasts;
            let (low, high) = occupancy.interval.unwrap();
            assert!(0.0 <= low && low <= high && high <= 1.0);
            assert_eq!(time.interval, None);
            let (low, high) = other.interval.unwrap();
            assert!(low <= other.estimate && other.estimate <= high);
        }
        let short = ready.forecast(&[0.0; 5], &mut scratch, &mut forecasts[..2]);
        assert!(matches!(short, Err(Error::Length { expected: 3, found: 2, .. })));
    }
}

#[test]
fn calibration_finds_the_margin_of_a_target() {
    let target = Target::real("y").with_quantiles(&[0.1, 0.9]);
    let outputs: Vec<[f32; 3]> = (0..19).map(|_| [5.0, 4.0, 6.0]).collect();
    let rows: Vec<&[f32]> = outputs.iter().map(<[f32; 3]>::as_slice).collect();
    let truths: Vec<f32> = (0..19).map(|case| 5.0 + case as f32 * 0.2).collect();
    let margin = |spread| {
        Calibration::new(&target, spread, &rows, &truths, None, 0.9).map(|found| found.margin.margin)
    };
    // The 18th of 19 errors is 3.4.
    let close = |found: f32, expected: f32| assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    close(margin(Spread::Constant).unwrap(), 3.4);
    close(margin(Spread::Quantiles).unwrap(), 1.7);
    close(margin(Spread::Between).unwrap(), 2.4);
    let plain = Target::real("y");
    let error = Calibration::new(&plain, Spread::Between, &[], &[], None, 0.9).unwrap_err();
    assert_eq!(error, Error::TooFew { what: "quantiles to make intervals of", needed: 2, found: 0 });
}

#[test]
fn features_beyond_training_are_named() {
    let mut examples = Matrix::empty(2);
    [[1.0, -3.0], [4.0, 5.0], [2.0, 0.0]].iter().for_each(|row| examples.push(row).unwrap());
    let features = FeatureSet::seen("x", 1, &["a", "b"], &examples).unwrap();
    let network = network(2, &[4], 1, Activation::Relu, 1);
    let ready = Model::new(features, network, vec![None], vec![]).unwrap().ready(Precision::F32);
    let unfamiliar = |features: [f32; 2]| ready.unfamiliar(&features, 0.0).collect::<Vec<_>>();
    assert!(unfamiliar([1.0, 5.0]).is_empty());
    assert_eq!(unfamiliar([0.9, 5.1]), [0, 1]);
    assert_eq!(unfamiliar([4.1, -3.0]), [0]);
    assert!(ready.unfamiliar(&[0.9, 5.1], 0.1).next().is_none());
    assert_eq!(ready.unfamiliar(&[0.9, 50.0], 0.1).collect::<Vec<_>>(), [1]);
    assert!(matches!(FeatureSet::seen("x", 1, &["a"], &examples), Err(Error::Length { .. })));
    assert!(matches!(FeatureSet::seen("x", 1, &["a"], &Matrix::empty(1)), Err(Error::TooFew { .. })));
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let network = network(3, &[4], 2, Activation::Relu, 1);
    let feature = || Feature { name: String::new(), least: 0.0, greatest: 1.0 };
    let features = |count| (0..count).map(|_| feature()).collect();
    let set = |count| FeatureSet { name: "x".into(), version: 1, features: features(count) };
    let made = |count, calibrations| Model::new(set(count), network.clone(), calibrations, vec![]);
    assert!(made(3, vec![None, None]).is_ok());
    assert!(matches!(made(2, vec![None, None]), Err(Error::Length { .. })));
    assert!(matches!(made(3, vec![None]), Err(Error::Length { .. })));
    let margin = Margin { coverage: 1.0, margin: 0.0 };
    let certain = Some(Calibration { spread: Spread::Constant, margin });
    assert!(matches!(made(3, vec![certain, None]), Err(Error::Range { .. })));
}
