//! Any text gives an identity, quickly, and never a panic.

use apex_kernel_names::{
    MOST_DEMANGLED, MOST_SHORT, Row, demangled, function_name, identify, unique_short_names,
};
use proptest::prelude::*;

const TABLE: &str = include_str!("names.tsv");

fn check(name: &str) {
    let identity = identify(name);
    assert!(identity.short_name.chars().count() <= MOST_SHORT);
    assert!(identity.name.len() <= name.len().max(MOST_DEMANGLED));
    assert!(function_name(name).chars().count() <= MOST_SHORT);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_panics(
        any in any::<String>(),
        mangled in "_Z[A-Za-z0-9_]{0,60}",
        brackets in "[<>(){}:,operat \\[\\]é*&-]{0,60}",
        coded in "(sm90_xmma_|ampere_|cutlass_80_|nvjet_|triton_|ncclDevKernel_|cupy_)[a-z0-9_]{0,40}",
    ) {
        for name in [&any, &mangled, &brackets, &coded] {
            check(name);
        }
    }

    /// Real names with a few bytes changed, cut out or repeated.
    #[test]
    fn no_damaged_name_panics(line in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), put in "[A-Za-z0-9_<>(]{0,4}", cut in 0usize..8) {
        let lines: Vec<&str> = TABLE.lines().collect();
        let name = line.get(&lines).rsplit('\t').next().unwrap_or_default();
        let characters: Vec<char> = name.chars().collect();
        let at = at.index(characters.len() + 1);
        let after = (at + cut).min(characters.len());
        let damaged: String = characters[..at].iter().copied().chain(put.chars()).chain(characters[after..].iter().copied()).collect();
        check(&damaged);
    }

    #[test]
    fn names_of_a_table_are_unique(
        rows in prop::collection::vec(("[ab]{1,3}", prop::sample::select(vec!["x", "y", "x #2", "x [a]", "a-name-that-is-longer-than-any-table-wants-to-show-it"]), "[12]?"), 0..12),
    ) {
        let rows: Vec<Row<'_>> = rows.iter().map(|(name, short_name, launch)| Row { name, short_name, launch }).collect();
        let shown = unique_short_names(&rows);
        for (a, one) in rows.iter().enumerate() {
            for (b, other) in rows.iter().enumerate() {
                let same = (one.name, one.short_name, one.launch) == (other.name, other.short_name, other.launch);
                prop_assert!(same || shown[a] != shown[b], "{one:?} and {other:?} are {}", shown[a]);
            }
        }
    }
}

/// Substitutions that double what they stand for: types, empty packs, nested names.
#[test]
fn symbols_that_expand_without_end_are_bounded() {
    for (open, close) in [("P1P", "E"), ("1PI", "E"), ("J", "E"), ("FvS_", "E")] {
        let mut symbol = String::from("_Z1f");
        for _ in 0..40 {
            symbol += open;
        }
        symbol += "i";
        for at in 0..40u32 {
            symbol += close;
            symbol +=
                &format!("S{}_S{0}_", char::from_digit(at % 36, 36).unwrap_or('0').to_ascii_uppercase());
        }
        check(&symbol);
    }
    for repeated in ["N1a", "1aI", "PKc", "S_", "St", "Z", "<", "(", "operator", "::"] {
        check(&format!("_Z{}", repeated.repeat(5_000)));
        check(&repeated.repeat(20_000));
    }
    let doubled: String = (0..34).map(|level| format!("J{0}{0}E", substitution(level))).collect();
    check(&demangled(&format!("_Z1fIJEJS_S_E{doubled}EvvT_")));
}

fn substitution(level: u32) -> String {
    format!("S{}_", char::from_digit(level % 36, 36).unwrap_or('0').to_ascii_uppercase())
}
