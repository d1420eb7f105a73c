//! `apex advise`: prints every finding in full.

use crate::filters;
use crate::import;
use crate::knowledge;
use crate::loaded::Source;
use crate::output::{self, Color};
use crate::report::{self, Judged};
use crate::text::Style;
use apex_advice::Advice;
use apex_conventions::documents;
use apex_view::Applied;
use clap::builder::FalseyValueParser;
use serde::Serialize;
use std::process::ExitCode;

/// Shows every finding with its evidence, the change, the saving, and how to verify it.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex advise                                      the newest session in this folder
  apex advise --suppress APEX-L01,small-grid before
  apex advise --kernel 'regex:gemm|conv'           only kernels with matching names
  apex advise --json | jq '.advice.findings[] | {rule, remedy, saving}'

`apex explain RULE` explains a rule, its threshold and the threshold's source.")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    judged: Judged,
    #[arg(long, help = format!("Print JSON (schema {})", documents::ADVISE), value_parser = FalseyValueParser::new())]
    json: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    session: String,
    filters: Applied<'a>,
    advice: &'a Advice,
}

/// Runs `apex advise`.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let Judged { filters, suppress, knowledge } = &args.judged;
    knowledge::install(knowledge)?;
    let filters = filters.filters();
    let loaded = args.source.load(&filters)?;
    let shown = filters.shown(&loaded)?;
    filters::remark_on_phases(std::slice::from_ref(&shown));
    let advice = filters::advise(&shown, suppress);
    if args.json {
        let session = import::named(&loaded.session.dir).display().to_string();
        let document = Document { session, filters: shown.applied(), advice: &advice };
        return output::json(documents::ADVISE, &document);
    }
    let style = Style { color: color.on_stdout() };
    output::page(|out| report::findings::full(out, shown.profile(), &advice, style, output::width()))
}
