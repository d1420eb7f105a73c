//! The matrix tile: exact products of INT8 matrices.

/// Most terms of a sum: (2^17 - 1) * 128 * 128 is below 2^31.
pub const MOST_TERMS: usize = (1 << 17) - 1;

/// One tile of a product: `a[k]` is column k of N rows, `b[k]` is row k of N columns. Result (i, j)
/// is at `i * size + j`.
///
/// # Panics
/// If there are more than [`MOST_TERMS`] terms, which the accumulators do not hold.
pub fn tile(size: usize, a: &[Vec<i8>], b: &[Vec<i8>]) -> Vec<i32> {
    assert!(a.len() == b.len() && a.len() <= MOST_TERMS, "{} and {} terms", a.len(), b.len());
    let mut sums = vec![0i32; size * size];
    for (left, right) in a.iter().zip(b) {
        for (row, sums) in sums.chunks_mut(size).enumerate() {
            for (sum, &right) in sums.iter_mut().zip(right) {
                *sum += i32::from(left[row]) * i32::from(right);
            }
        }
    }
    sums
}
