//! `apex hub export`: tables for DuckDB, ClickHouse, pandas and spreadsheets.

use super::{Database, objects, tenant};
use crate::run::real_ns;
use crate::{exit, output};
use anyhow::{Context, bail};
use apex_csv::Writer;
use apex_hub::Store;
use apex_hub::export::{Record, Table};
use apex_hub::segments::{Local, Place, Verified, Written, verify};
use clap::ValueEnum;
use clap::builder::FalseyValueParser;
use serde_json::Value;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const DAY_NS: u64 = 86_400_000_000_000;

/// Prints a table of the hub, as a JSON object in each line, or as CSV; or writes all tables as
/// Parquet, a file of each day.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex hub export jobs > jobs.ndjson
  apex hub export uses --days 7 --csv > uses.csv
  apex hub export --segments /srv/apex/segments
                                         all tables as Parquet, a file of each day
  apex hub export --segments s3://bucket/apex --days 40
                                         the same in an S3-compatible store
  apex hub export --segments s3://bucket/apex --verify
                                         reads them back; exits with status 1 if one is damaged
  duckdb -c \"SELECT owner, sum(energy_mj) / 3.6e9 AS kwh FROM '/srv/apex/segments/jobs/*.parquet' GROUP BY owner\"
  duckdb -c \"SELECT owner, sum(host_code_us) FROM read_json('jobs.ndjson') GROUP BY owner\"

A store is reached as by other programs: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN have the keys, AWS_REGION \
its region [default: us-east-1], AWS_ENDPOINT_URL the address of one that is not Amazon's, AWS_CA_BUNDLE a file of the certificates \
that are trusted there.

The hub may run meanwhile.")]
pub struct Args {
    /// The table
    #[arg(value_enum, required_unless_present = "segments")]
    table: Option<Name>,
    /// Write a Parquet file of each day that has ended into folders of this one, or below a place
    /// in an S3-compatible store (s3://BUCKET/PREFIX): jobs, days, and kernels by week
    #[arg(long, value_name = "DIR", conflicts_with_all = ["table", "csv"])]
    segments: Option<PathBuf>,
    /// Write nothing: read all segments that are there, and compare their contents with their
    /// names; no database is asked
    #[arg(long, requires = "segments")]
    verify: bool,
    #[command(flatten)]
    database: Database,
    /// Tenant whose rows are printed [default: the only one]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Number of days whose rows are printed
    #[arg(long, value_name = "N", default_value_t = 3660, value_parser = clap::value_parser!(u64).range(1..=3660))]
    days: u64,
    /// Print CSV
    #[arg(long, value_parser = FalseyValueParser::new())]
    csv: bool,
}

/// A table.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    /// Jobs, with where their GPU time went
    Jobs,
    /// Owners by day
    Days,
    /// Kernels by week
    Kernels,
    /// Uses of devices by processes, of messages that are kept
    Uses,
}

impl From<Name> for Table {
    fn from(name: Name) -> Self {
        match name {
            Name::Jobs => Self::Jobs,
            Name::Days => Self::Days,
            Name::Kernels => Self::Kernels,
            Name::Uses => Self::Uses,
        }
    }
}

/// Runs `apex hub export`.
///
/// # Errors
/// If the database cannot be used, or there is no such tenant.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = args.segments.as_ref().filter(|_| args.verify) {
        return verified(path);
    }
    let store = args.database.open_existing()?;
    let tenant = tenant(args.tenant.as_deref(), &store)?;
    let since_ns = real_ns().saturating_sub(args.days * DAY_NS);
    if let Some(path) = &args.segments {
        return segments(&store, &tenant, path, since_ns / DAY_NS);
    }
    let Some(table) = args.table else { unreachable!("an argument requires it") };
    let mut failed = None;
    let code = output::page(|out| {
        let mut has_head = false;
        let write = |record: Record| match args.csv {
            true => csv(out, &record, std::mem::replace(&mut has_head, true)),
            false => {
                serde_json::to_writer(&mut *out, &record)?;
                writeln!(out)
            }
        };
        match store.export(&tenant, table.into(), since_ns..u64::MAX, write) {
            Ok(written) => written,
            Err(error) => {
                failed = Some(error);
                Ok(())
            }
        }
    })?;
    failed.map_or(Ok(code), |error| Err(error.into()))
}

/// The place that a text names: a folder, or a part of a bucket.
fn place(path: &Path, local: impl FnOnce(&Path) -> io::Result<Local>) -> anyhow::Result<Box<dyn Place>> {
    let shown = apex_untrusted::shown(path);
    match path.to_str().and_then(|name| name.split_once("://")) {
        None => Ok(Box::new(local(path).with_context(|| format!("cannot write segments into {shown}"))?)),
        Some(("s3", _)) => Ok(Box::new(objects::store(&path.to_string_lossy())?)),
        Some(_) => bail!(
            "{shown} is neither a folder nor s3://BUCKET/PREFIX: most stores have an interface of S3, whose address is set in \
             AWS_ENDPOINT_URL"
        ),
    }
}

/// Writes the segments, and says what became of them.
fn segments(store: &Store, tenant: &str, path: &Path, since_day: u64) -> anyhow::Result<ExitCode> {
    let place = place(path, Local::to_write)?;
    let Written { new, unchanged, replaced } =
        store
            .write_segments(tenant, &*place, since_day, real_ns())?
            .with_context(|| format!("cannot write segments into {}", apex_untrusted::shown(path)))?;
    output::page(|out| {
        writeln!(out, "{new} written ({replaced} in the place of others), {unchanged} unchanged")
    })
}

/// Reads the segments back, and says which of them are damaged.
fn verified(path: &Path) -> anyhow::Result<ExitCode> {
    let place = place(path, |path| Ok(Local::to_read(path)))?;
    let shown = apex_untrusted::shown(path);
    let Verified { sound, damaged, twice } =
        verify(&*place).with_context(|| format!("cannot read the segments of {shown}"))?;
    output::page(|out| {
        for name in &damaged {
            let name = apex_untrusted::printable(name);
            writeln!(
                out,
                "damaged: {name}: its content is not that of its name; remove it and export again"
            )?;
        }
        for name in &twice {
            let name = apex_untrusted::printable(name);
            writeln!(
                out,
                "twice: {name}: another segment has its day; export again, which removes the older one"
            )?;
        }
        writeln!(
            out,
            "{sound} sound, {} damaged, {} of days that are there twice",
            damaged.len(),
            twice.len()
        )
    })?;
    let is_sound = damaged.is_empty() && twice.is_empty();
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

/// Writes a record, below the names if none was before it.
fn csv(out: &mut dyn Write, record: &Record, has_head: bool) -> io::Result<()> {
    let mut writer = Writer::new(out);
    if !has_head {
        writer.record(record.0.iter().map(|(name, _)| Some(name.as_str())))?;
    }
    for (_, value) in &record.0 {
        match value {
            Value::Null => writer.field(None)?,
            Value::String(text) => writer.untrusted(text)?,
            value => writer.plain(value)?,
        }
    }
    writer.end_record()
}
