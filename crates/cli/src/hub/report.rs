//! `apex hub report`: what a week was like.

use super::{Database, Price, parse_url, tenant};
use crate::output;
use anyhow::Context;
use apex_conventions::documents;
use clap::ArgGroup;
use clap::builder::FalseyValueParser;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes what the last days were like: GPU-hours, what they were lost to, who lost most, jobs that
/// became slower.
#[derive(clap::Args, Debug)]
#[command(group = ArgGroup::new("form").required(true).multiple(true).args(["html", "json"]))]
#[command(after_long_help = "Examples:
  apex hub report --html week.html
  apex hub report --html week.html --url https://hub.example
                                         with links to the hub's pages
  apex hub report --tenant physics --days 30 --price-per-gpu-hour 2.50 --html month.html
  apex hub report --json | jq .times.held_us

The hub may run meanwhile.")]
pub struct Args {
    #[command(flatten)]
    database: Database,
    /// Tenant whose jobs are reported [default: the only one]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Number of days; the last one is today (UTC)
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=365))]
    days: u64,
    /// Write one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Address of the hub, to which links of the HTML file lead; without it, the file has no links
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    url: Option<String>,
    #[arg(long, help = format!("Print JSON (schema {})", documents::HUB), value_parser = FalseyValueParser::new())]
    json: bool,
    #[command(flatten)]
    price: Price,
}

/// Runs `apex hub report`.
///
/// # Errors
/// If the database or the file cannot be used, or there is no such tenant.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let store = args.database.open_existing()?;
    let tenant = tenant(args.tenant.as_deref(), &store)?;
    if let Some(path) = &args.html {
        let price = args.price.price_per_gpu_hour;
        let page = store.report_html(&tenant, args.days, price, args.url.as_deref())?;
        apex_untrusted::replace::file(path, |mut file| file.write_all(page.as_bytes()))
            .with_context(|| format!("cannot write {}", apex_untrusted::shown(path)))?;
    }
    if args.json {
        let document = store.report_json(&tenant, args.days)?;
        return output::page(|out| writeln!(out, "{document}"));
    }
    Ok(ExitCode::SUCCESS)
}
