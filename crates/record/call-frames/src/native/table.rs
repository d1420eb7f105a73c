//! Finds the row of an address in a module's unwinding tables.
//!
//! `.eh_frame_hdr` lists the functions of a module in the order of their addresses, each with the
//! place of its description in `.eh_frame`. A description is a short program that builds the rows
//! of the function one after the other; it begins with the program that many functions have in
//! common.

use super::Loaded;
use super::REGISTERS;
use super::bytes::Bytes;
use super::row::{Cfa, Rule};
use crate::memory::Memory;

/// Most bytes of an entry that is read.
const ENTRY_BYTES: usize = 2048;
/// Functions of the list that are copied at once.
const BLOCK: usize = 128;
/// Bytes of a function in the list.
const LISTED_BYTES: usize = 8;
/// The list's header: its version, and how it writes the table's address, the number of functions,
/// and their addresses. Linkers write no other.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEADER_BYTES: usize = 12;
/// Most rows that a program puts aside.
const ASIDE: usize = 4;

/// The rules by which the caller's registers follow from a function's own, at one address.
#[derive(Clone, Copy, Debug)]
pub struct Row<'b> {
    /// The stack pointer before the call.
    pub cfa: Cfa<'b>,
    /// By register.
    pub rules: [Rule<'b>; REGISTERS],
    /// Whether a signal and no call led here.
    pub is_of_signal: bool,
}

impl Row<'_> {
    const EMPTY: Self = Row { cfa: Cfa::Unknown, rules: [Rule::Same; REGISTERS], is_of_signal: false };

    /// The same row without what it borrows; `None` if it has expressions.
    pub fn to_static(&self) -> Option<Row<'static>> {
        let cfa = match self.cfa {
            Cfa::Unknown => Cfa::Unknown,
            Cfa::Register(number, offset) => Cfa::Register(number, offset),
            Cfa::Expression(_) => return None,
        };
        let mut row = Row { cfa, is_of_signal: self.is_of_signal, ..Row::EMPTY };
        for (place, rule) in row.rules.iter_mut().zip(&self.rules) {
            *place = match *rule {
                Rule::Same => Rule::Same,
                Rule::Undefined => Rule::Undefined,
                Rule::At(offset) => Rule::At(offset),
                Rule::Value(offset) => Rule::Value(offset),
                Rule::Register(other) => Rule::Register(other),
                Rule::AtExpression(_) | Rule::ValueExpression(_) => return None,
            };
        }
        Some(row)
    }
}

/// Copies of what a row is made from.
pub struct Buffers {
    common: Entry,
    function: Entry,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers { common: Entry::EMPTY, function: Entry::EMPTY }
    }
}

/// An entry of `.eh_frame`.
struct Entry {
    bytes: [u8; ENTRY_BYTES],
    /// The address of its first byte behind the length.
    start: u64,
    length: usize,
}

impl Entry {
    const EMPTY: Self = Entry { bytes: [0; ENTRY_BYTES], start: 0, length: 0 };

    /// Copies the entry at `address`, unless this is it.
    fn read(&mut self, memory: &Memory, address: u64) -> Option<()> {
        let start = address.checked_add(4)?;
        if start == self.start {
            return Some(());
        }
        self.start = 0;
        let mut length = [0; 4];
        if !memory.read(address, &mut length) {
            return None;
        }
        self.length = u32::from_le_bytes(length) as usize;
        if !memory.read(start, self.bytes.get_mut(..self.length).filter(|bytes| bytes.len() > 4)?) {
            return None;
        }
        self.start = start;
        Some(())
    }

    fn bytes(&self) -> Bytes<'_> {
        Bytes(&self.bytes[..self.length])
    }
}

/// The part that functions have in common.
struct Common<'b> {
    code_factor: u64,
    data_factor: i64,
    /// The encoding of addresses of functions.
    encoding: u8,
    is_of_signal: bool,
    program: Bytes<'b>,
}

