//! The compiled frames of a thread, unwound from outside.
//!
//! The kernel tells the stack pointer and the instruction of a waiting thread; all else follows
//! from the stack and the unwinding tables. The caller checks that the thread waited until the
//! frames were read. Of a thread that runs, the kernel copies registers and stack
//! ([`crate::running`]).

use crate::linux::{self, Call, Mapping};
use crate::record::{Frame, FrameKind};
use crate::running::Sample;
use apex_call_frames::memory::{Memory, half_at, word_at};
use apex_call_frames::native::{
    Buffers, Cfa, Loaded, RIP, RSP, Registers, Row, Tables, row, unwind, unwind_on,
};
use apex_symbolization::{Exports, Place, Symbols};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Most frames of a stack.
const DEPTH: usize = 128;
/// Rows and frames that are remembered; beyond, all are read again.
const MOST_REMEMBERED: usize = 1 << 14;
/// The time from one listing of loaded files to the next, if an address is in none of them.
const LIST_EVERY_NS: u64 = 1_000_000_000;
/// Bytes of a file's header and of a program header, and most program headers.
const FILE_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const MOST_HEADERS: usize = 32;
/// Most files that are loaded in the course of a process.
const MOST_MODULES: usize = 1 << 12;

/// Most bytes of a file of which all functions and lines are read; of larger ones only the
/// functions that they export.
const MOST_BYTES: u64 = 128 << 20;

/// The functions of files, by device and inode.
#[derive(Default)]
pub struct Libraries(HashMap<String, Names>);

/// The names of a file's functions.
enum Names {
    /// All that the file has: of programs that were not stripped.
    All(Box<Symbols>),
    /// Those that the file exports.
    Exported(Box<Exports>),
    Unknown,
}

impl Names {
    fn of(path: &Path) -> Names {
        match Symbols::of_program(path, MOST_BYTES) {
            Some(all) => Names::All(Box::new(all)),
            None => Exports::of(path).map_or(Names::Unknown, |exported| Names::Exported(Box::new(exported))),
        }
    }

    /// The functions at an address, the innermost inlined one first.
    fn at(&self, address: u64) -> Vec<Place> {
        match self {
            Names::All(symbols) => symbols.at(address),
            Names::Exported(exports) => {
                vec![Place { function: exports.at(address), ..Place::default() }]
            }
            Names::Unknown => Vec::new(),
        }
    }
}

impl Libraries {
    /// The functions at an address of a file, the innermost inlined one first; one without a name
    /// where none is known.
    fn functions(&mut self, pid: u32, file: &Mapping, address: u64) -> Vec<Frame> {
        let names = self
            .0
            .entry(file.identity.clone())
            .or_insert_with(|| Names::of(&PathBuf::from(format!("/proc/{pid}/root{}", file.path))));
        let frame = |place: Place| Frame {
            kind: FrameKind::Native,
            function: place.function.unwrap_or_default(),
            line: place.line.filter(|_| place.file.is_some()).unwrap_or(0),
            file: place.file.unwrap_or_else(|| file.path.clone()),
        };
        let mut frames: Vec<Frame> = names.at(address).into_iter().map(frame).collect();
        if frames.is_empty() {
            frames.push(frame(Place::default()));
        }
        frames
    }
}

/// The name in place of a file, for the kernel.
const KERNEL: &str = "kernel";
/// The instruction that makes a system call.
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// Index of its file.
    file: usize,
    /// An address inside of its call instruction, as the file counts.
    address: u64,
}

/// The files of a process and their tables.
pub struct Native {
    pid: u32,
    memory: Memory,
    files: Vec<Mapping>,
    modules: Vec<Loaded>,
    listed_ns: Option<u64>,
    rows: RefCell<HashMap<u64, Row<'static>>>,
    frames: Vec<Found>,
}

impl Native {
    /// Creates the unwinder for a process.
    pub fn new(pid: u32) -> Native {
        Native {
            pid,
            memory: Memory::of(pid),
            files: Vec::new(),
            modules: Vec::new(),
            listed_ns: None,
            rows: RefCell::default(),
            frames: Vec::new(),
        }
    }

    /// The frames of a thread that waits in `call`, innermost first, up to the file that holds the
    /// address `until`. None if only the C library lies in between: the system call says as much.
    pub fn frames(&mut self, call: &Call, until: Option<u64>, now_ns: u64) -> &[Found] {
        self.know(call.instruction, now_ns);
        let registers = Registers::of_stack(call.stack, call.instruction);
        if !self.unwind_waiting(registers, until)
            && let Some(found) = self.resynchronised(call.stack)
        {
            self.unwind_waiting(found, until);
        }
        &self.frames
    }

    /// Unwinds a stack up to the file that holds `until`; false, and no frames, if all of them are
    /// the C library's or APEX's own.
    fn unwind_waiting(&mut self, registers: Registers, until: Option<u64>) -> bool {
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        let mut has_others = false;
        unwind(&self.memory, registers, self, DEPTH, |loaded, at| {
            if until.is_some_and(|until| loaded.holds(until)) {
                return false;
            }
            let file = loaded.name as usize;
            has_others |= !self.is_c_library(loaded) && self.name_of(loaded) != OWN_LIBRARY;
            if self.name_of(loaded) != OWN_LIBRARY {
                frames.push(Found { file, address: at.wrapping_sub(loaded.base) });
            }
            true
        });
        if !has_others {
            frames.clear();
        }
        self.frames = frames;
        has_others
    }

