//! Answers for a terminal: one launch as a list of figures, several as a table.

use crate::text::figures::{unmarked_share, unmarked_time};
use crate::text::kernels::configuration;
use crate::text::{Align, Ink, Style, Table, wrap};
use crate::units;
use apex_predict::Device;
use apex_predict_session::answer::{Answer, Computed};
use apex_profile::{Bound, BoundBy, Figure, Prediction};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The legend of marks and figures.
const LEGEND: &str = "ᵖ predicted, with a 90% prediction interval · ᶜ computed exactly · ᵐ measured. Duration: \
    gpu__time_duration. Achieved occupancy: resident warps of an active SM relative to the maximum. SM throughput: compute \
    (SM) throughput. Warp efficiency: avg. active threads per warp relative to 32.";

/// The reason why a kernel of a session has no predicted duration.
const WITHHELD: &str = "A measured kernel whose work is not known has no predicted duration.";

/// Writes one launch with its what-ifs, or many launches.
pub fn write(
    out: &mut dyn Write,
    device: &Device,
    answers: &[Answer],
    style: Style,
    width: usize,
) -> io::Result<()> {
    match answers {
        [one, changes @ ..]
            if !one.what_if && changes.iter().all(|answer| answer.what_if) && one.line.is_none() =>
        {
            single(out, device, one, style, width)?;
            if !changes.is_empty() {
                writeln!(out, "\n{}", style.paint(Ink::Bold, "What if"))?;
                several(out, changes, style, width)?;
            }
        }
        _ => {
            let launches = units::counted(answers.len() as u64, "launch", "launches");
            writeln!(out, "{}", style.paint(Ink::Bold, format!("{launches} on an {}", device.name)))?;
            several(out, answers, style, width)?;
        }
    }
    let is_withheld = |answer: &Answer| {
        let said = answer.prediction.as_ref();
        said.is_some_and(|said| said.duration_ns.is_none())
    };
    let withheld = if answers.iter().any(is_withheld) { WITHHELD } else { "" };
    for line in wrap(&format!("{LEGEND} {withheld}"), width, "") {
        writeln!(out, "{}", style.paint(Ink::Dim, line))?;
    }
    Ok(())
}

/// One launch: a line for each figure.
fn single(
    out: &mut dyn Write,
    device: &Device,
    answer: &Answer,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let launch = answer.launch.expect("a launch that was typed");
    let name = answer.kernel.as_ref().map_or(String::new(), |name| format!("{name}, "));
    let title = format!("{name}{} on an {}", configuration(launch), device.name);
    writeln!(out, "{}", style.paint(Ink::Bold, title))?;
    if let Some(prediction) = &answer.prediction {
        for line in wrap(&basis(prediction, answer.work_assumed), width, "") {
            writeln!(out, "{}", style.paint(Ink::Dim, line))?;
        }
        figures(out, prediction)?;
    }
    answer.computed.as_ref().map_or(Ok(()), |computed| exact_figures(out, computed))
}

fn figures(out: &mut dyn Write, prediction: &Prediction) -> io::Result<()> {
    let Prediction { duration_ns: time, measured_duration_ns: measured, .. } = prediction;
    let mut line = |name: &str, value: String| writeln!(out, "  {name:24}{value}");
    if let Some(time) = time {
        line("durationᵖ", unmarked_time(time))?;
    }
    if let Some(measured) = measured {
        let time = units::time(measured.value);
        let beside = match prediction.measured_over_predicted {
            Some(ratio) => format!("{time}, {} times the prediction", units::ratio(ratio)),
            None => time,
        };
        line("measuredᵐ", beside)?;
    }
    for (name, share) in [
        ("achieved occupancyᵖ", prediction.achieved_occupancy),
        ("SM throughputᵖ", prediction.sm_utilisation),
        ("warp efficiencyᵖ", prediction.warp_efficiency),
    ] {
        line(name, unmarked_share(&share))?;
    }
    prediction.bound.as_ref().map_or(Ok(()), |by| line("bound by", bound_in_words(by)))
}

/// Describes the limit of a kernel, and the share of its duration that the busiest part of the
/// device works.
pub fn bound(bound: &Bound) -> String {
    let Bound { by, part, share, .. } = bound;
    match by {
        BoundBy::Memory | BoundBy::Compute => format!("{} ({part} {})", by.name(), units::share(*share)),
        _ => by.name().to_owned(),
    }
}

fn bound_in_words(of: &Bound) -> String {
    let Bound { part, part_ns, share, duration, .. } = of;
    let (time, share) = (units::time(part_ns.value), units::share(*share));
    format!("{}: {part} takes {time}ᶜ, {share} of the {} duration", of.by.name(), duration.name())
}

/// Writes the basis of a session's predictions, by shares of its GPU time; nothing if it is
/// unknown.
pub fn basis_of(out: &mut dyn Write, shares: &BTreeMap<String, f64>) -> io::Result<()> {
    match basis_in_words(shares) {
        Some(words) => writeln!(out, "{words}."),
        None => Ok(()),
    }
}

/// Describes the bases of predictions with their shares of the GPU time; `None` without any.
pub fn basis_in_words(shares: &BTreeMap<String, f64>) -> Option<String> {
    let known = [
        ("work", "what the launches execute, from PTX and arguments,"),
        ("code", "PTX without arguments"),
        ("kernel", "the configuration and the kernel's attributes alone"),
        ("launch", "the configuration alone"),
    ];
    let words = known.iter().filter_map(|(basis, words)| {
        let share = shares.get(*basis)?;
        Some(format!("{words} for {} of the GPU time", units::share(*share)))
    });
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| format!("Predictions rest on {}", words.join("; on ")))
}

