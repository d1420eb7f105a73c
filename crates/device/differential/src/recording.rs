//! The recorded side of a comparison: an outcome as it was, or its results condensed.
//!
//! A result that has one right value need not be kept: a checksum of [`ROWS`] rows shows as surely
//! that none of them differs. So a *condensed* recording has checksums for columns whose rule is
//! [`Rule::Exact`] or [`Rule::AnyNan`], and values for those whose rule is [`Rule::Near`].
//!
//! The checksum is CRC-32 of the cells. It finds every difference that lies within 32 bits, so
//! every wrong cell of up to 4 bytes that is alone among its rows, and others but for one in 2^32.
//! NaNs that the rule of their column takes for equal are equal in [`Checksum::any_nan`], and
//! differ in [`Checksum::exact`].

use crate::case::{Case, Rule, Slot};
use crate::values::canonical;
use std::ops::Range;

/// Rows of a column that share a checksum; the last ones may be fewer. One warp in most programs.
pub const ROWS: usize = 32;

/// The outcome of a case on a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The result buffer.
    Results(Vec<u8>),
    /// The driver did not take the module, or does not execute an instruction of it; its words.
    Refused(String),
    /// The kernel failed; the error's name.
    Failed(String),
}

/// Record of a case on a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// The outcome, with every result.
    Whole(Outcome),
    /// The case ran; for each slot what is kept of its results.
    Condensed(Vec<Kept>),
}

/// Values or checksums of the results in one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Every cell.
    Values(Vec<u64>),
    /// One for each [`ROWS`] rows.
    Checksums(Vec<Checksum>),
}

/// Checksums of consecutive cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Checksum of the bits.
    pub exact: u32,
    /// Checksum with all NaNs alike; the same as `exact` where the rule is [`Rule::Exact`].
    pub any_nan: u32,
}

impl Checksum {
    /// The checksums of these cells of a slot.
    pub fn of(slot: &Slot, cells: &[u64]) -> Checksum {
        let width = slot.values.bytes();
        let checksum = |cell: &dyn Fn(u64) -> u64| {
            let bytes: Vec<u8> =
                cells.iter().flat_map(|bits| cell(*bits).to_le_bytes().into_iter().take(width)).collect();
            crc32fast::hash(&bytes)
        };
        let exact = checksum(&|bits| bits);
        match slot.rule {
            Rule::AnyNan => Checksum { exact, any_nan: checksum(&|bits| canonical(slot.values, bits)) },
            _ => Checksum { exact, any_nan: exact },
        }
    }
}

/// The rows that the checksum number `index` of a slot covers.
pub fn rows(slot: &Slot, index: usize) -> Range<usize> {
    index * ROWS..slot.rows.min((index + 1) * ROWS)
}

/// Number of checksums of a slot.
pub fn checksums(slot: &Slot) -> usize {
    slot.rows.div_ceil(ROWS)
}

impl Kept {
    /// Condenses the cells of a slot.
    pub fn of(slot: &Slot, cells: Vec<u64>) -> Kept {
        match slot.rule {
            Rule::Near { .. } => Kept::Values(cells),
            Rule::Exact | Rule::AnyNan => {
                Kept::Checksums(cells.chunks(ROWS).map(|cells| Checksum::of(slot, cells)).collect())
            }
        }
    }
}

impl Recorded {
    /// The recording without the values that checksums can stand for.
    pub fn condensed(self, case: &Case) -> Recorded {
        match self {
            Recorded::Whole(Outcome::Results(bytes)) => {
                let columns = case.result_columns(&bytes);
                Recorded::Condensed(
                    case.results.iter().zip(columns).map(|(slot, cells)| Kept::of(slot, cells)).collect(),
                )
            }
            other => other,
        }
    }

