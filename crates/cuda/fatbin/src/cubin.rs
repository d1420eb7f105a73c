//! Cubins: what the tables of machine code say of a kernel, and where its instructions are.
//!
//! A cubin is an ELF file. A kernel is a symbol with the mark of an entry, in a section of code of
//! its own; the sections that belong to it name that section in their header. `.nv.info` holds
//! attributes by symbol (registers, stack), `.nv.info.<kernel>` those of one kernel (parameters,
//! threads), `.nv.shared.<kernel>` is as large as its static shared memory. NVIDIA documents none
//! of it; attributes have the numbers and the names that `cuobjdump -elf` prints (`EIATTR_…`). For
//! all 109 kernels of `data/h200/launches`, compiled by the ptxas of the recorded driver's toolkit,
//! registers, shared and local memory here are those that the driver of that H200 gave.
//!
//! The bytes come from a program and are not trusted: every length is checked, names are compared
//! and never measured, and each table is walked once for a kernel. What a table does not say is
//! `None`.

use crate::RequiredBlock;
use crate::elf::{Section, Tables};
use crate::{ELF_MAGIC, ImageError, u16_at, u32_at};
use std::collections::HashMap;

/// Longest name of a kernel, bytes.
const MOST_NAME_BYTES: usize = 4096;
/// Most parameters of a kernel: they take at most 32,764 bytes.
const MOST_PARAMETERS: usize = 1 << 15;

/// The properties of a kernel in the tables of machine code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Static shared memory of a block, without what the device reserves.
    pub static_shared_bytes: u32,
    /// Local memory of a thread: the stack of the kernel and of what it calls; `None` where that is
    /// not bounded.
    pub local_bytes: Option<u32>,
    /// Barriers of a block.
    pub barriers: u32,
    /// Most threads of a block along each axis (`.maxntid`).
    pub max_threads: Option<[u32; 3]>,
    /// Threads that a block must have along each axis (`.reqntid`).
    pub required_threads: Option<[u32; 3]>,
    /// The parameters, in their order; `None` where the tables do not tell all of them.
    pub parameters: Option<Vec<Parameter>>,
}

/// The position of a parameter in a kernel's parameter space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes from the beginning.
    pub offset: u32,
    /// Bytes that it takes.
    pub bytes: u32,
}

impl Kernel {
    /// Most threads of a block that the code says, over all axes.
    pub fn threads(&self) -> Option<u32> {
        let sides = self.required_threads.or(self.max_threads)?;
        sides.iter().try_fold(1u32, |product, &side| product.checked_mul(side.max(1)))
    }
}

/// The architecture that a cubin is for (90 for sm_90). Byte 8 of an ELF file is the version of its
/// interface, the word at 48 has marks: up to version 7 the lowest byte is the architecture, later
/// the next one. Files of CUDA 13.5 do not tell `sm_90a` from `sm_90`.
///
/// # Errors
/// Bytes that are no cubin.
pub fn architecture(cubin: &[u8]) -> Result<u32, ImageError> {
    if !cubin.starts_with(&ELF_MAGIC) {
        return Err(ImageError::Unrecognised);
    }
    const VERSION_AT: usize = 8;
    const MARKS_AT: usize = 48;
    const FIRST_NEW: u8 = 8;
    let version = *cubin.get(VERSION_AT).ok_or(ImageError::Truncated)?;
    let marks = u32_at(cubin, MARKS_AT)?;
    Ok(if version >= FIRST_NEW { marks >> 8 & 0xff } else { marks & 0xff })
}

/// Reads the properties of the kernel of this name from the tables of a cubin; `None` if it has no
/// such kernel.
///
/// # Errors
/// Bytes that are no cubin, or a table that points outside of it.
pub fn kernel(cubin: &[u8], name: &str) -> Result<Option<Kernel>, ImageError> {
    if !cubin.starts_with(&ELF_MAGIC) {
        return Err(ImageError::Unrecognised);
    }
    let file = File { bytes: cubin, tables: Tables::of(cubin)? };
    file.entry(name.as_bytes())?.map(|entry| file.kernel(entry)).transpose()
}

/// The machine code of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code<'a> {
    /// Its instructions.
    pub bytes: &'a [u8],
    /// Names of the functions that it calls without containing them, such as `vprintf`.
    pub callees: Vec<&'a [u8]>,
}

