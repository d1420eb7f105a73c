//! `apex hub token`: tenants and their tokens.

use super::Database;
use crate::run::real_ns;
use crate::{exit, output};
use apex_conventions::documents;
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::process::ExitCode;

/// Makes, lists and revokes tokens of a hub.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex hub token add physics             prints a new token of the tenant `physics`
  apex hub token list
  apex hub token revoke physics          all tokens of the tenant; its jobs stay

The database holds hashes of tokens only. A hub that runs knows new and revoked tokens at once, if it was started with at \
least one; a hub that was started without any has to be started again.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    database: Database,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Prints a new token of a tenant
    Add {
        /// Name of the tenant
        name: String,
    },
    /// Lists tenants with the number of their tokens
    List {
        #[arg(long, help = format!("Print JSON (schema {})", documents::HUB), value_parser = FalseyValueParser::new())]
        json: bool,
    },
    /// Revokes all tokens of a tenant
    Revoke {
        /// Name of the tenant
        name: String,
    },
}

/// The document of `list --json`.
#[derive(Serialize)]
struct Tenants {
    tenants: Vec<Tenant>,
}

#[derive(Serialize)]
struct Tenant {
    name: String,
    tokens: i64,
    /// When the newest was made, nanoseconds since 1970.
    newest_ns: Option<i64>,
}

/// Runs `apex hub token`.
///
/// # Errors
/// If the database cannot be opened.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Add { name } => {
            let token =
                args.database.open()?.add_token(name, i64::try_from(real_ns()).unwrap_or(i64::MAX))?;
            output::page(|out| writeln!(out, "{token}"))?;
            output::remark("it is shown only now; programs that send have it in APEX_HUB_TOKEN");
            Ok(ExitCode::SUCCESS)
        }
        Command::List { json } => list(args, *json),
        Command::Revoke { name } => revoke(args, name),
    }
}

fn list(args: &Args, json: bool) -> anyhow::Result<ExitCode> {
    let tenants = args.database.open_existing()?.tenants()?;
    if json {
        let of = |(name, tokens, newest_ns)| Tenant { name, tokens, newest_ns };
        return output::json(documents::HUB, &Tenants { tenants: tenants.into_iter().map(of).collect() });
    }
    output::page(|out| {
        tenants.iter().try_for_each(|(name, tokens, _)| {
            writeln!(out, "{name:<24} {}", crate::units::counted(tokens.unsigned_abs(), "token", "tokens"))
        })
    })
}

fn revoke(args: &Args, name: &str) -> anyhow::Result<ExitCode> {
    let revoked = args.database.open_existing()?.revoke_tokens(name)?;
    let shown = apex_untrusted::printable(name);
    output::remark(format!(
        "{} of {shown} revoked",
        crate::units::counted(revoked as u64, "token", "tokens")
    ));
    Ok(if revoked > 0 { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}
