//! How long an instruction takes on a multiprocessor: until the next of its warp may follow, and until its result may be used.
//!
//! Cycles of compute capability 9.0 as microbenchmarks of Volta to Hopper report them (Jia et al., "Dissecting the NVIDIA Volta
//! GPU Architecture via Microbenchmarking", 2018; Luo et al., "Dissecting the NVIDIA Hopper Architecture through
//! Microbenchmarking", 2024), rounded. A load from global memory stands for a mix of hits in L1 and L2; a division, a root and
//! 64-bit arithmetic stand for the instructions that they become. What assemblers make nothing of (moves, parameters) takes none.

use crate::ir::Instruction;
use crate::mix::{Class, space};
use crate::types::ScalarType;

/// Cycles of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Latency {
    /// Until the warp's next may be issued.
    pub(super) issue: f64,
    /// Until the result may be used.
    pub(super) result: f64,
}

/// Of arithmetic in `.f32`, `.f16` and integers.
const ARITHMETIC: f64 = 4.0;
const DOUBLE: f64 = 8.0;
/// Of an approximation by the special function unit.
const SPECIAL: f64 = 18.0;
const TENSOR: f64 = 33.0;
/// Of a load from global memory that L1 or L2 has.
pub(super) const GLOBAL_LOAD: f64 = 300.0;
const SHARED_LOAD: f64 = 29.0;
/// Of a load from local memory that L1 has.
const LOCAL_LOAD: f64 = 35.0;
const CONSTANT_LOAD: f64 = 30.0;
/// Of an atomic operation that gives back what was there.
const ATOMIC: f64 = 400.0;
const SHARED_ATOMIC: f64 = 60.0;
/// Until all warps of a block have met.
const BARRIER: f64 = 20.0;
/// Of a shuffle.
const SHUFFLE: f64 = 23.0;
/// Of a vote.
const VOTE: f64 = 12.0;
/// Until the instruction that a branch goes to is issued.
const BRANCH: f64 = 8.0;
/// Of a conversion between integers and floating-point numbers.
const CONVERSION: f64 = 12.0;

impl Latency {
    pub(super) fn of(instruction: &Instruction) -> Latency {
        let class = Class::of(instruction);
        let (issue, result) = match class {
            Class::Single | Class::Half | Class::Compare => (1.0, ARITHMETIC),
            Class::Integer => integer(instruction),
            Class::Double => (2.0, DOUBLE),
            Class::Special => special(instruction),
            Class::Tensor => (2.0, TENSOR),
            Class::GlobalLoad => (1.0, GLOBAL_LOAD),
            Class::SharedLoad => (1.0, SHARED_LOAD),
            Class::Local => (1.0, LOCAL_LOAD),
            Class::ReadOnly => match space(instruction) {
                "param" => (0.0, 0.0),
                "const" => (1.0, CONSTANT_LOAD),
                _ => (1.0, GLOBAL_LOAD),
            },
            Class::Atomic if space(instruction) == "shared" => (1.0, SHARED_ATOMIC),
            Class::Atomic => (1.0, ATOMIC),
            Class::Barrier => (1.0, BARRIER),
            Class::Warp => match instruction.mnemonic.opcode() {
                "vote" | "activemask" | "elect" => (1.0, VOTE),
                _ => (1.0, SHUFFLE),
            },
            Class::Control => (1.0, BRANCH),
            Class::Convert => conversion(instruction),
            Class::GlobalStore | Class::SharedStore | Class::AsyncCopy => (1.0, 0.0),
            Class::Other => (0.0, 0.0),
        };
        Latency { issue, result }
    }
}

fn wide(instruction: &Instruction) -> bool {
    instruction.mnemonic.types().next_back().is_some_and(|ty| ty.bytes() >= 8)
}

fn integer(instruction: &Instruction) -> (f64, f64) {
    match instruction.mnemonic.opcode() {
        // Three products of halves; or two sums, of which the second waits for the first one's carry.
        "mul" | "mad" if wide(instruction) => (3.0, 3.0 * ARITHMETIC),
        _ if wide(instruction) => (2.0, 1.5 * ARITHMETIC),
        "popc" | "clz" | "bfind" | "brev" => (2.0, SPECIAL),
        _ => (1.0, ARITHMETIC),
    }
}

fn special(instruction: &Instruction) -> (f64, f64) {
    let mnemonic = &instruction.mnemonic;
    let real = mnemonic.types().next_back().is_some_and(ScalarType::is_float);
    match (mnemonic.opcode(), real, wide(instruction)) {
        ("div" | "rem", false, false) => (20.0, 100.0),
        ("div" | "rem", false, true) => (80.0, 400.0),
        (_, true, true) => (20.0, 150.0),
        _ if mnemonic.has("approx") || mnemonic.has("full") => (2.0, SPECIAL),
        ("div" | "sqrt" | "rcp", true, _) => (8.0, SPECIAL + 6.0 * ARITHMETIC),
        _ => (2.0, SPECIAL),
    }
}

fn conversion(instruction: &Instruction) -> (f64, f64) {
    let mnemonic = &instruction.mnemonic;
    let mut types = mnemonic.types();
    let real = types.any(ScalarType::is_float);
    match mnemonic.opcode() {
        // Of addresses: nothing but a change of name.
        "cvta" => (0.0, 0.0),
        _ if real => (2.0, CONVERSION),
        _ => (1.0, ARITHMETIC),
    }
}
