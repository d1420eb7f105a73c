//! The tables, and how older databases come to them.

use super::packing::unpacked;
use super::{Error, facts, holds};
use apex_aggregate::{Aggregate, PARTS};
use rusqlite::{Connection, Transaction, TransactionBehavior};

/// The version of the tables: the number of [`steps`].
const VERSION: u32 = 2;

/// The columns of the parts of held time.
pub fn part_columns() -> Vec<String> {
    PARTS.iter().map(|(name, _)| format!("us_{name}")).collect()
}

/// Statements that bring a database from each version to the next.
fn steps() -> [String; VERSION as usize] {
    let parts: String =
        part_columns().iter().map(|column| format!(", {column} INTEGER NOT NULL DEFAULT 0")).collect();
    let first = format!(
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
    );
    let columns = ["jobs", "days"].map(|table| {
        let add = |column| format!("ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0;");
        ["us_shared", "us_unused"].map(add).concat()
    });
    let second = format!(
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
    );
    [first, second]
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
