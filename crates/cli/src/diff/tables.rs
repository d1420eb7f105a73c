//! The tables of a comparison: totals and accounts, counts, advice, kernels.

use super::Page;
use crate::text::kernels::configuration;
use crate::text::{Align, Ink, Table, wrap};
use crate::units;
use apex_advice::{Basis, Change, Kept, KernelChange, Per, Presence, State};
use apex_profile::Figure;
use std::io::{self, Write};

/// The meaning of the marks.
const LEGEND: &str =
    "ᵐ measured on samples · ᶜ computed exactly · ~ within chance, or too few samples or runs to tell";

/// The reason why kernels can take more time than passes.
const OVERLAP: &str = "GPU time is the sum over kernels: where kernels of several streams run at once, it is more than \
    the time that passes.";

/// The reason why there are no times of the CPU device.
const NO_TIMES: &str = "Times are not compared: on the CPU device they are those of a busy host, and one run says \
    nothing about the next. Repeated runs can be compared: --before A1 A2 A3 --after B1 B2 B3.";

/// Whether times can be compared.
fn shows_times(page: &Page<'_>) -> bool {
    !page.comparison.on_cpu_device || page.comparison.is_of_repeated_runs()
}

/// Totals, then where the time went.
pub fn totals(out: &mut dyn Write, page: &Page<'_>) -> io::Result<()> {
    let comparison = page.comparison;
    let per = match comparison.per {
        Per::Step => "a step",
        Per::Run => "a run",
    };
    let mut table = Totals::new(page, per);
    if !shows_times(page) {
        table.row("launches", &comparison.launches, count);
        table.row("copies", &comparison.copies, count);
        table.row("copied bytes", &comparison.copied_bytes, bytes);
        table.write(out)?;
        for line in wrap(NO_TIMES, page.width, "") {
            writeln!(out, "{}", page.style.paint(Ink::Dim, line))?;
        }
        return Ok(());
    }
    if let Some(step) = &comparison.step_ns {
        table.row("time", step, units::time);
    } else {
        table.row("time", &comparison.span_ns, units::time);
    }
    table.row("GPU time", &comparison.gpu_time_ns, units::time);
    table.row("GPU busy", &comparison.gpu_busy, units::percent);
    table.row("launches", &comparison.launches, count);
    table.row("CPU in launches", &comparison.launch_cpu_ns, units::time);
    table.row("copies", &comparison.copies, count);
    table.row("copied bytes", &comparison.copied_bytes, bytes);
    // The accounts are a GPU's.
    if !comparison.on_cpu_device {
        for account in &comparison.accounts {
            table.row(&format!("  {}", account.account), &account.time_ns, units::time);
        }
    }
    table.write(out)?;
    let time = comparison.step_ns.as_ref().unwrap_or(&comparison.span_ns);
    let overlap = if is_above(&comparison.gpu_time_ns, time) { OVERLAP } else { "" };
    for line in wrap(overlap, page.width, "").iter().filter(|line| !line.is_empty()) {
        writeln!(out, "{}", page.style.paint(Ink::Dim, line))?;
    }
    Ok(())
}

/// Whether a figure is above another one on a side.
fn is_above(change: &Change, other: &Change) -> bool {
    let above =
        |a: Option<Figure>, b: Option<Figure>| a.zip(b).is_some_and(|(a, b)| a.value > b.value * 1.01);
    above(change.before, other.before) || above(change.after, other.after)
}

/// Writes the table of the CPU device's counts.
pub fn counts(out: &mut dyn Write, page: &Page<'_>) -> io::Result<()> {
    let Some(counts) = &page.comparison.counts else { return Ok(()) };
    let mut table = Totals::new(page, "countedᶜ");
    for (name, change) in [
        ("warp instructions", &counts.warp_instructions),
        ("sectors (global)", &counts.sectors),
        ("  of these excessive", &counts.excessive_sectors),
        ("wavefronts (shared)", &counts.wavefronts),
        ("  bank conflicts", &counts.bank_conflicts),
        ("divergent branches", &counts.divergent_branches),
    ] {
        table.row(name, change, count);
    }
    table.write(out)
}

/// A table of figures before and after; with the spread of runs where there are several.
struct Totals<'p> {
    page: &'p Page<'p>,
    table: Table,
    repeats: bool,
}

