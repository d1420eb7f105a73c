//! Scores of the networks: on the families that they have not seen, and on other programs' kernels.

use super::timing::Timed;
use super::{COVERAGE, FOLDS, HeldOut, NETWORK, Run, within};
use crate::Error;
use crate::examples::{Data, Origin, Source, Table};
use crate::judge::{Cases, Quantity};
use crate::report::{Score, Test};
use apex_model::forecast::{Calibration, Spread};
use apex_model::network::Target;
use apex_model::{Model, Precision, Predictor, Regressor};
use apex_ordered::Order;
use apex_predict::features::Set;
use apex_predict::{Basis, Device, target};
use std::collections::BTreeMap;

/// The margin of each target, for each fold.
pub(super) type Margins = Vec<Vec<Calibration>>;

impl Run<'_> {
    /// For each fold, margins of the targets from the examples of the other folds.
    pub(super) fn margins(
        &self,
        table: &Table,
        held: &HeldOut,
        targets: &[Target],
    ) -> Result<Margins, Error> {
        let families = self.families(table);
        let margins = (0..FOLDS).map(|fold| {
            let others: Vec<usize> = (0..families.len()).filter(|&row| held.fold[row] != fold).collect();
            calibrations(targets, table, held, &families, &others)
        });
        margins.collect()
    }

    /// Scores of the networks on held-out examples of all devices, or of one.
    pub(super) fn scores(
        &self,
        table: &Table,
        (held, margins): (&HeldOut, &Margins),
        targets: &[Target],
        source: Option<usize>,
    ) -> Result<Vec<Score>, Error> {
        let families = self.families(table);
        let mut cases: BTreeMap<(Quantity, Basis), Cases> = BTreeMap::new();
        for (row, origin) in table.origin.iter().enumerate() {
            let counts = source.is_none_or(|source| self.data.rows[origin.row].source == source);
            if !counts || held.outputs[row].is_empty() {
                continue;
            }
            let mut first = 0;
            for (index, target) in targets.iter().enumerate() {
                let outputs = &held.outputs[row][first..first + target.outputs()];
                first += target.outputs();
                let interval = margins[held.fold[row]][index].interval(outputs, target.range);
                let shown = self.shown(self.data, origin, index)?;
                let interval = shown.interval(interval, outputs[0]);
                // A target that was not learned is not judged.
                if !table.targets[row][index].is_nan() {
                    let cases = cases.entry((shown.quantity, origin.basis)).or_default();
                    cases.push(shown.figure(outputs[0]), Some(interval), shown.truth, families[row]);
                }
            }
        }
        Ok(scores(&cases, NETWORK, &self.data.families))
    }

    /// Tests on each of several devices alone: by what was trained on all, and by what was trained
    /// on the others.
    pub(super) fn by_device(
        &self,
        table: &Table,
        (held, margins): (&HeldOut, &Margins),
        timed: &Timed,
    ) -> Result<Vec<Test>, Error> {
        let targets = target::all();
        let folds = self.away(&self.families(table), |example| table.origin[example].row)?;
        let away = self.cross(table, &folds, &self.recipes.away(), &targets)?;
        let mut tests = Vec::new();
        for (source, Source { device, .. }) in self.data.sources.iter().enumerate() {
            for (known, held) in [(true, held), (false, &away)] {
                let mut scores = self.scores(table, (held, margins), &targets, Some(source))?;
                scores.order_by_key(place);
                let mut test = Test { held_out: held_out_on(device, known), scores };
                timed.judge(&mut test, self.data);
                tests.push(test);
            }
        }
        Ok(tests)
    }

    /// The quantity that a target of an example stands for.
    pub(super) fn shown(&self, data: &Data, origin: &Origin, target: usize) -> Result<Output, Error> {
        let row = &data.rows[origin.row];
        let truth = &row.truth;
        let case = row.known(origin.basis);
        let placed = data.place(origin.row, &case)?;
        if let Some(from) = origin.from {
            let before = data.rows[from].known(origin.basis);
            let bounds = placed.least_duration_us() / data.place(from, &before)?.least_duration_us();
            let scale = data.rows[from].truth.duration_us * bounds as f32;
            return Ok(Output { quantity: Quantity::DurationWhatIf, scale, truth: truth.duration_us });
        }
        let quantity = Quantity::PREDICTED[target];
        let (scale, truth) = match quantity {
            Quantity::AchievedOccupancy => (placed.occupancy_bound() as f32, truth.achieved_occupancy),
            Quantity::SmUtilisation => (1.0, truth.sm_utilisation),
            Quantity::WarpEfficiency => (placed.warp_efficiency_bound() as f32, truth.warp_efficiency),
            Quantity::Duration | Quantity::DurationWhatIf => {
                (placed.least_duration_us() as f32, truth.duration_us)
            }
        };
        Ok(Output { quantity, scale, truth })
    }

    /// The final large model on other programs' kernels.
    pub(super) fn real(&self, real: &Data, model: &Model) -> Result<Test, Error> {
        let rows: Vec<usize> = (0..real.rows.len()).collect();
        let table = real.examples(Set::Full, &rows, &[Basis::Kernel])?;
        let inputs = within(model.features(), table.matrix()?);
        let outputs = Predictor::new(model.network(), Precision::F32).predict_rows(&inputs)?;
        let mut cases: BTreeMap<(Quantity, Basis), Cases> = BTreeMap::new();
        let (mut bound, mut lanes) = (Cases::default(), Cases::default());
        for (origin, outputs) in table.origin.iter().zip(outputs.iter()) {
            let mut first = 0;
            for (index, target) in model.network().targets().iter().enumerate() {
                let own = &outputs[first..first + target.outputs()];
                first += target.outputs();
                let shown = self.shown(real, origin, index)?;
                if shown.quantity == Quantity::Duration {
                    continue;
                }
                let interval = model.calibrations()[index]
                    .map(|calibration| shown.interval(calibration.interval(own, target.range), own[0]));
                let family = real.rows[origin.row].family;
                let cases = cases.entry((shown.quantity, origin.basis)).or_default();
                cases.push(shown.figure(own[0]), interval, shown.truth, family);
                match shown.quantity {
                    Quantity::AchievedOccupancy => bound.push(shown.scale, None, shown.truth, family),
                    Quantity::WarpEfficiency => {
                        let threads = real.rows[origin.row].case.launch.threads_per_block() as u32;
                        lanes.push(
                            occupancy::block_efficiency(threads, 32) as f32,
                            None,
                            shown.truth,
                            family,
                        );
                    }
                    _ => {}
                }
            }
        }
        let mut scores = scores(&cases, NETWORK, &real.families);
        let formulas = [
            bound.score(
                "theoretical, limited by the grid",
                Quantity::AchievedOccupancy,
                Basis::Kernel,
                &real.families,
            ),
            lanes.score("block efficiency", Quantity::WarpEfficiency, Basis::Kernel, &real.families),
        ];
        scores.extend(formulas.into_iter().flatten());
        scores.order_by_key(|score| order(&score.quantity));
        Ok(Test { held_out: "real programs, never trained on".to_owned(), scores })
    }
}

