//! Generates programs. They are deterministic and independent: a driver that refuses one does not
//! affect the others.

mod atomics;
mod barriers;
mod control;
mod copies;
mod hints;
pub mod hopper;
mod matrices;
mod memory;
mod packs;
mod singles;
mod straight;
mod surfaces;
mod sweep;
mod textures;
mod warps;
mod wmma;

use crate::case::Case;

/// All programs, sorted by name.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    singles::generate(&mut cases);
    packs::generate(&mut cases);
    memory::generate(&mut cases);
    hints::generate(&mut cases);
    atomics::generate(&mut cases);
    warps::generate(&mut cases);
    copies::generate(&mut cases);
    matrices::generate(&mut cases);
    wmma::generate(&mut cases);
    control::generate(&mut cases);
    straight::generate(&mut cases);
    textures::generate(&mut cases);
    surfaces::generate(&mut cases);
    sweep::generate(&mut cases);
    barriers::generate(&mut cases);
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

/// Expands `{a,b,}`: one text for each combination of choices.
fn expand(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else { return vec![pattern.to_owned()] };
    let (choices, after) = rest.split_once('}').expect("patterns are balanced");
    let tails = expand(after);
    choices
        .split(',')
        .flat_map(|choice| tails.iter().map(move |tail| format!("{before}{choice}{tail}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_programs_parse() {
        let cases = cases();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        for case in &cases {
            if let Err(error) = ptx::parse(&case.ptx) {
                panic!("{}", error.render(&case.name, &case.ptx));
            }
        }
    }

    #[test]
    fn patterns_expand_to_every_combination() {
        assert_eq!(expand("a{.x,}.{u,s}"), ["a.x.u", "a.x.s", "a.u", "a.s"]);
    }
}
