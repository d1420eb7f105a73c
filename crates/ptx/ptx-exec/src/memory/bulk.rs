//! `cp.async.bulk`, `cp.reduce.async.bulk` and `st.bulk`: each lane copies a run of bytes of its
//! own, or zeros.
//!
//! A copy is done when it is issued, as every asynchronous copy is here; an mbarrier that it names
//! counts its bytes at once.

use crate::arithmetic::reduction::{self, Combine};
use crate::fault::FaultKind;
use crate::memory::access::AccessHandler;
use crate::memory::spaces::{AccessFault, Accessed, Spaces};
use crate::memory::{mbarrier, reduce};
use crate::operands::{AccessArgs, Class};
use crate::registers::lanes::{Lanes, WARP, each_lane};

/// Bytes to which addresses and sizes are aligned.
const UNIT: u64 = 16;

/// The same of zeros.
const UNIT_OF_ZEROS: u64 = 8;

/// Copies `operands[0]` bytes from the generic address `data[0]` (if there is none: zeros) to
/// `address`, and counts them at the mbarrier at the generic address `data[1]`, if there is one. A
/// mask in `operands[1]` has the ranks of the blocks of the cluster to whose memory it copies, and
/// at whose mbarriers it counts; without it, there is one destination. `copied` is the number of an
/// operation on what lies there, or 0.
pub(crate) fn copy() -> AccessHandler {
    AccessHandler { run, regular: None, data: Class::Long, operands: [Class::Word; 4] }
}

/// The copy of a lane; addresses are generic.
#[derive(Clone, Copy)]
struct Copy {
    from: Option<u64>,
    to: u64,
    bytes: u64,
    mbarrier: Option<u64>,
    ranks: Option<u32>,
    combine: Option<(usize, Combine)>,
}

/// # Safety
/// See [`crate::memory::access`].
unsafe fn run(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
    let mut targets = [0; WARP];
    let mut outcome = Ok(());
    // SAFETY: the caller's promise; a host address is the generic address.
    unsafe {
        let longs = |at: usize| args.data[at].is_some().then(|| lanes.source::<u64>(args.data[at]));
        let (sources, mbarriers) = (longs(0), longs(1));
        let unit = if sources.is_some() { UNIT } else { UNIT_OF_ZEROS };
        spaces.locate(lanes, args, unit, true, &mut targets)?;
        let sizes = lanes.source::<u32>(args.operands[0]);
        let ranks = args.operands[1].is_some().then(|| lanes.source::<u32>(args.operands[1]));
        each_lane(lanes.mask, |lane| {
            let copy = Copy {
                from: sources.map(|sources| sources[lane]),
                to: targets[lane],
                bytes: sizes[lane].into(),
                mbarrier: mbarriers.map(|mbarriers| mbarriers[lane]),
                ranks: ranks.map(|ranks| ranks[lane]),
                combine: reduction::numbered(args.copied),
            };
            if outcome.is_ok() {
                outcome = copy
                    .execute(spaces)
                    .map_err(|(address, kind, text)| Box::new(AccessFault { lane, address, kind, text }));
            }
        });
    }
    outcome
}

impl Copy {
    fn execute(self, spaces: &mut Spaces) -> Result<(), (u64, FaultKind, String)> {
        let within = self.from.is_some_and(|from| spaces.is_shared(from)) && spaces.is_shared(self.to);
        if within && spaces.is_alone() {
            let text = "a GPU copies from shared to shared memory in launches of clusters alone".to_owned();
            return Err((self.to, FaultKind::IllegalInstruction, text));
        }
        for rank in spaces.ranks(self.ranks) {
            let own = |address| spaces.in_block(address, rank);
            let copy = Copy { to: own(self.to), mbarrier: self.mbarrier.map(own), ..self };
            copy.execute_once(spaces)?;
        }
        Ok(())
    }

    fn execute_once(self, spaces: &mut Spaces) -> Result<(), (u64, FaultKind, String)> {
        let Copy { from, to, bytes, mbarrier, .. } = self;
        let unit = if from.is_some() { UNIT } else { UNIT_OF_ZEROS };
        if bytes % unit != 0 {
            let text = format!("a bulk copy moves a multiple of {unit} bytes, not {bytes}");
            return Err((to, FaultKind::IllegalInstruction, text));
        }
        for (address, write) in from.map(|from| (from, false)).into_iter().chain([(to, true)]) {
            approve(spaces, (address, write), bytes, unit)?;
        }
        // SAFETY: `approve` has seen both ranges.
        unsafe {
            match (from, self.combine) {
                (Some(from), Some(combine)) => {
                    reduce::combine(combine, from as *const u8, to as *mut u8, bytes as usize);
                }
                (Some(from), None) => std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize),
                (None, _) => std::ptr::write_bytes(to as *mut u8, 0, bytes as usize),
            }
        }
        match mbarrier {
            None => Ok(()),
            Some(address) => mbarrier::complete(spaces, address, bytes as u32)
                .map_err(|(kind, text)| (address, kind, text)),
        }
    }
}

/// Whether a range of bytes may be read or written, and is aligned.
fn approve(
    spaces: &mut Spaces,
    (address, write): (u64, bool),
    bytes: u64,
    unit: u64,
) -> Result<(), (u64, FaultKind, String)> {
    // The last unit as well as the whole: the former's message names the place.
    for end in [address, address.wrapping_add(bytes.saturating_sub(unit))] {
        spaces.generic(end, unit, write).map_err(|(kind, text)| (end, kind, text))?;
        if end % unit != 0 {
            let text = format!("a bulk copy needs addresses aligned to {unit} bytes, not {end:#x}");
            return Err((end, FaultKind::Misaligned, text));
        }
    }
    let whole = spaces.generic(address, bytes.max(unit), write);
    whole.map(drop).map_err(|(kind, text)| (address, kind, text))
}
