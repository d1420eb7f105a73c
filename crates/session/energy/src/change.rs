//! The energy of runs before and after a change.

use crate::{Energy, Estimate};
use serde::Serialize;

/// What the compared energies belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergyOf {
    /// An iteration of the steady state.
    Iteration,
    /// A run.
    Run,
}

/// The energy of an iteration or of a run on both sides, all devices together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EnergyChange {
    /// What it is of.
    pub of: EnergyOf,
    /// Joules before: the mean of the runs.
    pub before: Estimate,
    /// Joules after.
    pub after: Estimate,
    /// After by before.
    pub ratio: f64,
    /// Whether the intervals do not meet.
    pub is_resolved: bool,
}

impl EnergyChange {
    /// The change between the runs of two sides. It is of an iteration if each device of each run
    /// has one. `None` where an energy is not known.
    pub fn of(before: &[Energy], after: &[Energy]) -> Option<Self> {
        let iterations = Some(EnergyOf::Iteration).zip(iteration(before).zip(iteration(after)));
        let runs = || Some(EnergyOf::Run).zip(run(before).zip(run(after)));
        let (of, (before, after)) = iterations.or_else(runs)?;
        let is_resolved = before.high < after.low || after.high < before.low;
        Some(Self { of, before, after, ratio: after.value / before.value, is_resolved })
    }
}

fn iteration(runs: &[Energy]) -> Option<Estimate> {
    mean(runs, |run| run.devices.iter().map(|device| device.iteration?.joules).sum())
}

fn run(runs: &[Energy]) -> Option<Estimate> {
    mean(runs, |run| run.devices.iter().map(|device| device.whole.joules_of_all()).sum())
}

fn mean(runs: &[Energy], of: impl Fn(&Energy) -> Option<Estimate>) -> Option<Estimate> {
    let sum = runs.iter().map(of).sum::<Option<Estimate>>()?;
    (!runs.is_empty()).then(|| sum.scaled(1.0 / runs.len() as f64))
}
