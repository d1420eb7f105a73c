//! Where in the program launches are made: the stack of the calling thread, on some of its
//! launches.
//!
//! A stack is read where a thread first launches a configuration, and on launches that the recorder
//! looks at anyway (those that are timed, and those around which it takes its own time), within one
//! part in [`SHARE`] of the thread's time: the next stack waits [`SHARE`] times as long as the last
//! one took, and what a thread did not use it does not save up. The path of the other launches does
//! not know of it. What stacks name (code objects, and stacks as a whole) is defined
//! once, like every object of a session.

use super::Recorder;
use super::thread::Thread;
use crate::limits;
use crate::python::code::Identity;
use crate::python::{Frame, Frames, Python};
use crate::switch::guarded;
use crate::tables::put;
use apex_trace::definition::{CallStack, Definition, PythonFrame};
use apex_trace::layout::{Slots, StackSample, flags};
use apex_trace::python::PythonCode;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// The part of a thread's time that may be spent on stacks of launches that were made before, as a
/// divisor.
const SHARE: u64 = 1024;

/// Bits by which a thread remembers which configurations it has launched. Where two share a bit,
/// the second one's first stack is not read.
const SEEN_BITS: usize = 4096;

/// What a thread notes about the stacks that it reads.
pub struct Noted {
    /// When the next sample may be taken, ticks.
    next: u64,
    /// When the last stack was read, and how long that took, ticks.
    last: (u64, u64),
    seen: [u64; SEEN_BITS / 64],
}

impl Noted {
    /// Of a thread that has read none.
    pub fn new() -> Noted {
        Noted { next: 0, last: (0, 0), seen: [0; SEEN_BITS / 64] }
    }

    /// Ticks that were spent on a stack since `begun`, when at most one was read.
    pub fn spent_since(&self, begun: u64) -> u64 {
        if self.last.0 >= begun { self.last.1 } else { 0 }
    }

    /// Notes that the thread launches what `id` names; true for the first time.
    fn see(&mut self, id: u32) -> bool {
        let (word, bit) = (id as usize % SEEN_BITS / 64, 1 << (id % 64));
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }
}

/// The interpreter whose frames are read, and the identifiers that were given.
pub struct Stacks {
    python: Option<Python>,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    codes: HashMap<Identity, u32>,
    /// By digest of their definitions.
    stacks: HashMap<u128, u32>,
}

impl Stacks {
    /// Looks for an interpreter.
    pub fn new() -> Stacks {
        Stacks { python: Python::find(), given: Mutex::default() }
    }
}

impl Thread {
    /// The thread launches a configuration that it has not launched lately.
    pub fn note_unfamiliar(&mut self, config: u32) {
        if self.recorder.stacks.python.is_some() && self.noted.see(config) {
            self.read_stack(config, flags::FIRST_SEEN);
        }
    }

    /// The thread has launched a graph.
    pub fn note_graph(&mut self, graph: u32, is_timed: bool) {
        if self.recorder.stacks.python.is_some() && self.noted.see(!graph) {
            self.read_stack(graph, flags::OF_GRAPH | flags::FIRST_SEEN);
        } else if is_timed {
            self.sample_stack(graph, flags::OF_GRAPH);
        }
    }

    /// The thread has made a launch that the recorder looks at: its stack is a sample, if there is
    /// time for it.
    pub fn sample_stack(&mut self, config: u32, flags: u16) {
        if self.recorder.stacks.python.is_none() {
            return;
        }
        let now = self.clock.now();
        if now >= self.noted.next {
            self.noted.next = now + self.read_stack(config, flags) * SHARE;
        }
    }

    /// Records the stack of a launch of `config`, and gives the ticks that this took.
    fn read_stack(&mut self, config: u32, flags: u16) -> u64 {
        let (begun, recorder) = (self.clock.now(), self.recorder);
        let stack = guarded(|| recorder.stack()).flatten();
        let end = self.clock.now();
        if let Some(stack) = stack {
            let head = StackSample::head(flags, begun, end);
            self.push(&StackSample { head, config, stack, reserved: 0 });
        }
        let ticks = end.saturating_sub(begun);
        recorder.file.add_timing_ticks(ticks);
        self.noted.last = (begun, ticks);
        ticks
    }
}

impl Recorder {
    /// The identifier of the calling thread's stack as it is now; `None` if it cannot be read or
    /// defined.
    fn stack(&self) -> Option<u32> {
        let python = self.stacks.python.as_ref()?;
        let mut found = Frames::new();
        python.frames(&mut found);
        let mut frames = Vec::new();
        frames.try_reserve_exact(found.found().len()).ok()?;
        for frame in found.found() {
            let code = self.python_code(python, frame)?;
            frames.push(PythonFrame { code, offset: frame.offset });
        }
        let stack = CallStack { id: 0, thread: thread_name(), python: frames, is_cut: found.is_cut };
        let digest = digest(&stack);
        let mut given = self.stacks.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = given.stacks.get(&digest) {
            return Some(id);
        }
        let id = given.stacks.len() as u32 + 1;
        let may_be_given = given.stacks.len() < limits::CALL_STACKS;
        let is_given = may_be_given
            && self.file.define(&Definition::CallStack(CallStack { id, ..stack }))
            && put(&mut given.stacks, digest, id);
        is_given.then_some(id)
    }

    /// The identifier of a frame's code object.
    fn python_code(&self, python: &Python, frame: &Frame) -> Option<u32> {
        let identity = python.identity(frame.code, &frame.head);
        let mut given = self.stacks.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = given.codes.get(&identity) {
            return Some(id);
        }
        if given.codes.len() >= limits::PYTHON_CODES {
            return None;
        }
        let id = given.codes.len() as u32 + 1;
        let code = python.copy(&frame.head)?;
        let (file, function, first_line, lines) = (code.file, code.function, code.first_line, code.lines);
        let definition = Definition::PythonCode(PythonCode { id, file, function, first_line, lines });
        let is_given = self.file.define(&definition) && put(&mut given.codes, identity, id);
        is_given.then_some(id)
    }
}

fn digest(stack: &CallStack) -> u128 {
    let half = |seed: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, stack).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// The calling thread's name; empty where it is not UTF-8.
fn thread_name() -> String {
    let mut name = [0u8; 16];
    // SAFETY: `PR_GET_NAME` writes at most 16 bytes, its terminator included.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    std::str::from_utf8(&name[..end]).unwrap_or_default().to_owned()
}
