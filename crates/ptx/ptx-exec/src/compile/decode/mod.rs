//! Translates an instruction into steps: asks each family of decoders in turn. What only computes a
//! result goes by its [meaning](ptx_lower), for which the executor has a handler.
//!
//! Invariant: no modifier is ignored. Those that no decoder takes make an instruction unsupported.

mod address;
mod asynchronous;
mod atomic;
mod bits;
mod choice;
mod compare;
pub(crate) mod control;
mod convert;
mod float;
mod halves;
mod integer;
pub(crate) mod load_store;
mod matrix;
mod moves;
mod narrow;
mod scaled;
pub(crate) mod stack;
mod texture;
mod video;
mod warp;

use ptx::body::{Line, Operand};
use ptx::instruction::{self, Opcode};
use ptx_lower::{Meaning, Op};

use crate::arithmetic::soft::Rounding;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::native::Lowered;
use crate::operands::Args;
use crate::registers::handler::LaneHandler;

/// The part of a mnemonic that no decoder has understood yet. Decoders *take* the modifiers that
/// they know. The remaining ones make the instruction unsupported, so that no modifier is ever
/// ignored by accident.
pub(crate) type Undecoded = ptx::instruction::Operation;

/// The handler that the executor has for a meaning, and the immediate that it asks for.
pub(crate) type Choice = (LaneHandler, u32);

/// The direction of a rounding, to a whole number or not; to nearest where none is named.
pub(crate) fn direction(rounding: Option<instruction::Rounding>) -> Rounding {
    use instruction::Rounding::{Down, NearestAway, Up, WholeDown, WholeUp, WholeZero, Zero};
    match rounding {
        Some(NearestAway) => Rounding::NearestAway,
        Some(Zero | WholeZero) => Rounding::Zero,
        Some(Down | WholeDown) => Rounding::Down,
        Some(Up | WholeUp) => Rounding::Up,
        _ => Rounding::NearestEven,
    }
}

/// The executor's choice for a meaning.
fn choice_for(meaning: &Meaning) -> Option<Choice> {
    let alone = |run| (run, 0);
    match meaning.op {
        Op::Convert { .. } | Op::PackIntegers { .. } => convert::handler(meaning),
        _ if meaning.ty.is_float() => bits::handler(meaning).map(alone).or_else(|| float::handler(meaning)),
        _ => bits::handler(meaning).or_else(|| integer::handler(meaning)).map(alone),
    }
}

/// Decodes an instruction; `next` is the block laid out after the current one.
pub(crate) fn instruction<'m>(
    compiler: &mut FunctionCompiler<'m>,
    line: &Line<'m>,
    mut form: Undecoded,
    next: Option<usize>,
) -> Decoded<()> {
    check_elements(compiler, line, &form)?;
    let form = &mut form;
    control::decode(compiler, line, form, next)
        .or_else(|| asynchronous::decode(compiler, line, form))
        .or_else(|| load_store::decode(compiler, line, form))
        .or_else(|| texture::decode(compiler, line, form))
        .or_else(|| address::decode(compiler, line, form))
        .or_else(|| stack::decode(compiler, line, form))
        .or_else(|| moves::decode(compiler, line, form))
        .or_else(|| compare::decode(compiler, line, form))
        .or_else(|| warp::decode(compiler, line, form))
        .or_else(|| matrix::decode(compiler, line, form))
        .or_else(|| integer::decode_carry(compiler, line, form))
        .or_else(|| bits::decode_lop3(compiler, line, form))
        .or_else(|| video::decode(compiler, line, form))
        .or_else(|| narrow::decode(compiler, line, form))
        .unwrap_or_else(|| computation(compiler, line, form))?;
    left_over(line, form)
}

/// Decodes an instruction that computes one register from others, and nothing else.
fn computation(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let meaning = Meaning::of(form, &line.operands);
    let Some((meaning, choice)) = meaning.and_then(|meaning| Some((meaning, choice_for(&meaning)?))) else {
        return unsupported(format!("`{}` is not supported", line.instruction.mnemonic));
    };
    // Before operands are counted: an unknown modifier may ask for others.
    left_over(line, form)?;
    emit(compiler, line, &meaning, choice)
}

/// Complains about elements of arrays (`array[1]`, `array[%r1]`) where ptxas takes none.
fn check_elements(compiler: &FunctionCompiler, line: &Line, form: &Undecoded) -> Decoded<()> {
    for operand in &line.operands {
        if let Some(problem) = compiler.body.wrong_element(operand) {
            return invalid(problem);
        }
        let is_element = matches!(operand, Operand::Element(..) | Operand::Indexed(_));
        if is_element && !form.is(&[Opcode::Ld, Opcode::Ldu, Opcode::St, Opcode::Mov, Opcode::Cvta]) {
            return invalid(format!("`{}` takes no element of an array", line.instruction.mnemonic));
        }
    }
    Ok(())
}

/// Complains about modifiers that nobody has taken.
fn left_over(line: &Line, form: &Undecoded) -> Decoded<()> {
    if form.is_spent() {
        return Ok(());
    }
    let mnemonic = &line.instruction.mnemonic;
    unsupported(format!("`.{}` is not supported in `{mnemonic}`", form.left(mnemonic).unwrap_or_default()))
}

/// Adds the step of a meaning.
fn emit(compiler: &mut FunctionCompiler, line: &Line, meaning: &Meaning, choice: Choice) -> Decoded<()> {
    let types = meaning.sources();
    let Some((destination, sources)) = line.operands.split_first() else {
        return invalid("this instruction needs operands");
    };
    if sources.len() != types.len() {
        return invalid(format!(
            "`{}` takes {} source operands, not {}",
            line.instruction.mnemonic,
            types.len(),
            sources.len()
        ));
    }
    let (run, immediate) = choice;
    let mut args = Args { immediate, ..Args::EMPTY };
    let slots = [&mut args.a, &mut args.b, &mut args.c, &mut args.f];
    for ((slot, operand), ty) in slots.into_iter().zip(sources).zip(types) {
        *slot = compiler.source(operand, ty)?;
    }
    let destination = compiler.destination(destination, meaning.result())?;
    compiler.means(Lowered::Computes(*meaning));
    compiler.lanes(run, Args { d: destination.reg, ..args });
    compiler.widen(destination);
    Ok(())
}
