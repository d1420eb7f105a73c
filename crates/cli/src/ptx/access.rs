//! `apex ptx access`: which memory the kernels of a file read and write.
//!
//! `ptx-access` tells; this module reads files, makes the document and shows it as a table.

use crate::exit;
use crate::output::{self, Color, Lines, width};
use crate::text::{Align, Ink, Style, Table, wrap};
use anyhow::{Context, anyhow, bail};
use apex_conventions::documents::PTX_ACCESS;
use apex_untrusted::read;
use clap::builder::FalseyValueParser;
use fatbin::embedded;
use ptx_access::{Base, Sets, Use};
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Says for each kernel of a file which memory it reads and writes: parameters, variables, bytes.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "Examples:
  apex ptx access kernel.ptx
  apex ptx access ./program                        the newest PTX that nvcc has put into a program
  apex ptx access kernel.ptx --json | jq '.images[].kernels[] | select(.barrier == null) | .symbol'

A kernel is a barrier if an address in it comes from memory, from a call, or from an instruction whose accesses are \
not known: it may then access anything. docs/access.md says what the sets rest on.

Exits with status 0 if the sets of all kernels are known; with status 1 if a kernel is a barrier; with status 2 if \
the command line is wrong; with status 125 if the file cannot be read or defines no kernel.")]
pub struct Args {
    /// A file of PTX, a fatbin, or a program or library that holds fatbins
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[arg(long, help = format!("Print JSON (schema {PTX_ACCESS})"), value_parser = FalseyValueParser::new())]
    json: bool,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Document {
    file: String,
    images: Vec<Image>,
    summary: Summary,
}

/// A file of PTX, or a fatbin: its place among the file's images, from 1, and its kernels.
#[derive(Serialize)]
struct Image {
    image: usize,
    kernels: Vec<Kernel>,
}

#[derive(Default, Serialize)]
struct Summary {
    kernels: usize,
    barriers: usize,
}

/// A kernel; of a barrier, `memory` is a part of what it accesses.
#[derive(Serialize)]
struct Kernel {
    kernel: String,
    symbol: String,
    barrier: Option<Barrier>,
    memory: Vec<Memory>,
}

#[derive(Serialize)]
struct Barrier {
    reason: &'static str,
    instruction: String,
    line: u32,
    sentence: String,
}

/// Memory of a parameter (with its place and its offset in bytes) or of a variable.
#[derive(Serialize)]
struct Memory {
    name: String,
    kind: &'static str,
    index: Option<u32>,
    offset: Option<u32>,
    #[serde(flatten)]
    access: Access,
    /// None if the code does not tell: the allocation around the pointer, or the variable.
    ranges: Option<Vec<Range>>,
}

#[derive(Serialize)]
struct Access {
    reads: bool,
    writes: bool,
    atomic: bool,
}

/// Bytes as formulas of parameters; they hold if the first of each pair is at most the second.
#[derive(Serialize)]
struct Range {
    #[serde(flatten)]
    access: Access,
    start: String,
    bytes: String,
    at_most: Vec<[String; 2]>,
}

/// Runs `apex ptx access`.
///
/// # Errors
/// A file that cannot be read, holds no PTX, or whose PTX cannot be parsed.
pub fn execute(args: &Args, color: Color) -> anyhow::Result<ExitCode> {
    let document = document(&args.file)?;
    let all_known = document.summary.barriers == 0;
    match args.json {
        true => output::json(PTX_ACCESS, &document)?,
        false => {
            let style = Style { color: color.on_stdout() };
            output::page(|out| show(out, &document, style, width()))?
        }
    };
    Ok(if all_known { ExitCode::SUCCESS } else { ExitCode::from(exit::NO) })
}

fn document(file: &Path) -> anyhow::Result<Document> {
    let shown = apex_untrusted::shown(file);
    let bytes = read::read(file, read::PROGRAM).with_context(|| format!("cannot read {shown}"))?;
    let contents = embedded::images(&bytes).map_err(|error| anyhow!("cannot read {shown}: {error}"))?;
    let mut images = Vec::new();
    for (index, contents) in contents.iter().enumerate() {
        if let Some(text) = contents.ptx_for(u32::MAX) {
            images.push(Image { image: index + 1, kernels: kernels(text, &shown)? });
        }
    }
    let all = || images.iter().flat_map(|image| &image.kernels);
    let summary =
        Summary { kernels: all().count(), barriers: all().filter(|kernel| kernel.barrier.is_some()).count() };
    if summary.kernels == 0 {
        bail!(
            "{shown} holds no PTX of a kernel: name a file of PTX, or a program that nvcc has built with PTX"
        );
    }
    Ok(Document { file: shown, images, summary })
}

fn kernels(text: &[u8], shown: &str) -> anyhow::Result<Vec<Kernel>> {
    let source = String::from_utf8_lossy(text);
    let module = ptx::parse(&source).map_err(|error| Lines(error.render(shown, &source)))?;
    let sets = |symbol: &str| Some(kernel(symbol, &Sets::of(&module, symbol)?));
    Ok(module.kernels().filter_map(|function| sets(&function.name)).collect())
}

fn kernel(symbol: &str, sets: &Sets) -> Kernel {
    let barrier = sets.barrier.as_ref().map(|barrier| Barrier {
        reason: barrier.reason.name(),
        instruction: barrier.instruction.clone(),
        line: barrier.line,
        sentence: barrier.to_string(),
    });
    Kernel {
        kernel: apex_kernel_names::function_name(symbol),
        symbol: symbol.to_owned(),
        barrier,
        memory: sets.memory.iter().map(|memory| of_memory(memory, sets)).collect(),
    }
}

fn of_memory(memory: &ptx_access::Memory, sets: &Sets) -> Memory {
    let (kind, index, offset) = match &memory.base {
        Base::Parameter { index, offset } => ("parameter", Some(*index), Some(*offset)),
        Base::Variable(_) => ("variable", None, None),
    };
    let range = |(access, range): &(Use, ptx_access::Range)| Range {
        access: Access::of(*access),
        start: sets.formula(&range.start),
        bytes: sets.formula(&range.bytes),
        at_most: range.at_most.iter().map(|(a, b)| [a, b].map(|sum| sets.formula(sum))).collect(),
    };
    let ranges = memory.ranges.as_ref().map(|ranges| ranges.iter().map(range).collect());
    Memory { name: sets.name(&memory.base), kind, index, offset, access: Access::of(memory.access), ranges }
}

impl Access {
    fn of(access: Use) -> Access {
        Access { reads: access.read, writes: access.written, atomic: access.atomic }
    }

