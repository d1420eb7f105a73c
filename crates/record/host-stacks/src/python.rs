//! The Python stacks of another process, read while it runs.
//!
//! A running thread changes its stack while it is read. A stack counts as settled only if three
//! readings in a row found the same frames at the same addresses with the same code and the same
//! instructions (but for the innermost one, which moves on within its function). Two are not
//! enough: frames of a new call lie where those of the last one lay, and of a thread that makes a
//! million calls a second, one of some thousand stacks that two readings agreed on had never
//! existed. Where readings do not agree, only the outer frames that two of them have in common are
//! kept.

use crate::file::Writer;
use crate::linux::{self, Mapping};
use crate::record::{Frame, FrameKind};
use crate::waits::Lock;
use apex_call_frames::memory::Memory;
use apex_call_frames::python::code::Head;
use apex_call_frames::python::{Frame as Found, Frames, Gil, Interpreter, ThreadState};
use apex_trace::python::PythonCode;
use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::path::PathBuf;

/// Most frames of a stack, the innermost ones.
const DEPTH: usize = 128;
/// Readings in a row that must agree.
const AGREE: usize = 3;
/// Most readings of a stack, until that many agree.
const READINGS: usize = 8;
/// Most code objects and frames that are remembered; beyond, all are read again.
const MOST_REMEMBERED: usize = 1 << 16;

/// Symbols by which interpreters are recognised and read.
const SYMBOLS: [&str; 6] = [
    "_PyRuntime",
    "PyCode_Type",
    "Py_Version",
    "Py_NewRef",
    "PyObject_CallNoArgs",
    "PyModule_Create2TraceRefs",
];

/// The addresses at which files export the symbols of an interpreter, by device and inode.
#[derive(Debug, Default)]
pub struct Files(HashMap<String, Option<[Option<u64>; SYMBOLS.len()]>>);

impl Files {
    /// Returns the symbols of the file of a mapping, from its first byte on.
    fn symbols(&mut self, pid: u32, mapping: &Mapping) -> Option<[Option<u64>; SYMBOLS.len()]> {
        let read = || {
            let inside = PathBuf::from(format!("/proc/{pid}/root{}", mapping.path));
            apex_symbolization::exported(&inside, SYMBOLS)
        };
        *self.0.entry(mapping.identity.clone()).or_insert_with(read)
    }
}

/// The interpreter of a process.
pub struct Python {
    interpreter: Interpreter,
    gil: Option<Gil>,
    /// Thread states, by the system's identifier of the thread.
    states: HashMap<u32, ThreadState>,
    /// The offset at which a `pthread_t` holds that identifier.
    in_pthread: Option<usize>,
    codes: HashMap<(u64, Head), PythonCode>,
    /// Indexes of frames, by code and instruction.
    frames: HashMap<(u64, Head, i32), u32>,
    first: Box<Frames<DEPTH>>,
    second: Box<Frames<DEPTH>>,
}

impl Python {
    /// Finds the interpreter of a process; `None` if it has none that can be read.
    pub fn find(pid: u32, mappings: &[Mapping], files: &mut Files) -> Option<Python> {
        let may_hold_one = |mapping: &&Mapping| {
            mapping.name().starts_with("python") || mapping.name().starts_with("libpython")
        };
        let interpreter = mappings.iter().filter(may_hold_one).find_map(|mapping| {
            let symbols = files.symbols(pid, mapping)?;
            let address = |name: &CStr| {
                let at = SYMBOLS.iter().position(|symbol| symbol.as_bytes() == name.to_bytes())?;
                symbols[at].map(|symbol| mapping.start.wrapping_add(symbol))
            };
            Interpreter::find(Memory::of(pid), &address)
        })?;
        Some(Python {
            interpreter,
            gil: None,
            states: HashMap::new(),
            in_pthread: None,
            codes: HashMap::new(),
            frames: HashMap::new(),
            first: Box::default(),
            second: Box::default(),
        })
    }

