//! `apex hub report`: what a week was like.

use super::{Database, Price};
use crate::output;
use anyhow::Context;
use apex_conventions::documents;
use apex_hub::LOCAL;
use clap::builder::FalseyValueParser;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes what the last days were like: GPU-hours, what they were lost to, who lost most, jobs that
/// became slower.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex hub report --html week.html
  apex hub report --tenant physics --days 30 --price-per-gpu-hour 2.50 --html month.html
  apex hub report --json | jq .times.held_us

The hub may run meanwhile.")]
pub struct Args {
    #[command(flatten)]
    database: Database,
    /// Tenant whose jobs are reported
    #[arg(long, value_name = "NAME", default_value = LOCAL)]
    tenant: String,
    /// Number of days; the last one is today (UTC)
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=365))]
    days: u64,
    /// Write one HTML file
    #[arg(long, value_name = "FILE", required_unless_present = "json")]
    html: Option<PathBuf>,
    #[arg(long, help = format!("Print JSON (schema {})", documents::HUB), value_parser = FalseyValueParser::new())]
    json: bool,
    #[command(flatten)]
    price: Price,
}

/// Runs `apex hub report`.
///
/// # Errors
/// If the database or the file cannot be used.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let store = args.database.open_existing()?;
    if let Some(path) = &args.html {
        let page = store.report_html(&args.tenant, args.days, args.price.price_per_gpu_hour)?;
        apex_untrusted::replace::file(path, |mut file| file.write_all(page.as_bytes()))
            .with_context(|| format!("cannot write {}", apex_untrusted::shown(path)))?;
    }
    if args.json {
        let document = store.report_json(&args.tenant, args.days)?;
        return output::page(|out| writeln!(out, "{document}"));
    }
    Ok(ExitCode::SUCCESS)
}
