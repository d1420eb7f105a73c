//! `apex advise`: only the advice, in full.

use crate::loaded::Source;
use crate::output::{self, Color};
use crate::report::{self, Judged};
use crate::text::Style;
use apex_advice::Advice;
use apex_profile::PhaseKind;
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::process::ExitCode;

/// Shows what to change: every finding with evidence, saving, confidence, and how to verify.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex advise                                      of the newest session in this folder
  apex advise --suppress APEX-L01,small-grid before
  apex advise --json | jq '.advice.findings[] | {rule, saving}'

docs/advice.md explains each rule, its threshold and the threshold's source.")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    judged: Judged,
    /// Print JSON (schema apex.advise/2)
    #[arg(long, env = "APEX_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    apex_version: &'static str,
    session: String,
    /// The phase that the advice is of; `null` for the whole run.
    phase: Option<PhaseKind>,
    advice: &'a Advice,
}

/// Runs `apex advise`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let loaded = args.source.load()?;
    let (profile, phase) = args.judged.profile(&loaded.profile);
    let advice = args.judged.advise(&profile);
    if args.json {
        return output::json(&Document {
            schema: "apex.advise/2",
            apex_version: env!("CARGO_PKG_VERSION"),
            session: loaded.session.dir.display().to_string(),
            phase,
            advice: &advice,
        });
    }
    let style = Style { color: color.on_stdout() };
    output::page(|out| report::findings::full(out, &profile, &advice, style, output::width()))
}
