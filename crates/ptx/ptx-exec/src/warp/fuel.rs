//! The fuel of a run of warps, which ensures that the run ends in time for other warps.
//!
//! Every operation that can repeat forever uses fuel: backward jumps, and accesses with which a
//! program can wait for other threads.

/// Backward jumps in a run.
const FUEL: u32 = 8192;

/// The fuel that a synchronising access burns.
const SYNCHRONISING: u32 = 32;

/// The fuel that a run has left.
pub(crate) struct Fuel {
    left: u32,
    /// The fuel that synchronising accesses have burnt.
    strong: u32,
}

impl Fuel {
    pub(crate) fn full() -> Fuel {
        Fuel { left: FUEL, strong: 0 }
    }

    /// Whether synchronising accesses have burnt most of it.
    pub(crate) fn spinning(&self) -> bool {
        self.strong > FUEL / 2
    }

    /// Burns a backward jump; whether that was the last.
    pub(crate) fn burn(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Burns a synchronising access; whether that was the last.
    pub(crate) fn burn_strongly(&mut self) -> bool {
        self.left = self.left.saturating_sub(SYNCHRONISING);
        self.strong += SYNCHRONISING;
        self.left == 0
    }

    /// Burns all, as a spin would.
    pub(crate) fn burn_all(&mut self) {
        (self.left, self.strong) = (0, FUEL);
    }
}
