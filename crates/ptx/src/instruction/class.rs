//! The taxonomy of instructions: one class for each, by the unit that executes it.

use super::modifier::Flag;
use super::opcode::Opcode::{
    Activemask, Atom, Bar, Barrier, Bra, Brx, Call, Cos, Cp, Cvt, Cvta, Discard, Div, Elect, Ex2, Exit,
    Fence, Griddepcontrol, Isspacep, Ld, Ldmatrix, Ldu, Lg2, Match, Mbarrier, Membar, Mma, Mov, Nanosleep,
    Prefetch, Prefetchu, Rcp, Red, Redux, Rem, Ret, Rsqrt, Selp, Set, Setp, Shfl, Sin, Slct, Sqrt, St,
    Stmatrix, Suld, Sust, Tanh, Tcgen05, Testp, Tex, Tld4, Trap, Vote, Wgmma, Wmma,
};
use super::operation::Operation;
use crate::syntax::types::{ScalarType, StateSpace};

/// A class of instructions. Each instruction is of exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Arithmetic on `.f32`, [`Class::Special`] left out.
    Single,
    /// Arithmetic on `.f64`.
    Double,
    /// Arithmetic on `.f16`, `.bf16` and narrower.
    Half,
    /// Arithmetic, logic and shifts of integers.
    Integer,
    /// Approximations of the special function units, and division.
    Special,
    /// Products of matrices.
    Tensor,
    /// Loads from global memory, generic ones included.
    GlobalLoad,
    /// Stores to global memory, generic ones included.
    GlobalStore,
    /// Loads from shared memory.
    SharedLoad,
    /// Stores to shared memory.
    SharedStore,
    /// Loads from and stores to local memory.
    Local,
    /// Loads from constant memory, textures and parameters.
    ReadOnly,
    /// Asynchronous copies.
    AsyncCopy,
    /// Atomic operations and reductions in memory.
    Atomic,
    /// Barriers and fences.
    Barrier,
    /// Shuffles, votes and matches between lanes.
    Warp,
    /// Comparisons and selections.
    Compare,
    /// Branches, calls, returns.
    Control,
    /// Conversions.
    Convert,
    /// Moves, and what is none of the above.
    Other,
}

impl Class {
    /// All of them, in the order of [`Class::name`]s that tables use.
    pub const ALL: [Class; 20] = [
        Class::Single,
        Class::Double,
        Class::Half,
        Class::Integer,
        Class::Special,
        Class::Tensor,
        Class::GlobalLoad,
        Class::GlobalStore,
        Class::SharedLoad,
        Class::SharedStore,
        Class::Local,
        Class::ReadOnly,
        Class::AsyncCopy,
        Class::Atomic,
        Class::Barrier,
        Class::Warp,
        Class::Compare,
        Class::Control,
        Class::Convert,
        Class::Other,
    ];

    /// As columns of tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Single => "single",
            Class::Double => "double",
            Class::Half => "half",
            Class::Integer => "integer",
            Class::Special => "special",
            Class::Tensor => "tensor",
            Class::GlobalLoad => "global_load",
            Class::GlobalStore => "global_store",
            Class::SharedLoad => "shared_load",
            Class::SharedStore => "shared_store",
            Class::Local => "local",
            Class::ReadOnly => "read_only",
            Class::AsyncCopy => "async_copy",
            Class::Atomic => "atomic",
            Class::Barrier => "barrier",
            Class::Warp => "warp",
            Class::Compare => "compare",
            Class::Control => "control",
            Class::Convert => "convert",
            Class::Other => "other",
        }
    }

    /// The class of an operation.
    pub fn of(operation: &Operation) -> Class {
        let Some(opcode) = operation.opcode else { return arithmetic(operation) };
        match opcode {
            Ld | Ldu | Ldmatrix => load(operation),
            St | Stmatrix => store(operation),
            Tex | Tld4 | Suld => Class::ReadOnly,
            Sust => Class::GlobalStore,
            Cp => Class::AsyncCopy,
            Atom | Red => Class::Atomic,
            Bar | Barrier | Membar | Fence | Mbarrier | Griddepcontrol => Class::Barrier,
            Shfl | Vote | Match | Activemask | Redux | Elect => Class::Warp,
            Setp | Set | Selp | Slct | Testp => Class::Compare,
            Bra | Brx | Call | Ret | Exit | Trap => Class::Control,
            Cvt | Cvta => Class::Convert,
            // Loads and stores of a matrix's fragments are loads and stores.
            Wmma | Mma | Wgmma | Tcgen05 => match (operation.has(Flag::Load), operation.has(Flag::Store)) {
                (true, _) => load(operation),
                (_, true) => store(operation),
                _ => Class::Tensor,
            },
            Sin | Cos | Ex2 | Lg2 | Rcp | Rsqrt | Sqrt | Tanh | Div | Rem => Class::Special,
            Mov | Isspacep | Prefetch | Prefetchu | Nanosleep | Discard => Class::Other,
            _ => arithmetic(operation),
        }
    }
}

fn load(operation: &Operation) -> Class {
    match operation.space {
        Some(StateSpace::Shared) => Class::SharedLoad,
        Some(StateSpace::Local) => Class::Local,
        Some(StateSpace::Const | StateSpace::Param) => Class::ReadOnly,
        _ => Class::GlobalLoad,
    }
}

fn store(operation: &Operation) -> Class {
    match operation.space {
        Some(StateSpace::Shared) => Class::SharedStore,
        Some(StateSpace::Local) => Class::Local,
        Some(StateSpace::Param) => Class::Other,
        _ => Class::GlobalStore,
    }
}

fn arithmetic(operation: &Operation) -> Class {
    match operation.types().first() {
        Some(ScalarType::F32) => Class::Single,
        Some(ScalarType::F64) => Class::Double,
        Some(ty) if ty.is_float() && *ty != ScalarType::Tf32 => Class::Half,
        Some(_) => Class::Integer,
        None => Class::Other,
    }
}
