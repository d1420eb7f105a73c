//! Video instructions: arithmetic on bytes and half-words picked out of registers, one (`vadd`) or
//! several side by side (`vadd2`, `vadd4`).
//!
//! Each is a step whose immediate says everything about it, computed on numbers so wide that
//! nothing overflows before the ISA says that it is cut. Operands of the side-by-side instructions
//! that do not lie in place are put there by steps of their own.

use ptx::ScalarType;
use ptx::body::{Line, Operand};
use ptx::instruction::{Atomic, Comparison, Flag, Limit, Opcode};

use crate::compile::decode::Undecoded;
use crate::compile::decode::bits::byte_permutation;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::operands::{Args, Class, Reg};
use crate::registers::lanes::{Register, WARP, map, zip};
use crate::registers::shapes::registers;

/// Decodes video instructions. `None` if the opcode is none.
pub(crate) fn decode(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
) -> Option<Decoded<()>> {
    if form.opcode? == Opcode::Vmad {
        return Some(multiply_add(compiler, line, form));
    }
    let (computation, lanes) = computation(form)?;
    Some(match (computation, lanes) {
        (Err(message), _) => invalid(message),
        (Ok(computation), 1) => single(compiler, line, form, computation),
        (Ok(computation), _) => side_by_side(compiler, line, form, computation, lanes),
    })
}

/// Returns the computation of an instruction and the number of values side by side; `None` if it is
/// no video instruction.
fn computation(form: &mut Undecoded) -> Option<(Result<Computation, &'static str>, u32)> {
    use Opcode::*;
    let computation = match form.opcode? {
        Vadd | Vadd2 | Vadd4 => Computation::Add,
        Vsub | Vsub2 | Vsub4 => Computation::Subtract,
        Vabsdiff | Vabsdiff2 | Vabsdiff4 => Computation::Difference,
        Vmin | Vmin2 | Vmin4 => Computation::Minimum,
        Vmax | Vmax2 | Vmax4 => Computation::Maximum,
        Vavrg2 | Vavrg4 => Computation::Average,
        Vshl => Computation::ShiftLeft,
        Vshr => Computation::ShiftRight,
        Vset | Vset2 | Vset4 => Computation::Compare(form.comparison.take().unwrap_or(Comparison::Nan)),
        _ => return None,
    };
    let lanes = match form.opcode? {
        Vadd2 | Vsub2 | Vabsdiff2 | Vmin2 | Vmax2 | Vavrg2 | Vset2 => 2,
        Vadd4 | Vsub4 | Vabsdiff4 | Vmin4 | Vmax4 | Vavrg4 | Vset4 => 4,
        _ => 1,
    };
    let known = COMPUTATIONS.contains(&computation);
    Some((if known { Ok(computation) } else { Err("`vset` needs a relation such as `.lt`") }, lanes))
}

/// Fields of an immediate: value and width in bits of each.
fn pack(fields: &[(u32, u32)]) -> u32 {
    fields.iter().rev().fold(0, |bits, &(value, width)| bits << width | value)
}

/// Takes the fields of an immediate apart.
struct Fields(u32);

impl Fields {
    fn next(&mut self, width: u32) -> u32 {
        let value = self.0 & ((1 << width) - 1);
        self.0 >>= width;
        value
    }

    fn flag(&mut self) -> bool {
        self.next(1) != 0
    }
}

/// A computation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Computation {
    Add,
    Subtract,
    Difference,
    Minimum,
    Maximum,
    Average,
    ShiftLeft,
    ShiftRight,
    Compare(Comparison),
}

/// All of them; as an immediate a computation is the index.
const COMPUTATIONS: [Computation; 14] = [
    Computation::Add,
    Computation::Subtract,
    Computation::Difference,
    Computation::Minimum,
    Computation::Maximum,
    Computation::Average,
    Computation::ShiftLeft,
    Computation::ShiftRight,
    Computation::Compare(Comparison::Equal),
    Computation::Compare(Comparison::NotEqual),
    Computation::Compare(Comparison::Less),
    Computation::Compare(Comparison::LessEqual),
    Computation::Compare(Comparison::Greater),
    Computation::Compare(Comparison::GreaterEqual),
];

impl Computation {
    fn index(self) -> u32 {
        COMPUTATIONS.iter().position(|known| *known == self).unwrap_or(0) as u32
    }

