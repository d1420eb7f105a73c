//! The file: a JSON object a line.

use apex_ordered::Order;
use std::collections::BTreeMap;

use apex_conventions::documents;
use apex_conventions::documents::Envelope;
use serde::{Deserialize, Serialize};

/// Values by name.
pub type Values = BTreeMap<String, f64>;

/// Maximum value of a figure: counts and times stay far below it.
const MOST: f64 = 1e18;

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
    /// Identifies the run, if that is known, so that it counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
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
    /// Reads a file's text. Empty lines are skipped, and a run that has several lines counts once:
    /// it was added again, or on two branches.
    ///
    /// # Errors
    /// Names the first line that cannot be used.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let run = |(at, line)| read(line).map_err(|what| Error { line: at + 1, what });
        let mut runs = lines.map(run).collect::<Result<Vec<_>, _>>()?;
        // Branches that git has joined line by line are in no order of time.
        runs.order_by(|a, b| a.time.cmp(&b.time));
        let mut once = Self::default();
        for run in runs {
            if once.find(&run).is_none() {
                once.runs.push(run);
            }
        }
        Ok(once)
    }

    /// The known run that another line repeats.
    pub fn find(&self, run: &Run) -> Option<&Run> {
        let same_time = self.runs.iter().rev().skip_while(|other| other.time > run.time);
        same_time.take_while(|other| other.time == run.time).find(|other| other.is_same(run))
    }
}

impl Run {
    /// Whether another line is of the same run: by the identifier, or else if the lines are equal.
    fn is_same(&self, other: &Self) -> bool {
        let is_known = self.id.is_some() && other.id.is_some();
        if is_known { (&self.id, &self.name) == (&other.id, &other.name) } else { self == other }
    }

    /// What is wrong with it.
    fn fault(&self) -> Option<String> {
        if !is_moment(&self.time) {
            return Some(format!("`time` must be like 2026-11-23T17:22:31Z, not {:?}", self.time));
        }
        let names = [("commit", &self.commit), ("name", &self.name), ("device", &self.device)];
        if let Some((member, _)) = names.into_iter().find(|(_, name)| name.trim().is_empty()) {
            return Some(format!("`{member}` is empty"));
        }
        let figures = std::iter::once(&self.figures).chain(self.kernels.values());
        let mut values = figures.flat_map(|figures| figures.exact.iter().chain(&figures.varying));
        values.find_map(|(name, &value)| {
            let most = if name.ends_with("_percent") { 100.0 } else { MOST };
            let fits = (0.0..=most).contains(&value);
            (!fits).then(|| format!("`{name}` must be a number from 0 to {most:e}, not {value}"))
        })
    }

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
    run.fault().map_or(Ok(run), Err)
}

/// Whether a text has the form of RFC 3339 in UTC, to the second, and names a moment.
fn is_moment(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let fits = |(found, form): (u8, &u8)| if *form == b'0' { found.is_ascii_digit() } else { found == *form };
    let is_in = |(at, least, most): (usize, u8, u8)| {
        let digits = &text.as_bytes()[at..at + 2];
        (least..=most).contains(&(10 * (digits[0] - b'0') + (digits[1] - b'0')))
    };
    text.len() == FORM.len()
        && text.bytes().zip(FORM).all(fits)
        && [(5, 1, 12), (8, 1, 31), (11, 0, 23), (14, 0, 59), (17, 0, 60)].into_iter().all(is_in)
}