/// The machine code of the kernel of this name; `None` if the cubin has no such kernel, or is for a
/// GPU before Volta, whose instructions are others.
///
/// # Errors
/// Bytes that are no cubin, or a table that points outside of it.
pub fn code<'a>(cubin: &'a [u8], name: &str) -> Result<Option<Code<'a>>, ImageError> {
    if !cubin.starts_with(&ELF_MAGIC) {
        return Err(ImageError::Unrecognised);
    }
    let file = File { bytes: cubin, tables: Tables::of(cubin)? };
    if architecture(cubin)? < VOLTA {
        return Ok(None);
    }
    let Some(entry) = file.entry(name.as_bytes())? else { return Ok(None) };
    let bytes = file.section(entry.code)?.content(cubin)?;
    Ok(Some(Code { bytes, callees: file.callees(entry.symbol)? }))
}

/// The first architecture whose instructions have 128 bits.
const VOLTA: u32 = 70;

/// The contents of a table of symbols, and of that of their names.
type Symbols<'a> = (&'a [u8], &'a [u8]);

/// A kernel's symbol.
#[derive(Clone, Copy)]
struct Entry {
    /// Its place in the table of symbols.
    symbol: u32,
    /// The section of its code.
    code: u32,
}

/// The kernels of a cubin that require a block, in the order of their symbols.
///
/// # Errors
/// Bytes that are no cubin, or a table that points outside of it.
pub fn required_blocks(cubin: &[u8]) -> Result<Vec<RequiredBlock>, ImageError> {
    if !cubin.starts_with(&ELF_MAGIC) {
        return Err(ImageError::Unrecognised);
    }
    File { bytes: cubin, tables: Tables::of(cubin)? }.required_blocks()
}

struct File<'a> {
    bytes: &'a [u8],
    tables: Tables,
}

impl<'a> File<'a> {
    /// The first section of which this holds. Files have one of each kind that is asked for; of
    /// more, the others are left alone, so that each byte is looked at once.
    fn first(&self, is: impl Fn(&Section) -> bool) -> Result<Option<Section>, ImageError> {
        let found = |section: &Result<Section, _>| section.as_ref().map_or(true, &is);
        self.tables.sections(self.bytes).find(found).transpose()
    }

    fn section(&self, index: u32) -> Result<Section, ImageError> {
        self.tables.section(self.bytes, index)
    }

    /// The kernel of this name in the table of symbols.
    fn entry(&self, name: &[u8]) -> Result<Option<Entry>, ImageError> {
        let Some((symbols, names)) = self.symbols()? else { return Ok(None) };
        let is_named = |&(at, _): &(u32, Entry)| begins_with(names, at, name, b"\0");
        Ok(kernels(symbols).find(is_named).map(|(_, entry)| entry))
    }

    /// All kernels in the table of symbols, with their names; longer names are cut.
    fn entries(&self) -> Result<Vec<(&'a [u8], Entry)>, ImageError> {
        let Some((symbols, names)) = self.symbols()? else { return Ok(Vec::new()) };
        let name = |at: u32| {
            let rest = names.get(at as usize..).unwrap_or_default();
            rest[..rest.len().min(MOST_NAME_BYTES)].split(|&byte| byte == 0).next().unwrap_or_default()
        };
        Ok(kernels(symbols).map(|(at, entry)| (name(at), entry)).collect())
    }

