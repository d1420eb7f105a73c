//! Sums and products of what a session's files hold. A damaged file may hold any number, so they saturate.

/// Sums that saturate in place of overflowing.
pub trait SaturatingSum: Iterator<Item = u64> + Sized {
    /// The sum, at most [`u64::MAX`].
    fn saturating_sum(self) -> u64 {
        self.fold(0, u64::saturating_add)
    }
}

impl<I: Iterator<Item = u64>> SaturatingSum for I {}

/// The blocks of a grid, at most [`u64::MAX`]: three extents of 32 bits make 96.
pub(crate) fn blocks_of(grid: [u32; 3]) -> u64 {
    grid.into_iter().fold(1, |blocks: u64, extent| blocks.saturating_mul(extent.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_products_saturate() {
        assert_eq!([1, 2, 3].into_iter().saturating_sum(), 6);
        assert_eq!([u64::MAX, 1].into_iter().saturating_sum(), u64::MAX);
        assert_eq!((blocks_of([2, 3, 4]), blocks_of([u32::MAX, 0, u32::MAX])), (24, 0));
        assert_eq!(blocks_of([u32::MAX; 3]), u64::MAX);
    }
}
