//! The shipped models against the measurements: they are those of the card, they predict as well as
//! it says, and no lower bound of a duration exceeds the measured one.

use apex_dataset::DataSet;
use apex_model::evaluate::{coverage, quantile};
use apex_model::forecast::{ForecastScratch, Forecaster};
use apex_model::{Model, Precision};
use apex_predict::features;
use apex_predict::{Basis, Device, Estimate, Models, Placed, Prediction, WALKED_MARGIN};
use apex_training::examples::{Data, Row};
use apex_training::judge::{Cases, Quantity};
use apex_training::report::{Report, Score, Test};
use std::path::{Path, PathBuf};

/// Largest deviation of a recomputed figure: other processors add up in another order.
const ROUNDING: f64 = 1e-3;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Every n-th launch of a data set.
fn measured(name: &str, every: usize) -> Data {
    let mut set = DataSet::read(&repository().join("data").join(name)).unwrap();
    set.launches = set.launches.into_iter().step_by(every).collect();
    Data::new(&set).unwrap()
}

fn shipped(file: &str) -> Model {
    Model::from_bytes(&test_manifest::content(&format!("crates/predict/predict/models/{file}.zst"))).unwrap()
}

fn report() -> Report {
    serde_json::from_slice(&test_manifest::content("crates/predict/predict/models/card.json.zst")).unwrap()
}

fn test<'a>(report: &'a Report, held_out: &str) -> &'a Test {
    report.tests.iter().find(|test| test.held_out == held_out).expect("the card has this test")
}

/// Returns the card's score of the networks.
fn score(test: &Test, quantity: Quantity, basis: Basis) -> &Score {
    score_of("network", test, quantity, basis)
}

/// Returns the card's score of a method.
fn score_of<'a>(method: &str, test: &'a Test, quantity: Quantity, basis: Basis) -> &'a Score {
    let wanted = |score: &&Score| {
        (&*score.method, &*score.quantity, &*score.basis) == (method, quantity.name(), basis.name())
    };
    test.scores.iter().find(wanted).expect("the card has this score")
}

#[test]
fn the_shipped_files_are_the_models_of_the_card() {
    let report = report();
    let held_out = [
        "configurations of known kernels",
        "families",
        "families, one other launch of the kernel on the same problem is known",
    ];
    for ((file, summary), held_out) in Models::FILES.into_iter().zip(&report.models).zip(held_out) {
        let model = shipped(file);
        let network = model.network();
        let widths: Vec<usize> =
            network.layers().iter().map(|layer| layer.inputs).chain([network.outputs()]).collect();
        assert_eq!((widths, network.parameters()), (summary.widths.clone(), summary.parameters), "{file}");
        let noted: Vec<&str> =
            model.notes().iter().filter(|(name, _)| name == "error").map(|(_, value)| &**value).collect();
        let networks = test(&report, held_out).scores.iter().filter(|score| score.method == "network");
        let expected: Vec<String> = networks
            .map(|score| {
                let correlation = score
                    .correlation
                    .map_or(String::new(), |range| format!(", correlation {:.3}", range.value));
                format!(
                    "{}, {}: median {:.1}{correlation}",
                    score.quantity, score.basis, score.median_error.value
                )
            })
            .collect();
        assert_eq!(noted, expected, "{file}");
    }
}

/// Returns the large model's forecast of a launch: bare, as the card judges it.
fn bare(forecaster: &Forecaster, model: &Model, device: &Device, row: &Row) -> [(f32, (f32, f32)); 3] {
    let case = row.known(Basis::Kernel);
    let placed = Placed::new(device, &case).unwrap();
    let mut numbers = Vec::new();
    features::full(&placed, &mut numbers);
    for (value, feature) in numbers.iter_mut().zip(&model.features().features) {
        *value = value.clamp(feature.least, feature.greatest);
    }
    let mut forecasts = vec![Default::default(); forecaster.targets()];
    forecaster.forecast(&numbers, &mut ForecastScratch::default(), &mut forecasts).unwrap();
    let bounds = [placed.occupancy_bound(), 1.0, placed.warp_efficiency_bound()];
    std::array::from_fn(|target| {
        let (forecast, bound): (&apex_model::forecast::Forecast, _) =
            (&forecasts[target], bounds[target] as f32);
        let (low, high) = forecast.interval.expect("it is calibrated");
        let estimate = forecast.estimate;
        (estimate * bound, (low.min(estimate) * bound, high.max(estimate) * bound))
    })
}

