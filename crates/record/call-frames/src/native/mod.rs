//! Frames of compiled code, unwound by the tables that compilers write for exceptions
//! (`.eh_frame`).
//!
//! Chains are followed for a bounded number of steps, and each frame must lie above the one that it
//! called. A table that is wrong gives frames that are wrong, or none; never a fault. Where there
//! is no table, the stack ends.

mod bytes;
mod row;
mod table;

pub use bytes::StackWindow;
pub use row::{Cfa, Rule};
pub use table::{Buffers, Row, row};

use crate::memory::Memory;
use std::arch::asm;

/// Registers by their numbers in DWARF's tables for x86-64.
pub const REGISTERS: usize = 17;
/// One of those that functions save for their callers.
pub const RBX: usize = 3;
/// Another one.
pub const RBP: usize = 6;
/// The stack pointer.
pub const RSP: usize = 7;
/// The first of four that functions save for their callers.
pub const R12: usize = 12;
/// The number of the return address among the registers.
pub const RIP: usize = 16;

/// The registers of a function that go on in its caller.
#[derive(Clone, Copy)]
pub struct Registers(pub [u64; REGISTERS]);

impl Registers {
    /// Returns the registers of the function that this is inlined into, here.
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

    /// Returns the registers of a thread of which only the stack pointer and the instruction are
    /// known. Unwinding ends where another register decides that no function in between has saved.
    pub fn of_stack(stack: u64, instruction: u64) -> Registers {
        let mut all = [0; REGISTERS];
        (all[RSP], all[RIP]) = (stack, instruction);
        Registers(all)
    }
}

/// A file that is loaded into a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loaded {
    /// The difference between addresses in memory and in the file.
    pub base: u64,
    /// The first address that it takes.
    pub start: u64,
    /// The first one behind it.
    pub end: u64,
    /// The address of the list of its functions' unwinding tables; 0 if it has none.
    pub list: u64,
    /// The source of its name: an address, or an index.
    pub name: u64,
}

impl Loaded {
    /// Whether the address is in it.
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// All of it.
    pub fn words(&self) -> [u64; 5] {
        [self.base, self.start, self.end, self.list, self.name]
    }
}

/// The loaded files, and the rows of their tables.
pub trait Tables {
    /// The file that holds an address.
    fn holding(&self, address: u64) -> Option<Loaded>;
    /// The row of an address in a file, as it is remembered or as [`row`] reads it.
    fn row<'b>(&self, module: &Loaded, address: u64, buffers: &'b mut Buffers) -> Option<Row<'b>>;
}

/// Unwinds a stack from the function on whose registers these are, for at most `most` frames.
/// `each` gets each frame's file and an address inside of its call instruction, innermost first,
/// until it returns false.
pub fn unwind(
    memory: &Memory,
    registers: Registers,
    tables: &impl Tables,
    most: usize,
    each: impl FnMut(&Loaded, u64) -> bool,
) {
    let mut stack = StackWindow::default();
    unwind_on(&mut |address| stack.word(memory, address), registers, tables, most, each);
}

/// As [`unwind`], on a stack whose words `word` gives: a copy of it, for instance.
pub fn unwind_on(
    word: &mut dyn FnMut(u64) -> Option<u64>,
    mut registers: Registers,
    tables: &impl Tables,
    most: usize,
    mut each: impl FnMut(&Loaded, u64) -> bool,
) {
    let mut buffers = Buffers::default();
    let mut module = None;
    // A return address may be the first one of the next function.
    let mut behind = 0;
    for _ in 0..most {
        let address = registers.0[RIP].wrapping_sub(behind);
        let known = module.filter(|known: &Loaded| known.holds(address));
        let Some(loaded) = known.or_else(|| tables.holding(address)) else { return };
        module = Some(loaded);
        if !each(&loaded, address) {
            return;
        }
        let Some(row) = tables.row(&loaded, address, &mut buffers) else { return };
        behind = u64::from(!row.is_of_signal);
        match row.caller(&registers, word) {
            Some(caller) => registers = caller,
            None => return,
        }
    }
}

impl Row<'_> {
    /// The registers of the caller, on a stack whose words `word` gives; `None` for an outermost
    /// frame, and where the row cannot be followed.
    pub fn caller(
        &self,
        registers: &Registers,
        mut word: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<Registers> {
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
