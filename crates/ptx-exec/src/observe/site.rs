//! What a step means to an observer: read off the instruction that it came from.
//!
//! An instruction may take several steps, or none where its result is a register that is filled beforehand (reading
//! `%tid.x`, loading a kernel's parameter). It counts once, with the step that does its work.

use std::collections::HashMap;
use std::sync::OnceLock;

use apex_trace::counts::{Direction, InstructionClass, Place};
use ptx::{Mnemonic, ScalarType};

use crate::code::{Code, Op};
use crate::launch::Launch;

/// A step as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Whether the instruction counts with this step.
    pub(super) counts: bool,
    pub(super) class: InstructionClass,
    /// Floating-point operations: which of [`apex_trace::counts::Counts::operations`], and how many.
    pub(super) operations: Option<(usize, u32)>,
    /// For accesses: what they do and to how many bytes of each lane.
    pub(super) access: Option<(Direction, u32)>,
    /// Whether an access orders others around it: atomics, volatile and strong accesses.
    pub(super) synchronizes: bool,
    /// Whether lanes may go different ways here.
    pub(super) branches: bool,
    /// Of barriers: whether all lanes of a warp have to be there together.
    pub(super) aligned: bool,
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

    /// Where a step is.
    pub(super) fn place(&self, function: u32, pc: u32) -> Place {
        self.launch.place(function, pc)
    }
}

fn sites(code: &Code) -> Vec<Site> {
    // The step of each origin that does its work.
    let mut workers: HashMap<u32, (u32, usize)> = HashMap::new();
    for (pc, (step, &origin)) in code.steps.iter().zip(&code.origin_of).enumerate() {
        let opcode = code.origins[origin as usize].mnemonic.opcode();
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
            site(&code.origins[*origin as usize].mnemonic, &step.op, counts)
        })
        .collect()
}

/// How much of an instruction a step does. A jump that only goes on to the next block does nothing of it.
fn work(op: &Op, opcode: &str) -> u32 {
    match op {
        Op::Jump { .. } if opcode != "bra" => 0,
        Op::Results(_) => 0,
        Op::Lanes { .. } | Op::Clock { .. } => 1,
        _ => 2,
    }
}

fn site(mnemonic: &Mnemonic, op: &Op, counts: bool) -> Site {
    let class = class(mnemonic);
    let access = match op {
        Op::Access { .. } => direction(mnemonic).map(|direction| (direction, bytes(mnemonic))),
        _ => None,
    };
    let strong = ["volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"];
    Site {
        counts,
        class,
        operations: if counts { operations(mnemonic) } else { None },
        access,
        synchronizes: matches!(mnemonic.opcode(), "atom" | "red")
            || strong.iter().any(|modifier| mnemonic.has(modifier)),
        branches: counts && matches!(op, Op::Jump { .. } | Op::JumpTable { .. }),
        aligned: mnemonic.opcode() == "bar" || mnemonic.has("aligned"),
    }
}

fn first_type(mnemonic: &Mnemonic) -> Option<ScalarType> {
    mnemonic.types().next()
}

/// The class of an instruction. Of generic accesses it is that of global memory.
pub(super) fn class(mnemonic: &Mnemonic) -> InstructionClass {
    use InstructionClass::*;
    let space = || {
        mnemonic.modifiers().find_map(|modifier| match modifier {
            "global" => Some(Global),
            "local" => Some(Local),
            "const" | "param" | "param::entry" => Some(OtherMemory),
            "param::func" => Some(Local),
            _ => modifier.starts_with("shared").then_some(Shared),
        })
    };
    match mnemonic.opcode() {
        "ld" | "ldu" | "st" | "atom" | "red" | "cp" | "multimem" => space().unwrap_or(Global),
        "ldmatrix" | "stmatrix" => Shared,
        "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq" | "prefetch" | "prefetchu" | "discard"
        | "applypriority" => OtherMemory,
        "bar" | "barrier" | "membar" | "fence" | "mbarrier" | "griddepcontrol" => Synchronization,
        "shfl" | "vote" | "match" | "redux" | "activemask" | "elect" => Warp,
        "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" | "nanosleep" | "pmevent" => Control,
        "mma" | "wmma" | "wgmma" => Tensor,
        "cvt" => Conversion,
        "mov" | "selp" | "slct" | "cvta" | "isspacep" | "prmt" | "movmatrix" | "mapa" => Move,
        "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => Special,
        "div" if first_type(mnemonic).is_some_and(ScalarType::is_float) => Special,
        "setp" | "set" => mnemonic.types().next_back().map_or(Integer, arithmetic),
        _ => first_type(mnemonic).map_or(Integer, arithmetic),
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

fn direction(mnemonic: &Mnemonic) -> Option<Direction> {
    Some(match mnemonic.opcode() {
        "ld" | "ldu" => Direction::Load,
        // `cp.async` reads global memory and writes shared memory: the address of the access is where it writes.
        "st" | "cp" => Direction::Store,
        "atom" | "red" => Direction::Atomic,
        _ => return None,
    })
}

/// Bytes that a lane accesses; of a copy the step itself knows.
fn bytes(mnemonic: &Mnemonic) -> u32 {
    let vector = mnemonic.modifiers().find_map(|modifier| match modifier {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    });
    let element = mnemonic.types().next_back().map_or(0, ScalarType::bytes);
    vector.unwrap_or(1) * element as u32
}

/// Floating-point operations of a thread (of a warp's share for matrix products) and their width.
fn operations(mnemonic: &Mnemonic) -> Option<(usize, u32)> {
    if matches!(mnemonic.opcode(), "mma" | "wmma") {
        return product(mnemonic).map(|operations| (3, operations));
    }
    let ty = first_type(mnemonic).filter(|ty| ty.is_float())?;
    let each = match mnemonic.opcode() {
        "add" | "sub" | "mul" | "div" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => {
            1
        }
        "fma" | "mad" => 2,
        // The old value plus the operand.
        "atom" | "red" if mnemonic.has("add") => 1,
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

/// A lane's share of the 2·m·n·k operations of a matrix product of floating point: shape `m16n8k16`.
fn product(mnemonic: &Mnemonic) -> Option<u32> {
    if !mnemonic.types().all(ScalarType::is_float) {
        return None;
    }
    let shape = mnemonic.modifiers().find(|modifier| modifier.starts_with('m') && modifier.contains('k'))?;
    let mut sides = shape.split(['m', 'n', 'k']).filter_map(|side| side.parse::<u32>().ok());
    let (m, n, k) = (sides.next()?, sides.next()?, sides.next()?);
    Some(2 * m * n * k / 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Mnemonic {
        Mnemonic::new(text.into())
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
