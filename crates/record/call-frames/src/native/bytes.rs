//! Readers of unwinding tables, byte by byte, and of the stack, of which many words are copied at
//! once.

use crate::memory::{Memory, word_at};

/// Bytes of the stack that are copied at once.
const WINDOW_BYTES: usize = 4096;
/// The part of these bytes below the requested address: a frame's registers lie next to each other.
const BELOW: u64 = 256;

/// A stretch of the stack.
pub struct StackWindow {
    bytes: [u8; WINDOW_BYTES],
    start: u64,
    length: usize,
}

impl Default for StackWindow {
    fn default() -> StackWindow {
        StackWindow { bytes: [0; WINDOW_BYTES], start: 0, length: 0 }
    }
}

impl StackWindow {
    /// The word at `address`; `None` where there is no memory.
    pub fn word(&mut self, memory: &Memory, address: u64) -> Option<u64> {
        let inside = |window: &StackWindow| {
            let at = usize::try_from(address.checked_sub(window.start)?).ok()?;
            (at.checked_add(8)? <= window.length).then_some(at)
        };
        if inside(self).is_none() {
            self.start = address.saturating_sub(BELOW);
            self.length = WINDOW_BYTES;
            if !memory.read(self.start, &mut self.bytes) {
                self.start = address;
                self.length = memory.read_some(address, &mut self.bytes);
            }
        }
        inside(self).map(|at| word_at(&self.bytes, at))
    }
}

/// Bytes that are taken from the front.
#[derive(Clone, Copy)]
pub struct Bytes<'b>(pub &'b [u8]);

impl<'b> Bytes<'b> {
    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next `count` bytes, at most eight, as a number.
    pub fn number(&mut self, count: usize) -> Option<u64> {
        let taken = self.take(count)?;
        Some(taken.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// As [`Bytes::number`], with a sign.
    pub fn signed(&mut self, count: usize) -> Option<i64> {
        let unused = 64u32.checked_sub(8 * count as u32)?;
        self.number(count).map(|number| (number << unused) as i64 >> unused)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.number(1).map(|byte| byte as u8)
    }

    /// A number of variable length.
    pub fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A number of variable length with a sign.
    pub fn sleb(&mut self) -> Option<i64> {
        let mut value = 0i64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let unused = 64u32.saturating_sub(shift + 7);
                return Some(value << unused >> unused);
            }
        }
        None
    }

    /// A register's number.
    pub fn register(&mut self) -> Option<usize> {
        self.uleb().and_then(|number| usize::try_from(number).ok())
    }

    /// Bytes behind their count.
    pub fn block(&mut self) -> Option<&'b [u8]> {
        let count = usize::try_from(self.uleb()?).ok()?;
        self.take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_dwarf_writes_them() {
        assert_eq!(Bytes(&[0xe5, 0x8e, 0x26]).uleb(), Some(624_485));
        assert_eq!(Bytes(&[0xc0, 0xbb, 0x78]).sleb(), Some(-123_456));
        assert_eq!(Bytes(&[0x7f]).sleb(), Some(-1));
        assert_eq!(Bytes(&[0xff; 20]).uleb(), None);
        assert_eq!(Bytes(&[0x80]).uleb(), None);
        assert_eq!(Bytes(&[0xfe, 0xff]).signed(2), Some(-2));
        assert_eq!(Bytes(&[1, 2, 3]).block(), Some(&[2][..]));
        assert_eq!(Bytes(&[1]).number(2), None);
    }
}
