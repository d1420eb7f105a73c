//! Polynomials over numbers that are known at a launch.
//!
//! They are exact: their values are integers, which do not wrap. Arithmetic whose coefficients
//! leave 128 bits gives nothing.

use std::collections::BTreeMap;

use launch_condition::{Product, Sum, Term};

/// A number that is known at a launch; the terms of [`launch_condition`], in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Known {
    /// An integer in the parameters.
    Parameter { offset: u32, bytes: u8, signed: bool },
    /// Threads along an axis of the launch that the program asks for.
    Threads(u8),
}

impl Known {
    fn term(self) -> Term {
        match self {
            Known::Parameter { offset, bytes, signed } => Term::Parameter { offset, bytes, signed },
            Known::Threads(axis) => Term::Threads(axis),
        }
    }

    /// The least and the greatest value that it can have.
    fn range(self) -> (i128, i128) {
        match self {
            Known::Threads(_) => (1, MOST_THREADS),
            Known::Parameter { bytes, signed, .. } => {
                let bits = 8 * u32::from(bytes);
                if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
            }
        }
    }

    /// Its value in a launch.
    fn value(self, at: &Values<'_>) -> Option<i128> {
        let Known::Parameter { offset, bytes, signed } = self else {
            let Known::Threads(axis) = self else { return None };
            return at.threads.get(usize::from(axis)).map(|&threads| threads.into());
        };
        let (start, bytes) = (offset as usize, usize::from(bytes));
        let from = at.parameters.get(start..start.checked_add(bytes)?)?;
        let mut wide = [0; 8];
        wide.get_mut(..bytes)?.copy_from_slice(from);
        let unused = 64 - 8 * bytes as u32;
        let value = u64::from_le_bytes(wide);
        Some(if signed { ((value << unused) as i64 >> unused).into() } else { value.into() })
    }
}

/// The most threads along an axis: a proof holds for no launch with more.
pub(crate) const MOST_THREADS: i128 = i32::MAX as i128;

/// Facts that are known at a launch.
pub(crate) struct Values<'a> {
    /// Threads along each axis of the launch that the program asks for.
    pub threads: [u64; 3],
    /// The kernel's parameters.
    pub parameters: &'a [u8],
}

/// A polynomial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Poly(BTreeMap<Vec<Known>, i128>);

impl Poly {
    /// A number.
    pub fn number(number: i128) -> Poly {
        Poly((number != 0).then(|| (Vec::new(), number)).into_iter().collect())
    }

    /// A number that is known at the launch.
    pub fn of(known: Known) -> Poly {
        Poly(BTreeMap::from([(vec![known], 1)]))
    }

    /// Threads along an axis.
    pub fn threads(axis: usize) -> Poly {
        Poly::of(Known::Threads(axis as u8))
    }

    /// The sum.
    pub fn plus(&self, other: &Poly) -> Option<Poly> {
        let mut sum = self.0.clone();
        for (factors, coefficient) in &other.0 {
            let entry = sum.entry(factors.clone()).or_insert(0);
            *entry = entry.checked_add(*coefficient)?;
        }
        sum.retain(|_, coefficient| *coefficient != 0);
        Some(Poly(sum))
    }

    /// The sum with a number.
    pub fn plus_number(&self, number: i128) -> Option<Poly> {
        self.plus(&Poly::number(number))
    }

    /// The difference.
    pub fn minus(&self, other: &Poly) -> Option<Poly> {
        self.plus(&other.times(&Poly::number(-1))?)
    }

    /// The product.
    pub fn times(&self, other: &Poly) -> Option<Poly> {
        let mut product = Poly::default();
        for (a, x) in &self.0 {
            for (b, y) in &other.0 {
                let mut factors: Vec<Known> = a.iter().chain(b).copied().collect();
                factors.sort_unstable();
                let term = Poly(BTreeMap::from([(factors, x.checked_mul(*y)?)]));
                product = product.plus(&term)?;
            }
        }
        Some(product)
    }

