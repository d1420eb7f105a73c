//! The addresses that the lanes of a warp access, and the number of transactions for them.

use apex_counts::Space;
use ptx::analysis::Request;

use crate::memory::spaces::Spaces;
use crate::observe::probe::Moment;
use crate::operands::{AccessArgs, Reg, Space as StepSpace};
use crate::registers::lanes::{Lanes, WARP, each_lane};

/// The place of a lane's memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spot {
    /// A host address.
    Global(u64),
    /// An offset in the block's shared memory.
    Shared(u64),
    /// A thread of the block, and an offset in its local memory.
    Local(u32, u64),
    /// The kernel's parameters.
    Param,
}

impl Spot {
    /// The memory whose traffic this is.
    pub(super) fn space(self) -> Option<Space> {
        match self {
            Spot::Global(_) => Some(Space::Global),
            Spot::Shared(_) => Some(Space::Shared),
            Spot::Local(..) => Some(Space::Local),
            Spot::Param => None,
        }
    }

    /// Returns the spot `bytes` bytes further on.
    pub(super) fn further(self, bytes: u64) -> Spot {
        match self {
            Spot::Global(address) => Spot::Global(address.wrapping_add(bytes)),
            Spot::Shared(offset) => Spot::Shared(offset.wrapping_add(bytes)),
            Spot::Local(thread, offset) => Spot::Local(thread, offset.wrapping_add(bytes)),
            Spot::Param => Spot::Param,
        }
    }

    /// The address in its own space.
    pub(super) fn address(self) -> u64 {
        match self {
            Spot::Global(address) | Spot::Shared(address) | Spot::Local(_, address) => address,
            Spot::Param => 0,
        }
    }
}

/// The spots of the lanes that act; the others stand at the kernel's parameters.
pub(super) fn spots(moment: &Moment, args: &AccessArgs) -> [Spot; WARP] {
    spots_at(moment, args, &[0; WARP])
}

/// Returns the spots of the lanes that act, moved by `offsets`.
pub(super) fn spots_at(moment: &Moment, args: &AccessArgs, offsets: &[u64; WARP]) -> [Spot; WARP] {
    let mut spots = [Spot::Param; WARP];
    each_lane(moment.lanes.mask, |lane| {
        let address = address(moment.lanes, args, lane).wrapping_add(offsets[lane]);
        spots[lane] = spot(moment.spaces, moment.warp, lane, args.space, address);
    });
    spots
}

/// The spots at the generic addresses in a register.
pub(super) fn generic_spots(moment: &Moment, register: Reg) -> [Spot; WARP] {
    // SAFETY: the frame has the register, a long.
    let addresses = unsafe { moment.lanes.source::<u64>(register) };
    std::array::from_fn(|lane| spot(moment.spaces, moment.warp, lane, StepSpace::Generic, addresses[lane]))
}

/// The spot at a generic address.
pub(super) fn generic_spot(moment: &Moment, lane: usize, address: u64) -> Spot {
    spot(moment.spaces, moment.warp, lane, StepSpace::Generic, address)
}

/// The global addresses that an asynchronous copy reads.
pub(super) fn sources(moment: &Moment, args: &AccessArgs) -> [Spot; WARP] {
    // SAFETY: the frame has the registers of the step; the source address of a copy is a long.
    let from = unsafe { moment.lanes.source::<u64>(args.operands[0]) };
    from.map(Spot::Global)
}

/// The address in its space, before it is known to be good.
fn address(lanes: &Lanes, args: &AccessArgs, lane: usize) -> u64 {
    // SAFETY: the frame has the step's address register, of the class that the step says.
    unsafe {
        match args.narrow {
            true => lanes.source::<u32>(args.address)[lane].wrapping_add(args.offset as u32).into(),
            false => lanes.source::<u64>(args.address)[lane].wrapping_add(args.offset as u64),
        }
    }
}

fn spot(spaces: &Spaces, warp: u32, lane: usize, space: StepSpace, address: u64) -> Spot {
    match space {
        StepSpace::Global => Spot::Global(address),
        StepSpace::Shared => Spot::Shared(address),
        StepSpace::Local => Spot::Local(warp * WARP as u32 + lane as u32, address),
        StepSpace::Generic => {
            let inside = |start: u64, end: u64| (start..end).contains(&address).then(|| address - start);
            if let Some(offset) = inside(spaces.shared.start, spaces.shared.end) {
                Spot::Shared(offset)
            } else if let Some(offset) = inside(spaces.local.start, spaces.local.end) {
                Spot::Local((offset / spaces.local_bytes) as u32, offset % spaces.local_bytes)
            } else if inside(spaces.params.start, spaces.params.end).is_some() {
                Spot::Param
            } else {
                Spot::Global(address)
            }
        }
    }
}

/// Transactions of a request, and how many of them are excess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) transactions: u64,
    pub(super) excess: u64,
}

/// Returns the number of serialised operations of an atomic request: those at the address that most
/// lanes access.
pub(super) fn turns(spots: &[(usize, u64)]) -> u64 {
    let at = |address| spots.iter().filter(|&&(_, other)| other == address).count() as u64;
    spots.iter().map(|&(_, address)| at(address)).max().unwrap_or(0)
}

/// Returns the cost in a memory of the request of some lanes, each with its address.
pub(super) fn cost(space: Space, spots: &[(usize, u64)], bytes: u64) -> Cost {
    let mut addresses = [0; WARP];
    let mut active = 0;
    for &(lane, address) in spots {
        addresses[lane] = address;
        active |= 1 << lane;
    }
    let request = Request { addresses: &addresses, uniform: false, active, bytes };
    match space {
        Space::Global => {
            let transactions = request.sectors();
            Cost { transactions, excess: transactions.saturating_sub(request.least_sectors()) }
        }
        Space::Shared => {
            let wavefronts = request.wavefronts();
            Cost { transactions: wavefronts.count, excess: wavefronts.excessive }
        }
        Space::Local => Cost::default(),
    }
}
