//! The part of a history that is shown: the series with a run since a moment.

use apex_ordered::Order;
use serde::Serialize;

use crate::{Change, History, Series};

/// The series, with their changes since a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The moment since which runs and changes are reported; `None` for all.
    pub since: Option<String>,
    /// Runs since then.
    pub runs: usize,
    /// Series with a run since then. Their points are all points, their changes those since then.
    pub series: Vec<Series>,
}

impl Report {
    /// The report of the whole history, or of what ran since a moment (RFC 3339, UTC).
    pub fn of(history: &History, since: Option<&str>) -> Self {
        let is_since = |time: &str| since.is_none_or(|since| time >= since);
        let mut series = Series::all(history);
        series.retain(|series| series.points.iter().any(|point| is_since(&point.time)));
        for series in &mut series {
            series.changes.retain(|change| is_since(&change.time));
        }
        let runs = history.runs.iter().filter(|run| is_since(&run.time)).count();
        Self { since: since.map(str::to_owned), runs, series }
    }

    /// Series and their changes, those that became worse first, and of these the largest.
    pub fn changes(&self) -> Vec<(&Series, &Change)> {
        let all = self.series.iter();
        let mut all: Vec<_> =
            all.flat_map(|series| series.changes.iter().map(move |change| (series, change))).collect();
        let size = |change: &Change| change.factor.map_or(f64::INFINITY, |factor| factor.ln().abs());
        all.order_by(|(_, a), (_, b)| b.is_worse.cmp(&a.is_worse).then(size(b).total_cmp(&size(a))));
        all
    }

    /// The first sentence about it.
    pub fn verdict(&self) -> String {
        let worse = self.changes().iter().filter(|(_, change)| change.is_worse).count();
        let better = self.changes().len() - worse;
        let counted =
            |count: usize, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
        let runs = counted(self.runs, "run", "runs");
        let series = counted(self.series.len(), "figure", "figures");
        match (worse, better) {
            (0, 0) => format!("No change in {series} of {runs}."),
            _ => format!(
                "{} and {}, in {series} of {runs}.",
                counted(worse, "change for the worse", "changes for the worse"),
                counted(better, "for the better", "for the better")
            ),
        }
    }
}

/// The newest values as bars of text, the least one the lowest: `▁▁▂█`.
pub fn sparkline(series: &Series, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let skipped = series.points.len().saturating_sub(width);
    let values = || series.points[skipped..].iter().map(|point| point.value);
    let (low, high) = values()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    // What varies less than a percent is drawn flat: noise is no shape.
    let range = (high - low).max(0.01 * high.abs()).max(f64::MIN_POSITIVE);
    values().map(|value| BARS[((value - low) / range * 7.0).round().clamp(0.0, 7.0) as usize]).collect()
}
