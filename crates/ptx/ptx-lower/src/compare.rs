//! Decodes comparisons.

use ptx::ScalarType;
use ptx::instruction::{Comparison, Flag, Opcode, Operation};

use crate::{Meaning, Modifiers, Op};

/// Decodes `setp` and `set`.
pub(crate) fn decode(operation: &mut Operation) -> Option<Meaning> {
    let relation = operation.comparison.take()?;
    let modifiers = Modifiers { flushes: operation.take(Flag::FlushToZero), ..Modifiers::default() };
    let logic = operation.logic.take();
    let truth = match operation.opcode {
        Some(Opcode::Setp) => ScalarType::Pred,
        _ => operation.take_type()?,
    };
    Some(Meaning { op: Op::Compare { relation, logic, truth }, ty: operation.take_type()?, modifiers })
}

/// Whether a relation holds of two numbers; one that is not ordered is a NaN.
#[inline(always)]
#[expect(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::double_comparisons,
    reason = "numbers that are not ordered have neither a relation nor its opposite"
)]
pub fn holds<T: PartialOrd>(relation: Comparison, a: T, b: T) -> bool {
    match relation {
        Comparison::Equal => a == b,
        Comparison::NotEqual => a < b || a > b,
        Comparison::Less => a < b,
        Comparison::LessEqual => a <= b,
        Comparison::Greater => a > b,
        Comparison::GreaterEqual => a >= b,
        Comparison::Number => a <= b || a > b,
        Comparison::Nan => !(a <= b || a > b),
        Comparison::UnorderedEqual => !(a < b || a > b),
        Comparison::UnorderedNotEqual => a != b,
        Comparison::UnorderedLess => !(a >= b),
        Comparison::UnorderedLessEqual => !(a > b),
        Comparison::UnorderedGreater => !(a <= b),
        Comparison::UnorderedGreaterEqual => !(a < b),
    }
}

/// The relation that holds of `(b, a)` where this one holds of `(a, b)`.
pub fn turned(relation: Comparison) -> Comparison {
    use Comparison::*;
    match relation {
        Less => Greater,
        LessEqual => GreaterEqual,
        Greater => Less,
        GreaterEqual => LessEqual,
        UnorderedLess => UnorderedGreater,
        UnorderedLessEqual => UnorderedGreaterEqual,
        UnorderedGreater => UnorderedLess,
        UnorderedGreaterEqual => UnorderedLessEqual,
        symmetric => symmetric,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_hold_of_numbers_as_their_names_say() {
        let all =
            ["eq", "ne", "lt", "le", "gt", "ge", "num", "nan", "equ", "neu", "ltu", "leu", "gtu", "geu"];
        let holding = |a: f32, b: f32| -> Vec<&str> {
            let relation = |name: &str| Comparison::from_word(name).unwrap();
            let found: Vec<&str> = all.into_iter().filter(|name| holds(relation(name), a, b)).collect();
            let turned: Vec<&str> =
                all.into_iter().filter(|name| holds(turned(relation(name)), b, a)).collect();
            assert_eq!(found, turned);
            found
        };
        assert_eq!(holding(1.0, 2.0), ["ne", "lt", "le", "num", "neu", "ltu", "leu"]);
        assert_eq!(holding(2.0, 1.0), ["ne", "gt", "ge", "num", "neu", "gtu", "geu"]);
        assert_eq!(holding(1.0, 1.0), ["eq", "le", "ge", "num", "equ", "leu", "geu"]);
        assert_eq!(holding(f32::NAN, 1.0), ["nan", "equ", "neu", "ltu", "leu", "gtu", "geu"]);
    }
}
