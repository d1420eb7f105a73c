//! The frames of the Python interpreter in which the calling thread makes a driver call.
//!
//! The interpreter is asked one thing: `PyGILState_GetThisThreadState()`, which reads a
//! thread-local and needs no lock. All else is read from its memory (`apex_call_frames`). The
//! frames of a thread cannot change while the thread is in our call, but
//! the interpreter may be ending in another thread meanwhile, and free them. Hence the contract:
//! **nothing of the interpreter is dereferenced**. The kernel copies every byte ([`crate::memory`])
//! and answers with an error where there is no memory, chains are followed for a bounded number of
//! steps, and a code object counts as one only if its type is `PyCode_Type`. In a thread whose
//! state was freed, garbage can give no frames or wrong ones; never a fault.
//!
//! Interpreters whose frames are read: CPython 3.10 to 3.14 that export their symbols (an
//! executable, or a `libpython`, in the global scope or not), with a GIL. Free-threaded builds,
//! builds that trace references, and other versions give no frames.

mod scope;

use apex_call_frames::memory::Memory;
use apex_call_frames::python::{Frames, Interpreter};
use scope::Scope;
use std::ffi::{CStr, c_void};
use std::mem::transmute;

/// The interpreter of this process.
pub struct Python {
    this_thread_state: unsafe extern "C" fn() -> *mut c_void,
    interpreter: Interpreter,
}

impl Python {
    /// An address in the interpreter's code.
    pub fn address(&self) -> u64 {
        self.this_thread_state as *const () as u64
    }

    /// Returns the reader of its memory.
    pub fn interpreter(&self) -> &Interpreter {
        &self.interpreter
    }

    /// Finds the interpreter; `None` if the process has none, or one whose frames cannot be read.
    pub fn find() -> Option<Python> {
        let scope = Scope::find()?;
        let this_thread_state = scope.this_thread_state()?;
        let address = |name: &CStr| scope.symbol(name).map(|address| address as u64);
        let interpreter = Interpreter::find(Memory::of_this_process(), &address)?;
        // SAFETY: the type of the function of this name, which has not changed since Python 2.3.
        let this_thread_state =
            unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_void>(this_thread_state) };
        Some(Python { this_thread_state, interpreter })
    }

    /// The frames of the calling thread; false if it is no thread of the interpreter.
    pub fn frames(&self, found: &mut Frames) -> bool {
        // SAFETY: the interpreter's function; it may be called in any thread, with or without the
        // GIL, at any time after the interpreter's library was loaded, which is never unloaded.
        let state = unsafe { (self.this_thread_state)() } as u64;
        if state == 0 {
            return false;
        }
        self.interpreter.walk(state, found);
        self.interpreter.keep_code_objects(found);
        true
    }
}
