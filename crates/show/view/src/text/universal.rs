//! Modules that `apex run --universal` lowered, or could not lower, in words.

use apex_trace::meta::{LoweredCost, Refused, Replaced};
use std::collections::BTreeMap;

/// Lines, forms and kernels that a sentence lists at most.
const MOST: usize = 3;

/// What became of a module: `the module of scale (PTX 8.8, sm_100a) was lowered to PTX 7.0, sm_75:
/// f32x2 (exact) at line 12`, and why no ptxas helped if one was asked.
pub fn sentence(refused: &Refused) -> String {
    match &refused.ptxas {
        Some(reason) => format!("{}; {reason}", outcome(refused)),
        None => outcome(refused),
    }
}

fn outcome(refused: &Refused) -> String {
    let module = format!("the module of {} ({})", listed(&refused.kernels), refused.before);
    match &refused.after {
        Some(after) if refused.assembled => {
            format!("{module} was loaded unchanged, as {after}, which is newer than the driver")
        }
        Some(after) if refused.changes.is_empty() => {
            format!("{module} was loaded with another header: {after}")
        }
        Some(after) => {
            format!("{module} was lowered to {after}: {}{}", changes(&refused.changes), costs(&refused.costs))
        }
        None if refused.blocked.is_empty() => {
            format!(
                "{module} was not loaded (error {}): the driver refused the lowered PTX too",
                refused.result
            )
        }
        None => {
            let lacking = refused.blocked.iter().map(|found| {
                let needs = found.needs.join(", or ");
                let needs = if needs.is_empty() { String::new() } else { format!(" needs {needs}") };
                // What is missing of the header has no line.
                let line = (found.line > 0).then(|| format!(" at line {}", found.line));
                format!("{}{}{needs}", found.form, line.unwrap_or_default())
            });
            let lacking: Vec<String> = lacking.collect();
            format!(
                "{module} was not loaded (error {}): no exact change for sm_{}: {}",
                refused.result,
                refused.capability,
                listed(&lacking)
            )
        }
    }
}

/// Changes by row.
fn changes(changes: &[Replaced]) -> String {
    let mut rows: BTreeMap<(&str, bool), Vec<u32>> = BTreeMap::new();
    changes.iter().for_each(|change| rows.entry((&change.row, change.exact)).or_default().push(change.line));
    let rows = rows.into_iter().map(|((row, exact), lines)| {
        let exactness = if exact { "exact" } else { "approximate" };
        let word = if lines.len() == 1 { "line" } else { "lines" };
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        format!("{row} ({exactness}) at {word} {}", listed(&lines))
    });
    rows.collect::<Vec<_>>().join("; ")
}

/// What kernels cost after the changes: `; predicted instructions for each one of the original:
/// scale 1.50`.
fn costs(costs: &[LoweredCost]) -> String {
    let known = costs.iter().filter(|cost| cost.before > 0.0);
    let kernels: Vec<String> =
        known.map(|cost| format!("{} {:.2}", cost.kernel, cost.after / cost.before)).collect();
    match kernels.is_empty() {
        true => String::new(),
        false => format!("; predicted instructions for each one of the original: {}", listed(&kernels)),
    }
}

/// The first of a list, and how many more there are.
fn listed(items: &[String]) -> String {
    let shown = items[..items.len().min(MOST)].join(", ");
    match items.len().checked_sub(MOST) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_trace::meta::Lacking;

    #[test]
    fn a_sentence_says_what_was_changed_or_what_is_missing() {
        let change = |line| Replaced { line, row: "f32x2".into(), exact: true, ..Replaced::default() };
        let mut refused = Refused {
            kernels: vec!["scale".into()],
            before: "PTX 8.8, sm_100a".into(),
            after: Some("PTX 7.0, sm_75".into()),
            changes: [12, 15, 18, 21].map(change).into(),
            ..Refused::default()
        };
        assert_eq!(
            sentence(&refused),
            "the module of scale (PTX 8.8, sm_100a) was lowered to PTX 7.0, sm_75: f32x2 (exact) at lines 12, 15, \
             18 and 1 more"
        );
        refused.costs = vec![LoweredCost { kernel: "scale".into(), before: 200.0, after: 300.0 }];
        let said = sentence(&refused);
        assert!(
            said.ends_with("1 more; predicted instructions for each one of the original: scale 1.50"),
            "{said}"
        );
        refused.changes.clear();
        let assembled = Some("machine code by ptxas 13.5".into());
        assert_eq!(
            sentence(&Refused { after: assembled, assembled: true, ..refused.clone() }),
            "the module of scale (PTX 8.8, sm_100a) was loaded unchanged, as machine code by ptxas 13.5, which is \
             newer than the driver"
        );
        assert!(sentence(&refused).ends_with("was loaded with another header: PTX 7.0, sm_75"));
        let failed = Refused { ptxas: Some("/x/ptxas took longer than 12 s".into()), ..refused.clone() };
        assert!(
            sentence(&failed).ends_with("another header: PTX 7.0, sm_75; /x/ptxas took longer than 12 s")
        );
        let lacking = Lacking {
            line: 7,
            form: "wgmma.fence".into(),
            needs: vec!["PTX 8.0 and sm_90a".into()],
            ..Lacking::default()
        };
        let refused = Refused { after: None, result: 218, capability: 80, blocked: vec![lacking], ..refused };
        assert!(sentence(&refused).ends_with(
            "was not loaded (error 218): no exact change for sm_80: wgmma.fence at line 7 needs PTX 8.0 and sm_90a"
        ));
    }
}
