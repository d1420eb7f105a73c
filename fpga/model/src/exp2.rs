//! The exponential: a table of 1,024 powers of two, and a shift.

/// Fraction bits of a base-2 logarithm: the table has an entry for each fraction.
pub const LOG_BITS: u32 = 10;
/// Fraction bits of a weight: 2^0 is `1 << WEIGHT_BITS`.
pub const WEIGHT_BITS: u32 = 15;
/// From this shift on, every weight is 0.
const VANISHES: u32 = 17;

/// Entry `fraction` of the table: 2^(fraction / 1024) with 15 fraction bits, rounded to nearest.
///
/// Entries of 64-bit floating point are far enough from a tie that the rounding does not depend on
/// the last bit of `exp2`.
pub fn entry(fraction: usize) -> u16 {
    ((fraction as f64 / 1024.0).exp2() * f64::from(1u32 << WEIGHT_BITS)).round() as u16
}

/// The table.
#[derive(Clone, Debug)]
pub struct Table(Vec<u16>);

impl Default for Table {
    fn default() -> Self {
        Table((0..1 << LOG_BITS).map(entry).collect())
    }
}

impl Table {
    /// Its entries.
    pub fn entries(&self) -> &[u16] {
        &self.0
    }

    /// 2^(-below / 1024) with 15 fraction bits, rounded to nearest after the shift.
    pub fn power(&self, below: u32) -> u32 {
        let fraction = below.wrapping_neg() as usize & (self.0.len() - 1);
        let whole = below.div_ceil(1 << LOG_BITS).min(VANISHES);
        ((u32::from(self.0[fraction]) << 1 >> whole) + 1) >> 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_within_a_unit_of_the_exact_ones() {
        let table = Table::default();
        for below in 0..20_000 {
            let exact = (-f64::from(below) / 1024.0).exp2() * 32768.0;
            assert!((f64::from(table.power(below)) - exact).abs() <= 1.0, "2^(-{below}/1024)");
        }
        assert_eq!(table.power(0), 32768);
        assert_eq!(table.power(u32::MAX >> 8), 0);
    }

    #[test]
    fn entries_are_rounded_to_nearest_and_none_is_near_a_tie() {
        for fraction in 0..1024 {
            let exact = (fraction as f64 / 1024.0).exp2() * 32768.0;
            assert!((exact.fract() - 0.5).abs() > 1e-6, "entry {fraction} is {exact}");
            assert!((f64::from(entry(fraction)) - exact).abs() < 0.5, "entry {fraction}");
        }
    }
}
