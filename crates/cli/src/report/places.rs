//! Places in the program from which kernels are launched.

use crate::text::{Align, Ink, Style, Table, shorten, wrap};
use crate::units;
use apex_profile::{Profile, SiteTotals};
use std::io::{self, Write};

/// The meaning of the headings of the kernels' places.
const LEGEND: &str = "ᵐ measured: the share of the kernel's sampled launches (×n: of n). A place is the \
    innermost line outside libraries; `--json` has the call stacks.";
/// The meaning of the headings of the list of places.
const PLACES_LEGEND: &str = "ᵐ measured; launches and GPU time of a kernel are distributed over places like \
    its sampled launches. A place is the innermost line outside libraries; `--json` has the call stacks.";

/// The place of each kernel at `indices`; nothing where no call stack was read.
pub fn table(
    out: &mut dyn Write,
    profile: &Profile,
    indices: &[usize],
    style: Style,
    width: usize,
) -> io::Result<()> {
    let mut table =
        Table::new(&[("kernel", Align::Left), ("launched from", Align::Flexible), ("shareᵐ", Align::Right)]);
    let mut is_empty = true;
    for kernel in indices.iter().map(|&index| &profile.kernels[index]) {
        let Some(place) = profile.main_place(&kernel.stacks) else { continue };
        let first = profile.sites(&kernel.stacks)[0];
        let sampled: u64 = kernel.stacks.iter().map(|count| count.sampled).sum();
        let share = match first.share {
            Some(share) => format!("{} ×{}", units::share(share), units::count(sampled)),
            None => "not sampled".into(),
        };
        table.row(vec![shorten(&kernel.short_name, 32), place, share]);
        is_empty = false;
    }
    if is_empty { Ok(()) } else { write(out, "Places", &table, LEGEND, style, width) }
}

/// Writes the launches from each of the first `top` places.
pub fn by_place(
    out: &mut dyn Write,
    profile: &Profile,
    top: usize,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let places = profile.by_site();
    writeln!(out)?;
    if places.is_empty() {
        let why = "No call stack was read.";
        return writeln!(out, "{}\n", wrap(why, width, "").join("\n"));
    }
    let time: f64 = places.iter().map(|place| place.gpu_time_ns).sum();
    let launches: f64 = places.iter().map(|place| place.launches).sum();
    let share = |place: &SiteTotals| {
        if time > 0.0 { place.gpu_time_ns / time } else { place.launches / launches.max(1.0) }
    };
    let mut table = Table::new(&[
        ("launched from", Align::Flexible),
        ("launchesᵐ", Align::Right),
        ("GPU timeᵐ", Align::Right),
        ("shareᵐ", Align::Right),
        ("samples", Align::Right),
        ("kernels", Align::Optional),
    ]);
    for place in places.iter().take(top) {
        table.row(vec![
            place.place.clone(),
            units::count(place.launches.round() as u64),
            if place.gpu_time_ns > 0.0 { units::time(place.gpu_time_ns) } else { "not timed".into() },
            units::share(share(place)),
            units::count(place.samples),
            units::count(place.kernels.len() as u64),
        ]);
    }
    let title = format!("{} of {} places", top.min(places.len()), places.len());
    write(out, &title, &table, PLACES_LEGEND, style, width)
}

/// Writes a table with its title and what its headings mean.
pub fn write(
    out: &mut dyn Write,
    title: &str,
    table: &Table,
    legend: &str,
    style: Style,
    width: usize,
) -> io::Result<()> {
    for line in wrap(title, width, "  ") {
        writeln!(out, "{}", style.paint(Ink::Bold, line))?;
    }
    for (i, line) in table.lines(width).into_iter().enumerate() {
        writeln!(out, "{}", if i == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    for line in wrap(legend, width, "") {
        writeln!(out, "{}", style.paint(Ink::Dim, line))?;
    }
    writeln!(out)
}
