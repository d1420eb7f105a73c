//! The result of `apex tune` for a terminal.

use crate::text::{Align, Ink, Style, Table, wrap};
use crate::units;
use apex_tune::{Kept, Ratio, Refused, Size, Tuning};
use cuda_launch::Dim3;
use std::io::{self, Write};
use std::path::Path;

/// The legend of marks.
const LEGEND: &str = "ᵐ measured: the median of launches, and of paired launches with its 95% interval · ᶜ computed from \
    these. The results are proven to be the same, bit by bit.";

/// Writes what was found.
pub fn write(
    out: &mut dyn Write,
    tuning: &Tuning,
    path: &Path,
    style: Style,
    width: usize,
) -> io::Result<()> {
    let sizes = || tuning.kernels.iter().flat_map(|kernel| &kernel.sizes);
    let better = sizes().filter(|size| size.change.is_some()).count() as u64;
    let found = if better == 0 {
        "No other block is faster".to_owned()
    } else {
        let saved = units::percent(tuning.saved_share());
        format!("{} faster: {saved}ᶜ of the kernels' time", units::counted(better, "block is", "blocks are"))
    };
    writeln!(
        out,
        "{}",
        style.paint(Ink::Bold, format!("{found} ({})", apex_untrusted::printable(&tuning.device)))
    )?;
    if better > 0 {
        for (at, line) in changes(tuning).lines(width).into_iter().enumerate() {
            let line = if at == 0 { style.paint(Ink::Dim, line) } else { line };
            writeln!(out, "{line}")?;
        }
    }
    let kept = kept(tuning);
    if !kept.is_empty() {
        writeln!(out, "\n{}", style.paint(Ink::Bold, "Unchanged"))?;
        for line in kept.iter().flat_map(|line| wrap(line, width, "  ")) {
            writeln!(out, "{line}")?;
        }
    }
    writeln!(out)?;
    let apply = format!(
        "The profile is {}. Apply it with `apex run --tuned {} -- COMMAND`.",
        apex_untrusted::shown(path),
        apex_untrusted::shown(path)
    );
    wrap(&apply, width, "").into_iter().try_for_each(|line| writeln!(out, "{line}"))?;
    wrap(LEGEND, width, "").into_iter().try_for_each(|line| writeln!(out, "{}", style.paint(Ink::Dim, line)))
}

/// The better blocks.
fn changes(tuning: &Tuning) -> Table {
    let mut table = Table::new(&[
        ("kernel", Align::Flexible),
        ("GPU timeᵐ", Align::Right),
        ("block", Align::Right),
        ("better", Align::Right),
        ("eachᵐ", Align::Right),
        ("betterᵐ", Align::Right),
        ("timeᵐ", Align::Right),
    ]);
    for kernel in &tuning.kernels {
        for size in &kernel.sizes {
            if let Some(change) = &size.change {
                table.row(vec![
                    apex_untrusted::printable(&kernel.name).into_owned(),
                    units::percent(size.share),
                    block(size.asked),
                    block(change.block),
                    units::time(change.before_ns),
                    units::time(change.after_ns),
                    ratio(&change.ratio),
                ]);
            }
        }
    }
    table
}

/// Kernels that stay as they are, and the reasons.
fn kept(tuning: &Tuning) -> Vec<String> {
    let mut lines = Vec::new();
    for kernel in &tuning.kernels {
        let of_size = |size: &Size| {
            let why = reason(size.kept.as_ref()?);
            let (name, share) = (apex_untrusted::printable(&kernel.name), units::percent(size.share));
            Some(format!("{name} in blocks of {} ({share}): {why}.", block(size.asked)))
        };
        lines.extend(kernel.sizes.iter().filter_map(of_size));
    }
    lines.extend(tuning.refused.iter().map(refused));
    lines
}

fn reason(kept: &Kept) -> String {
    match kept {
        Kept::FewLaunches => "it has too few launches to measure other blocks".to_owned(),
        Kept::NoCandidate => "no other block is worth trying".to_owned(),
        Kept::FewPairs => {
            "too few of its launches were timed; a longer run or a larger --budget times more".to_owned()
        }
        Kept::Tie { block: best, ratio: found } => {
            format!("the best other block, {}, takes {}ᵐ of its time", block(*best), ratio(found))
        }
    }
}

fn refused(refused: &Refused) -> String {
    let (name, share) = (apex_untrusted::printable(&refused.name), units::percent(refused.share));
    let place = refused.source.as_ref().map_or(String::new(), |(file, line)| format!(", {file}:{line}"));
    let at = match &*refused.instruction {
        "" => String::new(),
        instruction => format!(": `{instruction}`{place}"),
    };
    format!("{name} ({share}): {}{}.", refused.reason, apex_untrusted::printable(&at))
}

fn ratio(ratio: &Ratio) -> String {
    units::percent_between(ratio.median, ratio.low, ratio.high)
}

/// The sides of a block as people write them.
fn block(block: Dim3) -> String {
    match block.to_array() {
        [x, 1, 1] => x.to_string(),
        [x, y, 1] => format!("{x}×{y}"),
        [x, y, z] => format!("{x}×{y}×{z}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_tune::{Change, Tried, Tuned};
    use launch_condition::Condition;

    #[test]
    fn each_kernel_is_listed_with_its_change_or_its_reason() {
        let found = Ratio { median: 0.25, low: 0.24, high: 0.27, pairs: 50 };
        let change = Change { block: (32, 8).into(), before_ns: 80_000.0, after_ns: 20_000.0, ratio: found };
        let size = |change: Option<Change>, kept| Size {
            asked: 16.into(),
            size_class: 20,
            launches: 100,
            share: 0.4,
            tried: vec![Tried { block: 256.into(), ratio: None }],
            change,
            kept,
        };
        let tie =
            Kept::Tie { block: 64.into(), ratio: Ratio { median: 1.0, low: 0.98, high: 1.01, pairs: 50 } };
        let sizes = vec![size(Some(change), None), size(None, Some(tie)), size(None, Some(Kept::FewPairs))];
        let condition = Condition::default();
        let tuning = Tuning {
            device: "NVIDIA H200".into(),
            driver_version: 13_000,
            kernels: vec![Tuned { code: 1, name: "copy".into(), condition, sizes }],
            refused: vec![Refused {
                name: "sum".into(),
                share: 0.2,
                reason: "no proof covers this instruction".into(),
                instruction: "bar.sync 0".into(),
                source: Some(("sum.cu".into(), 12)),
            }],
            pairs: Vec::new(),
        };
        let mut text = Vec::new();
        write(&mut text, &tuning, Path::new("p.json"), Style { color: false }, 200).unwrap();
        let text = String::from_utf8(text).unwrap();
        for expected in [
            "1 block is faster: 30.0%ᶜ of the kernels' time (NVIDIA H200)",
            "32×8",
            "copy in blocks of 16 (40.0%): the best other block, 64, takes 100% (98.0–101)ᵐ of its time.",
            "sum (20.0%): no proof covers this instruction: `bar.sync 0`, sum.cu:12.",
            "apex run --tuned p.json",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
    }
}
