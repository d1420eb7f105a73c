//! The time of one prediction on one thread, beside ONNX Runtime on the same network in the same
//! run.
//!
//! `cargo bench -p apex-model` measures and prints medians; `-- --json FILE` also writes every
//! sample. ONNX Runtime comes from `scripts/test-deps.sh`; where it is not installed its rows are
//! missing, and that is said.
//!
//! What is compared runs by turns, so that whatever else the machine does disturbs all of it alike.
//! Inputs are random and differ from prediction to prediction. A sample is the mean of as many
//! predictions as fill about 0.3 milliseconds, after a few that do not count (*warm*), or one
//! prediction after four mebibytes of something else went through the caches (*cold*).

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/onnxruntime/mod.rs"]
mod onnxruntime;
mod report;

use apex_model::forecast::{FeatureSet, Model};
use apex_model::network::{Activation, Network};
use apex_model::onnx::to_onnx;
use apex_model::{Cache, InstructionSet, Matrix, Precision, Predictor, Scratch};
use apex_random::Random;
use common::{distance, features, network};
use onnxruntime::OnnxRuntime;
use report::{Report, Row};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Times that everything is measured.
const SAMPLES: usize = 101;

/// Seconds that a warm sample takes: short, so that most are not interrupted.
const SAMPLE: f64 = 3e-4;

/// Rows of features that are predicted by turns.
const ROWS: usize = 64;

/// The source of a network.
enum Weights {
    /// Random ones, for this number of features and hidden layers of these widths.
    Random(usize, &'static [usize]),
    /// The file of a model that APEX ships.
    Shipped(&'static str),
}

impl Weights {
    fn network(&self) -> Network {
        match self {
            Weights::Random(inputs, hidden) => network(*inputs, hidden, 4, Activation::Silu, 1),
            Weights::Shipped(file) => {
                let shipped = test_manifest::content(&format!("crates/predict/predict/models/{file}.zst"));
                Model::from_bytes(&shipped).expect("a test reads it").network().clone()
            }
        }
    }
}

/// A network to be measured.
struct Case {
    name: &'static str,
    weights: Weights,
    /// The goal for the time of one prediction in this precision, in microseconds.
    goal: (Precision, f64),
}

const CASES: [Case; 6] = [
    Case { name: "small", weights: Weights::Random(8, &[16, 8]), goal: (Precision::F32, 0.5) },
    Case { name: "large", weights: Weights::Random(60, &[256, 512, 512, 256]), goal: (Precision::F32, 40.0) },
    Case {
        name: "largest",
        weights: Weights::Random(60, &[256, 512, 1024, 1024]),
        goal: (Precision::Int8, 60.0),
    },
    Case {
        name: "small as shipped",
        weights: Weights::Shipped("small.apexmodel"),
        goal: (Precision::F32, 0.5),
    },
    Case {
        name: "large as shipped",
        weights: Weights::Shipped("large.apexmodel"),
        goal: (Precision::F32, 40.0),
    },
    Case {
        name: "what-if as shipped",
        weights: Weights::Shipped("what-if.apexmodel"),
        goal: (Precision::F32, 40.0),
    },
];

/// Predicts a row of features.
type Predict<'a> = Box<dyn FnMut(&[f32]) + 'a>;

/// Something that predicts, and where its samples go.
struct Series<'a> {
    row: Row,
    predict: Predict<'a>,
    /// Predictions in a sample.
    calls: usize,
}

impl<'a> Series<'a> {
    fn new(row: Row, predict: Predict<'a>, rows: &[Vec<f32>]) -> Series<'a> {
        let mut series = Series { row, predict, calls: ROWS };
        // The fastest of some: one that was interrupted says nothing.
        let fastest = (0..20).map(|_| series.time(rows)).fold(f64::INFINITY, f64::min);
        series.calls = ((SAMPLE / fastest) as usize).max(1);
        series
    }

    /// Seconds for a prediction, the mean of [`Series::calls`].
    fn time(&mut self, rows: &[Vec<f32>]) -> f64 {
        let start = Instant::now();
        for row in rows.iter().cycle().take(self.calls) {
            (self.predict)(black_box(row));
        }
        start.elapsed().as_secs_f64() / self.calls as f64
    }
}

fn main() {
    let mut json = None;
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--json", Some(path)) => json = Some(path),
            _ => {
                eprintln!("usage: cargo bench -p apex-model [-- --json FILE]");
                std::process::exit(2);
            }
        }
    }
    let runtime = OnnxRuntime::load("the comparison");
    let mut report = Report::new(runtime.as_ref().map(|runtime| runtime.version.clone()));
    for case in &CASES {
        measure(case, runtime.as_ref(), &mut report);
    }
    print!("{report}");
    if let Some(path) = json
        && let Err(error) = std::fs::write(&path, report.json())
    {
        eprintln!("cannot write {path}: {error}");
        std::process::exit(1);
    }
}

