//! What reading the source around a hot line says in general ([`Reading`]), as a change.

use apex_profile::{Frame, Profile, Reading};

/// What the source around a line lets expect, as the sentences of a change; `None` where it says
/// nothing.
pub(super) fn change(profile: &Profile, line: &Frame) -> Option<String> {
    let file = line.file.rsplit('/').next().unwrap_or_default();
    let said = profile.readings_of(line).iter().map(|reading| in_words(file, reading));
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join(". "))
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
