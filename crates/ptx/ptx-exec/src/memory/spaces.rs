//! The memory that a warp sees, and the check that every access passes.
//!
//! An access is allowed if it is aligned to its size and lies inside a [`Region`] of the device's
//! memory or inside the window of its space. The regions used last are remembered: usually all
//! lanes are in one of them, which takes a few operations on vectors to see. Everything else is
//! looked at lane by lane.
//!
//! There is a faster way where whole warps act and their addresses have a [`Pattern`]: see
//! [`Spaces::regular`].

use crate::device::{Memory, Region};
use crate::fault::FaultKind;
use crate::memory::kept::Kept;
use crate::operands::{AccessArgs, Indexed, PATTERNS, Reg, Space};
use crate::registers::lanes::{Lanes, WARP, each_lane, wide_vectors};
use crate::registers::pattern::{PART, PARTS, Pattern};
use crate::registers::vectors::{Addresses, blend, offset_longs, offset_words, survey};

/// The index of threads whose prologue is deferred.
#[derive(Clone, Copy)]
pub(crate) struct DeferredIndex {
    pub(crate) index: Reg,
    pub(crate) pattern: Pattern,
}

/// The result of an access. The fault is boxed: the good case is to stay small.
pub(crate) type Accessed = Result<(), Box<AccessFault>>;

/// An access that was refused.
#[derive(Debug)]
pub(crate) struct AccessFault {
    pub(crate) lane: usize,
    pub(crate) address: u64,
    pub(crate) kind: FaultKind,
    pub(crate) text: String,
}

/// The distance between the shared addresses by which a block names the memory of the blocks of
/// its cluster, of rank 0 from one such distance on: what it names its own by is smaller.
pub(crate) const CLUSTER_UNIT: u64 = 1 << 24;

/// The shared memory of the blocks of a cluster, at equal distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterMemory {
    /// That of the block of rank 0.
    pub(crate) start: u64,
    /// The distance to the next.
    pub(crate) stride: u64,
    /// Bytes of each block.
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

impl ClusterMemory {
    /// Whether the bytes belong to one of several blocks.
    fn holds(&self, address: u64, bytes: u64) -> bool {
        if self.blocks <= 1 {
            return false;
        }
        let offset = address.wrapping_sub(self.start);
        let inside = offset % self.stride;
        offset < self.stride * self.blocks && inside < self.bytes && self.bytes - inside >= bytes
    }

    /// The address of what a block names by `offset` from the start of its own memory, `shared`.
    fn address(&self, shared: u64, offset: u64) -> u64 {
        let (rank, inside) = (offset / CLUSTER_UNIT, offset % CLUSTER_UNIT);
        match rank {
            // It stays what it is, which nothing holds.
            _ if rank > self.blocks => shared.wrapping_add(offset),
            0 if inside < self.bytes => shared.wrapping_add(offset),
            // Not the memory of a neighbour.
            0 => self.start + self.stride * self.blocks + offset,
            _ => self.start + (rank - 1) * self.stride + inside,
        }
    }
}

/// Regions that a block remembers.
const REMEMBERED: usize = 4;

/// The memory that a warp sees.
pub(crate) struct Spaces<'a> {
    pub(crate) memory: &'a dyn Memory,
    /// The regions accessed last, newest first.
    regions: [Region; REMEMBERED],
    /// The block's shared memory.
    pub(crate) shared: Region,
    /// Bytes of it that the launch asked for, for messages.
    pub(crate) requested_shared: u64,
    /// The shared memory of its cluster.
    pub(crate) cluster: ClusterMemory,
    /// The kernel's parameters, read-only.
    pub(crate) params: Region,
    /// Local memory of the block's threads, one after the other.
    pub(crate) local: Region,
    /// Bytes of local memory of a thread.
    pub(crate) local_bytes: u64,
    /// First address of the local memory of the warp's first lane.
    pub(crate) warp_local: u64,
    /// The ranges that have been found since the last [`forget_patterns`](Spaces::forget_patterns),
    /// by [`AccessArgs::pattern`].
    ranges: [KnownRange; PATTERNS],
    /// A bit for each range that is known.
    known: u8,
    /// A bit for each range that cannot exist.
    irregular: u8,
    /// The index of the threads, as long as it is in no register.
    pub(crate) found: Option<DeferredIndex>,
    /// State that the code of each region keeps between its runs.
    pub(crate) native: Vec<Kept>,
}

