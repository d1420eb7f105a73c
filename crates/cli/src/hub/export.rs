//! `apex hub export`: tables for DuckDB, ClickHouse, pandas and spreadsheets.

use super::{Database, tenant};
use crate::output;
use crate::run::real_ns;
use anyhow::{Context, bail};
use apex_csv::Writer;
use apex_hub::Store;
use apex_hub::export::{Record, Table};
use apex_hub::segments::Written;
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
  duckdb -c \"SELECT owner, sum(energy_mj) / 3.6e9 AS kwh FROM '/srv/apex/segments/jobs/*.parquet' GROUP BY owner\"
  duckdb -c \"SELECT owner, sum(host_code_us) FROM read_json('jobs.ndjson') GROUP BY owner\"

The hub may run meanwhile.")]
pub struct Args {
    /// The table
    #[arg(value_enum, required_unless_present = "segments")]
    table: Option<Name>,
    /// Write a Parquet file of each day that has ended into folders of this one: jobs, days, and
    /// kernels by week
    #[arg(long, value_name = "DIR", conflicts_with_all = ["table", "csv"])]
    segments: Option<PathBuf>,
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
    let store = args.database.open_existing()?;
    let tenant = tenant(args.tenant.as_deref(), &store)?;
    let since_ns = real_ns().saturating_sub(args.days * DAY_NS);
    if let Some(folder) = &args.segments {
        return segments(&store, &tenant, folder, since_ns / DAY_NS);
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

/// Writes the segments, and says what became of them.
fn segments(store: &Store, tenant: &str, folder: &Path, since_day: u64) -> anyhow::Result<ExitCode> {
    let shown = apex_untrusted::shown(folder);
    if folder.to_str().is_some_and(|name| name.contains("://")) {
        bail!(
            "{shown} is no folder: name one, and copy it with aws s3 sync --delete, rclone sync or gsutil rsync -d"
        );
    }
    let Written { new, unchanged, replaced } = store
        .write_segments(tenant, folder, since_day, real_ns())?
        .with_context(|| format!("cannot write segments into {shown}"))?;
    output::page(|out| {
        writeln!(out, "{new} written ({replaced} in the place of others), {unchanged} unchanged")
    })
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
