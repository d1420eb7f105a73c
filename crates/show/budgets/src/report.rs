//! Which limits runs keep.

use serde::Serialize;

use crate::measures::Values;
use crate::quantity::Good;
use crate::{Measures, Per, Quantity, Section};

/// What became of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The runs keep it.
    Kept,
    /// They exceed it.
    Exceeded,
    /// A run does not have the figure.
    Missing,
}

/// A limit, and what the runs have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The kernel function; `None` for the whole.
    pub kernel: Option<String>,
    /// The quantity.
    pub quantity: Quantity,
    /// The limit.
    pub limit: f64,
    /// The worst value of a count, or the mean of a time or a share; `None` if a run lacks it.
    pub value: Option<f64>,
    /// What became of it.
    pub outcome: Outcome,
}

/// All limits of a section.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Runs that were judged.
    pub runs: usize,
    /// The limits: first of the whole, then of kernels.
    pub judged: Vec<Judged>,
}

impl Report {
    /// Judges runs by a section. The runs must be of its device and unit.
    pub fn of(section: &Section, runs: &[Measures]) -> Self {
        let whole = section.limits.iter().map(|(&quantity, &limit)| {
            judge(
                None,
                (quantity, section.per),
                limit,
                runs.iter().map(|run| run.whole.get(&quantity).copied()),
            )
        });
        let kernels = section.kernels.iter().flat_map(|(pattern, limits)| {
            limits.iter().map(move |(&quantity, &limit)| {
                let values = runs.iter().map(|run| of_functions(run, pattern, quantity));
                judge(Some(pattern.clone()), (quantity, section.per), limit, values)
            })
        });
        Self { runs: runs.len(), judged: whole.chain(kernels).collect() }
    }

    /// Whether all limits are kept.
    pub fn is_kept(&self) -> bool {
        self.failures().next().is_none()
    }

    /// The limits that are not kept.
    pub fn failures(&self) -> impl Iterator<Item = &Judged> {
        self.judged.iter().filter(|judged| judged.outcome != Outcome::Kept)
    }
}

impl Judged {
    /// What it is about: `step_ms`, or `sectors of saxpy`.
    pub fn what(&self) -> String {
        match &self.kernel {
            None => self.quantity.name().to_owned(),
            Some(kernel) => format!("{} of {kernel}", self.quantity.name()),
        }
    }

    /// What became of it, as a sentence without its subject.
    pub fn said(&self) -> String {
        let side = match self.quantity.good() {
            Good::AtMost => "at most",
            Good::AtLeast => "at least",
        };
        let limit = number(self.limit);
        match (self.value, self.outcome) {
            (None, _) => format!("is not known of each run, and must be {side} {limit}"),
            (Some(value), Outcome::Kept) => format!("is {}, and must be {side} {limit}", number(value)),
            (Some(value), _) => {
                format!("is {}{}, but must be {side} {limit}", number(value), self.change(value))
            }
        }
    }

    fn change(&self, value: f64) -> String {
        match self.limit > 0.0 {
            true => format!(" ({:+.1}%)", 100.0 * (value / self.limit - 1.0)),
            false => String::new(),
        }
    }
}

/// A number with at most four significant digits behind the point.
pub fn number(value: f64) -> String {
    let digits = if value.fract() == 0.0 || value.abs() >= 1e4 {
        0
    } else {
        (3 - value.abs().max(1e-3).log10().floor() as i32).max(0)
    };
    format!("{value:.*}", digits as usize)
}

fn judge(
    kernel: Option<String>,
    (quantity, per): (Quantity, Per),
    limit: f64,
    values: impl Iterator<Item = Option<f64>>,
) -> Judged {
    let values: Option<Vec<f64>> = values.collect();
    let value = values.filter(|values| !values.is_empty()).map(|values| {
        match (quantity.is_exact(per), quantity.good()) {
            (false, _) => values.iter().sum::<f64>() / values.len() as f64,
            (true, Good::AtMost) => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            (true, Good::AtLeast) => values.iter().copied().fold(f64::INFINITY, f64::min),
        }
    });
    let outcome = match value {
        None => Outcome::Missing,
        Some(value) if quantity.keeps(value, limit) => Outcome::Kept,
        Some(_) => Outcome::Exceeded,
    };
    Judged { kernel, quantity, limit, value, outcome }
}

/// The figure of the functions that a pattern names: sums, but of means and shares the worst.
/// `None` if no such function ran: it may have another name now, and a limit that nobody judges
/// helps nobody.
fn of_functions(run: &Measures, pattern: &str, quantity: Quantity) -> Option<f64> {
    let named = run.kernels.iter().filter(|(name, _)| matches(pattern, name)).map(|(_, values)| values);
    let known = named.filter_map(|values: &Values| values.get(&quantity).copied());
    match quantity {
        Quantity::KernelUs => known.reduce(f64::max),
        Quantity::OccupancyPercent => known.reduce(f64::min),
        _ => known.reduce(|a, b| a + b),
    }
}

/// Whether a name has the form of a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or("");
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}
