//! The results of `apex ptx check` for people: a table, then what changes or is missing.

use super::check::{Change, Document, Kernel, OnGpu, Outcome};
use crate::text::{Align, Ink, Style, Table, wrap};
use apex_ordered::Order;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Lines of the PTX that a sentence lists at most.
const MOST_LINES: usize = 8;

/// Writes the page.
pub fn show(out: &mut dyn Write, document: &Document, style: Style, width: usize) -> io::Result<()> {
    let mut table = Table::new(&[
        ("kernel", Align::Flexible),
        ("GPU", Align::Left),
        ("result", Align::Left),
        ("header", Align::OptionalLeft),
    ]);
    for (kernel, on_gpu) in results(document) {
        let header = on_gpu.header.clone().unwrap_or_default();
        table.row(vec![kernel.kernel.clone(), on_gpu.gpu.clone(), result(on_gpu), header]);
    }
    for (at, line) in table.lines(width).into_iter().enumerate() {
        writeln!(out, "{}", if at == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    for (kernel, on_gpu) in results(document) {
        let sentences = sentences(on_gpu);
        if sentences.is_empty() {
            continue;
        }
        let head = format!("{} on {}", kernel.kernel, on_gpu.gpu);
        writeln!(out)?;
        for line in wrap(&head, width, "  ") {
            writeln!(out, "{}", style.paint(Ink::Bold, line))?;
        }
        for sentence in sentences {
            wrap(&sentence, width, "  ").iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
    }
    Ok(())
}

fn results(document: &Document) -> impl Iterator<Item = (&Kernel, &OnGpu)> {
    let kernels = document.images.iter().flat_map(|image| &image.kernels);
    kernels.flat_map(|kernel| kernel.gpus.iter().map(move |on_gpu| (kernel, on_gpu)))
}

fn result(on_gpu: &OnGpu) -> String {
    match on_gpu.result {
        Outcome::Runs if on_gpu.machine_code => "runs (machine code)",
        Outcome::Runs => "runs",
        Outcome::Lowered => "runs lowered",
        Outcome::Approximate => "runs lowered, approximately",
        Outcome::Cannot => "cannot run",
    }
    .to_owned()
}

/// What changes, a sentence for each row; or what the GPU lacks, one for each form.
fn sentences(on_gpu: &OnGpu) -> Vec<String> {
    let mut rows: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
    on_gpu.changes.iter().for_each(|change| rows.entry(change.row).or_default().push(change));
    let mut all: Vec<String> = rows
        .into_iter()
        .map(|(row, changes)| {
            let exactness = if changes[0].exact { "exact" } else { "approximate" };
            let places = lines(changes.iter().map(|change| change.line));
            format!("{row} ({exactness}): {} at {places}", changes[0].form)
        })
        .collect();
    all.extend(
        on_gpu
            .predicted_cost
            .map(|cost| format!("cost (predicted): {cost:.2} instructions for each one of the original")),
    );
    let mut forms: BTreeMap<(&str, String), Vec<u32>> = BTreeMap::new();
    let mut refused: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for blocked in &on_gpu.blocked {
        let refusal = blocked.refusal.as_deref();
        let needs = match &blocked.needs[..] {
            [] if refusal.is_some() => {
                refused.entry(refusal.unwrap_or_default()).or_default().push(blocked.line);
                continue;
            }
            _ if refusal.is_some() => refusal.unwrap_or_default().to_owned(),
            [] if blocked.form.starts_with("machine code") => format!(
                "runs on GPUs of the same major compute capability, from that one on, and there is no PTX from which \
                 {} could make its own: compile with PTX, or for {0}",
                on_gpu.gpu
            ),
            [] if blocked.line == 0 => "is no header that a driver takes".to_owned(),
            [] => "is in no table of PTX, or has other operands".to_owned(),
            needs => format!("needs {}", needs.join(", or ")),
        };
        forms.entry((&blocked.form, needs)).or_default().push(blocked.line);
    }
    all.extend(forms.into_iter().map(|((form, needs), places)| match places[..] {
        [0] => format!("{form} {needs}"),
        _ => format!("{form} {needs}: {}", lines(places.into_iter())),
    }));
    let mut refused: Vec<(Vec<u32>, &str)> = refused.into_iter().map(|(why, places)| (places, why)).collect();
    refused.order_by(Ord::cmp);
    all.extend(
        refused
            .into_iter()
            .map(|(places, why)| format!("no GPU takes the module, {}: {why}", lines(places.into_iter()))),
    );
    all
}

/// `line 3`, or `lines 3, 5, 7`.
fn lines(places: impl Iterator<Item = u32>) -> String {
    let mut places: Vec<u32> = places.collect();
    places.order_by(Ord::cmp);
    places.dedup();
    let shown: Vec<String> = places.iter().take(MOST_LINES).map(ToString::to_string).collect();
    let more = match places.len().checked_sub(MOST_LINES) {
        Some(more @ 1..) => format!(" and {more} more"),
        _ => String::new(),
    };
    format!("{} {}{more}", if places.len() == 1 { "line" } else { "lines" }, shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lines_are_counted() {
        assert_eq!(lines([7].into_iter()), "line 7");
        assert_eq!(lines([9, 2, 9].into_iter()), "lines 2, 9");
        assert_eq!(lines(1..=10), "lines 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
    }
}
