//! Queries of pages and documents.

use super::schema::part_columns;
use super::sums::Sums;
use super::{Error, Store};
use apex_aggregate::{PARTS, Times};
use apex_ordered::Order;
use rusqlite::{Connection, OptionalExtension, Result, Row, ToSql};
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobRow {
    /// Its number in this hub.
    pub id: i64,
    /// Its name.
    pub job: String,
    /// The user.
    pub owner: String,
    /// The command.
    pub command: String,
    /// The commit.
    pub code_version: String,
    /// Who started its ranks.
    pub launcher: String,
    /// Names of its devices.
    pub devices: String,
    /// Hosts.
    pub hosts: u64,
    /// Ranks that have sent something.
    pub ranks: u64,
    /// Ranks that the launcher started; 0 if that is not known.
    pub ranks_started: u64,
    /// Recordings.
    pub recordings: u64,
    /// Recordings whose program runs, as far as their last message says.
    pub running: u64,
    /// Recordings whose program failed.
    pub failed: u64,
    /// Launches of kernels.
    pub launches: u64,
    /// Records that were lost.
    pub lost_records: u64,
    /// Start, nanoseconds since 1970 by the clock of its hosts.
    pub started_ns: u64,
    /// End by the same clock; 0 while it runs.
    pub ended_ns: u64,
    /// The last message, by the hub's clock.
    pub seen_ns: u64,
    /// Duration of a step of the slowest rank, nanoseconds; `None` where nothing repeats.
    pub step_ns: Option<f64>,
    /// Times of its GPUs.
    pub times: Sums,
    /// Time that it held the CPU device, microseconds. It is in no sum.
    pub cpu_device_us: u64,
}

/// A recording, with its newest message.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordingRow {
    /// Its identifier.
    pub key: String,
    /// The sequence of the message.
    pub sequence: u64,
    /// Time of arrival, by the hub's clock.
    pub received_ns: u64,
    /// The message, compressed.
    pub message: Vec<u8>,
}

/// The days of an owner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OwnerRow {
    /// The user.
    pub owner: String,
    /// Recordings.
    pub recordings: u64,
    /// Times of their devices.
    pub times: Sums,
}

/// A day.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DayRow {
    /// Days since 1970.
    pub day: u64,
    /// Recordings that began on it.
    pub recordings: u64,
    /// Times of their devices.
    pub times: Sums,
}

/// A kernel over the fleet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelRow {
    /// Its short name.
    pub name: String,
    /// Launches.
    pub launches: u64,
    /// GPU time, from samples.
    pub gpu_us: u64,
}

/// Runs of the same job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its identity.
    pub name: String,
    /// The runs, the first one first.
    pub runs: Vec<JobRow>,
}

/// Which jobs are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Of this user.
    pub owner: Option<String>,
    /// That began before this moment and job, where the page before ended.
    pub before: Option<(i64, i64)>,
    /// Most rows.
    pub most: usize,
}

/// A page of jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The jobs, the newest first.
    pub jobs: Vec<JobRow>,
    /// Whether there are more.
    pub has_more: bool,
}

/// The columns of a job, in the order in which [`job`] reads them.
static JOB: LazyLock<String> = LazyLock::new(|| {
    let mut columns = "id, name, owner, command, code_version, launcher, devices,
        (SELECT count(DISTINCT host) FROM recordings WHERE job = jobs.id), ranks, world, recordings, running, failed,
        launches, lost_records, started_ns, ended_ns, seen_ns, step_ns, us_cpu_device"
        .to_owned();
    sum_columns().iter().for_each(|column| {
        let _ = write!(columns, ", {column}");
    });
    columns
});

/// Columns of [`JOB`].
const JOB_COLUMNS: usize = FIRST_SUM + PARTS.len() + 2;
/// The first one of its sums.
const FIRST_SUM: usize = 20;

/// The columns of [`Sums`], in the order in which [`sums`] reads them.
fn sum_columns() -> Vec<String> {
    let others = ["us_shared", "us_unused"].map(str::to_owned);
    part_columns().into_iter().chain(others).collect()
}

/// The sums of these columns.
static SUMS: LazyLock<String> = LazyLock::new(|| {
    let sums: Vec<String> =
        sum_columns().iter().map(|column| format!("coalesce(sum({column}), 0)")).collect();
    sums.join(", ")
});

/// The sums in the columns from `first` on. No part is negative: what was taken back was added
/// before. (Of shared time, one row may have given what another one took.)
fn sums(row: &Row<'_>, first: usize) -> Result<Sums> {
    let mut parts = [0; PARTS.len()];
    for (at, part) in parts.iter_mut().enumerate() {
        *part = count(row, first + at)?;
    }
    let (shared_us, unused_us) = (count(row, first + parts.len())?, count(row, first + parts.len() + 1)?);
    Ok(Sums { times: Times::of_parts(parts), shared_us, unused_us })
}

