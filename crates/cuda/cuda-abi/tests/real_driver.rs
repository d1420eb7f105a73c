//! The table against a real driver: `data/h200/driver/addresses.csv` holds, for each exported
//! symbol, the first question to `cuGetProcAddress_v2` (name, version, flags) that the driver
//! answered with that symbol's address.

use cuda_abi::{ENTRY_POINTS, find, resolve};

/// The question, and the symbol whose address was returned; `None` for an address that no exported
/// symbol has.
struct Answer<'a> {
    symbol: Option<&'a str>,
    name: &'a str,
    version: u32,
    per_thread: bool,
}

fn answers(csv: &str) -> impl Iterator<Item = Answer<'_>> {
    let rows = csv.lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.map(|row| {
        let [symbol, name, version, flags] = row.split(',').collect::<Vec<_>>()[..] else {
            panic!("row {row}")
        };
        let symbol = (symbol != "-").then_some(symbol);
        Answer { symbol, name, version: version.parse().expect("a version"), per_thread: flags == "2" }
    })
}

const MEASURED: &str = include_str!("../../../../data/h200/driver/addresses.csv");

#[test]
fn resolve_answers_as_the_driver_does() {
    let mut wrong = Vec::new();
    for Answer { symbol, name, version, per_thread } in answers(MEASURED) {
        let Some(symbol) = symbol else { continue };
        let ours = resolve(name, version, per_thread).map(|at| ENTRY_POINTS[at].symbol);
        if ours != Some(symbol) {
            wrong.push(format!("{name} {version} {per_thread}: driver {symbol}, table {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The answer is the first: at that version the driver began to give this symbol.
#[test]
fn versions_are_those_at_which_the_driver_begins_to_answer() {
    for Answer { symbol, version, .. } in answers(MEASURED) {
        let Some(at) = symbol.and_then(find) else { continue };
        assert_eq!(ENTRY_POINTS[at].version, version, "{symbol:?}");
    }
}

#[test]
fn the_driver_exports_nothing_that_the_table_lacks() {
    for Answer { symbol, .. } in answers(MEASURED) {
        assert!(symbol.is_none_or(|symbol| find(symbol).is_some()), "{symbol:?}");
    }
}
