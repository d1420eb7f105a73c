//! `apex hub deliver`: sends what waits in a spool.

use crate::destination::{ToHub, remarks};
use crate::{exit, output, units};
use anyhow::anyhow;
use apex_conventions::documents;
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// Sends what waits in a spool to the hub, for an epilog or a timer.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex hub deliver --hub http://hub:8765
  apex hub deliver --hub http://hub:8765 --spool /shared/me/spool --within 60s

Exits with status 1 if messages still wait.")]
pub struct Args {
    #[command(flatten)]
    to: ToHub,
    /// Time after which it stops; what is left waits
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::parse_duration)]
    within: Duration,
    #[arg(long, help = format!("Print JSON (schema {})", documents::HUB), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Document {
    confirmed: u64,
    refused: u64,
    waiting: u64,
    failure: Option<String>,
    /// Since the spool was made.
    dropped: u64,
    damaged: u64,
    refused_in_all: u64,
}

/// Runs `apex hub deliver`.
///
/// # Errors
/// If no hub is named, or the spool cannot be used.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let target =
        args.to.target()?.ok_or_else(|| anyhow!("no hub is named: add --hub URL, or set APEX_HUB"))?;
    let spool = args.to.spool()?;
    let done = apex_delivery::deliver(&spool, &target, args.within)?;
    let counts = spool.counts()?;
    remarks(&done, &spool).into_iter().for_each(output::remark);
    if args.json {
        let document = Document {
            confirmed: done.confirmed,
            refused: done.refused,
            waiting: done.waiting,
            failure: done.failure.as_ref().map(ToString::to_string),
            dropped: counts.dropped,
            damaged: counts.damaged,
            refused_in_all: counts.refused,
        };
        output::json(documents::HUB, &document)?;
    } else {
        output::page(|out| writeln!(out, "{} confirmed, {} wait", done.confirmed, done.waiting))?;
    }
    if counts.dropped > 0 || counts.damaged > 0 {
        output::remark(format!(
            "since the spool was made, {} had to make room and {} had changed on the disk",
            units::counted(counts.dropped, "message", "messages"),
            units::counted(counts.damaged, "entry", "entries"),
        ));
    }
    Ok(if done.waiting == 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}
