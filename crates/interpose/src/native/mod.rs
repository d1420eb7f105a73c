//! The frames of compiled code in which the calling thread makes a driver call.
//!
//! They are unwound by the tables that compilers write for exceptions (`.eh_frame`), as
//! `_Unwind_Backtrace` does. That function takes what the tables and the stack hold on trust: a
//! wrong table (hand-written assembly, code made at run time) leads it to addresses where nothing
//! is, and ends the program. Hence the same contract as in [`crate::python`]: **nothing of the
//! program is dereferenced**. The kernel copies every byte ([`crate::memory`]), chains are followed
//! for a bounded number of steps, and each frame must lie above the one that it called. A table
//! that is wrong gives frames that are wrong, or none; never a fault. Where there is no table, the
//! stack ends.
//!
//! No lock of the dynamic linker is waited for where glibc (2.35 and later) tells what an address
//! belongs to without one; before, `dl_iterate_phdr` holds the lock that is held while the list of
//! libraries changes, and never while a library's constructors run ([`modules`]).

mod bytes;
#[cfg(test)]
mod judge;
mod modules;
mod row;
mod row_cache;
mod table;

pub use modules::{Identity, Loaded};
pub use row_cache::BYTES;

use crate::memory::Memory;
use bytes::StackWindow;
use modules::Modules;
use row::{Cfa, Rule};
use row_cache::RowCache;
use std::arch::asm;
use table::{Buffers, Row};

/// Most frames of a stack that are kept, the innermost ones.
pub const MOST: usize = 64;

/// Registers by their numbers in DWARF's tables for x86-64.
const REGISTERS: usize = 17;
const RBX: usize = 3;
const RBP: usize = 6;
const RSP: usize = 7;
const R12: usize = 12;
/// Where the return address stands.
const RIP: usize = 16;

/// The registers of a function that go on in its caller.
#[derive(Clone, Copy)]
pub struct Registers([u64; REGISTERS]);

impl Registers {
    /// Those of the function that this is inlined into, here.
    #[inline(always)]
    pub fn here() -> Registers {
        let mut saved = [0u64; 8];
        // SAFETY: stores into `saved`, which has room for eight registers; the stack is not used.
        unsafe {
            asm!(
                "mov [{to}], rbx",
                "mov [{to} + 8], rbp",
                "mov [{to} + 16], rsp",
                "mov [{to} + 24], r12",
                "mov [{to} + 32], r13",
                "mov [{to} + 40], r14",
                "mov [{to} + 48], r15",
                "lea {here}, [rip]",
                "mov [{to} + 56], {here}",
                to = in(reg) saved.as_mut_ptr(),
                here = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
        let mut all = [0; REGISTERS];
        (all[RBX], all[RBP], all[RSP], all[RIP]) = (saved[0], saved[1], saved[2], saved[7]);
        all[R12..RIP].copy_from_slice(&saved[3..7]);
        Registers(all)
    }
}

/// A frame.
#[derive(Clone, Copy)]
pub struct Frame {
    /// What holds its code.
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
    pub fn frames(&self, mut registers: Registers, until: Option<u64>) -> Frames {
        let mut found = Frames { frames: [None; MOST], count: 0 };
        let (mut stack, mut buffers) = (StackWindow::new(), Buffers::new());
        let mut module = None;
        // A return address may be the first one of the next function.
        let mut behind = 0;
        // Frames of this library are not kept; they are few.
        for _ in 0..2 * MOST {
            let address = registers.0[RIP].wrapping_sub(behind);
            let known = module.filter(|known: &Loaded| known.holds(address));
            let Some(loaded) = known.or_else(|| self.modules.holding(&self.memory, address)) else { break };
            module = Some(loaded);
            if until.is_some_and(|until| loaded.holds(until)) {
                break;
            }
            if !loaded.holds(self.own)
                && !found.push(Frame { module: loaded, address: address.wrapping_sub(loaded.base) })
            {
                break;
            }
            let Some(row) = self.row(&loaded, address, &mut buffers) else { break };
            behind = u64::from(!row.is_of_signal);
            match row.caller(&registers, &mut stack, &self.memory) {
                Some(caller) => registers = caller,
                None => break,
            }
        }
        found
    }

    /// The row of `address` in `module`, as it is known or as the module's tables say.
    fn row<'b>(&self, module: &Loaded, address: u64, buffers: &'b mut Buffers) -> Option<Row<'b>> {
        if let Some(known) = self.rows.find(module, address) {
            return Some(known);
        }
        let row = table::row(&self.memory, module, address, buffers)?;
        self.rows.keep(module, address, &row);
        Some(row)
    }

    /// What tells a module's file from others, and its path.
    pub fn identity(&self, module: &Loaded) -> Identity {
        Identity::of(&self.memory, module)
    }
}

/// The frames of a stack.
pub struct Frames {
    frames: [Option<Frame>; MOST],
    count: usize,
}

impl Frames {
    /// How many were found.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Those that were found.
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

impl Row<'_> {
    /// The registers of the caller; `None` for an outermost frame, and where the row cannot be
    /// followed.
    fn caller(&self, registers: &Registers, stack: &mut StackWindow, memory: &Memory) -> Option<Registers> {
        let mut word = |address| stack.word(memory, address);
        let frame = match self.cfa {
            Cfa::Unknown => return None,
            Cfa::Register(number, offset) => registers.0.get(number)?.wrapping_add_signed(offset),
            Cfa::Expression(code) => row::evaluate(code, &registers.0, None, &mut word)?,
        };
        // A signal handler may run on a stack of its own.
        if frame <= registers.0[RSP] && !self.is_of_signal {
            return None;
        }
        let mut caller = *registers;
        caller.0[RSP] = frame;
        for (number, rule) in self.rules.iter().enumerate() {
            caller.0[number] = match *rule {
                Rule::Same if number == RIP => return None,
                Rule::Undefined if number == RIP => return None,
                Rule::Same | Rule::Undefined => continue,
                Rule::At(offset) => word(frame.wrapping_add_signed(offset))?,
                Rule::Value(offset) => frame.wrapping_add_signed(offset),
                Rule::Register(other) => *registers.0.get(other)?,
                Rule::AtExpression(code) => {
                    let address = row::evaluate(code, &registers.0, Some(frame), &mut word)?;
                    word(address)?
                }
                Rule::ValueExpression(code) => row::evaluate(code, &registers.0, Some(frame), &mut word)?,
            };
        }
        (caller.0[RIP] != 0).then_some(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