    fn words(&self) -> String {
        let words = [(self.reads, "reads"), (self.writes, "writes"), (self.atomic, "atomic")];
        words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
    }
}

/// A line for each range of each memory, then why kernels are barriers.
fn show(out: &mut dyn Write, document: &Document, style: Style, width: usize) -> io::Result<()> {
    let kernels = || document.images.iter().flat_map(|image| &image.kernels);
    let mut table = Table::new(&[
        ("kernel", Align::Flexible),
        ("memory", Align::Left),
        ("access", Align::Left),
        ("bytes", Align::OptionalLeft),
    ]);
    for kernel in kernels() {
        rows(kernel).into_iter().for_each(|row| table.row(row.into()));
    }
    for (at, line) in table.lines(width).into_iter().enumerate() {
        writeln!(out, "{}", if at == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    for kernel in kernels() {
        let Some(barrier) = &kernel.barrier else { continue };
        let sentence = format!("{} is a barrier: {}", kernel.kernel, barrier.sentence);
        writeln!(out)?;
        wrap(&sentence, width, "  ").iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(())
}

fn rows(kernel: &Kernel) -> Vec<[String; 4]> {
    let mut rows = Vec::new();
    for memory in &kernel.memory {
        let row = |access: &Access, bytes: String| {
            [kernel.kernel.clone(), memory.name.clone(), access.words(), bytes]
        };
        match &memory.ranges {
            Some(ranges) => rows.extend(ranges.iter().map(|range| row(&range.access, bytes(range)))),
            None if memory.kind == "parameter" => rows.push(row(&memory.access, "its allocation".to_owned())),
            None => rows.push(row(&memory.access, "all of it".to_owned())),
        }
    }
    // (Ranges that differ in their conditions only.)
    rows.dedup();
    if kernel.barrier.is_some() {
        rows.push([kernel.kernel.clone(), "any".to_owned(), "barrier".to_owned(), String::new()]);
    } else if rows.is_empty() {
        rows.push([kernel.kernel.clone(), "none".to_owned(), String::new(), String::new()]);
    }
    rows
}

fn bytes(range: &Range) -> String {
    let conditions = if range.at_most.is_empty() { "" } else { " (with conditions)" };
    format!("{} from {}{conditions}", range.bytes, range.start)
}