    fn name_of(&self, loaded: &Loaded) -> &str {
        self.files.get(loaded.name as usize).map_or("", Mapping::name)
    }

    fn is_c_library(&self, loaded: &Loaded) -> bool {
        C_LIBRARY.iter().any(|library| self.name_of(loaded).starts_with(library))
    }

    /// The registers of the innermost function outside of the C library, where functions in between
    /// cannot be followed because they need registers that are not known: the first word of the
    /// stack that is the address behind a call, in a function whose frame the stack pointer tells
    /// and whose caller is known too.
    fn resynchronised(&self, stack: u64) -> Option<Registers> {
        let mut bytes = [0; RESYNCHRONISED_BYTES];
        let length = self.memory.read_some(stack, &mut bytes) / 8 * 8;
        let mut buffers = Buffers::default();
        let words = (0..length).step_by(8).map(|at| (stack.wrapping_add(at as u64), word_at(&bytes, at)));
        for (at, address) in words {
            let Some(loaded) = self.holding(address).filter(|loaded| !self.is_c_library(loaded)) else {
                continue;
            };
            let row = self.row(&loaded, address.wrapping_sub(1), &mut buffers);
            let is_by_stack = row.is_some_and(|row| matches!(row.cfa, Cfa::Register(RSP, _)));
            if !is_by_stack || !self.is_behind_a_call(address) {
                continue;
            }
            let registers = Registers::of_stack(at.wrapping_add(8), address);
            let mut frames = 0;
            unwind(&self.memory, registers, self, DEPTH, |_, _| {
                frames += 1;
                true
            });
            if frames >= RESYNCHRONISED_FRAMES {
                return Some(registers);
            }
        }
        None
    }

    /// Whether the instruction in front of an address calls: directly, or through a register or
    /// memory.
    fn is_behind_a_call(&self, address: u64) -> bool {
        let mut before = [0; 7];
        let is_read = self.memory.read(address.wrapping_sub(7), &mut before);
        let is_indirect = |length: usize| {
            let at = before.len() - length;
            before[at] == 0xff && before[at + 1] >> 3 & 7 == 2
        };
        is_read && (before[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(is_indirect))
    }

    /// The frames of a thread that ran at the moment of `sample`, innermost first.
    pub fn frames_of(&mut self, sample: &Sample, now_ns: u64) -> &[Found] {
        self.know(sample.registers.0[RIP], now_ns);
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        unwind_on(&mut |address| sample.word(address), sample.registers, self, DEPTH, |loaded, at| {
            let file = loaded.name as usize;
            frames.push(Found { file, address: at.wrapping_sub(loaded.base) });
            true
        });
        self.frames = frames;
        &self.frames
    }

    /// What a thread did in the kernel: it was there for a call, or because memory that it used
    /// had no page yet.
    pub fn in_kernel(&self, sample: &Sample) -> Option<Frame> {
        let mut before = [0; SYSTEM_CALL.len()];
        let at = sample.registers.0[RIP].wrapping_sub(before.len() as u64);
        let is_call = self.memory.read(at, &mut before) && before == SYSTEM_CALL;
        let function = if is_call { "system call" } else { "page fault" };
        let (function, file) = (function.to_owned(), KERNEL.to_owned());
        sample.is_in_kernel.then_some(Frame { kind: FrameKind::Native, function, file, line: 0 })
    }

    /// The functions at a frame, the innermost inlined one first.
    pub fn describe(&self, frame: Found, libraries: &mut Libraries) -> Vec<Frame> {
        let Some(file) = self.files.get(frame.file) else { return Vec::new() };
        libraries.functions(self.pid, file, frame.address)
    }

    /// Lists the loaded files, if none that is known holds an instruction.
    fn know(&mut self, instruction: u64, now_ns: u64) {
        let is_due = self.listed_ns.is_none_or(|listed| now_ns.saturating_sub(listed) >= LIST_EVERY_NS);
        if is_due && self.holding(instruction).is_none() {
            self.list_modules();
            self.listed_ns = Some(now_ns);
        }
    }

    /// Lists the loaded files anew. The index of a file stays the same.
    fn list_modules(&mut self) {
        self.modules.clear();
        self.rows.borrow_mut().clear();
        for mapping in linux::mappings(self.pid).unwrap_or_default() {
            let known = self.files.iter().position(|known| *known == mapping);
            let index = known.unwrap_or(self.files.len());
            if index == MOST_MODULES {
                break;
            }
            self.modules.extend(loaded(&self.memory, &mapping, index));
            if known.is_none() {
                self.files.push(mapping);
            }
        }
        self.modules.sort_by_key(|module| module.start);
    }
}

/// Bytes of a stack in which the innermost function outside of the C library is looked for, and
/// frames that it and its callers have at least.
const RESYNCHRONISED_BYTES: usize = 4096;
const RESYNCHRONISED_FRAMES: usize = 2;
/// The name of the injected library, whose frames say nothing of the program.
const OWN_LIBRARY: &str = "libapex.so";
/// The beginnings of names of the C library's files.
const C_LIBRARY: [&str; 3] = ["libc.so", "libc-", "libpthread"];

impl Tables for Native {
    fn holding(&self, address: u64) -> Option<Loaded> {
        let behind = self.modules.partition_point(|module| module.start <= address);
        self.modules[..behind].last().copied().filter(|module| module.holds(address))
    }

