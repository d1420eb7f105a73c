//! The mbarrier object: eight bytes of shared memory that count arrivals and bytes, phase by phase.
//!
//! PTX does not define the layout. Here it is, from the lowest bit: 20 bits for pending arrivals of
//! this phase, 20 bits for expected arrivals of the next phases, 21 bits for transactions (expected
//! bytes minus received bytes), and the phase modulo 8. A phase is complete when no arrival and no
//! transaction is pending; the next phase begins at once. `mbarrier.arrive` returns the object as
//! it was before the arrival.
//!
//! A block runs on one thread and its lanes act one after the other, so the object needs no
//! atomics. Undefined operations (arrivals at an uninitialised object, more arrivals than are
//! pending) are faults.

use crate::fault::FaultKind;
use crate::memory::access::AccessHandler;
use crate::memory::spaces::{AccessFault, Accessed, Spaces};
use crate::operands::{AccessArgs, Class};
use crate::registers::lanes::{Lanes, WARP, each_lane};

/// Most arrivals of a phase: 2^20 - 1, as the ISA says.
const MOST_ARRIVALS: u32 = (1 << 20) - 1;

/// Most bytes that may be out, either way: 2^20 - 1, as the ISA says.
const MOST_TRANSACTIONS: i64 = (1 << 20) - 1;

/// Bytes of the object, and its alignment.
const BYTES: u64 = 8;

/// An mbarrier object, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mbarrier {
    pending: u32,
    expected: u32,
    transactions: i64,
    phase: u8,
}

/// The new state of an object; the error is a sentence.
type Changed = Result<Mbarrier, String>;

impl Mbarrier {
    fn unpack(bits: u64) -> Mbarrier {
        Mbarrier {
            pending: bits as u32 & MOST_ARRIVALS,
            expected: (bits >> 20) as u32 & MOST_ARRIVALS,
            transactions: (bits << 3) as i64 >> 43,
            phase: (bits >> 61) as u8,
        }
    }

    fn pack(self) -> u64 {
        let transactions = self.transactions as u64 & 0x1f_ffff;
        u64::from(self.pending)
            | u64::from(self.expected) << 20
            | transactions << 40
            | u64::from(self.phase) << 61
    }

    fn new(count: u32) -> Changed {
        if !(1..=MOST_ARRIVALS).contains(&count) {
            return Err(format!("an mbarrier expects 1 to {MOST_ARRIVALS} arrivals, not {count}"));
        }
        Ok(Mbarrier { pending: count, expected: count, transactions: 0, phase: 0 })
    }

    /// `count` threads arrive; those that drop out are not expected in later phases.
    fn arrive(self, count: u32, drop: bool) -> Changed {
        let Some(pending) = self.pending.checked_sub(count) else {
            return Err(format!(
                "{count} threads arrive at an mbarrier that waits for {} more",
                self.pending
            ));
        };
        let expected = if drop { self.expected.saturating_sub(count) } else { self.expected };
        Ok(Mbarrier { pending, expected, ..self }.advanced())
    }

    /// `bytes` more are out, or fewer.
    fn transact(self, bytes: i64) -> Changed {
        let transactions = self.transactions + bytes;
        if transactions.abs() > MOST_TRANSACTIONS {
            return Err(format!("an mbarrier counts up to {MOST_TRANSACTIONS} bytes, not {transactions}"));
        }
        Ok(Mbarrier { transactions, ..self })
    }

    fn advanced(self) -> Mbarrier {
        if self.pending != 0 || self.transactions != 0 {
            return self;
        }
        Mbarrier { pending: self.expected, phase: (self.phase + 1) % 8, ..self }
    }
}

/// The arrivals that were pending in a state, for `mbarrier.pending_count`.
pub(crate) fn pending(state: u64) -> u32 {
    Mbarrier::unpack(state).pending
}

/// `mbarrier.init`: the count is `operands[0]`.
pub(crate) fn init() -> AccessHandler {
    handler(initialise, Class::Long, [Class::Word; 2])
}

/// `mbarrier.inval`. Takes any word as `operands[0]`.
pub(crate) fn invalidate() -> AccessHandler {
    handler(forget, Class::Long, [Class::Word; 2])
}

