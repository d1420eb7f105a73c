//! Compares the results of a case on two drivers.

use crate::case::{Case, Rule, Slot};
use crate::recording::{self, Checksum, Kept, Outcome, ROWS, Recorded};
use crate::values::{Values, halves, number};
use std::ops::Range;

/// The comparison of an outcome with the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every bit is the same.
    Equal,
    /// The differences are within the error that the ISA allows.
    WithinError,
    /// The first difference in each slot that has one.
    Differs(Vec<Difference>),
    /// The recorded driver executed the case, this one refuses it.
    Refused(String),
    /// The recorded driver refused the case, so nothing is compared.
    NotRecorded(String),
    /// One driver failed, or both failed differently; both outcomes in words.
    Failed(String),
}

/// A difference in a slot of the results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A cell is out of bounds.
    Cell {
        /// Index of the slot.
        slot: usize,
        /// Row of the first such cell.
        row: usize,
        /// The recorded value.
        expected: u64,
        /// The computed value.
        found: u64,
        /// Number of such cells in the slot.
        wrong: usize,
    },
    /// Rows have another checksum; which of them differ is not recorded.
    Rows {
        /// Index of the slot.
        slot: usize,
        /// The first such rows.
        rows: Range<usize>,
        /// The computed values of these rows.
        found: Vec<u64>,
        /// Number of wrong checksums in the slot.
        wrong: usize,
    },
}

impl Difference {
    /// Index of the slot.
    pub fn slot(&self) -> usize {
        match self {
            Difference::Cell { slot, .. } | Difference::Rows { slot, .. } => *slot,
        }
    }
}

/// Compares what a driver made of a case with what was recorded.
pub fn compare(case: &Case, recorded: &Recorded, found: &Outcome) -> Verdict {
    match (recorded, found) {
        (Recorded::Whole(Outcome::Refused(reason)), _) => Verdict::NotRecorded(reason.clone()),
        (_, Outcome::Refused(reason)) => Verdict::Refused(reason.clone()),
        (Recorded::Whole(Outcome::Failed(expected)), Outcome::Failed(found)) if expected == found => {
            Verdict::Equal
        }
        (Recorded::Whole(Outcome::Failed(expected)), Outcome::Failed(found)) => {
            Verdict::Failed(format!("{found}, recorded was {expected}"))
        }
        (Recorded::Whole(Outcome::Failed(expected)), Outcome::Results(_)) => {
            Verdict::Failed(format!("it ran, recorded was {expected}"))
        }
        (_, Outcome::Failed(found)) => Verdict::Failed(found.clone()),
        (Recorded::Whole(Outcome::Results(expected)), Outcome::Results(found)) => {
            let expected = case.result_columns(expected).into_iter().map(Kept::Values);
            compare_results(case, &expected.collect::<Vec<_>>(), found)
        }
        (Recorded::Condensed(expected), Outcome::Results(found)) => compare_results(case, expected, found),
    }
}

fn compare_results(case: &Case, expected: &[Kept], found: &[u8]) -> Verdict {
    let columns = expected.iter().zip(case.result_columns(found)).enumerate();
    let compared: Vec<Compared> = columns
        .map(|(slot, (expected, found))| match expected {
            Kept::Values(expected) => compare_values(case, slot, expected, &found),
            Kept::Checksums(expected) => compare_checksums(case, slot, expected, &found),
        })
        .collect();
    let equal = compared.iter().all(|slot| slot.equal);
    let wrong: Vec<Difference> = compared.into_iter().filter_map(|slot| slot.difference).collect();
    match (wrong.is_empty(), equal) {
        (false, _) => Verdict::Differs(wrong),
        (true, true) => Verdict::Equal,
        (true, false) => Verdict::WithinError,
    }
}

/// The comparison of one slot.
struct Compared {
    /// Whether every bit is the same.
    equal: bool,
    /// The first difference that the rule does not allow.
    difference: Option<Difference>,
}

fn compare_values(case: &Case, slot: usize, expected: &[u64], found: &[u64]) -> Compared {
    let disagrees = |row: &usize| !agree(&case.results[slot], expected[*row], found[*row]);
    let wrong: Vec<usize> = (0..found.len()).filter(disagrees).collect();
    let difference = wrong.first().map(|row| Difference::Cell {
        slot,
        row: *row,
        expected: expected[*row],
        found: found[*row],
        wrong: wrong.len(),
    });
    Compared { equal: expected == found, difference }
}

