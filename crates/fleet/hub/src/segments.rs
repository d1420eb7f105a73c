//! Segments: a Parquet file of each day that has ended, in a folder, for engines that read many
//! files.
//!
//! `jobs` and `days` have a file of each day, `kernels` has one of each week. A file's name begins
//! with its first day and ends with a part of the SHA-256 of its bytes.
//!
//! Invariants:
//!
//! 1. **A name has one content.** Whoever copies a folder to a store copies what is new, once.
//! 2. **A day is there once.** When figures of a day arrive later, a new file replaces the earlier
//!    one: it is complete before that one goes, so that for a moment both are there.
//! 3. The same rows are the same bytes: rows are ordered, and nothing tells when they were written.

use crate::export::{Record, Table};
use crate::html;
use crate::pages::{DAY_NS, day};
use crate::store::{Error, Store};
use apex_aggregate::PARTS;
use apex_export::parquet::Parquet;
use apex_export::table::{Cell, Column, Sink, Type};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{fs, io};

/// Hexadecimal digits of a hash in a name.
const DIGITS: usize = 16;

/// The numbers of segments in a folder after it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// New ones, those that took the place of another one among them.
    pub new: u64,
    /// Those that were there already, as they are now.
    pub unchanged: u64,
    /// Those that a new one took the place of.
    pub replaced: u64,
}

/// A column before those of the sums.
type Own = (&'static str, Type, &'static str);

const JOBS: [Own; 19] = [
    ("id", Type::Integer, "number of the job in its hub"),
    ("job", Type::Text, "name of the job"),
    ("owner", Type::Text, "the user"),
    ("command", Type::Text, "the program and its arguments"),
    ("code_version", Type::Text, "the commit"),
    ("launcher", Type::Text, "the program that started the ranks"),
    ("devices", Type::Text, "names of the devices"),
    ("ranks_started", Type::Integer, "ranks that the launcher started; 0 if that is not known"),
    ("ranks", Type::Integer, "ranks that have sent something"),
    ("recordings", Type::Integer, "recordings"),
    ("running", Type::Integer, "recordings whose end was not told"),
    ("failed", Type::Integer, "recordings whose program failed"),
    ("launches", Type::Integer, "launches of kernels, measured"),
    ("lost_records", Type::Integer, "records that were lost"),
    ("started_ns", Type::Integer, "start, nanoseconds since 1970"),
    ("ended_ns", Type::Integer, "end, nanoseconds since 1970; 0 if it was not told"),
    ("seen_ns", Type::Integer, "the last message by the hub's clock, nanoseconds since 1970"),
    ("step_ns", Type::Real, "duration of a step of the slowest rank, predicted"),
    ("cpu_device_us", Type::Integer, "time on the CPU device, in no sum"),
];
const DAYS: [Own; 3] = [
    ("day", Type::Text, "the day on which the recordings began, UTC"),
    ("owner", Type::Text, "the user"),
    ("recordings", Type::Integer, "recordings"),
];
const KERNELS: [Own; 4] = [
    ("week", Type::Text, "the first day of the week, UTC"),
    ("kernel", Type::Text, "short name"),
    ("launches", Type::Integer, "launches, measured"),
    ("gpu_us", Type::Integer, "GPU time, from samples"),
];

/// The columns of sums, which `jobs` and `days` end with.
static SUMS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let named = |name: String| -> &'static str { Box::leak(name.into_boxed_str()) };
    let part = |(name, words): &(&str, &'static str)| Column {
        name: named(format!("{name}_us")),
        kind: Type::Integer,
        meaning: words,
    };
    let others = [
        ("shared_us", "excess of the parts over the time of the devices, computed"),
        ("unused_us", "GPUs that were given and never used, computed"),
        ("energy_mj", "energy of the metered time, measured"),
        ("metered_us", "the part of the GPU time whose energy is known"),
        ("idle_mj", "energy while nothing ran, at least, computed"),
    ];
    let others = others.map(|(name, meaning)| Column { name, kind: Type::Integer, meaning });
    PARTS.iter().map(part).chain(others).collect()
});