    #[inline(always)]
    fn of(index: u32) -> Computation {
        COMPUTATIONS[index as usize % COMPUTATIONS.len()]
    }

    fn is_shift(self) -> bool {
        matches!(self, Computation::ShiftLeft | Computation::ShiftRight)
    }
}

/// Numbers of the lanes: 32 bits with or without sign, and what becomes of two such.
type Numbers = [i64; WARP];

#[inline(always)]
fn compute(computation: Computation, a: &Numbers, b: &Numbers) -> Numbers {
    match computation {
        Computation::Add => zip(a, b, |a, b| a + b),
        Computation::Subtract => zip(a, b, |a, b| a - b),
        Computation::Difference => zip(a, b, |a, b| (a - b).abs()),
        Computation::Minimum => zip(a, b, i64::min),
        Computation::Maximum => zip(a, b, i64::max),
        // Halves are rounded away from zero where the sum is positive, towards minus infinity where
        // it is not.
        Computation::Average => zip(a, b, |a, b| (a + b + i64::from(a + b >= 0)) >> 1),
        // By 32 bits at most, which leaves a number outside of everything whose lower half is zero.
        Computation::ShiftLeft => zip(a, b, |a, b| if b > 31 { a.signum() << 32 } else { a << b }),
        Computation::ShiftRight => zip(a, b, |a, b| a >> b),
        Computation::Compare(Comparison::Equal) => zip(a, b, |a, b| (a == b).into()),
        Computation::Compare(Comparison::NotEqual) => zip(a, b, |a, b| (a != b).into()),
        Computation::Compare(Comparison::Less) => zip(a, b, |a, b| (a < b).into()),
        Computation::Compare(Comparison::LessEqual) => zip(a, b, |a, b| (a <= b).into()),
        Computation::Compare(Comparison::Greater) => zip(a, b, |a, b| (a > b).into()),
        Computation::Compare(_) => zip(a, b, |a, b| (a >= b).into()),
    }
}

/// Takes the types; whether result, if it has a type, first and second source are signed.
fn signs(form: &mut Undecoded, typed: bool) -> Decoded<[u32; 3]> {
    let mut sign = || match form.take_type() {
        Some(ScalarType::S32) => Ok(1),
        Some(ScalarType::U32) => Ok(0),
        _ => unsupported("video instructions are on .u32 and .s32"),
    };
    let result = if typed { sign()? } else { 0 };
    Ok([result, sign()?, sign()?])
}

/// Part of a register: the whole of it, bytes 0 to 3, half-words 0 and 1. As an immediate it is the
/// index.
const PARTS: [&str; 7] = ["", "b0", "b1", "b2", "b3", "h0", "h1"];

/// Lowest bit and width of a part.
fn extent(part: u32) -> (u32, u32) {
    match part {
        1..=4 => (8 * (part - 1), 8),
        5 | 6 => (16 * (part - 5), 16),
        _ => (0, 32),
    }
}

#[inline(always)]
fn extract(values: &Register<u32>, part: u32, signed: bool) -> Numbers {
    let (low, width) = extent(part);
    extend(values, low, width, signed)
}

/// The `width` bits from `low` on as numbers.
#[inline(always)]
fn extend(values: &Register<u32>, low: u32, width: u32, signed: bool) -> Numbers {
    let shift = 32 - width;
    match signed {
        true => map(values, |value| (((value >> low) << shift) as i32 >> shift).into()),
        false => map(values, |value| ((value >> low) << shift >> shift).into()),
    }
}

/// Returns the least and the greatest number of `width` bits.
fn limits(width: u32, signed: bool) -> (i64, i64) {
    match signed {
        true => (-(1 << (width - 1)), (1 << (width - 1)) - 1),
        false => (0, (1 << width) - 1),
    }
}

/// The register of an operand and the part of it that is meant.
fn with_part<'m>(compiler: &FunctionCompiler, operand: &Operand<'m>) -> Decoded<(Operand<'m>, u32)> {
    let Operand::Component(name, selector) = operand else { return Ok((operand.clone(), 0)) };
    match PARTS.iter().position(|part| part == selector) {
        Some(part) => Ok((Operand::Name(*name), part as u32)),
        None => invalid(format!("`{}` is no part of a register", compiler.show(operand))),
    }
}

