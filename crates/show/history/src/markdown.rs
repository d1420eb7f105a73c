//! The report as Markdown, for a pull request, an issue or a chat.

use std::fmt::Write as _;

use crate::{Report, Series, number, sparkline};

/// Points of a line of bars.
const BARS: usize = 24;

/// The verdict, the changes, and the newest value of each figure of the whole.
pub fn markdown(report: &Report, title: &str) -> String {
    let mut text = format!("### {}\n\n{}\n", cell(title), report.verdict());
    let changes = report.changes();
    if !changes.is_empty() {
        text.push_str(
            "\n| | program | figure | change | at commit | when |\n| --- | --- | --- | --- | --- | --- |\n",
        );
    }
    for (series, change) in changes {
        let mark = if change.is_worse { "**worse**" } else { "better" };
        let (commit, day) = (short(&change.commit), change.time.get(..10).unwrap_or_default());
        let about = format!("{} | {}", program(series), cell(&series.what()));
        let _ = writeln!(text, "| {mark} | {about} | {} | {} | {day} |", change.amount(), cell(commit));
    }
    text.push_str("\n| program | figure | latest | over commits |\n| --- | --- | ---: | --- |\n");
    for series in report.series.iter().filter(|series| series.kernel.is_none()) {
        let latest = number(series.latest().value);
        let about = format!("{} | {}", program(series), cell(&series.what()));
        let _ = writeln!(text, "| {about} | {latest} | {} |", sparkline(series, BARS));
    }
    text
}

/// The program and where it ran.
fn program(series: &Series) -> String {
    format!("{} ({})", cell(&series.name), cell(&series.device))
}

/// A commit as people write it.
pub(crate) fn short(commit: &str) -> &str {
    let is_hash = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { &commit[..10] } else { commit }
}

/// A cell of a table: nothing of it ends the cell or the line, or is markup.
fn cell(text: &str) -> String {
    let mut cell = String::new();
    for letter in apex_untrusted::printable(text).chars() {
        match letter {
            '<' => cell.push_str("&lt;"),
            '@' => cell.push_str("&#64;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '!' => cell.extend(['\\', letter]),
            _ => cell.push(letter),
        }
    }
    cell
}
