//! Jobs that have become slower or faster.

use super::{DAY_NS, job_link};
use crate::html::{self, escaped};
use crate::store::{Error, JobRow, Run, Series, Store};
use apex_change_points::{LEAST_RUNS, change};
use apex_ordered::Order;
use serde::Serialize;

/// Runs that are read.
const RUNS: usize = 20_000;

/// Jobs whose duration has changed, those that became slowest first.
#[derive(Debug, Serialize)]
pub struct Changes {
    /// Days whose runs were looked at.
    days: u64,
    /// Jobs with enough runs.
    judged: u64,
    changes: Vec<Changed>,
}

/// A job whose duration has changed.
#[derive(Debug, Serialize)]
pub struct Changed {
    /// Its identity.
    #[serde(skip)]
    pub series: String,
    /// Unit of the comparison: `step`, or `run` where steps are not known.
    pub of: &'static str,
    /// Duration after over duration before: computed.
    pub factor: f64,
    /// The ends of its 90% interval.
    pub low: f64,
    /// See [`Self::low`].
    pub high: f64,
    /// The share of random orders that show as large a change.
    chance: f64,
    /// Runs on either side.
    pub runs_before: usize,
    /// See [`Self::runs_before`].
    pub runs_after: usize,
    /// The last run before the change.
    before: JobRow,
    /// The first run after it.
    pub after: JobRow,
    /// The ends of the 90% interval of that run: numbers of jobs.
    earliest: i64,
    /// See [`Self::earliest`].
    latest: i64,
    /// When these began, nanoseconds since 1970.
    #[serde(skip)]
    began: [u64; 2],
}

impl Changes {
    /// Looks at the runs of the last days.
    ///
    /// # Errors
    /// Those of the database.
    pub fn find(store: &Store, tenant: &str, days: u64, now: u64) -> Result<Self, Error> {
        let series = store.series(tenant, now.saturating_sub(days * DAY_NS), RUNS)?;
        let judged = series.iter().filter(|series| series.runs.len() >= LEAST_RUNS).count() as u64;
        let mut changes = Vec::new();
        for of in &series {
            changes.extend(Changed::of(store, tenant, of)?);
        }
        changes.order_by(|a, b| b.low.total_cmp(&a.low));
        Ok(Self { days, judged, changes })
    }

    /// The jobs that became slower.
    pub fn slower(&self) -> impl Iterator<Item = &Changed> {
        self.changes.iter().filter(|change| change.low > 1.0)
    }

    /// The page.
    pub fn body(&self) -> String {
        let mut body = format!(
            "<h1>Changes</h1>\n<p class=\"soft\">Runs of the same owner, command, devices and number of ranks that ended well in \
             the last {}, {} series of at least {LEAST_RUNS} runs. A change is listed where at most 1% of random orders of the \
             same durations show as large a one; the interval holds the factor in 90% of cases.</p>\n",
            html::counted(self.days, "day"),
            self.judged
        );
        match self.changes.is_empty() {
            true => body.push_str("<p>No job has changed.</p>\n"),
            false => body.push_str(&table(self.changes.iter())),
        }
        body
    }
}

/// A table of changes.
pub fn table<'a>(changes: impl Iterator<Item = &'a Changed>) -> String {
    let row = |change: &Changed| {
        let percent = |factor: f64| format!("{:+.1}%", 100.0 * (factor - 1.0));
        let [low, high] = [change.low, change.high].map(percent);
        let code = |job: &JobRow| escaped(&job.code_version.chars().take(12).collect::<String>());
        vec![
            format!("<code>{}</code>", escaped(&change.after.command.chars().take(80).collect::<String>())),
            escaped(&change.after.owner),
            change.of.to_owned(),
            format!("{} [{low}, {high}]", percent(change.factor)),
            format!(
                "{} {}{}",
                job_link(&change.after),
                html::moment(change.after.started_ns),
                change.between()
            ),
            format!("{} → {}", code(&change.before), code(&change.after)),
            format!("{} + {}", change.runs_before, change.runs_after),
        ]
    };
    let columns = ["command", "owner", "of a", "duration (computed)#", "since", "code", "runs#"];
    html::table(&columns, &changes.map(row).collect::<Vec<_>>())
}

impl Changed {
    /// The interval of the point, if it is more than one run.
    fn between(&self) -> String {
        match self.earliest == self.latest {
            true => String::new(),
            false => format!(" [{}, {}]", html::moment(self.began[0]), html::moment(self.began[1])),
        }
    }

    /// The change of a series.
    ///
    /// # Errors
    /// Those of the database.
    fn of(store: &Store, tenant: &str, series: &Series) -> Result<Option<Self>, Error> {
        let runs: &[Run] = &series.runs;
        let steps: Option<Vec<f64>> = runs.iter().map(|run| run.step_ns).collect();
        let (of, durations) = match steps {
            Some(steps) => ("step", steps),
            None => ("run", runs.iter().map(|run| run.duration_us as f64).collect()),
        };
        let Some(found) = change(&durations) else { return Ok(None) };
        let job = |at: usize| store.job(tenant, runs[at].id);
        let (Some(before), Some(after)) = (job(found.at - 1)?, job(found.at)?) else { return Ok(None) };
        Ok(Some(Self {
            series: series.name.clone(),
            of,
            factor: found.factor,
            low: found.interval.0,
            high: found.interval.1,
            chance: found.chance,
            runs_before: found.at,
            runs_after: runs.len() - found.at,
            before,
            after,
            earliest: runs[found.between.0].id,
            latest: runs[found.between.1].id,
            began: [found.between.0, found.between.1].map(|at| runs[at].started_ns),
        }))
    }
}