/// `mbarrier.arrive`: `operands[0]` arrive, `operands[1]` bytes are expected before; the state goes
/// to `data[0]`.
pub(crate) fn arrive() -> AccessHandler {
    handler(arrive_all::<false>, Class::Long, [Class::Word; 2])
}

/// `mbarrier.arrive_drop`, as [`arrive`].
pub(crate) fn arrive_drop() -> AccessHandler {
    handler(arrive_all::<true>, Class::Long, [Class::Word; 2])
}

/// `mbarrier.expect_tx`: `operands[0]` bytes.
pub(crate) fn expect_bytes() -> AccessHandler {
    handler(transact::<1>, Class::Long, [Class::Word; 2])
}

/// `mbarrier.complete_tx`: `operands[0]` bytes.
pub(crate) fn complete_bytes() -> AccessHandler {
    handler(transact::<-1>, Class::Long, [Class::Word; 2])
}

/// `mbarrier.test_wait` and `.try_wait`: whether the phase of the state `operands[0]` is over, to
/// predicate `data[0]`.
pub(crate) fn test() -> AccessHandler {
    handler(test_state, Class::Predicate, [Class::Long; 2])
}

/// The same for the phase whose parity is `operands[0]`.
pub(crate) fn test_parity() -> AccessHandler {
    handler(test_phase_parity, Class::Predicate, [Class::Word; 2])
}

fn handler(run: crate::memory::access::RunAccess, data: Class, [first, second]: [Class; 2]) -> AccessHandler {
    AccessHandler { run, regular: None, data, operands: [first, second, first, second] }
}

fn fault(lane: usize, address: u64, text: String) -> Box<AccessFault> {
    Box::new(AccessFault { lane, address, kind: FaultKind::IllegalInstruction, text })
}

/// Shows each lane its object, and stores what it makes of it.
///
/// # Safety
/// See [`crate::memory::access`].
unsafe fn each_object(
    lanes: &Lanes,
    spaces: &mut Spaces,
    args: &AccessArgs,
    mut change: impl FnMut(usize, u64) -> Result<u64, String>,
) -> Accessed {
    let mut addresses = [0; WARP];
    let mut outcome = Ok(());
    // SAFETY: the caller's promise; the objects are accessed after `locate` has approved them.
    unsafe {
        spaces.locate(lanes, args, BYTES, true, &mut addresses)?;
        each_lane(lanes.mask, |lane| {
            if outcome.is_ok() {
                outcome = change_object(spaces, addresses[lane], |bits| change(lane, bits))
                    .map_err(|text| fault(lane, addresses[lane], text));
            }
        });
    }
    outcome
}

/// # Safety
/// `address` may be read and written, and is aligned.
unsafe fn change_object(
    spaces: &Spaces,
    address: u64,
    change: impl FnOnce(u64) -> Result<u64, String>,
) -> Result<(), String> {
    if !spaces.is_shared(address) {
        return Err("an mbarrier has to lie in shared memory".to_owned());
    }
    let object = address as *mut u64;
    // SAFETY: the caller's promise.
    unsafe { object.write(change(object.read())?) };
    Ok(())
}

/// The object as it is, if it was initialised.
fn known(bits: u64) -> Changed {
    match Mbarrier::unpack(bits) {
        Mbarrier { pending: 0, expected: 0, .. } => {
            Err("this mbarrier is not initialised, or all of its threads have dropped out".to_owned())
        }
        object => Ok(object),
    }
}

/// `bytes` of a copy have come: counts them at the object at a generic address.
pub(crate) fn complete(spaces: &mut Spaces, address: u64, bytes: u32) -> Result<(), (FaultKind, String)> {
    let illegal = |text| (FaultKind::IllegalInstruction, text);
    if address % BYTES != 0 {
        return Err((FaultKind::Misaligned, format!("misaligned mbarrier at {address:#x}")));
    }
    spaces.generic(address, BYTES, true)?;
    let count = |bits| Ok(known(bits)?.transact(-i64::from(bytes))?.advanced().pack());
    // SAFETY: `generic` has approved the address, which is aligned.
    unsafe { change_object(spaces, address, count).map_err(illegal) }
}

/// # Safety
/// See [`crate::memory::access`].
unsafe fn initialise(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
    // SAFETY: the caller's promise.
    unsafe {
        let counts = lanes.source::<u32>(args.operands[0]);
        each_object(lanes, spaces, args, |lane, _| Ok(Mbarrier::new(counts[lane])?.pack()))
    }
}

