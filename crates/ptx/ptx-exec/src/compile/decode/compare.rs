//! Comparisons: `setp`, `set`.

use ptx::ScalarType;
use ptx::body::{Line, Operand};
use ptx::instruction::{Comparison as Relation, Logic, Opcode};
use ptx_lower::{Meaning, Op, holds};

use crate::arithmetic::half::{bf16_to_f32, ordered_f16};
use crate::arithmetic::numbers::flush;
use crate::compile::decode::Undecoded;
use crate::compile::function::{Decoded, FunctionCompiler, Refusal, invalid, unsupported};
use crate::native::Lowered;
use crate::operands::{Args, Class, Reg, WordComparison};
use crate::registers::handler::LaneHandler;
use crate::registers::shapes::{combine, compare, logic, select, ternary};

/// Decodes comparisons. `None` if the opcode is another.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    Some(match form.opcode? {
        Opcode::Setp => set_predicate(compiler, line, form),
        Opcode::Set => set(compiler, line, form),
        _ => return None,
    })
}

/// The handler of one of these relations, of the numbers that sources of a type stand for.
macro_rules! related {
    ($relation:expr, [$($name:ident)*], $ty:ty, $number:expr) => {
        match $relation {
            $(Relation::$name => compare(|a: $ty, b: $ty| holds(Relation::$name, $number(a), $number(b))),)*
            #[allow(unreachable_patterns, reason = "floating-point numbers have all relations")]
            _ => return None,
        }
    };
}

macro_rules! integers {
    ($relation:expr, $ty:ty) => {
        related!($relation, [Equal NotEqual Less LessEqual Greater GreaterEqual], $ty, |a: $ty| a)
    };
}

macro_rules! floats {
    ($relation:expr, $ty:ty, $number:expr) => {
        related!(
            $relation,
            [Equal NotEqual Less LessEqual Greater GreaterEqual Number Nan UnorderedEqual UnorderedNotEqual
             UnorderedLess UnorderedLessEqual UnorderedGreater UnorderedGreaterEqual],
            $ty,
            $number
        )
    };
}

/// The handler that compares two values of type `ty`; of pairs it compares the half that `high`
/// tells.
fn handler(relation: Relation, ty: ScalarType, ftz: bool, high: bool) -> Option<LaneHandler> {
    use ScalarType::*;
    if matches!(relation, Relation::Number | Relation::Nan) && matches!(ty, F16 | F16x2) {
        return Some(nans(relation == Relation::Nan, high));
    }
    Some(match (ty, ftz, high) {
        (U16 | B16, ..) => integers!(relation, u16),
        (S16, ..) => integers!(relation, i16),
        (U32 | B32, ..) => integers!(relation, u32),
        (S32, ..) => integers!(relation, i32),
        (U64 | B64, ..) => integers!(relation, u64),
        (S64, ..) => integers!(relation, i64),
        (F32, false, _) => floats!(relation, f32, |a: f32| a),
        (F32, true, _) => floats!(relation, f32, flush),
        (F64, ..) => floats!(relation, f64, |a: f64| a),
        (F16 | F16x2, false, false) => floats!(relation, u32, |a: u32| ordered_f16(a << 16, false)),
        (F16x2, false, true) => floats!(relation, u32, |a: u32| ordered_f16(a, false)),
        (F16 | F16x2, true, false) => floats!(relation, u32, |a: u32| ordered_f16(a << 16, true)),
        (F16x2, true, true) => floats!(relation, u32, |a: u32| ordered_f16(a, true)),
        (Bf16 | Bf16x2, false, false) => floats!(relation, u32, |a: u32| bf16_to_f32(a as u16)),
        (Bf16x2, false, true) => floats!(relation, u32, |a: u32| bf16_to_f32((a >> 16) as u16)),
        _ => return None,
    })
}

/// A half is a NaN by its bits, flushed or not.
fn nans(any: bool, high: bool) -> LaneHandler {
    match (any, high) {
        (true, false) => compare(|a: u32, b: u32| (a & 0x7fff > 0x7c00) | (b & 0x7fff > 0x7c00)),
        (true, true) => compare(|a: u32, b: u32| (a >> 16 & 0x7fff > 0x7c00) | (b >> 16 & 0x7fff > 0x7c00)),
        (false, false) => compare(|a: u32, b: u32| !((a & 0x7fff > 0x7c00) | (b & 0x7fff > 0x7c00))),
        (false, true) => {
            compare(|a: u32, b: u32| !((a >> 16 & 0x7fff > 0x7c00) | (b >> 16 & 0x7fff > 0x7c00)))
        }
    }
}

/// The comparison of words that the compiler can use.
fn on_words(relation: Relation, ty: ScalarType) -> Option<WordComparison> {
    use Relation::{Greater, GreaterEqual, Less, LessEqual};
    let words = matches!(ty, ScalarType::U32 | ScalarType::B32 | ScalarType::S32);
    let found = WordComparison { relation, signed: ty == ScalarType::S32 };
    (words && matches!(relation, Less | LessEqual | Greater | GreaterEqual)).then_some(found)
}

/// `.and`, `.or`, `.xor` with a predicate that may be negated: the register and [`combine`]'s code.
fn combination(
    compiler: &mut FunctionCompiler,
    logic: Option<Logic>,
    operand: Option<&Operand>,
) -> Decoded<(Reg, u32)> {
    let code = match (logic, operand) {
        (None, None) => return Ok((Reg::NONE, combine::NONE)),
        (Some(Logic::And), Some(_)) => combine::AND,
        (Some(Logic::Or), Some(_)) => combine::OR,
        (Some(_), Some(_)) => combine::XOR,
        _ => return invalid("a combined comparison takes `.and`, `.or` or `.xor` and one more predicate"),
    };
    match operand {
        Some(Operand::Not(name)) => Ok((compiler.predicate(*name)?, code | combine::NOT)),
        Some(other) => Ok((compiler.source(other, ScalarType::Pred)?, code)),
        None => Ok((Reg::NONE, combine::NONE)),
    }
}