/// The row of `address` in `module`; `None` where there is none, or one that cannot be read.
pub fn row<'b>(memory: &Memory, module: &Loaded, address: u64, buffers: &'b mut Buffers) -> Option<Row<'b>> {
    let place = function_at(memory, module.list, address)?;
    buffers.function.read(memory, place)?;
    let back = buffers.function.bytes().number(4)?;
    buffers.common.read(memory, buffers.function.start.checked_sub(back)?)?;
    let common = common(&buffers.common)?;
    let function = &buffers.function;
    let mut bytes = function.bytes();
    bytes.take(4)?;
    let begin = pointer(&mut bytes, common.encoding, function)?;
    let length = pointer(&mut bytes, common.encoding & 0x0f, function)?;
    if address.wrapping_sub(begin) >= length {
        return None;
    }
    bytes.block()?;
    let mut program = Program { common: &common, at: begin, address, row: Row::EMPTY };
    program.row.is_of_signal = common.is_of_signal;
    program.run(common.program, &Row::EMPTY)?;
    // The common part holds for the whole function.
    let initial = program.row;
    program.at = begin;
    program.run(bytes, &initial)?;
    Some(program.row)
}

/// Returns the address of the description of the function at `address`, if there is one: that of
/// the last function that begins before.
fn function_at(memory: &Memory, list: u64, address: u64) -> Option<u64> {
    let mut header = [0; HEADER_BYTES];
    if list == 0 || !memory.read(list, &mut header) || header[..4] != HEADER {
        return None;
    }
    let count = Bytes(&header[8..]).number(4)? as usize;
    let entries = list + HEADER_BYTES as u64;
    let place = |index: usize| entries + (index * LISTED_BYTES) as u64;
    let begin = |bytes: &[u8]| Bytes(bytes).signed(4).map(|offset| list.wrapping_add_signed(offset));
    let (mut low, mut high) = (0, count);
    while high - low > BLOCK {
        let middle = low + (high - low) / 2;
        let mut bytes = [0; LISTED_BYTES];
        if !memory.read(place(middle), &mut bytes) {
            return None;
        }
        if begin(&bytes)? <= address { low = middle } else { high = middle }
    }
    let mut block = [0; BLOCK * LISTED_BYTES];
    let block = &mut block[..(high - low) * LISTED_BYTES];
    if !memory.read(place(low), block) {
        return None;
    }
    let (listed, _) = block.as_chunks::<LISTED_BYTES>();
    let behind = listed.partition_point(|bytes| begin(bytes).is_some_and(|begin| begin <= address));
    begin(&listed.get(behind.checked_sub(1)?)?[4..])
}

fn common(entry: &Entry) -> Option<Common<'_>> {
    let mut bytes = entry.bytes();
    let (zero, version) = (bytes.number(4)?, bytes.byte()?);
    if zero != 0 || !matches!(version, 1 | 3) {
        return None;
    }
    let end = bytes.0.iter().position(|&byte| byte == 0)?;
    let (augmentation, _) = (bytes.take(end)?, bytes.byte()?);
    let (code_factor, data_factor) = (bytes.uleb()?, bytes.sleb()?);
    let return_address = if version == 1 { u64::from(bytes.byte()?) } else { bytes.uleb()? };
    let [b'z', letters @ ..] = augmentation else { return None };
    if return_address != super::RIP as u64 {
        return None;
    }
    let mut data = Bytes(bytes.block()?);
    let (mut encoding, mut is_of_signal) = (0, false);
    for letter in letters {
        match letter {
            b'R' => encoding = data.byte()?,
            b'L' => _ = data.byte()?,
            b'P' => {
                let encoding = data.byte()?;
                pointer(&mut data, encoding, entry)?;
            }
            b'S' => is_of_signal = true,
            _ => return None,
        }
    }
    Some(Common { code_factor, data_factor, encoding, is_of_signal, program: bytes })
}

/// An address, written in one of the ways that compilers use: absolute or from where it stands.
fn pointer(bytes: &mut Bytes<'_>, encoding: u8, entry: &Entry) -> Option<u64> {
    let at = entry.start + (entry.length - bytes.0.len()) as u64;
    let value = match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => bytes.number(8)?,
        0x03 => bytes.number(4)?,
        0x0b => bytes.signed(4)? as u64,
        _ => return None,
    };
    match encoding & 0x70 {
        0x00 => Some(value),
        0x10 => Some(at.wrapping_add(value)),
        _ => None,
    }
}

/// A program that builds rows, and how far it is.
struct Program<'c, 'b> {
    common: &'c Common<'b>,
    /// The address from which on `row` holds.
    at: u64,
    /// The address whose row is wanted.
    address: u64,
    row: Row<'b>,
}

