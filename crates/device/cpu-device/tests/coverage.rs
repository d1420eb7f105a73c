//! The page that says how far each entry point of the driver is implemented.

use apex_cpu_device::{Coverage, coverage};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Entry points with the same base name and the same coverage share a line: `cuMemcpy`,
/// `cuMemcpy_ptds`.
fn lines(wanted: impl Fn(Coverage) -> Option<&'static str>) -> Vec<(String, &'static str)> {
    let mut lines: Vec<(String, &'static str, &'static str)> = Vec::new();
    for (entry, (symbol, covered)) in cuda_abi::ENTRY_POINTS.iter().zip(coverage()) {
        let Some(note) = wanted(covered) else { continue };
        match lines.iter_mut().find(|(_, base, other)| (*base, *other) == (entry.base, note)) {
            Some((symbols, ..)) => _ = write!(symbols, ", `{symbol}`"),
            None => lines.push((format!("`{symbol}`"), entry.base, note)),
        }
    }
    lines.into_iter().map(|(symbols, _, note)| (symbols, note)).collect()
}

fn page() -> String {
    let count = |wanted: fn(&Coverage) -> bool| coverage().filter(|(_, covered)| wanted(covered)).count();
    let mut page = format!(
        "# The CPU device: entry points of the driver\n\n\
         <!-- Generated from crates/device/cpu-device/src: BLESS=1 cargo test -p apex-cpu-device --test coverage writes it anew. -->\n\n\
         Of the {} entry points that `libcuda.so.1` exports (every `_vN`, `_ptsz` and `_ptds` form counts),\n\
         {} are supported, {} are supported in part, and {} are unsupported: these return `CUDA_ERROR_NOT_SUPPORTED`,\n\
         and `APEX_CPU_TRACE=1` reports each call of one. [cpu-device.md](cpu-device.md) is the user's guide.\n\n\
         ## Supported in part\n\n| entry point | limitation |\n| --- | --- |\n",
        cuda_abi::COUNT,
        count(|covered| *covered == Coverage::Done),
        count(|covered| matches!(covered, Coverage::Partly(_))),
        count(|covered| matches!(covered, Coverage::Refused(_))),
    );
    let partly = lines(|covered| if let Coverage::Partly(limit) = covered { Some(limit) } else { None });
    for (symbols, limit) in partly {
        let _ = writeln!(page, "| {symbols} | {limit} |");
    }
    page.push_str("\n## Unsupported\n\n| reason | entry points |\n| --- | --- |\n");
    let refused = lines(|covered| if let Coverage::Refused(reason) = covered { Some(reason) } else { None });
    let mut families: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (symbols, reason) in refused {
        families.entry(reason).or_default().push(symbols);
    }
    for (reason, symbols) in families {
        let _ = writeln!(page, "| {reason} | {} |", symbols.join(", "));
    }
    page.push_str("\n## Supported\n\n");
    for (symbols, _) in lines(|covered| (covered == Coverage::Done).then_some("")) {
        let _ = writeln!(page, "- {symbols}");
    }
    page
}

#[test]
fn the_page_about_entry_points_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/coverage-driver.md");
    test_golden::assert_file(path, &page());
}

#[test]
fn only_entry_points_with_a_successor_are_refused_for_their_age() {
    let old: Vec<&str> = coverage()
        .filter(
            |(_, covered)| matches!(covered, Coverage::Refused(reason) if reason.starts_with("an old form")),
        )
        .map(|(symbol, _)| symbol)
        .collect();
    let states: BTreeMap<&str, Coverage> = coverage().collect();
    let mut without = Vec::new();
    for symbol in old {
        let base = cuda_abi::ENTRY_POINTS.iter().find(|entry| entry.symbol == symbol).unwrap().base;
        let newer =
            cuda_abi::ENTRY_POINTS.iter().filter(|entry| entry.base == base && entry.symbol != symbol);
        let replaced =
            newer.map(|entry| states[entry.symbol]).any(|covered| !matches!(covered, Coverage::Refused(_)));
        if !replaced {
            without.push(symbol);
        }
    }
    assert!(without.is_empty(), "refused as old forms, and there is no newer one: {without:?}");
}