/// No model was trained on PyTorch's kernels, so the card's figures of them can be had again from
/// the shipped files.
#[test]
fn figures_of_real_programs_are_those_of_the_card() {
    let data = measured("h200/launches-pytorch", 1);
    let model = shipped("large.apexmodel");
    let forecaster = model.ready(Precision::F32);
    let [mut occupancy, mut efficiency, mut by_formula] = std::array::from_fn(|_| Cases::default());
    let models = Models::shipped();
    let device = data.device(0);
    for row in &data.rows {
        let [share, _, lanes] = bare(&forecaster, &model, device, row);
        occupancy.push(share.0, Some(share.1), row.truth.achieved_occupancy, row.family);
        efficiency.push(lanes.0, Some(lanes.1), row.truth.warp_efficiency, row.family);
        // What users are shown is that, in an interval half a point wider to either side; of warp
        // efficiency the formula, to which the interval is extended.
        let case = row.known(Basis::Kernel);
        let said = models.predict(device, &case).unwrap();
        let formula = Placed::new(device, &case).unwrap().warp_efficiency_bound() as f32;
        let (low, high) = lanes.1;
        let lanes = (formula, (low.min(formula), high.max(formula)));
        by_formula.push(formula, None, row.truth.warp_efficiency, row.family);
        for (shown, (value, (low, high))) in [(said.achieved_occupancy, share), (said.warp_efficiency, lanes)]
        {
            assert!((shown.value - f64::from(value)).abs() < 1e-5, "{shown:?} {value}");
            assert!((shown.low - (f64::from(low) - 0.005).max(0.0)).abs() < 1e-5, "{shown:?} {low}");
            assert!((shown.high - (f64::from(high) + 0.005).min(1.0)).abs() < 1e-5, "{shown:?} {high}");
        }
    }
    let report = report();
    let test = test(&report, "real programs, never trained on");
    for (cases, quantity, method) in [
        (occupancy, Quantity::AchievedOccupancy, "network"),
        (efficiency, Quantity::WarpEfficiency, "network"),
        (by_formula, Quantity::WarpEfficiency, "block efficiency"),
    ] {
        let card = score_of(method, test, quantity, Basis::Kernel);
        let found = cases.score(method, quantity, Basis::Kernel, &data.families).unwrap();
        assert_eq!(found.cases, card.cases);
        let figures = |score: &Score| {
            let (correlation, held) =
                (score.correlation.unwrap(), score.coverage.map_or(0.0, |held| held.value));
            let median = score.median_error;
            [correlation.value, correlation.low, median.value, median.high, score.large_error, held]
        };
        for (found, card) in figures(&found).into_iter().zip(figures(card)) {
            assert!((found - card).abs() <= ROUNDING * card.abs().max(1.0), "{quantity:?}: {found} {card}");
        }
    }
}

/// The shipped models were trained on all families. So they do at least as well on a sample of
/// these as the networks of the folds, which had not seen them; and their intervals hold at least
/// as often as is stated.
#[test]
fn the_shipped_models_do_as_well_as_the_card_says() {
    let data = measured("h200/launches", 7);
    let (report, models) = (report(), Models::shipped());
    let families = test(&report, "families");
    type Truth = fn(&Row) -> f32;
    type Predicted = fn(&Prediction) -> Estimate;
    type Tested<'a> = (Quantity, Truth, Predicted, &'a [Basis]);
    let quantities: [Tested<'_>; 4] = [
        (
            Quantity::AchievedOccupancy,
            |row| row.truth.achieved_occupancy,
            |said| said.achieved_occupancy,
            &[Basis::Kernel, Basis::Code, Basis::Work],
        ),
        (
            Quantity::SmUtilisation,
            |row| row.truth.sm_utilisation,
            |said| said.sm_utilisation,
            &[Basis::Kernel, Basis::Code, Basis::Work],
        ),
        (
            Quantity::WarpEfficiency,
            |row| row.truth.warp_efficiency,
            |said| said.warp_efficiency,
            &[Basis::Launch, Basis::Kernel, Basis::Code, Basis::Work],
        ),
        (Quantity::Duration, |row| row.truth.duration_us, |said| said.duration_us, &[Basis::Work]),
    ];
    for (quantity, truth, shows, bases) in quantities {
        for &basis in bases {
            let (mut errors, mut intervals, mut truths) = (Vec::new(), Vec::new(), Vec::new());
            for row in data.rows.iter().filter(|row| !truth(row).is_nan() && row.basis() >= basis) {
                let said = shows(&models.predict(data.device(0), &row.known(basis)).unwrap());
                let off = said.value - f64::from(truth(row));
                let of = if quantity == Quantity::Duration { f64::from(truth(row)) } else { 1.0 };
                errors.push(100.0 * (off / of).abs());
                intervals.push((said.low as f32, said.high as f32));
                truths.push(truth(row));
            }
            // A formula learned nothing: its figures of a sample are not those of all.
            if quantity != Quantity::WarpEfficiency {
                let card = match quantity {
                    Quantity::Duration => score_of("computed", families, quantity, basis),
                    Quantity::SmUtilisation if basis == Basis::Work => {
                        score_of("computed", families, quantity, basis)
                    }
                    _ => score(families, quantity, basis),
                };
                let (median, large) = (quantile(&errors, 0.5).unwrap(), quantile(&errors, 0.9).unwrap());
                assert!(median <= card.median_error.value, "{quantity:?} {basis:?}: {median}");
                assert!(large <= card.large_error, "{quantity:?} {basis:?}: {large}");
            }
            let held = coverage(&intervals, &truths).unwrap();
            assert!(held >= 0.9, "{quantity:?} {basis:?}: {held}");
        }
    }
}

#[test]
fn the_margin_of_walked_warps_is_their_error_in_the_card() {
    let report = report();
    let families = test(&report, "families");
    let card = score_of("walked warps", families, Quantity::WarpEfficiency, Basis::Work).large_error;
    assert!((card - 100.0 * WALKED_MARGIN).abs() < 0.05, "{card}");
}

#[test]
fn no_floor_is_above_what_was_measured() {
    let mut compared = 0;
    for data in [measured("h200/launches", 3), measured("h200/launches-pytorch", 1)] {
        for row in data.rows.iter().filter(|row| row.truth.duration_us > 0.0) {
            for basis in Basis::ALL.into_iter().filter(|&basis| basis <= row.basis()) {
                let case = row.known(basis);
                let floor = Placed::new(data.device(0), &case).unwrap().floor_us();
                let family = &data.families[row.family];
                assert!(
                    floor <= f64::from(row.truth.duration_us),
                    "{family} {:?} {basis:?}: {floor} us, measured {}",
                    row.case.launch,
                    row.truth.duration_us
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}
