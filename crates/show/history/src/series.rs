//! One figure over the runs, and where it changed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Figures, History, Run, Values};

/// Figures of which more is better; of all others, less is.
const MORE_IS_BETTER: [&str; 2] = ["gpu_busy_percent", "occupancy_percent"];

/// A figure of a program on a device, over its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The program, or the benchmark.
    pub name: String,
    /// The device.
    pub device: String,
    /// The kernel function; `None` for the whole.
    pub kernel: Option<String>,
    /// The figure's name.
    pub figure: String,
    /// Whether two runs of the same program share it.
    pub is_exact: bool,
    /// The runs that have it, the first one first.
    pub points: Vec<Point>,
    /// Its changes, the first one first.
    pub changes: Vec<Change>,
}

/// A run's value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The commit.
    pub commit: String,
    /// When it ran.
    pub time: String,
    /// The value.
    pub value: f64,
}

/// A change of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Index of the first point after it.
    pub at: usize,
    /// The commit of this point.
    pub commit: String,
    /// When this point ran.
    pub time: String,
    /// Indices of points between which it is, with 90%: the same twice if it is exact.
    pub between: (usize, usize),
    /// The value after it over that before it; `None` if it was 0.
    pub factor: Option<f64>,
    /// The ends of the factor's 90% interval; `None` of an exact change.
    pub interval: Option<(f64, f64)>,
    /// Whether it became worse.
    pub is_worse: bool,
}

/// What tells one series from others: name, device, kernel, figure; and whether it is exact.
type Key = (String, String, Option<String>, String, bool);

impl Series {
    /// All series of a history, sorted by name, device, kernel (the whole first) and figure.
    pub fn all(history: &History) -> Vec<Self> {
        let mut points: BTreeMap<Key, Vec<Point>> = BTreeMap::new();
        for run in &history.runs {
            let of_kernels = run.kernels.iter().map(|(kernel, figures)| (Some(kernel), figures));
            for (kernel, figures) in std::iter::once((None, &run.figures)).chain(of_kernels) {
                add(run, kernel, figures, &mut points);
            }
        }
        points.into_iter().map(|(key, points)| Self::of(key, points)).collect()
    }

    fn of((name, device, kernel, figure, is_exact): Key, points: Vec<Point>) -> Self {
        let more_is_better = MORE_IS_BETTER.contains(&figure.as_str());
        let values: Vec<f64> = points.iter().map(|point| point.value).collect();
        let changes = if is_exact { exact_changes(&values) } else { varying_changes(&values) };
        let told = changes.into_iter().map(|raw| Change {
            at: raw.at,
            commit: points[raw.at].commit.clone(),
            time: points[raw.at].time.clone(),
            between: raw.between,
            factor: raw.factor,
            interval: raw.interval,
            is_worse: raw.grows != more_is_better,
        });
        let changes = told.collect();
        Self { name, device, kernel, figure, is_exact, points, changes }
    }

    /// What it is about: `launches`, or `sectors of saxpy`.
    pub fn what(&self) -> String {
        match &self.kernel {
            None => self.figure.clone(),
            Some(kernel) => format!("{} of {kernel}", self.figure),
        }
    }

    /// The newest value.
    ///
    /// # Panics
    /// Of a series without points, which [`Self::all`] does not make.
    pub fn latest(&self) -> &Point {
        self.points.last().expect("a series has a point")
    }
}

impl Change {
    /// How much it changed: `+5.1% (+4.0% to +6.2%)`.
    pub fn amount(&self) -> String {
        let percent = |factor: f64| format!("{:+.1}%", 100.0 * (factor - 1.0));
        match (self.factor, self.interval) {
            (None, _) => "from 0".to_owned(),
            (Some(factor), None) => percent(factor),
            (Some(factor), Some((low, high))) => {
                format!("{} ({} to {})", percent(factor), percent(low), percent(high))
            }
        }
    }
}

fn add(run: &Run, kernel: Option<&String>, figures: &Figures, points: &mut BTreeMap<Key, Vec<Point>>) {
    let mut each = |values: &Values, is_exact| {
        for (figure, &value) in values {
            let key = (run.name.clone(), run.device.clone(), kernel.cloned(), figure.clone(), is_exact);
            let point = Point { commit: run.commit.clone(), time: run.time.clone(), value };
            points.entry(key).or_default().push(point);
        }
    };
    each(&figures.exact, true);
    each(&figures.varying, false);
}

/// A change before it has a commit.
struct Raw {
    at: usize,
    between: (usize, usize),
    factor: Option<f64>,
    interval: Option<(f64, f64)>,
    grows: bool,
}

fn exact_changes(values: &[f64]) -> Vec<Raw> {
    let differs = |&at: &usize| values[at] != values[at - 1];
    let changes = (1..values.len()).filter(differs).map(|at| {
        let (before, after) = (values[at - 1], values[at]);
        let factor = (before != 0.0).then(|| after / before);
        Raw { at, between: (at, at), factor, interval: None, grows: after > before }
    });
    changes.collect()
}

fn varying_changes(values: &[f64]) -> Vec<Raw> {
    let changes = apex_change_points::changes(values).into_iter().map(|found| Raw {
        at: found.at,
        between: found.between,
        factor: Some(found.factor),
        interval: Some(found.interval),
        grows: found.factor > 1.0,
    });
    changes.collect()
}
