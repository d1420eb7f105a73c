//! The table of kernels.

use super::{Lines, Theme, head};
use crate::Look;
use crate::top::{Sort, Top};
use apex_profile::{Geometry, Kernel, total};
use apex_text::kernels::{configuration, gpu_time, occupancy, waves};
use apex_text::{Align, Table, bar, shorten, units};
use ratatui_core::text::Line;

/// Heading, header of the table, one kernel.
pub const LEAST: usize = 3;

/// Columns of the bars of shares.
const BAR: usize = 8;

/// Rows of all of it.
pub fn height(top: &Top) -> usize {
    let rows = top.rows();
    if rows.is_empty() {
        return 1;
    }
    2 + rows.len() + usize::from(top.selected_row(&rows).is_some())
}

/// As many kernels as fit, among them the selected one, about which a line says more.
pub fn lines(top: &Top, look: &Look, width: usize, height: usize, theme: Theme) -> Lines {
    let (rows, Some(sort)) = (top.rows(), top.sort()) else { return Lines::new() };
    let selected = top.selected_row(&rows);
    let mut lines = vec![Line::styled(shorten(&heading(top, look, rows.len(), sort), width), theme.bold())];
    if rows.is_empty() {
        return lines;
    }
    let details = selected.filter(|_| height > LEAST).map(|row| details(look, rows[row], width));
    let room = height.saturating_sub(2 + usize::from(details.is_some()));
    let first = selected.map_or(0, |row| (row + 1).saturating_sub(room));
    let shown = &rows[first..rows.len().min(first + room)];
    for (at, line) in table(look, shown, sort, width).into_iter().enumerate() {
        let is_selected = selected.is_some_and(|row| first + at == row + 1);
        lines.push(match at {
            0 => Line::styled(line, theme.dim()),
            _ if is_selected => Line::styled(format!("{line:width$}"), theme.reversed()),
            _ => Line::from(line),
        });
    }
    lines.extend(details.map(|details| Line::styled(details, theme.dim())));
    lines
}

/// `5 of 12 kernels, by GPU time · filter: gemm`
fn heading(top: &Top, look: &Look, shown: usize, sort: Sort) -> String {
    let launched = look.profile.kernels.iter().filter(|kernel| kernel.launches.any()).count() as u64;
    if !look.has_calls() {
        return "No kernel was launched.".to_owned();
    }
    if launched == 0 {
        return format!("No kernel was launched in the last {}.", head::last(look));
    }
    let kernels = units::counted(launched, "kernel", "kernels");
    if top.filter.is_empty() {
        format!("{kernels}, by {}", sort.name())
    } else {
        format!("{shown} of {kernels}, by {} · filter: {}", sort.name(), top.filter)
    }
}

/// The table as lines, its header first.
fn table(look: &Look, rows: &[usize], sort: Sort, width: usize) -> Vec<String> {
    let profile = &look.profile;
    let is_timed = profile.totals.gpu_time_ns.is_some();
    let devices = profile.device_names();
    let has_several = profile.devices.len() > 1;
    let mut columns = vec![("kernel", Align::Flexible)];
    if has_several {
        columns.push((devices.heading, Align::Right));
    }
    columns.push(("launches", Align::Right));
    if is_timed {
        columns.push(("GPU timeᵐ", Align::Right));
    }
    columns.extend([
        ("share", Align::Optional),
        ("CPU timeᵐ", Align::Optional),
        ("", Align::OptionalLeft),
        ("configuration", Align::OptionalLeft),
        ("occupancyᶜ", Align::OptionalLeft),
        ("wavesᶜ", Align::Optional),
    ]);
    let mut table = Table::new(&columns);
    let whole = total(profile.kernels.iter().map(|kernel| sort.of(kernel)));
    let computed =
        |kernel: &Kernel, text: fn(&Geometry) -> String| kernel.geometry.as_ref().map_or("?".into(), text);
    for &index in rows {
        let kernel = &profile.kernels[index];
        // A share of means says nothing.
        let share = if sort == Sort::Mean || whole <= 0.0 { None } else { Some(sort.of(kernel) / whole) };
        let mut cells = vec![kernel.short_name.clone()];
        if has_several {
            cells.push(devices.cell(kernel.device));
        }
        cells.push(units::count(kernel.launches.ran()));
        if is_timed {
            cells.push(kernel.gpu.as_ref().map_or("not timed".into(), gpu_time));
        }
        cells.extend([
            share.map_or("-".into(), units::share),
            if kernel.cpu.count > 0 { units::time(kernel.cpu.mean_ns) } else { "-".into() },
            share.map_or_else(String::new, |share| bar(share, BAR)),
            configuration(kernel.launch),
            computed(kernel, occupancy),
            computed(kernel, |geometry| waves(geometry.waves.waves)),
        ]);
        table.row(cells);
    }
    table.lines(width)
}

/// The full name of a kernel, and the place that launches it.
fn details(look: &Look, kernel: usize, width: usize) -> String {
    let kernel = &look.profile.kernels[kernel];
    let place = look.profile.main_place(&kernel.stacks).map(|place| format!(" · from {place}"));
    let place = apex_untrusted::printable(&place.unwrap_or_default()).into_owned();
    let room = width.saturating_sub(place.chars().count()).max(width / 2);
    shorten(&format!("{}{place}", shorten(&kernel.name, room)), width)
}
