//! The call stacks of some launches and other calls.
//!
//! A stack is read when a thread first launches a configuration, and for launches that the recorder
//! inspects anyway (timed ones, and those for which it measures its own time), within one part in
//! [`SHARE`] of the thread's time: the next stack waits [`SHARE`] times as long as the last one
//! took, and unused time is not saved up. Other launches have no additional cost. Calls that copy,
//! allocate or wait are treated alike: the first of a kind in a thread, and others within an equal
//! share. The objects that stacks name (code objects, modules, and whole stacks) are defined once,
//! like every object of a session.

use super::Recorder;
use super::thread::Thread;
use crate::limits;
use crate::message::leave_word;
use crate::native::{Loaded, Registers, Unwinder};
use crate::python::Python;
use crate::switch::guarded;
use crate::tables::put;
use apex_call_frames::memory::Memory;
use apex_call_frames::python::code::Identity;
use apex_call_frames::python::{Frame, Frames, Interpreter};
use apex_trace::definition::{CallStack, Definition, Module, NativeFrame, PythonFrame};
use apex_trace::layout::{Call, CallClass, Slots, StackSample, flags};
use apex_trace::python::PythonCode;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// The part of a thread's time that may be spent on stacks of launches that were made before, as a
/// divisor; and the part that may be spent on stacks of other calls.
const SHARE: u64 = 1024;

/// The number of stacks that a thread reads at first sight whatever they take. A loop that goes on
/// launching new configurations must not become a loop that reads stacks.
const FIRST: u32 = 256;
/// The part of a thread's time that further stacks at first sight may take, as a divisor.
const FIRST_SHARE: u64 = 32;

/// Bits by which a thread remembers which configurations it has launched. Where two share a bit,
/// the second one's first stack is not read.
const SEEN_BITS: usize = 4096;
/// Bits by which it remembers which kinds of other calls it has made.
const SEEN_CALLS_BITS: usize = 1024;

/// The name of this library's own thread, whose stacks say nothing of the program.
pub const OWN_THREAD: &str = "apex-queue";

/// A thread's notes about the stacks that it reads.
pub struct Noted {
    /// The time at which the next sample may be taken, in ticks.
    next: u64,
    /// Stacks that were read at first sight, and when another may be beyond [`FIRST`], ticks.
    first: (u32, u64),
    /// The time at which the last stack was read, and the duration of that, in ticks.
    last: (u64, u64),
    /// The time from which the stack of another call may be read, in ticks.
    calls_due: u64,
    seen: [u64; SEEN_BITS / 64],
    seen_calls: [u64; SEEN_CALLS_BITS / 64],
}

impl Noted {
    /// Creates the notes of a thread that has read no stack.
    pub fn new() -> Noted {
        Noted {
            next: 0,
            first: (0, 0),
            last: (0, 0),
            calls_due: 0,
            seen: [0; SEEN_BITS / 64],
            seen_calls: [0; SEEN_CALLS_BITS / 64],
        }
    }

    /// Ticks that were spent on a stack since `begun`, when at most one was read.
    pub fn spent_since(&self, begun: u64) -> u64 {
        if self.last.0 >= begun { self.last.1 } else { 0 }
    }
}

/// Notes what `id` names; true for the first time.
fn see(seen: &mut [u64], id: u32) -> bool {
    let (word, bit) = (id as usize / 64 % seen.len(), 1 << (id % 64));
    let is_new = seen[word] & bit == 0;
    seen[word] |= bit;
    is_new
}

/// The readers of stacks, and the identifiers that were given.
pub struct Stacks {
    python: Option<Python>,
    native: Unwinder,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    codes: HashMap<Identity, u32>,
    modules: HashMap<Loaded, u32>,
    /// By digest of their definitions.
    stacks: HashMap<u128, u32>,
}

impl Stacks {
    /// Looks for an interpreter. Says so if no stack can be read.
    pub fn new() -> Stacks {
        if let Err(error) = Memory::of_this_process().is_readable() {
            leave_word(&format!(
                "call stacks were not recorded: a sandbox refuses the system call process_vm_readv ({error}), by \
                 which they are read. Allow it in the sandbox's filter to see where launches come from"
            ));
        }
        Stacks { python: Python::find(), native: Unwinder::of_this_process(), given: Mutex::default() }
    }
}

impl Thread {
    /// The thread launches a configuration that it has not launched lately.
    pub fn note_unfamiliar(&mut self, config: u32) {
        if see(&mut self.noted.seen, config) {
            self.first_stack(of_launch(config), 0);
        }
    }

    /// The thread has launched a graph.
    pub fn note_graph(&mut self, graph: u32, is_timed: bool) {
        if see(&mut self.noted.seen, !graph) {
            self.first_stack(of_launch(graph), flags::OF_GRAPH);
        } else if is_timed {
            self.sample_stack(graph, flags::OF_GRAPH);
        }
    }

