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
    use apex_random::Random;

    fn bytes(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, value);
        out
    }

    fn signed_bytes(value: i64) -> Vec<u8> {
        let mut out = Vec::new();
        put_signed(&mut out, value);
        out
    }

    #[test]
    fn bytes_are_those_of_the_format() {
        // The example of the DWARF standard: 129 is 1 and 1 · 128.
        for (value, expected) in [
            (0, &[0][..]),
            (2, &[2]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (129, &[0x81, 1]),
            (12_857, &[0xb9, 0x64]),
        ] {
            assert_eq!(bytes(value), expected, "{value}");
        }
        let most = [[0xff; 9].as_slice(), &[1]].concat();
        assert_eq!(bytes(u64::MAX), most);
        // A sign is the lowest bit: 0, -1, 1, -2, ...
        for (value, number) in [(0, 0), (-1, 1), (1, 2), (-2, 3), (2, 4), (-65, 129), (i64::MIN, u64::MAX)] {
            assert_eq!(signed_bytes(value), bytes(number), "{value}");
        }
    }

    #[test]
    fn random_numbers_of_every_length_come_back() {
        let mut random = Random::new(128);
        for round in 0..10_000 {
            let value = random.bits() >> (round % 64);
            let length = (64 - value.leading_zeros()).div_ceil(7).max(1) as usize;
            let mut written = bytes(value);
            assert_eq!(written.len(), length, "{value}");
            written.push(7);
            let mut taker = Taker(&written);
            assert_eq!((taker.number(), taker.byte(), taker.byte()), (Some(value), Some(7), None));
            let signed = value.cast_signed().wrapping_mul(if round % 2 == 0 { 1 } else { -1 });
            assert_eq!(Taker(&signed_bytes(signed)).signed(), Some(signed));
            assert_eq!(Taker(&bytes(value)[..length - 1]).number(), None, "cut off");
        }
    }

    #[test]
    fn a_small_number_has_32_bits() {
        let small = |value| Taker(&bytes(value)).small();
        assert_eq!(small(5), Some(5));
        assert_eq!(small(u32::MAX.into()), Some(u32::MAX));
        for value in [1 << 32, (1 << 32) + 5, u64::MAX] {
            assert_eq!(small(value), None, "{value}");
        }
        assert_eq!(Taker(&[]).small(), None);
    }

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
        assert_eq!(Taker(&[0x80; 20]).number(), None);
        assert_eq!(Taker(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
    }
}
