//! Scores of the plain methods on the same folds: boosted trees, formulas, no change.

use super::judgement::scores;
use super::{FOLDS, Run};
use crate::Error;
use crate::examples::{Row, Table};
use crate::judge::{Cases, Quantity};
use crate::report::Score;
use apex_model::baseline::{Boosting, Trees};
use apex_model::evaluate::{Fold, folds, quantile};
use apex_model::network::Target;
use apex_model::train::Examples;
use apex_model::{Matrix, Regressor};
use apex_predict::Basis;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The name in tables of the durations of another run.
pub(super) const AGAIN: &str = "measured again";
/// Launches that tell by what two ways of measuring differ are shorter, microseconds.
const SHORT_US: f32 = 10.0;

impl Run<'_> {
    /// Boosted trees on the same features and folds.
    pub(super) fn trees(
        &self,
        table: &Table,
        bases: &[Basis],
        targets: &[Target],
    ) -> Result<Vec<Score>, Error> {
        if self.recipes.trees == 0 {
            return Ok(Vec::new());
        }
        let (inputs, families) = (table.matrix()?, self.families(table));
        let mut cases: BTreeMap<(Quantity, Basis), Cases> = BTreeMap::new();
        for Fold { train, test } in folds(&families, FOLDS, self.options.seed)? {
            for &basis in bases {
                let of_basis = |rows: &[usize]| -> Vec<usize> {
                    rows.iter().copied().filter(|&row| table.origin[row].basis == basis).collect()
                };
                let (train, test) = (of_basis(&train), of_basis(&test));
                for (index, target) in targets.iter().enumerate() {
                    let known = |rows: &[usize]| -> Vec<usize> {
                        rows.iter().copied().filter(|&row| !table.targets[row][index].is_nan()).collect()
                    };
                    let (train, test) = (known(&train), known(&test));
                    if train.is_empty() || test.is_empty() {
                        continue;
                    }
                    let found = self.tree(&inputs, table, (index, target), &train, &test)?;
                    for (&row, found) in test.iter().zip(found) {
                        let shown = self.shown(self.data, &table.origin[row], index)?;
                        let cases = cases.entry((shown.quantity, basis)).or_default();
                        cases.push(shown.figure(found), None, shown.truth, families[row]);
                    }
                }
                self.pool.done.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(scores(&cases, "boosted trees", &self.data.families))
    }

    /// Predictions of a target by trees that were grown on other rows.
    pub(super) fn tree(
        &self,
        inputs: &Matrix,
        table: &Table,
        (index, target): (usize, &Target),
        train: &[usize],
        test: &[usize],
    ) -> Result<Vec<f32>, Error> {
        if self.pool.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let mut truths = Matrix::empty(1);
        train.iter().try_for_each(|&row| truths.push(&[table.targets[row][index]]))?;
        let examples = Examples::new(inputs.select(train), truths)?;
        let (seed, threads) = (self.options.seed, self.options.threads);
        let boosting =
            Boosting { seed, rate: 0.1, threads, trees: self.recipes.trees, ..Boosting::default() };
        let found = Trees::fit(&examples, &[target.range], &boosting)?.predict_rows(&inputs.select(test))?;
        Ok(found.column(0).collect())
    }

    /// Predictions of the formulas.
    pub(super) fn formulas(&self) -> Result<Vec<Score>, Error> {
        let [mut theory, mut bound, mut lanes, mut walked, mut roofline] =
            std::array::from_fn(|_| Cases::default());
        for (number, row) in self.data.rows.iter().enumerate() {
            let placed = self.data.place(number, &row.case)?;
            let truth = &row.truth;
            let efficiency =
                occupancy::block_efficiency(row.case.launch.threads_per_block() as u32, 32) as f32;
            theory.push(placed.occupancy.fraction() as f32, None, truth.achieved_occupancy, row.family);
            bound.push(placed.occupancy_bound() as f32, None, truth.achieved_occupancy, row.family);
            lanes.push(efficiency, None, truth.warp_efficiency, row.family);
            if row.basis() == Basis::Work {
                walked.push(placed.warp_efficiency_bound() as f32, None, truth.warp_efficiency, row.family);
                roofline.push(placed.least_duration_us() as f32, None, truth.duration_us, row.family);
            }
        }
        let families = &self.data.families;
        let scores = [
            theory.score("theoretical occupancy", Quantity::AchievedOccupancy, Basis::Kernel, families),
            bound.score(
                "the same, limited by the grid",
                Quantity::AchievedOccupancy,
                Basis::Kernel,
                families,
            ),
            lanes.score("block efficiency", Quantity::WarpEfficiency, Basis::Kernel, families),
            walked.score("walked warps", Quantity::WarpEfficiency, Basis::Work, families),
            roofline.score("least duration", Quantity::Duration, Basis::Work, families),
            self.measured_again(),
        ];
        Ok(scores.into_iter().flatten().collect())
    }

    /// The durations of another run, which was timed by events: what is between the two ways of
    /// measuring is taken from the short launches of the device.
    pub(super) fn measured_again(&self) -> Option<Score> {
        let mut cases = Cases { signed: true, ..Cases::default() };
        for source in 0..self.data.sources.len() {
            let own = || self.data.rows.iter().filter(|row| row.source == source);
            let short = own().map(|row| &row.truth).filter(|truth| truth.duration_us < SHORT_US);
            let between = short.map(|truth| f64::from(truth.duration_us - truth.event_us));
            let between: Vec<f64> = between.filter(|us| us.is_finite()).collect();
            let Some(between) = quantile(&between, 0.5) else { continue };
            for Row { truth, family, .. } in own().filter(|row| row.truth.event_us.is_finite()) {
                cases.push(truth.event_us + between as f32, None, truth.duration_us, *family);
            }
        }
        cases.score(AGAIN, Quantity::Duration, Basis::Work, &self.data.families)
    }

    /// The what-if baseline: nothing changes.
    pub(super) fn unchanged(&self, table: &Table) -> Option<Score> {
        let mut cases = Cases::default();
        for origin in table.origin.iter().filter(|origin| origin.basis == Basis::Work) {
            let (Some(from), row) = (origin.from, &self.data.rows[origin.row]) else { continue };
            cases.push(self.data.rows[from].truth.duration_us, None, row.truth.duration_us, row.family);
        }
        cases.score("no change", Quantity::DurationWhatIf, Basis::Work, &self.data.families)
    }
}
