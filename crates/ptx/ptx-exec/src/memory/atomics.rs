//! Atomics that [`access::atomic`](crate::memory::access::atomic) does not cover: 128 bits wide, or
//! dependent on where the address points.
//!
//! # Safety
//!
//! As for the handlers of [`access`](crate::memory::access): the frame has the registers that the
//! arguments name, and addresses are used after [`Spaces::locate`] has approved them.

use crate::memory::access::{AccessHandler, Cell};
use crate::memory::single_copy::{read128, update128};
use crate::memory::spaces::{Accessed, Spaces};
use crate::operands::{AccessArgs, Reg};
use crate::registers::lanes::{Lanes, WARP, each_lane};
use crate::registers::shapes::conjure;

/// The two registers of a 128-bit value in each lane.
///
/// # Safety
/// The frame has both, longs.
unsafe fn value(lanes: &Lanes, low: Reg, high: Reg) -> [u128; WARP] {
    // SAFETY: the caller's promise.
    let (low, high) = unsafe { (lanes.source::<u64>(low), lanes.source::<u64>(high)) };
    std::array::from_fn(|lane| u128::from(low[lane]) | u128::from(high[lane]) << 64)
}

/// Lets `f(lane, old)` change 128 bits in each lane; the old ones go to `data`, if there are
/// registers.
///
/// # Safety
/// See the module.
unsafe fn update_lanes(
    lanes: &Lanes,
    spaces: &mut Spaces,
    args: &AccessArgs,
    f: impl Fn(usize, u128) -> u128,
) -> Accessed {
    let mut addresses = [0; WARP];
    // SAFETY: the caller's promise; `locate` approves 16 aligned bytes for each lane.
    unsafe {
        spaces.locate(lanes, args, 16, true, &mut addresses)?;
        let (mut low, mut high) = ([0; WARP], [0; WARP]);
        each_lane(lanes.mask, |lane| {
            let old = update128(addresses[lane] as *mut u128, |old| f(lane, old));
            (low[lane], high[lane]) = (old as u64, (old >> 64) as u64);
        });
        if args.data[0].is_some() {
            lanes.write(args.data[0], &low);
            lanes.write(args.data[1], &high);
        }
    }
    Ok(())
}

/// `atom.exch.b128`, and strong stores: `operands` are the halves of the new value.
pub(crate) fn exchange128() -> AccessHandler {
    /// # Safety
    /// See the module.
    unsafe fn run(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
        // SAFETY: the caller's promise.
        unsafe {
            let new = value(lanes, args.operands[0], args.operands[1]);
            update_lanes(lanes, spaces, args, |lane, _| new[lane])
        }
    }
    AccessHandler::of_longs(run)
}

/// `atom.cas.b128`: `operands` are the halves of the value that is compared, then of the new one.
pub(crate) fn compare_and_swap128() -> AccessHandler {
    /// # Safety
    /// See the module.
    unsafe fn run(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
        // SAFETY: the caller's promise.
        unsafe {
            let expected = value(lanes, args.operands[0], args.operands[1]);
            let new = value(lanes, args.operands[2], args.operands[3]);
            update_lanes(lanes, spaces, args, |lane, old| if old == expected[lane] { new[lane] } else { old })
        }
    }
    AccessHandler::of_longs(run)
}

/// A strong load of 128 bits into `data[0]` and `data[1]`.
pub(crate) fn load128() -> AccessHandler {
    /// # Safety
    /// See the module.
    unsafe fn run(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed {
        let mut addresses = [0; WARP];
        // SAFETY: the caller's promise; `locate` approves 16 aligned bytes for each lane.
        unsafe {
            spaces.locate(lanes, args, 16, false, &mut addresses)?;
            let (mut low, mut high) = ([0; WARP], [0; WARP]);
            each_lane(lanes.mask, |lane| {
                let now = read128(addresses[lane] as *const u128);
                (low[lane], high[lane]) = (now as u64, (now >> 64) as u64);
            });
            lanes.write(args.data[0], &low);
            lanes.write(args.data[1], &high);
        }
        Ok(())
    }
    AccessHandler::of_longs(run)
}

/// An atomic on words that computes `f(old, operand)` in shared memory, and `g(old, operand)`
/// everywhere else.
pub(crate) fn by_place<F, G>(_: F, _: G) -> AccessHandler
where
    F: Fn(u32, u32) -> u32 + Copy,
    G: Fn(u32, u32) -> u32 + Copy,
{
    /// # Safety
    /// See the module. Values of `F` and `G` exist, for `by_place` was given them.
    unsafe fn run<F, G>(lanes: &Lanes, spaces: &mut Spaces, args: &AccessArgs) -> Accessed
    where
        F: Fn(u32, u32) -> u32 + Copy,
        G: Fn(u32, u32) -> u32 + Copy,
    {
        let mut addresses = [0; WARP];
        // SAFETY: the caller's promise; `locate` approves the addresses.
        unsafe {
            spaces.locate(lanes, args, 4, true, &mut addresses)?;
            let (f, g) = (conjure::<F>(), conjure::<G>());
            let operands = lanes.source::<u32>(args.operands[0]);
            let mut old = [0; WARP];
            each_lane(lanes.mask, |lane| {
                let cell = addresses[lane] as *mut u32;
                old[lane] = match spaces.is_shared(addresses[lane]) {
                    true => u32::update(cell, |old| f(old, operands[lane])),
                    false => u32::update(cell, |old| g(old, operands[lane])),
                };
            });
            if args.data[0].is_some() {
                lanes.write(args.data[0], &old);
            }
        }
        Ok(())
    }
    AccessHandler::of_words(run::<F, G>)
}
