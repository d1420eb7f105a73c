//! What an observer needs to know about a step, derived from the instruction that the step came
//! from.
//!
//! An instruction may compile to several steps, or to none if its result is an input register that
//! is filled before the function runs (reading `%tid.x`, loading a kernel's parameter). It is
//! counted once, with the step that does its work.

use std::collections::HashMap;
use std::sync::OnceLock;

use apex_trace::counts::{Direction, InstructionClass, Place};
use ptx::instruction::{Atomic, Flag, Opcode, Operation, Order};
use ptx::{ScalarType, StateSpace};

use crate::code::{Code, Op};
use crate::launch::Launch;
use crate::observe::lines::LineKey;
use crate::observe::undefined::Treatment;

/// A step as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Whether the instruction counts with this step.
    pub(super) counts: bool,
    pub(super) class: InstructionClass,
    /// Floating-point operations: which of [`apex_trace::counts::Counts::operations`], and how
    /// many.
    pub(super) operations: Option<(usize, u32)>,
    /// For accesses: what they do and to how many bytes of each lane.
    pub(super) access: Option<(Direction, u32)>,
    /// Whether an access orders others around it: atomics, volatile and strong accesses.
    pub(super) synchronizes: bool,
    /// Whether it releases what the thread has done before, as after a fence.
    pub(super) releases: bool,
    /// Whether lanes may go different ways here.
    pub(super) branches: bool,
    /// Of barriers: whether all lanes of a warp have to be there together.
    pub(super) aligned: bool,
    /// What the instruction does with values that nobody has defined.
    pub(super) treatment: Treatment,
}

/// The sites of a launch's functions, found out when they are first needed.
pub(super) struct Sites<'l> {
    launch: &'l Launch<'l>,
    functions: Vec<OnceLock<Vec<Site>>>,
}

impl<'l> Sites<'l> {
    pub(super) fn new(launch: &'l Launch<'l>) -> Self {
        Sites { launch, functions: (0..launch.functions()).map(|_| OnceLock::new()).collect() }
    }

    /// The sites of a function, one for each step.
    pub(super) fn of(&self, function: u32) -> &[Site] {
        self.functions[function as usize].get_or_init(|| sites(self.launch.code(function)))
    }

    /// The line that a step is from.
    pub(super) fn line(&self, function: u32, pc: u32) -> LineKey {
        self.launch.line(function, pc)
    }

    /// Where a step is.
    pub(super) fn place(&self, function: u32, pc: u32) -> Place {
        self.launch.place(function, pc)
    }
}

fn sites(code: &Code) -> Vec<Site> {
    // The step of each origin that does its work.
    let mut workers: HashMap<u32, (u32, usize)> = HashMap::new();
    for (pc, (step, &origin)) in code.steps.iter().zip(&code.origin_of).enumerate() {
        let opcode = code.origins[origin as usize].operation.opcode;
        let weight = work(&step.op, opcode);
        let best = workers.entry(origin).or_insert((weight, pc));
        if weight > best.0 {
            *best = (weight, pc);
        }
    }
    let sites = code.steps.iter().zip(&code.origin_of).enumerate();
    sites
        .map(|(pc, (step, origin))| {
            let counts = workers.get(origin).is_some_and(|&(weight, worker)| weight > 0 && worker == pc);
            site(&code.origins[*origin as usize].operation, &step.op, counts)
        })
        .collect()
}

/// How much of an instruction a step does. A jump that only goes on to the next block does nothing
/// of it.
fn work(op: &Op, opcode: Option<Opcode>) -> u32 {
    match op {
        Op::Jump { .. } if opcode != Some(Opcode::Bra) => 0,
        Op::Results(_) => 0,
        Op::Lanes { .. } | Op::Clock { .. } => 1,
        _ => 2,
    }
}

