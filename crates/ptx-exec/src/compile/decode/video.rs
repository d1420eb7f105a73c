//! Video instructions: arithmetic on bytes and half-words picked out of registers, one (`vadd`) or several side by
//! side (`vadd2`, `vadd4`).
//!
//! Each is a step whose immediate says everything about it, computed on numbers so wide that nothing overflows before
//! the ISA says that it is cut. Operands of the side-by-side instructions that do not lie in place are put there by
//! steps of their own.

use ptx::ScalarType;
use ptx::body::{Line, Operand};

use crate::compile::decode::bits::byte_permutation;
use crate::compile::decode::form::Form;
use crate::compile::function::{Decoded, FunctionCompiler, invalid, unsupported};
use crate::operands::{Args, Class, Reg};
use crate::registers::lanes::{Register, WARP, map, registers, zip};

/// Decodes video instructions. `None` if the opcode is none.
pub(crate) fn decode(compiler: &mut FunctionCompiler, line: &Line, form: &mut Form) -> Option<Decoded<()>> {
    let (name, lanes) = match form.opcode.strip_suffix(['2', '4']) {
        Some(name) if form.opcode.ends_with('2') => (name, 2),
        Some(name) => (name, 4),
        None => (form.opcode, 1),
    };
    if (name, lanes) == ("vmad", 1) {
        return Some(multiply_add(compiler, line, form));
    }
    let known: &[&str] = match lanes {
        1 => &["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset"],
        _ => &["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vavrg", "vset"],
    };
    if !known.contains(&name) {
        return None;
    }
    Some(match lanes {
        1 => single(compiler, line, form, name),
        _ => side_by_side(compiler, line, form, name, lanes),
    })
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

/// What is computed; as an immediate it is the index.
const OPERATIONS: [&str; 14] =
    ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vavrg", "vshl", "vshr", "eq", "ne", "lt", "le", "gt", "ge"];

/// Numbers of the lanes: 32 bits with or without sign, and what becomes of two such.
type Numbers = [i64; WARP];

#[inline(always)]
fn compute(operation: u32, a: &Numbers, b: &Numbers) -> Numbers {
    match OPERATIONS[operation as usize % OPERATIONS.len()] {
        "vadd" => zip(a, b, |a, b| a + b),
        "vsub" => zip(a, b, |a, b| a - b),
        "vabsdiff" => zip(a, b, |a, b| (a - b).abs()),
        "vmin" => zip(a, b, i64::min),
        "vmax" => zip(a, b, i64::max),
        // Halves are rounded away from zero where the sum is positive, towards minus infinity where it is not.
        "vavrg" => zip(a, b, |a, b| (a + b + i64::from(a + b >= 0)) >> 1),
        // By 32 bits at most, which leaves a number outside of everything whose lower half is zero.
        "vshl" => zip(a, b, |a, b| if b > 31 { a.signum() << 32 } else { a << b }),
        "vshr" => zip(a, b, |a, b| a >> b),
        "eq" => zip(a, b, |a, b| (a == b).into()),
        "ne" => zip(a, b, |a, b| (a != b).into()),
        "lt" => zip(a, b, |a, b| (a < b).into()),
        "le" => zip(a, b, |a, b| (a <= b).into()),
        "gt" => zip(a, b, |a, b| (a > b).into()),
        _ => zip(a, b, |a, b| (a >= b).into()),
    }
}

/// Takes the operation; comparisons are named by their relation.
fn operation(form: &mut Form, name: &str) -> Decoded<u32> {
    let name = match name {
        "vset" => match form.one_of(&["eq", "ne", "lt", "le", "gt", "ge"]) {
            Some(relation) => relation,
            None => return invalid("`vset` needs a relation such as `.lt`"),
        },
        other => other,
    };
    Ok(OPERATIONS.iter().position(|known| *known == name).unwrap_or(0) as u32)
}

/// Takes the types; whether result, first and second source are signed. Comparisons give unsigned results.
fn signs(form: &mut Form, name: &str) -> Decoded<[u32; 3]> {
    let mut sign = || match form.ty() {
        Some(ScalarType::S32) => Ok(1),
        Some(ScalarType::U32) => Ok(0),
        _ => unsupported("video instructions are on .u32 and .s32"),
    };
    let result = if name == "vset" { 0 } else { sign()? };
    Ok([result, sign()?, sign()?])
}

/// Part of a register: the whole of it, bytes 0 to 3, half-words 0 and 1. As an immediate it is the index.
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

/// The least and the greatest number of so many bits.
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
fn single(compiler: &mut FunctionCompiler, line: &Line, form: &mut Form, name: &str) -> Decoded<()> {
    let word = ScalarType::U32;
    let operation = operation(form, name)?;
    let [signed_d, signed_a, signed_b] = signs(form, name)?;
    if matches!(name, "vshl" | "vshr") && signed_b != 0 {
        return invalid("the amount of a shift is .u32");
    }
    let saturate = form.flag("sat");
    let wrap = matches!(name, "vshl" | "vshr")
        && match form.one_of(&["clamp", "wrap"]) {
            Some(mode) => mode == "wrap",
            None => return invalid("a shift needs `.clamp` or `.wrap`"),
        };
    let second = match form.one_of(&["add", "min", "max"]) {
        None => 0,
        Some("add") => 1,
        Some("min") => 2,
        Some(_) => 3,
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
        (operation, 4),
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
    let operation = fields.next(4);
    let [signed_d, signed_a, signed_b, saturate, wrap] = std::array::from_fn(|_| fields.flag());
    let second = fields.next(2);
    let [part_d, part_a, part_b] = std::array::from_fn(|_| fields.next(3));
    let (a, b) = (extract(a, part_a, signed_a), extract(b, part_b, signed_b));
    let b = match OPERATIONS[operation as usize % OPERATIONS.len()] {
        "vshl" | "vshr" if wrap => map(&b, |b| b & 31),
        "vshl" | "vshr" => map(&b, |b| b.min(32)),
        _ => b,
    };
    let (low, width) = extent(part_d);
    let mut value = compute(operation, &a, &b);
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
fn multiply_add<'m>(compiler: &mut FunctionCompiler, line: &Line<'m>, form: &mut Form) -> Decoded<()> {
    let word = ScalarType::U32;
    let [_, signed_a, signed_b] = signs(form, "vmad")?;
    let plus_one = form.flag("po");
    let saturate = form.flag("sat");
    let scale = match form.one_of(&["shr7", "shr15"]) {
        None => 0,
        Some("shr7") => 7,
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
    form: &mut Form,
    name: &str,
    lanes: u32,
) -> Decoded<()> {
    let word = ScalarType::U32;
    let operation = operation(form, name)?;
    let [signed_d, signed_a, signed_b] = signs(form, name)?;
    let (saturate, accumulate) = (form.flag("sat"), form.flag("add"));
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
        (operation, 4),
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

/// A register with the parts of `b:a` that `selection` names; without one they are those from `first` on.
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
    let operation = fields.next(4);
    let [signed_d, signed_a, signed_b, saturate, accumulate] = std::array::from_fn(|_| fields.flag());
    let (lanes, mask) = (fields.next(3).max(1), fields.next(4));
    let width = 32 / lanes;
    let mut result = *c;
    for lane in (0..lanes).filter(|lane| mask >> lane & 1 != 0) {
        let low = lane * width;
        let (a, b) = (extend(a, low, width, signed_a), extend(b, low, width, signed_b));
        let mut value = compute(operation, &a, &b);
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
