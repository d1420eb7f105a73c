//! Instructions by which the lanes of a warp communicate.

use ptx::ScalarType;
use ptx::body::{Line, Operand};
use ptx::instruction::{Atomic, Flag, Opcode, Vote};

use crate::code::{FloatChoice, Op, Reduction, WarpOp};
use crate::compile::decode::Undecoded;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::compile::operand::Destination;
use crate::operands::{Args, Class, Reg};

/// Decodes warp instructions. `None` if the opcode is none.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    Some(match form.opcode? {
        Opcode::Shfl => shuffle(compiler, line, form),
        Opcode::Vote => vote(compiler, line, form),
        Opcode::Match => matching(compiler, line, form),
        Opcode::Redux => reduce(compiler, line, form),
        Opcode::Activemask => {
            form.take_type();
            let Some(destination) = line.operands.first() else {
                return Some(invalid("`activemask` takes a destination"));
            };
            compiler.destination(destination, ScalarType::B32).map(|destination| {
                let args = Args { d: destination.reg, ..Args::EMPTY };
                compiler.push(Op::Warp { op: WarpOp::ActiveMask, members: Reg::NONE, args });
                compiler.widen(destination);
            })
        }
        Opcode::Elect => elect(compiler, line, form),
        _ => return None,
    })
}

/// `d|p` as destination and predicate, either of which may be absent.
fn value_and_predicate(compiler: &mut FunctionCompiler, operand: &Operand) -> Decoded<(Destination, Reg)> {
    let (value, predicate) = match operand {
        Operand::Pair(value, predicate) => (&**value, Some(&**predicate)),
        value => (value, None),
    };
    let predicate = match predicate {
        None | Some(Operand::Sink) => Reg::NONE,
        Some(Operand::Name(name)) => compiler.predicate(*name)?,
        Some(_) => return invalid("the second result is a predicate"),
    };
    Ok((compiler.destination(value, ScalarType::B32)?, predicate))
}

/// The mask of the lanes that take part; without `.sync` those that happen to be there.
fn members(compiler: &mut FunctionCompiler, sync: bool, operand: Option<&Operand>) -> Decoded<Reg> {
    match (sync, operand) {
        (true, Some(operand)) => compiler.source(operand, ScalarType::B32),
        (false, None) => Ok(Reg::NONE),
        _ => invalid("a `.sync` instruction takes a mask of lanes, and no other does"),
    }
}

fn finish(compiler: &mut FunctionCompiler, op: WarpOp, members: Reg, args: Args, destination: Destination) {
    compiler.push(Op::Warp { op, members, args: Args { d: destination.reg, ..args } });
    compiler.widen(destination);
}

fn shuffle(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let sync = form.take(Flag::Synchronous);
    let Some(mode) = form.shuffle.take() else { return invalid("`shfl` needs a mode") };
    form.take_type();
    let [destination, a, b, c, rest @ ..] = line.operands.as_slice() else {
        return invalid("`shfl` takes a destination and three sources");
    };
    let members = members(compiler, sync, rest.first())?;
    let args = Args {
        a: compiler.source(a, ScalarType::B32)?,
        b: compiler.source(b, ScalarType::B32)?,
        c: compiler.source(c, ScalarType::B32)?,
        ..Args::EMPTY
    };
    let (destination, e) = value_and_predicate(compiler, destination)?;
    finish(compiler, WarpOp::Shuffle(mode), members, Args { e, ..args }, destination);
    Ok(())
}

fn vote(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let sync = form.take(Flag::Synchronous);
    let Some(question) = form.vote.take() else { return invalid("`vote` needs a mode") };
    let ty = if question == Vote::Ballot { ScalarType::B32 } else { ScalarType::Pred };
    form.take_type();
    let [destination, source, rest @ ..] = line.operands.as_slice() else {
        return invalid("`vote` takes a destination and a predicate");
    };
    let members = members(compiler, sync, rest.first())?;
    // A negated source votes the other way.
    let (a, immediate) = match source {
        Operand::Not(name) => (compiler.predicate(*name)?, 1),
        other => (compiler.source(other, ScalarType::Pred)?, 0),
    };
    let destination = compiler.destination(destination, ty)?;
    finish(compiler, WarpOp::Vote(question), members, Args { a, immediate, ..Args::EMPTY }, destination);
    Ok(())
}

