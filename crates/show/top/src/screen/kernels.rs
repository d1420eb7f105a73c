//! The table of kernels.

use super::{Lines, Theme, head};
use crate::Look;
use crate::top::{Sort, Top};
use apex_profile::{GpuShares, total, units};
use apex_view::text::kernels::{
    BAR, CONFIGURATION, CPU_TIME, Column, GPU_TIME, LAUNCHES, OCCUPANCY, Row, SHARE, Share, WAVES,
};
use apex_view::text::shorten;
use ratatui_core::text::Line;

/// Heading, header of the table, one kernel.
pub const LEAST: usize = 3;

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
    let gpu_time = profile.totals.gpu_time_ns.map(|_| GPU_TIME);
    let others = [SHARE, CPU_TIME, BAR, CONFIGURATION, OCCUPANCY, WAVES];
    let columns: Vec<Column> = [LAUNCHES].into_iter().chain(gpu_time).chain(others).collect();
    let shares = GpuShares::of(profile);
    let whole = total(profile.kernels.iter().map(|kernel| sort.of(kernel)));
    let row = |&index: &usize| {
        let kernel = &profile.kernels[index];
        let share = match sort {
            Sort::Time => shares.share(kernel).into(),
            // A share of means says nothing.
            Sort::Mean => Share::Meaningless,
            _ if whole <= 0.0 => Share::Meaningless,
            Sort::Launches | Sort::Cpu => Share::in_sum(sort.of(kernel), whole),
        };
        Row { kernel, name: &kernel.short_name, share }
    };
    apex_view::text::kernels::table(&profile.device_names(), &columns, rows.iter().map(row)).lines(width)
}

/// The full name of a kernel, and the place that launches it.
fn details(look: &Look, kernel: usize, width: usize) -> String {
    let kernel = &look.profile.kernels[kernel];
    let place = look.profile.main_place(&kernel.stacks).map(|place| format!(" · from {place}"));
    let place = apex_untrusted::printable(&place.unwrap_or_default()).into_owned();
    let room = width.saturating_sub(place.chars().count()).max(width / 2);
    shorten(&format!("{}{place}", shorten(&kernel.name, room)), width)
}
