//! Segments: a Parquet file of each day that has ended, in a folder or in an S3-compatible store,
//! for engines that read many files.
//!
//! `jobs` and `days` have a file of each day, `kernels` has one of each week. A file's name begins
//! with its first day and ends with a part of the SHA-256 of its bytes.
//!
//! Invariants:
//!
//! 1. **A name has one content**, so that whoever reads a file can compare them ([`verify`]).
//! 2. **A day is there once.** When figures of a day arrive later, a new file replaces the earlier
//!    one: it is complete before that one goes, so that for a moment both are there. If the export
//!    is killed in this moment, the next one removes the earlier file.
//! 3. The same rows are the same bytes: rows are ordered, and nothing tells when they were written.

mod place;

pub use place::{Local, Place};

use crate::export::{Record, Table};
use crate::html;
use crate::pages::{DAY_NS, day};
use crate::store::{Error, Store};
use apex_aggregate::PARTS;
use apex_export::parquet::Parquet;
use apex_export::table::{Cell, Column, Sink, Type};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::sync::LazyLock;

/// Hexadecimal digits of a hash in a name.
const DIGITS: usize = 16;

/// Tables that have segments, with the names of their folders.
const TABLES: [(Table, &str); 3] =
    [(Table::Jobs, "jobs"), (Table::Days, "days"), (Table::Kernels, "kernels")];

/// The numbers of segments in a place after it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// New ones, those that took the place of another one among them.
    pub new: u64,
    /// Those that were there already, as they are now.
    pub unchanged: u64,
    /// Those that a new one took the place of.
    pub replaced: u64,
}

/// What became of segments that were read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Those whose content is the one of their name.
    pub sound: u64,
    /// Those whose content is another one.
    pub damaged: Vec<String>,
    /// Those of a day that another segment has, too: an export was killed between the two.
    pub twice: Vec<String>,
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
    /// Writes the segments of a tenant's days that have ended, from a day on, into a place.
    ///
    /// # Errors
    /// Those of the database. The inner ones are those of the place.
    pub fn write_segments(
        &self,
        tenant: &str,
        place: &dyn Place,
        since_day: u64,
        now_ns: u64,
    ) -> Result<io::Result<Written>, Error> {
        let mut written = Written::default();
        let days = self.days(tenant, since_day, day(now_ns))?;
        let mut weeks: Vec<u64> = days.iter().map(|day| day / 7).collect();
        weeks.dedup();
        weeks.retain(|week| 7 * (week + 1) <= day(now_ns));
        for (table, folder) in TABLES {
            let names = match place.names(folder) {
                Ok(names) => names,
                Err(error) => return Ok(Err(error)),
            };
            let ranges: Vec<(u64, u64)> = match table {
                Table::Kernels => weeks.iter().map(|week| (7 * week, 7)).collect(),
                _ => days.iter().map(|&day| (day, 1)).collect(),
            };
            for (first, count) in ranges {
                let bytes = match self.segment(tenant, table, first..first + count)? {
                    Ok(bytes) => bytes,
                    Err(error) => return Ok(Err(error)),
                };
                if let Err(error) = keep(place, folder, &names, &html::date(first), &bytes, &mut written) {
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

/// Puts a segment into a place, and removes others of the same day.
fn keep(
    place: &dyn Place,
    folder: &str,
    names: &[String],
    date: &str,
    bytes: &[u8],
    written: &mut Written,
) -> io::Result<()> {
    let name = format!("{date}-{}.parquet", content(bytes));
    if names.contains(&name) {
        written.unchanged += 1;
    } else {
        place.put(folder, &name, bytes)?;
        written.new += 1;
    }
    for other in names.iter().filter(|&other| *other != name && date_of(other) == Some(date)) {
        place.remove(folder, other)?;
        written.replaced += 1;
    }
    Ok(())
}

/// What a name has of its content.
fn content(bytes: &[u8]) -> String {
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    hash[..DIGITS].to_owned()
}

/// The first day of a segment of this name; `None` if it is no segment.
fn date_of(name: &str) -> Option<&str> {
    let (date, hash) = name.strip_suffix(".parquet")?.rsplit_once('-')?;
    let is_hash = hash.len() == DIGITS && hash.bytes().all(|c| c.is_ascii_hexdigit());
    let is_date = date.len() == 10 && date.bytes().all(|c| c.is_ascii_digit() || c == b'-');
    (is_hash && is_date).then_some(date)
}

/// Reads all segments of a place back, and compares each content with its name. What is no segment
/// is passed over.
///
/// # Errors
/// Those of the place.
pub fn verify(place: &dyn Place) -> io::Result<Verified> {
    let mut verified = Verified::default();
    for (_, folder) in TABLES {
        let mut names = place.names(folder)?;
        names.sort_unstable();
        let mut of_date: BTreeMap<&str, u64> = BTreeMap::new();
        names.iter().filter_map(|name| date_of(name)).for_each(|date| *of_date.entry(date).or_default() += 1);
        for name in &names {
            let Some(date) = date_of(name) else { continue };
            let shown = || format!("{folder}/{name}");
            if of_date[date] > 1 {
                verified.twice.push(shown());
            }
            match name.ends_with(&format!("-{}.parquet", content(&place.read(folder, name)?))) {
                true => verified.sound += 1,
                false => verified.damaged.push(shown()),
            }
        }
    }
    Ok(verified)
}
