//! What a device that executes kernels itself can count: instructions, transactions of memory,
//! divergence.
//!
//! These are counts of one launch, in the words of Nsight Compute, and no measurement of time:
//! exact, or scaled from a sample of a long launch ([`LaunchCounts::watched`]). A *request* is one
//! memory instruction of a warp; it takes *transactions*: 32-byte sectors for global memory,
//! wavefronts for shared memory. *Excess* transactions are those beyond what the same bytes would
//! take laid out one after the other.
//!
//! The device writes them into a file of its own, `<pid>-<start>.counts`, beside the process files
//! ([`file`](mod@file)).

pub mod file;
mod lines;

pub use lines::{Line, LineCounts};

use cuda_launch::LaunchConfig;
use std::ops::AddAssign;

/// What an instruction does; each belongs to one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum InstructionClass {
    /// Integer arithmetic, logic, shifts, comparisons.
    Integer,
    /// Arithmetic of 16-bit floating point, one value or two.
    Half,
    /// Arithmetic of 32-bit floating point.
    Single,
    /// Arithmetic of 64-bit floating point.
    Double,
    /// Matrix products.
    Tensor,
    /// `ex2`, `lg2`, `sin`, `cos`, `tanh`, `rcp`, `sqrt`, `rsqrt`, `div` of floating point.
    Special,
    /// `cvt`.
    Conversion,
    /// Moves, selections, conversions of addresses.
    Move,
    /// Accesses to global memory, and through generic addresses that lead there.
    Global,
    /// Accesses to shared memory.
    Shared,
    /// Accesses to local memory, parameters of functions among them.
    Local,
    /// Accesses to constants, parameters of kernels, textures; hints to caches.
    OtherMemory,
    /// Branches, calls, returns.
    Control,
    /// Barriers and fences.
    Synchronization,
    /// Shuffles, votes, matches and reductions within a warp.
    Warp,
}

impl InstructionClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [InstructionClass; 15] = [
        InstructionClass::Integer,
        InstructionClass::Half,
        InstructionClass::Single,
        InstructionClass::Double,
        InstructionClass::Tensor,
        InstructionClass::Special,
        InstructionClass::Conversion,
        InstructionClass::Move,
        InstructionClass::Global,
        InstructionClass::Shared,
        InstructionClass::Local,
        InstructionClass::OtherMemory,
        InstructionClass::Control,
        InstructionClass::Synchronization,
        InstructionClass::Warp,
    ];

    /// Its name, for tables and documents.
    pub fn name(self) -> &'static str {
        match self {
            InstructionClass::Integer => "integer",
            InstructionClass::Half => "f16",
            InstructionClass::Single => "f32",
            InstructionClass::Double => "f64",
            InstructionClass::Tensor => "tensor",
            InstructionClass::Special => "special",
            InstructionClass::Conversion => "conversion",
            InstructionClass::Move => "move",
            InstructionClass::Global => "global",
            InstructionClass::Shared => "shared",
            InstructionClass::Local => "local",
            InstructionClass::OtherMemory => "other_memory",
            InstructionClass::Control => "control",
            InstructionClass::Synchronization => "synchronization",
            InstructionClass::Warp => "warp",
        }
    }
}

/// A memory whose traffic is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Space {
    /// Global memory; transactions are sectors of 32 bytes.
    Global,
    /// Shared memory; transactions are wavefronts over 32 banks of 4 bytes.
    Shared,
    /// Local memory; transactions are not counted, for they depend on how a compiler spills.
    Local,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Both at once.
    Atomic,
}

/// Accesses of one sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Memory instructions, each counted once for a warp.
    pub requests: u64,
    /// The same, counted for each thread.
    pub threads: u64,
    /// Bytes that the threads asked for.
    pub bytes: u64,
    /// Sectors or wavefronts.
    pub transactions: u64,
    /// Transactions that another layout would save.
    pub excess: u64,
}

impl Traffic {
    /// Transactions of a request on average; 0 without requests.
    pub fn per_request(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.transactions as f64 / self.requests as f64 }
    }
}

