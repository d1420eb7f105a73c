//! `apex schema`: JSON Schemas of the documents that commands print with `--json`.
//!
//! A test has the commands print documents, holds the files in `docs/schemas` against them, and
//! writes these files.

use crate::{exit, output, similar};
use apex_conventions::documents::{self, Document};
use apex_deflated::{deflated, inflate};
use std::process::ExitCode;

/// The documents, and the schema of each.
const SCHEMAS: [(Document, &[u8]); 18] = [
    (documents::REPORT, deflated!("apex.report-4.json")),
    (documents::ADVISE, deflated!("apex.advise-3.json")),
    (documents::EXPORT, deflated!("apex.export-1.json")),
    (documents::PREDICT, deflated!("apex.predict-1.json")),
    (documents::DIFF, deflated!("apex.diff-2.json")),
    (documents::CHECK, deflated!("apex.check-1.json")),
    (documents::FIGURES, deflated!("apex.figures-1.json")),
    (documents::HISTORY, deflated!("apex.history-1.json")),
    (documents::EXPLAIN, deflated!("apex.explain-1.json")),
    (documents::MERGE, deflated!("apex.merge-1.json")),
    (documents::LIST, deflated!("apex.list-1.json")),
    (documents::NOTES, deflated!("apex.notes-1.json")),
    (documents::PACK, deflated!("apex.pack-1.json")),
    (documents::TOP, deflated!("apex.top-1.json")),
    (documents::CTL, deflated!("apex.ctl-1.json")),
    (documents::DOCTOR, deflated!("apex.doctor-1.json")),
    (documents::COLLECT, deflated!("apex.collect-1.json")),
    (documents::SUITE, deflated!("apex.suite-1.json")),
];

/// Prints the JSON Schema of a document that commands print with --json.
///
/// A schema (draft 2020-12) has the type of each member. Any member may be null, and others may be
/// added without a new version, so a reader skips those that it does not know.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex schema                            names the documents
  apex schema report > report.schema.json
  apex schema diff | jq '.properties.comparison.properties | keys'

Exit status: 0, or 1 if there is no schema of this name.")]
pub struct Args {
    /// Name of the document, with or without `apex.` and the version; without it, all names are
    /// listed
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// Runs `apex schema`.
pub fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(name) = &args.name else {
        return output::page(|out| SCHEMAS.iter().try_for_each(|(document, _)| writeln!(out, "{document}")));
    };
    if let Some((_, schema)) = SCHEMAS.iter().find(|(document, _)| is_called(*document, name)) {
        let schema: serde_json::Value = serde_json::from_str(&inflate(schema))?;
        return output::page(|out| {
            apex_export::json::pretty(&mut *out, &schema)?;
            writeln!(out)
        });
    }
    let names: Vec<String> = SCHEMAS.iter().map(|(document, _)| document.to_string()).collect();
    let meant = similar::proposal(name, names.iter().map(String::as_str));
    output::remark(format!("there is no schema `{name}`{meant}; `apex schema` lists all"));
    Ok(ExitCode::from(exit::NO))
}

/// Whether a document has this name, which may lack `apex.` and the version.
fn is_called(document: Document, name: &str) -> bool {
    let full = document.to_string();
    let short = full.split('/').next().unwrap_or_default().trim_start_matches("apex.");
    [full.as_str(), full.trim_start_matches("apex."), short].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_short_names() {
        for name in ["apex.report/4", "report/4", "report"] {
            assert!(is_called(documents::REPORT, name), "{name}");
        }
        assert!(!is_called(documents::REPORT, "apex.report/3") && !is_called(documents::REPORT, ""));
    }

    #[test]
    fn every_schema_is_of_its_document() {
        for (document, schema) in SCHEMAS {
            let schema: serde_json::Value = serde_json::from_str(&inflate(schema)).unwrap();
            assert_eq!(schema["properties"]["schema"]["const"], document.to_string());
        }
    }
}