/// # Safety
/// See [`crate::memory::access`].
unsafe fn forget(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
    // SAFETY: the caller's promise.
    unsafe { each_object(lanes, spaces, args, |_, _| Ok(0)) }
}

/// # Safety
/// See [`crate::memory::access`].
unsafe fn arrive_all<const DROP: bool>(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
    let mut states = [0; WARP];
    // SAFETY: the caller's promise.
    unsafe {
        let counts = lanes.source::<u32>(args.operands[0]);
        let bytes = args.operands[1].is_some().then(|| lanes.source::<u32>(args.operands[1]));
        each_object(lanes, spaces, args, |lane, bits| {
            states[lane] = bits;
            let expected = bytes.map_or(0, |bytes| i64::from(bytes[lane]));
            Ok(known(bits)?.transact(expected)?.arrive(counts[lane], DROP)?.pack())
        })?;
        if args.data[0].is_some() {
            lanes.write(args.data[0], &states);
        }
    }
    Ok(())
}

/// # Safety
/// See [`crate::memory::access`].
unsafe fn transact<const SIGN: i64>(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = lanes.source::<u32>(args.operands[0]);
        each_object(lanes, spaces, args, |lane, bits| {
            let object = known(bits)?.transact(SIGN * i64::from(bytes[lane]))?;
            Ok(if SIGN < 0 { object.advanced() } else { object }.pack())
        })
    }
}

/// # Safety
/// See [`crate::memory::access`].
unsafe fn test_state(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
    let mut over = 0u32;
    // SAFETY: the caller's promise.
    unsafe {
        let states = lanes.source::<u64>(args.operands[0]);
        each_object(lanes, spaces, args, |lane, bits| {
            let waited_for = Mbarrier::unpack(states[lane]).phase;
            over |= u32::from(known(bits)?.phase != waited_for) << lane;
            Ok(bits)
        })?;
        if args.data[0].is_some() {
            lanes.write_predicate(args.data[0], over);
        }
    }
    Ok(())
}

/// # Safety
/// See [`crate::memory::access`].
unsafe fn test_phase_parity(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
    let mut over = 0u32;
    // SAFETY: the caller's promise.
    unsafe {
        let parities = lanes.source::<u32>(args.operands[0]);
        each_object(lanes, spaces, args, |lane, bits| {
            over |= u32::from(u32::from(known(bits)?.phase) & 1 != parities[lane] & 1) << lane;
            Ok(bits)
        })?;
        if args.data[0].is_some() {
            lanes.write_predicate(args.data[0], over);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_survive_packing() {
        for transactions in [-MOST_TRANSACTIONS, -1, 0, 1, MOST_TRANSACTIONS] {
            for phase in [0, 1, 7] {
                let object = Mbarrier { pending: 77, expected: MOST_ARRIVALS, transactions, phase };
                assert_eq!(Mbarrier::unpack(object.pack()), object);
            }
        }
    }

    #[test]
    fn phases_end_when_all_have_arrived_and_all_bytes_have_come() -> Result<(), String> {
        let object = Mbarrier::new(3)?.arrive(2, false)?;
        assert_eq!((object.pending, object.phase), (1, 0));
        let object = object.transact(64)?.arrive(1, false)?;
        assert_eq!((object.pending, object.phase, object.transactions), (0, 0, 64));
        let object = object.transact(-64)?.advanced();
        assert_eq!((object.pending, object.phase, object.transactions), (3, 1, 0));
        // One drops out: from the next phase on there are two.
        let object = object.arrive(1, true)?.arrive(2, false)?;
        assert_eq!((object.pending, object.phase), (2, 2));
        Ok(())
    }

    #[test]
    fn what_is_undefined_is_refused() -> Result<(), String> {
        assert!(Mbarrier::new(0).is_err());
        assert!(Mbarrier::new(MOST_ARRIVALS + 1).is_err());
        assert!(Mbarrier::new(1)?.arrive(2, false).is_err());
        assert!(Mbarrier::new(1)?.transact(MOST_TRANSACTIONS + 1).is_err());
        assert!(known(0).is_err());
        Ok(())
    }
}