impl<'p> Totals<'p> {
    fn new(page: &'p Page<'p>, title: &'static str) -> Self {
        let runs = &page.comparison.span_ns.runs;
        let repeats = runs.0.len().max(runs.1.len()) > 1;
        let mut columns = vec![
            (title, Align::Flexible),
            ("before", Align::Right),
            ("after", Align::Right),
            ("change", Align::Right),
        ];
        if repeats {
            columns.push(("runs before", Align::Optional));
            columns.push(("runs after", Align::Optional));
        }
        Self { page, table: Table::new(&columns), repeats }
    }

    fn row(&mut self, name: &str, change: &Change, unit: fn(f64) -> String) {
        let none = |figure: Option<Figure>| figure.is_none_or(|figure| figure.value == 0.0);
        if none(change.before) && none(change.after) {
            return;
        }
        let mut cells =
            vec![name.to_owned(), side(change.before, unit), side(change.after, unit), difference(change)];
        if self.repeats {
            cells.extend([&change.runs.0, &change.runs.1].map(|runs| spread(runs, unit)));
        }
        self.table.row(cells);
    }

    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out)?;
        write_table(out, self.page, &self.table, |_| None)
    }
}

fn write_table(
    out: &mut dyn Write,
    page: &Page<'_>,
    table: &Table,
    ink: impl Fn(usize) -> Option<Ink>,
) -> io::Result<()> {
    for (i, line) in table.lines(page.width).into_iter().enumerate() {
        let ink = i.checked_sub(1).map_or(Some(Ink::Dim), &ink);
        writeln!(out, "{}", ink.map_or(line.clone(), |ink| page.style.paint(ink, &line)))?;
    }
    Ok(())
}

fn side(figure: Option<Figure>, unit: fn(f64) -> String) -> String {
    figure.map_or("?".into(), |figure| unit(figure.value))
}

/// `−8.3%`; a tilde where the difference may be chance.
fn difference(change: &Change) -> String {
    let chance = if change.significant == Some(true) { "" } else { "~" };
    match change.ratio {
        Some(1.0) => "=".into(),
        Some(ratio) if ratio >= 10.0 => format!("{chance}×{}", units::ratio(ratio)),
        Some(ratio) => format!("{chance}{:+.1}%", (ratio - 1.0) * 100.0),
        None => String::new(),
    }
}

/// The least and the greatest of several runs.
fn spread(runs: &[f64], unit: fn(f64) -> String) -> String {
    let (least, most) =
        runs.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &x| (a.min(x), b.max(x)));
    match runs.len() {
        0 | 1 => String::new(),
        _ => format!("{} to {}", unit(least), unit(most)),
    }
}

/// A count; with a digit behind the point where it is a small mean.
fn count(value: f64) -> String {
    if value < 100.0 && value.fract() != 0.0 {
        format!("{value:.1}")
    } else {
        units::count(value.round() as u64)
    }
}

fn bytes(value: f64) -> String {
    units::bytes(value.round() as u64)
}

