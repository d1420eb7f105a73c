//! The file: a JSON object a line.

use apex_ordered::Order;
use std::collections::BTreeMap;

use apex_conventions::documents;
use apex_conventions::documents::Envelope;
use serde::{Deserialize, Serialize};

/// Values by name.
pub type Values = BTreeMap<String, f64>;

/// Figures of a run, or of a kernel function in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Those that two runs of the same program share.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exact: Values,
    /// Those that vary from run to run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub varying: Values,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The commit that ran, as the user names it.
    pub commit: String,
    /// When it ran: RFC 3339 in UTC, to the second.
    pub time: String,
    /// The program, or the benchmark.
    pub name: String,
    /// The device that ran it.
    pub device: String,
    /// Figures of the whole.
    pub figures: Figures,
    /// Figures of kernel functions, by short name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kernels: BTreeMap<String, Figures>,
}

/// All runs, in the order of their lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The runs.
    pub runs: Vec<Run>,
}

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Error {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

#[derive(Deserialize)]
struct Line {
    schema: String,
    #[serde(flatten)]
    run: Run,
}

impl History {
    /// Reads a file's text. Empty lines are skipped.
    ///
    /// # Errors
    /// Names the first line that cannot be used.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let run = |(at, line)| read(line).map_err(|what| Error { line: at + 1, what });
        let mut runs = lines.map(run).collect::<Result<Vec<_>, _>>()?;
        // Branches that git has joined line by line are in no order of time.
        runs.order_by(|a, b| a.time.cmp(&b.time));
        Ok(Self { runs })
    }
}

impl Run {
    /// Its line, with the line's end.
    ///
    /// # Panics
    /// If a figure is not finite.
    pub fn line(&self) -> String {
        let line = Envelope::of(documents::HISTORY_RUN, self);
        serde_json::to_string(&line).expect("texts and finite numbers are JSON") + "\n"
    }
}

fn read(line: &str) -> Result<Run, String> {
    let Line { schema, run } = serde_json::from_str(line).map_err(|error| error.to_string())?;
    documents::HISTORY_RUN.check(&schema)?;
    if !is_moment(&run.time) {
        return Err(format!("`time` must be like 2026-11-23T17:22:31Z, not {:?}", run.time));
    }
    Ok(run)
}

/// Whether a text has the form of RFC 3339 in UTC, to the second.
fn is_moment(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let fits = |(found, form): (u8, &u8)| if *form == b'0' { found.is_ascii_digit() } else { found == *form };
    text.len() == FORM.len() && text.bytes().zip(FORM).all(fits)
}
