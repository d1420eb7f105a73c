//! Races in a block's shared memory: two threads access the same byte, at least one writes, and
//! nothing orders them.
//!
//! Of each byte the last write is kept and two reads: the last, and if possible one of another
//! warp. So a race may go unseen behind others, but what is reported is one. Not reported are two
//! atomic accesses, and two writes of the same value: which of them comes last makes no difference.

use crate::observe::happens_before::HappensBefore;

/// An access to a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The thread's clock; 0 for no access.
    pub(super) clock: u32,
    /// The instruction: function and step.
    pub(super) site: (u32, u32),
    pub(super) thread: u16,
    /// The value that was written.
    pub(super) value: u8,
    pub(super) atomic: bool,
    pub(super) write: bool,
}

#[derive(Clone, Copy, Default)]
struct Byte {
    write: Stamp,
    reads: [Stamp; 2],
}

/// The bytes of a block's shared memory.
pub(super) struct Races {
    bytes: Vec<Byte>,
}

impl Races {
    pub(super) fn new(bytes: u64) -> Self {
        Races { bytes: vec![Byte::default(); bytes as usize] }
    }

    /// Notes an access to the byte at `offset`, which exists; returns an earlier one with which it
    /// races.
    pub(super) fn access(&mut self, order: &HappensBefore, offset: u64, stamp: Stamp) -> Option<Stamp> {
        let byte = self.bytes.get_mut(offset as usize)?;
        let thread = stamp.thread.into();
        let races = |earlier: &Stamp| {
            let harmless = (earlier.atomic && stamp.atomic)
                || (earlier.write && stamp.write && earlier.value == stamp.value && !stamp.atomic);
            earlier.clock != 0 && !harmless && !order.precedes(earlier.thread.into(), earlier.clock, thread)
        };
        let written = Some(byte.write).filter(races);
        if !stamp.write {
            let [last, other] = byte.reads;
            let same_warp = last.thread / 32 == stamp.thread / 32;
            byte.reads =
                [stamp, if last.clock == 0 || (same_warp && other.clock != 0) { other } else { last }];
            return written;
        }
        let found = written.or_else(|| byte.reads.iter().copied().find(races));
        byte.write = stamp;
        byte.reads = Default::default();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(order: &HappensBefore, thread: u16, write: bool) -> Stamp {
        let clock = order.clock(thread.into());
        Stamp { clock, site: (0, 0), thread, value: thread as u8, atomic: false, write }
    }

    #[test]
    fn reads_do_not_race_with_each_other_and_writes_do_with_everything() {
        let (order, mut races) = (HappensBefore::new(128), Races::new(8));
        let mut access =
            |thread, write| races.access(&order, 3, stamp(&order, thread, write)).map(|s| s.thread);
        assert_eq!(access(1, false), None);
        assert_eq!(access(70, false), None);
        assert_eq!(access(71, false), None);
        // The last reader is the writer itself; the one of the other warp is still known.
        assert_eq!(access(71, true), Some(1));
        assert_eq!(access(71, false), None);
        assert_eq!(access(5, false), Some(71));
        assert_eq!(access(5, true), Some(71));
    }

    #[test]
    fn barriers_atomics_and_equal_values_are_no_races() {
        let (mut order, mut races) = (HappensBefore::new(64), Races::new(1));
        assert_eq!(races.access(&order, 0, stamp(&order, 0, true)), None);
        order.meet_all();
        assert_eq!(races.access(&order, 0, stamp(&order, 1, true)), None);
        let same = Stamp { value: 1, ..stamp(&order, 2, true) };
        assert_eq!(races.access(&order, 0, same), None);
        order.meet_all();
        for thread in 0..9 {
            let atomic = Stamp { atomic: true, ..stamp(&order, thread, true) };
            assert_eq!(races.access(&order, 0, atomic), None);
        }
        let plain = races.access(&order, 0, stamp(&order, 20, false));
        assert_eq!(plain.map(|earlier| earlier.thread), Some(8));
    }
}
