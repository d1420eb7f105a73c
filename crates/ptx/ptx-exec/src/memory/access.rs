//! Loads, stores, atomics and copies, for all lanes of a warp at once.
//!
//! [`Spaces`] checks every access. Lanes that do not act borrow the address of one that does, so
//! loads run over all lanes unmasked.
//!
//! Weak accesses are plain reads and writes: where they race, PTX defines nothing either. Strong
//! ones (`volatile`, `relaxed`, `acquire`, `release`) and atomics on global memory are atomics of
//! the host, for blocks run on several threads: loads acquire, stores release, and what PTX orders
//! beyond that it orders by fences. Vectors that are strong, or cached at L2 alone (`.cg`), are
//! moved at once (`single_copy`). A block runs on one thread, so its shared memory needs none.
//!
//! # Safety
//!
//! An [`AccessHandler`] dereferences the registers that it takes, as a
//! [`LaneHandler`](crate::registers::handler::LaneHandler) does, and host addresses that [`Spaces`]
//! approved. The caller promises that the former are there, and that the windows in `Spaces` are
//! memory that nobody else accesses; [`Memory`](crate::Memory) promises the latter.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::memory::single_copy::{load_whole, store_whole};
use crate::memory::spaces::{Accessed, Spaces};
use crate::operands::{AccessArgs, AccessKind, Class, Reg, Space};
use crate::registers::lanes::{Lane, Lanes, Stored, WARP, each_lane, wide_vectors};
use crate::registers::pattern::PART;
use crate::registers::shapes::conjure;
use crate::registers::vectors::{Addresses, gather_longs, gather_words};

/// Performs one access of one warp. See the module's safety contract.
pub(crate) type RunAccess = unsafe fn(&Lanes, &mut Spaces, &AccessArgs) -> Accessed;

/// Performs one access of some warps, if that is [`regular`](Spaces::regular); else does nothing
/// and says so. See the module's safety contract.
pub(crate) type RunRegular = unsafe fn(&[Lanes], &mut Spaces, &AccessArgs) -> bool;

/// A way to perform an access, and the classes of the registers that it takes.
#[derive(Clone, Copy)]
pub(crate) struct AccessHandler {
    pub(crate) run: RunAccess,
    /// The faster way that loads and stores have.
    pub(crate) regular: Option<RunRegular>,
    /// The class of [`AccessArgs::data`].
    pub(crate) data: Class,
    /// The classes of [`AccessArgs::operands`].
    pub(crate) operands: [Class; 4],
}

impl AccessHandler {
    /// A handler that takes longs only.
    pub(crate) fn of_longs(run: RunAccess) -> Self {
        AccessHandler { run, regular: None, data: Class::Long, operands: [Class::Long; 4] }
    }

    /// A handler that takes words only.
    pub(crate) fn of_words(run: RunAccess) -> Self {
        AccessHandler { run, regular: None, data: Class::Word, operands: [Class::Word; 4] }
    }

    /// Whether the registers that `args` names have the classes that the handler takes.
    pub(crate) fn takes(&self, args: &AccessArgs, class: impl Fn(Reg) -> Class) -> bool {
        let fits = |reg: Reg, wanted: Class| !reg.is_some() || class(reg) == wanted;
        let address = if args.narrow { Class::Word } else { Class::Long };
        args.address.is_some()
            && fits(args.address, address)
            && args.data.iter().all(|&reg| fits(reg, self.data))
            && args.operands.iter().zip(self.operands).all(|(&reg, wanted)| fits(reg, wanted))
            && (matches!(
                args.kind,
                AccessKind::Atomic | AccessKind::Copy | AccessKind::Mbarrier | AccessKind::Bulk
            ) || args.data[0].is_some())
            && (matches!(args.kind, AccessKind::Load | AccessKind::Store) || args.operands[0].is_some())
    }
}