    /// The thread has made a launch that the recorder looks at: its stack is a sample, if there is
    /// time for it.
    pub fn sample_stack(&mut self, config: u32, flags: u16) {
        let now = self.clock.now();
        if now >= self.noted.next {
            self.noted.next = now + self.read_stack(of_launch(config), flags) * SHARE;
        }
    }

    /// The thread has made a call of a class [whose stacks are read](is_walked), which ended at
    /// `end` ticks.
    #[inline]
    pub fn note_call(&mut self, call: &Call, end: u64) {
        let Call { api, class, memory, source_memory, .. } = *call;
        let sample = StackSample { config: api, class, memory, source_memory, ..StackSample::default() };
        let of_call = flags::OF_CALL | call.head.flags & (flags::ASYNC | flags::PEER);
        let kind = u32::from_le_bytes([class, memory, source_memory, 0]);
        if see(
            &mut self.noted.seen_calls,
            (kind ^ api.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b) >> 16,
        ) {
            self.first_stack(sample, of_call);
        } else if end >= self.noted.calls_due {
            let ticks = self.read_stack(sample, of_call);
            // Not always as long: or else samples would always meet the same call of a loop.
            let most = SHARE * ticks;
            let spread = end.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
            self.noted.calls_due = end + most / 2 + (most >> 10) * spread;
        }
    }

    /// Reads the stack of the thread's first launch or call of its kind, if there is time for it.
    fn first_stack(&mut self, of: StackSample, kind: u16) {
        let (read, next) = self.noted.first;
        let now = self.clock.now();
        if read < FIRST || now >= next {
            let ticks = self.read_stack(of, kind | flags::FIRST_SEEN);
            self.noted.first = (read.saturating_add(1), now + ticks * FIRST_SHARE);
        }
    }

    /// Records the stack of a launch or other call, and gives the ticks that this took.
    #[inline(never)]
    fn read_stack(&mut self, of: StackSample, flags: u16) -> u64 {
        let (begun, recorder, registers) = (self.clock.now(), self.recorder, Registers::here());
        let stack = guarded(|| recorder.stack(registers)).flatten();
        let end = self.clock.now();
        if let Some(stack) = stack {
            self.push(&StackSample { head: StackSample::head(flags, begun, end), stack, ..of });
        }
        let ticks = end.saturating_sub(begun);
        recorder.file.add_timing_ticks(ticks);
        self.noted.last = (begun, ticks);
        ticks
    }
}

/// Whether stacks of calls of this class, which are no launches, are read.
#[inline(always)]
pub fn is_walked(class: CallClass) -> bool {
    matches!(
        class,
        CallClass::Allocate | CallClass::Free | CallClass::Copy | CallClass::Set | CallClass::Synchronize
    )
}

fn of_launch(config: u32) -> StackSample {
    StackSample { config, ..StackSample::default() }
}

impl Recorder {
    /// The identifier of the calling thread's stack, from the function on whose registers these
    /// are; `None` if it cannot be read or defined.
    fn stack(&self, registers: Registers) -> Option<u32> {
        let thread = thread_name();
        if thread == OWN_THREAD {
            return None;
        }
        let mut found = Frames::default();
        let mut python = Vec::new();
        let mut interpreter = None;
        if let Some(of) = self.stacks.python.as_ref() {
            of.frames(&mut found);
            python.try_reserve_exact(found.found().len()).ok()?;
            for frame in found.found() {
                let code = self.python_code(of.interpreter(), frame)?;
                python.push(PythonFrame { code, offset: frame.offset });
            }
            // What called the interpreter is no part of what the interpreter called.
            interpreter = (!python.is_empty()).then(|| of.address());
        }
        let native = self.native_frames(registers, interpreter)?;
        let stack = CallStack { id: 0, thread, python, native, is_cut: found.is_cut };
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

    /// The frames of compiled code, up to the module that holds `until`.
    fn native_frames(&self, registers: Registers, until: Option<u64>) -> Option<Vec<NativeFrame>> {
        let found = self.stacks.native.frames(registers, until);
        let mut frames = Vec::new();
        frames.try_reserve_exact(found.count()).ok()?;
        for frame in found.found() {
            frames.push(NativeFrame { module: self.module(&frame.module)?, address: frame.address });
        }
        Some(frames)
    }

    /// The identifier of a module.
    fn module(&self, module: &Loaded) -> Option<u32> {
        let mut given = self.stacks.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = given.modules.get(module) {
            return Some(id);
        }
        if given.modules.len() >= limits::MODULES {
            return None;
        }
        let id = given.modules.len() as u32 + 1;
        let identity = self.stacks.native.identity(module);
        let (path, build_id) = (identity.path, identity.build_id);
        let (bytes, modified_ns) = (identity.bytes, identity.modified_ns);
        let definition = Definition::Module(Module { id, path, build_id, bytes, modified_ns });
        let is_given = self.file.define(&definition) && put(&mut given.modules, *module, id);
        is_given.then_some(id)
    }

    /// The identifier of a frame's code object.
    fn python_code(&self, python: &Interpreter, frame: &Frame) -> Option<u32> {
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