    /// Its version, such as `3.11.7`.
    pub fn version(&self) -> String {
        match self.interpreter.version() {
            (major, minor, Some(patch)) => format!("{major}.{minor}.{patch}"),
            (major, minor, None) => format!("{major}.{minor}"),
        }
    }

    /// Lists the interpreter's threads anew; `tids` are those of the process.
    pub fn list_threads(&mut self, tids: &[u32]) {
        let states = self.interpreter.thread_states();
        if self.in_pthread.is_none() && states.iter().any(|state| state.native.is_none()) {
            self.in_pthread = self.interpreter.tid_in_pthread(&states, tids);
        }
        let known =
            states.iter().filter_map(|state| Some((self.interpreter.tid(state, self.in_pthread)?, *state)));
        self.states = known.filter(|(tid, _)| tids.contains(tid)).collect();
        self.gil = self.interpreter.gil();
    }

    /// The global lock, and which thread holds it at this moment.
    pub fn lock(&self) -> Option<Lock> {
        let gil = self.gil.as_ref()?;
        let holder = self.interpreter.holder(gil);
        let of_state = |address: u64| self.states.iter().find(|(_, state)| state.address == address);
        let holder = holder.and_then(of_state).map(|(&tid, _)| tid);
        Some(Lock { addresses: gil.addresses(), holder })
    }

    /// Whether this thread holds the global lock at this moment.
    pub fn holds_gil(&self, tid: u32) -> bool {
        let holder = self.gil.as_ref().and_then(|gil| self.interpreter.holder(gil));
        holder.is_some() && holder == self.states.get(&tid).map(|state| state.address)
    }

    /// An address in the file of the interpreter.
    pub fn address(&self) -> u64 {
        self.interpreter.address()
    }

    /// Appends the indexes of a thread's frames to `stack`, outermost first, and says whether they
    /// are settled. A thread that is none of the interpreter has none. `is_waiting` says that the
    /// thread waits, so that one reading is enough; the caller checks that it waited until this
    /// returned.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn sample(
        &mut self,
        tid: u32,
        is_waiting: bool,
        stack: &mut Vec<u32>,
        writer: &mut Writer,
    ) -> io::Result<bool> {
        let Some(known) = self.states.get(&tid).copied() else { return Ok(true) };
        let found = self.interpreter.thread_state(known.address);
        if found.is_none_or(|(state, _)| state != known) {
            self.states.remove(&tid);
            return Ok(true);
        }
        self.interpreter.walk(known.address, &mut self.first);
        let is_settled = is_waiting || self.settle(known.address);
        self.interpreter.keep_code_objects(&mut self.first);
        for at in (0..self.first.found().len()).rev() {
            let found = self.first.found()[at];
            stack.push(self.frame(found, writer)?);
        }
        Ok(is_settled)
    }

    /// Reads the stack again until enough readings agree, and keeps what is certain.
    fn settle(&mut self, state: u64) -> bool {
        let mut agree = 1;
        for _ in 1..READINGS {
            self.interpreter.walk(state, &mut self.second);
            agree = if are_same(self.first.found(), self.second.found()) { agree + 1 } else { 1 };
            std::mem::swap(&mut self.first, &mut self.second);
            if agree == AGREE {
                return true;
            }
        }
        let common = common_outermost(self.first.found(), self.second.found());
        self.first.keep_outermost(common);
        false
    }

    /// The index of a frame.
    fn frame(&mut self, found: Found, writer: &mut Writer) -> io::Result<u32> {
        let key = (found.code, found.head, found.offset);
        if let Some(&known) = self.frames.get(&key) {
            return Ok(known);
        }
        if self.frames.len() >= MOST_REMEMBERED || self.codes.len() >= MOST_REMEMBERED {
            self.frames.clear();
            self.codes.clear();
        }
        let interpreter = &self.interpreter;
        let code = self.codes.entry((found.code, found.head)).or_insert_with(|| {
            let copied = interpreter.copy(&found.head);
            copied.map_or_else(PythonCode::default, |code| PythonCode {
                id: 0,
                file: code.file,
                function: code.function,
                first_line: code.first_line,
                lines: code.lines,
            })
        });
        let line = code.line(found.offset).unwrap_or(0);
        let (function, file) = (code.function.clone(), code.file.clone());
        let index = writer.frame(Frame { kind: FrameKind::Python, function, file, line })?;
        self.frames.insert(key, index);
        Ok(index)
    }
}

