//! Known objects of the driver: contexts, streams and their captures, functions, graphs, addresses.
//!
//! This is information that the program gave to the driver and that the driver does not return
//! later. Hooks update it whether or not calls are recorded, so that recording can begin at any
//! time, and so that actions know what calls mean. This module does not know sessions:
//! [`crate::record`] has the identifiers that a session gives to objects.
//!
//! Invariants:
//!
//! 1. No lock of this module is held during a call into the driver: the driver may call back, or
//!    hold locks of its own.
//! 2. An object is forgotten, or its epoch ended, *before* the call that destroys it: afterwards
//!    the driver may give the same handle to another object.

pub mod addresses;
mod captures;
mod contexts;
mod functions;
pub mod graphs;
pub mod images;
pub mod streams;

use crate::hot::{Epochs, hot};
use crate::per_process::{OfProcess, PerProcess};
use crate::switch;
use apex_trace::ForkGuard;
use captures::Captures;
use contexts::{Primaries, UsedDevices};
use functions::Settings;
use graphs::Graphs;
use images::Origins;
use std::sync::atomic::Ordering::Release;
use std::sync::{Mutex, MutexGuard, PoisonError};
use streams::Flags;

static OBJECTS: PerProcess<Objects> = PerProcess::new();

/// The process's epochs.
#[inline(always)]
pub fn epochs() -> &'static Epochs {
    &hot().epochs
}

/// See the [module](self).
pub struct Objects {
    /// Streams that are being captured.
    pub captures: Captures,
    /// Executable graphs.
    pub graphs: Graphs,
    /// Devices on which the process has had a context.
    pub devices: UsedDevices,
    guard: ForkGuard,
    functions: Mutex<Settings>,
    streams: Mutex<Flags>,
    primaries: Mutex<Primaries>,
    origins: Mutex<Origins>,
}

impl OfProcess for Objects {
    fn is_ours(&self) -> bool {
        self.guard.is_same_process()
    }
}

impl Objects {
    /// The objects of this process; `None` without memory for them.
    pub fn start() -> Option<&'static Objects> {
        OBJECTS.get_or_make(Objects::new, |_| {})
    }

    /// The objects of this process, if anybody has asked for them before.
    #[inline]
    pub fn existing() -> Option<&'static Objects> {
        OBJECTS.get().filter(|_| !switch::must_rest())
    }

    fn new() -> Option<Box<Objects>> {
        Some(Box::new(Objects {
            captures: Captures::new(),
            graphs: Graphs::new()?,
            devices: UsedDevices::default(),
            guard: ForkGuard::new().ok()?,
            functions: Mutex::default(),
            streams: Mutex::default(),
            primaries: Mutex::default(),
            origins: Mutex::default(),
        }))
    }

    /// Ends the epoch of function handles: code is about to be unloaded, or attributes have
    /// changed.
    pub fn forget_functions(&self) {
        epochs().modules.fetch_add(1, Release);
    }

    /// A context is about to be destroyed, and with it whatever belongs to it.
    pub fn forget_context(&self) {
        epochs().contexts.fetch_add(1, Release);
        epochs().streams.fetch_add(1, Release);
        self.forget_addresses();
        self.forget_functions();
    }

    /// Memory is about to be freed, or was allocated or registered: addresses may come to mean
    /// something else.
    pub fn forget_addresses(&self) {
        epochs().memory.fetch_add(1, Release);
    }
}

/// Locks a mutex. A panic while it was held leaves the maps valid, because every step of their
/// changes does.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
