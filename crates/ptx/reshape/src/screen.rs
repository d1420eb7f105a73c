//! What no proof covers: threads that work together, registers that tell where a thread runs, and
//! everything that is not known to be harmless.

use crate::code::Code;
use crate::refusal::{Place, Reason, Refusal};
use ptx::StateSpace;
use ptx::body::{Body, InstructionId, Operand, SpecialRegister, Symbol};
use ptx::flow::Flow;
use ptx::instruction::{Atomic, Cache, Flag, Opcode, Operation, Order, Scope};
use ptx::{Function, Module, ScalarType};

/// Instructions that compute in registers, and depend on nothing but their operands.
const PURE: &[Opcode] = &[
    Opcode::Abs,
    Opcode::Add,
    Opcode::Addc,
    Opcode::And,
    Opcode::Bfe,
    Opcode::Bfi,
    Opcode::Bfind,
    Opcode::Bmsk,
    Opcode::Brev,
    Opcode::Clz,
    Opcode::Cnot,
    Opcode::Copysign,
    Opcode::Cos,
    Opcode::Cvt,
    Opcode::Div,
    Opcode::Dp2a,
    Opcode::Dp4a,
    Opcode::Ex2,
    Opcode::Fma,
    Opcode::Fns,
    Opcode::Lg2,
    Opcode::Lop3,
    Opcode::Mad,
    Opcode::Mad24,
    Opcode::Madc,
    Opcode::Max,
    Opcode::Min,
    Opcode::Mov,
    Opcode::Mul,
    Opcode::Mul24,
    Opcode::Neg,
    Opcode::Not,
    Opcode::Or,
    Opcode::Popc,
    Opcode::Prmt,
    Opcode::Rcp,
    Opcode::Rem,
    Opcode::Rsqrt,
    Opcode::Sad,
    Opcode::Selp,
    Opcode::Set,
    Opcode::Setp,
    Opcode::Shf,
    Opcode::Shl,
    Opcode::Shr,
    Opcode::Sin,
    Opcode::Slct,
    Opcode::Sqrt,
    Opcode::Sub,
    Opcode::Subc,
    Opcode::Szext,
    Opcode::Tanh,
    Opcode::Testp,
    Opcode::Xor,
];

/// Directives that demand nothing of a block but that it is small.
const HARMLESS: [&str; 5] = ["maxntid", "minnctapersm", "maxnctapersm", "maxnreg", "pragma"];

/// Most instructions of a kernel that is analysed.
const MOST_LINES: usize = 20_000;
/// Most blocks of them.
const MOST_BLOCKS: usize = 2_000;

/// The most threads that a kernel's directives allow in a block.
pub(crate) fn most_threads(kernel: &Function) -> u32 {
    let product = |values: &[u64]| values.iter().fold(1u64, |product, value| product.saturating_mul(*value));
    kernel.directive("maxntid").map_or(1024, |values| product(values).min(1024) as u32)
}

/// Refuses a kernel whose directives or size no proof covers.
pub(crate) fn check_kernel(module: &Module, body: &Body<'_>, flow: &Flow) -> Result<(), Refusal> {
    if body.lines.len() > MOST_LINES || flow.blocks.len() > MOST_BLOCKS {
        return Err(Refusal::of(Reason::TooLong));
    }
    let undeclared = body.registers.iter().any(|register| register.declaration.is_none())
        || body.lines.iter().filter_map(|line| line.guard).any(|guard| guard.symbol.register().is_none());
    if module.address_size != 64 || !body.problems.is_empty() || undeclared {
        return Err(Refusal::of(Reason::Malformed));
    }
    let demanding = body.function.directives.iter().find(|one| !HARMLESS.contains(&&*one.name));
    match demanding {
        None => Ok(()),
        Some(directive) => {
            let instruction = format!(".{}", directive.name);
            let place = Place { instruction, line: body.function.position.line, source: None };
            Err(Refusal { reason: Reason::Directive, place })
        }
    }
}

/// The reason why no proof covers an instruction by itself, if none does.
pub(crate) fn reason(code: &Code<'_, '_>, at: InstructionId) -> Option<Reason> {
    let (line, operation) = (&code.body.lines[at.index()], code.operation(at));
    if line.operands.iter().any(|operand| names(operand, code.body, &is_telling)) {
        return Some(Reason::Special);
    }
    if line.operands.iter().any(|operand| names(operand, code.body, &is_foreign)) {
        return Some(Reason::Instruction);
    }
    if operation.carry().read && !has_carry(code, at) {
        return Some(Reason::Undefined);
    }
    let Some(opcode) = operation.opcode.filter(|_| operation.unknown == 0) else {
        return Some(Reason::Instruction);
    };
    match opcode {
        Opcode::Bra | Opcode::Brx | Opcode::Ret | Opcode::Exit => None,
        Opcode::Ld => (!is_plain(operation)).then_some(Reason::Instruction),
        Opcode::St => {
            let stores = [None, Some(StateSpace::Global), Some(StateSpace::Local)].contains(&operation.space);
            (!stores || !is_plain(operation)).then_some(Reason::Instruction)
        }
        Opcode::Atom | Opcode::Red => atomic_reason(code, at),
        Opcode::Cvta => {
            use StateSpace::{Const, Global, Local, Param};
            let is_known = [Const, Global, Local, Param].map(Some).contains(&operation.space);
            (!is_known).then_some(Reason::Instruction)
        }
        _ if PURE.contains(&opcode) => None,
        _ => Some(Reason::Instruction),
    }
}

