//! Training from beginning to end: folds, judgement, final models.
//!
//! Whole families are held out in turn. The predictions of each fold's network for the families
//! that it has not seen are judged, and they calibrate the intervals of the final models, which are
//! trained on everything. Intervals are judged with margins from the other folds.

mod judgement;
mod plain;
mod refit;
mod timing;

use crate::Error;
use crate::examples::{Data, Source, Table};
use crate::learn::{Recipe, WorkerPool};
use crate::report::{MeasuredDevice, ModelSummary, Report, Test};
use apex_model::evaluate::{Fold, folds};
use apex_model::forecast::FeatureSet;
use apex_model::network::Target;
use apex_model::{Matrix, Model, Network, Precision, Predictor, Regressor};
use apex_ordered::Order;
use apex_predict::features::Set;
use apex_predict::{Basis, target};
use apex_random::Random;
use judgement::{calibrations, place};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use timing::Timed;

pub use refit::refit;

/// Number of folds that the families are divided into.
const FOLDS: usize = 5;
/// Nominal coverage of intervals.
const COVERAGE: f32 = 0.9;
/// Boosted trees for each target, in steps of a tenth.
const TREES: usize = 100;
/// Most steps in which rates are fitted.
const STEPS: usize = 15;
/// Other launches on the same problem that each launch is paired with.
const PARTNERS: usize = 4;

const SMALL: Recipe = Recipe {
    members: 1,
    hidden: &[16, 8],
    epochs: 150,
    learning_rate: 5e-3,
    weight_decay: 1e-3,
    input_dropout: 0.0,
    share: 1.0,
};
const LARGE: Recipe = Recipe {
    members: 8,
    hidden: &[96, 64],
    epochs: 40,
    learning_rate: 4e-3,
    weight_decay: 0.3,
    input_dropout: 0.05,
    share: 0.9,
};
const WHAT_IF: Recipe = Recipe { epochs: 32, ..LARGE };

/// The recipes of the models.
struct Recipes {
    small: Recipe,
    large: Recipe,
    what_if: Recipe,
    /// Boosted trees for each target; none if 0.
    trees: usize,
    /// Most steps in which rates are fitted.
    steps: usize,
}

impl Recipes {
    fn new(quick: bool) -> Recipes {
        if !quick {
            return Recipes { small: SMALL, large: LARGE, what_if: WHAT_IF, trees: TREES, steps: STEPS };
        }
        let few = |recipe: Recipe| Recipe {
            members: recipe.members.min(2),
            epochs: recipe.epochs.div_ceil(6),
            ..recipe
        };
        Recipes {
            small: few(SMALL),
            large: few(LARGE),
            what_if: few(WHAT_IF),
            trees: 0,
            steps: STEPS.div_ceil(6),
        }
    }

    /// The large model's, with fewer networks: each device is left out in turn, which nothing but
    /// the judgement needs.
    fn away(&self) -> Recipe {
        Recipe { members: self.large.members.min(AWAY_MEMBERS), ..self.large.clone() }
    }

    /// Returns the number of networks and, for each fold, trees, for this number of devices.
    fn planned(&self, devices: usize) -> usize {
        let away = if devices > 1 { devices * FOLDS * self.away().members } else { 0 };
        let networks = (FOLDS + 1) * (self.large.members + self.what_if.members)
            + (2 * FOLDS + 1) * self.small.members
            + away;
        networks + if self.trees > 0 { TREES_OF * FOLDS } else { 0 }
    }
}

/// Networks of a large model that is judged on a device which it does not know.
const AWAY_MEMBERS: usize = 3;

/// Bases, of large and of what-if together, that boosted trees are grown for.
const TREES_OF: usize = 3;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Few networks, few passes, no trees: a trial run.
    pub quick: bool,
    /// Determines weights and splits.
    pub seed: u64,
    /// Threads.
    pub threads: usize,
}

/// The progress of a run.
#[derive(Debug, Default)]
pub struct Progress {
    /// Networks to be trained.
    pub planned: AtomicUsize,
    /// Networks that were trained.
    pub done: AtomicUsize,
}

/// The result of a run.
#[derive(Debug)]
pub struct Trained {
    /// Small, large, what-if.
    pub models: [Model; 3],
    /// The scores of the models.
    pub report: Report,
}