/// `vadd` and its like: one number, then a second operation with `c`, or a place in `c`.
fn single(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
    computation: Computation,
) -> Decoded<()> {
    let word = ScalarType::U32;
    // Comparisons give unsigned results.
    let [signed_d, signed_a, signed_b] = signs(form, !matches!(computation, Computation::Compare(_)))?;
    if computation.is_shift() && signed_b != 0 {
        return invalid("the amount of a shift is .u32");
    }
    let saturate = form.take(Flag::Saturate);
    let wrap = computation.is_shift()
        && match form.limit.take() {
            Some(limit @ (Limit::Clamp | Limit::Wrap)) => limit == Limit::Wrap,
            _ => return invalid("a shift needs `.clamp` or `.wrap`"),
        };
    let second = match form.atomic.take() {
        None => 0,
        Some(Atomic::Add) => 1,
        Some(Atomic::Minimum) => 2,
        Some(Atomic::Maximum) => 3,
        Some(_) => return unsupported("the second operation is `.add`, `.min` or `.max`"),
    };
    let (destination, a, b, c) = match line.operands.as_slice() {
        [d, a, b] => (d, a, b, None),
        [d, a, b, c] => (d, a, b, Some(c)),
        _ => return invalid("this video instruction takes a destination and two or three sources"),
    };
    let ((destination, part_d), (a, part_a), (b, part_b)) =
        (with_part(compiler, destination)?, with_part(compiler, a)?, with_part(compiler, b)?);
    if c.is_some() != (second != 0 || part_d != 0) || (second != 0 && part_d != 0) {
        return invalid("a third source goes with a second operation, or with a part of the destination");
    }
    let immediate = pack(&[
        (computation.index(), 4),
        (signed_d, 1),
        (signed_a, 1),
        (signed_b, 1),
        (saturate.into(), 1),
        (wrap.into(), 1),
        (second, 2),
        (part_d, 3),
        (part_a, 3),
        (part_b, 3),
    ]);
    let args = Args {
        a: compiler.source(&a, word)?,
        b: compiler.source(&b, word)?,
        c: c.map_or(Ok(Reg::NONE), |c| compiler.source(c, word))?,
        immediate,
        ..Args::EMPTY
    };
    let destination = compiler.destination(&destination, word)?;
    compiler.lanes(
        registers!(u32 => u32, |a, b, c, how| compute_single(a, b, c, how)),
        Args { d: destination.reg, ..args },
    );
    compiler.widen(destination);
    Ok(())
}

#[inline(always)]
fn compute_single(a: &Register<u32>, b: &Register<u32>, c: &Register<u32>, immediate: u32) -> Register<u32> {
    let mut fields = Fields(immediate);
    let computation = Computation::of(fields.next(4));
    let [signed_d, signed_a, signed_b, saturate, wrap] = std::array::from_fn(|_| fields.flag());
    let second = fields.next(2);
    let [part_d, part_a, part_b] = std::array::from_fn(|_| fields.next(3));
    let (a, b) = (extract(a, part_a, signed_a), extract(b, part_b, signed_b));
    let b = match computation.is_shift() {
        true if wrap => map(&b, |b| b & 31),
        true => map(&b, |b| b.min(32)),
        false => b,
    };
    let (low, width) = extent(part_d);
    let mut value = compute(computation, &a, &b);
    if saturate {
        let (least, greatest) = limits(width, signed_d);
        value = map(&value, |value| value.clamp(least, greatest));
    }
    let third = extend(c, 0, 32, signed_d);
    match second {
        0 if part_d == 0 => map(&value, |value| value as u32),
        0 => {
            let mask = (((1u64 << width) - 1) as u32) << low;
            zip(&value, c, |value, c| (value as u32) << low & mask | c & !mask)
        }
        1 => zip(&value, &third, |value, third| (value + third) as u32),
        2 => zip(&value, &third, |value, third| value.min(third) as u32),
        _ => zip(&value, &third, |value, third| value.max(third) as u32),
    }
}