/// Whether an instruction before this one in the same block has written the carry.
fn has_carry(code: &Code<'_, '_>, at: InstructionId) -> bool {
    let first = code.flow.block(code.flow.block_of(at)).first;
    let writes = |before: u32| {
        let before = InstructionId(before);
        code.operation(before).carry().written && code.body.lines[before.index()].guard.is_none()
    };
    (first.0..at.0).any(writes)
}

/// Whether an access is neither ordered among those of other threads nor to memory of a block.
fn is_plain(operation: &Operation) -> bool {
    use StateSpace::{Const, Global, Local, Param};
    let space = operation.space;
    let is_known = space.is_none() || [Const, Global, Local, Param].map(Some).contains(&space);
    is_known
        && !operation.is_strong()
        && operation.order != Some(Order::Sequential)
        && operation.cache != Some(Cache::Volatile)
        && !operation.has(Flag::FunctionParameter)
}

/// An atomic operation whose order shows.
fn atomic_reason(code: &Code<'_, '_>, at: InstructionId) -> Option<Reason> {
    let operation = code.operation(at);
    let space = [None, Some(StateSpace::Global)].contains(&operation.space);
    let scope = [None, Some(Scope::Gpu), Some(Scope::System)].contains(&operation.scope);
    let order = [None, Some(Order::Relaxed)].contains(&operation.order);
    if !space || !scope || !order || operation.vector.is_some() {
        return Some(Reason::Instruction);
    }
    let commutes = reduction(operation).is_some();
    (!commutes || !is_dead(code, at)).then_some(Reason::Atomic)
}

/// The operation and type of an atomic instruction, if its order does not matter.
pub(crate) fn reduction(operation: &Operation) -> Option<(Atomic, ScalarType)> {
    use Atomic::{Add, And, Maximum, Minimum, Or, Xor};
    use ScalarType::{B32, B64, S32, S64, U32, U64};
    let kind = operation.atomic.filter(|kind| [Add, And, Maximum, Minimum, Or, Xor].contains(kind))?;
    let [ty] = operation.types() else { return None };
    [B32, B64, S32, S64, U32, U64].contains(ty).then_some((kind, *ty))
}

/// Whether nothing reads what an instruction writes. (A guarded write keeps the old value, which is
/// a use only if somebody reads the register afterwards.)
fn is_dead(code: &Code<'_, '_>, at: InstructionId) -> bool {
    let mut written = Vec::new();
    code.operation(at)
        .writes(&code.body.lines[at.index()], code.body, &mut |register| written.push(register));
    let mut is_read = false;
    for (line, operation) in code.body.lines.iter().zip(code.operations.iter()) {
        let guard = line.guard.and_then(|guard| guard.symbol.register());
        is_read |= guard.is_some_and(|guard| written.contains(&guard));
        let (_, sources) = operation.split(&line.operands);
        for source in sources {
            source.registers(code.body, &mut |register| is_read |= written.contains(&register));
        }
    }
    !is_read
}

/// A register that tells more than thread and block.
fn is_telling(symbol: Symbol<'_>, _: &Body<'_>) -> bool {
    use SpecialRegister::{Ctaid, Nctaid, Ntid, Tid};
    matches!(symbol, Symbol::Special(special) if ![Tid, Ntid, Ctaid, Nctaid].contains(&special))
}

/// Memory of a block, a texture, a function.
fn is_foreign(symbol: Symbol<'_>, body: &Body<'_>) -> bool {
    use StateSpace::{Const, Global, Local, Param};
    match symbol {
        Symbol::Variable(id) => ![Const, Global, Local, Param].contains(&body.variable(id).space),
        Symbol::Function(_) | Symbol::CallTargets(_) | Symbol::Prototype(_) => true,
        _ => false,
    }
}

/// Whether an operand names a symbol of a kind.
pub(crate) fn names(
    operand: &Operand<'_>,
    body: &Body<'_>,
    is: &impl Fn(Symbol<'_>, &Body<'_>) -> bool,
) -> bool {
    use ptx::body::Base;
    match operand {
        Operand::Name(symbol)
        | Operand::Component(symbol, _)
        | Operand::Offset(symbol, _)
        | Operand::Element(symbol, _)
        | Operand::Not(symbol)
        | Operand::Negated(symbol) => is(*symbol, body),
        Operand::Indexed(element) => is(element.array, body) || is(element.index, body),
        Operand::Pair(first, second) => names(first, body, is) || names(second, body, is),
        Operand::Vector(parts) | Operand::List(parts) => parts.iter().any(|part| names(part, body, is)),
        Operand::Address(address) => {
            let base = match address.base {
                Base::Name(symbol) | Base::Component(symbol, _) => is(symbol, body),
                Base::Indexed(element) => is(element.array, body) || is(element.index, body),
                Base::Absolute => false,
            };
            base || address.rest.iter().any(|part| names(part, body, is))
        }
        Operand::Constant(_) | Operand::Sink => false,
    }
}