fn site(operation: &Operation, op: &Op, counts: bool) -> Site {
    let access = match op {
        Op::Access { .. } => direction(operation).map(|direction| (direction, bytes(operation))),
        _ => None,
    };
    Site {
        counts,
        class: class(operation),
        operations: if counts { operations(operation) } else { None },
        access,
        synchronizes: operation.is(&[Opcode::Atom, Opcode::Red]) || operation.is_strong(),
        releases: matches!(operation.order, Some(Order::Release | Order::AcquireRelease)),
        branches: counts && matches!(op, Op::Jump { .. } | Op::JumpTable { .. }),
        aligned: operation.is(&[Opcode::Bar]) || operation.has(Flag::Aligned),
        treatment: treatment(operation),
    }
}

fn treatment(operation: &Operation) -> Treatment {
    use Opcode as O;
    let floats = || operation.types().iter().any(|ty| ty.is_float());
    match operation.opcode {
        Some(O::Mov) => Treatment::Copied,
        // Conversions of integers extend and cut what is copied in parts.
        Some(O::Cvt) if !floats() => Treatment::Copied,
        Some(O::Selp | O::Prmt | O::Bfe | O::Bfi | O::Shl | O::Shr | O::Shf) => Treatment::Arranged,
        Some(O::And | O::Or | O::Lop3 | O::Shfl) => Treatment::Arranged,
        _ => Treatment::Computed,
    }
}

/// The class of an instruction. Of generic accesses it is that of global memory.
pub(super) fn class(operation: &Operation) -> InstructionClass {
    use InstructionClass::*;
    use Opcode as O;
    let first = || operation.types().first().copied();
    let Some(opcode) = operation.opcode else { return first().map_or(Integer, arithmetic) };
    match opcode {
        O::Ld | O::Ldu | O::St | O::Atom | O::Red | O::Cp | O::Multimem => match operation.space {
            Some(StateSpace::Shared) => Shared,
            Some(StateSpace::Local) => Local,
            Some(StateSpace::Param) if operation.has(Flag::FunctionParameter) => Local,
            Some(StateSpace::Const | StateSpace::Param) => OtherMemory,
            _ => Global,
        },
        O::Ldmatrix | O::Stmatrix => Shared,
        O::Tex | O::Tld4 | O::Txq | O::Suld | O::Sust | O::Sured | O::Suq => OtherMemory,
        O::Prefetch | O::Prefetchu | O::Discard | O::Applypriority => OtherMemory,
        O::Bar | O::Barrier | O::Membar | O::Fence | O::Mbarrier | O::Griddepcontrol => Synchronization,
        O::Shfl | O::Vote | O::Match | O::Redux | O::Activemask | O::Elect => Warp,
        O::Bra | O::Brx | O::Call | O::Ret | O::Exit | O::Trap | O::Brkpt | O::Nanosleep | O::Pmevent => {
            Control
        }
        O::Mma | O::Wmma | O::Wgmma => Tensor,
        O::Cvt => Conversion,
        O::Mov | O::Selp | O::Slct | O::Cvta | O::Isspacep | O::Prmt | O::Movmatrix | O::Mapa => Move,
        O::Rcp | O::Sqrt | O::Rsqrt | O::Sin | O::Cos | O::Lg2 | O::Ex2 | O::Tanh => Special,
        O::Div if first().is_some_and(ScalarType::is_float) => Special,
        O::Setp | O::Set => operation.types().last().copied().map_or(Integer, arithmetic),
        _ => first().map_or(Integer, arithmetic),
    }
}

fn arithmetic(ty: ScalarType) -> InstructionClass {
    match ty {
        ScalarType::F64 => InstructionClass::Double,
        ScalarType::F32 | ScalarType::F32x2 | ScalarType::Tf32 => InstructionClass::Single,
        ty if ty.is_float() => InstructionClass::Half,
        _ => InstructionClass::Integer,
    }
}