/// Writes the outcome of the findings: whether they kept their promise.
pub fn advice(out: &mut dyn Write, page: &Page<'_>) -> io::Result<()> {
    let comparison = page.comparison;
    if comparison.followed.is_empty() && comparison.new_findings.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("advice", Align::Left),
        ("finding", Align::Flexible),
        ("promisedᵖ", Align::Right),
        ("achievedᵐ", Align::Right),
        ("", Align::Left),
        ("by", Align::OptionalLeft),
    ]);
    for followed in &comparison.followed {
        let state = match followed.state {
            State::Gone => "gone",
            State::Still => "still",
            State::Unjudged => "?",
        };
        let by = match followed.basis.filter(|_| followed.achieved_ns.is_some()) {
            Some(Basis::Kernels) => "its kernels' time",
            Some(Basis::Time) => "all of the time",
            None => "",
        };
        table.row(vec![
            state.into(),
            format!("{} {}", followed.rule, followed.slug),
            followed.promised_ns.map_or("?".into(), interval),
            followed.achieved_ns.map_or(String::new(), |time| units::time(time.value)),
            followed.kept.map_or(String::new(), |kept| told(kept).into()),
            by.into(),
        ]);
    }
    for new in &comparison.new_findings {
        let finding = format!("{} {}", new.rule, new.slug);
        let mut cells = vec!["new".into(), finding];
        cells.resize(6, String::new());
        table.row(cells);
    }
    writeln!(out)?;
    write_table(out, page, &table, |_| None)?;
    let what = match comparison.per {
        Per::Step => "a step takes",
        Per::Run => "the run takes",
    };
    if let Some(together) = &comparison.together {
        let gone = comparison.followed.iter().filter(|followed| followed.state == State::Gone).count() as u64;
        let sentence = format!(
            "{} promised {} together; {what} {} less: {}.",
            counted_gone(gone, together.findings),
            interval(together.promised_ns),
            units::time(together.achieved_ns.value),
            told(together.kept)
        );
        for line in wrap(&sentence, page.width, "  ") {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// The findings that are gone, as the table lists them, and those of them whose promises are summed
/// up: the saving of a finding within another one is part of that one's.
fn counted_gone(gone: u64, summed: u64) -> String {
    match gone.saturating_sub(summed) {
        0 => format!("The {gone} that are gone"),
        parts => {
            format!("The {gone} that are gone, {parts} of which are part of others or promised no time,")
        }
    }
}

fn told(kept: Kept) -> &'static str {
    match kept {
        Kept::Kept => "kept",
        Kept::Less => "less",
        Kept::More => "more",
    }
}

/// `9.1 ms to 16.9 ms`.
fn interval(time: Figure) -> String {
    let (low, high) = time.bounds();
    if low > 0.0 {
        format!("{} to {}", units::time(low), units::time(high))
    } else {
        format!("up to {}", units::time(high))
    }
}

/// The kernels that changed most.
pub fn kernels(out: &mut dyn Write, page: &Page<'_>, kernels: &[KernelChange], top: usize) -> io::Result<()> {
    let counted = page.comparison.counts.is_some();
    let shown = &kernels[..top.min(kernels.len())];
    writeln!(out)?;
    let table = match counted {
        true => counted_kernels(shown),
        false => timed_kernels(shown, shows_times(page)),
    };
    write_table(out, page, &table, |row| {
        let slower = !counted && shown[row].duration_ns.rose_above(1.0);
        slower.then_some(Ink::Bad)
    })?;
    if kernels.len() > top {
        writeln!(out, "{} more: --top shows them", kernels.len() - top)?;
    }
    for line in wrap(LEGEND, page.width, "") {
        writeln!(out, "{}", page.style.paint(Ink::Dim, line))?;
    }
    Ok(())
}

fn timed_kernels(kernels: &[KernelChange], shows_times: bool) -> Table {
    let mut columns = vec![("kernel", Align::Flexible), ("launches", Align::Optional)];
    if shows_times {
        columns.extend([("GPU time", Align::Right), ("GPU time eachᵐ", Align::Optional)]);
    }
    columns.push(("occupancyᶜ", Align::Optional));
    let mut table = Table::new(&columns);
    for kernel in kernels {
        let mut cells = vec![name(kernel), launches(kernel)];
        if shows_times {
            cells.extend([moved(kernel), describe(kernel, &kernel.duration_ns, units::time)]);
        }
        cells.push(plain(kernel, &kernel.occupancy, units::share));
        table.row(cells);
    }
    table
}

fn counted_kernels(kernels: &[KernelChange]) -> Table {
    let mut table = Table::new(&[
        ("kernel", Align::Flexible),
        ("launches", Align::Optional),
        ("sectorsᶜ", Align::Right),
        ("wavefrontsᶜ", Align::Right),
        ("threadsᶜ", Align::Optional),
        ("instructionsᶜ", Align::Optional),
        ("occupancyᶜ", Align::Optional),
    ]);
    for kernel in kernels {
        let of = |change: Option<&Change>, unit: fn(f64) -> String| {
            change.map_or("-".into(), |change| plain(kernel, change, unit))
        };
        let counts = kernel.counts.as_ref();
        table.row(vec![
            name(kernel),
            launches(kernel),
            of(counts.map(|counts| &counts.sectors_per_request), tenths),
            of(counts.map(|counts| &counts.wavefronts_per_request), tenths),
            of(counts.map(|counts| &counts.active_threads), tenths),
            of(counts.map(|counts| &counts.warp_instructions), count),
            plain(kernel, &kernel.occupancy, units::share),
        ]);
    }
    table
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

fn name(kernel: &KernelChange) -> String {
    format!("{}{}", kernel.name, kernel.launch.map_or_else(String::new, configuration))
}

fn launches(kernel: &KernelChange) -> String {
    let value = |figure: Option<Figure>| figure.map_or(0.0, |figure| figure.value);
    match kernel.presence {
        Presence::Added => format!("new: {}", count(value(kernel.launches.after))),
        Presence::Removed => format!("gone: {}", count(value(kernel.launches.before))),
        Presence::Both => plain(kernel, &kernel.launches, count),
    }
}

/// Returns the change of a kernel's GPU time, by which the table is sorted.
fn moved(kernel: &KernelChange) -> String {
    let change = &kernel.total_ns;
    if change.before.is_none() && change.after.is_none() {
        return "not timed".into();
    }
    match kernel.moved(change) {
        None => "?".into(),
        Some(0.0) => "=".into(),
        Some(moved) if moved < 0.0 => format!("−{}", units::time(-moved)),
        Some(moved) => format!("+{}", units::time(moved)),
    }
}

/// The figure of a side: nothing where the kernel is absent, `?` where it is unknown.
fn sides(kernel: &KernelChange, change: &Change, unit: fn(f64) -> String) -> Vec<String> {
    let sides = [(change.before, Presence::Added), (change.after, Presence::Removed)];
    sides
        .into_iter()
        .filter(|(_, absent)| kernel.presence != *absent)
        .map(|(figure, _)| side(figure, unit))
        .collect()
}

/// `1.20 ms → 1.10 ms`, or one of them where both look the same; `-` where neither is known.
fn plain(kernel: &KernelChange, change: &Change, unit: fn(f64) -> String) -> String {
    if change.before.is_none() && change.after.is_none() {
        return "-".into();
    }
    let mut sides = sides(kernel, change, unit);
    sides.dedup();
    sides.join(" → ")
}

/// `1.20 ms → 1.10 ms (−8.3%)`; a tilde where the difference may be chance.
fn describe(kernel: &KernelChange, change: &Change, unit: fn(f64) -> String) -> String {
    if change.before.is_none() && change.after.is_none() {
        return "not measured".into();
    }
    let both = sides(kernel, change, unit).join(" → ");
    match change.ratio {
        Some(_) => format!("{both} ({})", difference(change)),
        None => both,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel on these sides, of which a figure is known or not.
    fn kernel(presence: Presence, before: Option<f64>, after: Option<f64>) -> KernelChange {
        let change = Change {
            before: before.map(Figure::measured),
            after: after.map(Figure::measured),
            ratio: before.zip(after).map(|(before, after)| after / before),
            significant: None,
            runs: (before.into_iter().collect(), after.into_iter().collect()),
        };
        KernelChange {
            name: "kernel".into(),
            symbol: "kernel".into(),
            configuration: None,
            launch: None,
            presence,
            launches: change.clone(),
            duration_ns: change.clone(),
            total_ns: change.clone(),
            occupancy: change,
            counts: None,
        }
    }

    #[test]
    fn findings_that_are_gone_are_counted_as_the_table_lists_them() {
        assert_eq!(counted_gone(3, 3), "The 3 that are gone");
        let some = "The 5 that are gone, 2 of which are part of others or promised no time,";
        assert_eq!(counted_gone(5, 3), some);
    }

    #[test]
    fn gpu_time_above_the_time_is_explained_on_either_side() {
        let [less, more] = [1.0, 2.0].map(|after| kernel(Presence::Both, Some(1.0), Some(after)).total_ns);
        assert!(is_above(&more, &less) && !is_above(&less, &more) && !is_above(&less, &less));
    }

    #[test]
    fn what_is_unknown_is_never_shown_as_nothing() {
        let shown = |presence, before, after| {
            let kernel = kernel(presence, before, after);
            let total = &kernel.total_ns;
            [moved(&kernel), plain(&kernel, total, units::time), describe(&kernel, total, units::time)]
        };
        let both = Presence::Both;
        assert_eq!(shown(both, Some(2e6), None), ["?", "2.00 ms → ?", "2.00 ms → ?"]);
        assert_eq!(shown(both, None, Some(2e6)), ["?", "? → 2.00 ms", "? → 2.00 ms"]);
        assert_eq!(shown(both, None, None), ["not timed", "-", "not measured"]);
        assert_eq!(
            shown(both, Some(2e6), Some(1e6)),
            ["−1.00 ms", "2.00 ms → 1.00 ms", "2.00 ms → 1.00 ms (~-50.0%)"]
        );
        // Where a kernel does not run it takes no time, which is no figure of it.
        assert_eq!(shown(Presence::Added, None, Some(2e6)), ["+2.00 ms", "2.00 ms", "2.00 ms"]);
        assert_eq!(shown(Presence::Removed, Some(2e6), None), ["−2.00 ms", "2.00 ms", "2.00 ms"]);
        assert_eq!(shown(Presence::Added, None, None)[0], "not timed");
    }
}