/// Trains and judges. `real` are launches of other programs, for judgement alone.
///
/// # Errors
/// [`Error`] if the data cannot be learned from, or the caller stopped it.
pub fn run(
    data: &Data,
    real: Option<&Data>,
    options: &Options,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<Trained, Error> {
    let recipes = Recipes::new(options.quick);
    progress.planned.store(recipes.planned(data.sources.len()), Ordering::Relaxed);
    let run = Run {
        data,
        options,
        recipes,
        pool: WorkerPool { threads: options.threads, done: &progress.done, stop },
    };
    let (small, small_tests) = run.small()?;
    let timed = run.timing()?;
    let (large, mut tests) = run.large(real, &timed)?;
    let (what_if, what_if_test) = run.what_if(&timed)?;
    tests.insert(1, what_if_test);
    tests.extend(small_tests);
    let report = Report {
        devices: data.sources.iter().enumerate().map(|(source, of)| run.summary_of(source, of)).collect(),
        launches: data.rows.len(),
        families: data.families.len(),
        seed: options.seed,
        models: vec![small.1, large.1, what_if.1],
        tests,
    };
    Ok(Trained { models: [small.0, large.0, what_if.0], report })
}

/// A model and its summary.
type TrainedModel = (Model, ModelSummary);

struct Run<'a> {
    data: &'a Data,
    options: &'a Options,
    recipes: Recipes,
    pool: WorkerPool<'a>,
}

/// Predictions of networks for examples that they were not trained on.
struct HeldOut {
    outputs: Vec<Vec<f32>>,
    /// The fold of each example.
    fold: Vec<usize>,
}

