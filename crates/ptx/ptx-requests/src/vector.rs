//! Neighbouring accesses become one access of a vector.
//!
//! A run is two or four loads, or stores, of the same form from one register at neighbouring
//! offsets, with nothing between them but computations that do not concern their registers. Loads
//! move up to the first of the run, stores down to the last. Addresses must be multiples of the
//! vector's size: the lanes' distances tell that for a warp, and the caller is told for the rest.

use crate::tree::{is_pure, lists, mentions, rewritten};
use crate::{Change, Tried, place};
use cuda_launch::LaunchConfig;
use ptx::instruction::Direction;
use ptx::syntax::tree::{Address, AddressBase, Instruction, Mnemonic, Name, Operand, Statement};
use ptx::syntax::{Module, StateSpace};
use ptx_estimate::Requested;
use std::collections::HashSet;

/// Bytes of the largest vector.
const MOST_BYTES: u64 = 16;
/// Statements between the first and the last access of a run.
const MOST_APART: usize = 64;
/// Most runs of a kernel that are tried.
const MOST_RUNS: usize = 32;

/// A run: places of its accesses in a list of statements, in the order of their offsets.
struct Run {
    members: Vec<usize>,
    is_load: bool,
}

/// The changes of all runs of a kernel.
pub(crate) fn changes(
    module: &Module,
    kernel: &str,
    accesses: &[Requested],
    launch: LaunchConfig,
) -> Vec<Tried> {
    let mut tried = Vec::new();
    let Some(function) = module.kernel(kernel) else { return tried };
    let mut body = function.body.clone().unwrap_or_default();
    let mut runs = Vec::new();
    lists(&mut body, &mut |list| runs.extend(positions(list)));
    for run in runs.into_iter().take(MOST_RUNS) {
        let members: Vec<usize> =
            run.iter().filter_map(|at| accesses.iter().position(|access| place(access) == *at)).collect();
        if members.len() != run.len() || !suits(accesses, &members) {
            continue;
        }
        let bytes = u64::from(accesses[members[0]].bytes);
        let elements = run.len() as u32;
        let change = Change::Vectorize { elements, alignment: elements * bytes as u32 };
        let module = rewritten(module, kernel, |body| {
            let mut done = None;
            lists(body, &mut |list| done = done.or_else(|| join(list, run[0])));
            done
        });
        let accesses = Some(members);
        tried.extend(module.map(|module| Tried { change, module, launch, conditional: false, accesses }));
    }
    tried
}

/// Whether a vector suits the addresses of a run's accesses as far as a warp tells.
fn suits(accesses: &[Requested], members: &[usize]) -> bool {
    let bytes: i64 = members.iter().map(|&at| i64::from(accesses[at].bytes)).sum();
    let fits = |step: Option<i64>| step.is_none_or(|step| step % bytes == 0);
    members.iter().all(|&at| {
        let access = &accesses[at];
        access.space == StateSpace::Global
            && access.direction != Direction::Atomic
            && access.cost.is_some_and(|cost| {
                // (Rows of a length that is not known may begin anywhere.)
                !cost.by_parameter
                    && cost.lane_step.is_some_and(|step| step != 0)
                    && fits(cost.lane_step)
                    && fits(cost.round_step)
            })
    })
}

/// The positions of the accesses of each run in a list of statements.
fn positions(list: &[Statement]) -> Vec<Vec<(u32, u32)>> {
    let mut taken = HashSet::new();
    let mut all = Vec::new();
    for at in 0..list.len() {
        if taken.contains(&at) {
            continue;
        }
        let Some(run) = run(list, at) else { continue };
        taken.extend(run.members.iter().copied());
        all.push(run.members.iter().map(|&at| position(&list[at])).collect());
    }
    all
}

fn position(statement: &Statement) -> (u32, u32) {
    match statement {
        Statement::Instruction(instruction) => (instruction.position.line, instruction.position.column),
        _ => (0, 0),
    }
}

/// An access that a vector can take: its register, offset and base.
struct Scalar<'a> {
    mnemonic: &'a Mnemonic,
    register: &'a Name,
    base: &'a Name,
    offset: i64,
    bytes: i64,
    is_load: bool,
}

