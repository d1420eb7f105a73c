//! The tables, and how older databases come to them.

use super::ingest::DAY_NS;
use super::packing::unpacked;
use super::{BUSY, Error, facts, holds};
use apex_aggregate::{Aggregate, PARTS};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

/// The version of the tables: the number of [`steps`].
const VERSION: u32 = 4;

/// The columns of the parts of held time.
fn part_columns() -> Vec<String> {
    PARTS.iter().map(|(name, _)| format!("us_{name}")).collect()
}

/// The columns of the energy.
const ENERGY: [&str; 3] = ["mj_energy", "us_metered", "mj_idle"];

/// The columns that a message adds to by itself: parts and energy.
pub fn added_columns() -> Vec<String> {
    part_columns().into_iter().chain(ENERGY.map(str::to_owned)).collect()
}

/// The columns of [`super::Sums`]: parts, shared and unused time, energy.
pub fn sum_columns() -> Vec<String> {
    let others = ["us_shared", "us_unused"].into_iter().chain(ENERGY).map(str::to_owned);
    part_columns().into_iter().chain(others).collect()
}

/// Days of the sums that are kept beside those of one day, by owner.
pub const SPANS: [u64; 2] = [8, 64];

/// Statements that bring a database from each version to the next.
fn steps() -> [String; VERSION as usize] {
    [first(), second(), third(), fourth()]
}

