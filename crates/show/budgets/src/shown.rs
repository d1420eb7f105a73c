//! A report for those who read it in CI: Markdown, GitHub's annotations, JUnit's XML.

use apex_ordered::Order;
use std::fmt::Write as _;

use crate::report::number;
use crate::{Outcome, Report};

/// A table in Markdown, as for `$GITHUB_STEP_SUMMARY`: first what fails.
pub fn markdown(report: &Report, title: &str) -> String {
    let mut text =
        format!("### {}\n\n| | figure | value | limit |\n| --- | --- | ---: | ---: |\n", cell(title));
    let mut rows: Vec<_> = report.judged.iter().collect();
    rows.order_by_key(|judged| judged.outcome == Outcome::Kept);
    for judged in rows {
        let mark = if judged.outcome == Outcome::Kept { "kept" } else { "**not kept**" };
        let value = judged.value.map_or("not known".to_owned(), number);
        let _ = writeln!(text, "| {mark} | {} | {value} | {} |", cell(&judged.what()), number(judged.limit));
    }
    text
}

/// A cell of a table: nothing of it ends the cell or the line.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// One line for each limit that is not kept, which GitHub shows as an annotation.
pub fn github(report: &Report, title: &str) -> String {
    let line = |judged: &crate::Judged| {
        format!(
            "::error title={}::{}\n",
            property(title),
            data(&format!("{} {}", judged.what(), judged.said()))
        )
    };
    report.failures().map(line).collect()
}

/// The text of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// A suite of tests, one for each limit.
pub fn junit(report: &Report, title: &str) -> String {
    let failures = report.failures().count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\">\n",
        xml(title),
        report.judged.len(),
    );
    for judged in &report.judged {
        let class = judged.kernel.as_deref().unwrap_or("run");
        let _ = write!(text, "<testcase classname=\"{}\" name=\"{}\"", xml(class), judged.quantity.name());
        let _ = match judged.outcome {
            Outcome::Kept => writeln!(text, "/>"),
            _ => writeln!(
                text,
                "><failure message=\"{}\"/></testcase>",
                xml(&format!("{} {}", judged.what(), judged.said()))
            ),
        };
    }
    text.push_str("</testsuite>\n</testsuites>\n");
    text
}

/// Text in an attribute; what XML cannot hold is replaced.
fn xml(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c if c.is_control() => "\u{fffd}".to_owned(),
        c => c.to_string(),
    });
    escaped.collect()
}