fn compare_checksums(case: &Case, index: usize, expected: &[Checksum], found: &[u64]) -> Compared {
    let slot = &case.results[index];
    let computed: Vec<Checksum> = found.chunks(ROWS).map(|cells| Checksum::of(slot, cells)).collect();
    let disagrees = |at: &usize| expected[*at].any_nan != computed[*at].any_nan;
    let wrong: Vec<usize> = (0..computed.len()).filter(disagrees).collect();
    let difference = wrong.first().map(|at| {
        let rows = recording::rows(slot, *at);
        Difference::Rows { slot: index, found: found[rows.clone()].to_vec(), rows, wrong: wrong.len() }
    });
    Compared { equal: expected == computed, difference }
}

/// Whether two cells agree by the rule of their slot.
pub fn agree(slot: &Slot, expected: u64, found: u64) -> bool {
    if expected == found {
        return true;
    }
    let (relative, absolute) = match slot.rule {
        Rule::Exact => return false,
        Rule::AnyNan => (0.0, 0.0),
        Rule::Near { relative, absolute } => (relative, absolute),
    };
    let near = |expected: u64, found: u64, scalar: Values| {
        if expected == found {
            return true;
        }
        let (a, b) = (number(scalar, expected), number(scalar, found));
        if slot.rule == Rule::AnyNan || !a.is_finite() || !b.is_finite() {
            return a.is_nan() && b.is_nan() || a == b && slot.rule != Rule::AnyNan;
        }
        (a - b).abs() <= relative * a.abs().max(b.abs()) + absolute
    };
    match halves(slot.values) {
        Some(half) => {
            near(expected & 0xffff, found & 0xffff, half) && near(expected >> 16, found >> 16, half)
        }
        None => near(expected, found, slot.values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::canonical;

    fn slot(values: Values, rule: Rule) -> Slot {
        Slot { name: "result".into(), values, rows: 1, rule }
    }

    #[test]
    fn rules_allow_what_they_say_and_no_more() {
        let nan = slot(Values::F32, Rule::AnyNan);
        assert!(agree(&nan, 0x7fff_ffff, 0xffc0_0001));
        assert!(!agree(&nan, 0x0000_0000, 0x8000_0000), "the sign of zero is a difference");
        assert!(!agree(&nan, 0x3f80_0000, 0x3f80_0001));
        let near = slot(Values::F32, Rule::Near { relative: 2f64.powi(-22), absolute: 0.0 });
        assert!(agree(&near, 0x3f80_0000, 0x3f80_0001));
        assert!(!agree(&near, 0x3f80_0000, 0x3f80_0003));
        assert!(!agree(&near, 0x7f80_0000, 0x7f7f_ffff), "infinity is near nothing");
        assert!(!agree(&near, 0x7fc0_0000, 0x3f80_0000));
        let pair = slot(Values::F16x2, Rule::AnyNan);
        assert!(agree(&pair, 0x7e00_3c00, 0x7fff_3c00));
        assert!(!agree(&pair, 0x7e00_3c00, 0x7fff_3c01));
    }

    /// Cells at the limits of a type: zeros, the largest numbers, infinities, NaNs, their
    /// neighbours.
    fn limits(values: Values) -> Vec<u64> {
        let mut random = crate::random::Random::named("limits");
        let nans = [0x7c00, 0xfc00, 0x7f80, 0xff80, 0x7e00, 0xffff, 0];
        let of = |half: u64| [half, half << 16, half << 48, half * 0x0001_0001, half << 16 | 0x3c00];
        let near = nans.into_iter().flat_map(of).flat_map(|bits| [bits, bits ^ 1]);
        let mask = u64::MAX >> (64 - 8 * values.bytes());
        near.chain((0..40).map(|_| values.random(&mut random))).map(|bits| bits & mask).collect()
    }

    #[test]
    fn canonical_cells_are_equal_exactly_where_cells_agree() {
        use Values::*;
        for values in [F16, Bf16, F32, F64, F16x2, Bf16x2, B32, B64] {
            let slot = slot(values, Rule::AnyNan);
            let cells = limits(values);
            for (a, b) in cells.iter().flat_map(|a| cells.iter().map(move |b| (*a, *b))) {
                let alike = canonical(values, a) == canonical(values, b);
                assert_eq!(alike, agree(&slot, a, b), "{values:?} {a:#x} {b:#x}");
            }
        }
    }
}
