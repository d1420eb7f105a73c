//! The launches inside the ranges that the program names (NVTX).

use super::places::write;
use crate::text::{Align, Style, Table, wrap};
use crate::units;
use apex_profile::{Figure, Profile, Range};
use std::io::{self, Write};

/// The meaning of the headings.
const LEGEND: &str = "Whole run; a range includes nested ranges. ᵐ measured; ᵖ predicted: GPU time is the \
    number of launches times the sampled kernel times; idle before is the device's idle time until work of \
    the range began.";

/// The first `top` ranges, those inside of others indented below them.
pub fn by_range(
    out: &mut dyn Write,
    profile: &Profile,
    top: usize,
    style: Style,
    width: usize,
) -> io::Result<()> {
    writeln!(out)?;
    if profile.ranges.is_empty() {
        let why = "The program named no ranges. It does so through NVTX: torch.cuda.nvtx, cupy.cuda.nvtx, nvtxRangePush in C. \
            Ranges go to another tool where NVTX_INJECTION64_PATH named its library before `apex run`.";
        return writeln!(out, "{}\n", wrap(why, width, "").join("\n"));
    }
    let mut table = Table::new(&[
        ("range", Align::Flexible),
        ("countᵐ", Align::Right),
        ("launchesᵐ", Align::Right),
        ("GPU timeᵖ", Align::Right),
        ("idle beforeᵖ", Align::Right),
        ("on the hostᵐ", Align::Optional),
        ("copiesᵐ", Align::Optional),
    ]);
    for range in profile.ranges.iter().take(top) {
        table.row(vec![
            format!("{}{}", "  ".repeat(depth(profile, range)), title(range)),
            units::count(range.count),
            units::count(range.launches),
            time(range.gpu_time_ns, if range.launches > 0 { "not timed" } else { "" }),
            time(range.idle_ns, ""),
            if range.host_ns > 0.0 { units::time(range.host_ns) } else { "not ended".into() },
            units::count(range.copies),
        ]);
    }
    let shown = top.min(profile.ranges.len());
    write(out, &format!("{shown} of {} ranges", profile.ranges.len()), &table, LEGEND, style, width)
}

fn time(figure: Option<Figure>, unknown: &str) -> String {
    figure.map_or(unknown.to_owned(), |figure| units::time(figure.value))
}

/// Ranges around it.
fn depth(profile: &Profile, range: &Range) -> usize {
    std::iter::successors(range.parent, |&parent| profile.ranges[parent].parent).count()
}

fn title(range: &Range) -> String {
    let name = if range.name.is_empty() { "(no name)" } else { &range.name };
    let process = if range.is_process_wide { " (process)" } else { "" };
    match range.domain.as_str() {
        "" => format!("{name}{process}"),
        domain => format!("{domain}: {name}{process}"),
    }
}