fn count(row: &Row<'_>, at: usize) -> Result<u64> {
    Ok(row.get::<_, i64>(at)?.max(0) as u64)
}

fn job(row: &Row<'_>) -> Result<JobRow> {
    let running = count(row, 11)?;
    Ok(JobRow {
        id: row.get(0)?,
        job: row.get(1)?,
        owner: row.get(2)?,
        command: row.get(3)?,
        code_version: row.get(4)?,
        launcher: row.get(5)?,
        devices: row.get(6)?,
        hosts: count(row, 7)?,
        ranks: count(row, 8)?,
        ranks_started: count(row, 9)?,
        recordings: count(row, 10)?,
        running,
        failed: count(row, 12)?,
        launches: count(row, 13)?,
        lost_records: count(row, 14)?,
        started_ns: count(row, 15)?,
        ended_ns: if running > 0 { 0 } else { count(row, 16)? },
        seen_ns: count(row, 17)?,
        step_ns: row.get(18)?,
        cpu_device_us: count(row, 19)?,
        times: sums(row, FIRST_SUM)?,
    })
}

/// The jobs that a statement finds.
fn jobs(connection: &Connection, condition: &str, values: &[&dyn ToSql]) -> Result<Vec<JobRow>> {
    let mut found = connection.prepare_cached(&format!("SELECT {} FROM jobs WHERE {condition}", *JOB))?;
    found.query_map(values, job)?.collect()
}

/// What belongs to this tenant.
const OF_TENANT: &str = "tenant = (SELECT id FROM tenants WHERE name = ?1)";

