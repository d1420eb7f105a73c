//! Loads, stores, atomics and copies, for all lanes of a warp at once.
//!
//! Every access is checked: aligned to its size, and inside a [`Region`] (global memory) or the window of its space.
//! Lanes that do not act borrow the address of one that does, so checks and loads run over all lanes unmasked.
//!
//! Weak accesses are plain reads and writes: where they race, PTX defines nothing either. Strong ones (`volatile`,
//! `relaxed`, `acquire`, `release`) and atomics on global memory are atomics of the host, for blocks run on several
//! threads. A block runs on one thread, so its shared memory needs none.
//!
//! # Safety
//!
//! An [`AccessHandler`] dereferences the registers that it takes, as a [`LaneHandler`](super::lanes::LaneHandler) does,
//! and host addresses that [`Spaces`] approved. The caller promises that the former are there, and that the windows in `Spaces` are memory
//! that nobody else accesses; [`Memory`] promises the latter.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::code::{AccessArgs, AccessKind, Class, Reg, Space};
use super::fault::FaultKind;
use super::lanes::{Lane, Lanes, WARP, conjure, each_lane, wide_vectors};
use super::memory::{Memory, Region};

/// Performs one access. See the module's safety contract.
pub(super) type RunAccess = unsafe fn(&Lanes, &mut Spaces, &AccessArgs) -> Accessed;

/// A way to perform an access, and the classes of the registers that it takes.
#[derive(Clone, Copy)]
pub(super) struct AccessHandler {
    pub(super) run: RunAccess,
    /// Of [`AccessArgs::data`].
    data: Class,
    /// Of [`AccessArgs::operands`].
    operands: [Class; 2],
}

impl AccessHandler {
    /// Whether the registers that `args` names have the classes that the handler takes.
    pub(super) fn takes(&self, args: &AccessArgs, class: impl Fn(Reg) -> Class) -> bool {
        let fits = |reg: Reg, wanted: Class| !reg.is_some() || class(reg) == wanted;
        let address = if args.narrow { Class::Word } else { Class::Long };
        args.address.is_some()
            && fits(args.address, address)
            && args.data.iter().all(|&reg| fits(reg, self.data))
            && args.operands.iter().zip(self.operands).all(|(&reg, wanted)| fits(reg, wanted))
            && (args.kind == AccessKind::Atomic || args.kind == AccessKind::Copy || args.data[0].is_some())
            && (matches!(args.kind, AccessKind::Load | AccessKind::Store) || args.operands[0].is_some())
    }
}

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

