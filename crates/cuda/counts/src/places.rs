//! Places in a program, and their faults.

/// Places kept of each [`Fault`] of a launch.
pub const MAX_HOTSPOTS: usize = 4;

/// A fault at a place in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum Fault {
    /// Global accesses that take more sectors than their bytes need.
    Uncoalesced,
    /// Shared accesses that take more wavefronts than their bytes need.
    BankConflict,
    /// Branches that threads of a warp take differently.
    Divergence,
}

impl Fault {
    /// All of them, in the order of their numbers.
    pub const ALL: [Fault; 3] = [Fault::Uncoalesced, Fault::BankConflict, Fault::Divergence];

    /// Its name, for documents.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Uncoalesced => "uncoalesced",
            Fault::BankConflict => "bank_conflict",
            Fault::Divergence => "divergence",
        }
    }
}

/// A place in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Place {
    /// The instruction, such as `ld.global.f32`.
    pub instruction: String,
    /// Its line in the PTX, from 1; 0 if there is none.
    pub ptx_line: u32,
    /// Source file, where the PTX names it; else empty.
    pub file: String,
    /// Line in the source file, from 1.
    pub line: u32,
}

impl Place {
    /// The source line where it is known, else the line of the PTX.
    pub fn shown(&self) -> String {
        match self.file.is_empty() {
            true => format!("PTX line {} ({})", self.ptx_line, self.instruction),
            false => format!("{}:{}", self.file, self.line),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Place { instruction, ptx_line, file, line } = self;
        write!(out, "{instruction} (PTX line {ptx_line})")?;
        if file.is_empty() { Ok(()) } else { write!(out, ", {file}:{line}") }
    }
}

/// One of the worst places of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Hotspot {
    /// The fault.
    pub fault: Fault,
    /// The place.
    pub place: Place,
    /// Requests, or branches.
    pub events: u64,
    /// Transactions, or branches.
    pub total: u64,
    /// Of `total`, how much is excess, or how many branches diverge.
    pub excess: u64,
}

/// A defect of a program: reported once, however often and at however many places of unrolled code
/// it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Defect {
    /// The kind of defect: `uninitialized-read`, `shared-race`, `divergent-barrier`, or an error of
    /// CUDA such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub kind: String,
    /// Name of the kernel.
    pub kernel: String,
    /// A sentence about the first time that it happened.
    pub text: String,
    /// The first of the places.
    pub place: Place,
    /// For races: where the other access is. For values that nobody has written: where it was
    /// loaded.
    pub other: Option<Place>,
    /// The number of times that it happened.
    pub count: u64,
    /// The number of places, or of pairs of places.
    pub places: u64,
}
