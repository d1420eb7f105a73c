//! Saturating sums of numbers from session files. A damaged file can contain any number.

/// Sums that saturate instead of overflowing.
pub trait SaturatingSum: Iterator<Item = u64> + Sized {
    /// The sum, at most [`u64::MAX`].
    fn saturating_sum(self) -> u64 {
        self.fold(0, u64::saturating_add)
    }
}

impl<I: Iterator<Item = u64>> SaturatingSum for I {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate() {
        assert_eq!([1, 2, 3].into_iter().saturating_sum(), 6);
        assert_eq!([u64::MAX, 1].into_iter().saturating_sum(), u64::MAX);
    }
}