/// Offsets of accesses are smaller, or are not looked at closely.
const MAX_OFFSET: u64 = 1 << 40;

const NOWHERE: Region = Region { start: 0, end: 0, writable: false };

/// The memory that the lanes of some warps access if all act, before the offset of the access.
#[derive(Clone, Copy)]
struct KnownRange {
    /// The address for the value zero of the register that the addresses depend on. The register's
    /// values are shifted by `shift`.
    origin: u64,
    shift: u8,
    /// The least and the largest host address.
    least: u64,
    most: u64,
    /// Host address of the first lane of each part of the first warp.
    first: [u64; PARTS],
    /// The distance of each warp from the one before it.
    between: u64,
    /// All these, or-ed together.
    bits: u64,
    /// The distance of each lane from the one before it in its part.
    step: u64,
    /// The least offset that stays inside the window.
    from: i64,
    /// The first offset beyond it.
    to: i64,
    writable: bool,
}

/// Host addresses that all lanes of some warps may access: those of each part rise by the same
/// step.
pub(crate) struct Regular {
    /// Address of the first lane of each part of the first warp.
    pub(crate) first: [u64; PARTS],
    /// The distance of each warp from the one before it.
    pub(crate) between: u64,
    /// The distance of each lane of a part from the one before it: a multiple of the size of the
    /// access.
    pub(crate) step: u64,
}

const UNKNOWN_RANGE: KnownRange = KnownRange {
    origin: 0,
    shift: 0,
    least: 0,
    most: 0,
    first: [0; PARTS],
    between: 0,
    bits: 0,
    step: 0,
    from: 0,
    to: 0,
    writable: false,
};

impl KnownRange {
    /// The pattern of the register that the addresses depend on, if that is a word.
    #[inline(always)]
    fn pattern(&self) -> Pattern {
        let value = |place: u64| place.wrapping_sub(self.origin) as i64 >> self.shift;
        Pattern {
            first: self.first.map(value),
            step: self.step as i64 >> self.shift,
            between: self.between as i64 >> self.shift,
            least: value(self.least),
            most: value(self.most),
        }
    }
}

impl Region {
    /// Whether the `bytes` bytes from `address` lie inside.
    fn holds(&self, address: u64, bytes: u64) -> bool {
        address >= self.start && address < self.end && self.end - address >= bytes
    }
}

impl Regular {
    /// Returns the distance of the next `warps` warps' accesses, if they go on as these.
    #[inline(always)]
    pub(crate) fn ahead(&self, warps: usize) -> usize {
        (self.between as usize).wrapping_mul(warps)
    }
}

impl<'a> Spaces<'a> {
    pub(crate) fn new(
        memory: &'a dyn Memory,
        params: Region,
        shared: Region,
        local: Region,
        local_bytes: u64,
    ) -> Self {
        let regions = [NOWHERE; REMEMBERED];
        Spaces {
            memory,
            regions,
            shared,
            cluster: ClusterMemory { start: shared.start, stride: 1, bytes: 0, blocks: 1 },
            requested_shared: shared.end - shared.start,
            params,
            local,
            local_bytes,
            warp_local: local.start,
            ranges: [UNKNOWN_RANGE; PATTERNS],
            known: 0,
            irregular: 0,
            found: None,
            native: Vec::new(),
        }
    }

    /// Forgets the patterns of registers: they may have been written.
    #[inline(always)]
    pub(crate) fn forget_patterns(&mut self) {
        (self.known, self.irregular) = (0, 0);
    }

