//! The taxonomies of instructions. Each operation has one class in each of them.
//!
//! [`Class`] is what models of duration were trained on: it follows the unit that executes an
//! instruction. [`InstructionClass`] is what the executor counts by: it follows Nsight Compute.
//! Neither is finer than the other, so [`classes`] gives both, and a line of it that names two
//! different things is where they differ.

use super::modifier::Flag;
use super::opcode::Opcode as O;
use super::operation::Operation;
use crate::syntax::types::{ScalarType, StateSpace};
use apex_counts::InstructionClass;

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
        classes(operation).0
    }
}

/// The class by which the executor counts an operation. Of generic accesses it is that of global
/// memory.
pub fn counted_class(operation: &Operation) -> InstructionClass {
    classes(operation).1
}

/// The classes of an operation: a model's, and the one that it is counted by.
fn classes(operation: &Operation) -> (Class, InstructionClass) {
    use InstructionClass as I;
    let first = operation.types().first().copied();
    let arithmetic = of_type(first);
    let Some(opcode) = operation.opcode else { return arithmetic };
    let Access { load, store, counted } = access(operation);
    // Loads and stores of a matrix's fragments are loads and stores to models.
    let matrix = match (operation.has(Flag::Load), operation.has(Flag::Store)) {
        (true, _) => load,
        (_, true) => store,
        _ => Class::Tensor,
    };
    match opcode {
        O::Ld | O::Ldu => (load, counted),
        O::St => (store, counted),
        O::Ldmatrix => (load, I::Shared),
        O::Stmatrix => (store, I::Shared),
        O::Atom | O::Red => (Class::Atomic, counted),
        O::Multimem => (arithmetic.0, counted),
        O::Cp => (Class::AsyncCopy, counted),
        O::Tex | O::Tld4 | O::Suld => (Class::ReadOnly, I::OtherMemory),
        O::Sust => (Class::GlobalStore, I::OtherMemory),
        O::Txq | O::Sured | O::Suq | O::Applypriority => (arithmetic.0, I::OtherMemory),
        O::Prefetch | O::Prefetchu | O::Discard => (Class::Other, I::OtherMemory),
        O::Bar | O::Barrier | O::Membar | O::Fence => (Class::Barrier, I::Synchronization),
        O::Mbarrier | O::Griddepcontrol => (Class::Barrier, I::Synchronization),
        O::Shfl | O::Vote | O::Match | O::Activemask | O::Redux | O::Elect => (Class::Warp, I::Warp),
        O::Setp | O::Set => (Class::Compare, of_type(operation.types().last().copied()).1),
        O::Selp | O::Slct => (Class::Compare, I::Move),
        O::Testp => (Class::Compare, arithmetic.1),
        O::Bra | O::Brx | O::Call | O::Ret | O::Exit | O::Trap => (Class::Control, I::Control),
        O::Brkpt | O::Pmevent => (arithmetic.0, I::Control),
        O::Nanosleep => (Class::Other, I::Control),
        O::Cvt => (Class::Convert, I::Conversion),
        O::Cvta => (Class::Convert, I::Move),
        O::Mov | O::Isspacep => (Class::Other, I::Move),
        O::Prmt | O::Movmatrix | O::Mapa => (arithmetic.0, I::Move),
        O::Mma | O::Wmma | O::Wgmma => (matrix, I::Tensor),
        O::Tcgen05 => (matrix, arithmetic.1),
        O::Sin | O::Cos | O::Ex2 | O::Lg2 | O::Tanh => (Class::Special, I::Special),
        O::Rcp | O::Rsqrt | O::Sqrt => (Class::Special, I::Special),
        O::Div if first.is_some_and(ScalarType::is_float) => (Class::Special, I::Special),
        O::Div | O::Rem => (Class::Special, arithmetic.1),
        _ => arithmetic,
    }
}

/// The classes of an access: a model's for a load and for a store, and the counted one of both.
struct Access {
    load: Class,
    store: Class,
    counted: InstructionClass,
}

fn access(operation: &Operation) -> Access {
    use InstructionClass as I;
    let (load, store, counted) = match operation.space {
        Some(StateSpace::Shared) => (Class::SharedLoad, Class::SharedStore, I::Shared),
        Some(StateSpace::Local) => (Class::Local, Class::Local, I::Local),
        Some(StateSpace::Const) => (Class::ReadOnly, Class::GlobalStore, I::OtherMemory),
        Some(StateSpace::Param) => {
            let is_local = operation.has(Flag::FunctionParameter);
            (Class::ReadOnly, Class::Other, if is_local { I::Local } else { I::OtherMemory })
        }
        _ => (Class::GlobalLoad, Class::GlobalStore, I::Global),
    };
    Access { load, store, counted }
}

/// The classes of arithmetic on operands of a type.
fn of_type(ty: Option<ScalarType>) -> (Class, InstructionClass) {
    use InstructionClass as I;
    match ty {
        Some(ScalarType::F64) => (Class::Double, I::Double),
        Some(ScalarType::F32) => (Class::Single, I::Single),
        Some(ScalarType::F32x2) => (Class::Half, I::Single),
        Some(ScalarType::Tf32) => (Class::Integer, I::Single),
        Some(ty) if ty.is_float() => (Class::Half, I::Half),
        Some(_) => (Class::Integer, I::Integer),
        None => (Class::Other, I::Integer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_taxonomy_has_its_class_for_an_instruction() {
        use InstructionClass as I;
        for (text, model, counted) in [
            ("add.s32", Class::Integer, I::Integer),
            ("fma.rn.f32", Class::Single, I::Single),
            ("fma.rn.bf16x2", Class::Half, I::Half),
            ("add.rn.f32x2", Class::Half, I::Single),
            ("mul.f64", Class::Double, I::Double),
            ("div.rn.f32", Class::Special, I::Special),
            ("div.u32", Class::Special, I::Integer),
            ("setp.lt.f32", Class::Compare, I::Single),
            ("set.eq.u32.f64", Class::Compare, I::Double),
            ("selp.b32", Class::Compare, I::Move),
            ("ld.global.nc.v4.f32", Class::GlobalLoad, I::Global),
            ("ld.u8", Class::GlobalLoad, I::Global),
            ("st.shared::cta.b32", Class::SharedStore, I::Shared),
            ("ld.local.u32", Class::Local, I::Local),
            ("ld.param.u64", Class::ReadOnly, I::OtherMemory),
            ("atom.shared.add.u32", Class::Atomic, I::Shared),
            ("bar.sync", Class::Barrier, I::Synchronization),
            ("shfl.sync.bfly.b32", Class::Warp, I::Warp),
            ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", Class::Tensor, I::Tensor),
            ("cvt.rn.f32.s32", Class::Convert, I::Conversion),
            ("mov.b32", Class::Other, I::Move),
        ] {
            let operation = Operation::of(&crate::Mnemonic::new(text.into()));
            assert_eq!(classes(&operation), (model, counted), "{text}");
        }
    }
}