fn direction(operation: &Operation) -> Option<Direction> {
    Some(match operation.opcode? {
        Opcode::Ld | Opcode::Ldu => Direction::Load,
        // `cp.async` reads global memory and writes shared memory: the address of the access is
        // where it writes.
        Opcode::St | Opcode::Cp => Direction::Store,
        Opcode::Atom | Opcode::Red => Direction::Atomic,
        _ => return None,
    })
}

/// Bytes that a lane accesses; of a copy the step itself knows.
fn bytes(operation: &Operation) -> u32 {
    let element = operation.types().last().map_or(0, |ty| ty.bytes());
    u32::from(operation.vector.unwrap_or(1)) * element as u32
}

/// Floating-point operations of a thread (of a warp's share for matrix products) and their width.
fn operations(operation: &Operation) -> Option<(usize, u32)> {
    use Opcode as O;
    let opcode = operation.opcode?;
    if matches!(opcode, O::Mma | O::Wmma) {
        return product(operation).map(|operations| (3, operations));
    }
    let ty = operation.types().first().copied().filter(|ty| ty.is_float())?;
    let each = match opcode {
        O::Add | O::Sub | O::Mul | O::Div | O::Rcp | O::Sqrt | O::Rsqrt => 1,
        O::Sin | O::Cos | O::Lg2 | O::Ex2 | O::Tanh => 1,
        O::Fma | O::Mad => 2,
        // The old value plus the operand.
        O::Atom | O::Red if operation.atomic == Some(Atomic::Add) => 1,
        _ => return None,
    };
    let (width, lanes) = match ty {
        ScalarType::F64 => (2, 1),
        ScalarType::F32 => (1, 1),
        ScalarType::F32x2 => (1, 2),
        ScalarType::F16x2 | ScalarType::Bf16x2 => (0, 2),
        _ => (0, 1),
    };
    Some((width, each * lanes))
}

/// A lane's share of the 2·m·n·k operations of a matrix product of floating point: shape
/// `m16n8k16`.
fn product(operation: &Operation) -> Option<u32> {
    let [m, n, k] = operation.tile?.map(u32::from);
    (k > 0 && operation.types().iter().all(|ty| ty.is_float())).then_some(2 * m * n * k / 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Operation {
        Operation::of(&ptx::Mnemonic::new(text.into()))
    }

    #[test]
    fn instructions_have_their_classes() {
        use InstructionClass::*;
        for (text, expected) in [
            ("add.s32", Integer),
            ("fma.rn.f32", Single),
            ("fma.rn.bf16x2", Half),
            ("mul.f64", Double),
            ("div.rn.f32", Special),
            ("div.u32", Integer),
            ("setp.lt.f32", Single),
            ("set.eq.u32.f64", Double),
            ("ld.global.nc.v4.f32", Global),
            ("ld.u8", Global),
            ("st.shared::cta.b32", Shared),
            ("ld.local.u32", Local),
            ("ld.param.u64", OtherMemory),
            ("bar.sync", Synchronization),
            ("shfl.sync.bfly.b32", Warp),
            ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", Tensor),
            ("cvt.rn.f32.s32", Conversion),
        ] {
            assert_eq!(class(&of(text)), expected, "{text}");
        }
    }

    #[test]
    fn operations_and_bytes_follow_from_the_mnemonic() {
        assert_eq!(operations(&of("fma.rn.f32")), Some((1, 2)));
        assert_eq!(operations(&of("add.rn.f16x2")), Some((0, 2)));
        assert_eq!(operations(&of("mul.rn.f64")), Some((2, 1)));
        assert_eq!(operations(&of("max.f32")), None);
        assert_eq!(operations(&of("add.s32")), None);
        assert_eq!(
            operations(&of("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")),
            Some((3, 2 * 16 * 8 * 16 / 32))
        );
        assert_eq!(operations(&of("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")), None);
        assert_eq!(bytes(&of("ld.global.nc.v4.f32")), 16);
        assert_eq!(bytes(&of("st.shared.u8")), 1);
        assert_eq!(bytes(&of("atom.global.add.f64")), 8);
    }
}
