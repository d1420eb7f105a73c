//! Variable-length integers (LEB128): small numbers take few bytes.
//!
//! Invariant: reading any bytes gives numbers or `None`, and never panics.

/// Appends a number.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a difference, which may be negative.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned());
}

/// Takes numbers from bytes.
pub struct Taker<'b>(pub &'b [u8]);

impl Taker<'_> {
    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The next number.
    pub fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// The next number, where it has to be one of 32 bits.
    pub fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// The next difference.
    pub fn signed(&mut self) -> Option<i64> {
        let raw = self.number()?;
        Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let mut out = Vec::new();
        numbers.iter().for_each(|&number| put(&mut out, number));
        numbers.iter().for_each(|&number| put_signed(&mut out, number.cast_signed()));
        let mut taker = Taker(&out);
        numbers.iter().for_each(|&number| assert_eq!(taker.number(), Some(number)));
        numbers.iter().for_each(|&number| assert_eq!(taker.signed(), Some(number.cast_signed())));
        assert_eq!(taker.number(), None);
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_none() {
        assert_eq!(Taker(&[0xff; 20]).number(), None);
        assert_eq!(Taker(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
    }
}