/// The columns of a table, in the order in which it is exported; `None` if it has no segments.
fn columns(table: Table) -> Option<Vec<Column>> {
    let (own, sums): (&[Own], &[Column]) = match table {
        Table::Jobs => (&JOBS, &SUMS),
        Table::Days => (&DAYS, &SUMS),
        Table::Kernels => (&KERNELS, &[]),
        Table::Uses => return None,
    };
    let own = own.iter().map(|&(name, kind, meaning)| Column { name, kind, meaning });
    Some(own.chain(sums.iter().copied()).collect())
}

impl Store {
    /// Writes the segments of a tenant's days that have ended, from a day on, into a folder, which
    /// is made where it is missing.
    ///
    /// # Errors
    /// Those of the database. The inner ones are those of the folder.
    pub fn write_segments(
        &self,
        tenant: &str,
        folder: &Path,
        since_day: u64,
        now_ns: u64,
    ) -> Result<io::Result<Written>, Error> {
        let mut written = Written::default();
        let days = self.days(tenant, since_day, day(now_ns))?;
        let mut weeks: Vec<u64> = days.iter().map(|day| day / 7).collect();
        weeks.dedup();
        weeks.retain(|week| 7 * (week + 1) <= day(now_ns));
        let weeks: Vec<(u64, u64)> = weeks.into_iter().map(|week| (7 * week, 7)).collect();
        let days: Vec<(u64, u64)> = days.into_iter().map(|day| (day, 1)).collect();
        for (table, name, times) in
            [(Table::Jobs, "jobs", &days), (Table::Days, "days", &days), (Table::Kernels, "kernels", &weeks)]
        {
            let folder = folder.join(name);
            if let Err(error) = fs::create_dir_all(&folder) {
                return Ok(Err(error));
            }
            for &(first, count) in times {
                let bytes = match self.segment(tenant, table, first..first + count)? {
                    Ok(bytes) => bytes,
                    Err(error) => return Ok(Err(error)),
                };
                if let Err(error) = keep(&folder, &html::date(first), &bytes, &mut written) {
                    return Ok(Err(error));
                }
            }
        }
        Ok(Ok(written))
    }

    /// The rows of some days as Parquet.
    fn segment(
        &self,
        tenant: &str,
        table: Table,
        days: std::ops::Range<u64>,
    ) -> Result<io::Result<Vec<u8>>, Error> {
        let columns = columns(table).expect("the table has segments");
        let mut bytes = Vec::new();
        let mut file = match Parquet::new(&mut bytes, &columns) {
            Ok(file) => file,
            Err(error) => return Ok(Err(error)),
        };
        let range = days.start * DAY_NS..days.end * DAY_NS;
        let rows = self.export(tenant, table, range, |record| file.row(&cells(&record)))?;
        let finished = rows.and_then(|()| file.finish());
        drop(file);
        Ok(finished.map(|()| bytes))
    }
}

fn cells(record: &Record) -> Vec<Cell<'_>> {
    record.0.iter().map(|(_, value)| cell(value)).collect()
}

fn cell(value: &Value) -> Cell<'_> {
    match value {
        Value::String(text) => Cell::Text(text),
        value => value.as_i64().map_or_else(|| value.as_f64().into(), Cell::Integer),
    }
}

/// Puts a segment into its folder, in the place of another one of the same day.
fn keep(folder: &Path, date: &str, bytes: &[u8], written: &mut Written) -> io::Result<()> {
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let path = folder.join(format!("{date}-{}.parquet", &hash[..DIGITS]));
    if path.exists() {
        written.unchanged += 1;
    } else {
        apex_untrusted::replace::bytes(&path, bytes)?;
        written.new += 1;
    }
    for other in segments_of(folder, date)?.into_iter().filter(|other| *other != path) {
        fs::remove_file(other)?;
        written.replaced += 1;
    }
    Ok(())
}

/// The segments of a day that are there.
fn segments_of(folder: &Path, date: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let hash = name.strip_prefix(date).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".parquet"));
        let is_hash = |hash: &str| hash.len() == DIGITS && hash.bytes().all(|c| c.is_ascii_hexdigit());
        if hash.is_some_and(is_hash) {
            found.push(path);
        }
    }
    Ok(found)
}
