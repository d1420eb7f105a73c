//! The accesses of a kernel, as a trial of its code finds them: input of [`facts`](super::facts).

use crate::body::Line;
use crate::instruction::Direction;
use crate::syntax::StateSpace;

/// A line of a module's source: the index of its `.file`, and the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Index of the `.file`.
    pub file: u32,
    /// The line, from 1.
    pub line: u32,
}

impl Place {
    /// Returns the place of an instruction; for inlined code, the place of the call.
    pub fn of(line: &Line<'_>) -> Option<Place> {
        let location = line.location?;
        let (file, line) = match &location.inlined {
            Some(call) => (call.file, call.line),
            None => (location.file, location.line),
        };
        (line > 0).then_some(Place { file, line })
    }
}

/// An access of a kernel by a full warp.
#[derive(Clone, Debug, PartialEq)]
pub struct Probed {
    /// Global, shared or constant memory.
    pub space: StateSpace,
    /// Load, store or atomic.
    pub direction: Direction,
    /// Loops around it.
    pub depth: u32,
    /// The place in the source, if the module has lines.
    pub place: Option<Place>,
    /// Bytes of a lane.
    pub bytes: u32,
    /// The pattern of the lanes' addresses.
    pub lanes: Lanes,
}

/// The pattern of the addresses of a warp's lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lanes {
    /// All lanes have one address.
    One,
    /// They depend on data.
    Data,
    /// They follow from the code.
    Known {
        /// Sectors of global memory, wavefronts of shared memory, addresses of constant memory:
        /// the least of both trials.
        cost: u64,
        /// The same in the trial with large parameters.
        cost_if_large: u64,
        /// The least cost of accesses to as many bytes.
        least: u64,
    },
}
