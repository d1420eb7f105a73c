//! Compares the results of a case on two drivers.

use crate::case::{Case, Rule, Slot};
use crate::values::Values;

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

/// The comparison of an outcome with the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every bit is the same.
    Equal,
    /// The differences are within the error that the ISA allows.
    WithinError,
    /// The first cell of each slot that is out of bounds.
    Differs(Vec<Cell>),
    /// The recorded driver executed the case, this one refuses it.
    Refused(String),
    /// The recorded driver refused the case, so nothing is compared.
    NotRecorded(String),
    /// One driver failed, or both failed differently; both outcomes in words.
    Failed(String),
}

/// A cell of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Index of its slot.
    pub slot: usize,
    /// Its row.
    pub row: usize,
    /// The recorded value.
    pub expected: u64,
    /// The computed value.
    pub found: u64,
    /// The number of cells of the slot that are out of bounds.
    pub wrong: usize,
}

/// Compares what a driver made of a case with what was recorded.
pub fn compare(case: &Case, recorded: &Outcome, found: &Outcome) -> Verdict {
    match (recorded, found) {
        (Outcome::Refused(reason), _) => Verdict::NotRecorded(reason.clone()),
        (_, Outcome::Refused(reason)) => Verdict::Refused(reason.clone()),
        (Outcome::Failed(expected), Outcome::Failed(found)) if expected == found => Verdict::Equal,
        (Outcome::Results(expected), Outcome::Results(found)) => compare_results(case, expected, found),
        (Outcome::Failed(expected), Outcome::Failed(found)) => {
            Verdict::Failed(format!("{found}, recorded was {expected}"))
        }
        (Outcome::Failed(expected), Outcome::Results(_)) => {
            Verdict::Failed(format!("it ran, recorded was {expected}"))
        }
        (Outcome::Results(_), Outcome::Failed(found)) => Verdict::Failed(found.clone()),
    }
}

/// Calls `visit` with slot, row and both values of all cells.
fn each_cell(case: &Case, expected: &[u8], found: &[u8], mut visit: impl FnMut(usize, usize, u64, u64)) {
    let value = |bytes: &[u8], at: usize, width: usize| {
        bytes
            .get(at..at + width)
            .unwrap_or(&[])
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    let (starts, _) = case.result_layout();
    for (index, (slot, start)) in case.results.iter().zip(starts).enumerate() {
        let width = slot.values.bytes();
        for row in 0..slot.rows {
            let at = start + row * width;
            visit(index, row, value(expected, at, width), value(found, at, width));
        }
    }
}

fn compare_results(case: &Case, expected: &[u8], found: &[u8]) -> Verdict {
    let mut equal = true;
    let mut wrong: Vec<Cell> = Vec::new();
    each_cell(case, expected, found, |slot, row, expected, found| {
        equal &= expected == found;
        if agree(&case.results[slot], expected, found) {
            return;
        }
        match wrong.last_mut() {
            Some(cell) if cell.slot == slot => cell.wrong += 1,
            _ => wrong.push(Cell { slot, row, expected, found, wrong: 1 }),
        }
    });
    match (wrong.is_empty(), equal) {
        (false, _) => Verdict::Differs(wrong),
        (true, true) => Verdict::Equal,
        (true, false) => Verdict::WithinError,
    }
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
    match slot.values {
        Values::F16x2 | Values::Bf16x2 => {
            let scalar = if slot.values == Values::F16x2 { Values::F16 } else { Values::Bf16 };
            near(expected & 0xffff, found & 0xffff, scalar) && near(expected >> 16, found >> 16, scalar)
        }
        scalar => near(expected, found, scalar),
    }
}

/// The number that a cell of a floating-point type holds.
pub fn number(values: Values, bits: u64) -> f64 {
    match values {
        Values::F64 => f64::from_bits(bits),
        Values::F16 => {
            let magnitude = match (bits >> 10 & 31, bits & 0x3ff) {
                (0, fraction) => fraction as f64 * 2f64.powi(-24),
                (31, 0) => f64::INFINITY,
                (31, _) => f64::NAN,
                (exponent, fraction) => (1024 + fraction) as f64 * 2f64.powi(exponent as i32 - 25),
            };
            if bits & 0x8000 != 0 { -magnitude } else { magnitude }
        }
        Values::Bf16 => f32::from_bits((bits as u32) << 16).into(),
        _ => f32::from_bits(bits as u32).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn halves_are_read_as_the_format_says() {
        for (bits, value) in [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 2f64.powi(-24)), (0x7bff, 65504.0)] {
            assert_eq!(number(Values::F16, bits), value);
        }
        assert!(number(Values::F16, 0x7c01).is_nan());
    }
}