    /// Returns the pattern in which the lanes of some warps access `bytes` bytes each, if it is
    /// easily found: all lanes act, their addresses have a pattern, and everything is allowed.
    /// `None` decides nothing: [`locate`](Self::locate) will find out.
    ///
    /// # Safety
    /// The frames have the registers of the address.
    #[inline(always)]
    pub(crate) unsafe fn regular(
        &mut self,
        warps: &[Lanes],
        args: &AccessArgs,
        bytes: u64,
        write: bool,
    ) -> Option<Regular> {
        let slot = args.pattern as usize % PATTERNS;
        if args.fresh || self.known >> slot & 1 == 0 {
            // SAFETY: the caller's promise.
            unsafe { self.find_range(warps, args, slot, write) };
        }
        let range = &self.ranges[slot];
        let allowed = args.offset >= range.from && args.offset + bytes as i64 <= range.to;
        let aligned = (range.bits | args.offset as u64) & (bytes - 1) == 0;
        if self.known >> slot & 1 == 0 || !allowed || !aligned || write && !range.writable {
            return None;
        }
        let first = range.first.map(|first| first.wrapping_add(args.offset as u64));
        Some(Regular { first, between: range.between, step: range.step })
    }

    /// Returns the pattern of accesses that share an address, at offsets from `least` to `most`, for
    /// whoever knows nothing of other accesses. As for [`regular`](Self::regular), `None` decides
    /// nothing.
    ///
    /// # Safety
    /// The frames have the registers of the address.
    pub(crate) unsafe fn regular_alone(
        &mut self,
        warps: &[Lanes],
        args: &AccessArgs,
        (least, most): (i64, i64),
        bytes: u64,
        write: bool,
    ) -> Option<Regular> {
        self.forget_patterns();
        let args = AccessArgs { fresh: true, offset: least, ..*args };
        // SAFETY: the caller's promise.
        let regular = unsafe { self.regular(warps, &args, bytes, write) };
        let reaches = most + bytes as i64 <= self.ranges[args.pattern as usize % PATTERNS].to;
        self.forget_patterns();
        regular.filter(|_| reaches)
    }

    /// Finds the range of an access and of those that share its place.
    ///
    /// # Safety
    /// The frames have the registers of the address.
    #[inline(never)]
    unsafe fn find_range(&mut self, warps: &[Lanes], args: &AccessArgs, slot: usize, write: bool) {
        let bit = 1 << slot;
        if !args.fresh && self.irregular & bit != 0 {
            return;
        }
        // SAFETY: the caller's promise; the CPU has what `wide_vectors` finds.
        let found = unsafe {
            #[cfg(target_arch = "x86_64")]
            if wide_vectors() {
                self.find_reach_wide(warps, args, slot, write)
            } else {
                self.find_reach(warps, args, slot, write)
            }
            #[cfg(not(target_arch = "x86_64"))]
            self.find_reach(warps, args, slot, write)
        };
        (self.known, self.irregular) = match found {
            Some(()) => (self.known | bit, self.irregular & !bit),
            None => (self.known & !bit, self.irregular | bit),
        };
    }

    /// [`find_reach`](Self::find_reach), with wide vectors.
    ///
    /// # Safety
    /// The CPU has the features; the frames have the registers of the address.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
    unsafe fn find_reach_wide(
        &mut self,
        warps: &[Lanes],
        args: &AccessArgs,
        slot: usize,
        write: bool,
    ) -> Option<()> {
        // SAFETY: the caller's promise.
        unsafe { self.find_reach(warps, args, slot, write) }
    }

