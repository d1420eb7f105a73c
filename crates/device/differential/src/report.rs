//! The outcome of a check, form by form.

use crate::case::Case;
use crate::compare::{Cell, Outcome, Verdict, compare};
use crate::corpus::Corpus;
use crate::known_differences::Known;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Counts of programs of one form, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Programs whose results are all equal.
    pub equal: usize,
    /// Programs whose results are within the ISA's error.
    pub within: usize,
    /// Programs with a difference, or that only one driver could run.
    pub differ: usize,
    /// Programs that the driver under test refuses.
    pub refused: usize,
    /// Programs that the recorded driver refused.
    pub not_recorded: usize,
    /// Results compared.
    pub results: usize,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.equal += other.equal;
        self.within += other.within;
        self.differ += other.differ;
        self.refused += other.refused;
        self.not_recorded += other.not_recorded;
        self.results += other.results;
    }
}

/// A difference, or a failure, in words.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The program.
    pub name: String,
    /// The slot of the results.
    pub slot: String,
    /// The first cell, or the failure.
    pub words: String,
    /// The reason, where it is known.
    pub known: Option<String>,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// For each form.
    pub forms: BTreeMap<String, Tally>,
    /// One for each slot of a form that differs.
    pub differences: Vec<Difference>,
    /// Lines of the known differences that no form needs any more.
    pub stale: Vec<String>,
    /// The reasons why forms are refused.
    pub refusals: BTreeMap<String, String>,
}

impl Report {
    /// Compares outcomes (of the corpus's cases, in order, where they were run) with the recorded
    /// ones.
    pub fn new(corpus: &Corpus, outcomes: &[Option<Outcome>], known: &[Known]) -> Report {
        let mut report = Report::default();
        for ((case, recorded), found) in corpus.cases.iter().zip(outcomes) {
            let Some(found) = found else { continue };
            let tally = report.forms.entry(case.form().to_owned()).or_default();
            let verdict = compare(case, recorded, found);
            if matches!(verdict, Verdict::Equal | Verdict::WithinError | Verdict::Differs(_)) {
                tally.results += case.results_compared();
            }
            let differences: Vec<(&str, String)> = match verdict {
                Verdict::Equal => {
                    tally.equal += 1;
                    continue;
                }
                Verdict::WithinError => {
                    tally.within += 1;
                    continue;
                }
                Verdict::Refused(words) => {
                    tally.refused += 1;
                    report.refusals.insert(case.form().to_owned(), words);
                    continue;
                }
                Verdict::NotRecorded(_) => {
                    tally.not_recorded += 1;
                    continue;
                }
                Verdict::Differs(cells) => cells
                    .iter()
                    .map(|cell| (case.results[cell.slot].name.as_str(), describe(case, cell)))
                    .collect(),
                Verdict::Failed(words) => vec![("", words)],
            };
            tally.differ += 1;
            for (slot, words) in differences {
                let known = known.iter().find(|known| known.covers(&case.name, slot));
                let reason = known.map(|known| known.reason.clone());
                let name = case.name.clone();
                report.differences.push(Difference { name, slot: slot.to_owned(), words, known: reason });
            }
        }
        let needed = |line: &&Known| {
            let covered = |found: &Difference| line.covers(&found.name, &found.slot);
            report.differences.iter().any(covered)
        };
        report.stale = known
            .iter()
            .filter(|line| !needed(line))
            .map(|line| format!("{} | {}", line.program, line.slot))
            .collect();
        report
    }

    /// The sum over all forms.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.forms.values().for_each(|tally| total.add(tally));
        total
    }

    /// The differences that nobody has explained.
    pub fn unexplained(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().filter(|difference| difference.known.is_none())
    }

    /// A line for each form.
    pub fn table(&self) -> String {
        let mut table = String::from("equal within differ refused unrecorded  results  form\n");
        for (form, tally) in &self.forms {
            let Tally { equal, within, differ, refused, not_recorded, results } = tally;
            let _ = writeln!(
                table,
                "{equal:5} {within:6} {differ:6} {refused:7} {not_recorded:10} {results:8}  {form}"
            );
        }
        table
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        for difference in &self.differences {
            let reason = difference.known.as_deref().unwrap_or("NOT EXPLAINED");
            writeln!(out, "{}: {} ({reason})", difference.name, difference.words)?;
        }
        for (form, words) in &self.refusals {
            writeln!(out, "{form}: refused: {words}")?;
        }
        for pattern in &self.stale {
            writeln!(out, "{pattern}: listed as a known difference, but there is none")?;
        }
        writeln!(
            out,
            "{} forms, {} results compared. Programs: {} equal, {} within the ISA's error, {} differ ({} columns of results, \
             {} not explained), {} refused here, {} refused by the recorded driver",
            self.forms.len(),
            total.results,
            total.equal,
            total.within,
            total.differ,
            self.differences.len(),
            self.unexplained().count(),
            total.refused,
            total.not_recorded,
        )
    }
}

/// A differing cell in words: where, from what operands, and both values.
pub fn describe(case: &Case, cell: &Cell) -> String {
    let slot = &case.results[cell.slot];
    let digits = 2 * slot.values.bytes();
    let mut words = format!("{} of row {}", slot.name, cell.row);
    for (index, column) in case.inputs.iter().enumerate().filter(|(_, column)| cell.row < column.rows) {
        let digits = 2 * column.values.bytes();
        let _ = write!(words, " {:#0width$x}", case.input(index, cell.row), width = digits + 2);
    }
    let _ = write!(
        words,
        ": {:#0width$x}, recorded was {:#0width$x}; {} cells differ",
        cell.found,
        cell.expected,
        cell.wrong,
        width = digits + 2
    );
    words
}