/// Measures one network.
fn measure(case: &Case, runtime: Option<&OnnxRuntime>, report: &mut Report) {
    let network = case.weights.network();
    let mut random = Random::new(2);
    let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| features(&network, &mut random)).collect();
    let widths = network.layers().iter().map(|layer| layer.inputs).chain([network.outputs()]);
    let shape: Vec<String> = widths.map(|width| width.to_string()).collect();
    report.begin(case.name, shape.join("-"), network.parameters());
    let mut all = Vec::new();
    for precision in [Precision::F32, Precision::Int8] {
        // The small network has one layer between its first and its last, of 8 units: 8 bits have
        // nothing to gain.
        if precision == Precision::Int8 && network.parameters() < 1000 {
            continue;
        }
        let goal = (case.goal.0 == precision).then_some(case.goal.1);
        for set in InstructionSet::available() {
            let predictor = Predictor::with_instructions(&network, precision, set).expect("it is available");
            let differences = differences(&network, &predictor, &rows);
            let goal = goal.filter(|_| set == InstructionSet::best());
            let row = Row::new(format!("this crate, {}", name(set)), precision, goal, differences);
            let (mut scratch, mut outputs) = (Scratch::new(), vec![0.0; network.outputs()]);
            let predict = move |row: &[f32]| {
                predictor.predict(row, &mut scratch, &mut outputs).expect("the features are finite");
                black_box(&outputs);
            };
            all.push(Series::new(row, Box::new(predict), &rows));
        }
        if let Some(runtime) = runtime {
            let mut session =
                runtime.session(&to_onnx(&network, precision, &[]), 1, network.inputs(), network.outputs());
            let row = Row::new("ONNX Runtime".to_owned(), precision, None, None);
            let predict = move |row: &[f32]| {
                black_box(session.run(row));
            };
            all.push(Series::new(row, Box::new(predict), &rows));
        }
    }
    all.push(Series::new(
        Row::new("this crate, cached".to_owned(), Precision::F32, Some(0.05), None),
        cached(&network),
        &rows,
    ));
    let mut sweep = vec![1u64; 4 << 17];
    for sample in 0..SAMPLES {
        for series in &mut all {
            rows.iter().take(4).for_each(|row| (series.predict)(row));
            let warm = series.time(&rows);
            sweep.iter_mut().for_each(|word| *word = word.rotate_left(1));
            black_box(&sweep);
            let start = Instant::now();
            (series.predict)(black_box(&rows[sample % ROWS]));
            series.row.add(warm, start.elapsed().as_secs_f64());
        }
    }
    all.into_iter().for_each(|series| report.add(series.row));
}

/// Forecasts of cases that were asked for before.
fn cached<'a>(network: &Network) -> Predict<'a> {
    let (names, seen) = (vec![""; network.inputs()], Matrix::zeros(1, network.inputs()));
    let features = FeatureSet::seen("", 1, &names, &seen).expect("there is an example");
    let calibrations = vec![None; network.targets().len()];
    let model = Model::new(features, network.clone(), calibrations, Vec::new()).expect("the parts fit");
    let (forecaster, mut cache) = (Arc::new(model.ready(Precision::F32)), Cache::new(64 * ROWS));
    Box::new(move |row| {
        black_box(cache.forecast(&forecaster, row).expect("the features are finite"));
    })
}

fn name(set: InstructionSet) -> &'static str {
    match set {
        InstructionSet::Portable => "portable",
        InstructionSet::Avx2 => "AVX2",
        InstructionSet::Avx512 => "AVX-512",
        InstructionSet::Avx512Vnni => "AVX-512 VNNI",
    }
}

/// Mean and greatest difference from double precision, relative to an output's size or spread.
fn differences(network: &Network, predictor: &Predictor, rows: &[Vec<f32>]) -> Option<(f64, f64)> {
    let (mut scratch, mut outputs) = (Scratch::new(), vec![0.0; network.outputs()]);
    let mut apart = |row: &Vec<f32>| {
        predictor.predict(row, &mut scratch, &mut outputs).expect("the features are finite");
        distance(network, &outputs, &common::reference(network, row))
    };
    let all: Vec<f64> = rows.iter().map(&mut apart).collect();
    Some((all.iter().sum::<f64>() / all.len() as f64, all.iter().copied().fold(0.0, f64::max)))
}