    /// Puts the range of an access into its slot, if it has one.
    ///
    /// # Safety
    /// The frames have the registers of the address.
    #[inline(always)]
    unsafe fn find_reach(
        &mut self,
        warps: &[Lanes],
        args: &AccessArgs,
        slot: usize,
        write: bool,
    ) -> Option<()> {
        let whole = warps.iter().all(|lanes| lanes.mask == u32::MAX);
        if !whole || args.offset.unsigned_abs() >= MAX_OFFSET {
            return None;
        }
        if args.space == Space::Local {
            // SAFETY: the caller's promise.
            return unsafe { self.find_local_reach(warps, args, slot) };
        }
        // SAFETY: the caller's promise.
        let words = |reg: Reg| warps.iter().map(move |lanes| unsafe { lanes.source(reg) });
        let (base, pattern, shift) = match &args.indexed {
            Some(Indexed { base, index, signed, shift }) => {
                // SAFETY: the caller's promise; the base is the same in all lanes of all warps.
                let base = unsafe { warps.first()?.source::<u64>(*base)[0] };
                let like = args.like.map(usize::from).filter(|&like| self.known >> like & 1 != 0);
                let pattern = match (like, &self.found) {
                    (Some(like), _) => self.ranges[like % PATTERNS].pattern(),
                    (None, Some(found)) if found.index == *index => found.pattern,
                    (None, _) => Pattern::of_words(words(*index), *signed)?,
                };
                (base, pattern, *shift)
            }
            None if args.narrow => (0, Pattern::of_words(words(args.address), false)?, 0),
            None => {
                // SAFETY: the caller's promise.
                let longs = warps.iter().map(|lanes| unsafe { lanes.source(args.address) });
                (0, Pattern::of_longs(longs)?, 0)
            }
        };
        let origin = self.origin(args.space).wrapping_add(base);
        let place = |value: i64| origin.wrapping_add((value as u64) << shift);
        let (least, most) = (place(pattern.least), place(pattern.most));
        let window = self.window(args.space, least.wrapping_add(args.offset as u64), write);
        // Less than the window from end to end: so there is no way round the end of the address
        // space.
        let span = pattern.most.checked_sub(pattern.least)?;
        let size = window.end - window.start;
        if size == 0 || span as u64 > size >> shift {
            return None;
        }
        let (first, between) = (pattern.first.map(place), (pattern.between as u64) << shift);
        // One by one: moved as a whole it would have to wait for all that this CPU has still to
        // write.
        let range = &mut self.ranges[slot];
        (range.origin, range.shift, range.least, range.most) = (origin, shift, least, most);
        (range.first, range.between, range.step) = (first, between, (pattern.step as u64) << shift);
        range.bits = first[0] | first[1] | first[2] | first[3] | between | range.step;
        range.from = window.start.wrapping_sub(least) as i64;
        range.to = window.end.wrapping_sub(most) as i64;
        range.writable = window.writable;
        Some(())
    }

    /// Puts the range of an access to local memory into its slot, if all threads access the same
    /// place of theirs: what compilers spill, and elements of arrays whose index is the same in all
    /// threads.
    ///
    /// # Safety
    /// The frames have the registers of the address.
    #[inline(always)]
    unsafe fn find_local_reach(&mut self, warps: &[Lanes], args: &AccessArgs, slot: usize) -> Option<()> {
        if args.indexed.is_some() {
            return None;
        }
        // SAFETY: the caller's promise.
        let pattern = unsafe {
            match args.narrow {
                true => {
                    Pattern::of_words(warps.iter().map(|lanes| lanes.source::<u32>(args.address)), false)?
                }
                false => Pattern::of_longs(warps.iter().map(|lanes| lanes.source::<u64>(args.address)))?,
            }
        };
        let stride = self.local_bytes;
        let place = pattern.least;
        if pattern.most != place || place < 0 || place as u64 >= stride {
            return None;
        }
        // The warps' own memory lies one after the other, as they do.
        let (start, between) = match warps {
            [] => return None,
            [only] => (only.local, 0),
            [first, second, ..] => (first.local, second.local.wrapping_sub(first.local)),
        };
        let steady = warps.windows(2).all(|pair| pair[1].local.wrapping_sub(pair[0].local) == between);
        if !steady {
            return None;
        }
        let origin = start + place as u64;
        let range = &mut self.ranges[slot];
        (range.origin, range.shift, range.least, range.most) = (origin, 0, origin, origin);
        range.first = std::array::from_fn(|part| origin + (part * PART) as u64 * stride);
        (range.between, range.step) = (between, stride);
        range.bits = origin | stride | between;
        (range.from, range.to, range.writable) = (-place, stride as i64 - place, true);
        Some(())
    }