    /// The number, if it is one.
    pub fn constant(&self) -> Option<i128> {
        match self.0.len() {
            0 => Some(0),
            1 => self.0.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    /// Whether it is 0.
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// The number `q` for which this is `q * other`.
    pub fn multiple_of(&self, other: &Poly) -> Option<i128> {
        let (factors, by) = other.0.iter().next()?;
        let coefficient = self.0.get(factors).copied().unwrap_or(0);
        let quotient = (coefficient % by == 0).then_some(coefficient / by)?;
        (other.times(&Poly::number(quotient))? == *self).then_some(quotient)
    }

    /// The part that is a number, and the rest.
    pub fn split(&self) -> (i128, Poly) {
        let mut rest = self.clone();
        let number = rest.0.remove(&Vec::new()).unwrap_or(0);
        (number, rest)
    }

    /// The degree, then the number in front: small strides come before large ones.
    pub fn size(&self) -> (usize, i128) {
        let degree = self.0.keys().map(Vec::len).max().unwrap_or(0);
        let most = self.0.values().map(|coefficient| coefficient.abs()).max().unwrap_or(0);
        (degree, most)
    }

    /// The least and the greatest value in any launch; nothing if they leave 128 bits.
    pub fn range(&self) -> Option<(i128, i128)> {
        let (mut least, mut most) = (0i128, 0i128);
        for (factors, coefficient) in &self.0 {
            let (mut low, mut high) = (*coefficient, *coefficient);
            for known in factors {
                let (a, b) = known.range();
                let ends =
                    [low.checked_mul(a)?, low.checked_mul(b)?, high.checked_mul(a)?, high.checked_mul(b)?];
                (low, high) = (*ends.iter().min()?, *ends.iter().max()?);
            }
            (least, most) = (least.checked_add(low)?, most.checked_add(high)?);
        }
        Some((least, most))
    }

    /// The value in a launch.
    pub fn value(&self, at: &Values<'_>) -> Option<i128> {
        self.0.iter().try_fold(0i128, |sum, (factors, coefficient)| {
            let product = factors
                .iter()
                .try_fold(*coefficient, |product, known| product.checked_mul(known.value(at)?))?;
            sum.checked_add(product)
        })
    }

    /// The same for who evaluates it in 64 bits; nothing if a coefficient is too large.
    pub fn sum(&self) -> Option<Sum> {
        let product = |(factors, coefficient): (&Vec<Known>, &i128)| {
            let terms = factors.iter().map(|known| known.term()).collect();
            Some(Product { factor: i64::try_from(*coefficient).ok()?, terms })
        };
        self.0.iter().map(product).collect::<Option<Vec<_>>>().map(Sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: Known = Known::Parameter { offset: 4, bytes: 4, signed: true };

    fn n_plus(number: i128) -> Poly {
        Poly::of(N).plus_number(number).unwrap()
    }

    #[test]
    fn equal_polynomials_are_equal() {
        let square = Poly::of(N).times(&Poly::of(N)).unwrap();
        assert_eq!(n_plus(1).times(&n_plus(-1)), square.plus_number(-1));
        assert!(n_plus(3).minus(&n_plus(3)).unwrap().is_zero());
        let huge = Poly::number(i128::MAX);
        assert_eq!((huge.plus_number(1), huge.times(&huge)), (None, None));
    }

    #[test]
    fn multiples_are_whole_and_of_all_terms() {
        let double = n_plus(1).times(&Poly::number(6)).unwrap();
        assert_eq!(double.multiple_of(&n_plus(1)), Some(6));
        assert_eq!(double.multiple_of(&n_plus(2)), None);
        assert_eq!(n_plus(1).multiple_of(&double), None);
        assert_eq!(Poly::number(5).multiple_of(&Poly::default()), None);
    }

    #[test]
    fn values_lie_in_the_range() {
        let product = n_plus(2).times(&Poly::threads(1)).unwrap();
        let (least, most) = product.range().unwrap();
        for (n, threads) in [(i32::MIN, 1), (-7, 3), (i32::MAX, i32::MAX as u64)] {
            let parameters = [&[0; 4][..], &n.to_le_bytes()].concat();
            let at = Values { threads: [1, threads, 1], parameters: &parameters };
            let value = product.value(&at).unwrap();
            assert_eq!(value, (i128::from(n) + 2) * i128::from(threads));
            assert!(least <= value && value <= most);
        }
        assert_eq!(product.value(&Values { threads: [1; 3], parameters: &[0; 7] }), None, "n is cut off");
    }
}
