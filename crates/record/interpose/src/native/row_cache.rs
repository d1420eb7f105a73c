//! A cache of unwinding rows by address. If a stack is read again, no unwinding table has to be
//! read.
//!
//! Any thread reads and writes at any time, also in a signal handler, and nothing takes a lock. An
//! entry is a few words, the last of which is a digest of the others: an entry that two threads
//! write at the same time, or that is read during a write, has a wrong digest and counts as absent.
//! The table never grows. An address has one place, and the last address written there keeps it.
//!
//! Entries of an unloaded module do no harm: the module is part of the digest, and
//! [`super::Unwinder`] checks every row before it uses it.

use crate::tables::{Zeroable, spread, zeroed};
use apex_call_frames::native::{Cfa, Loaded, R12, RBP, RBX, REGISTERS, RIP, Row, Rule};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Addresses that are known at a time. A stack has at most 64.
const ENTRIES: usize = 1 << 12;
/// Words of a row: where the frame is, and the rules of the registers that functions save.
const WORDS: usize = 3;
/// The registers that functions save, by the System V ABI; [`RIP`] is the last of them.
const SAVED: [usize; 7] = [RBX, RBP, R12, R12 + 1, R12 + 2, R12 + 3, RIP];
/// Rules that are no offset. Offsets are multiples of eight.
const SAME: u16 = 1;
const UNDEFINED: u16 = 2;

/// Bytes of the table.
pub const BYTES: usize = ENTRIES * size_of::<Entry>();

#[derive(Default)]
struct Entry {
    row: [AtomicU64; WORDS],
    digest: AtomicU64,
}

// SAFETY: atomics, for which zeros are values. (They are no entry: no digest is 0.)
unsafe impl Zeroable for Entry {}

/// See the [module](self).
pub struct RowCache(Option<Box<[Entry]>>);

impl RowCache {
    /// An empty table. Without memory for it nothing is known.
    pub fn new() -> RowCache {
        RowCache(zeroed(ENTRIES))
    }

    /// The row of `address` in `module`, if it is known.
    pub fn find(&self, module: &Loaded, address: u64) -> Option<Row<'static>> {
        let entry = self.entry(address)?;
        let words = entry.row.each_ref().map(|word| word.load(Relaxed));
        (entry.digest.load(Relaxed) == digest(module, address, words)).then(|| unpacked(words))
    }

    /// Keeps a row, if it is one of those that compilers write for nearly all functions.
    pub fn keep(&self, module: &Loaded, address: u64, row: &Row<'_>) {
        if let Some(entry) = self.entry(address)
            && let Some(words) = packed(row)
        {
            entry.row.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
            entry.digest.store(digest(module, address, words), Relaxed);
        }
    }

    fn entry(&self, address: u64) -> Option<&Entry> {
        self.0.as_ref().map(|entries| &entries[spread(address) as usize % ENTRIES])
    }
}

/// Never 0.
fn digest(module: &Loaded, address: u64, row: [u64; WORDS]) -> u64 {
    let words = module.words().into_iter().chain([address]).chain(row);
    words.fold(0_u64, |digest, word| spread(digest.rotate_left(17) ^ word)).max(1)
}

/// A row whose frame is at an offset from a register, and whose registers are where they were or
/// on the stack, in words: the register, whether a signal led here and the offset; the rules.
fn packed(row: &Row<'_>) -> Option<[u64; WORDS]> {
    let Cfa::Register(register, offset) = row.cfa else { return None };
    let offset = i32::try_from(offset).ok()? as u32;
    let head = u64::from(u8::try_from(register).ok()?) | u64::from(row.is_of_signal) << 8;
    let mut rules = [0_u64; 2];
    for (register, rule) in row.rules.iter().enumerate() {
        let code = match *rule {
            Rule::Same => SAME,
            Rule::Undefined => UNDEFINED,
            Rule::At(offset) if offset % 8 == 0 => i16::try_from(offset).ok()? as u16,
            _ => return None,
        };
        match SAVED.iter().position(|&saved| saved == register) {
            Some(at) => rules[at / 4] |= u64::from(code) << (16 * (at % 4)),
            None if code == SAME => {}
            None => return None,
        }
    }
    Some([head | u64::from(offset) << 32, rules[0], rules[1]])
}

fn unpacked([head, rules @ ..]: [u64; WORDS]) -> Row<'static> {
    let mut row = Row {
        cfa: Cfa::Register(usize::from(head as u8), i64::from((head >> 32) as i32)),
        rules: [Rule::Same; REGISTERS],
        is_of_signal: head >> 8 & 1 != 0,
    };
    for (at, register) in SAVED.into_iter().enumerate() {
        row.rules[register] = match (rules[at / 4] >> (16 * (at % 4))) as u16 {
            SAME => Rule::Same,
            UNDEFINED => Rule::Undefined,
            offset => Rule::At(i64::from(offset as i16)),
        };
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cfa: Cfa<'static>, rules: &[(usize, Rule<'static>)]) -> Row<'static> {
        let mut row = Row { cfa, rules: [Rule::Same; REGISTERS], is_of_signal: false };
        rules.iter().for_each(|&(register, rule)| row.rules[register] = rule);
        row
    }

    #[test]
    fn what_is_known_is_what_was_kept() {
        let (known, module) = (RowCache::new(), Loaded::default());
        let offsets = [-8, -16, -32_768, 0, 32_760, -24, -8];
        let saved: Vec<_> = SAVED.into_iter().zip(offsets.map(Rule::At)).collect();
        let rows = [
            row(Cfa::Register(7, 8), &saved),
            row(Cfa::Register(6, -1_000_000), &[(RIP, Rule::Undefined)]),
            Row { is_of_signal: true, ..row(Cfa::Register(7, i32::MAX.into()), &saved[3..]) },
        ];
        for (address, row) in (4096..).zip(&rows) {
            assert!(known.find(&module, address).is_none());
            known.keep(&module, address, row);
            let found = known.find(&module, address).expect("a row");
            assert_eq!(format!("{found:?}"), format!("{row:?}"));
            let mut other = module;
            other.base = 1;
            assert!(known.find(&other, address).is_none(), "another module was loaded there");
            assert!(known.find(&module, address + ENTRIES as u64).is_none());
        }
    }

    #[test]
    fn rows_that_do_not_fit_are_not_kept() {
        let (known, module) = (RowCache::new(), Loaded::default());
        let frame = Cfa::Register(7, 8);
        for row in [
            row(Cfa::Unknown, &[]),
            row(Cfa::Expression(&[0x31]), &[]),
            row(Cfa::Register(7, 1 << 40), &[]),
            row(frame, &[(RBX, Rule::At(-4))]),
            row(frame, &[(RBX, Rule::At(-65_536))]),
            row(frame, &[(RBX, Rule::Register(RBP))]),
            row(frame, &[(0, Rule::At(-8))]),
            row(frame, &[(RIP, Rule::ValueExpression(&[0x31]))]),
        ] {
            known.keep(&module, 16, &row);
            assert!(known.find(&module, 16).is_none(), "{row:?}");
        }
    }

    #[test]
    fn an_entry_that_was_written_in_part_is_none() {
        let (known, module) = (RowCache::new(), Loaded::default());
        known.keep(&module, 16, &row(Cfa::Register(7, 16), &[(RIP, Rule::At(-8))]));
        for word in 0..WORDS {
            let entry = &known.entry(16).expect("a table").row[word];
            let kept = entry.fetch_xor(1 << 9, Relaxed);
            assert!(known.find(&module, 16).is_none());
            entry.store(kept, Relaxed);
            assert!(known.find(&module, 16).is_some());
        }
    }
}
