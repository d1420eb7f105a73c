//! Where the lanes of a warp access memory, and how many transactions that takes.

use apex_trace::counts::Space;

use crate::memory::spaces::Spaces;
use crate::observe::probe::Moment;
use crate::operands::{AccessArgs, Reg, Space as StepSpace};
use crate::registers::lanes::{Lanes, WARP, each_lane};

/// Bytes of a sector of global memory.
const SECTOR: u64 = 32;

/// Banks of shared memory, each 4 bytes wide.
const BANKS: u32 = 32;

/// Where a lane accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// The spot so many bytes further on.
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

/// The same, so many bytes further on.
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

/// Sectors that lanes touch, at these addresses with `bytes` bytes each.
pub(super) fn sectors(addresses: &[u64], bytes: u64) -> Cost {
    let last = |address: u64| (address + bytes.max(1) - 1) / SECTOR;
    let mut touched: Vec<u64> =
        addresses.iter().flat_map(|&address| address / SECTOR..=last(address)).collect();
    touched.sort_unstable();
    touched.dedup();
    let (actual, least) = (touched.len() as u64, (addresses.len() as u64 * bytes).div_ceil(SECTOR));
    Cost { transactions: actual, excess: actual.saturating_sub(least) }
}

/// Wavefronts that lanes take, at these offsets (in the order of lanes) with `bytes` bytes each.
///
/// In a wavefront each bank gives one word of 4 bytes, to all lanes that want that one. Accesses of 8 bytes are made
/// for half a warp at a time, those of 16 for a quarter.
pub(super) fn wavefronts(offsets: &[(usize, u64)], bytes: u64) -> Cost {
    let words = (bytes / 4).max(1);
    let lanes_at_once = (WARP as u64 / words).max(1) as usize;
    let (mut cost, mut group) = (Cost::default(), Vec::new());
    for part in 0..WARP.div_ceil(lanes_at_once) {
        group.clear();
        let members = offsets.iter().filter(|(lane, _)| lane / lanes_at_once == part);
        group.extend(members.flat_map(|&(_, offset)| (0..words).map(move |word| (offset / 4 + word) as u32)));
        if group.is_empty() {
            continue;
        }
        group.sort_unstable();
        group.dedup();
        let mut wanted = [0u64; BANKS as usize];
        group.iter().for_each(|word| wanted[(word % BANKS) as usize] += 1);
        let wavefronts = wanted.into_iter().max().unwrap_or(0);
        cost.transactions += wavefronts;
        cost.excess += wavefronts - 1;
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strided(stride: u64) -> Vec<(usize, u64)> {
        (0..WARP).map(|lane| (lane, lane as u64 * stride)).collect()
    }

    fn addresses(stride: u64) -> Vec<u64> {
        strided(stride).into_iter().map(|(_, offset)| 4096 + offset).collect()
    }

    #[test]
    fn sectors_of_strided_accesses() {
        assert_eq!(sectors(&addresses(4), 4), Cost { transactions: 4, excess: 0 });
        assert_eq!(sectors(&addresses(8), 4), Cost { transactions: 8, excess: 4 });
        assert_eq!(sectors(&addresses(128), 4), Cost { transactions: 32, excess: 28 });
        assert_eq!(sectors(&addresses(16), 16), Cost { transactions: 16, excess: 0 });
        assert_eq!(sectors(&addresses(0), 4), Cost { transactions: 1, excess: 0 });
        // Off by one element, the same bytes lie in one sector more.
        let shifted: Vec<_> = addresses(4).iter().map(|address| address + 4).collect();
        assert_eq!(sectors(&shifted, 4), Cost { transactions: 5, excess: 1 });
    }

    #[test]
    fn wavefronts_of_strided_accesses() {
        assert_eq!(wavefronts(&strided(4), 4), Cost { transactions: 1, excess: 0 });
        assert_eq!(wavefronts(&strided(8), 4), Cost { transactions: 2, excess: 1 });
        assert_eq!(wavefronts(&strided(128), 4), Cost { transactions: 32, excess: 31 });
        // A column of a tile of 32 by 33 words.
        assert_eq!(wavefronts(&strided(132), 4), Cost { transactions: 1, excess: 0 });
        // All want one word, and four bytes of a word are one word.
        assert_eq!(wavefronts(&strided(0), 4), Cost { transactions: 1, excess: 0 });
        assert_eq!(wavefronts(&strided(1), 1), Cost { transactions: 1, excess: 0 });
        // Wide accesses take two and four wavefronts at best.
        assert_eq!(wavefronts(&strided(8), 8), Cost { transactions: 2, excess: 0 });
        assert_eq!(wavefronts(&strided(16), 16), Cost { transactions: 4, excess: 0 });
        assert_eq!(wavefronts(&strided(16)[..3], 16), Cost { transactions: 1, excess: 0 });
    }
}
