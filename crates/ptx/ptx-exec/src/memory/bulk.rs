//! `cp.async.bulk`: each lane copies a run of bytes of its own.
//!
//! A copy is done when it is issued, as every asynchronous copy is here; an mbarrier that it names
//! counts its bytes at once.

use crate::fault::FaultKind;
use crate::memory::access::AccessHandler;
use crate::memory::mbarrier;
use crate::memory::spaces::{AccessFault, Accessed, Spaces};
use crate::operands::{AccessArgs, Class};
use crate::registers::lanes::{Lanes, WARP, each_lane};

/// Bytes to which addresses and sizes are aligned.
const UNIT: u64 = 16;

/// Copies `operands[0]` bytes from the generic address `data[0]` to `address`, and counts them at
/// the mbarrier at the generic address `data[1]`, if there is one.
pub(crate) fn copy() -> AccessHandler {
    AccessHandler { run, regular: None, data: Class::Long, operands: [Class::Word; 4] }
}

/// The copy of a lane; addresses are generic.
#[derive(Clone, Copy)]
struct Copy {
    from: u64,
    to: u64,
    bytes: u64,
    mbarrier: Option<u64>,
}

/// # Safety
/// See [`crate::memory::access`].
unsafe fn run(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
    let mut targets = [0; WARP];
    let mut outcome = Ok(());
    // SAFETY: the caller's promise; a host address is the generic address.
    unsafe {
        spaces.locate(lanes, args, UNIT, true, &mut targets)?;
        let (sources, sizes) = (lanes.source::<u64>(args.data[0]), lanes.source::<u32>(args.operands[0]));
        let mbarriers = args.data[1].is_some().then(|| lanes.source::<u64>(args.data[1]));
        each_lane(lanes.mask, |lane| {
            let (from, to, bytes) = (sources[lane], targets[lane], sizes[lane].into());
            let copy = Copy { from, to, bytes, mbarrier: mbarriers.map(|mbarriers| mbarriers[lane]) };
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
        let Copy { from, to, bytes, mbarrier } = self;
        if bytes % UNIT != 0 {
            let text = format!("a bulk copy moves a multiple of {UNIT} bytes, not {bytes}");
            return Err((to, FaultKind::IllegalInstruction, text));
        }
        for (address, write) in [(from, false), (to, true)] {
            // The last unit as well as the whole: the former's message names the place.
            let ends = [address, address.wrapping_add(bytes.saturating_sub(UNIT))];
            for end in ends {
                spaces.generic(end, UNIT, write).map_err(|(kind, text)| (end, kind, text))?;
                if end % UNIT != 0 {
                    let text = format!("a bulk copy needs addresses aligned to {UNIT} bytes, not {end:#x}");
                    return Err((end, FaultKind::Misaligned, text));
                }
            }
            spaces.generic(address, bytes.max(UNIT), write).map_err(|(kind, text)| (address, kind, text))?;
        }
        // SAFETY: `generic` has approved both ranges.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
        match mbarrier {
            None => Ok(()),
            Some(address) => mbarrier::complete(spaces, address, bytes as u32)
                .map_err(|(kind, text)| (address, kind, text)),
        }
    }
}
