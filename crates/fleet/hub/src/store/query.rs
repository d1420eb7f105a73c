//! Queries of pages and documents.

use super::schema::{SPANS, sum_columns};
use super::sums::Sums;
use super::{Error, Store};
use apex_aggregate::{Energy, PARTS, Times};
use apex_ordered::Order;
use rusqlite::{Connection, OptionalExtension, Result, Row, ToSql};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;
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
    pub runs: Vec<Run>,
}

/// A run of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// The job's number.
    pub id: i64,
    /// Duration of a step, nanoseconds.
    pub step_ns: Option<f64>,
    /// Start, nanoseconds since 1970.
    pub started_ns: u64,
    /// Duration, microseconds: the longest one by the clock of one host.
    pub duration_us: u64,
}

/// Recordings and the columns of [`Sums`], added up as the rows have them: of shared time, one row
/// may have given what another one took.
#[derive(Clone, Copy, Debug, Default)]
struct Signed([i64; 1 + COLUMNS]);

impl Signed {
    /// Adds the columns of a row from `first` on.
    fn add(&mut self, row: &Row<'_>, first: usize) -> Result<()> {
        for (at, sum) in self.0.iter_mut().enumerate() {
            *sum = sum.saturating_add(row.get(first + at)?);
        }
        Ok(())
    }

    fn sums(&self) -> Sums {
        of_columns(std::array::from_fn(|at| self.0[1 + at]))
    }
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

/// The first one of the sums in [`JOB`].
const FIRST_SUM: usize = 20;
/// Columns of [`Sums`], as [`sum_columns`] has them.
const COLUMNS: usize = PARTS.len() + 5;

/// The sums of all columns of [`Sums`].
static SUMS: LazyLock<String> = LazyLock::new(|| {
    let sums: Vec<String> =
        sum_columns().iter().map(|column| format!("coalesce(sum({column}), 0)")).collect();
    sums.join(", ")
});

/// The sums in the columns from `first` on.
fn sums(row: &Row<'_>, first: usize) -> Result<Sums> {
    let mut columns = [0; COLUMNS];
    for (at, column) in columns.iter_mut().enumerate() {
        *column = row.get(first + at)?;
    }
    Ok(of_columns(columns))
}

/// The sums that have these columns. No part is negative: what was taken back was added before.
fn of_columns(columns: [i64; COLUMNS]) -> Sums {
    let of = |at: usize| columns[at].max(0) as u64;
    let [shared_us, unused_us, mj, metered_us, idle_mj] = std::array::from_fn(|at| of(PARTS.len() + at));
    let energy = Energy { mj, metered_us, idle_mj };
    Sums { times: Times::of_parts(std::array::from_fn(of)), shared_us, unused_us, energy }
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
        let [eights, sixty_fours] = SPANS;
        // Days up to the first eight, eights up to the first sixty-four, and those from there on.
        let first_eight = since_day.next_multiple_of(eights);
        let first_sixty_four = first_eight.next_multiple_of(sixty_fours);
        let columns = sum_columns().join(", ");
        let sql = format!(
            "SELECT owner, recordings, {columns} FROM days WHERE {OF_TENANT} AND day >= ?2 AND day < ?3
             UNION ALL SELECT owner, recordings, {columns} FROM spans
             WHERE {OF_TENANT} AND days = {eights} AND start >= ?3 AND start < ?4
             UNION ALL SELECT owner, recordings, {columns} FROM spans
             WHERE {OF_TENANT} AND days = {sixty_fours} AND start >= ?4"
        );
        let from = [since_day, first_eight, first_sixty_four].map(|day| day as i64);
        let sums = self.read(|connection| {
            let mut sums: BTreeMap<String, Signed> = BTreeMap::new();
            let mut found = connection.prepare_cached(&sql)?;
            let mut rows = found.query((tenant, from[0], from[1], from[2]))?;
            while let Some(row) = rows.next()? {
                let owner = row.get_ref(0)?.as_str()?;
                match sums.get_mut(owner) {
                    Some(sum) => sum.add(row, 1)?,
                    None => sums.entry(owner.to_owned()).or_default().add(row, 1)?,
                }
            }
            Ok(sums)
        })?;
        let of = |(owner, sum): (String, Signed)| OwnerRow {
            owner,
            recordings: sum.0[0].max(0) as u64,
            times: sum.sums(),
        };
        let mut owners: Vec<OwnerRow> = sums.into_iter().map(of).collect();
        owners.order_by_key(|of| (std::cmp::Reverse(of.times.held_us()), of.owner.clone()));
        Ok(owners)
    }

    /// Sums of the recordings that began from a day on, and before another one.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn total(&self, tenant: &str, since_day: u64, until_day: u64) -> std::result::Result<Sums, Error> {
        self.read(|connection| {
            let mut found = connection.prepare_cached(&format!(
                "SELECT {} FROM spans WHERE {OF_TENANT} AND days = 1 AND start >= ?2 AND start < ?3",
                *SUMS
            ))?;
            found.query_row((tenant, since_day as i64, until_day as i64), |row| sums(row, 0))
        })
    }

    /// Days from one on and before another one on which recordings began.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn days(&self, tenant: &str, since_day: u64, until_day: u64) -> std::result::Result<Vec<u64>, Error> {
        self.read(|connection| {
            let mut found = connection.prepare_cached(&format!(
                "SELECT start FROM spans WHERE {OF_TENANT} AND days = 1 AND start >= ?2 AND start < ?3"
            ))?;
            found.query_map((tenant, since_day as i64, until_day as i64), |row| count(row, 0))?.collect()
        })
    }

    /// Jobs that began since a day and lost most, the costliest first, at most `most`.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn costliest(
        &self,
        tenant: &str,
        days: RangeInclusive<u64>,
        most: usize,
    ) -> std::result::Result<Vec<JobRow>, Error> {
        self.read(|connection| {
            let mut of_day = connection.prepare_cached(&format!(
                "SELECT lost_us, id FROM jobs INDEXED BY jobs_by_loss
                 WHERE {OF_TENANT} AND day = ?2 ORDER BY lost_us DESC LIMIT ?3"
            ))?;
            let mut all: Vec<(i64, i64)> = Vec::new();
            for day in days {
                let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
                for found in of_day.query_map((tenant, day as i64, most as i64), read)? {
                    all.push(found?);
                }
            }
            all.order_by_key(|&(lost_us, id)| std::cmp::Reverse((lost_us, id)));
            let one = |(_, id): &(i64, i64)| jobs(connection, "id = ?1", &[id]);
            Ok(all.iter().take(most).map(one).collect::<Result<Vec<_>>>()?.concat())
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
        self.read(|connection| {
            let mut named = connection.prepare_cached(&format!(
                "SELECT series, id, step_ns, started_ns, coalesce(elapsed_us, max(ended_ns - started_ns, 0) / 1000)
                 FROM jobs INDEXED BY jobs_ended
                 WHERE {OF_TENANT} AND started_ns >= ?2 AND running = 0 AND failed = 0
                 ORDER BY started_ns DESC LIMIT ?3"
            ))?;
            let mut by_name: BTreeMap<String, Vec<Run>> = BTreeMap::new();
            let mut rows = named.query((tenant, since_ns as i64, most as i64))?;
            while let Some(row) = rows.next()? {
                let (started_ns, duration_us) = (count(row, 3)?, count(row, 4)?);
                let run = Run { id: row.get(1)?, step_ns: row.get(2)?, started_ns, duration_us };
                by_name.entry(row.get(0)?).or_default().push(run);
            }
            let of = |(name, mut runs): (String, Vec<Run>)| {
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