impl Region {
    #[inline(always)]
    fn holds(&self, first: u64, last: u64, bytes: u64) -> bool {
        // No overflow: `end` is at least `bytes` where it matters.
        first >= self.start && last < self.end && self.end - last >= bytes
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

    /// Turns addresses of `space` into host addresses that may be accessed. On return the lanes outside `mask` have
    /// the address of one inside.
    #[inline(always)]
    fn resolve(
        &mut self,
        space: Space,
        addresses: &mut [u64; WARP],
        mask: u32,
        bytes: u64,
        write: bool,
    ) -> Accessed {
        if mask != u32::MAX {
            let stand_in = addresses[mask.trailing_zeros() as usize & (WARP - 1)];
            for lane in 0..WARP {
                addresses[lane] = if mask >> lane & 1 != 0 { addresses[lane] } else { stand_in };
            }
        }
        let (mut first, mut last, mut bits) = (u64::MAX, 0, 0);
        for &address in addresses.iter() {
            first = first.min(address);
            last = last.max(address);
            bits |= address;
        }
        let inside = bits & (bytes - 1) == 0
            && match space {
                Space::Global => {
                    self.regions[0].holds(first, last, bytes) && (self.regions[0].writable || !write)
                }
                Space::Shared => {
                    last < self.shared.end - self.shared.start
                        && self.shared.end - self.shared.start - last >= bytes
                }
                Space::Local => last < self.local_bytes && self.local_bytes - last >= bytes,
                Space::Generic => {
                    self.regions[0].holds(first, last, bytes) && (self.regions[0].writable || !write)
                }
            };
        if !inside {
            self.find(space, addresses, mask, bytes, write)?;
        }
        match space {
            Space::Global | Space::Generic => {}
            Space::Shared => addresses.iter_mut().for_each(|address| *address += self.shared.start),
            Space::Local => {
                for (lane, address) in addresses.iter_mut().enumerate() {
                    *address += self.warp_local + lane as u64 * self.local_bytes;
                }
            }
        }
        Ok(())
    }

    /// Checks lane by lane, and finds the first that is at fault.
    #[cold]
    #[inline(never)]
    fn find(
        &mut self,
        space: Space,
        addresses: &[u64; WARP],
        mask: u32,
        bytes: u64,
        write: bool,
    ) -> Accessed {
        let mut outcome = Ok(());
        each_lane(mask, |lane| {
            if outcome.is_ok() {
                outcome = self.check(space, addresses[lane], bytes, write).map_err(|(kind, text)| {
                    Box::new(AccessFault { lane, address: addresses[lane], kind, text })
                });
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
                if window.holds(address, address, bytes) {
                    return Some(window);
                }
            }
        }
        if let Some(index) = self.regions.iter().position(|region| region.holds(address, address, bytes)) {
            self.regions[..=index].rotate_right(1);
            return Some(self.regions[0]);
        }
        let region = self.memory.region(address, bytes)?;
        self.regions.rotate_right(1);
        self.regions[0] = region;
        Some(region)
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

/// A value in memory.
pub(super) trait Cell: Copy + Default {
    /// # Safety
    /// `address` is valid for an aligned atomic read of the type.
    unsafe fn load_strong(address: *mut Self) -> Self;
    /// # Safety
    /// `address` is valid for an aligned atomic write of the type.
    unsafe fn store_strong(address: *mut Self, value: Self);
    /// Replaces the value by what `f` makes of it; returns the old one.
    ///
    /// # Safety
    /// `address` is valid for aligned atomic reads and writes of the type.
    unsafe fn update(address: *mut Self, f: impl Fn(Self) -> Self) -> Self;
}

macro_rules! cell {
    ($($ty:ty as $bits:ty: $atomic:ty;)*) => {$(
        impl Cell for $ty {
            #[inline(always)]
            unsafe fn load_strong(address: *mut Self) -> Self {
                // SAFETY: the caller's promise; the atomic has the layout of the integer.
                unsafe { &*address.cast::<$atomic>() }.load(Ordering::SeqCst) as $ty
            }
            #[inline(always)]
            unsafe fn store_strong(address: *mut Self, value: Self) {
                // SAFETY: as above.
                unsafe { &*address.cast::<$atomic>() }.store(value as $bits, Ordering::SeqCst);
            }
            #[inline(always)]
            unsafe fn update(address: *mut Self, f: impl Fn(Self) -> Self) -> Self {
                // SAFETY: as above.
                let cell = unsafe { &*address.cast::<$atomic>() };
                let mut old = cell.load(Ordering::Relaxed);
                loop {
                    let new = f(old as $ty) as $bits;
                    match cell.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
                        Ok(_) => return old as $ty,
                        Err(now) => old = now,
                    }
                }
            }
        }
    )*};
}

cell! {
    u8 as u8: AtomicU8;
    i8 as u8: AtomicU8;
    u16 as u16: AtomicU16;
    i16 as u16: AtomicU16;
    u32 as u32: AtomicU32;
    i32 as u32: AtomicU32;
    u64 as u64: AtomicU64;
}

/// The address of each lane, before it is resolved.
///
/// # Safety
/// The frame has the address register.
#[inline(always)]
unsafe fn addresses(lanes: &Lanes, args: &AccessArgs) -> [u64; WARP] {
    let mut addresses = [0; WARP];
    // SAFETY: the caller's promise.
    unsafe {
        if args.narrow {
            let base = lanes.source::<u32>(args.address);
            for lane in 0..WARP {
                // 32-bit addresses wrap at 32 bits.
                addresses[lane] = u64::from(base[lane].wrapping_add(args.offset as u32));
            }
        } else {
            let base = lanes.source::<u64>(args.address);
            for lane in 0..WARP {
                addresses[lane] = base[lane].wrapping_add(args.offset as u64);
            }
        }
    }
    addresses
}

/// Whether lane `i` is at `addresses[0] + i * bytes`, for all 32 lanes.
#[inline(always)]
fn consecutive(addresses: &[u64; WARP], mask: u32, bytes: u64) -> bool {
    if mask != u32::MAX {
        return false;
    }
    let mut difference = 0;
    for (lane, &address) in addresses.iter().enumerate() {
        difference |= address ^ addresses[0].wrapping_add(lane as u64 * bytes);
    }
    difference == 0
}

impl AccessArgs {
    /// The registers of the vector.
    #[inline(always)]
    fn elements(&self) -> &[Reg] {
        let count = if self.data[1] == Reg::NONE {
            1
        } else if self.data[2] == Reg::NONE {
            2
        } else {
            4
        };
        &self.data[..count]
    }
}

/// A memory cell that a register takes: sign- or zero-extended to the register's width.
pub(super) trait Extend<R: Lane>: Cell {
    fn extend(self) -> R;
    fn cut(value: R) -> Self;
}

macro_rules! extend {
    ($($cell:ty => $($register:ty),*;)*) => {$($(
        impl Extend<$register> for $cell {
            #[inline(always)]
            fn extend(self) -> $register {
                self as $register
            }
            #[inline(always)]
            fn cut(value: $register) -> Self {
                value as $cell
            }
        }
    )*)*};
}

extend! {
    u8 => u16, u32, u64;
    i8 => u16, u32, u64;
    u16 => u16, u32, u64;
    i16 => u16, u32, u64;
    u32 => u32, u64;
    i32 => u32, u64;
    u64 => u64;
}

/// A memory cell that atomics take: its register has the same type.
pub(super) trait AtomicLane: Cell + Lane {}

impl<T: Cell + Lane> AtomicLane for T {}

/// What `cp.async` copies: 4, 8 or 16 bytes.
pub(super) trait Copied {}

impl<const N: usize> Copied for [u8; N] {}

/// Defines a family of access handlers in two versions, as the shapes of `lanes` are.
macro_rules! access {
    ($(#[$doc:meta])* $name:ident<$($param:ident: $bound:path),*> $(($f:ident: $closure:path))?
     takes [$data:expr, $first:expr, $second:expr] |$lanes:ident, $spaces:ident, $args:ident| $body:block) => {
        $(#[$doc])*
        pub(super) fn $name<$($param: $bound,)* $($f: $closure + Copy)?>($(_: $f)?) -> AccessHandler {
            /// # Safety
            /// See the module.
            unsafe fn plain<$($param: $bound,)* $($f: $closure + Copy)?>(
                $lanes: &Lanes,
                $spaces: &mut Spaces,
                $args: &AccessArgs,
            ) -> Accessed {
                // SAFETY: the caller's promise; addresses are used after `resolve` has approved them.
                unsafe { $body }
            }

            /// # Safety
            /// See the module.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
            unsafe fn wide<$($param: $bound,)* $($f: $closure + Copy)?>(
                $lanes: &Lanes,
                $spaces: &mut Spaces,
                $args: &AccessArgs,
            ) -> Accessed {
                // SAFETY: the caller's promise; addresses are used after `resolve` has approved them.
                unsafe { $body }
            }

            let (data, operands) = ($data, [$first, $second]);
            #[cfg(target_arch = "x86_64")]
            if wide_vectors() {
                return AccessHandler { run: wide::<$($param,)* $($f)?>, data, operands };
            }
            AccessHandler { run: plain::<$($param,)* $($f)?>, data, operands }
        }
    };
}

access! {
    /// `data = [address]`: elements of type `C` into registers of type `R`.
    load<R: Lane, C: Extend<R>> takes [R::CLASS, R::CLASS, R::CLASS] |lanes, spaces, args| {
        let registers = args.elements();
        let bytes = size_of::<C>() as u64;
        let mut addresses = addresses(lanes, args);
        spaces.resolve(args.space, &mut addresses, lanes.mask, bytes * registers.len() as u64, false)?;
        let mut values = [R::Stored::default(); WARP];
        if registers.len() == 1 && consecutive(&addresses, lanes.mask, bytes) {
            let cells = ptr::read_unaligned(addresses[0] as *const [C; WARP]);
            for lane in 0..WARP {
                values[lane] = cells[lane].extend().store();
            }
            lanes.write(registers[0], &values);
            return Ok(());
        }
        for (element, &register) in registers.iter().enumerate() {
            for lane in 0..WARP {
                values[lane] = ptr::read((addresses[lane] as *const C).add(element)).extend().store();
            }
            lanes.write(register, &values);
        }
        Ok(())
    }
}

access! {
    /// `[address] = data`: elements of type `C` from registers of type `R`.
    store<R: Lane, C: Extend<R>> takes [R::CLASS, R::CLASS, R::CLASS] |lanes, spaces, args| {
        let registers = args.elements();
        let bytes = size_of::<C>() as u64;
        let mut addresses = addresses(lanes, args);
        spaces.resolve(args.space, &mut addresses, lanes.mask, bytes * registers.len() as u64, true)?;
        if registers.len() == 1 && consecutive(&addresses, lanes.mask, bytes) {
            let mut cells = [C::default(); WARP];
            let values = lanes.source::<R::Stored>(registers[0]);
            for lane in 0..WARP {
                cells[lane] = C::cut(R::load(values[lane]));
            }
            ptr::write_unaligned(addresses[0] as *mut [C; WARP], cells);
            return Ok(());
        }
        for (element, &register) in registers.iter().enumerate() {
            let values = lanes.source::<R::Stored>(register);
            each_lane(lanes.mask, |lane| {
                ptr::write((addresses[lane] as *mut C).add(element), C::cut(R::load(values[lane])));
            });
        }
        Ok(())
    }
}

access! {
    /// `data = [address]`, each element atomically.
    load_strong<R: Lane, C: Extend<R>> takes [R::CLASS, R::CLASS, R::CLASS] |lanes, spaces, args| {
        let registers = args.elements();
        let mut addresses = addresses(lanes, args);
        let bytes = size_of::<C>() * registers.len();
        spaces.resolve(args.space, &mut addresses, lanes.mask, bytes as u64, false)?;
        let mut values = [R::Stored::default(); WARP];
        for (element, &register) in registers.iter().enumerate() {
            each_lane(lanes.mask, |lane| {
                values[lane] = C::load_strong((addresses[lane] as *mut C).add(element)).extend().store();
            });
            lanes.write(register, &values);
        }
        Ok(())
    }
}

access! {
    /// `[address] = data`, each element atomically.
    store_strong<R: Lane, C: Extend<R>> takes [R::CLASS, R::CLASS, R::CLASS] |lanes, spaces, args| {
        let registers = args.elements();
        let mut addresses = addresses(lanes, args);
        let bytes = size_of::<C>() * registers.len();
        spaces.resolve(args.space, &mut addresses, lanes.mask, bytes as u64, true)?;
        for (element, &register) in registers.iter().enumerate() {
            let values = lanes.source::<R::Stored>(register);
            each_lane(lanes.mask, |lane| {
                C::store_strong((addresses[lane] as *mut C).add(element), C::cut(R::load(values[lane])));
            });
        }
        Ok(())
    }
}

access! {
    /// `data[0], [address] = [address], f([address], operands)`, lane after lane.
    atomic<C: AtomicLane> (F: Fn(C, C, C) -> C) takes [C::CLASS, C::CLASS, C::CLASS] |lanes, spaces, args| {
        let mut addresses = addresses(lanes, args);
        spaces.resolve(args.space, &mut addresses, lanes.mask, size_of::<C>() as u64, true)?;
        let f = conjure::<F>();
        let b = lanes.source::<C::Stored>(args.operands[0]);
        let c = lanes.source::<C::Stored>(if args.operands[1].is_some() { args.operands[1] } else { args.operands[0] });
        let mut old = [C::Stored::default(); WARP];
        each_lane(lanes.mask, |lane| {
            let cell = addresses[lane] as *mut C;
            let update = |old| f(old, C::load(b[lane]), C::load(c[lane]));
            old[lane] = if args.space == Space::Shared {
                let value = ptr::read(cell);
                ptr::write(cell, update(value));
                value
            } else {
                C::update(cell, update)
            }
            .store();
        });
        if args.data[0].is_some() {
            lanes.write(args.data[0], &old);
        }
        Ok(())
    }
}

access! {
    /// `cp.async`: copies an element of type `C` from global memory at `operands[0]` to `address`; where
    /// `operands[1]` gives a smaller size, the rest is zero.
    copy<C: Copied> takes [Class::Word, Class::Long, Class::Word] |lanes, spaces, args| {
        let bytes = size_of::<C>();
        let mut destinations = addresses(lanes, args);
        spaces.resolve(args.space, &mut destinations, lanes.mask, bytes as u64, true)?;
        let mut sources = *lanes.source::<u64>(args.operands[0]);
        let sizes = args.operands[1].is_some().then(|| lanes.source::<u32>(args.operands[1]));
        let reading = match sizes {
            None => lanes.mask,
            Some(sizes) => (0..WARP).fold(0, |mask, lane| mask | u32::from(sizes[lane] != 0) << lane) & lanes.mask,
        };
        if reading != 0 {
            spaces.resolve(Space::Global, &mut sources, reading, bytes as u64, false)?;
        }
        each_lane(lanes.mask, |lane| {
            let size = sizes.map_or(bytes, |sizes| (sizes[lane] as usize).min(bytes));
            let destination = destinations[lane] as *mut u8;
            if size != 0 {
                ptr::copy_nonoverlapping(sources[lane] as *const u8, destination, size);
            }
            ptr::write_bytes(destination.add(size), 0, bytes - size);
        });
        Ok(())
    }
}