/// Returns the reason why the memory of a process cannot be read, in words; `None` if it can, or if
/// nothing is known yet: a process in the middle of `exec` has none of its former addresses.
pub fn refusal(pid: u32) -> Option<String> {
    let mappings = match linux::mappings(pid) {
        Ok(mappings) => mappings,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(format!("/proc/PID/maps is refused ({error})")),
    };
    let start = mappings.first()?.start;
    if Memory::of(pid).word(start).is_some() {
        return None;
    }
    let error = io::Error::last_os_error();
    let is_refused = !matches!(error.raw_os_error(), Some(libc::EFAULT | libc::ESRCH));
    is_refused.then(|| format!("the system call process_vm_readv is refused ({error})"))
}

fn is_same_frame(one: &Found, other: &Found) -> bool {
    (one.address, one.code) == (other.address, other.code)
}

/// Whether two readings found the same; the innermost frame may have moved on.
fn are_same(one: &[Found], other: &[Found]) -> bool {
    let differs = |(at, (one, other)): (usize, (&Found, &Found))| {
        !is_same_frame(one, other) || at > 0 && one.offset != other.offset
    };
    one.len() == other.len() && !one.iter().zip(other).enumerate().any(differs)
}

/// Returns the number of outermost frames that are the same; of the innermost of them, the
/// instruction may differ.
fn common_outermost(one: &[Found], other: &[Found]) -> usize {
    let pairs = one.iter().rev().zip(other.iter().rev());
    let mut common = 0;
    for (one, other) in pairs {
        if !is_same_frame(one, other) {
            break;
        }
        common += 1;
        if one.offset != other.offset {
            break;
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(of: &[(u64, u64, i32)]) -> Vec<Found> {
        of.iter()
            .map(|&(address, code, offset)| Found { address, code, offset, ..Found::default() })
            .collect()
    }

    #[test]
    fn a_process_that_is_gone_or_readable_is_no_refusal() {
        assert_eq!(refusal(std::process::id()), None);
        // Identifiers end below 2²², so that no process has this one.
        assert_eq!(refusal(1 << 30), None);
    }

    #[test]
    fn readings_agree_if_only_the_innermost_instruction_differs() {
        let one = frames(&[(30, 3, 7), (20, 2, 5), (10, 1, 4)]);
        assert!(are_same(&one, &frames(&[(30, 3, 9), (20, 2, 5), (10, 1, 4)])));
        for other in [
            &[(30, 3, 7), (20, 2, 6), (10, 1, 4)][..],
            &[(30, 4, 7), (20, 2, 5), (10, 1, 4)],
            &[(31, 3, 7), (20, 2, 5), (10, 1, 4)],
            &[(20, 2, 5), (10, 1, 4)],
        ] {
            assert!(!are_same(&one, &frames(other)), "{other:?}");
        }
    }

    #[test]
    fn the_stable_outer_frames_are_those_that_both_have() {
        let one = frames(&[(30, 3, 7), (20, 2, 5), (10, 1, 4)]);
        let common = |other: &[(u64, u64, i32)]| common_outermost(&one, &frames(other));
        assert_eq!(common(&[(30, 9, 7), (20, 2, 5), (10, 1, 4)]), 2);
        // A caller that went on had returned meanwhile: what it called is not certain.
        assert_eq!(common(&[(30, 3, 7), (20, 2, 8), (10, 1, 4)]), 2);
        assert_eq!(common(&[(10, 1, 4)]), 1);
        assert_eq!(common(&[(10, 5, 4)]), 0);
        assert_eq!(common(&[]), 0);
    }
}