    /// The contents of the table of symbols and of that of their names.
    fn symbols(&self) -> Result<Option<Symbols<'a>>, ImageError> {
        let Some(table) = self.first(|section| section.kind == Section::SYMBOLS)? else { return Ok(None) };
        Ok(Some((table.content(self.bytes)?, self.section(table.link)?.content(self.bytes)?)))
    }

    /// The names of what a function calls: a list of pairs of symbols, caller and callee, of which
    /// negative numbers are none.
    fn callees(&self, caller: u32) -> Result<Vec<&'a [u8]>, ImageError> {
        const MOST_CALLEES: usize = 64;
        const SYMBOL_BYTES: usize = 24;
        let Some(graph) = self.first(|section| section.kind == Section::CALL_GRAPH)? else {
            return Ok(Vec::new());
        };
        let Some((symbols, names)) = self.symbols()? else { return Ok(Vec::new()) };
        let pairs = graph.content(self.bytes)?.chunks_exact(8);
        let called = pairs.filter(|pair| u32_at(pair, 0) == Ok(caller)).filter_map(|pair| {
            let at = (u32_at(pair, 4).ok()? as usize).checked_mul(SYMBOL_BYTES)?;
            let name = u32_at(symbols.get(at..)?, 0).ok()? as usize;
            let rest = names.get(name..)?;
            rest[..rest.len().min(MOST_NAME_BYTES)].split(|&byte| byte == 0).next()
        });
        Ok(called.take(MOST_CALLEES).collect())
    }

    /// Each table is walked once, and each name is read up to the longest that is believed.
    fn required_blocks(&self) -> Result<Vec<RequiredBlock>, ImageError> {
        let mut of_code = HashMap::new();
        for section in self.tables.sections(self.bytes) {
            let section = section?;
            if section.kind == Section::INFO && section.info != 0 {
                let mut found = Found::default();
                found.add_all(section.content(self.bytes)?, None)?;
                of_code.extend(found.required_threads.map(|block| (section.info, block)));
            }
        }
        if of_code.is_empty() {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for (name, entry) in self.entries()? {
            // The first symbol of a section names it: a damaged table might name it many times.
            if let Some(block) = of_code.remove(&entry.code)
                && let Ok(name) = std::str::from_utf8(name)
            {
                all.push((name.into(), block));
            }
        }
        Ok(all)
    }

    fn kernel(&self, entry: Entry) -> Result<Kernel, ImageError> {
        const OLD_BARRIERS_AT: u32 = 20;
        const OLD_BARRIERS: u64 = 0x7f;
        let code = self.section(entry.code)?;
        let mut found = Found::default();
        for (info, symbol) in [(0, Some(entry.symbol)), (entry.code, None)] {
            let section = self.first(|section| section.kind == Section::INFO && section.info == info)?;
            if let Some(section) = section {
                found.add_all(section.content(self.bytes)?, symbol)?;
            }
        }
        Ok(Kernel {
            registers: found.registers,
            static_shared_bytes: self.static_shared_bytes(entry)?,
            local_bytes: found.stack.or(found.frame).filter(|&bytes| bytes != UNBOUNDED),
            barriers: found.barriers.unwrap_or((code.flags >> OLD_BARRIERS_AT & OLD_BARRIERS) as u32),
            max_threads: found.max_threads,
            required_threads: found.required_threads,
            parameters: found.parameters(),
        })
    }

    fn static_shared_bytes(&self, entry: Entry) -> Result<u32, ImageError> {
        let names = self.section(self.tables.names)?.content(self.bytes)?;
        let named = |section: &Section, text: &[u8], end: &[u8]| {
            section.kind == Section::NO_BITS && begins_with(names, section.name, text, end)
        };
        let shared = |section: &Section| section.info == entry.code && named(section, b".nv.shared.", b"");
        let bytes = self.first(shared)?.map_or(0, |section| section.bytes);
        let reserved = self.first(|section| named(section, b".nv.shared.reserved.0", b"\0"))?;
        let bytes = bytes.saturating_sub(reserved.map_or(0, |_| RESERVED_SHARED_BYTES));
        Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
    }
}

/// The kernels in a table of symbols, with where their names begin. A symbol: name u32 at 0, kind
/// u8 at 4, marks u8 at 5, section u16 at 6.
fn kernels(symbols: &[u8]) -> impl Iterator<Item = (u32, Entry)> {
    const SYMBOL_BYTES: usize = 24;
    const FUNCTION: u8 = 2;
    const IS_ENTRY: u8 = 0x10;
    symbols.chunks_exact(SYMBOL_BYTES).enumerate().filter_map(|(index, symbol)| {
        let is_kernel = symbol[4] & 0xf == FUNCTION && symbol[5] & IS_ENTRY != 0;
        let (name, code) = (u32_at(symbol, 0).ok()?, u16_at(symbol, 6).ok()?.into());
        is_kernel.then_some((name, Entry { symbol: index as u32, code }))
    })
}

/// The shared memory of each block for the system's use, if a cubin has a section for it (compute
/// capability 9.0 and later): the kernel's section counts it, too.
const RESERVED_SHARED_BYTES: u64 = 1024;
/// The stack of what calls itself.
const UNBOUNDED: u32 = u32::MAX;

/// Whether the name at this place of a table of names begins with `text` and goes on with `end`.
fn begins_with(names: &[u8], at: u32, text: &[u8], end: &[u8]) -> bool {
    let rest = names.get(at as usize..).and_then(|rest| rest.strip_prefix(text));
    rest.is_some_and(|rest| rest.starts_with(end))
}

/// The attributes of one kernel.
#[derive(Default)]
struct Found {
    registers: Option<u32>,
    frame: Option<u32>,
    stack: Option<u32>,
    barriers: Option<u32>,
    max_threads: Option<[u32; 3]>,
    required_threads: Option<[u32; 3]>,
    /// Bytes that all parameters take together.
    parameter_bytes: Option<u32>,
    /// With each one's place in their order.
    parameters: Vec<(u16, Parameter)>,
}