/// A value in memory.
pub(crate) trait Cell: Copy + Default {
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
            unsafe fn update(address: *mut Self, f: impl Fn(Self) -> Self) -> Self {
                // SAFETY: the caller's promise; the atomic has the layout of the integer.
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

impl AccessArgs {
    /// The registers of the vector.
    #[inline(always)]
    fn elements(&self) -> &[Reg] {
        let count = self.data.iter().position(|reg| !reg.is_some()).unwrap_or(self.data.len());
        &self.data[..count]
    }
}

/// A memory cell that a register takes: sign- or zero-extended to the register's width.
pub(crate) trait Extend<R: Lane>: Cell {
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
pub(crate) trait AtomicLane: Cell + Lane {}

impl<T: Cell + Lane> AtomicLane for T {}

/// A size that `cp.async` copies: 4, 8 or 16 bytes.
pub(crate) trait Copied {}

impl<const N: usize> Copied for [u8; N] {}

/// Defines a family of access handlers in two versions, as the shapes of `lanes` are.
macro_rules! access {
    ($(#[$doc:meta])* $name:ident<$($param:ident: $bound:path),*> $(($f:ident: $closure:path))?
     takes [$data:expr, $first:expr, $second:expr] |$lanes:ident, $spaces:ident, $args:ident| $body:block) => {
        $(#[$doc])*
        pub(crate) fn $name<$($param: $bound,)* $($f: $closure + Copy)?>($(_: $f)?) -> AccessHandler {
            /// # Safety
            /// See the module.
            unsafe fn plain<$($param: $bound,)* $($f: $closure + Copy)?>(
                $lanes: &Lanes,
                $spaces: &mut Spaces,
                $args: &AccessArgs,
            ) -> Accessed {
                // SAFETY: the caller's promise; addresses are used after `locate` has approved
                // them.
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
                // SAFETY: the caller's promise; addresses are used after `locate` has approved
                // them.
                unsafe { $body }
            }

            let (data, operands) = ($data, [$first, $second, $first, $second]);
            #[cfg(target_arch = "x86_64")]
            if wide_vectors() {
                return AccessHandler { run: wide::<$($param,)* $($f)?>, regular: None, data, operands };
            }
            AccessHandler { run: plain::<$($param,)* $($f)?>, regular: None, data, operands }
        }
    };
}

/// Elements of the longest vector.
const MOST_ELEMENTS: usize = 8;

/// Reads element `element` of a vector in each lane. Out of line, or the compiler keeps 32 values
/// in registers.
///
/// # Safety
/// The elements may be read.
#[inline(never)]
unsafe fn gather<R: Lane, C: Extend<R>>(
    addresses: &Addresses,
    element: usize,
    values: &mut [R::Stored; WARP],
) {
    let offset = element * size_of::<C>();
    // Cells that fill their lane need no extension, only to be moved.
    match (size_of::<C>(), size_of::<R::Stored>()) {
        (4, 4) => {
            let values = ptr::from_mut(values).cast::<[u32; WARP]>();
            // SAFETY: the caller's promise; `values` are 32 lanes of 32 bits.
            return unsafe { values.write(gather_words(addresses, offset)) };
        }
        (8, 8) => {
            let values = ptr::from_mut(values).cast::<[u64; WARP]>();
            // SAFETY: the caller's promise; `values` are 32 lanes of 64 bits.
            return unsafe { values.write(gather_longs(addresses, offset)) };
        }
        _ => {}
    }
    for (value, &address) in values.iter_mut().zip(addresses) {
        // SAFETY: the caller's promise.
        *value = unsafe { ptr::read((address as *const C).add(element)) }.extend().store();
    }
}

access! {
    /// `data = [address]`: elements of type `C` into registers of type `R`, from anywhere, in any
    /// lanes.
    load_scattered<R: Lane, C: Extend<R>> takes [R::CLASS, R::CLASS, R::CLASS] |lanes, spaces, args| {
        let registers = args.elements();
        let bytes = size_of::<C>() * registers.len();
        let mut addresses = [0; WARP];
        spaces.locate(lanes, args, bytes as u64, false, &mut addresses)?;
        for (element, &register) in registers.iter().enumerate() {
            let mut values = [R::Stored::default(); WARP];
            gather::<R, C>(&addresses, element, &mut values);
            lanes.write(register, &values);
        }
        Ok(())
    }
}

access! {
    /// `[address] = data`: elements of type `C` from registers of type `R`, to anywhere, from any
    /// lanes.
    store_scattered<R: Lane, C: Extend<R>> takes [R::CLASS, R::CLASS, R::CLASS] |lanes, spaces, args| {
        let registers = args.elements();
        let bytes = size_of::<C>() * registers.len();
        let mut addresses = [0; WARP];
        spaces.locate(lanes, args, bytes as u64, true, &mut addresses)?;
        for (element, &register) in registers.iter().enumerate() {
            let values = lanes.source::<R::Stored>(register);
            each_lane(lanes.mask, |lane| {
                ptr::write((addresses[lane] as *mut C).add(element), C::cut(R::load(values[lane])));
            });
        }
        Ok(())
    }
}

/// Defines the regular way of an access handler in two versions.
macro_rules! regular {
    ($(#[$doc:meta])* $name:ident = $scattered:ident and |$warps:ident, $spaces:ident, $args:ident| $body:block) => {
        $(#[$doc])*
        pub(crate) fn $name<R: Lane, C: Extend<R>>() -> AccessHandler {
            /// # Safety
            /// See the module.
            unsafe fn plain<R: Lane, C: Extend<R>>(
                $warps: &[Lanes],
                $spaces: &mut Spaces,
                $args: &AccessArgs,
            ) -> bool {
                // SAFETY: the caller's promise; addresses are used after `regular` has approved
                // them.
                unsafe { $body }
            }

            /// # Safety
            /// See the module.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
            unsafe fn wide<R: Lane, C: Extend<R>>(
                $warps: &[Lanes],
                $spaces: &mut Spaces,
                $args: &AccessArgs,
            ) -> bool {
                // SAFETY: the caller's promise; addresses are used after `regular` has approved
                // them.
                unsafe { $body }
            }

            let scattered = $scattered::<R, C>();
            #[cfg(target_arch = "x86_64")]
            if wide_vectors() {
                return AccessHandler { regular: Some(wide::<R, C>), ..scattered };
            }
            AccessHandler { regular: Some(plain::<R, C>), ..scattered }
        }
    };
}

/// Bytes that memory and cache exchange.
const CACHE_LINE: usize = 64;

/// Has memory brought into the cache, wherever the address points.
#[inline(always)]
fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accesses nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
}

/// The cells that the lanes of a part access, one after the other. Each is read on its own, for the
/// compiler takes an array of bytes apart with shifts, but makes one vector of such loads.
///
/// # Safety
/// They may be read.
#[inline(always)]
unsafe fn adjacent<R: Lane, C: Extend<R>>(first: *const C) -> [R::Stored; PART] {
    let mut values = [R::Stored::default(); PART];
    for (lane, value) in values.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *value = unsafe { ptr::read_unaligned(first.add(lane)) }.extend().store();
    }
    values
}

/// The cells that the lanes of a part access, each `step` bytes from the one before it.
///
/// # Safety
/// They may be read.
#[inline(always)]
unsafe fn strided<R: Lane, C: Extend<R>>(first: u64, step: u64) -> [R::Stored; PART] {
    R::Stored::part(|lane| {
        let at = first.wrapping_add(step.wrapping_mul(lane as u64));
        // SAFETY: the caller's promise.
        unsafe { ptr::read(at as *const C) }.extend().store()
    })
}

regular! {
    /// `data = [address]`: elements of type `C` into registers of type `R`.
    load = load_scattered and |warps, spaces, args| {
        let registers = args.elements();
        let bytes = (size_of::<C>() * registers.len()) as u64;
        let Some(regular) = spaces.regular(warps, args, bytes, false) else { return false };
        let (consecutive, ahead) = (regular.step == size_of::<C>() as u64, regular.ahead(warps.len()));
        let mut distance = 0;
        for lanes in warps {
            for (part, first) in regular.first.into_iter().enumerate() {
                let from = first.wrapping_add(distance) as *const C;
                let begins_line = part * size_of::<[C; PART]>() % CACHE_LINE == 0;
                if consecutive && begins_line && args.space != Space::Shared {
                    prefetch(from.wrapping_byte_add(ahead));
                }
                for (element, &register) in registers.iter().enumerate() {
                    let from = from.add(element);
                    // Written in each branch: values that come from several are put together from
                    // scalars.
                    if consecutive {
                        lanes.write_part(register, part, adjacent::<R, C>(from));
                    } else if regular.step == 0 {
                        lanes.write_part(register, part, [ptr::read(from).extend().store(); PART]);
                    } else {
                        lanes.write_part(register, part, strided::<R, C>(from as u64, regular.step));
                    }
                }
            }
            distance = distance.wrapping_add(regular.between);
        }
        true
    }
}

regular! {
    /// `[address] = data`: elements of type `C` from registers of type `R`.
    store = store_scattered and |warps, spaces, args| {
        let registers = args.elements();
        let bytes = (size_of::<C>() * registers.len()) as u64;
        let regular = spaces.regular(warps, args, bytes, true);
        let Some(regular) = regular.filter(|regular| regular.step != 0) else { return false };
        let consecutive = regular.step == size_of::<C>() as u64;
        let mut distance = 0;
        for lanes in warps {
            for (element, &register) in registers.iter().enumerate() {
                let values = lanes.source::<R::Stored>(register);
                for (part, first) in regular.first.into_iter().enumerate() {
                    let to = (first.wrapping_add(distance) as *mut C).add(element);
                    let mut cells = [C::default(); PART];
                    for lane in 0..PART {
                        cells[lane] = C::cut(R::load(values[part * PART + lane]));
                    }
                    if consecutive {
                        ptr::write_unaligned(to.cast::<[C; PART]>(), cells);
                    } else {
                        for (lane, &cell) in cells.iter().enumerate() {
                            ptr::write(to.wrapping_byte_add((regular.step as usize).wrapping_mul(lane)), cell);
                        }
                    }
                }
            }
            distance = distance.wrapping_add(regular.between);
        }
        true
    }
}

access! {
    /// `data = [address]`, a vector of up to 16 bytes at once (see [`load_whole`]).
    load_strong<R: Lane, C: Extend<R>> takes [R::CLASS, R::CLASS, R::CLASS] |lanes, spaces, args| {
        let registers = args.elements();
        let bytes = size_of::<C>() * registers.len();
        let mut addresses = [0; WARP];
        spaces.locate(lanes, args, bytes as u64, false, &mut addresses)?;
        let mut values = [[R::Stored::default(); WARP]; MOST_ELEMENTS];
        each_lane(lanes.mask, |lane| {
            let mut cells = [C::default(); MOST_ELEMENTS];
            load_whole(addresses[lane] as *const u8, cells.as_mut_ptr().cast(), bytes);
            for (values, cell) in values.iter_mut().zip(cells).take(registers.len()) {
                values[lane] = cell.extend().store();
            }
        });
        for (&register, values) in registers.iter().zip(&values) {
            lanes.write(register, values);
        }
        Ok(())
    }
}

access! {
    /// `[address] = data`, a vector of up to 16 bytes at once (see [`store_whole`]).
    store_strong<R: Lane, C: Extend<R>> takes [R::CLASS, R::CLASS, R::CLASS] |lanes, spaces, args| {
        let registers = args.elements();
        let bytes = size_of::<C>() * registers.len();
        let mut addresses = [0; WARP];
        spaces.locate(lanes, args, bytes as u64, true, &mut addresses)?;
        each_lane(lanes.mask, |lane| {
            let mut cells = [C::default(); MOST_ELEMENTS];
            for (cell, &register) in cells.iter_mut().zip(registers) {
                *cell = C::cut(R::load(lanes.source::<R::Stored>(register)[lane]));
            }
            store_whole(addresses[lane] as *mut u8, cells.as_ptr().cast(), bytes);
        });
        Ok(())
    }
}

access! {
    /// `data[0], [address] = [address], f([address], operands)`, lane after lane.
    atomic<C: AtomicLane> (F: Fn(C, C, C) -> C) takes [C::CLASS, C::CLASS, C::CLASS] |lanes, spaces, args| {
        let mut addresses = [0; WARP];
        spaces.locate(lanes, args, size_of::<C>() as u64, true, &mut addresses)?;
        let f = conjure::<F>();
        let b = lanes.source::<C::Stored>(args.operands[0]);
        let c = lanes.source::<C::Stored>(if args.operands[1].is_some() { args.operands[1] } else { args.operands[0] });
        let mut old = [C::Stored::default(); WARP];
        each_lane(lanes.mask, |lane| {
            let cell = addresses[lane] as *mut C;
            let update = |old| f(old, C::load(b[lane]), C::load(c[lane]));
            let before = if args.space == Space::Shared {
                let value = ptr::read(cell);
                ptr::write(cell, update(value));
                value
            } else {
                C::update(cell, update)
            };
            old[lane] = before.store();
        });
        if args.data[0].is_some() {
            lanes.write(args.data[0], &old);
        }
        Ok(())
    }
}

/// An access that only asks whether `bytes` bytes (4 to 32) may be read there; its result is 0.
pub(crate) fn probe(bytes: u64) -> Option<AccessHandler> {
    /// # Safety
    /// See the module.
    unsafe fn run<const BYTES: u64>(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
        // SAFETY: the caller's promise.
        unsafe {
            spaces.locate(lanes, args, BYTES, false, &mut [0; WARP])?;
            lanes.write(args.data[0], &[0u32; WARP]);
        }
        Ok(())
    }
    Some(AccessHandler::of_words(match bytes {
        4 => run::<4>,
        8 => run::<8>,
        16 => run::<16>,
        32 => run::<32>,
        _ => return None,
    }))
}

access! {
    /// `cp.async`: copies an element of type `C` from global memory at `operands[0]` to `address`;
    /// where `operands[1]` gives a smaller size, the rest is zero.
    copy<C: Copied> takes [Class::Word, Class::Long, Class::Word] |lanes, spaces, args| {
        let bytes = size_of::<C>();
        let mut destinations = [0; WARP];
        spaces.locate(lanes, args, bytes as u64, true, &mut destinations)?;
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