/// `vmad`.
fn multiply_add<'m>(compiler: &mut FunctionCompiler, line: &Line<'m>, form: &mut Undecoded) -> Decoded<()> {
    let word = ScalarType::U32;
    let [_, signed_a, signed_b] = signs(form, true)?;
    let plus_one = form.take(Flag::PlusOne);
    let saturate = form.take(Flag::Saturate);
    let scale = match form.take_one(&[Flag::ShiftRight7, Flag::ShiftRight15]) {
        None => 0,
        Some(Flag::ShiftRight7) => 7,
        Some(_) => 15,
    };
    let [destination, a, b, c] = line.operands.as_slice() else {
        return invalid("`vmad` takes a destination and three sources");
    };
    let plain = |operand: &Operand<'m>| match operand {
        Operand::Negated(name) => (Operand::Name(*name), true),
        other => (other.clone(), false),
    };
    let ((a, negated_a), (b, negated_b), (c, negated_c)) = (plain(a), plain(b), plain(c));
    let negated = negated_a != negated_b;
    if (negated && negated_c) || (plus_one && (negated || negated_c)) {
        return invalid("`vmad` negates either the product or the third source, and with `.po` neither");
    }
    let ((a, part_a), (b, part_b)) = (with_part(compiler, &a)?, with_part(compiler, &b)?);
    let immediate = pack(&[
        (signed_a, 1),
        (signed_b, 1),
        (plus_one.into(), 1),
        (negated.into(), 1),
        (negated_c.into(), 1),
        (saturate.into(), 1),
        (scale, 4),
        (part_a, 3),
        (part_b, 3),
    ]);
    let args = Args {
        a: compiler.source(&a, word)?,
        b: compiler.source(&b, word)?,
        c: compiler.source(&c, word)?,
        immediate,
        ..Args::EMPTY
    };
    let destination = compiler.destination(destination, word)?;
    compiler.lanes(
        registers!(u32 => u32, |a, b, c, how| compute_multiply_add(a, b, c, how)),
        Args { d: destination.reg, ..args },
    );
    compiler.widen(destination);
    Ok(())
}

#[inline(always)]
fn compute_multiply_add(
    a: &Register<u32>,
    b: &Register<u32>,
    c: &Register<u32>,
    immediate: u32,
) -> Register<u32> {
    let mut fields = Fields(immediate);
    let [signed_a, signed_b, plus_one, negated, negated_c, saturate] = std::array::from_fn(|_| fields.flag());
    let scale = fields.next(4);
    let [part_a, part_b] = std::array::from_fn(|_| fields.next(3));
    let signed = signed_a || signed_b || negated || negated_c;
    // Factors of 33 bits with their sign: the product is cut into its lower 32 bits and the rest.
    let (a, b) = (extract(a, part_a, signed_a), extract(b, part_b, signed_b));
    let upper = zip(&a, &b, |a, b| (a >> 16) * b);
    let lower = zip(&a, &b, |a, b| (a & 0xffff) * b);
    let third = extend(&if negated_c { map(c, |c| !c) } else { *c }, 0, 32, signed);
    let more = i64::from(plus_one || negated || negated_c);
    let (least, greatest) = limits(32, signed);
    let mut results = [0; WARP];
    for lane in 0..WARP {
        // In units of 2^16 and of 1, so that nothing overflows.
        let (mut top, mut rest) = (upper[lane] + (lower[lane] >> 16), lower[lane] & 0xffff);
        if negated {
            // Negation is one's complement and one more.
            (top, rest) = (!top, !rest & 0xffff);
        }
        let sum = rest + third[lane] + more;
        (top, rest) = (top + (sum >> 16), sum & 0xffff);
        // Of what is beyond 64 bits only the direction matters.
        let whole = top.clamp(-(1 << 47), (1 << 47) - 1) << 16 | rest;
        let exact = ((top as u64) << 16 | rest as u64) >> scale;
        let clamped = (whole >> scale).clamp(least, greatest);
        results[lane] = if saturate { clamped as u32 } else { exact as u32 };
    }
    results
}