impl Found {
    /// Reads a list of attributes: format u8, number u8, then a value of one or two bytes, or the
    /// length u16 of a value that follows. Of a list for all symbols those of `symbol`, which begin
    /// with its index.
    fn add_all(&mut self, mut list: &[u8], symbol: Option<u32>) -> Result<(), ImageError> {
        const WITH_LENGTH: u8 = 4;
        while !list.is_empty() {
            let (format, number, short) = (list[0], u16_at(list, 0)? >> 8, u16_at(list, 2)?);
            list = &list[4..];
            if format == WITH_LENGTH {
                let (value, rest) = list.split_at_checked(short.into()).ok_or(ImageError::Truncated)?;
                list = rest;
                match symbol {
                    None => self.add(number, value)?,
                    Some(symbol) if value.len() == 8 && u32_at(value, 0)? == symbol => {
                        self.add_of_symbol(number, u32_at(value, 4)?);
                    }
                    Some(_) => {}
                }
            } else if symbol.is_none() {
                self.add_short(number, short);
            }
        }
        Ok(())
    }

    fn add_of_symbol(&mut self, number: u16, value: u32) {
        const FRAME_SIZE: u16 = 0x11;
        const MIN_STACK_SIZE: u16 = 0x12;
        const REGCOUNT: u16 = 0x2f;
        match number {
            FRAME_SIZE => self.frame = Some(value),
            MIN_STACK_SIZE => self.stack = Some(value),
            REGCOUNT => self.registers = Some(value),
            _ => {}
        }
    }

    fn add_short(&mut self, number: u16, value: u16) {
        const CBANK_PARAM_SIZE: u16 = 0x19;
        const NUM_BARRIERS: u16 = 0x4c;
        match number {
            CBANK_PARAM_SIZE => self.parameter_bytes = Some(value.into()),
            NUM_BARRIERS => self.barriers = Some(u32::from(value & 0xff)),
            _ => {}
        }
    }

    fn add(&mut self, number: u16, value: &[u8]) -> Result<(), ImageError> {
        const MAX_THREADS: u16 = 0x05;
        const REQNTID: u16 = 0x10;
        const KPARAM_INFO: u16 = 0x17;
        const KPARAM_INFO_V2: u16 = 0x45;
        let sides = || Ok(Some([u32_at(value, 0)?, u32_at(value, 4)?, u32_at(value, 8)?]));
        match number {
            MAX_THREADS => self.max_threads = sides()?,
            REQNTID => self.required_threads = sides()?,
            KPARAM_INFO | KPARAM_INFO_V2 => {
                // Index u32 at 0, ordinal u16 at 4, offset u16 at 6; then the bytes: in the first
                // version the upper 14 bits of a word, in the second a u16.
                let word = u32_at(value, 8)?;
                let bytes = if number == KPARAM_INFO { word >> 18 } else { word & 0xffff };
                let parameter = Parameter { offset: u16_at(value, 6)?.into(), bytes };
                if self.parameters.len() == MOST_PARAMETERS {
                    return Err(ImageError::Corrupt);
                }
                self.parameters.push((u16_at(value, 4)?, parameter));
            }
            _ => {}
        }
        Ok(())
    }

