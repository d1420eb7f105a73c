//! The result of a search for a terminal.

use super::{Search, substitution};
use crate::text::{Ink, Style, wrap};
use crate::units;
use apex_search::{Found, Kept, Number};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;

/// The legend of marks.
const LEGEND: &str = "ᵐ measured: medians, and the median ratio of pairs with its 95% interval";

/// Writes what was found.
pub fn write(
    out: &mut dyn Write,
    search: &Search<'_>,
    found: &Found,
    results: Option<&Path>,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let mut lines = vec![style.paint(Ink::Bold, verdict(found))];
    let original = search.options.original.zip(found.original);
    for (name, timed) in [("original", original), ("best", found.best)] {
        if let Some((number, ms)) = timed {
            lines.push(format!("  {name:<9} {:>9}ᵐ  {}", units::time(ms * 1e6), described(search, number)));
        }
    }
    lines.push(String::new());
    lines.extend(wrap(&trials(search, found), width, ""));
    if let Some(drift) = found.drift.filter(|drift| *drift > 1.1) {
        let said = format!(
            "The original's own times differ by a factor of {drift:.2}ᵐ: other work or changing clocks disturb the \
             measurement, and small gains cannot be seen."
        );
        lines.extend(wrap(&said, width, ""));
    }
    if let Some(path) = results {
        lines.extend(wrap(&format!("The results are in {} (T4).", apex_untrusted::shown(path)), width, ""));
    }
    if let Some((number, _)) = found.best.filter(|_| !search.command.is_empty() && !found.is_stopped) {
        lines.extend(wrap(&format!("Run the best with: {}", command(search, number)), width, "  "));
    }
    lines.push(style.paint(Ink::Dim, LEGEND));
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))
}

fn described(search: &Search<'_>, number: Number) -> String {
    apex_untrusted::printable(&search.space.describe(number)).into_owned()
}

fn verdict(found: &Found) -> String {
    match (found.best, found.kept, found.ratio) {
        (None, ..) => "No configuration succeeded".to_owned(),
        _ if found.is_stopped => "Interrupted; the best so far is not confirmed".to_owned(),
        (_, Some(Kept::NoneBetter), _) => "The original stays: nothing that was tried is faster".to_owned(),
        (_, Some(Kept::Tie), Some(ratio)) => format!(
            "The original stays: the best other one takes {}ᵐ of its time, which is no clear gain",
            units::percent_between(ratio.median, ratio.low, ratio.high)
        ),
        (_, Some(_), _) => "The original stays: too few pairs succeeded".to_owned(),
        (_, None, Some(ratio)) => format!(
            "Faster: {}ᵐ of the original's time",
            units::percent_between(ratio.median, ratio.low, ratio.high)
        ),
        _ => "The best that was tried; it was not compared with an original".to_owned(),
    }
}

fn trials(search: &Search<'_>, found: &Found) -> String {
    let counted = |number: usize, one, many| units::counted(number as u64, one, many);
    let mut text = format!(
        "{} among {} (strategy {}, seed {})",
        counted(found.trials, "trial", "trials"),
        counted(search.space.len(), "configuration", "configurations"),
        search.options.strategy.name(),
        search.options.seed
    );
    if found.known > 0 {
        text += &format!("; {} known before", counted(found.known, "was", "were"));
    }
    if !found.failed.is_empty() {
        let each: Vec<String> =
            found.failed.iter().map(|(invalid, count)| format!("{count} {}", invalid.name())).collect();
        text += &format!("; failed: {}", each.join(", "));
    }
    text + "."
}

/// The command with the values, as a person types it into a shell.
fn command(search: &Search<'_>, number: Number) -> String {
    let space = &search.space;
    let names = space.parameters().iter().map(|parameter| &parameter.name);
    let set =
        names.zip(space.values(number)).map(|(name, value)| format!("{name}={}", quoted(value.to_string())));
    let words = substitution::words(space, number, search.command);
    set.chain(words.iter().map(quoted)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it for itself.
fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = apex_untrusted::shown(word);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.,:+/=@%-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("./bench", "./bench"),
            ("-Dtile=4", "-Dtile=4"),
            ("nvcc -Da=1 k.cu && ./k", "'nvcc -Da=1 k.cu && ./k'"),
            ("it's", r"'it'\''s'"),
            ("$(id)", "'$(id)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