/// Tenants, tokens, jobs, recordings, names, and sums of days and kernels.
fn first() -> String {
    let parts: String =
        part_columns().iter().map(|column| format!(", {column} INTEGER NOT NULL DEFAULT 0")).collect();
    format!(
        "CREATE TABLE tenants (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
         CREATE TABLE tokens (
             hash BLOB PRIMARY KEY, tenant INTEGER NOT NULL REFERENCES tenants, made_ns INTEGER NOT NULL
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE jobs (
             id INTEGER PRIMARY KEY, tenant INTEGER NOT NULL REFERENCES tenants, name TEXT NOT NULL,
             owner TEXT NOT NULL, command TEXT NOT NULL, code_version TEXT NOT NULL, launcher TEXT NOT NULL,
             devices TEXT NOT NULL, series TEXT NOT NULL, world INTEGER NOT NULL,
             started_ns INTEGER NOT NULL, seen_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,
             step_ns REAL,
             recordings INTEGER NOT NULL DEFAULT 0, running INTEGER NOT NULL DEFAULT 0,
             failed INTEGER NOT NULL DEFAULT 0, ranks INTEGER NOT NULL DEFAULT 0,
             launches INTEGER NOT NULL DEFAULT 0, lost_records INTEGER NOT NULL DEFAULT 0{parts},
             UNIQUE (tenant, name)
         ) STRICT;
         CREATE INDEX jobs_by_start ON jobs (tenant, started_ns);
         CREATE INDEX jobs_by_owner ON jobs (tenant, owner, started_ns);
         CREATE INDEX jobs_by_series ON jobs (tenant, series, started_ns);
         CREATE TABLE recordings (
             id INTEGER PRIMARY KEY, tenant INTEGER NOT NULL REFERENCES tenants, key TEXT NOT NULL,
             job INTEGER NOT NULL REFERENCES jobs, sequence INTEGER NOT NULL, host TEXT NOT NULL,
             received_ns INTEGER NOT NULL, message BLOB NOT NULL, UNIQUE (tenant, key)
         ) STRICT;
         CREATE INDEX recordings_by_job ON recordings (job, host);
         CREATE INDEX recordings_by_time ON recordings (received_ns);
         CREATE TABLE horizon (one INTEGER PRIMARY KEY CHECK (one = 1), ns INTEGER NOT NULL) STRICT;
         CREATE TABLE names (
             tenant INTEGER NOT NULL REFERENCES tenants, kind TEXT NOT NULL, name TEXT NOT NULL,
             PRIMARY KEY (tenant, kind, name)
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE days (
             tenant INTEGER NOT NULL REFERENCES tenants, day INTEGER NOT NULL, owner TEXT NOT NULL,
             recordings INTEGER NOT NULL DEFAULT 0{parts}, PRIMARY KEY (tenant, day, owner)
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE kernels (
             tenant INTEGER NOT NULL REFERENCES tenants, week INTEGER NOT NULL, name TEXT NOT NULL,
             launches INTEGER NOT NULL DEFAULT 0, gpu_us INTEGER NOT NULL DEFAULT 0,
             PRIMARY KEY (tenant, week, name)
         ) STRICT, WITHOUT ROWID;"
    )
}

/// Shared and unused time; facts of recordings; who held which device when.
fn second() -> String {
    let columns = ["jobs", "days"].map(|table| {
        let add = |column| format!("ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0;");
        ["us_shared", "us_unused"].map(add).concat()
    });
    format!(
        "{}
         ALTER TABLE jobs ADD COLUMN us_cpu_device INTEGER NOT NULL DEFAULT 0;
         CREATE TABLE facts (
             job INTEGER NOT NULL, recording INTEGER NOT NULL, host TEXT NOT NULL, step_ns REAL,
             devices TEXT NOT NULL, world INTEGER NOT NULL, from_us INTEGER NOT NULL, until_us INTEGER NOT NULL,
             allocated TEXT NOT NULL, PRIMARY KEY (job, recording)
         ) STRICT, WITHOUT ROWID;
         CREATE TABLE holds (
             place INTEGER NOT NULL, until_us INTEGER NOT NULL, recording INTEGER NOT NULL, job INTEGER NOT NULL,
             from_us INTEGER NOT NULL, PRIMARY KEY (place, until_us, recording)
         ) STRICT, WITHOUT ROWID;
         CREATE INDEX holds_by_recording ON holds (job, recording);
         CREATE INDEX jobs_running ON jobs (tenant, id) WHERE running > 0;",
        columns.concat()
    )
}

/// Energy; sums of longer times than a day, which triggers keep; what a job lost.
fn third() -> String {
    let energy = ["jobs", "days"].map(|table| {
        ENERGY.map(|of| format!("ALTER TABLE {table} ADD COLUMN {of} INTEGER NOT NULL DEFAULT 0;")).concat()
    });
    let columns = sum_columns();
    let definitions: String =
        columns.iter().map(|column| format!(", {column} INTEGER NOT NULL DEFAULT 0")).collect();
    let (lost, day) = (lost_us(), DAY_NS);
    format!(
        "{}
         CREATE TABLE spans (
             tenant INTEGER NOT NULL REFERENCES tenants, days INTEGER NOT NULL, start INTEGER NOT NULL,
             owner TEXT NOT NULL, recordings INTEGER NOT NULL DEFAULT 0{definitions},
             PRIMARY KEY (tenant, days, start, owner)
         ) STRICT, WITHOUT ROWID;
         {}
         ALTER TABLE jobs ADD COLUMN day INTEGER AS (started_ns / {day}) VIRTUAL;
         ALTER TABLE jobs ADD COLUMN lost_us INTEGER AS (CAST({lost} AS INTEGER)) VIRTUAL;
         CREATE INDEX jobs_by_loss ON jobs (tenant, day, lost_us);
         DROP INDEX jobs_by_series;
         UPDATE jobs SET series = substr(series, 1, 16);
         CREATE INDEX jobs_ended ON jobs (tenant, started_ns, series, step_ns, ended_ns)
             WHERE running = 0 AND failed = 0;",
        energy.concat(),
        spans(&columns)
    )
}

/// The duration of a job by the clocks of its hosts, unknown of older jobs, in the index that
/// covers what is read of runs.
fn fourth() -> String {
    "ALTER TABLE jobs ADD COLUMN elapsed_us INTEGER;
     DROP INDEX jobs_ended;
     CREATE INDEX jobs_ended ON jobs (tenant, started_ns, series, step_ns, elapsed_us, ended_ns)
         WHERE running = 0 AND failed = 0;"
        .to_owned()
}

/// The time that a job lost and that it never used: [`super::Sums::lost_us`] and `unused_us`.
fn lost_us() -> String {
    let parts = part_columns();
    let (busy, lost) = parts.split_at(3);
    let (busy, lost) = (busy.join(" + "), lost.join(" + "));
    format!("(1.0 - 1.0 * us_shared / max({busy} + {lost}, 1)) * ({lost}) + us_unused")
}

/// Statements that fill `spans` from `days`, and keep it so whenever a row of `days` changes: the
/// sums of all owners by day (with no owner), and those of each owner by [`SPANS`].
fn spans(columns: &[String]) -> String {
    let mut all = vec!["recordings".to_owned()];
    all.extend_from_slice(columns);
    let sums: String = all.iter().map(|column| format!(", sum({column})")).collect();
    let names = all.join(", ");
    let whose = [(1, "''")].into_iter().chain(SPANS.map(|days| (days, "owner")));
    let whose: Vec<(u64, &str)> = whose.collect();
    let fill = |(days, owner): &(u64, &str)| {
        format!(
            "INSERT INTO spans (tenant, days, start, owner, {names})
             SELECT tenant, {days}, day - day % {days}, {owner}{sums} FROM days GROUP BY 1, 3, 4;"
        )
    };
    let row = |(days, owner): &(u64, &str)| {
        let owner = if *owner == "owner" { "NEW.owner" } else { owner };
        [days.to_string(), format!("NEW.day - NEW.day % {days}"), owner.to_owned()]
    };
    let make = |of: &(u64, &str)| {
        let [days, start, owner] = row(of);
        format!(
            "INSERT OR IGNORE INTO spans (tenant, days, start, owner) VALUES (NEW.tenant, {days}, {start}, {owner});"
        )
    };
    let add = |of: &(u64, &str), gain: &dyn Fn(&String) -> String| {
        let [days, start, owner] = row(of);
        let set: Vec<String> =
            all.iter().map(|column| format!("{column} = {column} + {}", gain(column))).collect();
        format!(
            "UPDATE spans SET {} WHERE tenant = NEW.tenant AND days = {days} AND start = {start} AND owner = {owner};",
            set.join(", ")
        )
    };
    let new = |column: &String| format!("NEW.{column}");
    // (In parentheses: a sum that exceeds 64 bits on the way would be an error.)
    let change = |column: &String| format!("(NEW.{column} - OLD.{column})");
    let each = |of: &dyn Fn(&(u64, &str)) -> String| whose.iter().map(of).collect::<String>();
    format!(
        "{}
         CREATE TRIGGER days_come AFTER INSERT ON days BEGIN {}{} END;
         CREATE TRIGGER days_change AFTER UPDATE ON days BEGIN {} END;",
        each(&fill),
        each(&make),
        each(&|of| add(of, &new)),
        each(&|of| add(of, &change))
    )
}

/// Fills the tables of the second version from the messages of the first one, whose sums stay.
fn fill_second(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut found = transaction.prepare("SELECT id, tenant, job, message FROM recordings")?;
    let mut rows = found.query([])?;
    while let Some(row) = rows.next()? {
        let (recording, tenant, job): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let message = unpacked(row.get_ref(3)?.as_blob()?).and_then(|bytes| Aggregate::parse(&bytes).ok());
        if let Some(of) = message {
            facts::keep(transaction, job, recording, &of)?;
            holds::keep(transaction, tenant, job, recording, &of)?;
        }
    }
    Ok(())
}

/// Fails for a file that is something else than a hub's database or empty; writes nothing.
///
/// # Errors
/// Those of SQLite, and [`Error::Foreign`].
pub fn check_owner(connection: &mut Connection, path: &str) -> Result<(), Error> {
    let is_foreign = |error| match error {
        rusqlite::Error::SqliteFailure(of, _) if of.code == ErrorCode::NotADatabase => {
            Error::Foreign(path.to_owned())
        }
        error => error.into(),
    };
    match is_own(connection).map_err(is_foreign)? {
        true => Ok(()),
        false => Err(Error::Foreign(path.to_owned())),
    }
}

/// Whether a database has a hub's tables, or none yet.
fn is_own(connection: &mut Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(BUSY)?;
    // Both are read of one state, since another process may just make the tables.
    let transaction = connection.transaction()?;
    let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = match version {
        0 => "SELECT NOT EXISTS (SELECT 1 FROM sqlite_master)",
        _ => "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'recordings')",
    };
    transaction.query_row(known, [], |row| row.get(0))
}

/// Brings a database to this version, in one transaction.
///
/// # Errors
/// Those of SQLite. Another error if the database is newer.
pub fn migrate(connection: &mut Connection, path: &str) -> Result<(), Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > VERSION {
        return Err(Error::Newer { path: path.to_owned(), found, known: VERSION });
    }
    for step in &steps()[found as usize..] {
        transaction.execute_batch(step)?;
    }
    if found == 1 {
        fill_second(&transaction)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}
