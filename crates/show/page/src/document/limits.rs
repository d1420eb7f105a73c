//! The maximum lengths of a document's lists.

use super::lines::Extent;

/// Maximum lengths of the lists that grow with the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Kernels of the table.
    pub kernels: usize,
    /// Kernels that are shown in other block sizes.
    pub tried: usize,
    /// Kernels whose lines are shown.
    pub kernels_with_lines: usize,
    /// Lines of each of them.
    pub lines: usize,
    /// Kernels of each finding.
    pub kernels_of_finding: usize,
    /// Devices, each as each process used it.
    pub devices: usize,
    /// Nodes of the tree of call paths; the smallest are summed up where there are more.
    pub nodes: usize,
    /// Places in the program.
    pub places: usize,
    /// Ranges that the program names.
    pub ranges: usize,
    /// Steps whose data flow is drawn.
    pub flows: usize,
    /// Processes, and devices of the machine.
    pub processes: usize,
    /// Memory over time, of processes and of the host or a device.
    pub memory: usize,
    /// Parts of the time in series of the machine.
    pub moments: usize,
}

impl Default for Limits {
    /// What a reader may want to look at, and what fits into a page of most sessions.
    fn default() -> Self {
        Self {
            kernels: 1_000,
            tried: 100,
            kernels_with_lines: 60,
            lines: 80,
            kernels_of_finding: 12,
            devices: 64,
            nodes: 3_000,
            places: 200,
            ranges: 500,
            flows: 3,
            processes: 256,
            memory: 16,
            moments: 240,
        }
    }
}

impl Limits {
    /// For a document whose reader can ask a server for the lines of a kernel.
    pub fn served() -> Self {
        Self { kernels_with_lines: 0, ..Self::default() }
    }

    /// Limits on what is shown of the lines of a kernel.
    pub(super) fn lines(&self) -> Extent {
        Extent { lines: self.lines, context: 2 }
    }

    /// Half as many of each.
    #[must_use]
    pub fn halved(&self) -> Self {
        Self {
            kernels: self.kernels / 2,
            tried: self.tried / 2,
            kernels_with_lines: self.kernels_with_lines / 2,
            lines: self.lines / 2,
            kernels_of_finding: self.kernels_of_finding / 2,
            devices: self.devices / 2,
            nodes: self.nodes / 2,
            places: self.places / 2,
            ranges: self.ranges / 2,
            flows: self.flows / 2,
            processes: self.processes / 2,
            memory: self.memory / 2,
            moments: self.moments / 2,
        }
    }

    /// Whether no list can be shortened further.
    pub fn is_least(&self) -> bool {
        *self == self.halved()
    }
}