impl<'b> Program<'_, 'b> {
    /// Runs up to the row of the address. `initial` is what rules go back to.
    fn run(&mut self, mut code: Bytes<'b>, initial: &Row<'b>) -> Option<()> {
        let (mut aside, mut depth) = ([Row::EMPTY; ASIDE], 0);
        while let Some(operation) = code.byte() {
            let low = usize::from(operation & 0x3f);
            match operation >> 6 {
                1 => {
                    if self.passes(low as u64) {
                        return Some(());
                    }
                    continue;
                }
                2 => {
                    let offset = self.factored(code.uleb()? as i64);
                    self.set(low, Rule::At(offset));
                    continue;
                }
                3 => {
                    self.set(low, *initial.rules.get(low)?);
                    continue;
                }
                _ => {}
            }
            match operation {
                0x02..=0x04 => {
                    if self.passes(code.number(1 << (operation - 0x02))?) {
                        return Some(());
                    }
                }
                0x0a => {
                    *aside.get_mut(depth)? = self.row;
                    depth += 1;
                }
                0x0b => {
                    depth = depth.checked_sub(1)?;
                    self.row = aside[depth];
                }
                _ => self.apply(operation, &mut code, initial)?,
            }
        }
        Some(())
    }

    /// Applies an operation to the row.
    fn apply(&mut self, operation: u8, code: &mut Bytes<'b>, initial: &Row<'b>) -> Option<()> {
        match operation {
            0x00 => {}
            0x05 | 0x11 | 0x14 | 0x15 | 0x2f => {
                let register = code.register()?;
                let offset = match operation {
                    0x11 | 0x15 => code.sleb()?,
                    0x2f => code.uleb()?.wrapping_neg() as i64,
                    _ => code.uleb()? as i64,
                };
                let offset = self.factored(offset);
                let is_value = matches!(operation, 0x14 | 0x15);
                self.set(register, if is_value { Rule::Value(offset) } else { Rule::At(offset) });
            }
            0x06 => {
                let register = code.register()?;
                self.set(register, initial.rules.get(register).copied().unwrap_or(Rule::Same));
            }
            0x07 => self.set(code.register()?, Rule::Undefined),
            0x08 => self.set(code.register()?, Rule::Same),
            0x09 => {
                let (register, other) = (code.register()?, code.register()?);
                self.set(register, Rule::Register(other));
            }
            0x0c => self.row.cfa = Cfa::Register(code.register()?, code.uleb()? as i64),
            0x0d => self.row.cfa = Cfa::Register(code.register()?, self.offset()?),
            0x0e => self.row.cfa = Cfa::Register(self.register()?, code.uleb()? as i64),
            0x0f => self.row.cfa = Cfa::Expression(code.block()?),
            0x10 => self.set(code.register()?, Rule::AtExpression(code.block()?)),
            0x12 => {
                let (register, offset) = (code.register()?, code.sleb()?);
                self.row.cfa = Cfa::Register(register, self.factored(offset));
            }
            0x13 => {
                let offset = code.sleb()?;
                self.row.cfa = Cfa::Register(self.register()?, self.factored(offset));
            }
            0x16 => self.set(code.register()?, Rule::ValueExpression(code.block()?)),
            // How many bytes of arguments there are, for exception handlers.
            0x2e => _ = code.uleb()?,
            _ => return None,
        }
        Some(())
    }

    /// Goes on to where the next row holds; whether that is beyond the address.
    fn passes(&mut self, delta: u64) -> bool {
        self.at = self.at.wrapping_add(delta.wrapping_mul(self.common.code_factor));
        self.at > self.address
    }

    fn factored(&self, offset: i64) -> i64 {
        offset.wrapping_mul(self.common.data_factor)
    }

    /// Registers that are of no use to the caller are left out.
    fn set(&mut self, register: usize, rule: Rule<'b>) {
        if let Some(place) = self.row.rules.get_mut(register) {
            *place = rule;
        }
    }

    fn register(&self) -> Option<usize> {
        match self.row.cfa {
            Cfa::Register(register, _) => Some(register),
            Cfa::Unknown | Cfa::Expression(_) => None,
        }
    }

    fn offset(&self) -> Option<i64> {
        match self.row.cfa {
            Cfa::Register(_, offset) => Some(offset),
            Cfa::Unknown | Cfa::Expression(_) => None,
        }
    }
}
