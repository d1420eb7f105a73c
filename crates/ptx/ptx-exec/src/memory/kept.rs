//! State that machine code keeps between its runs in a block: addresses that are known to be good.

use ptx_compile::{Bases, Code, STRIPS, Window};

use super::spaces::Spaces;
use crate::registers::lanes::WARP;

/// Lanes of a strip.
const STRIP: usize = WARP / STRIPS;

/// State that the code of a region keeps between its runs.
#[derive(Default)]
pub(crate) struct Kept {
    /// Addresses that it knows to be allowed.
    pub(crate) windows: Vec<Window>,
    /// The addresses that were known on entering.
    pub(crate) bases: Vec<Bases>,
    pub(crate) counters: Vec<u64>,
    pub(crate) laps: Vec<[u32; STRIP]>,
    /// Where the local memory of each lane of the warps begins.
    pub(crate) lanes: Vec<[u64; WARP]>,
}

impl Kept {
    /// Forgets what is allowed.
    pub(crate) fn forget(&mut self) {
        self.windows.fill(Window::default());
    }
}

impl Spaces<'_> {
    /// State of the code of a region, as its last run has left it, with room for some warps.
    pub(crate) fn take_kept(&mut self, region: usize, code: &Code, warps: usize) -> Kept {
        if self.native.len() <= region {
            self.native.resize_with(region + 1, Kept::default);
        }
        let mut kept = std::mem::take(&mut self.native[region]);
        kept.windows.resize(code.groups().len(), Window::default());
        kept.counters.clear();
        kept.counters.resize(code.counters(), 0);
        kept.laps.clear();
        kept.laps.resize(warps * code.laps(), [0; STRIP]);
        kept
    }
}
