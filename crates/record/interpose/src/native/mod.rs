//! The frames of compiled code in which the calling thread makes a driver call.
//!
//! They are unwound by the tables that compilers write for exceptions (`.eh_frame`), as
//! `_Unwind_Backtrace` does. That function takes what the tables and the stack hold on trust: a
//! wrong table (hand-written assembly, code made at run time) leads it to addresses where nothing
//! is, and ends the program. Hence the same contract as in [`crate::python`]: **nothing of the
//! program is dereferenced**. The kernel copies every byte ([`apex_call_frames::memory`]), chains
//! are followed for a bounded number of steps, and each frame must lie above the one that it
//! called. A table that is wrong gives frames that are wrong, or none; never a fault. Where there
//! is no table, the stack ends.
//!
//! No lock of the dynamic linker is waited for where glibc (2.35 and later) tells what an address
//! belongs to without one; before, `dl_iterate_phdr` holds the lock that is held while the list of
//! libraries changes, and never while a library's constructors run ([`modules`]).

#[cfg(test)]
mod judge;
mod modules;
mod row_cache;

pub use apex_call_frames::native::{Loaded, Registers};
pub use modules::Identity;
pub use row_cache::BYTES;

use apex_call_frames::memory::Memory;
use apex_call_frames::native::{Buffers, Row, Tables, row, unwind};
use modules::Modules;
use row_cache::RowCache;

/// Most frames of a stack that are kept, the innermost ones.
pub const MOST: usize = 64;

/// A frame.
#[derive(Clone, Copy)]
pub struct Frame {
    /// The module that holds its code.
    pub module: Loaded,
    /// An address inside of the call instruction, less the module's base.
    pub address: u64,
}

/// Unwinds stacks of this process.
pub struct Unwinder {
    memory: Memory,
    modules: Modules,
    rows: RowCache,
    /// An address in this library, whose frames are left out.
    own: u64,
}

impl Unwinder {
    /// For the calling process; a forked child needs another one.
    pub fn of_this_process() -> Unwinder {
        let own = Unwinder::of_this_process as *const () as u64;
        Unwinder { memory: Memory::of_this_process(), modules: Modules::new(), rows: RowCache::new(), own }
    }

    /// The frames of the calling thread, innermost first, from the function on whose registers
    /// these are, which is still running. Ends where a module holds the address `until`.
    pub fn frames(&self, registers: Registers, until: Option<u64>) -> Frames {
        let mut found = Frames { frames: [None; MOST], count: 0 };
        // Frames of this library are not kept; they are few.
        unwind(&self.memory, registers, self, 2 * MOST, |loaded, address| {
            if until.is_some_and(|until| loaded.holds(until)) {
                return false;
            }
            let frame = Frame { module: *loaded, address: address.wrapping_sub(loaded.base) };
            loaded.holds(self.own) || found.push(frame)
        });
        found
    }

    /// Returns the identity of a module's file, and its path.
    pub fn identity(&self, module: &Loaded) -> Identity {
        Identity::of(&self.memory, module)
    }
}

impl Tables for Unwinder {
    fn holding(&self, address: u64) -> Option<Loaded> {
        self.modules.holding(&self.memory, address)
    }

    fn row<'b>(&self, module: &Loaded, address: u64, buffers: &'b mut Buffers) -> Option<Row<'b>> {
        if let Some(known) = self.rows.find(module, address) {
            return Some(known);
        }
        let row = row(&self.memory, module, address, buffers)?;
        self.rows.keep(module, address, &row);
        Some(row)
    }
}

/// The frames of a stack.
pub struct Frames {
    frames: [Option<Frame>; MOST],
    count: usize,
}

impl Frames {
    /// Returns the number of frames found.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the frames that were found.
    pub fn found(&self) -> impl Iterator<Item = &Frame> {
        self.frames[..self.count].iter().flatten()
    }

    /// Adds one; false if there is no room.
    fn push(&mut self, frame: Frame) -> bool {
        let Some(place) = self.frames.get_mut(self.count) else { return false };
        *place = Some(frame);
        self.count += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_call_frames::native::{RBP, RIP, RSP};
    use apex_random::Random;
    use std::hint::black_box;

    #[inline(never)]
    fn inner(unwinder: &Unwinder) -> Vec<u64> {
        let frames = unwinder.frames(Registers::here(), None);
        black_box(frames.found().map(|frame| frame.address + frame.module.base).collect())
    }

    #[inline(never)]
    fn outer(unwinder: &Unwinder, depth: usize) -> Vec<u64> {
        black_box(if depth == 0 { inner(unwinder) } else { outer(unwinder, depth - 1) })
    }

    /// An unwinder that takes nothing for its own, since all of this test is in one module.
    fn unwinder() -> Unwinder {
        Unwinder { own: 0, ..Unwinder::of_this_process() }
    }

    #[test]
    fn the_frames_are_those_that_the_systems_unwinder_finds() {
        #[allow(clippy::items_after_statements, reason = "the system's unwinder is for this test alone")]
        unsafe extern "C" {
            fn backtrace(to: *mut *mut std::ffi::c_void, most: i32) -> i32;
        }
        #[inline(never)]
        fn both(unwinder: &Unwinder) -> (Vec<u64>, Vec<u64>) {
            let mut theirs = [std::ptr::null_mut(); MOST];
            // SAFETY: room for as many as it says.
            let count = unsafe { backtrace(theirs.as_mut_ptr(), MOST as i32) } as usize;
            let frames = unwinder.frames(Registers::here(), None);
            let ours = frames.found().map(|frame| frame.address + frame.module.base).collect();
            (black_box(ours), theirs[..count].iter().map(|&address| address as u64).collect())
        }
        let (ours, theirs) = both(&unwinder());
        assert!(ours.len() > 5, "{} frames", ours.len());
        // The innermost one was asked at two places.
        let theirs: Vec<_> = theirs.iter().skip(1).map(|address| address - 1).collect();
        assert_eq!(ours[1..], theirs[..ours.len() - 1]);
    }

    #[test]
    fn deep_stacks_are_cut() {
        let unwinder = unwinder();
        let found = outer(&unwinder, 200);
        assert_eq!(found.len(), MOST);
        assert!(outer(&unwinder, 3).len() < MOST);
    }

    #[test]
    fn garbage_for_registers_gives_no_fault() {
        let unwinder = unwinder();
        let here = Registers::here();
        let mut random = Random::new(1);
        let mut next = || random.bits() >> 7;
        for round in 0..20_000 {
            let mut registers = here;
            match round % 3 {
                0 => registers.0.iter_mut().for_each(|register| *register = next() << 7),
                1 => registers.0[RIP] = registers.0[RIP].wrapping_add(next() % 100_000),
                _ => {
                    registers.0[RSP] = registers.0[RSP].wrapping_add(next() % 4096);
                    registers.0[RBP] = next();
                }
            }
            black_box(unwinder.frames(registers, None).count());
        }
    }
}
