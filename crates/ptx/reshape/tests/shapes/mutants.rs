//! Mutants: kernels with one or two parts of their text changed.

use crate::case::{Case, Layout, Shot};
use apex_random::Random;

/// Words that are exchanged for one another.
const FAMILIES: [&[&str]; 12] = [
    &["%tid.x", "%tid.y", "%tid.z"],
    &["%ntid.x", "%nctaid.x", "%ntid.y"],
    &["%ctaid.x", "%ctaid.y", "%tid.x"],
    &[".lt.", ".le.", ".gt.", ".ge.", ".eq.", ".ne."],
    &[".s32", ".u32"],
    &[".s64", ".u64"],
    &["%i", "%j", "%n", "%w", "%r1", "%r2", "%r3"],
    &["%a,", "%b,", "%c,"],
    &["%q10", "%q11"],
    &[" 4;", " 8;", " 2;", " 1;", " 12;"],
    &["add.", "sub."],
    &["or.pred", "and.pred"],
];

/// A mutant of a kernel that still is PTX; nothing if none was found.
pub fn of(case: &Case, round: usize, random: &mut Random) -> Option<Case> {
    let changed = (0..20).map(|_| changed(&case.source, random)).find(|source| {
        *source != case.source && ptx::parse(source).is_ok_and(|module| ptx::verify(&module).is_empty())
    })?;
    let in_one = |shot: &Shot| match shot.layout {
        Layout::Separate => shot.clone().with_layout(Layout::Pool),
        _ => shot.clone(),
    };
    let layouts = |shot: &Shot| {
        if shot.layout == Layout::Shifted { shot.clone().with_layout(Layout::Pool) } else { in_one(shot) }
    };
    let shots = case.shots.iter().map(layouts).collect();
    Some(Case { name: format!("{}, mutant {round}", case.name), source: changed, shots, ..case.clone() })
}

fn changed(source: &str, random: &mut Random) -> String {
    let body = source.find("\n{\n").unwrap_or(0);
    let mut text = source.to_owned();
    for _ in 0..1 + random.below(2) {
        match random.below(5) {
            0 => without_a_line(&mut text, body, random),
            _ => exchange(&mut text, body, random),
        }
    }
    text
}

/// Removes an instruction.
fn without_a_line(text: &mut String, body: usize, random: &mut Random) {
    let starts: Vec<usize> = text[body..].match_indices("\n\t").map(|(at, _)| body + at).collect();
    let at = random.choose(&starts);
    let end = text[at + 1..].find('\n').map_or(text.len(), |end| at + 1 + end);
    let is_declaration = text[at..end].contains("\t.");
    if !is_declaration {
        text.replace_range(at..end, "");
    }
}

/// Exchanges a word for another one of its family.
fn exchange(text: &mut String, body: usize, random: &mut Random) {
    let family = random.choose(&FAMILIES);
    let places: Vec<(usize, &str)> = family
        .iter()
        .flat_map(|word| {
            text[body..].match_indices(word).map(|(at, word)| (body + at, word)).collect::<Vec<_>>()
        })
        .map(|(at, word)| (at, family.iter().copied().find(|known| *known == word).unwrap_or_default()))
        .collect();
    if places.is_empty() {
        return;
    }
    let (at, word) = random.choose(&places);
    text.replace_range(at..at + word.len(), random.choose(family));
}
