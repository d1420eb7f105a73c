//! What reading the source around a hot line says in general ([`Reading`]), as a change.
//!
//! Three questions are answered: whether the statements around the line can be moved, replaced or
//! left out; whether callers use one place of the result only; and whether a kernel in Python loads
//! one address in several statements. All answers are text for the user: no saving is claimed.

use apex_profile::{Frame, Profile, Reading};
use std::collections::BTreeMap;

/// What the source around a line lets expect, as the sentences of a change; `None` where it says
/// nothing.
pub(super) fn change(profile: &Profile, line: &Frame) -> Option<String> {
    let file = line.file.rsplit('/').next().unwrap_or_default();
    let said = profile.readings_of(line).iter().map(|reading| in_words(file, reading));
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join(". "))
}

/// The ends of calls of whose result a part is taken: the last place, or the first.
const PARTS: [&str; 8] =
    [")[:, -1]", ")[-1]", ")[:, -1, :]", ")[..., -1, :]", ")[:, 0]", ")[0, -1]", ")[:, -1:]", ")[-1:]"];

/// What to change where a statement that calls the function of this line uses a part of its result;
/// `None` where none does.
pub(crate) fn part_used(profile: &Profile, file: &str, line: u32) -> Option<String> {
    let callers = profile.statements_that_call(file, line);
    let is_part = |statement: &str| PARTS.iter().any(|part| statement.contains(part));
    let (frame, statement) = callers.into_iter().find(|(_, statement)| is_part(statement))?;
    let name = frame.file.rsplit('/').next().unwrap_or_default();
    Some(format!(
        "{name}:{} `{statement}` uses one place of the result, the last or the first: take it before this line's work \
            (x[:, -1] in place of x), so that the others are not computed",
        frame.line.unwrap_or(0)
    ))
}

/// The function of Triton that loads.
const LOAD: &str = "tl.load(";

/// The addresses that a kernel in Python, which a statement at this line launches, loads from in
/// several statements; `None` if there are none.
pub(super) fn loaded_again(profile: &Profile, line: &Frame, statement: &str) -> Option<String> {
    let mut loads: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (at, statement) in profile.statements_called(&line.file, statement) {
        for (_, rest) in statement.match_indices(LOAD).map(|(from, _)| statement.split_at(from + LOAD.len()))
        {
            let lines = loads.entry(first_argument(rest)).or_default();
            lines.push(at);
        }
    }
    let (address, lines) =
        loads.into_iter().find(|(address, lines)| !address.is_empty() && lines.len() > 1)?;
    let file = line.file.rsplit('/').next().unwrap_or_default();
    let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
    Some(format!(
        "{file}:{}: the kernel loads `{address}` {} times: read each element once, by a block as wide as the row that it keeps \
            in registers (tl.arange over all of it, with more warps), or in one pass that carries its sums along (an online \
            maximum and sum)",
        lines.join(", "),
        lines.len()
    ))
}

/// The first argument of a call, behind its bracket.
fn first_argument(rest: &str) -> &str {
    let mut depth = 0usize;
    let end = rest.find(|c: char| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' if depth > 0 => depth -= 1,
            ')' | ',' if depth == 0 => return true,
            _ => {}
        }
        false
    });
    rest[..end.unwrap_or(0)].trim()
}

fn in_words(file: &str, reading: &Reading) -> String {
    match reading {
        Reading::Unchanged { call, around } => format!(
            "`{call}` gets the same arguments in each round of the loop ({file}:{around}): call it once before the loop \
                and keep what it returns, unless that differs from call to call"
        ),
        Reading::ListSearch { list, made } => format!(
            "`{list}` is a list ({file}:{made}), in which a search compares one element after the other: keep a set, or a \
                dictionary of places, beside it"
        ),
        Reading::Unused { name } => {
            format!("Nothing in {file} uses `{name}`: leave it out, unless it is computed for what it does")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{named, profile_of, timed};
    use super::*;

    #[test]
    fn a_kernel_that_loads_the_same_again_is_told_so() {
        let mut profile = profile_of([timed(named("likelihoods"), 1e6)]);
        let line = Frame { file: "/home/me/menus.py".into(), line: Some(37), function: "surprise".into() };
        let body = [
            (18, "top = tl.max(tl.load(scores + row + at, mask=at < n))"),
            (21, "tl.load(scores + row + at)"),
        ];
        let body: Vec<_> = body.map(|(line, text)| (line, text.to_owned())).to_vec();
        profile.functions.insert((line.file.clone(), "likelihoods".into()), body);
        let said = loaded_again(&profile, &line, "likelihoods[(PLACES,)](scores)").expect("two loads");
        assert!(said.starts_with("menus.py:18, 21: the kernel loads `scores + row + at` 2 times"), "{said}");
        assert_eq!(loaded_again(&profile, &line, "other[(PLACES,)](scores)"), None);
        assert_eq!(first_argument("x[a, f(b, c)], mask=m)"), "x[a, f(b, c)]");
    }

    #[test]
    fn readings_of_a_line_are_its_change() {
        let mut profile = profile_of([timed(named("fill"), 1e6)]);
        let line = Frame { file: "/home/me/train.py".into(), line: Some(7), function: "step".into() };
        assert_eq!(change(&profile, &line), None);
        let unchanged = Reading::Unchanged { call: "np.linalg.inv(a)".into(), around: 4 };
        let readings = vec![unchanged, Reading::Unused { name: "b".into() }];
        profile.readings.insert((line.file.clone(), 7), readings);
        let said = change(&profile, &line).expect("a change");
        assert!(
            said.starts_with("`np.linalg.inv(a)` gets the same") && said.contains("train.py:4"),
            "{said}"
        );
        assert!(said.contains("uses `b`"), "{said}");
    }
}
