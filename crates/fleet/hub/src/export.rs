//! Tables for other programs: rows of named values, one after the other, whatever their number.

use crate::html;
use crate::pages::DAY_NS;
use crate::store::{Error, Store, sum_columns, unpacked};
use apex_aggregate::{Aggregate, PARTS, Use};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::io;

/// A row: names and values, which are numbers, texts or null. It is serialised as an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Record(pub Vec<(String, Value)>);

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// A table that is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// A row for each job.
    Jobs,
    /// A row for each owner and day.
    Days,
    /// A row for each kernel and week.
    Kernels,
    /// A row for each use of a device by a process, while its message is kept.
    Uses,
}

impl Table {
    /// Its statement; ?1 is the tenant, and what began from ?2 on and before ?3 is in it.
    fn statement(self) -> String {
        let sums: String = sum_columns().iter().map(|column| format!(", {column}")).collect();
        let of = "tenant = (SELECT id FROM tenants WHERE name = ?1)";
        match self {
            Self::Jobs => format!(
                "SELECT id, name AS job, owner, command, code_version, launcher, devices, world AS ranks_started, ranks,
                    recordings, running, failed, launches, lost_records, started_ns, ended_ns, seen_ns, step_ns,
                    us_cpu_device{sums}
                 FROM jobs WHERE {of} AND started_ns >= ?2 AND started_ns < ?3 ORDER BY started_ns, id"
            ),
            Self::Days => format!(
                "SELECT day, owner, recordings{sums}
                 FROM days WHERE {of} AND day >= ?2 / {DAY_NS} AND day * {DAY_NS} < ?3 ORDER BY day, owner"
            ),
            Self::Kernels => format!(
                "SELECT week, name AS kernel, launches, gpu_us
                 FROM kernels WHERE {of} AND week >= ?2 / {DAY_NS} / 7 AND week * 7 * {DAY_NS} < ?3 ORDER BY week, name"
            ),
            Self::Uses => format!(
                "SELECT job, message FROM recordings WHERE {of} AND received_ns >= ?2 AND received_ns < ?3 ORDER BY id"
            ),
        }
    }
}

impl Store {
    /// Gives each row of a tenant's table that began between two moments to `take`, in the order of
    /// time.
    ///
    /// # Errors
    /// Those of the database. The inner ones are those of `take`, which end it.
    pub fn export(
        &self,
        tenant: &str,
        table: Table,
        between_ns: std::ops::Range<u64>,
        mut take: impl FnMut(Record) -> io::Result<()>,
    ) -> Result<io::Result<()>, Error> {
        self.read(|connection| {
            let mut found = connection.prepare(&table.statement())?;
            let names: Vec<String> = found.column_names().map(str::to_owned).collect();
            let mut rows =
                found.query((tenant, between_ns.start as i64, between_ns.end.min(i64::MAX as u64) as i64))?;
            while let Some(row) = rows.next()? {
                let records = match table {
                    Table::Uses => uses(row)?,
                    Table::Jobs | Table::Days | Table::Kernels => vec![record(&names, row)?],
                };
                if let Err(error) = records.into_iter().try_for_each(&mut take) {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        })
    }

    /// Writes a copy of the database into a file that is not there yet, while a hub may write.
    ///
    /// # Errors
    /// Those of SQLite, and if there is such a file.
    pub fn back_up(&self, to: &std::path::Path) -> Result<(), Error> {
        let shown = || apex_untrusted::shown(to);
        // For this user alone, as the database is. SQLite writes into an empty file, and into no
        // other.
        apex_untrusted::replace::open_or_create(to).map_err(|error| Error::File(shown(), error))?;
        let path = to.to_str().ok_or_else(|| {
            Error::File(shown(), io::Error::new(io::ErrorKind::InvalidInput, "the name is not UTF-8"))
        })?;
        self.read(|connection| connection.execute("VACUUM INTO ?1", [path]).map(drop))
    }
}

/// A row as it is, with dates for days and weeks.
fn record(names: &[String], row: &Row<'_>) -> rusqlite::Result<Record> {
    let mut record = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        let value = match row.get_ref(at)? {
            ValueRef::Null | ValueRef::Blob(_) => Value::Null,
            ValueRef::Integer(number) => json!(number),
            ValueRef::Real(number) => json!(number),
            ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
        };
        let value = match (name.as_str(), value.as_u64()) {
            ("day", Some(day)) => json!(html::date(day)),
            ("week", Some(week)) => json!(html::date(7 * week)),
            _ => value,
        };
        let unit_last = |unit: &str| Some(format!("{}_{unit}", name.strip_prefix(unit)?.strip_prefix('_')?));
        let name = unit_last("us").or_else(|| unit_last("mj")).unwrap_or_else(|| name.clone());
        record.push((name, value));
    }
    Ok(Record(record))
}

/// The rows of a message.
fn uses(row: &Row<'_>) -> rusqlite::Result<Vec<Record>> {
    let job: i64 = row.get(0)?;
    let message = unpacked(row.get_ref(1)?.as_blob()?).and_then(|bytes| Aggregate::parse(&bytes).ok());
    let Some(of) = message else { return Ok(Vec::new()) };
    Ok(of.uses.iter().map(|used| of_use(job, &of, used)).collect())
}

fn of_use(job: i64, of: &Aggregate, used: &Use) -> Record {
    let device = used.device.and_then(|at| of.devices.get(at as usize));
    let head = [
        ("job", json!(job)),
        ("recording", json!(of.recording)),
        ("host", json!(of.host)),
        ("rank", json!(used.rank.or(of.job.rank))),
        ("pid", json!(used.pid)),
        ("device", json!(device.map(|device| &device.name))),
        ("uuid", json!(device.map(|device| &device.uuid))),
        ("started_ns", json!(of.started_ns)),
        ("as_of_ns", json!(of.as_of_ns)),
        ("launches", json!(used.launches)),
    ];
    let head = head.into_iter().map(|(name, value)| (name.to_owned(), value));
    let parts = PARTS.iter().zip(used.times.parts());
    Record(head.chain(parts.map(|((name, _), us)| (format!("{name}_us"), json!(us)))).collect())
}