impl AddAssign<&Traffic> for Traffic {
    fn add_assign(&mut self, other: &Traffic) {
        for (sum, more) in [
            (&mut self.requests, other.requests),
            (&mut self.threads, other.threads),
            (&mut self.bytes, other.bytes),
            (&mut self.transactions, other.transactions),
            (&mut self.excess, other.excess),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Classes of instructions.
pub const CLASSES: usize = InstructionClass::ALL.len();

/// The counts of one launch, or of several together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// PTX instructions, each counted once for all threads of a warp that execute it together; by
    /// [`InstructionClass`].
    pub warp_instructions: [u64; CLASSES],
    /// The same, counted for each of these threads.
    pub thread_instructions: [u64; CLASSES],
    /// Of the latter, those whose guard predicate did not hold them back.
    pub not_predicated_off: u64,
    /// Floating-point operations of 16, 32 and 64 bits and of matrix products: an addition or a
    /// multiplication counts one, a fused one two, m·n·k of a matrix product 2·m·n·k.
    pub operations: [u64; 4],
    /// Traffic by [`Space`] and [`Direction`].
    pub traffic: [[Traffic; 3]; 3],
    /// Branch instructions, by warp.
    pub branches: u64,
    /// Branches that threads of a warp took differently.
    pub divergent_branches: u64,
}

impl Counts {
    /// Traffic of one sort.
    pub fn traffic(&self, space: Space, direction: Direction) -> &Traffic {
        &self.traffic[space as usize][direction as usize]
    }

    /// Traffic of a space in all directions.
    pub fn all_traffic(&self, space: Space) -> Traffic {
        let mut sum = Traffic::default();
        self.traffic[space as usize].iter().for_each(|traffic| sum += traffic);
        sum
    }

    /// Instructions by warp, of all classes.
    pub fn total_warp_instructions(&self) -> u64 {
        self.warp_instructions.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Instructions by thread, of all classes.
    pub fn total_thread_instructions(&self) -> u64 {
        self.thread_instructions.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// Threads that execute an instruction together, on average: 32 where no warp ever diverges; 0
    /// if nothing ran.
    pub fn active_threads(&self) -> f64 {
        match self.total_warp_instructions() {
            0 => 0.0,
            warps => self.total_thread_instructions() as f64 / warps as f64,
        }
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        let add = |sum: &mut u64, more: &u64| *sum = sum.saturating_add(*more);
        let lists = [
            (&mut self.warp_instructions[..], &other.warp_instructions[..]),
            (&mut self.thread_instructions, &other.thread_instructions),
            (&mut self.operations, &other.operations),
        ];
        for (sums, more) in lists {
            sums.iter_mut().zip(more).for_each(|(sum, more)| add(sum, more));
        }
        add(&mut self.not_predicated_off, &other.not_predicated_off);
        add(&mut self.branches, &other.branches);
        add(&mut self.divergent_branches, &other.divergent_branches);
        let sums = self.traffic.iter_mut().flatten();
        sums.zip(other.traffic.iter().flatten()).for_each(|(sum, more)| *sum += more);
    }
}

/// What is bad at a place in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
}

/// Where in a program something is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Place { instruction, ptx_line, file, line } = self;
        write!(out, "{instruction} (PTX line {ptx_line})")?;
        if file.is_empty() { Ok(()) } else { write!(out, ", {file}:{line}") }
    }
}

/// One of the worst places of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hotspot {
    /// What is bad there.
    pub fault: Fault,
    /// Where.
    pub place: Place,
    /// Requests, or branches.
    pub events: u64,
    /// Transactions, or branches.
    pub total: u64,
    /// Of `total`, how much is excess, or how many branches diverge.
    pub excess: u64,
}

/// The counts of one launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchCounts {
    /// Name of the kernel, as the driver gives it.
    pub kernel: String,
    /// How it was launched; whether with clusters is not in the file.
    pub launch: LaunchConfig,
    /// What was counted.
    pub counts: Counts,
    /// The worst places, at most [`file::MAX_HOTSPOTS`] for each [`Fault`], the worst first.
    pub hotspots: Vec<Hotspot>,
    /// What each line did, at most [`file::MAX_LINES`]: those that execute most instructions, by
    /// file and line. Empty in files of earlier versions.
    pub lines: Vec<Line>,
    /// Lines beyond these.
    pub lines_left_out: u64,
    /// Instructions of warps that were watched. The counts are exact where that is all that were
    /// executed, else they are scaled from a sample.
    pub watched: u64,
    /// Instructions of warps that were executed.
    pub executed: u64,
}

/// What a check found wrong with a program: once, however often and at however many places of
/// unrolled code it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// What sort of defect: `uninitialized-read`, `shared-race`, `divergent-barrier`, or an error
    /// of CUDA such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub kind: String,
    /// Name of the kernel.
    pub kernel: String,
    /// What happened the first time, in a sentence.
    pub text: String,
    /// Where: the first of the places.
    pub place: Place,
    /// For races: where the other access is. For values that nobody has written: where it was
    /// loaded.
    pub other: Option<Place>,
    /// How often it happened.
    pub count: u64,
    /// At how many places, or pairs of places.
    pub places: u64,
}