impl Store {
    /// A page of a tenant's jobs, the newest first.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn jobs(&self, tenant: &str, wanted: &Wanted) -> std::result::Result<Page, Error> {
        let (at, id) = wanted.before.unwrap_or((i64::MAX, i64::MAX));
        let most = wanted.most as i64 + 1;
        let of_owner = if wanted.owner.is_some() { "AND owner = ?5" } else { "" };
        let condition = format!(
            "{OF_TENANT} {of_owner} AND (started_ns, id) < (?2, ?3) ORDER BY started_ns DESC, id DESC LIMIT ?4"
        );
        let mut values: Vec<&dyn ToSql> = vec![&tenant, &at, &id, &most];
        values.extend(wanted.owner.as_ref().map(|owner| owner as &dyn ToSql));
        let mut jobs = self.read(|connection| jobs(connection, &condition, &values))?;
        let has_more = jobs.len() > wanted.most;
        jobs.truncate(wanted.most);
        Ok(Page { jobs, has_more })
    }

    /// A tenant's jobs that have not ended, as far as was heard since a moment; the newest, at most
    /// `most`.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn running(
        &self,
        tenant: &str,
        since_ns: u64,
        most: usize,
    ) -> std::result::Result<Vec<JobRow>, Error> {
        let condition = format!("{OF_TENANT} AND running > 0 AND seen_ns >= ?2 ORDER BY id DESC LIMIT ?3");
        self.read(|connection| jobs(connection, &condition, &[&tenant, &(since_ns as i64), &(most as i64)]))
    }

    /// The newest messages of a tenant's jobs that run, as far as they were heard of since a
    /// moment, compressed, the newest first; at most `most`.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn newest_messages(
        &self,
        tenant: &str,
        since_ns: u64,
        most: usize,
    ) -> std::result::Result<Vec<Vec<u8>>, Error> {
        self.read(|connection| {
            let mut found = connection.prepare_cached(&format!(
                "SELECT message FROM recordings INDEXED BY recordings_by_time
                 WHERE {OF_TENANT} AND received_ns >= ?2 AND (SELECT running FROM jobs WHERE id = job) > 0
                 ORDER BY received_ns DESC LIMIT ?3"
            ))?;
            found.query_map((tenant, since_ns as i64, most as i64), |row| row.get(0))?.collect()
        })
    }

    /// A tenant's job; `None` if it has no such job.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn job(&self, tenant: &str, id: i64) -> std::result::Result<Option<JobRow>, Error> {
        let condition = format!("{OF_TENANT} AND id = ?2");
        Ok(self.read(|connection| jobs(connection, &condition, &[&tenant, &id]))?.pop())
    }

    /// The newest messages of a job's recordings, at most `most`.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn recordings(&self, job: i64, most: usize) -> std::result::Result<Vec<RecordingRow>, Error> {
        self.read(|connection| {
            let mut found = connection.prepare_cached(
                "SELECT key, sequence, received_ns, message FROM recordings WHERE job = ?1 ORDER BY id LIMIT ?2",
            )?;
            let read = |row: &Row<'_>| {
                let (sequence, received_ns) = (count(row, 1)?, count(row, 2)?);
                Ok(RecordingRow { key: row.get(0)?, sequence, received_ns, message: row.get(3)? })
            };
            found.query_map((job, most as i64), read)?.collect()
        })
    }

    /// Sums by owner since a day, those who hold most first.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn owners(&self, tenant: &str, since_day: u64) -> std::result::Result<Vec<OwnerRow>, Error> {
        self.read(|connection| {
            let mut found = connection.prepare_cached(&format!(
                "SELECT owner, sum(recordings), {} FROM days WHERE {OF_TENANT} AND day >= ?2 GROUP BY owner",
                *SUMS
            ))?;
            let read = |row: &Row<'_>| {
                Ok(OwnerRow { owner: row.get(0)?, recordings: count(row, 1)?, times: sums(row, 2)? })
            };
            let mut owners: Vec<OwnerRow> =
                found.query_map((tenant, since_day as i64), read)?.collect::<Result<_>>()?;
            owners.order_by_key(|of| (std::cmp::Reverse(of.times.held_us()), of.owner.clone()));
            Ok(owners)
        })
    }

    /// Sums by day since a day, the first day first.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn days(&self, tenant: &str, since_day: u64) -> std::result::Result<Vec<DayRow>, Error> {
        self.read(|connection| {
            let mut found = connection.prepare_cached(&format!(
                "SELECT day, sum(recordings), {} FROM days WHERE {OF_TENANT} AND day >= ?2 GROUP BY day ORDER BY day",
                *SUMS
            ))?;
            let read =
                |row: &Row<'_>| Ok(DayRow { day: count(row, 0)?, recordings: count(row, 1)?, times: sums(row, 2)? });
            found.query_map((tenant, since_day as i64), read)?.collect()
        })
    }

    /// Kernels since a week, those that took most time first, at most `most`.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn kernels(
        &self,
        tenant: &str,
        since_week: u64,
        most: usize,
    ) -> std::result::Result<Vec<KernelRow>, Error> {
        self.read(|connection| {
            let mut found = connection.prepare_cached(&format!(
                "SELECT name, sum(launches), sum(gpu_us) FROM kernels WHERE {OF_TENANT} AND week >= ?2
                 GROUP BY name ORDER BY 3 DESC, 2 DESC, 1 LIMIT ?3"
            ))?;
            let read = |row: &Row<'_>| {
                Ok(KernelRow { name: row.get(0)?, launches: count(row, 1)?, gpu_us: count(row, 2)? })
            };
            found.query_map((tenant, since_week as i64, most as i64), read)?.collect()
        })
    }

    /// Runs of jobs that have ended well and began since a moment, by the job that they are runs
    /// of; at most `most` runs, the newest.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn series(
        &self,
        tenant: &str,
        since_ns: u64,
        most: usize,
    ) -> std::result::Result<Vec<Series>, Error> {
        let condition = format!(
            "{OF_TENANT} AND started_ns >= ?2 AND running = 0 AND failed = 0 ORDER BY started_ns DESC, id DESC LIMIT ?3"
        );
        self.read(|connection| {
            let mut named =
                connection.prepare_cached(&format!("SELECT {}, series FROM jobs WHERE {condition}", *JOB))?;
            let read = |row: &Row<'_>| Ok((row.get::<_, String>(JOB_COLUMNS)?, job(row)?));
            let rows = named.query_map((tenant, since_ns as i64, most as i64), read)?;
            let mut by_name: std::collections::BTreeMap<String, Vec<JobRow>> =
                std::collections::BTreeMap::new();
            for row in rows {
                let (name, run) = row?;
                by_name.entry(name).or_default().push(run);
            }
            let of = |(name, mut runs): (String, Vec<JobRow>)| {
                runs.reverse();
                Series { name, runs }
            };
            Ok(by_name.into_iter().map(of).collect())
        })
    }

    /// Jobs, recordings that ever came, and bytes of the database, of all tenants.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn size(&self) -> std::result::Result<(u64, u64, u64), Error> {
        self.read(|connection| {
            let stored = |table: &str| -> Result<u64> {
                // (Rows are numbered, and jobs are never removed.)
                let highest = format!("SELECT coalesce(max(id), 0) FROM {table}");
                connection.query_row(&highest, [], |row| count(row, 0))
            };
            let bytes = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
            let bytes = connection.query_row(bytes, [], |row| count(row, 0)).optional()?;
            Ok((stored("jobs")?, stored("recordings")?, bytes.unwrap_or(0)))
        })
    }
}
