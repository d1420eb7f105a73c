//! The memory that a warp sees, and the check that every access passes.
//!
//! An access is allowed if it is aligned to its size and lies inside a [`Region`] of the device's memory or inside the
//! window of its space. The regions used last are remembered: usually all lanes are in one of them, which takes a few
//! operations on vectors to see. Everything else is looked at lane by lane.

use super::code::{AccessArgs, Space};
use super::fault::FaultKind;
use super::lanes::{Lanes, WARP, each_lane};
use super::memory::{Memory, Region};
use super::vectors::{Addresses, Survey, blend_longs, offset_longs, offset_words, survey};

/// What an access comes to. The fault is boxed: the good case is to stay small.
pub(super) type Accessed = Result<(), Box<AccessFault>>;

/// An access that was refused.
#[derive(Debug)]
pub(super) struct AccessFault {
    pub(super) lane: usize,
    pub(super) address: u64,
    pub(super) kind: FaultKind,
    pub(super) text: String,
}

/// Regions that a block remembers.
const REMEMBERED: usize = 4;

/// The memory that a warp sees.
pub(super) struct Spaces<'a> {
    pub(super) memory: &'a dyn Memory,
    /// The regions accessed last, newest first.
    regions: [Region; REMEMBERED],
    /// The block's shared memory.
    pub(super) shared: Region,
    /// The kernel's parameters, read-only.
    pub(super) params: Region,
    /// Local memory of the block's threads, one after the other.
    pub(super) local: Region,
    /// Bytes of local memory of a thread.
    pub(super) local_bytes: u64,
    /// First address of the local memory of the warp's first lane.
    pub(super) warp_local: u64,
}

const NOWHERE: Region = Region { start: 0, end: 0, writable: false };

/// How the addresses of the lanes lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// All active lanes have the same address.
    Uniform,
    /// All lanes are active, and each accesses what follows the one before it.
    Consecutive,
    /// Anything else.
    Scattered,
}

impl Region {
    /// Whether the `bytes` bytes from `address` lie inside.
    fn holds(&self, address: u64, bytes: u64) -> bool {
        address >= self.start && address < self.end && self.end - address >= bytes
    }
}

impl<'a> Spaces<'a> {
    pub(super) fn new(
        memory: &'a dyn Memory,
        params: Region,
        shared: Region,
        local: Region,
        local_bytes: u64,
    ) -> Self {
        let regions = [NOWHERE; REMEMBERED];
        Spaces { memory, regions, shared, params, local, local_bytes, warp_local: local.start }
    }

    /// The host addresses of the active lanes, which may be accessed; the other lanes get the address of one of them.
    ///
    /// # Safety
    /// The frame has the address register.
    #[inline(never)]
    pub(super) unsafe fn locate(
        &mut self,
        lanes: &Lanes,
        args: &AccessArgs,
        bytes: u64,
        write: bool,
        addresses: &mut Addresses,
    ) -> Result<Pattern, Box<AccessFault>> {
        let origin = self.origin(args.space);
        // SAFETY: the caller's promise.
        unsafe {
            match args.narrow {
                true => offset_words(lanes.source(args.address), args.offset as u32, origin, addresses),
                false => {
                    let offset = origin.wrapping_add(args.offset as u64);
                    offset_longs(lanes.source(args.address), offset, addresses);
                }
            }
        }
        self.resolve(args.space, addresses, lanes.mask, bytes, write)
    }

    /// Checks addresses of `space` from its origin; the lanes outside `mask` get the address of one inside.
    pub(super) fn resolve(
        &mut self,
        space: Space,
        addresses: &mut Addresses,
        mask: u32,
        bytes: u64,
        write: bool,
    ) -> Result<Pattern, Box<AccessFault>> {
        let first = addresses[mask.trailing_zeros() as usize % WARP];
        if mask != u32::MAX {
            blend_longs(addresses, &[first; WARP], !mask);
        }
        let window = self.window(space, first, write);
        let survey = survey(addresses, window.start, window.end, bytes);
        if survey.suspicious {
            self.find(space, addresses, mask, bytes, write)?;
        }
        if space == Space::Local {
            for (lane, address) in addresses.iter_mut().enumerate() {
                *address += lane as u64 * self.local_bytes;
            }
        }
        Ok(match survey {
            _ if space == Space::Local => Pattern::Scattered,
            Survey { uniform: true, .. } => Pattern::Uniform,
            Survey { consecutive: true, .. } if mask == u32::MAX => Pattern::Consecutive,
            _ => Pattern::Scattered,
        })
    }

    /// What is added to addresses of a space to make them host addresses (of the warp's first lane).
    #[inline(always)]
    fn origin(&self, space: Space) -> u64 {
        match space {
            Space::Global | Space::Generic => 0,
            Space::Shared => self.shared.start,
            Space::Local => self.warp_local,
        }
    }

