//! Latencies of instructions on a multiprocessor: the time until the warp's next instruction may
//! issue, and until the result may be used.
//!
//! Results: the order of size is that of published microbenchmarks (Jia et al., "Dissecting the
//! NVIDIA Volta GPU Architecture via Microbenchmarking", 2018; Luo et al., "Dissecting the NVIDIA
//! Hopper Architecture through Microbenchmarking", 2025); within it, figures were fitted to the
//! suite's launches of a few warps on an H200 (`data/h200/launches`), to all kernels together. What
//! accesses take that need several wavefronts was fitted alone. Issue follows from the units that a
//! quarter of a multiprocessor has; of integers, it is less than their two cycles, because two
//! instructions of PTX often become one.
//!
//! A load from global memory stands for a mix of hits in L1 and L2; a division, a root and 64-bit
//! arithmetic stand for the instructions that they become. What assemblers make nothing of (moves,
//! parameters) takes no time.

use super::Work;
use ptx::instruction::{Class, Flag, Opcode, Operation};
use ptx::syntax::{ScalarType, StateSpace};

/// Cycles of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Latency {
    /// The cycles until the warp's next instruction may be issued.
    pub(super) issue: f64,
    /// The cycles until the result may be used.
    pub(super) result: f64,
    /// Issue of arithmetic alone.
    pub(super) busy: f64,
}

/// Issue of an access to memory: a quarter of a multiprocessor has eight of its 32 load/store
/// units.
const MEMORY: f64 = 4.0;
/// Arithmetic in `.f32`, `.f16` and integers.
const ARITHMETIC: f64 = 4.0;
const DOUBLE: f64 = 8.0;
/// An approximation by the special function unit.
const SPECIAL: f64 = 24.0;
const TENSOR: f64 = 33.0;
/// A load from global memory that hits L1 or L2.
pub(super) const GLOBAL_LOAD: f64 = 330.0;
const SHARED_LOAD: f64 = 33.0;
/// A load from local memory that hits L1.
const LOCAL_LOAD: f64 = 35.0;
const CONSTANT_LOAD: f64 = 26.0;
/// An atomic operation that returns the old value.
const ATOMIC: f64 = 400.0;
const SHARED_ATOMIC: f64 = 60.0;
/// The time until all warps of a block have met.
const BARRIER: f64 = 30.0;
/// A shuffle.
const SHUFFLE: f64 = 26.0;
/// A vote.
const VOTE: f64 = 16.0;
/// The time until the target of a branch is issued.
const BRANCH: f64 = 12.0;
/// A conversion between integers and floating-point numbers.
const CONVERSION: f64 = 12.0;

/// Cycles that a further wavefront of shared memory holds a warp back, ...
const SHARED_WAVEFRONT: f64 = 1.5;
/// ... a sector of global memory beyond the four of a warp whose lanes have words side by side, ...
const GLOBAL_SECTOR: f64 = 2.5;
/// ... one of local memory, ...
const LOCAL_SECTOR: f64 = 7.0;
/// ... and an address of constant memory.
const CONSTANT_WAVEFRONT: f64 = 4.0;

/// Cycles for which accesses that need several wavefronts hold back their warps, all of them
/// together.
pub(super) fn wavefronts(work: &Work) -> f64 {
    let further = |sectors: f64, requests: f64| (sectors - 4.0 * requests).max(0.0);
    SHARED_WAVEFRONT * (work.shared_wavefronts - work.shared_requests).max(0.0)
        + GLOBAL_SECTOR * further(work.global_load_sectors, work.global_load_requests)
        + GLOBAL_SECTOR * further(work.global_store_sectors, work.global_store_requests)
        + LOCAL_SECTOR * further(work.local_sectors, work.local_requests)
        + CONSTANT_WAVEFRONT * work.constant_wavefronts
}

impl Latency {
    pub(super) fn of(operation: &Operation) -> Latency {
        let class = operation.class();
        let (issue, result) = match class {
            Class::Single | Class::Half => (1.0, ARITHMETIC),
            Class::Compare => (2.0, ARITHMETIC),
            Class::Integer => integer(operation),
            Class::Double => (2.0, DOUBLE),
            Class::Special => special(operation),
            Class::Tensor => (2.0, TENSOR),
            Class::GlobalLoad => (MEMORY, GLOBAL_LOAD),
            Class::SharedLoad => (MEMORY, SHARED_LOAD),
            Class::Local => (MEMORY, LOCAL_LOAD),
            Class::ReadOnly => match operation.space {
                Some(StateSpace::Param) => (0.0, 0.0),
                Some(StateSpace::Const) => (1.0, CONSTANT_LOAD),
                _ => (MEMORY, GLOBAL_LOAD),
            },
            Class::Atomic if operation.space == Some(StateSpace::Shared) => (MEMORY, SHARED_ATOMIC),
            Class::Atomic => (MEMORY, ATOMIC),
            Class::Barrier => (1.0, BARRIER),
            Class::Warp => match operation.opcode {
                Some(Opcode::Vote | Opcode::Activemask | Opcode::Elect) => (1.0, VOTE),
                _ => (1.0, SHUFFLE),
            },
            Class::Control => (1.0, BRANCH),
            Class::Convert => conversion(operation),
            Class::GlobalStore | Class::SharedStore | Class::AsyncCopy => (MEMORY, 0.0),
            Class::Other => (0.0, 0.0),
        };
        let arithmetic = matches!(
            class,
            Class::Single
                | Class::Half
                | Class::Compare
                | Class::Integer
                | Class::Double
                | Class::Special
                | Class::Tensor
                | Class::Convert
        );
        Latency { issue, result, busy: if arithmetic { issue } else { 0.0 } }
    }
}

fn wide(operation: &Operation) -> bool {
    operation.types().last().is_some_and(|ty| ty.bytes() >= 8)
}

fn integer(operation: &Operation) -> (f64, f64) {
    match operation.opcode {
        // Three products of halves; or two sums, of which the second waits for the first one's
        // carry.
        Some(Opcode::Mul | Opcode::Mad) if wide(operation) => (3.0, 3.0 * ARITHMETIC),
        _ if wide(operation) => (2.0, 1.5 * ARITHMETIC),
        Some(Opcode::Popc | Opcode::Clz | Opcode::Bfind | Opcode::Brev) => (2.0, SPECIAL),
        _ => (1.5, ARITHMETIC),
    }
}

fn special(operation: &Operation) -> (f64, f64) {
    let real = operation.types().last().copied().is_some_and(ScalarType::is_float);
    let approximate = operation.has(Flag::Approximate) || operation.has(Flag::Full);
    match (operation.opcode, real, wide(operation)) {
        (Some(Opcode::Div | Opcode::Rem), false, false) => (20.0, 100.0),
        (Some(Opcode::Div | Opcode::Rem), false, true) => (80.0, 400.0),
        (_, true, true) => (20.0, 150.0),
        _ if approximate => (2.0, SPECIAL),
        (Some(Opcode::Div | Opcode::Sqrt | Opcode::Rcp), true, _) => (8.0, SPECIAL + 6.0 * ARITHMETIC),
        _ => (2.0, SPECIAL),
    }
}

fn conversion(operation: &Operation) -> (f64, f64) {
    let real = operation.types().iter().any(|ty| ty.is_float());
    match operation.opcode {
        // Of addresses: nothing but a change of name.
        Some(Opcode::Cvta) => (0.0, 0.0),
        _ if real => (2.0, CONVERSION),
        _ => (1.0, ARITHMETIC),
    }
}