/// The meaning of a comparison: the relation, the type of what is compared, and how the result is
/// combined.
fn comparison(line: &Line, form: &mut Undecoded) -> Decoded<(Meaning, Relation, Option<Logic>)> {
    match Meaning::of(form, &line.operands) {
        Some(meaning @ Meaning { op: Op::Compare { relation, logic, .. }, .. }) => {
            Ok((meaning, relation, logic))
        }
        _ => invalid("a comparison needs a relation such as `.lt`, and types"),
    }
}

fn no_such(ty: ScalarType) -> Refusal {
    Refusal::Unsupported(format!("this comparison of {ty} is not supported"))
}

fn is_pair(ty: ScalarType) -> bool {
    matches!(ty, ScalarType::F16x2 | ScalarType::Bf16x2)
}

fn optional_predicate(compiler: &mut FunctionCompiler, operand: &Operand) -> Decoded<Reg> {
    match operand {
        Operand::Sink => Ok(Reg::NONE),
        Operand::Name(name) => compiler.predicate(*name),
        _ => invalid("the result of a comparison is a predicate"),
    }
}

fn set_predicate(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let (meaning, relation, logic_operation) = comparison(line, form)?;
    let Meaning { ty, modifiers, .. } = meaning;
    let [destination, a, b, rest @ ..] = line.operands.as_slice() else {
        return invalid("`setp` takes a predicate and two values");
    };
    let ftz = modifiers.flushes;
    let (c, immediate) = combination(compiler, logic_operation, rest.first())?;
    let run = handler(relation, ty, ftz, false).ok_or_else(|| no_such(ty))?;
    let run = run.comparing(on_words(relation, ty));
    let (a, b) = (compiler.source(a, ty)?, compiler.source(b, ty)?);
    let (d, e) = match destination {
        Operand::Pair(first, second) => {
            (optional_predicate(compiler, first)?, optional_predicate(compiler, second)?)
        }
        other => (optional_predicate(compiler, other)?, Reg::NONE),
    };
    let args = Args { d, a, b, c, immediate, ..Args::EMPTY };
    if !is_pair(ty) {
        compiler.means(Lowered::Computes(meaning));
        compiler.lanes(run, Args { e, ..args });
        return Ok(());
    }
    // Of pairs the first predicate tells about the lower halves, the second about the upper ones.
    // The first must not change `c` before the second has read it.
    let first = compiler.fresh(Class::Predicate);
    compiler.lanes(run, Args { d: first, ..args });
    if e.is_some() {
        let run = handler(relation, ty, ftz, true).ok_or_else(|| no_such(ty))?;
        compiler.lanes(run, Args { d: e, ..args });
    }
    if d.is_some() {
        compiler.lanes(logic(|a, _, _| a), Args { d, a: first, ..Args::EMPTY });
    }
    Ok(())
}

/// `set`: all ones or 1.0 where the comparison holds, else zero.
fn set(compiler: &mut FunctionCompiler, line: &Line, form: &mut Undecoded) -> Decoded<()> {
    let (meaning, relation, logic_operation) = comparison(line, form)?;
    let (result, ty, ftz) = (meaning.result(), meaning.ty, meaning.modifiers.flushes);
    let [destination, a, b, rest @ ..] = line.operands.as_slice() else {
        return invalid("`set` takes a destination and two values");
    };
    let (c, immediate) = combination(compiler, logic_operation, rest.first())?;
    let truth = match result {
        ScalarType::F32 => 0x3f80_0000,
        ScalarType::F16 => 0x3c00,
        ScalarType::Bf16 => 0x3f80,
        ScalarType::F16x2 => 0x3c00_3c00,
        ScalarType::Bf16x2 => 0x3f80_3f80,
        ScalarType::U16 | ScalarType::S16 => 0xffff,
        ScalarType::U32 | ScalarType::S32 => 0xffff_ffff,
        _ => return unsupported(format!("`set` to {result} is not supported")),
    };
    let (a, b) = (compiler.source(a, ty)?, compiler.source(b, ty)?);
    let (zero, truth) = (compiler.constant(Class::Word, 0), compiler.constant(Class::Word, truth));
    let destination = compiler.destination(destination, result)?;
    let choose = |compiler: &mut FunctionCompiler, high: bool| {
        let run = handler(relation, ty, ftz, high).ok_or_else(|| no_such(ty))?;
        let (outcome, chosen) = (compiler.fresh(Class::Predicate), compiler.fresh(Class::Word));
        compiler.lanes(run, Args { d: outcome, a, b, c, immediate, ..Args::EMPTY });
        let run = select(|a: u32, b: u32, c| if c { a } else { b });
        compiler.lanes(run, Args { d: chosen, a: truth, b: zero, c: outcome, ..Args::EMPTY });
        Ok(chosen)
    };
    let low = choose(compiler, false)?;
    let high = if is_pair(ty) { choose(compiler, true)? } else { low };
    let run = ternary(|low: u32, high: u32, _: u32| low & 0xffff | high & 0xffff_0000);
    compiler.lanes(run, Args { d: destination.reg, a: low, b: high, c: low, ..Args::EMPTY });
    compiler.widen(destination);
    Ok(())
}