    /// Whether the case ran and gave results.
    pub fn has_results(&self) -> bool {
        matches!(self, Recorded::Whole(Outcome::Results(_)) | Recorded::Condensed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Difference, Verdict, compare};
    use crate::values::Values;

    const NEAR: Rule = Rule::Near { relative: 0.000_001, absolute: 0.0 };

    /// A case with a slot of each kind, the last rows of which do not fill a checksum.
    fn case() -> Case {
        let kinds = [
            (Values::B8, Rule::Exact),
            (Values::B16, Rule::Exact),
            (Values::B32, Rule::Exact),
            (Values::F64, Rule::Exact),
            (Values::F16, Rule::AnyNan),
            (Values::Bf16x2, Rule::AnyNan),
            (Values::F32, Rule::AnyNan),
            (Values::F64, Rule::AnyNan),
            (Values::F32, NEAR),
            (Values::F16x2, NEAR),
        ];
        let slot = |(values, rule)| Slot { name: format!("{values:?} {rule:?}"), values, rows: 72, rule };
        Case {
            name: "planted/0".into(),
            ptx: String::new(),
            grid: 1,
            block: 72,
            inputs: Vec::new(),
            results: kinds.map(slot).into(),
            given: None,
            images: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// A result buffer of random cells of the slots' types, among them NaNs.
    fn results(case: &Case) -> Vec<u8> {
        let (starts, end) = case.result_layout();
        let mut bytes = vec![0; end];
        let mut random = crate::random::Random::named("planted");
        for (slot, start) in case.results.iter().zip(starts) {
            let width = slot.values.bytes();
            for cell in bytes[start..].chunks_exact_mut(width).take(slot.rows) {
                cell.copy_from_slice(&slot.values.random(&mut random).to_le_bytes()[..width]);
            }
        }
        bytes
    }

    /// The slots that differ, or whether all bits are equal.
    fn summary(verdict: &Verdict) -> Result<Vec<usize>, bool> {
        match verdict {
            Verdict::Differs(differences) => Ok(differences.iter().map(Difference::slot).collect()),
            other => Err(*other == Verdict::Equal),
        }
    }

    /// Whether a difference names a row.
    fn names(difference: &Difference, row: usize) -> bool {
        match difference {
            Difference::Cell { row: found, wrong, .. } => *found == row && *wrong == 1,
            Difference::Rows { rows, wrong, .. } => rows.contains(&row) && *wrong == 1,
        }
    }

    #[test]
    fn one_wrong_bit_is_found_in_a_condensed_recording_as_in_a_whole_one() {
        let case = case();
        let mut bytes = results(&case);
        let whole = Recorded::Whole(Outcome::Results(bytes.clone()));
        let condensed = whole.clone().condensed(&case);
        assert_eq!(compare(&case, &condensed, &Outcome::Results(bytes.clone())), Verdict::Equal);
        let (starts, _) = case.result_layout();
        let (mut differing, mut within) = (0, 0);
        for (index, (slot, start)) in case.results.iter().zip(starts).enumerate() {
            let bits = 8 * slot.values.bytes();
            for bit in 0..slot.rows * bits {
                bytes[start + bit / 8] ^= 1 << (bit % 8);
                let found = Outcome::Results(bytes.clone());
                let verdicts = [&whole, &condensed].map(|recorded| compare(&case, recorded, &found));
                let [expected, verdict] = verdicts.each_ref().map(summary);
                assert_eq!(verdict, expected, "bit {bit} of {}", slot.name);
                if let [_, Verdict::Differs(differences)] = &verdicts {
                    assert_eq!(differences[0].slot(), index);
                    assert!(names(&differences[0], bit / bits), "bit {bit} of {}", slot.name);
                    differing += 1;
                } else {
                    assert_ne!(slot.rule, Rule::Exact, "bit {bit} of {}", slot.name);
                    within += 1;
                }
                bytes[start + bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert!(within > 0 && differing > 10 * within, "{differing} differ, {within} are within the rule");
    }

    #[test]
    fn a_condensed_recording_keeps_values_only_where_a_rule_allows_an_error() {
        let case = case();
        let recorded = Recorded::Whole(Outcome::Results(results(&case))).condensed(&case);
        let Recorded::Condensed(slots) = &recorded else { panic!("{recorded:?}") };
        for (slot, kept) in case.results.iter().zip(slots) {
            match kept {
                Kept::Values(cells) => assert!(slot.rule == NEAR && cells.len() == 72),
                Kept::Checksums(sums) => assert!(slot.rule != NEAR && sums.len() == checksums(slot)),
            }
        }
        assert_eq!(recorded.clone().condensed(&case), recorded);
        let refused = Recorded::Whole(Outcome::Refused("no".into()));
        assert_eq!(refused.clone().condensed(&case), refused);
    }

    #[test]
    fn a_failure_or_refusal_differs_from_condensed_results() {
        let case = case();
        let recorded = Recorded::Whole(Outcome::Results(results(&case))).condensed(&case);
        let verdict = |found| compare(&case, &recorded, &found);
        assert_eq!(verdict(Outcome::Failed("trap".into())), Verdict::Failed("trap".into()));
        assert_eq!(verdict(Outcome::Refused("no".into())), Verdict::Refused("no".into()));
    }
}