/// `vadd2`, `vadd4` and their like: several numbers, added up or put beside each other.
fn side_by_side(
    compiler: &mut FunctionCompiler,
    line: &Line,
    form: &mut Undecoded,
    computation: Computation,
    lanes: u32,
) -> Decoded<()> {
    let word = ScalarType::U32;
    // Comparisons give unsigned results.
    let [signed_d, signed_a, signed_b] = signs(form, !matches!(computation, Computation::Compare(_)))?;
    let (saturate, accumulate) = (form.take(Flag::Saturate), form.atomic.take() == Some(Atomic::Add));
    let [destination, a, b, c] = line.operands.as_slice() else {
        return invalid("this video instruction takes a destination and three sources");
    };
    let (destination, mask) = split(destination);
    let ((a, selection_a), (b, selection_b)) = (split(a), split(b));
    let mask = match mask {
        None => (1 << lanes) - 1,
        Some(text) => digits(text, lanes, lanes)?.iter().fold(0, |mask, &lane| mask | 1 << lane),
    };
    let (a, b) = (compiler.source(&a, word)?, compiler.source(&b, word)?);
    let arranged_a = arrange(compiler, a, b, selection_a, lanes, 0)?;
    let arranged_b = arrange(compiler, a, b, selection_b, lanes, lanes)?;
    let immediate = pack(&[
        (computation.index(), 4),
        (signed_d, 1),
        (signed_a, 1),
        (signed_b, 1),
        (saturate.into(), 1),
        (accumulate.into(), 1),
        (lanes, 3),
        (mask, 4),
    ]);
    let c = compiler.source(c, word)?;
    let destination = compiler.destination(&destination, word)?;
    let args = Args { d: destination.reg, a: arranged_a, b: arranged_b, c, immediate, ..Args::EMPTY };
    compiler.lanes(registers!(u32 => u32, |a, b, c, how| compute_side_by_side(a, b, c, how)), args);
    compiler.widen(destination);
    Ok(())
}

/// A register, and the selector after its dot.
fn split<'m>(operand: &Operand<'m>) -> (Operand<'m>, Option<&'m str>) {
    match operand {
        Operand::Component(name, selector) => (Operand::Name(*name), Some(selector)),
        other => (other.clone(), None),
    }
}

/// The digits of a selector such as `h32` or `b210`, lowest place first, all below `end`.
fn digits(selector: &str, lanes: u32, end: u32) -> Decoded<Vec<u32>> {
    let letter = if lanes == 2 { 'h' } else { 'b' };
    let digits: Option<Vec<u32>> = selector
        .strip_prefix(letter)
        .and_then(|digits| digits.chars().rev().map(|digit| digit.to_digit(end)).collect());
    match digits {
        Some(digits) if !digits.is_empty() && digits.len() <= lanes as usize => Ok(digits),
        _ => invalid(format!("`.{selector}` selects no parts of a register")),
    }
}

/// A register with the parts of `b:a` that `selection` names; without one they are those from
/// `first` on.
fn arrange(
    compiler: &mut FunctionCompiler,
    a: Reg,
    b: Reg,
    selection: Option<&str>,
    lanes: u32,
    first: u32,
) -> Decoded<Reg> {
    let Some(selection) = selection else { return Ok(if first == 0 { a } else { b }) };
    let places = digits(selection, lanes, 2 * lanes)?;
    if places.len() != lanes as usize {
        return invalid(format!("`.{selection}` does not select {lanes} parts"));
    }
    let bytes = 4 / lanes;
    let nibbles = places
        .iter()
        .flat_map(|place| (0..bytes).map(move |byte| place * bytes + byte))
        .enumerate()
        .fold(0, |nibbles, (index, byte)| nibbles | byte << (4 * index));
    let (d, c) = (compiler.fresh(Class::Word), compiler.constant(Class::Word, nibbles.into()));
    compiler.lanes(byte_permutation(), Args { d, a, b, c, ..Args::EMPTY });
    Ok(d)
}

#[inline(always)]
fn compute_side_by_side(
    a: &Register<u32>,
    b: &Register<u32>,
    c: &Register<u32>,
    immediate: u32,
) -> Register<u32> {
    let mut fields = Fields(immediate);
    let computation = Computation::of(fields.next(4));
    let [signed_d, signed_a, signed_b, saturate, accumulate] = std::array::from_fn(|_| fields.flag());
    let (lanes, mask) = (fields.next(3).max(1), fields.next(4));
    let width = 32 / lanes;
    let mut result = *c;
    for lane in (0..lanes).filter(|lane| mask >> lane & 1 != 0) {
        let low = lane * width;
        let (a, b) = (extend(a, low, width, signed_a), extend(b, low, width, signed_b));
        let mut value = compute(computation, &a, &b);
        if saturate {
            let (least, greatest) = limits(width, signed_d);
            value = map(&value, |value| value.clamp(least, greatest));
        }
        result = if accumulate {
            zip(&value, &result, |value, result| result.wrapping_add(value as u32))
        } else {
            let place = (((1u64 << width) - 1) as u32) << low;
            zip(&value, &result, |value, result| (value as u32) << low & place | result & !place)
        };
    }
    result
}