impl Run<'_> {
    fn summary_of(&self, source: usize, of: &Source) -> MeasuredDevice {
        let launches = self.data.rows.iter().filter(|row| row.source == source).count();
        MeasuredDevice { name: of.device.name.clone(), measured: of.measured.clone(), launches }
    }

    fn all(&self) -> Vec<usize> {
        (0..self.data.rows.len()).collect()
    }

    fn families(&self, table: &Table) -> Vec<usize> {
        table.origin.iter().map(|origin| self.data.rows[origin.row].family).collect()
    }

    /// The parts of the families (or of whatever `groups` are), each to be held out.
    fn folds(&self, groups: &[usize]) -> Result<Vec<Fold>, Error> {
        Ok(folds(groups, FOLDS, self.options.seed)?)
    }

    /// For each device, the folds: tested on its launches, trained on those of other devices.
    /// `launch` says which launch an example is of.
    fn away(&self, groups: &[usize], launch: impl Fn(usize) -> usize) -> Result<Vec<Fold>, Error> {
        let source = |&example: &usize| self.data.rows[launch(example)].source;
        let (folds, source) = (self.folds(groups)?, &source);
        let of_device = |device: usize| {
            let folds: Vec<Fold> = folds
                .iter()
                .map(|Fold { train, test }| Fold {
                    train: train.iter().copied().filter(|row| source(row) != device).collect(),
                    test: test.iter().copied().filter(|row| source(row) == device).collect(),
                })
                .collect();
            folds
        };
        Ok((0..self.data.sources.len()).flat_map(of_device).collect())
    }

    /// Trains a network for each fold, and predicts the examples that it has not seen. Nothing is
    /// predicted of a fold that there is nothing to train on for.
    fn cross(
        &self,
        table: &Table,
        folds: &[Fold],
        recipe: &Recipe,
        targets: &[Target],
    ) -> Result<HeldOut, Error> {
        let (examples, families) = (table.examples()?, self.families(table));
        let mut held = HeldOut { outputs: vec![Vec::new(); families.len()], fold: vec![0; families.len()] };
        for (number, Fold { train, test }) in folds.iter().enumerate() {
            if train.is_empty() || test.is_empty() {
                continue;
            }
            let groups: Vec<usize> = train.iter().map(|&row| families[row]).collect();
            let seed = self.options.seed + 1 + number as u64;
            let network = recipe.learn(&examples.select(train), &groups, targets, seed, &self.pool)?;
            let outputs =
                predict_within(&network, examples.select(train).inputs(), &examples.inputs().select(test))?;
            for (&row, outputs) in test.iter().zip(outputs.iter()) {
                held.outputs[row] = outputs.to_vec();
                held.fold[row] = number % FOLDS;
            }
        }
        Ok(held)
    }

    /// The final model: trained on all, its intervals calibrated on what was held out.
    fn finish(
        &self,
        (set, recipe, targets): (Set, &Recipe, Vec<Target>),
        table: &Table,
        held: &HeldOut,
        notes: &[(&str, String)],
    ) -> Result<TrainedModel, Error> {
        let (examples, families) = (table.examples()?, self.families(table));
        let network = recipe.learn(&examples, &families, &targets, self.options.seed, &self.pool)?;
        let all: Vec<usize> = (0..families.len()).collect();
        let calibrations = calibrations(&targets, table, held, &families, &all)?;
        let names = set.names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let features = FeatureSet::seen(set.name(), set.version(), &names, examples.inputs())?;
        let summary = summary(set, &network, examples.inputs())?;
        let notes = notes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let calibrations = calibrations.into_iter().map(Some).collect();
        Ok((Model::new(features, network, calibrations, notes)?, summary))
    }

    fn notes(&self, test: &Test) -> Vec<(&'static str, String)> {
        let data = self.data;
        let of_sources = |of: fn(&Source) -> &str| data.sources.iter().map(of).collect::<Vec<_>>().join(", ");
        let mut notes = vec![
            ("device", of_sources(|source| &source.device.name)),
            ("measured", of_sources(|source| &source.measured)),
            ("launches", data.rows.len().to_string()),
            ("families", data.families.len().to_string()),
            ("seed", self.options.seed.to_string()),
            ("held out", test.held_out.clone()),
        ];
        let network = test.scores.iter().filter(|score| score.method == NETWORK);
        notes.extend(network.map(|score| {
            let correlation =
                score.correlation.map_or(String::new(), |range| format!(", correlation {:.3}", range.value));
            let (quantity, basis, error) = (&score.quantity, &score.basis, score.median_error.value);
            ("error", format!("{quantity}, {basis}: median {error:.1}{correlation}"))
        }));
        notes
    }

    fn small(&self) -> Result<(TrainedModel, Vec<Test>), Error> {
        let table = self.data.examples(Set::Small, &self.all(), &[Basis::Launch])?;
        let rows: Vec<usize> = (0..table.origin.len()).collect();
        let mut tests = Vec::new();
        let mut last = None;
        let families = self.families(&table);
        for (what, split) in
            [("families, launch alone", &families), ("configurations of known kernels", &rows)]
        {
            let held = self.cross(&table, &self.folds(split)?, &self.recipes.small, &target::all())?;
            let margins = self.margins(&table, &held, &target::all())?;
            let scores = self.scores(&table, (&held, &margins), &target::all(), None)?;
            tests.push(Test { held_out: what.to_owned(), scores });
            last = Some(held);
        }
        let held = last.expect("two tests");
        let notes = self.notes(&tests[1]);
        let made = self.finish((Set::Small, &self.recipes.small, target::all()), &table, &held, &notes)?;
        Ok((made, tests))
    }

    /// The large model, and tests: of families, of other programs, of each device.
    fn large(&self, real: Option<&Data>, timed: &Timed) -> Result<(TrainedModel, Vec<Test>), Error> {
        let bases = [Basis::Kernel, Basis::Code, Basis::Work];
        let table = self.data.examples(Set::Full, &self.all(), &bases)?;
        let folds = self.folds(&self.families(&table))?;
        let held = self.cross(&table, &folds, &self.recipes.large, &target::all())?;
        let margins = self.margins(&table, &held, &target::all())?;
        let mut scores = self.scores(&table, (&held, &margins), &target::all(), None)?;
        scores.extend(self.trees(&table, &[Basis::Kernel, Basis::Work], &target::all())?);
        scores.extend(self.formulas()?);
        scores.order_by_key(place);
        let mut test = Test { held_out: FAMILIES.to_owned(), scores };
        timed.judge(&mut test, self.data);
        let mut notes = self.notes(&test);
        notes.extend(timed.timing.notes());
        let made = self.finish((Set::Full, &self.recipes.large, target::all()), &table, &held, &notes)?;
        let mut tests = vec![test];
        tests.extend(real.map(|real| self.real(real, &made.0)).transpose()?);
        if self.data.sources.len() > 1 {
            tests.extend(self.by_device(&table, (&held, &margins), timed)?);
        }
        Ok((made, tests))
    }

    fn what_if(&self, timed: &Timed) -> Result<(TrainedModel, Test), Error> {
        let bases = [Basis::Kernel, Basis::Work];
        let pairs = self.partners();
        if pairs.is_empty() {
            let why = "no kernel was launched twice on the same problem, so that what-if cannot be learned: collect more rows";
            return Err(Error::Refused(why.to_owned()));
        }
        let table = self.data.pairs(&pairs, &bases)?;
        let folds = self.folds(&self.families(&table))?;
        let held = self.cross(&table, &folds, &self.recipes.what_if, &target::change())?;
        let margins = self.margins(&table, &held, &target::change())?;
        let mut scores = self.scores(&table, (&held, &margins), &target::change(), None)?;
        scores.extend(self.trees(&table, &[Basis::Work], &target::change())?);
        scores.extend(self.unchanged(&table));
        let mut test = Test { held_out: WHAT_IF_FAMILIES.to_owned(), scores };
        timed.judge(&mut test, self.data);
        let made = self.finish(
            (Set::WhatIf, &self.recipes.what_if, target::change()),
            &table,
            &held,
            &self.notes(&test),
        )?;
        Ok((made, test))
    }

    /// Pairs of launches of one kernel on the same problem: to each launch, from some others.
    fn partners(&self) -> Vec<(usize, usize)> {
        let mut of_problem: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, known) in self.data.rows.iter().enumerate() {
            if known.truth.duration_us > 0.0 {
                of_problem.entry(known.problem).or_default().push(row);
            }
        }
        let mut random = Random::for_purpose(self.options.seed, 3);
        let mut pairs = Vec::new();
        for rows in of_problem.values() {
            for &to in rows {
                let mut others: Vec<usize> = rows.iter().copied().filter(|&other| other != to).collect();
                random.shuffle(&mut others);
                pairs.extend(others.into_iter().take(PARTNERS).map(|from| (from, to)));
            }
        }
        pairs
    }
}

