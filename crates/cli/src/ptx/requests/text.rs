//! The page of `apex ptx requests`: for each kernel a table of its accesses, then the changes.

use super::{Access, Document, Kernel, Remedy};
use crate::text::{Align, Ink, Style, Table, wrap};
use std::io::{self, Write};

/// Writes the page.
pub fn show(out: &mut dyn Write, document: &Document, style: Style, width: usize) -> io::Result<()> {
    for (at, kernel) in document.kernels.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        show_kernel(out, kernel, style, width)?;
    }
    Ok(())
}

fn show_kernel(out: &mut dyn Write, kernel: &Kernel, style: Style, width: usize) -> io::Result<()> {
    let head = format!("{} {}", kernel.kernel, kernel.launch);
    for line in wrap(&head, width, "  ") {
        writeln!(out, "{}", style.paint(Ink::Bold, line))?;
    }
    if kernel.accesses.is_empty() {
        return writeln!(out, "no access to global or shared memory");
    }
    let mut table = Table::new(&[
        ("line", Align::Flexible),
        ("access", Align::Left),
        ("per request", Align::Left),
        ("least", Align::Right),
        ("change", Align::Left),
    ]);
    kernel.accesses.iter().for_each(|access| table.row(row(access).into()));
    for (at, line) in table.lines(width).into_iter().enumerate() {
        writeln!(out, "{}", if at == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    let mut sentences: Vec<String> = kernel
        .remedies
        .iter()
        .enumerate()
        .map(|(at, remedy)| format!("{}. {}", at + 1, said(remedy, kernel)))
        .collect();
    if kernel.accesses.iter().any(|access| access.by_parameter) {
        sentences.push("* depends on a number among the arguments, which was taken to be 4,096".to_owned());
    }
    for sentence in sentences {
        wrap(&sentence, width, "   ").iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(())
}

fn row(access: &Access) -> [String; 5] {
    let line = match (&access.file, access.line) {
        (Some(file), Some(line)) => format!("{}:{line}", file.rsplit('/').next().unwrap_or(file)),
        _ => format!("PTX line {}", access.ptx_line),
    };
    let unit = if access.space == "shared" { "wavefront" } else { "sector" };
    let mark = if access.by_parameter { "*" } else { "" };
    let per_request = match access.per_request {
        Some(1) => format!("1 {unit}{mark}"),
        Some(count) => format!("{count} {unit}s{mark}"),
        None => "depends on data".to_owned(),
    };
    [
        line,
        format!("{} {}, {} B", access.space, access.direction, access.bytes),
        per_request,
        access.least.map_or(String::new(), |least| least.to_string()),
        access.remedy.map_or(String::new(), |at| at.to_string()),
    ]
}

fn said(remedy: &Remedy, kernel: &Kernel) -> String {
    let Some(counted) = &remedy.counted else {
        return format!("{} (not counted: it changes data or loops)", remedy.sentence);
    };
    let (unit, all, all_before) = match remedy.change {
        "pad_rows" => ("wavefronts", counted.totals.wavefronts, kernel.totals.wavefronts),
        _ => ("sectors", counted.totals.sectors, kernel.totals.sectors),
    };
    let mut said = format!(
        "{}: {} {unit} instead of {} for each warp (computed)",
        remedy.sentence, counted.after, counted.before
    );
    if (all, all_before) != (counted.after, counted.before) {
        said.push_str(&format!(", in the whole kernel {all} instead of {all_before}"));
    }
    if remedy.change == "exchange_axes" {
        said.push_str(&format!(", launched as {}", counted.launch));
    }
    if counted.conditional {
        said.push_str("; the result is the same if the launch meets the conditions of docs/reshape.md");
    }
    said
}
