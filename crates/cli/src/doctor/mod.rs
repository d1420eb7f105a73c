//! `apex doctor`: checks for everything that recording needs, with a remedy for each failure.
//!
//! Every check is one function that looks and returns a [`Check`]; none changes anything that
//! stays. What could crash or hang, the driver, is tried in a child process.

mod driver;
mod environment;
mod system;

use crate::exit;
use crate::output::{self, Color};
use apex_conventions::documents;
use apex_untrusted::printable;
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks this machine for everything that APEX needs, and tells how to fix what is missing.
#[derive(clap::Args)]
#[command(after_long_help = "Examples:
  apex doctor                  check this machine and the current folder
  apex doctor --json | jq '.checks[] | select(.status != \"ok\")'

Exits with status 1 if a check failed. Warnings concern only some programs.")]
pub struct Args {
    /// Folder for sessions
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[arg(long, help = format!("Print JSON (schema {})", documents::DOCTOR), value_parser = FalseyValueParser::new())]
    json: bool,
    /// Try the driver in this process (what the check does in a child process)
    #[arg(long, hide = true)]
    probe_driver: bool,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Some programs will not be recorded, or not as expected.
    Warn,
    /// Nothing can be recorded.
    Fail,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable name.
    pub id: &'static str,
    /// The outcome.
    pub status: Status,
    /// The finding.
    pub found: String,
    /// The remedy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Check { id, status: Status::Ok, found: found.into(), advice: None }
    }

    fn warn(id: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Check { id, status: Status::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    fn fail(id: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Check { status: Status::Fail, ..Self::warn(id, found, advice) }
    }
}

/// The content of the document.
#[derive(Serialize)]
struct Content<'a> {
    checks: &'a [Check],
}

/// Runs the checks.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    if args.probe_driver {
        return output::page(|out| {
            serde_json::to_writer(out, &driver::Probe::here()).map_err(io::Error::from)
        });
    }
    let checks = [driver::checks(), environment::checks(), system::checks(&args.dir)].concat();
    if args.json {
        output::json(documents::DOCTOR, &Content { checks: &checks })?;
    } else {
        output::page(|out| print(out, &checks, color.on_stdout()))?;
    }
    let failed = checks.iter().any(|check| check.status == Status::Fail);
    Ok(if failed { ExitCode::from(exit::NO) } else { ExitCode::SUCCESS })
}

fn print(out: &mut dyn Write, checks: &[Check], color: bool) -> io::Result<()> {
    let widest = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    for check in checks {
        let (word, code) = match check.status {
            Status::Ok => ("ok  ", "32"),
            Status::Warn => ("warn", "33"),
            Status::Fail => ("FAIL", "31;1"),
        };
        let word = if color { format!("\x1b[{code}m{word}\x1b[0m") } else { word.into() };
        writeln!(out, "{word}  {:widest$}  {}", check.id, printable(&check.found))?;
        if let Some(advice) = &check.advice {
            writeln!(out, "      {:widest$}  → {}", "", printable(advice))?;
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    match (count(Status::Fail), count(Status::Warn)) {
        (0, 0) => writeln!(out, "\nAll checks passed."),
        (0, warnings) => {
            writeln!(out, "\nAPEX can record here; {warnings} of {} checks have warnings.", checks.len())
        }
        (failures, _) => writeln!(out, "\n{failures} of {} checks failed: see the arrows.", checks.len()),
    }
}
