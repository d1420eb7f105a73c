//! The database.
//!
//! Sums stand in tables that never hold a message: of a job, of an owner's day, of a kernel's week.
//! `spans` has what `days` has, of all owners by day and of each owner by 8 and 64 days, so that a
//! page of a year reads few rows: triggers change it with each row of `days`.
//! `recordings` holds the newest message of each recording, so that its part of the sums can be
//! taken back when a later one replaces it; `facts` has what it says of its job, and `holds` when
//! it held which device. All numbers that are added up are integers, and the tables are `STRICT`: a
//! sum that exceeds 64 bits is an error, not a rounded number.

mod facts;
mod holds;
mod ingest;
mod packing;
mod query;
mod schema;
mod sums;
mod tokens;

pub use ingest::{MOST_NAMES, ingest, remove_old};
pub use packing::unpacked;
pub use query::{JobRow, KernelRow, OwnerRow, RecordingRow, Run, Series, Wanted};
pub use schema::sum_columns;
pub use sums::Sums;

use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The tenant of a hub without tokens.
pub const LOCAL: &str = "local";

/// Time that a connection waits for another one.
const BUSY: Duration = Duration::from_secs(10);
/// How connections that write open the file.
const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
/// Connections that are kept open for the next request.
const KEPT: usize = 8;

/// Fault of the database.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// SQLite says so.
    #[error("the database: {0}")]
    Database(#[from] rusqlite::Error),
    /// Its file cannot be made.
    #[error("{0}: {1}")]
    File(String, #[source] std::io::Error),
    /// The file is something else, such as another program's database.
    #[error("{0} is no database of a hub: name the one of yours with --database")]
    Foreign(String),
    /// A newer APEX made it.
    #[error(
        "{path} has version {found}, and this APEX knows {known}: upgrade this APEX, or restore a backup"
    )]
    Newer {
        /// The file.
        path: String,
        /// Its version.
        found: u32,
        /// The newest one that is known.
        known: u32,
    },
    /// A tenant's name that is none.
    #[error("a tenant's name has 1 to 64 letters, digits, - _ .")]
    Name,
    /// The system gives no random numbers.
    #[error("cannot read /dev/urandom: {0}")]
    Random(#[source] std::io::Error),
}

/// The database of a hub.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    readers: Mutex<Vec<Connection>>,
}

impl Store {
    /// Opens the database in a file, makes it where it is missing (for this user alone), and brings
    /// it to this version.
    ///
    /// # Errors
    /// If it cannot be opened or made, or if a newer APEX or another program made it.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let shown = || apex_untrusted::shown(path);
        apex_untrusted::replace::open_or_create(path).map_err(|error| Error::File(shown(), error))?;
        let store = Self { path: path.to_owned(), readers: Mutex::default() };
        // Nothing is written before it is known whose file it is: a connection sets the journal's
        // mode.
        schema::check_owner(&mut Connection::open_with_flags(path, FLAGS)?, &shown())?;
        schema::migrate(&mut store.connect()?, &shown())?;
        Ok(store)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A connection that writes. A transaction is on the disk when its commit returns.
    pub fn connect(&self) -> Result<Connection, Error> {
        let connection = Connection::open_with_flags(&self.path, FLAGS)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }

    /// Writes what lies beside the file (`-wal`) into it, so that the file alone is the whole
    /// database.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn settle(&self) -> Result<(), Error> {
        self.connect()?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }

    /// Reads with a connection of its own.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = kept.map_or_else(|| self.connect(), Ok)?;
        let found = read(&connection)?;
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < KEPT {
            readers.push(connection);
        }
        Ok(found)
    }
}
