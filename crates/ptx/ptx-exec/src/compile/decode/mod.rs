//! Translates an instruction into steps: asks each family of decoders in turn.

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
pub(crate) mod stack;
mod texture;
mod video;
mod warp;

use ptx::ScalarType;
use ptx::body::{Line, Operand};
use ptx::instruction::{self, Opcode};

use crate::arithmetic::soft::Rounding;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::operands::Args;
use crate::registers::handler::LaneHandler;

/// The part of a mnemonic that no decoder has understood yet. Decoders *take* the modifiers that
/// they know. The remaining ones make the instruction unsupported, so that no modifier is ever
/// ignored by accident.
pub(crate) type Undecoded = ptx::instruction::Operation;

/// Takes `.rn`, `.rz`, `.rm` or `.rp`; to nearest where there is none.
pub(crate) fn rounding(form: &mut Undecoded) -> Rounding {
    let rounding = match form.rounding {
        Some(instruction::Rounding::Nearest) => Rounding::NearestEven,
        Some(instruction::Rounding::Zero) => Rounding::Zero,
        Some(instruction::Rounding::Down) => Rounding::Down,
        Some(instruction::Rounding::Up) => Rounding::Up,
        // What rounds otherwise is left.
        _ => return Rounding::NearestEven,
    };
    form.rounding = None;
    rounding
}

/// An instruction that computes one register from others, and nothing else.
pub(crate) struct Pure {
    pub(crate) run: LaneHandler,
    pub(crate) result: ScalarType,
    /// Types of the sources, in order; at most four.
    pub(crate) sources: Vec<ScalarType>,
    pub(crate) immediate: u32,
}

impl Pure {
    /// All operands have the type of the result.
    pub(crate) fn uniform(run: LaneHandler, ty: ScalarType, sources: usize) -> Option<Self> {
        Some(Pure { run, result: ty, sources: vec![ty; sources], immediate: 0 })
    }

    pub(crate) fn new(run: LaneHandler, result: ScalarType, sources: &[ScalarType]) -> Option<Self> {
        Some(Pure { run, result, sources: sources.to_vec(), immediate: 0 })
    }

    pub(crate) fn with(self, immediate: u32) -> Self {
        Pure { immediate, ..self }
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
    let outcome = if let Some(outcome) = control::decode(compiler, line, form, next) {
        outcome
    } else if let Some(outcome) = asynchronous::decode(compiler, line, form) {
        outcome
    } else if let Some(outcome) = load_store::decode(compiler, line, form) {
        outcome
    } else if let Some(outcome) = texture::decode(compiler, line, form) {
        outcome
    } else if let Some(outcome) = address::decode(compiler, line, form) {
        outcome
    } else if let Some(outcome) = stack::decode(compiler, line, form) {
        outcome
    } else if let Some(outcome) = moves::decode(compiler, line, form) {
        outcome
    } else if let Some(outcome) = compare::decode(compiler, line, form) {
        outcome
    } else if let Some(outcome) = warp::decode(compiler, line, form) {
        outcome
    } else if let Some(outcome) = matrix::decode(compiler, line, form) {
        outcome
    } else if let Some(outcome) = integer::decode_carry(compiler, line, form) {
        outcome
    } else if let Some(outcome) = bits::decode_lop3(compiler, line, form) {
        outcome
    } else if let Some(outcome) = video::decode(compiler, line, form) {
        outcome
    } else {
        match pure(form, line.operands.len().saturating_sub(1)) {
            // Before operands are counted: an unknown modifier may ask for others.
            Some(found) => left_over(line, form).and_then(|()| emit(compiler, line, &found)),
            None => unsupported(format!("`{}` is not supported", line.instruction.mnemonic)),
        }
    };
    outcome?;
    left_over(line, form)
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

/// Decodes an instruction with `sources` sources.
fn pure(form: &mut Undecoded, sources: usize) -> Option<Pure> {
    if form.opcode == Some(Opcode::Cvt) {
        return convert::decode(form);
    }
    if form.is(&bits::OPCODES) {
        return bits::decode(form);
    }
    let ty = *form.types().first()?;
    if ty.is_float() { float::decode(form, sources) } else { integer::decode(form) }
}

/// Adds the step of a pure instruction.
pub(crate) fn emit(compiler: &mut FunctionCompiler, line: &Line, pure: &Pure) -> Decoded<()> {
    let Some((destination, sources)) = line.operands.split_first() else {
        return invalid("this instruction needs operands");
    };
    if sources.len() != pure.sources.len() {
        return invalid(format!(
            "`{}` takes {} source operands, not {}",
            line.instruction.mnemonic,
            pure.sources.len(),
            sources.len()
        ));
    }
    let args = pure_args(compiler, destination, sources, pure)?;
    compiler.lanes(pure.run, args.0);
    compiler.widen(args.1);
    Ok(())
}

fn pure_args(
    compiler: &mut FunctionCompiler,
    destination: &Operand,
    sources: &[Operand],
    pure: &Pure,
) -> Decoded<(Args, crate::compile::operand::Destination)> {
    let mut args = Args { immediate: pure.immediate, ..Args::EMPTY };
    let slots = [&mut args.a, &mut args.b, &mut args.c, &mut args.f];
    for ((slot, operand), ty) in slots.into_iter().zip(sources).zip(&pure.sources) {
        *slot = compiler.source(operand, *ty)?;
    }
    let destination = compiler.destination(destination, pure.result)?;
    args.d = destination.reg;
    Ok((args, destination))
}