    /// The parameters in their order, if each of them is there once, none overlaps another, and
    /// they end where all of them together do.
    fn parameters(mut self) -> Option<Vec<Parameter>> {
        self.parameters.sort_by_key(|&(ordinal, _)| ordinal);
        let mut end = 0;
        for (index, (ordinal, parameter)) in self.parameters.iter().enumerate() {
            if usize::from(*ordinal) != index || parameter.offset < end {
                return None;
            }
            end = parameter.offset + parameter.bytes;
        }
        let is_whole = end == self.parameter_bytes.unwrap_or(0);
        is_whole.then(|| self.parameters.into_iter().map(|(_, parameter)| parameter).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `four_kernels.ptx`, assembled for sm_90 by the ptxas of CUDA 13.0, and for sm_80 by that of
    /// 12.8, which wrote an older form.
    const NEW: &[u8] = include_bytes!("../tests/data/four_kernels_sm_90.cubin");
    const OLD: &[u8] = include_bytes!("../tests/data/four_kernels_sm_80.cubin");

    fn read(cubin: &[u8], name: &str) -> Kernel {
        kernel(cubin, name).unwrap().unwrap()
    }

    fn layout(kernel: &Kernel) -> Vec<(u32, u32)> {
        let parameters = kernel.parameters.as_ref().unwrap();
        parameters.iter().map(|parameter| (parameter.offset, parameter.bytes)).collect()
    }

    /// The tables agree with the output of `ptxas -v` for either file, and with the declarations of
    /// the PTX.
    #[test]
    fn tables_say_what_the_assembler_said() {
        for cubin in [NEW, OLD] {
            let tiled = read(cubin, "tiled");
            assert_eq!((tiled.registers, tiled.static_shared_bytes), (Some(8), 1024));
            assert_eq!((tiled.local_bytes, tiled.barriers), (Some(0), 4));
            assert_eq!((tiled.max_threads, tiled.required_threads), (Some([256, 1, 1]), None));
            assert_eq!(layout(&tiled), [(0, 8), (8, 4), (16, 24), (40, 1)]);
            assert_eq!(tiled.threads(), Some(256));
            let stack = read(cubin, "stack");
            assert_eq!((stack.registers, stack.static_shared_bytes), (Some(10), 0));
            assert_eq!(stack.local_bytes, Some(400));
            assert_eq!((stack.max_threads, stack.required_threads), (None, Some([32, 4, 2])));
            assert_eq!((layout(&stack), stack.threads()), (vec![(0, 8), (8, 4)], Some(256)));
            let nothing = read(cubin, "nothing");
            assert_eq!((layout(&nothing), nothing.threads(), nothing.barriers), (vec![], None, 0));
            assert_eq!(layout(&read(cubin, "large")), [(0, 5000), (5000, 4)]);
        }
    }

    #[test]
    fn what_is_no_kernel_of_the_file_is_none() {
        for name in ["", "tile", "tiledd", "counter", ".text.tiled"] {
            assert_eq!(kernel(NEW, name), Ok(None), "{name}");
        }
        assert_eq!(kernel(b".version 8.0", "tiled"), Err(ImageError::Unrecognised));
        assert_eq!(kernel(b"\x7fELF", "tiled"), Err(ImageError::Truncated));
    }

    /// A list of attributes with these parameters, each ordinal, offset and bytes.
    fn with_parameters(all: &[(u16, u16, u16)], together: u16) -> Option<Vec<Parameter>> {
        let mut list = Vec::new();
        for &(ordinal, offset, bytes) in all {
            list.extend_from_slice(&[4, 0x45, 12, 0, 0, 0, 0, 0]);
            [ordinal, offset, bytes, 0].iter().for_each(|word| list.extend_from_slice(&word.to_le_bytes()));
        }
        list.extend_from_slice(&[3, 0x19]);
        list.extend_from_slice(&together.to_le_bytes());
        let mut found = Found::default();
        found.add_all(&list, None).unwrap();
        found.parameters()
    }

    #[test]
    fn a_layout_is_known_whole_or_not_at_all() {
        assert_eq!(with_parameters(&[(1, 8, 4), (0, 0, 8)], 12).unwrap().len(), 2);
        assert_eq!(with_parameters(&[(0, 0, 8), (2, 8, 4)], 12), None, "one is missing");
        assert_eq!(with_parameters(&[(0, 0, 8), (0, 8, 4)], 12), None, "one is there twice");
        assert_eq!(with_parameters(&[(0, 0, 8), (1, 4, 8)], 12), None, "they overlap");
        assert_eq!(with_parameters(&[(0, 0, 8)], 12), None, "they do not take all of it");
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer(
            is_new: bool,
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            length: prop::sample::Index,
            is_cut: bool,
        ) {
            let whole = if is_new { NEW } else { OLD };
            let mut cubin = whole[..if is_cut { length.index(whole.len()) } else { whole.len() }].to_vec();
            for (at, byte) in damage {
                if !cubin.is_empty() {
                    let at = at.index(cubin.len());
                    cubin[at] = byte;
                }
            }
            for name in ["tiled", "stack", "nothing", "large"] {
                let _ = kernel(&cubin, name);
                let _ = code(&cubin, name).map(|code| code.map(|code| crate::machine::Work::of(code.bytes)));
            }
        }

        #[test]
        fn any_attributes_are_an_answer(list in proptest::collection::vec(any::<u8>(), 0..200), symbol: u32) {
            for symbol in [None, Some(symbol)] {
                let mut found = Found::default();
                let _ = found.add_all(&list, symbol);
                let _ = found.parameters();
            }
        }
    }
}