fn scalar(statement: &Statement) -> Option<Scalar<'_>> {
    let Statement::Instruction(Instruction { predicate: None, mnemonic, operands, .. }) = statement else {
        return None;
    };
    let is_load = mnemonic.opcode() == "ld";
    let plain = |part: &str| matches!(part, "global" | "nc" | "ca" | "cg" | "cs" | "wb");
    let parts: Vec<&str> = mnemonic.modifiers().collect();
    let (ty, before) = parts.split_last()?;
    let known = (is_load || mnemonic.opcode() == "st")
        && before.first() == Some(&"global")
        && before.iter().all(|part| plain(part));
    let bits: i64 = ty.get(1..)?.parse().ok()?;
    let (register, address) = match &operands[..] {
        [Operand::Name(register), Operand::Address(address)] if is_load => (register, address),
        [Operand::Address(address), Operand::Name(register)] if !is_load => (register, address),
        _ => return None,
    };
    let Address { base: AddressBase::Name(base), offset, rest } = address else { return None };
    (known && rest.is_empty()).then_some(Scalar {
        mnemonic,
        register,
        base,
        offset: *offset,
        bytes: bits / 8,
        is_load,
    })
}

/// The largest run that begins with the statement at this place.
fn run(list: &[Statement], at: usize) -> Option<Run> {
    let first = scalar(&list[at])?;
    let mut found = vec![(first.offset, at)];
    let mut registers = HashSet::from([first.register.clone()]);
    for (next, statement) in list.iter().enumerate().skip(at + 1).take(MOST_APART) {
        match (scalar(statement), statement) {
            (Some(other), _)
                if other.mnemonic == first.mnemonic
                    && other.base == first.base
                    && !found.iter().any(|(offset, _)| *offset == other.offset)
                    && other.register != first.base
                    && registers.insert(other.register.clone()) =>
            {
                found.push((other.offset, next));
            }
            (_, Statement::Location(_)) => {}
            // Loads may pass loads of other addresses.
            (Some(other), _)
                if first.is_load
                    && other.is_load
                    && other.register != first.base
                    && registers.insert(other.register.clone()) =>
            {
                registers.insert(other.base.clone());
            }
            (None, Statement::Instruction(one)) if is_pure(one) => {
                // Loads move up over what reads their results, stores down over what does not
                // change what they store; neither over a change of their base.
                let changes = |name: &Name| writes(one, name);
                if changes(first.base) || !first.is_load && registers.iter().any(changes) {
                    break;
                }
                // (A store moves down: what it stores may be computed before.)
                if first.is_load {
                    registers.extend(mentioned(one));
                }
            }
            _ => break,
        }
    }
    if first.register == first.base {
        return None;
    }
    found.sort_unstable();
    let lengths = [4, 2].into_iter().filter(|length| length * first.bytes <= MOST_BYTES as i64);
    let longest = lengths.filter(|&length| first.bytes > 0 && length > 1);
    for length in longest {
        let size = length * first.bytes;
        let start = first.offset.div_euclid(size) * size;
        let members: Vec<usize> = (0..length)
            .filter_map(|index| found.iter().find(|(offset, _)| *offset == start + index * first.bytes))
            .map(|(_, at)| *at)
            .collect();
        if members.len() as i64 == length {
            return Some(Run { members, is_load: first.is_load });
        }
    }
    None
}

/// Whether an instruction's results include a register.
fn writes(instruction: &Instruction, register: &Name) -> bool {
    let results = instruction.operands.iter().take(1).cloned().collect();
    mentions(&Instruction { predicate: None, operands: results, ..instruction.clone() }, register)
}

fn mentioned(instruction: &Instruction) -> Vec<Name> {
    let mut all = Vec::new();
    instruction.names(&mut |name| all.push(Name::from(name)));
    all
}

/// Joins the run whose accesses begin, by their offsets, with the one at this position.
fn join(list: &mut Vec<Statement>, first: (u32, u32)) -> Option<()> {
    let runs = (0..list.len()).filter_map(|at| run(list, at));
    let run = runs.into_iter().find(|run| position(&list[run.members[0]]) == first)?;
    let registers: Option<Vec<Operand>> = run
        .members
        .iter()
        .map(|&at| scalar(&list[at]).map(|scalar| Operand::Name(scalar.register.clone())))
        .collect();
    let vector = Operand::Vector(registers?);
    let Statement::Instruction(mut joined) = list[run.members[0]].clone() else { return None };
    joined.mnemonic = with_vector(&joined.mnemonic, run.members.len());
    let place = if run.is_load { 0 } else { 1 };
    joined.operands[place] = vector;
    let least = *run.members.iter().min()?;
    let last = *run.members.iter().max()?;
    let home = if run.is_load { least } else { last };
    list[home] = Statement::Instruction(joined);
    let mut at = 0;
    list.retain(|_| {
        at += 1;
        at - 1 == home || !run.members.contains(&(at - 1))
    });
    Some(())
}

/// `ld.global.f32` as `ld.global.v4.f32`.
fn with_vector(mnemonic: &Mnemonic, elements: usize) -> Mnemonic {
    let text = mnemonic.text();
    let (head, ty) = text.rsplit_once('.').unwrap_or((text, ""));
    Mnemonic::new(format!("{head}.v{elements}.{ty}").as_str().into())
}