/// An output as people know it.
pub(super) struct Output {
    pub(super) quantity: Quantity,
    pub(super) scale: f32,
    pub(super) truth: f32,
}

impl Output {
    /// A calibrated interval, extended to the estimate if that lies outside.
    fn interval(&self, (low, high): (f32, f32), estimate: f32) -> (f32, f32) {
        (self.figure(low.min(estimate)), self.figure(high.max(estimate)))
    }

    pub(super) fn figure(&self, output: f32) -> f32 {
        match self.quantity {
            Quantity::Duration | Quantity::DurationWhatIf => self.scale * output.exp2(),
            _ => self.scale * output,
        }
    }
}

/// The position of a quantity in tables.
pub(super) fn order(quantity: &str) -> usize {
    Quantity::PREDICTED.iter().position(|other| other.name() == quantity).unwrap_or(usize::MAX)
}

impl Test {
    /// Adds a score behind those of its quantity and basis.
    pub(super) fn insert(&mut self, score: Score) {
        let before = self.scores.iter().rposition(|other| place(other) <= place(&score));
        self.scores.insert(before.map_or(0, |last| last + 1), score);
    }
}

/// The place of a score in tables.
pub(super) fn place(score: &Score) -> (usize, String) {
    (order(&score.quantity), score.basis.clone())
}

/// Describes the cases that are held out of a test on one of several devices, which is `known` if
/// other families' launches on it were trained on.
pub(super) fn held_out_on(device: &Device, known: bool) -> String {
    let end = if known { "" } else { ", none of which was trained on" };
    format!("families, launches on the {}{end}", device.name)
}

/// Scores of a method for each quantity and basis.
pub(super) fn scores(
    cases: &BTreeMap<(Quantity, Basis), Cases>,
    method: &str,
    families: &[String],
) -> Vec<Score> {
    cases
        .iter()
        .filter_map(|((quantity, basis), cases)| cases.score(method, *quantity, *basis, families))
        .collect()
}

/// For each target, margins from some of the examples that were held out.
pub(super) fn calibrations(
    targets: &[Target],
    table: &Table,
    held: &HeldOut,
    families: &[usize],
    rows: &[usize],
) -> Result<Vec<Calibration>, Error> {
    let mut first = 0;
    let calibration = |(index, target): (usize, &Target)| {
        let own = first..first + target.outputs();
        first = own.end;
        let known: Vec<usize> =
            rows.iter().copied().filter(|&row| !table.targets[row][index].is_nan()).collect();
        let outputs: Vec<&[f32]> = known.iter().map(|&row| &held.outputs[row][own.clone()]).collect();
        let truths: Vec<f32> = known.iter().map(|&row| table.targets[row][index]).collect();
        let groups: Vec<usize> = known.iter().map(|&row| families[row]).collect();
        Ok(Calibration::new(target, Spread::Between, &outputs, &truths, Some(&groups), COVERAGE)?)
    };
    targets.iter().enumerate().map(calibration).collect()
}
