//! The lines of the kernels that a filter names, as the CPU device counted them, with their code.

use super::places::write;
use crate::text::kernels::configuration;
use crate::text::{Align, Style, Table, shorten, wrap};
use crate::units;
use apex_counts::Line;
use apex_ordered::{Gather, Order};
use apex_predict_session::source_text;
use apex_profile::{Kernel, KernelCounts, Profile};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

/// Kernels whose lines are listed.
const KERNELS: usize = 3;
/// Lines of each.
const LINES: usize = 12;

/// The meaning of the headings.
const LEGEND: &str = "ᶜ computed by the CPU device over all counted launches. Instructions: PTX instructions \
    of warps; threads: avg. active threads per warp, of 32. Excessive: global memory sectors and shared \
    memory wavefronts (bank conflicts) beyond the minimum. Divergent: divergent branches. `--json` and `apex \
    dashboard` have all lines.";

/// Lists the lines that execute most, of those of the kernels at `indices` that have any.
pub fn table(
    out: &mut dyn Write,
    profile: &Profile,
    indices: &[usize],
    style: Style,
    width: usize,
) -> io::Result<()> {
    let kernels = indices.iter().map(|&index| &profile.kernels[index]);
    let counted = kernels.filter_map(|kernel| Some((kernel, kernel.counts.as_ref()?)));
    for (kernel, counts) in counted.filter(|(_, counts)| !counts.lines.is_empty()).take(KERNELS) {
        of_kernel(out, profile, kernel, counts, style, width)?;
    }
    Ok(())
}

fn of_kernel(
    out: &mut dyn Write,
    profile: &Profile,
    kernel: &Kernel,
    counts: &KernelCounts,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let mut lines: Vec<&Line> = counts.lines.iter().collect();
    lines.order_by_key(|line| Reverse(line.counts.warp_instructions));
    lines.truncate(LINES);
    let files: BTreeMap<&str, _> =
        lines.iter().map(|line| (&*line.file, source_text::text(profile, kernel, &line.file))).gathered();
    let mut table = Table::new(&[
        ("line", Align::Left),
        ("instructionsᶜ", Align::Right),
        ("shareᶜ", Align::Right),
        ("threadsᶜ", Align::Right),
        ("excessiveᶜ", Align::Optional),
        ("divergentᶜ", Align::Optional),
        ("code", Align::Flexible),
    ]);
    let mark = if counts.sampled_share.is_some() { "≈" } else { "" };
    for line in lines {
        let text = files.get(&*line.file).and_then(|found| found.as_ref().ok());
        let code = text.and_then(|text| text.lines().nth((line.line as usize).checked_sub(1)?));
        let share =
            line.counts.warp_instructions as f64 / counts.sums.total_warp_instructions().max(1) as f64;
        table.row(vec![
            place(line),
            format!("{mark}{}", units::count(line.counts.warp_instructions)),
            units::share(share),
            format!("{:.1}", line.counts.active_threads()),
            some(mark, line.counts.global_excess.saturating_add(line.counts.shared_excess)),
            some(mark, line.counts.divergent_branches),
            shorten(code.unwrap_or("").trim(), 100),
        ]);
    }
    let title = format!("Lines of {}, {}", shorten(&kernel.short_name, 60), configuration(kernel.launch));
    write(out, &title, &table, LEGEND, style, width)?;
    for (file, why) in files.into_iter().filter_map(|(file, found)| Some((file, found.err()?))) {
        let of = if file.is_empty() { String::new() } else { format!("{file}: ") };
        for line in wrap(&format!("{of}{why}"), width, "") {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The name of the file without its folders, and the line.
fn place(Line { file, line, .. }: &Line) -> String {
    match Path::new(&**file).file_name() {
        Some(name) => format!("{}:{line}", shorten(&name.to_string_lossy(), 40)),
        None => format!("PTX line {line}"),
    }
}

fn some(mark: &str, count: u64) -> String {
    if count == 0 { "-".into() } else { format!("{mark}{}", units::count(count)) }
}
