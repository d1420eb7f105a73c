//! The tables, and how older databases come to them.

use super::Error;
use apex_aggregate::PARTS;
use rusqlite::{Connection, TransactionBehavior};

/// The version of the tables: the number of [`steps`].
const VERSION: u32 = 1;

/// The columns of the parts of held time.
pub fn part_columns() -> Vec<String> {
    PARTS.iter().map(|(name, _)| format!("us_{name}")).collect()
}

/// What brings a database from each version to the next.
fn steps() -> [String; VERSION as usize] {
    let parts: String =
        part_columns().iter().map(|column| format!(", {column} INTEGER NOT NULL DEFAULT 0")).collect();
    [format!(
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
    )]
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
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}
