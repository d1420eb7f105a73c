//! The page of `apex fuse`: a table of pairs, then why some are not joined.

use super::{Document, Pair};
use crate::text::{Align, Ink, Style, Table, wrap};
use crate::units;
use std::io::{self, Write};

/// Writes the page.
pub fn show(out: &mut dyn Write, document: &Document, style: Style, width: usize) -> io::Result<()> {
    if document.pairs.is_empty() {
        let none = "No two launches follow each other in one stream, in the same grid and block, with data that flows from \
                    one to the other.";
        return wrap(none, width, "").iter().try_for_each(|line| writeln!(out, "{line}"));
    }
    let mut table = Table::new(&[
        ("first, second", Align::Flexible),
        ("times", Align::Right),
        ("flows each time", Align::Right),
        ("result", Align::Left),
    ]);
    document.pairs.iter().for_each(|pair| table.row(row(pair).into()));
    for (at, line) in table.lines(width).into_iter().enumerate() {
        writeln!(out, "{}", if at == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    for (at, pair) in document.pairs.iter().enumerate() {
        let sentence = format!("{}. {}", at + 1, said(pair));
        wrap(&sentence, width, "   ").iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(())
}

fn row(pair: &Pair) -> [String; 4] {
    let flows = pair.flowing_bytes.map_or("unknown".to_owned(), units::bytes);
    [format!("{}, {}", pair.first, pair.second), pair.times.to_string(), flows, pair.result.to_owned()]
}

fn said(pair: &Pair) -> String {
    let Some(joined) = &pair.joined else {
        return pair.reason.clone().unwrap_or_default();
    };
    let all = pair.flowing_bytes.map(|bytes| units::bytes(bytes.saturating_mul(pair.times)));
    let mut said = match all {
        Some(all) => format!(
            "one launch instead of two: the second part reads what its own thread has just stored, {all} in all (computed)"
        ),
        None => "one launch instead of two".to_owned(),
    };
    let checked = match &*joined.checked {
        "same" => "the same bits on the CPU device",
        other => other,
    };
    said.push_str(&format!("; {checked}"));
    if let Some(why) = &joined.not_in_profile {
        said.push_str(&format!("; not in the profile: {why}"));
    }
    if let Some(file) = &joined.file {
        said.push_str(&format!("; {}", apex_untrusted::printable(file)));
    }
    said
}
