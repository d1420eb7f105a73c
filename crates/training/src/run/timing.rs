//! Computed durations: rates fitted, and judged as networks are. Rates and margins with which a
//! family is judged come from other families.

use super::{FOLDS, Run};
use crate::Error;
use crate::judge::{Cases, Quantity};
use crate::rates::{self, Launch};
use crate::report::Score;
use apex_model::evaluate::{Fold, folds, quantile};
use apex_predict::Basis;
use apex_predict::timing::{CHANGES, Computed, Demand, Margin, Rates, SIZES, Timing};

/// The name of computed durations in tables.
pub(super) const COMPUTED: &str = "computed";
/// Errors that a margin needs at least, and the margin where there are fewer.
const FEW: usize = 50;
const UNKNOWN: Margin = [-2.0, 2.0];
/// Where margins begin and end among the errors.
const ENDS: [f64; 2] = [0.05, 0.95];

/// A prediction of a launch of a family that its rates were not fitted to.
struct Held {
    us: f64,
    class: usize,
    row: usize,
    fold: usize,
}

/// The timing of the final models, and how good it is.
pub(super) struct Timed {
    pub(super) timing: Timing,
    pub(super) duration: Option<Score>,
    pub(super) change: Option<Score>,
}

impl Run<'_> {
    pub(super) fn timing(&self) -> Result<Timed, Error> {
        let demands = self.demands()?;
        let families: Vec<usize> = self.data.rows.iter().map(|row| row.family).collect();
        let mut computed: Vec<Option<(Computed, usize)>> = vec![None; demands.len()];
        for (fold, Fold { train, test }) in
            folds(&families, FOLDS, self.options.seed)?.into_iter().enumerate()
        {
            let rates = self.rates(&demands, &train)?;
            for row in test {
                computed[row] = demands[row].as_ref().map(|demand| (demand.computed(&rates), fold));
            }
        }
        let durations: Vec<Held> = (0..demands.len())
            .filter_map(|row| {
                let (computed, fold) = computed[row]?;
                Some(Held { us: computed.us, class: computed.size(), row, fold })
            })
            .collect();
        let changes: Vec<Held> = self
            .partners()
            .into_iter()
            .filter_map(|(from, row)| {
                let ((before, _), (after, fold)) = (computed[from]?, computed[row]?);
                let us = after.after(&before, f64::from(self.measured(from)));
                Some(Held { us, class: after.change(&before), row, fold })
            })
            .collect();
        let all: Vec<usize> = (0..demands.len()).collect();
        Ok(Timed {
            timing: Timing {
                rates: self.rates(&demands, &all)?,
                margins: std::array::from_fn::<_, SIZES, _>(|size| self.margin(&durations, size, None)),
                changes: std::array::from_fn::<_, CHANGES, _>(|class| self.margin(&changes, class, None)),
            },
            duration: self.judged(&durations, Quantity::Duration),
            change: self.judged(&changes, Quantity::DurationWhatIf),
        })
    }

    fn measured(&self, row: usize) -> f32 {
        self.data.rows[row].truth.duration_us
    }

    /// What each launch asks for, where it is known what it executes.
    fn demands(&self) -> Result<Vec<Option<Demand>>, Error> {
        let demand = |row: &crate::examples::Row| Ok(Demand::of(&self.data.place(&row.case)?));
        self.data.rows.iter().map(demand).collect()
    }

    fn rates(&self, demands: &[Option<Demand>], rows: &[usize]) -> Result<Rates, Error> {
        let launch = |&row: &usize| -> Option<Launch<'_>> {
            let measured = f64::from(self.measured(row));
            Some((demands[row].as_ref().filter(|_| measured > 0.0)?, measured))
        };
        let launches: Vec<Launch<'_>> = rows.iter().filter_map(launch).collect();
        rates::fit(&launches, self.recipes.steps, self.pool.stop)
    }

    /// The margin of a class, from cases outside of a fold.
    fn margin(&self, cases: &[Held], class: usize, outside: Option<usize>) -> Margin {
        let own = cases.iter().filter(|case| case.class == class && Some(case.fold) != outside);
        let errors = own.map(|case| (f64::from(self.measured(case.row)) / case.us).log2());
        let errors: Vec<f64> = errors.filter(|error| error.is_finite()).collect();
        let end = |level: f64| quantile(&errors, level).filter(|_| errors.len() >= FEW);
        let [low, high] = ENDS.map(end);
        let rounded = |end: f64| (1e4 * end).round() / 1e4;
        low.zip(high).map_or(UNKNOWN, |(low, high)| [rounded(low), rounded(high)])
    }

    fn judged(&self, held: &[Held], quantity: Quantity) -> Option<Score> {
        let margins: Vec<Vec<Margin>> = (0..FOLDS)
            .map(|fold| (0..SIZES.max(CHANGES)).map(|class| self.margin(held, class, Some(fold))).collect())
            .collect();
        let mut cases = Cases::default();
        for case in held {
            let [low, high] = margins[case.fold][case.class].map(|end| (case.us * end.exp2()) as f32);
            let us = case.us as f32;
            let family = self.data.rows[case.row].family;
            cases.push(us, Some((low.min(us), high.max(us))), self.measured(case.row), family);
        }
        cases.score(COMPUTED, quantity, Basis::Work, &self.data.families)
    }
}