/// The name of networks in tables.
const NETWORK: &str = "network";

/// The cases that are held out of the tests of large and of what-if.
const FAMILIES: &str = "families";
const WHAT_IF_FAMILIES: &str = "families, one other launch of the kernel on the same problem is known";

/// Features moved into the ranges that were trained on, as prediction does it.
fn within(features: &FeatureSet, mut inputs: Matrix) -> Matrix {
    for row in 0..inputs.rows() {
        for (value, feature) in inputs.row_mut(row).iter_mut().zip(&features.features) {
            *value = value.clamp(feature.least, feature.greatest);
        }
    }
    inputs
}

fn predict_within(network: &Network, trained: &Matrix, inputs: &Matrix) -> Result<Matrix, Error> {
    let names = vec![""; trained.columns()];
    let features = FeatureSet::seen("", 0, &names, trained)?;
    Ok(Predictor::new(network, Precision::F32).predict_rows(&within(&features, inputs.clone()))?)
}

/// Summary of a network, with the change of its estimates in 8 bits.
fn summary(set: Set, network: &Network, inputs: &Matrix) -> Result<ModelSummary, Error> {
    const SAMPLE: usize = 2000;
    let step = (inputs.rows() / SAMPLE).max(1);
    let sample = inputs.select(&(0..inputs.rows()).step_by(step).collect::<Vec<_>>());
    let outputs = [Precision::F32, Precision::Int8]
        .map(|precision| Predictor::new(network, precision).predict_rows(&sample));
    let [exact, rounded] = outputs;
    let (exact, rounded) = (exact?, rounded?);
    let mut column = 0;
    let cost = |target: &Target| {
        let pairs = exact.column(column).zip(rounded.column(column));
        let cost = |(exact, rounded): (f32, f32)| match target.range {
            apex_model::network::Range::Fraction => 100.0 * f64::from(exact - rounded).abs(),
            apex_model::network::Range::Real => 100.0 * (f64::from(rounded - exact).exp2() - 1.0).abs(),
        };
        column += target.outputs();
        pairs.map(cost).sum::<f64>() / sample.rows() as f64
    };
    let quantising_error = network.targets().iter().map(cost).collect();
    let widths = network.layers().iter().map(|layer| layer.inputs).chain([network.outputs()]).collect();
    Ok(ModelSummary {
        name: set.name().to_owned(),
        widths,
        parameters: network.parameters(),
        examples: inputs.rows(),
        quantising_error,
    })
}
