//! Decides when events may be used.
//!
//! While any stream of the process is being captured, creating, recording or querying events could
//! become part of the graph or invalidate the capture. When a context is destroyed, its events are
//! destroyed too. Every use of events is therefore a [`Section`], which is refused during a capture
//! or a [`Pause`]. A thread that begins a capture or destroys a context first announces this and
//! then waits for running sections ([`Guard::wait_for_sections`]), which take only a few calls.

use crate::objects::Objects;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Sections and pauses of a process.
#[derive(Default)]
pub struct Guard {
    sections: AtomicU32,
    pauses: AtomicU32,
}

/// Leave to use events, for as long as it lives.
pub struct Section<'t>(&'t Guard);

impl Drop for Section<'_> {
    fn drop(&mut self) {
        self.0.sections.fetch_sub(1, SeqCst);
    }
}

/// While it lives nothing is timed.
pub struct Pause(&'static Guard);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, SeqCst);
    }
}

impl Guard {
    /// Leave to use events, if it can be given.
    pub fn section(&self, objects: &Objects) -> Option<Section<'_>> {
        self.sections.fetch_add(1, SeqCst);
        let section = Section(self);
        let allowed = self.pauses.load(SeqCst) == 0 && !objects.captures.any_in_order();
        allowed.then_some(section)
    }

    /// Stops timing, and waits until nobody is at it.
    pub fn pause(&'static self) -> Pause {
        self.pauses.fetch_add(1, SeqCst);
        self.wait_for_sections();
        Pause(self)
    }

    /// Waits until no section is under way. The caller has made sure that none begins. Gives up
    /// after a while: a driver call that does not come back must not hold up the program's other
    /// threads for good.
    pub fn wait_for_sections(&self) {
        let busy = || self.sections.load(SeqCst) != 0;
        if !busy() {
            return;
        }
        let begun = Instant::now();
        while busy() && begun.elapsed() < Duration::from_millis(200) {
            std::thread::yield_now();
        }
    }
}
