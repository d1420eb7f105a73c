//! Defects that the CPU device found, and the table of its counts.

use super::places::write;
use crate::text::kernels::configuration;
use crate::text::{Align, Ink, Style, Table, shorten, wrap};
use crate::units;
use apex_counts::{Defect, Direction, Space};
use apex_profile::names::{Row, unique_short_names};
use apex_profile::{Kernel, KernelCounts, Profile};
use std::io::{self, Write};

/// Defects that are listed.
const DEFECTS: usize = 10;

/// Kernels that were executed as machine code and are named.
const NAMED: usize = 5;

/// The meaning of the headings.
const LEGEND: &str = "ᶜ computed exactly by the CPU device, per counted launch; not GPU time. Instructions: \
    PTX instructions of warps. Threads: avg. active threads per warp, of 32. Sectors: 32-byte sectors per \
    global memory request (4 if consecutive threads access consecutive words). Wavefronts: per shared memory \
    request (1 without bank conflicts).";

/// The meaning of the mark of sampled figures.
const SAMPLED: &str = "≈ estimated: in long launches, only the start and a sample of the rest are counted \
    and scaled to all instructions; APEX_CPU_COUNTS=all counts everything.";

/// Lists the defects, if there are any.
pub fn defects(out: &mut dyn Write, profile: &Profile, style: Style, width: usize) -> io::Result<()> {
    if profile.defects.is_empty() {
        return Ok(());
    }
    let count = profile.defects.len();
    let title = format!("{count} {} in kernels", if count == 1 { "defect" } else { "defects" });
    writeln!(out, "\n{}", style.paint(Ink::Bold, title))?;
    for defect in profile.defects.iter().take(DEFECTS) {
        for line in wrap(&described(defect), width, "    ") {
            writeln!(out, "{line}")?;
        }
    }
    if count > DEFECTS {
        writeln!(out, "… and {} more; `apex report --json` lists all", count - DEFECTS)?;
    }
    Ok(())
}

fn described(defect: &Defect) -> String {
    let Defect { kind, kernel, text, place, other, count, places } = defect;
    let joined = if kind == "uninitialized-read" { ", loaded at" } else { " and" };
    let also = other.as_ref().map_or_else(String::new, |other| format!("{joined} {}", other.shown()));
    let more = if *places > 1 { format!(" at {} places", units::count(*places)) } else { String::new() };
    let kernel = apex_profile::names::identify(kernel).short_name;
    format!(
        "{kind} in {kernel} at {}{also}, {}{more}: {text}",
        place.shown(),
        units::counted(*count, "time", "times")
    )
}

/// The table of counts, of the kernels at `indices` that have any.
pub fn table(
    out: &mut dyn Write,
    profile: &Profile,
    indices: &[usize],
    style: Style,
    width: usize,
) -> io::Result<()> {
    let counted = named_counts(profile, indices);
    if counted.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("kernel", Align::Flexible),
        ("instructionsᶜ", Align::Right),
        ("threadsᶜ", Align::Right),
        ("divergentᶜ", Align::Optional),
        ("flopᶜ", Align::Optional),
        ("loadedᶜ", Align::Optional),
        ("storedᶜ", Align::Optional),
        ("sectorsᶜ", Align::Right),
        ("wavefrontsᶜ", Align::Right),
        ("×", Align::Optional),
    ]);
    for (name, counts) in &counted {
        let launches = units::count(counts.launches);
        let cells = [shorten(name, 60)].into_iter().chain(figures(counts)).chain([launches]);
        table.row(cells.collect());
    }
    let sampled = counted.iter().any(|(_, counts)| counts.sampled_share.is_some());
    let mut legend = if sampled { format!("{LEGEND} {SAMPLED}") } else { LEGEND.to_owned() };
    if !profile.machine_code.is_empty() {
        legend = format!("{legend} {}", engine(profile));
    }
    write(out, "Counted on the CPU device", &table, &legend, style, width)
}

/// The kernels at `indices` that have counts, each by a name of its own.
fn named_counts<'p>(profile: &'p Profile, indices: &[usize]) -> Vec<(String, &'p KernelCounts)> {
    let kernels = indices.iter().map(|&index| &profile.kernels[index]);
    let kernels: Vec<&Kernel> = kernels.filter(|kernel| kernel.counts.is_some()).collect();
    // The table has no column of launches: the name tells two launches of a function apart.
    let launches: Vec<String> = kernels.iter().map(|kernel| configuration(kernel.launch)).collect();
    let rows: Vec<Row<'_>> = kernels
        .iter()
        .zip(&launches)
        .map(|(kernel, launch)| Row { name: &kernel.symbol, short_name: &kernel.short_name, launch })
        .collect();
    let names = unique_short_names(&rows).into_iter();
    names.zip(kernels).filter_map(|(name, kernel)| Some((name, kernel.counts.as_ref()?))).collect()
}

/// The figures of a row, each for one launch on average. Those that are scaled from a sample say
/// so.
fn figures(counts: &KernelCounts) -> impl Iterator<Item = String> {
    let each = |sum: u64| sum / counts.launches.max(1);
    let shown = [
        units::count(each(counts.sums.total_warp_instructions())),
        format!("{:.1}", counts.sums.active_threads()),
        share(counts.sums.divergent_branches, counts.sums.branches),
        units::count(each(counts.sums.total_operations())),
        units::bytes(each(moved(counts, Direction::Load))),
        units::bytes(each(moved(counts, Direction::Store))),
        per_request(counts, Space::Global),
        per_request(counts, Space::Shared),
    ];
    let is_sampled = counts.sampled_share.is_some();
    shown.into_iter().map(move |figure| match figure != "-" && is_sampled {
        true => format!("≈{figure}"),
        false => figure,
    })
}

/// Which kernels were executed as machine code.
fn engine(profile: &Profile) -> String {
    let mut names: Vec<String> = profile.machine_code.iter().map(|name| shorten(name, 40)).collect();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    if more > 0 {
        names.push(format!("{} more", units::count(more as u64)));
    }
    format!(
        "Machine code executed parts of {}; the rest, and what was counted, was interpreted.",
        names.join(", ")
    )
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { units::share(part as f64 / whole as f64) }
}

/// Bytes of global memory.
fn moved(counts: &KernelCounts, direction: Direction) -> u64 {
    counts.sums.traffic(Space::Global, direction).bytes
}

/// Transactions of loads and stores of a space, per request.
fn per_request(counts: &KernelCounts, space: Space) -> String {
    let traffic = counts.sums.loads_and_stores(space);
    if traffic.requests == 0 { "-".into() } else { format!("{:.1}", traffic.per_request()) }
}