    fn row<'b>(&self, module: &Loaded, address: u64, buffers: &'b mut Buffers) -> Option<Row<'b>> {
        if let Some(known) = self.rows.borrow().get(&address) {
            return Some(*known);
        }
        let row = row(&self.memory, module, address, buffers)?;
        if let Some(kept) = row.to_static() {
            let mut rows = self.rows.borrow_mut();
            if rows.len() >= MOST_REMEMBERED {
                rows.clear();
            }
            rows.insert(address, kept);
        }
        Some(row)
    }
}

/// Finds a file's address and tables from its program headers in memory.
fn loaded(memory: &Memory, mapping: &Mapping, index: usize) -> Option<Loaded> {
    let mut header = [0; FILE_HEADER];
    if !memory.read(mapping.start, &mut header) || header[..6] != *b"\x7fELF\x02\x01" {
        return None;
    }
    let count = usize::from(u16::from_le_bytes([header[56], header[57]])).min(MOST_HEADERS);
    let mut bytes = [0; MOST_HEADERS * PROGRAM_HEADER];
    let bytes = &mut bytes[..count * PROGRAM_HEADER];
    if !memory.read(mapping.start.checked_add(word_at(&header, 32))?, bytes) {
        return None;
    }
    let (headers, _) = bytes.as_chunks::<PROGRAM_HEADER>();
    let of_kind = |kind: u32| headers.iter().filter(move |header| half_at(&header[..], 0) == kind);
    let address = |header: &[u8; PROGRAM_HEADER]| word_at(header, 16);
    let first = of_kind(libc::PT_LOAD).find(|header| word_at(&header[..], 8) == 0)?;
    let base = mapping.start.wrapping_sub(address(first));
    let ends = of_kind(libc::PT_LOAD).map(|header| address(header).saturating_add(word_at(header, 40)));
    let list = of_kind(libc::PT_GNU_EH_FRAME).next().map_or(0, |header| base.wrapping_add(address(header)));
    let end = base.wrapping_add(ends.max()?);
    Some(Loaded { base, start: mapping.start, end, list, name: index as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::State;
    use std::os::fd::AsRawFd;

    /// Waits for the other end of a pipe to be closed. The standard library's own functions that
    /// wait keep frame pointers, behind which unwinding ends.
    #[inline(never)]
    fn waits(wait: &std::io::PipeReader) -> bool {
        let mut polled = libc::pollfd { fd: wait.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one descriptor, as the count says.
        std::hint::black_box(unsafe { libc::poll(&raw mut polled, 1, -1) } == 1)
    }

    #[test]
    fn a_waiting_thread_of_compiled_code_has_its_frames() {
        let (tell, told) = std::sync::mpsc::channel();
        let (wait, end) = std::io::pipe().unwrap();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes nothing, returns a number.
            tell.send(unsafe { libc::gettid() }).unwrap();
            waits(&wait)
        });
        let (pid, tid) = (std::process::id(), told.recv().unwrap().cast_unsigned());
        let files = linux::ThreadFiles::of(pid, tid).unwrap();
        let state = std::iter::repeat_with(|| files.state());
        let mut native = Native::new(pid);
        let frames = state.filter_map(|state| match state {
            Some(State::Waiting(call)) => Some(native.frames(&call, None, 0).to_vec()),
            _ => None,
        });
        let frames = frames.inspect(|_| std::thread::sleep(std::time::Duration::from_millis(1)));
        // Until it waits where it should.
        let own = std::fs::read_link("/proc/self/exe").unwrap().to_string_lossy().into_owned();
        let wanted = waits as *const () as u64;
        let found = frames.take(10_000).find(|frames| frames.len() > 2).expect("frames");
        let mut libraries = Libraries::default();
        let described: Vec<Frame> =
            found.iter().flat_map(|&frame| native.describe(frame, &mut libraries)).collect();
        let is_own = |frame: &Frame| frame.file == own || frame.file.ends_with("native.rs");
        assert!(described.iter().any(is_own), "{described:?}");
        let base = native.modules.iter().find(|module| module.holds(wanted)).expect("this test").base;
        let is_waits = |frame: &Found| (0..512).contains(&frame.address.wrapping_sub(wanted - base));
        assert!(found.iter().any(is_waits), "{found:?}");
        assert!(native.frames(&Call::default(), None, 0).is_empty());
        drop(end);
        assert!(thread.join().unwrap());
    }
}
