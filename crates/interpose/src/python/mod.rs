//! The frames of the Python interpreter in which the calling thread makes a driver call.
//!
//! The interpreter is asked one thing: `PyGILState_GetThisThreadState()`, which reads a
//! thread-local and needs no lock. All else is read from its memory, at offsets that depend on its
//! version ([`layout`]). The frames of a thread cannot change while the thread is in our call, but
//! the interpreter may be ending in another thread meanwhile, and free them. Hence the contract:
//! **nothing of the interpreter is dereferenced**. The kernel copies every byte ([`crate::memory`])
//! and answers with an error where there is no memory, chains are followed for a bounded number of
//! steps, and a code object counts as one only if its type is `PyCode_Type`. In a thread whose
//! state was freed, garbage can give no frames or wrong ones; never a fault.
//!
//! Interpreters whose frames are read: CPython 3.10 to 3.14 that export their symbols (an
//! executable, or a `libpython`, in the global scope or not), with a GIL. Free-threaded builds,
//! builds that trace references, and other versions give no frames.

pub mod code;
mod frames;
mod layout;
mod scope;

pub use frames::{Frame, Frames};

use crate::memory::Memory;
use layout::Layout;
use scope::Scope;
use std::ffi::c_void;
use std::mem::transmute;

/// The interpreter of this process.
pub struct Python {
    this_thread_state: unsafe extern "C" fn() -> *mut c_void,
    /// Address of `PyCode_Type`.
    code_type: u64,
    layout: Layout,
    memory: Memory,
}

impl Python {
    /// An address in the interpreter's code.
    pub fn address(&self) -> u64 {
        self.this_thread_state as *const () as u64
    }

    /// Finds the interpreter; `None` if the process has none, or one whose frames cannot be read.
    pub fn find() -> Option<Python> {
        let scope = Scope::find()?;
        let this_thread_state = scope.this_thread_state()?;
        let memory = Memory::of_this_process();
        let layout = Layout::of(scope, &memory)?;
        // SAFETY: the type of the function of this name, which has not changed since Python 2.3.
        let this_thread_state =
            unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> *mut c_void>(this_thread_state) };
        Some(Python { this_thread_state, code_type: scope.symbol(c"PyCode_Type")? as u64, layout, memory })
    }
}
