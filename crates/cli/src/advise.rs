//! `apex advise`: only the advice, in full.

use crate::loaded::Source;
use crate::output::{self, Color};
use crate::report;
use crate::text::Style;
use apex_advice::Advice;
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
    /// Rules not to report, by identifier or name
    #[arg(long, value_name = "RULE", value_delimiter = ',', env = "APEX_SUPPRESS")]
    suppress: Vec<String>,
    /// Print JSON (schema apex.advise/1)
    #[arg(long, env = "APEX_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    apex_version: &'static str,
    session: String,
    advice: &'a Advice,
}

/// Runs `apex advise`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let loaded = args.source.load()?;
    let advice = report::advise(&loaded.profile, &args.suppress);
    if args.json {
        return output::json(&Document {
            schema: "apex.advise/1",
            apex_version: env!("CARGO_PKG_VERSION"),
            session: loaded.session.dir.display().to_string(),
            advice: &advice,
        });
    }
    let style = Style { color: color.on_stdout() };
    output::page(|out| report::findings::full(out, &loaded.profile, &advice, style, output::width()))
}