fn exact_figures(out: &mut dyn Write, computed: &Computed) -> io::Result<()> {
    let mut line = |name: &str, value: String| writeln!(out, "  {name:24}{value}");
    if let (Some(occupancy), Some(limiters)) = (computed.theoretical_occupancy, &computed.limiters) {
        let limited =
            if occupancy < 1.0 { format!(", limited by {}", limiters.join(" and ")) } else { String::new() };
        line("theoretical occupancyᶜ", format!("{}{limited}", units::share(occupancy)))?;
    }
    if let (Some(waves), Some(tail)) = (computed.waves, computed.tail_effect) {
        line("wavesᶜ", format!("{waves:.2}, tail effect {}", units::share(tail)))?;
    }
    line("block efficiencyᶜ", units::share(computed.block_efficiency))
}

/// Describes the basis of the prediction, and how far to trust it.
fn basis(prediction: &Prediction, assumed: Option<bool>) -> String {
    let from = match prediction.basis.as_str() {
        "launch" => "the launch only; --registers, or --ptx with --arg, describe the kernel",
        "kernel" => "the launch and the kernel's attributes; --ptx with --arg describes its code",
        "code" => "the launch and the kernel's PTX; --arg determines what it executes",
        _ if assumed == Some(true) => {
            "the launch, the kernel's PTX and what it executes; parts that depend on unknown arguments or \
                memory are guessed"
        }
        _ => "the launch, the kernel's PTX and what it executes",
    };
    match prediction.unfamiliar.as_slice() {
        [] => format!("from {from}"),
        features => format!(
            "from {from}. Outside the training data, so that the intervals are untested: {}",
            features.join(", ")
        ),
    }
}

/// A table with the columns that any of the answers has something for.
fn several(out: &mut dyn Write, answers: &[Answer], style: Style, width: usize) -> io::Result<()> {
    let any = |has: fn(&Answer) -> bool| answers.iter().any(has);
    let lined = any(|answer| answer.line.is_some());
    let named = any(|answer| answer.kernel.is_some());
    let changed = any(|answer| answer.saves.is_some());
    let measured = any(|answer| measured_of(answer).is_some());
    let bounded = any(|answer| answer.prediction.as_ref().is_some_and(|said| said.bound.is_some()));
    let columns = [
        (lined, ("line", Align::Right)),
        (named, ("kernel", Align::Flexible)),
        (true, ("configuration", Align::Left)),
        (true, ("durationᵖ", Align::Right)),
        (changed, ("savesᵖ", Align::Right)),
        (measured, ("measuredᵐ", Align::Right)),
        (measured, ("ᵐ/ᵖ", Align::Right)),
        (true, ("occupancyᵖ", Align::Right)),
        (true, ("SMᵖ", Align::Optional)),
        (true, ("theor.ᶜ", Align::Optional)),
        (bounded, ("bound by", Align::Optional)),
    ];
    let shown = |(wanted, column)| Option::filter(Some(column), |_| wanted);
    let mut table = Table::new(&columns.into_iter().filter_map(shown).collect::<Vec<_>>());
    for answer in answers {
        let said = answer.prediction.as_ref();
        if said.is_none() && !answer.what_if {
            continue;
        }
        let mark = if answer.what_if { "→ " } else { "" };
        let time = match said {
            Some(said) => said.duration_ns.as_ref().map_or("-".to_owned(), unmarked_time),
            None if answer.launch.is_some() => "cannot run".to_owned(),
            None => "-".to_owned(),
        };
        let share =
            |of: fn(&Prediction) -> Figure| said.map_or("-".to_owned(), |said| unmarked_share(&of(said)));
        let theoretical = answer.computed.as_ref().and_then(|computed| computed.theoretical_occupancy);
        let cells = [
            (lined, answer.line.map_or(String::new(), |line| line.to_string())),
            (named, format!("{mark}{}", answer.kernel.as_deref().unwrap_or("-"))),
            (true, answer.launch.map_or("-".to_owned(), configuration)),
            (true, time),
            (changed, answer.saves.as_ref().map_or(String::new(), unmarked_share)),
            (measured, measured_of(answer).map_or(String::new(), units::time)),
            (
                measured,
                said.and_then(|said| said.measured_over_predicted).map_or(String::new(), units::ratio),
            ),
            (true, share(|said| said.achieved_occupancy)),
            (true, share(|said| said.sm_utilisation)),
            (true, theoretical.map_or(unknown(said).to_owned(), units::share)),
            (bounded, said.and_then(|said| said.bound.as_ref()).map_or("-".to_owned(), bound)),
        ];
        table.row(cells.into_iter().filter(|(wanted, _)| *wanted).map(|(_, cell)| cell).collect());
    }
    for (i, line) in table.lines(width).into_iter().enumerate() {
        writeln!(out, "{}", if i == 0 { style.paint(Ink::Dim, line) } else { line })?;
    }
    Ok(())
}

/// In place of the theoretical occupancy: it is not known, or there is none.
fn unknown(said: Option<&Prediction>) -> &'static str {
    if said.is_some() { "?" } else { "-" }
}

/// The measured duration, nanoseconds.
fn measured_of(answer: &Answer) -> Option<f64> {
    Some(answer.prediction.as_ref()?.measured_duration_ns?.value)
}
