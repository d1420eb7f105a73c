//! Computed durations: rates fitted, and judged as networks are. Rates and margins with which a
//! family is judged come from other families, and where a device is left out, from other devices.

use super::judgement::held_out_on;
use super::{FAMILIES, FOLDS, Run, WHAT_IF_FAMILIES};
use crate::Error;
use crate::examples::Data;
use crate::fit::rounded;
use crate::judge::{Cases, Quantity};
use crate::rates::{self, Busy, Launch};
use crate::report::{Score, Test};
use apex_model::evaluate::{Fold, quantile};
use apex_ordered::Gather;
use apex_predict::Basis;
use apex_predict::throughput::{LEVELS, Loads, Occupation, level};
use apex_predict::timing::{
    CHANGES, Computed, Demand, DeviceRates, KIND_NAMES, Margin, Margins, Rate, Rates, SIZES, Timing,
};
use std::collections::BTreeSet;

/// The name of what is computed in tables.
pub(super) const COMPUTED: &str = "computed";
/// Errors that a margin needs at least, and the margin where there are fewer.
const FEW: usize = 50;
const UNKNOWN: Margin = [-2.0, 2.0];
/// The quantiles of errors at which margins begin and end.
const ENDS: [f64; 2] = [0.05, 0.95];

/// A launch of which it is known what it executes.
struct LaunchDemand {
    demand: Demand,
    occupation: Occupation,
}

/// The computed figures of a launch, by rates and loads that were fitted without its family.
#[derive(Clone, Copy)]
struct ComputedLaunch {
    computed: Computed,
    utilisation: f64,
    fold: usize,
}

/// A figure of a launch, by rates and loads that were fitted without its family.
struct HeldOutFigure {
    value: f64,
    class: usize,
    /// The kind of parts that takes longest.
    kind: usize,
    row: usize,
    fold: usize,
}

/// Figures of one quantity: durations, durations after a measured launch, or SM throughput.
struct Figures {
    quantity: Quantity,
    held: Vec<HeldOutFigure>,
}

/// The rates and loads of the final models, and their scores.
pub(super) struct Timed {
    pub(super) timing: Timing,
    /// Scores: of durations, of durations after a measured launch, of SM throughput.
    pub(super) scores: [Option<Score>; 3],
    /// Those of each of several devices: with what was fitted to launches on it, too, ...
    pub(super) home: Vec<[Option<Score>; 3]>,
    /// ... and with rates, loads and margins of the other devices.
    pub(super) away: Vec<[Option<Score>; 3]>,
}

impl Timed {
    /// Puts the scores of what is computed into a test, in place of those that it has.
    pub(super) fn judge(&self, test: &mut Test, data: &Data) {
        test.scores.retain(|score| score.method != COMPUTED);
        self.scores_of(&test.held_out, data).into_iter().flatten().for_each(|score| test.insert(score));
    }

    fn scores_of(&self, held_out: &str, data: &Data) -> [Option<Score>; 3] {
        let [duration, change, utilisation] = self.scores.clone();
        match held_out {
            FAMILIES => [duration, utilisation, None],
            WHAT_IF_FAMILIES => [change, None, None],
            _ => {
                let of_device = |(source, known): (usize, bool)| {
                    let device = &data.sources[source].device;
                    let scores = if known { &self.home } else { &self.away };
                    (held_out_on(device, known) == held_out).then(|| scores[source].clone())
                };
                let tests = (0..data.sources.len()).flat_map(|source| [(source, true), (source, false)]);
                tests.filter_map(of_device).next().unwrap_or_default()
            }
        }
    }
}

