//! The outcome of a check, form by form.

use crate::case::{Case, Column};
use crate::compare::{Difference, Verdict, compare};
use crate::corpus::Corpus;
use crate::known_differences::Known;
use crate::recording::{self, Outcome};
use crate::values::Values;
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
pub struct Finding {
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
    pub differences: Vec<Finding>,
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
                Verdict::Differs(differences) => differences
                    .iter()
                    .map(|found| (case.results[found.slot()].name.as_str(), describe(case, found)))
                    .collect(),
                Verdict::Failed(words) => vec![("", words)],
            };
            tally.differ += 1;
            for (slot, words) in differences {
                let known = known.iter().find(|known| known.covers(&case.name, slot));
                let reason = known.map(|known| known.reason.clone());
                let name = case.name.clone();
                report.differences.push(Finding { name, slot: slot.to_owned(), words, known: reason });
            }
        }
        let needed = |line: &&Known| {
            let covered = |found: &Finding| line.covers(&found.name, &found.slot);
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
    pub fn unexplained(&self) -> impl Iterator<Item = &Finding> {
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

/// A difference in words: where, from what operands, and the values of both drivers; or which rows
/// have another checksum.
pub fn describe(case: &Case, difference: &Difference) -> String {
    let slot = &case.results[difference.slot()];
    match difference {
        Difference::Cell { row, expected, found, wrong, .. } => {
            let [found, expected] = [*found, *expected].map(|bits| hexadecimal(slot.values, bits));
            let operands = operands(case, *row);
            format!(
                "{} of row {row}{operands}: {found}, recorded was {expected}; {wrong} cells differ",
                slot.name
            )
        }
        Difference::Rows { rows, wrong, .. } => format!(
            "{} of rows {} to {}: another checksum than recorded; {wrong} of {} checksums differ",
            slot.name,
            rows.start,
            rows.end - 1,
            recording::checksums(slot),
        ),
    }
}

/// The operands and computed values of rows with another checksum, a line for each row.
pub fn list_rows(case: &Case, difference: &Difference) -> String {
    let Difference::Rows { slot, rows, found, .. } = difference else { return String::new() };
    let values = case.results[*slot].values;
    let line = |(row, bits): (usize, &u64)| {
        format!("  row {row}{}: {}\n", operands(case, row), hexadecimal(values, *bits))
    };
    rows.clone().zip(found).map(line).collect()
}

/// The operands of a row, a blank before each.
fn operands(case: &Case, row: usize) -> String {
    let columns = case.inputs.iter().enumerate().filter(|(_, column)| row < column.rows);
    let operand = |(index, column): (usize, &Column)| {
        format!(" {}", hexadecimal(column.values, case.input(index, row)))
    };
    columns.map(operand).collect()
}

/// The bits of a cell, with all digits of its type.
fn hexadecimal(values: Values, bits: u64) -> String {
    format!("{bits:#0width$x}", width = 2 * values.bytes() + 2)
}
