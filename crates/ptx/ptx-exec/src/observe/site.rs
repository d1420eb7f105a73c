//! The facts about a step that an observer needs, derived from the instruction that the step came
//! from.
//!
//! An instruction may compile to several steps, or to none if its result is an input register that
//! is filled before the function runs (reading `%tid.x`, loading a kernel's parameter). It is
//! counted once, with the step that does its work.

use std::collections::HashMap;
use std::sync::OnceLock;

use apex_counts::{Direction, InstructionClass, Place, Width};
use ptx::ScalarType;
use ptx::instruction::{Atomic, Flag, Opcode, Operation, Order, counted_class};
use ptx_lower::Memory;

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
    /// Floating-point operations of a thread.
    pub(super) operations: Option<(Width, u32)>,
    /// For accesses: what they do and to how many bytes of each lane.
    pub(super) access: Option<(Direction, u32)>,
    /// Whether an access orders others around it: atomics, volatile and strong accesses.
    pub(super) synchronizes: bool,
    /// Whether it releases what the thread has done before, as after a fence.
    pub(super) releases: bool,
    /// Whether lanes may go different ways here.
    pub(super) branches: bool,
    /// Whether all lanes of a warp have to arrive at this barrier together.
    pub(super) aligned: bool,
    /// The instruction's treatment of undefined values.
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
    pub(super) fn of_function(&self, function: u32) -> &[Site] {
        self.functions[function as usize].get_or_init(|| sites(self.launch.code(function)))
    }

    /// The line that a step is from.
    pub(super) fn line(&self, function: u32, pc: u32) -> LineKey {
        self.launch.line(function, pc)
    }

    /// Returns the place of a step.
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

/// Returns a weight by which steps of an instruction are compared: it counts with the heaviest. A
/// jump that only goes on to the next block has none.
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
        Op::Access { .. } => moved(operation),
        _ => None,
    };
    Site {
        counts,
        class: counted_class(operation),
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

/// The direction of an access and the bytes of a lane; of a copy the step itself knows these.
fn moved(operation: &Operation) -> Option<(Direction, u32)> {
    match operation.opcode {
        // `cp.async` reads global memory and writes shared memory: the address of the access is
        // where it writes.
        Some(Opcode::Cp) => {
            Some((Direction::Store, operation.types().last().map_or(0, |ty| ty.bytes() as u32)))
        }
        _ => Memory::of(&mut { *operation }).map(|memory| (memory.direction, memory.bytes() as u32)),
    }
}

/// Floating-point operations of a thread (of a warp's share for matrix products) and their width.
fn operations(operation: &Operation) -> Option<(Width, u32)> {
    use Opcode as O;
    let opcode = operation.opcode?;
    if matches!(opcode, O::Mma | O::Wmma) {
        return product(operation).map(|operations| (Width::Tensor, operations));
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
        ScalarType::F64 => (Width::Double, 1),
        ScalarType::F32 => (Width::Single, 1),
        ScalarType::F32x2 => (Width::Single, 2),
        ScalarType::F16x2 | ScalarType::Bf16x2 => (Width::Half, 2),
        _ => (Width::Half, 1),
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
    fn operations_and_bytes_follow_from_the_mnemonic() {
        assert_eq!(operations(&of("fma.rn.f32")), Some((Width::Single, 2)));
        assert_eq!(operations(&of("add.rn.f16x2")), Some((Width::Half, 2)));
        assert_eq!(operations(&of("mul.rn.f64")), Some((Width::Double, 1)));
        assert_eq!(operations(&of("max.f32")), None);
        assert_eq!(operations(&of("add.s32")), None);
        assert_eq!(
            operations(&of("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")),
            Some((Width::Tensor, 2 * 16 * 8 * 16 / 32))
        );
        assert_eq!(operations(&of("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")), None);
        assert_eq!(moved(&of("ld.global.nc.v4.f32")), Some((Direction::Load, 16)));
        assert_eq!(moved(&of("st.shared.u8")), Some((Direction::Store, 1)));
        assert_eq!(moved(&of("atom.global.add.f64")), Some((Direction::Atomic, 8)));
    }
}
