//! `apex hub deliver`: sends what waits in a spool.

use crate::destination::{ToHub, address, remarks};
use crate::{exit, output, units};
use anyhow::bail;
use apex_conventions::documents;
use apex_delivery::{Addressee, Route, addressees, deliver};
use apex_ordered::Gather;
use apex_push::Target;
use apex_spool::{Counts, Spool};
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::process::ExitCode;
use std::time::Duration;

/// Sends what waits in a spool to the hub that it is for, in an epilog or a timer.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex hub deliver                       to the hub for which everything waits
  apex hub deliver --hub https://hub:8765
  apex hub deliver --hub https://hub:8765 --spool /shared/me/spool --within 60s
  apex hub deliver --list                what waits, and for which hub; sends nothing
  apex hub deliver --hub http://new:8765 --also-for http://old:8765
                                         after the hub has moved, or its token was replaced

A message goes to the hub that `apex run` was told, with the token that it had, and to no other; one that was written without \
a token goes to its hub with any, and one without a hub to any hub. Without --hub, it is the hub for which messages wait, if \
that is one. Exits with status 1 if messages still wait, for this hub or for others.")]
pub struct Args {
    #[command(flatten)]
    to: ToHub,
    /// Also send what waits for this hub, with whatever token: it has moved, or its token was
    /// replaced
    #[arg(long, value_name = "URL", hide_env_values = true)]
    also_for: Vec<String>,
    /// Print what waits and for which hub, and send nothing
    #[arg(long, conflicts_with = "also_for")]
    list: bool,
    /// Time after which it stops; what is left waits
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::parse_duration)]
    within: Duration,
    #[arg(long, help = format!("Print JSON (schema {})", documents::HUB), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// The document of `--json`.
#[derive(Default, Serialize)]
struct Document {
    confirmed: u64,
    refused: u64,
    /// For this hub.
    waiting: u64,
    /// For other hubs, or for this one with another token.
    elsewhere: u64,
    failure: Option<String>,
    /// Since the spool was made.
    dropped: u64,
    damaged: u64,
    refused_in_all: u64,
}

/// The document of `--list --json`.
#[derive(Serialize)]
struct Listing {
    waiting: Vec<Waiting>,
}

/// Messages that wait for one hub and tenant.
#[derive(Serialize)]
struct Waiting {
    /// `None` if no hub was named: it goes to any.
    hub: Option<String>,
    /// Part of the token's hash; `None` if there was no token.
    token_hash: Option<String>,
    messages: u64,
}

/// Runs `apex hub deliver`.
///
/// # Errors
/// If no hub is named, or the spool cannot be used.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let spool = args.to.existing_spool()?;
    if args.list {
        return list(spool.as_ref(), args.json);
    }
    let Some(hub) = hub(&args.to, spool.as_ref())? else {
        return nothing(args.json);
    };
    let also_for = args.also_for.iter().map(|url| address("--also-for", url)).collect::<Result<_, _>>()?;
    let route = Route { hub, also_for };
    let (done, counts) = match &spool {
        Some(spool) => (deliver(spool, &route, args.within)?, spool.counts()?),
        None => Default::default(),
    };
    if let Some(spool) = &spool {
        remarks(&done, spool).into_iter().for_each(output::remark);
    }
    if args.json {
        let document = Document {
            confirmed: done.confirmed,
            refused: done.refused,
            waiting: done.waiting,
            elsewhere: done.elsewhere,
            failure: done.failure.as_ref().map(ToString::to_string),
            dropped: counts.dropped,
            damaged: counts.damaged,
            refused_in_all: counts.refused,
        };
        output::json(documents::HUB, &document)?;
    } else {
        output::page(|out| writeln!(out, "{} confirmed, {} wait", done.confirmed, done.waiting))?;
    }
    if let Some(spool) = &spool {
        tell_losses(spool)?;
    }
    let is_done = done.waiting + done.elsewhere == 0;
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

/// The hub that the user names, else the one for which messages wait; `None` if none wait.
///
/// # Errors
/// If messages wait for several hubs, or for any.
fn hub(to: &ToHub, spool: Option<&Spool>) -> anyhow::Result<Option<Target>> {
    if let Some(named) = to.target()? {
        return Ok(Some(named));
    }
    let found = spool.map(addressees).transpose()?.unwrap_or_default();
    if found.is_empty() {
        return Ok(None);
    }
    let hubs: BTreeSet<&str> = found.keys().filter_map(|of| of.hub.as_deref()).gathered();
    let shown: Vec<_> = hubs.iter().map(|hub| apex_untrusted::printable(hub)).collect();
    match &shown[..] {
        [] => bail!("messages wait for any hub: name one with --hub URL, or in APEX_HUB"),
        [only] => {
            output::remark(format!("sends to {only}, for which messages wait"));
            let named = ToHub { hub: hubs.first().map(|&hub| hub.to_owned()), ..to.clone() };
            named.target()
        }
        several => bail!("messages wait for {}: name one with --hub URL", several.join(" and ")),
    }
}

/// Says that nothing waits.
fn nothing(json: bool) -> anyhow::Result<ExitCode> {
    match json {
        true => output::json(documents::HUB, &Document::default())?,
        false => output::page(|out| writeln!(out, "nothing waits"))?,
    };
    Ok(ExitCode::SUCCESS)
}

/// Says what the spool has lost since this was said last.
fn tell_losses(spool: &Spool) -> anyhow::Result<()> {
    let Counts { dropped, damaged, .. } = spool.news()?;
    if dropped > 0 || damaged > 0 {
        output::remark(format!(
            "since this was said last, {} had to make room and {} had changed on the disk",
            units::counted(dropped, "message", "messages"),
            units::counted(damaged, "entry", "entries"),
        ));
    }
    Ok(())
}

fn list(spool: Option<&Spool>, json: bool) -> anyhow::Result<ExitCode> {
    let found = spool.map(addressees).transpose()?.unwrap_or_default();
    let of = |(to, messages): (Addressee, u64)| Waiting { hub: to.hub, token_hash: to.token, messages };
    let waiting: Vec<Waiting> = found.into_iter().map(of).collect();
    let code = if waiting.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) };
    if json {
        output::json(documents::HUB, &Listing { waiting })?;
    } else {
        output::page(|out| match waiting.is_empty() {
            true => writeln!(out, "nothing waits"),
            false => waiting.iter().try_for_each(|of| writeln!(out, "{of}")),
        })?;
    }
    Ok(code)
}

impl Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hub = self.hub.as_deref().map_or("any hub".into(), apex_untrusted::printable);
        let token = match (&self.token_hash, &self.hub) {
            (Some(hash), _) => {
                format!(" with the token whose hash begins {}", apex_untrusted::printable(hash))
            }
            (None, Some(_)) => " with any token".to_owned(),
            (None, None) => String::new(),
        };
        let messages = units::counted(self.messages, "message waits", "messages wait");
        write!(f, "{messages} for {hub}{token}")
    }
}
