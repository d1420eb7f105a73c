//! The models' predictions for the top kernels, beside the measurements.

use super::places::write;
use crate::predict::table::{basis_in_words, bound};
use crate::text::figures::{unmarked_share, unmarked_time};
use crate::text::kernels::configuration;
use crate::text::{Align, Ink, Style, Table, shorten, wrap};
use crate::units;
use apex_profile::names::Owner;
use apex_profile::{Figure, Kernel, Profile};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A prediction is shown whose interval spans at most such a factor.
const WIDEST: f64 = 9.0;

/// The meaning of the headings.
const LEGEND: &str = "ᵖ predicted, with the 90% prediction interval · ᵐ measured, plus the 1.1 µs by which \
    `gpu__time_duration`, which is predicted, is longer. Occupancy: achieved. SM: compute (SM) throughput. Bound by: ᶜ \
    computed, the busiest part of the device and its share of the measured (otherwise predicted) duration. * \
    outside the training data.";

/// Share of the GPU time above which something holds for most of it.
const MOST: f64 = 0.5;

/// The table of predictions, of the kernels at `indices` that have any; and why there are none,
/// where that is so.
pub fn table<'a>(
    out: &mut dyn Write,
    profile: &'a Profile,
    indices: &[usize],
    style: Style,
    width: usize,
) -> io::Result<()> {
    let kernels = indices.iter().map(|&index| &profile.kernels[index]);
    let useful = |kernel: &'a Kernel| {
        let said = kernel.prediction.as_ref()?;
        Some((kernel, said, said.duration_ns.filter(says_something)?))
    };
    let predicted: Vec<_> = kernels.filter_map(useful).collect();
    write_lines(out, &profile.unpredicted, style, width)?;
    let basis = basis(profile, predicted.is_empty());
    if predicted.is_empty() {
        write_lines(out, &basis, style, width)?;
        let is_silent = profile.unpredicted.is_empty() && basis.is_empty();
        return if is_silent { Ok(()) } else { writeln!(out) };
    }
    let any_bound = predicted.iter().any(|(_, said, _)| said.bound.is_some());
    let mut columns = vec![
        ("kernel", Align::Flexible),
        ("configuration", Align::Left),
        ("durationᵖ", Align::Right),
        ("measuredᵐ", Align::Right),
        ("ᵐ/ᵖ", Align::Right),
        ("occupancyᵖ", Align::Right),
        ("SMᵖ", Align::Optional),
    ];
    if any_bound {
        columns.push(("bound byᶜ", Align::Optional));
    }
    let mut table = Table::new(&columns);
    for (kernel, said, time) in predicted {
        let strange = if said.unfamiliar.is_empty() { "" } else { "*" };
        let mut row = vec![
            shorten(&kernel.short_name, 60),
            configuration(kernel.launch),
            format!("{}{strange}", unmarked_time(&time)),
            said.measured_duration_ns.map_or("-".into(), |measured| units::time(measured.value)),
            said.measured_over_predicted.map_or("-".into(), units::ratio),
            unmarked_share(&said.achieved_occupancy),
            unmarked_share(&said.sm_utilisation),
        ];
        if any_bound {
            row.push(said.bound.as_ref().map_or("-".into(), bound));
        }
        table.row(row);
    }
    let legend = [&[LEGEND.to_owned()], &basis[..]].concat().join(" ");
    write(out, "Predicted", &table, &legend, style, width)
}

fn write_lines(out: &mut dyn Write, texts: &[String], style: Style, width: usize) -> io::Result<()> {
    for line in texts.iter().flat_map(|text| wrap(text, width, "  ")) {
        writeln!(out, "{}", style.paint(Ink::Dim, line))?;
    }
    Ok(())
}

/// Describes the basis of the predictions, the code that was not kept, and whether keeping it would
/// help. If no prediction is shown, its basis matters only if code was to be kept. Where no
/// prediction is shown, what it would rest on matters only if code was to be kept.
fn basis(profile: &Profile, is_nothing_shown: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if !is_nothing_shown || profile.code.is_some() {
        lines.extend(basis_in_words(&profile.prediction_basis).map(|words| format!("{words}.")));
    }
    lines.extend(profile.code.as_ref().and_then(|code| known_in_words(&code.known)));
    match &profile.code {
        Some(code) if code.left_out > 0 => lines.push(format!(
            "Loaded code that was not stored: {} ({}). `apex run --code=SIZE` stores more than {}.",
            units::counted(code.left_out, "image", "images"),
            units::bytes(code.left_out_bytes),
            units::bytes(code.max_bytes)
        )),
        None if code_would_help(profile) => lines.push(
            "`apex run --code` stores the program's PTX and arguments, so that predictions know what its \
                kernels execute."
                .to_owned(),
        ),
        _ => {}
    }
    lines
}

/// Describes the known kinds of code with their shares of the GPU time, unless PTX is known for all
/// of it.
fn known_in_words(shares: &BTreeMap<String, f64>) -> Option<String> {
    let forms = [
        ("ptx", "PTX"),
        ("machine_code", "machine code only (its tables give memory, barriers and parameters)"),
        ("none", "nothing"),
    ];
    let is_all_ptx = shares.keys().all(|form| form == "ptx");
    let words = forms.iter().filter_map(|(form, words)| {
        Some(format!("{words} for {} of the GPU time", units::share(*shares.get(*form)?)))
    });
    let words: Vec<_> = words.collect();
    (!is_all_ptx).then(|| format!("Known code: {}.", words.join("; ")))
}

/// Whether most of the predicted GPU time, or of the launches where nothing was timed, is of kernels
/// of the program's own, whose PTX is likely to be loaded: libraries bring machine code alone.
fn code_would_help(profile: &Profile) -> bool {
    let is_timed = profile.totals.gpu_time_ns.is_some();
    let weight = |kernel: &Kernel| match is_timed {
        true => kernel.gpu_total_ns().unwrap_or(0.0),
        false => kernel.launches.ran() as f64,
    };
    let sum = |own: bool| -> f64 {
        let kernels = profile.kernels.iter().filter(|kernel| kernel.prediction.is_some());
        kernels.filter(|kernel| !own || kernel.traits.owner == Owner::Own).map(weight).sum()
    };
    sum(true) > MOST * sum(false)
}

/// Whether the interval of a prediction is narrow enough to be of use.
fn says_something(time: &Figure) -> bool {
    let (low, high) = time.bounds();
    high <= WIDEST * low
}