fn matching(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let Some(mode) = form.vote.take() else { return invalid("`match` needs a mode") };
    let sync = form.take(Flag::Synchronous);
    let Some(ty) = form.take_type() else { return invalid("`match` needs a type") };
    let [destination, a, rest @ ..] = line.operands.as_slice() else {
        return invalid("`match` takes a destination and a value");
    };
    let members = members(compiler, sync, rest.first())?;
    let a = compiler.source(a, ty)?;
    let long = compiler.class(a) == Class::Long;
    let (destination, e) = value_and_predicate(compiler, destination)?;
    let op = if mode == Vote::Any { WarpOp::MatchAny { long } } else { WarpOp::MatchAll { long } };
    finish(compiler, op, members, Args { a, e, ..Args::EMPTY }, destination);
    Ok(())
}

fn reduce(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let sync = form.take(Flag::Synchronous);
    let operation = form.atomic.take();
    let choice = FloatChoice { magnitude: form.take(Flag::Absolute), nan: form.take(Flag::PropagateNan) };
    let Some(ty) = form.take_type() else { return invalid("`redux` needs a type") };
    if ty != ScalarType::F32 && choice != (FloatChoice { magnitude: false, nan: false }) {
        return unsupported("`.abs` and `.NaN` are for .f32");
    }
    let op = match (operation, ty) {
        (Some(Atomic::Add), ScalarType::U32 | ScalarType::S32) => Reduction::Add,
        (Some(Atomic::Minimum), ScalarType::S32) => Reduction::MinSigned,
        (Some(Atomic::Maximum), ScalarType::S32) => Reduction::MaxSigned,
        (Some(Atomic::Minimum), ScalarType::U32) => Reduction::Min,
        (Some(Atomic::Maximum), ScalarType::U32) => Reduction::Max,
        (Some(Atomic::Minimum), ScalarType::F32) => Reduction::MinFloat(choice),
        (Some(Atomic::Maximum), ScalarType::F32) => Reduction::MaxFloat(choice),
        (Some(Atomic::And), ScalarType::B32) => Reduction::And,
        (Some(Atomic::Or), ScalarType::B32) => Reduction::Or,
        (Some(Atomic::Xor), ScalarType::B32) => Reduction::Xor,
        _ => return unsupported(format!("this `redux` on {ty} is not supported")),
    };
    let [destination, a, rest @ ..] = line.operands.as_slice() else {
        return invalid("`redux` takes a destination and a value");
    };
    let members = members(compiler, sync, rest.first())?;
    let a = compiler.source(a, ty)?;
    let destination = compiler.destination(destination, ty)?;
    finish(compiler, WarpOp::Redux(op), members, Args { a, ..Args::EMPTY }, destination);
    Ok(())
}

fn elect(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let sync = form.take(Flag::Synchronous);
    let [destination, rest @ ..] = line.operands.as_slice() else {
        return invalid("`elect` takes a destination");
    };
    let members = members(compiler, sync, rest.first())?;
    let (destination, e) = value_and_predicate(compiler, destination)?;
    finish(compiler, WarpOp::Elect, members, Args { e, ..Args::EMPTY }, destination);
    Ok(())
}

/// `bar.warp.sync`.
pub(crate) fn warp_barrier(compiler: &mut FunctionCompiler, line: &Line) -> Decoded<()> {
    let [mask] = line.operands.as_slice() else {
        return invalid("`bar.warp.sync` takes a mask of lanes");
    };
    let members = compiler.source(mask, ScalarType::B32)?;
    compiler.push(Op::Warp { op: WarpOp::Sync, members, args: Args::EMPTY });
    Ok(())
}
