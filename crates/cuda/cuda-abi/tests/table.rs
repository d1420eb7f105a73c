//! The table holds together: order, families, and what `resolve` makes of them.

use cuda_abi::{COUNT, ENTRY_POINTS, Header, StreamMode, find, index, resolve};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn symbols_are_sorted_and_found_at_their_index() {
    assert!(ENTRY_POINTS.is_sorted_by(|a, b| a.symbol < b.symbol));
    for (at, entry) in ENTRY_POINTS.iter().enumerate() {
        assert_eq!(find(entry.symbol), Some(at));
    }
}

#[test]
fn near_misses_are_not_found() {
    for absent in ["", "cu", "cuLaunchKerne", "cuLaunchKernelE", "culaunchkernel", "zz", "\u{10ffff}"] {
        assert_eq!(find(absent), None, "{absent}");
        assert_eq!(resolve(absent, 99_999, true), None, "{absent}");
    }
}

macro_rules! listed {
    ([ $(($index:literal, $symbol:ident),)* ]) => { [$(($index, stringify!($symbol), index::$symbol)),*] };
}

#[test]
fn macro_and_index_agree_with_the_table() {
    let listed: [(usize, &str, usize); COUNT] = cuda_abi::for_each_entry_point!(listed);
    for (at, (index, symbol, constant)) in listed.into_iter().enumerate() {
        assert_eq!((index, symbol, constant), (at, ENTRY_POINTS[at].symbol, at));
    }
}

macro_rules! passed_on {
    (first $second:tt third [ $($entries:tt)* ]) => { (stringify!($second), [$(stringify!($entries)),*].len()) };
}

#[test]
fn arguments_of_the_macro_come_first() {
    let (second, tokens) = cuda_abi::for_each_entry_point!(passed_on, first, (1 + 2), third);
    assert_eq!((second, tokens), ("(1 + 2)", 2 * COUNT));
}

#[test]
fn all_five_headers_are_in() {
    let mut headers = BTreeMap::new();
    for entry in &ENTRY_POINTS {
        *headers.entry(format!("{:?}", entry.header)).or_insert(0) += 1;
    }
    for (header, least) in [("Core", 685), ("Gl", 18), ("Egl", 12), ("Vdpau", 5), ("Profiler", 3)] {
        assert!(headers.get(header).is_some_and(|&count| count >= least), "{header}: {headers:?}");
    }
}

/// By search over the whole table, where `resolve` searches an index.
fn resolve_slowly(base: &str, version: u32, per_thread: bool) -> Option<usize> {
    let newest = |mode| {
        let fits = |at: &usize| {
            let entry = &ENTRY_POINTS[*at];
            let declared = entry.header != Header::Undeclared;
            declared && entry.base == base && entry.stream == mode && entry.version <= version
        };
        (0..COUNT).filter(fits).max_by_key(|&at| ENTRY_POINTS[at].version)
    };
    let own = if per_thread { newest(StreamMode::PerThread) } else { None };
    own.or_else(|| newest(StreamMode::Legacy))
}

#[test]
fn resolve_gives_the_newest_form_that_the_version_has() {
    let bases: BTreeSet<&str> = ENTRY_POINTS.iter().map(|entry| entry.base).collect();
    let mut versions: BTreeSet<u32> = ENTRY_POINTS.iter().map(|entry| entry.version).collect();
    versions.extend([0, 1, u32::MAX]);
    for base in bases {
        for &version in &versions {
            for per_thread in [false, true] {
                let expected = resolve_slowly(base, version, per_thread);
                assert_eq!(resolve(base, version, per_thread), expected, "{base} {version} {per_thread}");
            }
        }
    }
}

#[test]
fn resolve_knows_no_symbol_that_is_no_base() {
    for entry in ENTRY_POINTS.iter().filter(|entry| entry.symbol != entry.base) {
        assert_eq!(resolve(entry.symbol, u32::MAX, true), None, "{}", entry.symbol);
    }
}