    /// The host addresses of the active lanes, which may be accessed; the other lanes get the
    /// address of one of them.
    ///
    /// # Safety
    /// The frame has the registers of the address.
    #[inline(never)]
    pub(crate) unsafe fn locate(
        &mut self,
        lanes: &Lanes,
        args: &AccessArgs,
        bytes: u64,
        write: bool,
        addresses: &mut Addresses,
    ) -> Accessed {
        let origin = self.origin(args.space);
        // SAFETY: the caller's promise.
        unsafe {
            match &args.indexed {
                Some(Indexed { base, index, signed, shift }) => {
                    let base = lanes.source::<u64>(*base)[0].wrapping_add(args.offset as u64);
                    let base = origin.wrapping_add(base);
                    let widen = |word: u32| if *signed { word as i32 as u64 } else { u64::from(word) };
                    let index = lanes.source::<u32>(*index);
                    for lane in 0..WARP {
                        addresses[lane] = base.wrapping_add(widen(index[lane]) << shift);
                    }
                }
                None if args.narrow => {
                    offset_words(lanes.source(args.address), args.offset as u32, origin, addresses);
                }
                None => {
                    let offset = origin.wrapping_add(args.offset as u64);
                    offset_longs(lanes.source(args.address), offset, addresses);
                }
            }
        }
        self.resolve(args.space, addresses, lanes.mask, bytes, write)
    }

    /// Checks addresses of `space` from its origin; the lanes outside `mask` get the address of one
    /// inside.
    pub(crate) fn resolve(
        &mut self,
        space: Space,
        addresses: &mut Addresses,
        mask: u32,
        bytes: u64,
        write: bool,
    ) -> Accessed {
        let first = addresses[mask.trailing_zeros() as usize % WARP];
        if mask != u32::MAX {
            blend(addresses, &[first; WARP], !mask);
        }
        if space == Space::Shared && self.cluster.blocks > 1 {
            let (cluster, shared) = (self.cluster, self.shared.start);
            addresses.iter_mut().for_each(|at| *at = cluster.address(shared, at.wrapping_sub(shared)));
        }
        let window = self.window(space, first, write);
        if survey(addresses, window.start, window.end, bytes) {
            self.find(space, addresses, mask, bytes, write)?;
        }
        if space == Space::Local {
            for (lane, address) in addresses.iter_mut().enumerate() {
                *address += lane as u64 * self.local_bytes;
            }
        }
        Ok(())
    }

    /// Returns the value to add to addresses of a space to make them host addresses (of the warp's
    /// first lane).
    #[inline(always)]
    fn origin(&self, space: Space) -> u64 {
        match space {
            Space::Global | Space::Generic => 0,
            Space::Shared => self.shared.start,
            Space::Local => self.warp_local,
        }
    }

