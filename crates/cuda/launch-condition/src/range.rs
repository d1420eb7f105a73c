//! Byte ranges as sums of values that are known at a launch.

use crate::condition::{Product, Sum, Term};
use crate::given::Given;

/// Maximum number of threads on an axis for which the indices of a launch do not wrap.
const MOST_THREADS: i128 = i32::MAX as i128;

/// Bytes that an instruction may access, in launches of fewer than 2³¹ threads on each axis whose
/// parameters of the range are not negative: [`Range::at`] looks at both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub start: Sum,
    /// Length in bytes; 0 or less if nothing is accessed.
    pub bytes: Sum,
    /// Pairs in which the first value must not exceed the second; otherwise the range says nothing
    /// about the launch.
    pub at_most: Vec<(Sum, Sum)>,
}

impl Range {
    /// The addresses in a launch; `None` if the range says nothing about it.
    pub fn at(&self, given: &Given<'_>) -> Option<std::ops::Range<u64>> {
        for (less, more) in &self.at_most {
            if value(less, given)? > value(more, given)? {
                return None;
            }
        }
        let is_covered = |term: &Term| {
            let most = if matches!(term, Term::Threads(_)) { MOST_THREADS } else { i128::MAX };
            of_term(term, given).is_some_and(|value| (0..=most).contains(&value))
        };
        let mut terms = self.start.0.iter().chain(&self.bytes.0).flat_map(|product| &product.terms);
        if !terms.all(is_covered) {
            return None;
        }
        let start = value(&self.start, given)?;
        let end = start.checked_add(value(&self.bytes, given)?.max(0))?;
        // An address beyond 63 bits has wrapped, or is none.
        let is_address = |address: i128| (0..=i64::MAX.into()).contains(&address);
        (is_address(start) && is_address(end)).then_some(start as u64..end as u64)
    }
}

/// The value of a sum in a launch; `None` if it is too large, or a parameter does not exist.
fn value(sum: &Sum, given: &Given<'_>) -> Option<i128> {
    let product = |product: &Product| {
        let first = i128::from(product.factor);
        product.terms.iter().try_fold(first, |value, term| value.checked_mul(of_term(term, given)?))
    };
    sum.0.iter().try_fold(0i128, |total, one| total.checked_add(product(one)?))
}

fn of_term(term: &Term, given: &Given<'_>) -> Option<i128> {
    match *term {
        Term::Threads(axis) => {
            let axis = usize::from(axis);
            let grid = given.config.grid.to_array();
            let block = given.config.block.to_array();
            Some(i128::from(*grid.get(axis)?) * i128::from(*block.get(axis)?))
        }
        Term::Parameter { offset, bytes, signed } => {
            let value = given.word(offset, bytes).filter(|_| bytes > 0)?;
            let unused = 64 - 8 * u32::from(bytes);
            Some(match signed {
                true => i128::from((value << unused) as i64 >> unused),
                false => i128::from(value),
            })
        }
    }
}