    /// The range in which all lanes probably are: the one of the first lane. Empty if that is unknown.
    #[inline(always)]
    fn window(&self, space: Space, first: u64, write: bool) -> Region {
        let holds = |region: &Region| first.wrapping_sub(region.start) < region.end - region.start;
        match space {
            Space::Shared => self.shared,
            Space::Local => {
                Region { start: self.warp_local, end: self.warp_local + self.local_bytes, writable: true }
            }
            Space::Global | Space::Generic => {
                let windows: &[Region] =
                    if space == Space::Generic { &[self.shared, self.local] } else { &[] };
                let mut known = self.regions.iter().chain(windows);
                known.find(|region| holds(region) && (region.writable || !write)).copied().unwrap_or(NOWHERE)
            }
        }
    }

    /// Checks lane by lane, and finds the first that is at fault.
    #[cold]
    #[inline(never)]
    fn find(&mut self, space: Space, addresses: &Addresses, mask: u32, bytes: u64, write: bool) -> Accessed {
        let mut outcome = Ok(());
        let origin = self.origin(space);
        each_lane(mask, |lane| {
            if outcome.is_ok() {
                let address = addresses[lane].wrapping_sub(origin);
                outcome = self
                    .check(space, address, bytes, write)
                    .map_err(|(kind, text)| Box::new(AccessFault { lane, address, kind, text }));
            }
        });
        outcome
    }

    fn check(
        &mut self,
        space: Space,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Result<(), (FaultKind, String)> {
        let verb = if write { "write" } else { "read" };
        if address % bytes != 0 {
            let text = format!("misaligned {verb} of {bytes} bytes at {address:#x}");
            return Err((FaultKind::Misaligned, text));
        }
        let beyond = |name: &str, size: u64| {
            let text =
                format!("{verb} of {bytes} bytes at offset {address:#x} of {size} bytes of {name} memory");
            Err((FaultKind::OutOfBounds, text))
        };
        let fits = |size: u64| address < size && size - address >= bytes;
        match space {
            Space::Shared if !fits(self.shared.end - self.shared.start) => {
                beyond("shared", self.shared.end - self.shared.start)
            }
            Space::Local if !fits(self.local_bytes) => beyond("local", self.local_bytes),
            Space::Shared | Space::Local => Ok(()),
            Space::Global | Space::Generic => match self.region(space, address, bytes) {
                Some(region) if region.writable || !write => Ok(()),
                Some(_) => {
                    let text = format!("write of {bytes} bytes at {address:#x}, which may only be read");
                    Err((FaultKind::OutOfBounds, text))
                }
                None => {
                    let place = self.memory.describe(address);
                    let text = format!("invalid {verb} of {bytes} bytes at {address:#x}: {place}");
                    Err((FaultKind::OutOfBounds, text))
                }
            },
        }
    }

    /// The region that holds the bytes; remembered if it is one of the device's.
    fn region(&mut self, space: Space, address: u64, bytes: u64) -> Option<Region> {
        if space == Space::Generic {
            for window in [self.shared, self.local, self.params] {
                if window.holds(address, bytes) {
                    return Some(window);
                }
            }
        }
        if let Some(index) = self.regions.iter().position(|region| region.holds(address, bytes)) {
            self.regions[..=index].rotate_right(1);
            return Some(self.regions[0]);
        }
        let region = self.memory.region(address, bytes)?;
        self.regions.rotate_right(1);
        self.regions[0] = region;
        Some(region)
    }

    /// Whether `bytes` bytes of global memory may be accessed.
    pub(super) fn covers(&mut self, address: u64, bytes: u64, write: bool) -> bool {
        self.region(Space::Global, address, bytes).is_some_and(|region| region.writable || !write)
    }

    /// Forgets the regions: device code has freed memory.
    pub(super) fn forget(&mut self) {
        self.regions = [NOWHERE; REMEMBERED];
    }

    /// The host address of `bytes` bytes at a generic address, for what is not a step on lanes.
    pub(super) fn generic(
        &mut self,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Result<*mut u8, (FaultKind, String)> {
        if self.region(Space::Generic, address, bytes).is_some_and(|region| region.writable || !write) {
            return Ok(address as *mut u8);
        }
        self.check(Space::Generic, address, bytes, write).map(|()| address as *mut u8)
    }

    /// The host address of `bytes` bytes at an offset of a lane's local memory, if they are inside.
    pub(super) fn local(&self, lane: usize, offset: u64, bytes: u64) -> Option<*mut u8> {
        let inside = offset < self.local_bytes && self.local_bytes - offset >= bytes;
        inside.then(|| (self.warp_local + lane as u64 * self.local_bytes + offset) as *mut u8)
    }
}