impl Run<'_> {
    pub(super) fn timing(&self) -> Result<Timed, Error> {
        let asked = self.asked()?;
        let families: Vec<usize> = self.data.rows.iter().map(|row| row.family).collect();
        let home = self.figures(&self.computed(&asked, &self.folds(&families)?)?);
        let devices = self.data.sources.len();
        let folds = if devices > 1 { self.away(&families, |row| row)? } else { Vec::new() };
        let away = self.figures(&self.computed(&asked, &folds)?);
        let all: Vec<usize> = (0..asked.len()).collect();
        let (rates, loads) = self.fitted(&asked, &all)?;
        let each = |figures: &[Figures; 3], known: bool| -> Vec<[Option<Score>; 3]> {
            (0..devices).map(|device| self.judged(figures, Some(device), known)).collect()
        };
        let (near, far) = (self.margins_of(&home, true), self.margins_of(&away, false));
        Ok(Timed {
            timing: Timing { rates, loads, home: near, away: far },
            scores: self.judged(&home, None, true),
            home: each(&home, true),
            away: each(&away, false),
        })
    }

    /// Returns the demand of each launch for which it is known what it executes.
    fn asked(&self) -> Result<Vec<Option<LaunchDemand>>, Error> {
        let asked = |row: usize| {
            let placed = self.data.place(row, &self.data.rows[row].case)?;
            let both = Demand::of(&placed).zip(Occupation::of(&placed));
            Ok(both.map(|(demand, occupation)| LaunchDemand { demand, occupation }))
        };
        (0..self.data.rows.len()).map(asked).collect()
    }

    /// Computes the figures of each fold's launches, with rates and loads that were fitted to those
    /// that the fold is trained on.
    fn computed(
        &self,
        asked: &[Option<LaunchDemand>],
        folds: &[Fold],
    ) -> Result<Vec<Option<ComputedLaunch>>, Error> {
        let mut said = vec![None; asked.len()];
        for (number, Fold { train, test }) in folds.iter().enumerate() {
            let (rates, loads) = self.fitted(asked, train)?;
            for &row in test {
                said[row] = asked[row].as_ref().map(|LaunchDemand { demand, occupation }| {
                    let computed = demand.computed(&rates.on(self.data.device(row)));
                    let utilisation = occupation.utilisation(&loads, computed.us);
                    ComputedLaunch { computed, utilisation, fold: number % FOLDS }
                });
            }
        }
        Ok(said)
    }

    fn figures(&self, said: &[Option<ComputedLaunch>]) -> [Figures; 3] {
        let all = |of: fn(&ComputedLaunch) -> (f64, usize)| -> Vec<HeldOutFigure> {
            let held = |(row, said): (usize, &Option<ComputedLaunch>)| {
                let said = said.as_ref()?;
                let (value, class) = of(said);
                Some(HeldOutFigure { value, class, kind: said.computed.kind, row, fold: said.fold })
            };
            said.iter().enumerate().filter_map(held).collect()
        };
        let change = |(from, row): (usize, usize)| {
            let (before, ComputedLaunch { computed: after, fold, .. }) = (said[from]?.computed, said[row]?);
            let value = after.after(&before, self.duration(from));
            Some(HeldOutFigure { value, class: after.change(&before), kind: after.kind, row, fold })
        };
        [
            Figures {
                quantity: Quantity::Duration,
                held: all(|ComputedLaunch { computed, .. }| (computed.us, computed.size())),
            },
            Figures {
                quantity: Quantity::DurationWhatIf,
                held: self.partners().into_iter().filter_map(change).collect(),
            },
            Figures {
                quantity: Quantity::SmUtilisation,
                held: all(|ComputedLaunch { utilisation, .. }| (*utilisation, level(*utilisation))),
            },
        ]
    }

    fn duration(&self, row: usize) -> f64 {
        f64::from(self.data.rows[row].truth.duration_us)
    }

    /// Rates and loads that are fitted to some launches: loads to as long as these are computed to
    /// take.
    fn fitted(&self, asked: &[Option<LaunchDemand>], rows: &[usize]) -> Result<(DeviceRates, Loads), Error> {
        let rates = self.rates(asked, rows)?;
        let launch = |&row: &usize| -> Option<Busy<'_>> {
            let LaunchDemand { demand, occupation } = asked[row].as_ref()?;
            let share = f64::from(self.data.rows[row].truth.sm_utilisation);
            let us = demand.computed(&rates.on(self.data.device(row))).us;
            (!share.is_nan()).then_some((occupation, us, share))
        };
        let launches: Vec<Busy<'_>> = rows.iter().filter_map(launch).collect();
        let loads = rates::loads(&launches, self.recipes.steps, self.pool.stop)?;
        Ok((rates, loads))
    }

    /// Rates that are fitted to launches, on whichever devices these ran.
    fn rates(&self, asked: &[Option<LaunchDemand>], rows: &[usize]) -> Result<DeviceRates, Error> {
        let source = |row: usize| self.data.rows[row].source;
        let devices: Vec<usize> =
            rows.iter().map(|&row| source(row)).gathered::<BTreeSet<_>>().into_iter().collect();
        let launch = |&row: &usize| -> Option<Launch<'_>> {
            let measured = self.duration(row);
            let device = devices.binary_search(&source(row)).ok()?;
            Some((&asked[row].as_ref().filter(|_| measured > 0.0)?.demand, measured, device))
        };
        let launches: Vec<Launch<'_>> = rows.iter().filter_map(launch).collect();
        let rates = rates::fit(&launches, self.recipes.steps, self.pool.stop)?;
        let start = |(rates, &device): (&Rates, &usize)| {
            (self.data.sources[device].device.name.clone(), rates.get(Rate::Start))
        };
        let starts: Vec<(String, f64)> = rates.iter().zip(&devices).map(start).collect();
        let mean = starts.iter().map(|(_, us)| us).sum::<f64>() / starts.len() as f64;
        let elsewhere = rates.first().map(|rates| rates.with(Rate::Start, rounded(mean)));
        Ok(DeviceRates { elsewhere: elsewhere.unwrap_or(Rates::PRIOR), starts })
    }

    /// The margin of a class, from the figures that count. That of a device that is not `known` is
    /// as large to either side: the others' errors do not say to which side it differs from them.
    fn margin(
        &self,
        figures: &Figures,
        class: usize,
        known: bool,
        counts: impl Fn(&HeldOutFigure) -> bool,
    ) -> Margin {
        let own = figures.held.iter().filter(|held| held.class == class && counts(held));
        let errors = own.map(|held| match figures.quantity {
            Quantity::SmUtilisation => self.truth(figures, held) - held.value,
            _ => (self.truth(figures, held) / held.value).log2(),
        });
        let errors: Vec<f64> = errors.filter(|error| error.is_finite()).collect();
        let end = |errors: &[f64], level: f64| quantile(errors, level).filter(|_| errors.len() >= FEW);
        let [low, high] = match known {
            true => ENDS.map(|level| end(&errors, level)),
            false => {
                let sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
                let size = end(&sizes, ENDS[1] - ENDS[0]);
                [size.map(|size| -size), size]
            }
        };
        let rounded = |end: f64| (1e4 * end).round() / 1e4;
        low.zip(high).map_or(UNKNOWN, |(low, high)| [rounded(low), rounded(high)])
    }

    fn truth(&self, figures: &Figures, held: &HeldOutFigure) -> f64 {
        match figures.quantity {
            Quantity::SmUtilisation => f64::from(self.data.rows[held.row].truth.sm_utilisation),
            _ => self.duration(held.row),
        }
    }

    fn margins_of(&self, [durations, changes, utilisations]: &[Figures; 3], known: bool) -> Margins {
        let margin = |figures: &Figures, class: usize| self.margin(figures, class, known, |_| true);
        Margins {
            durations: std::array::from_fn(|class| margin(durations, class)),
            changes: std::array::from_fn(|class| margin(changes, class)),
            utilisations: std::array::from_fn(|class| margin(utilisations, class)),
        }
    }

    /// Scores of one device or of all. Margins are from other folds, and from other devices unless
    /// the device is `known`.
    fn judged(&self, all: &[Figures; 3], device: Option<usize>, known: bool) -> [Option<Score>; 3] {
        let source = |held: &HeldOutFigure| self.data.rows[held.row].source;
        let judged = |figures: &Figures| {
            let counts = |fold: usize, held: &HeldOutFigure| {
                held.fold != fold && (known || Some(source(held)) != device)
            };
            let of_fold = |fold: usize| -> Vec<Margin> {
                let classes = 0..SIZES.max(CHANGES).max(LEVELS);
                classes.map(|class| self.margin(figures, class, known, |held| counts(fold, held))).collect()
            };
            let margins: Vec<Vec<Margin>> = (0..FOLDS).map(of_fold).collect();
            let mut cases = Cases { signed: true, ..Cases::default() };
            let mut kinds = Vec::new();
            for held in figures.held.iter().filter(|held| device.is_none_or(|of| of == source(held))) {
                let value = held.value;
                let [low, high] = margins[held.fold][held.class].map(|end| match figures.quantity {
                    Quantity::SmUtilisation => (value + end).clamp(0.0, 1.0),
                    _ => value * end.exp2(),
                });
                let interval = (low.min(value) as f32, high.max(value) as f32);
                let family = self.data.rows[held.row].family;
                let truth = self.truth(figures, held) as f32;
                cases.push(value as f32, Some(interval), truth, family);
                kinds.extend((!truth.is_nan()).then_some(held.kind));
            }
            let mut score = cases.score(COMPUTED, figures.quantity, Basis::Work, &self.data.families)?;
            if figures.quantity == Quantity::Duration {
                score.parts = cases.by_group(figures.quantity, &kinds, &KIND_NAMES.map(str::to_owned));
            }
            Some(score)
        };
        all.each_ref().map(judged)
    }
}