    /// The range in which all lanes probably are: the one of the first lane. Empty if that is
    /// unknown.
    #[inline(always)]
    fn window(&self, space: Space, first: u64, write: bool) -> Region {
        let holds = |region: &Region| {
            first.wrapping_sub(region.start) < region.end - region.start && (region.writable || !write)
        };
        match space {
            Space::Shared => return self.shared,
            Space::Local => {
                let start = self.warp_local;
                return Region { start, end: start + self.local_bytes, writable: true };
            }
            Space::Generic if holds(&self.shared) => return self.shared,
            Space::Generic if holds(&self.local) => return self.local,
            Space::Global | Space::Generic => {}
        }
        for region in &self.regions {
            if holds(region) {
                return *region;
            }
        }
        NOWHERE
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
            let mut text = format!("misaligned {verb} of {bytes} bytes at {address:#x}");
            if space == Space::Global {
                text = format!("{text}: {}", self.memory.describe(address));
            }
            return Err((FaultKind::Misaligned, text));
        }
        let beyond = |name: &str, size: u64| {
            let text =
                format!("{verb} of {bytes} bytes at offset {address:#x} of {size} bytes of {name} memory");
            Err((FaultKind::OutOfBounds, text))
        };
        let fits = |size: u64| address < size && size - address >= bytes;
        match space {
            Space::Shared if self.cluster.holds(self.shared.start.wrapping_add(address), bytes) => Ok(()),
            Space::Shared if !fits(self.shared.end - self.shared.start) => {
                beyond("shared", self.requested_shared)
            }
            Space::Local if !fits(self.local_bytes) => beyond("local", self.local_bytes),
            Space::Shared | Space::Local => Ok(()),
            Space::Global | Space::Generic => match self.region(space, address, bytes) {
                Some(region) if region.writable || !write => Ok(()),
                Some(_) => {
                    let place = self.memory.describe(address);
                    let text =
                        format!("write of {bytes} bytes at {address:#x}, which may only be read: {place}");
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
            if self.cluster.holds(address, bytes) {
                return Some(Region { start: address, end: address + bytes, writable: true });
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
    pub(crate) fn covers(&mut self, address: u64, bytes: u64, write: bool) -> bool {
        self.region(Space::Global, address, bytes).is_some_and(|region| region.writable || !write)
    }

    /// Whether an access to a host address is allowed.
    pub(crate) fn allows(&mut self, space: Space, address: u64, bytes: u64, write: bool) -> bool {
        let address = address.wrapping_sub(self.origin(space));
        self.check(space, address, bytes, write).is_ok()
    }

    /// The range around a host address that may be accessed likewise.
    pub(crate) fn allocation(&mut self, space: Space, address: u64, bytes: u64) -> Option<Region> {
        match space {
            Space::Shared => Some(self.shared),
            Space::Local => None,
            Space::Global | Space::Generic => self.region(space, address, bytes),
        }
    }

    /// The value to add to addresses of a space to make them host addresses.
    pub(crate) fn start_of(&self, space: Space) -> u64 {
        self.origin(space)
    }

    /// Where the local memory of each lane begins, by that of a warp's first lane.
    pub(crate) fn starts_of_lanes(&self, first: u64) -> [u64; WARP] {
        std::array::from_fn(|lane| first + lane as u64 * self.local_bytes)
    }

    /// Forgets the regions: device code has freed memory.
    pub(crate) fn forget(&mut self) {
        self.regions = [NOWHERE; REMEMBERED];
        self.native.iter_mut().for_each(Kept::forget);
    }

    /// Whether a generic address is one of the block's shared memory, or of its cluster's.
    pub(crate) fn is_shared(&self, address: u64) -> bool {
        self.shared.holds(address, 1) || self.cluster.holds(address, 1)
    }

    /// Whether the block is a cluster of its own.
    pub(crate) fn is_alone(&self) -> bool {
        self.cluster.blocks <= 1
    }

    /// The ranks of the blocks that a mask has, of those that there are; the only one without
    /// clusters, or the block that an address names where there is no mask.
    pub(crate) fn ranks(&self, mask: Option<u32>) -> Vec<Option<u64>> {
        match mask {
            None => vec![None],
            Some(mask) => {
                let has = |rank: &u64| mask >> (rank % 32) & 1 == 1;
                (0..self.cluster.blocks.min(32)).filter(has).map(Some).collect()
            }
        }
    }

    /// What has the place of a generic address of shared memory in the block of this rank of the
    /// cluster.
    pub(crate) fn in_block(&self, address: u64, rank: Option<u64>) -> u64 {
        let ClusterMemory { start, stride, blocks, .. } = self.cluster;
        match rank {
            Some(rank) if blocks > 1 => start + rank * stride + address.wrapping_sub(start) % stride,
            _ => address,
        }
    }

    /// The host address of `bytes` bytes at a generic address, for what is not a step on lanes.
    pub(crate) fn generic(
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
    pub(crate) fn local(&self, lane: usize, offset: u64, bytes: u64) -> Option<*mut u8> {
        let inside = offset < self.local_bytes && self.local_bytes - offset >= bytes;
        inside.then(|| (self.warp_local + lane as u64 * self.local_bytes + offset) as *mut u8)
    }

    /// Copies bytes of local memory from `from` to `to` (frame and offset) in each lane of `mask`;
    /// `None` if either lies outside.
    pub(crate) fn move_local(&self, mask: u32, from: (u32, u32), to: (u32, u32), bytes: u32) -> Option<()> {
        let place = |(frame, offset): (u32, u32)| u64::from(frame) + u64::from(offset);
        let mut inside = true;
        each_lane(mask, |lane| {
            let (from, to) =
                (self.local(lane, place(from), bytes.into()), self.local(lane, place(to), bytes.into()));
            match (from, to) {
                // SAFETY: both ranges lie in the lane's local memory, which only this block uses.
                (Some(from), Some(to)) => unsafe { std::ptr::copy(from, to, bytes as usize) },
                _ => inside = false,
            }
        });
        inside.then_some(())
    }
}
