//! The least and the greatest value of numbers that are not linear: minima, maxima, low bits, small
//! numbers in memory. They tell how much of a buffer is read, not who reads what.

use crate::code::Code;
use crate::form::{Form, Piece};
use crate::known::Poly;
use crate::linear::{Facts, Need, Range, coordinates, linear, numbers, of_piece};
use ptx::analysis::{Atom, Definition, Origin, Sum};
use ptx::body::{InstructionId, Operand};
use ptx::instruction::{Flag, Opcode, Part};
use ptx::{Constant, ScalarType};

/// Numbers in numbers that are looked through.
const DEPTH: u32 = 6;

/// From the least to the greatest value.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub least: Poly,
    pub most: Poly,
}

impl Interval {
    fn numbers(least: i128, most: i128) -> Interval {
        Interval { least: Poly::number(least), most: Poly::number(most) }
    }

    /// The interval so many further.
    pub fn moved(&self, by: i64) -> Option<Interval> {
        self.plus(&Interval::numbers(by.into(), by.into()))
    }

    fn plus(&self, other: &Interval) -> Option<Interval> {
        Some(Interval { least: self.least.plus(&other.least)?, most: self.most.plus(&other.most)? })
    }

    fn times_number(&self, factor: i64) -> Option<Interval> {
        let by = Poly::number(factor.into());
        let (a, b) = (self.least.times(&by)?, self.most.times(&by)?);
        Some(if factor < 0 { Interval { least: b, most: a } } else { Interval { least: a, most: b } })
    }
}

/// Finds intervals at a place of the code.
pub(crate) struct Intervals<'i, 'a, 'm> {
    pub code: &'i Code<'a, 'm>,
    pub facts: Facts<'i>,
}

impl Intervals<'_, '_, '_> {
    /// The interval of a sum modulo its width, and what it rests on.
    pub fn of(&self, sum: &Sum, signed: bool, needs: &mut Vec<Need>) -> Option<Interval> {
        self.sum(sum, signed, DEPTH, needs)
    }

    fn sum(&self, sum: &Sum, signed: bool, depth: u32, needs: &mut Vec<Need>) -> Option<Interval> {
        self.code.spend()?;
        if let Some(linear) = self.linear(sum, signed, needs) {
            return Some(linear);
        }
        let mut total = Interval::numbers(0, 0);
        for (pieces, coefficient) in Form::of(sum, self.code.values.sums()).terms {
            let mut product = Interval::numbers(1, 1);
            for piece in pieces {
                product = self.product(&product, &self.piece(piece, sum, signed, depth, needs)?, needs)?;
            }
            total = total.plus(&product.times_number(coefficient)?)?;
        }
        Some(total)
    }

    /// The interval of a linear number.
    fn linear(&self, sum: &Sum, signed: bool, needs: &mut Vec<Need>) -> Option<Interval> {
        let mut own = Vec::new();
        let number = linear(self.code, sum, signed, self.facts, &mut own)?;
        let range = Range::of(&number, &coordinates(&number, self.facts.bounds)?)?;
        needs.extend(own.into_iter().chain(range.needs));
        Some(Interval { least: range.least, most: range.most })
    }

    /// The product of two numbers that are not negative.
    fn product(&self, a: &Interval, b: &Interval, needs: &mut Vec<Need>) -> Option<Interval> {
        if a.least.constant() == Some(1) && a.most.constant() == Some(1) {
            return Some(b.clone());
        }
        for side in [a, b] {
            needs.extend(Need::at_most(&Poly::default(), &side.least));
        }
        Some(Interval { least: a.least.times(&b.least)?, most: a.most.times(&b.most)? })
    }

    fn piece(
        &self,
        piece: Piece,
        of: &Sum,
        signed: bool,
        depth: u32,
        needs: &mut Vec<Need>,
    ) -> Option<Interval> {
        match piece {
            Piece::Atom(Atom::Unknown(definition)) => self.definition(definition, signed, depth, needs),
            Piece::Atom(Atom::Extended { value, signed, .. }) => {
                let inner = self.code.values.sums().get(value);
                let found = self.sum(inner, signed, depth.checked_sub(1)?, needs)?;
                let (least, most) = numbers(32, signed);
                needs.extend(Need::at_most(&Poly::number(least), &found.least));
                needs.extend(Need::at_most(&found.most, &Poly::number(most)));
                Some(found)
            }
            _ => {
                let number = of_piece(self.code, piece, of.bits, signed, self.facts, needs)?;
                let range = Range::of(&number, &coordinates(&number, self.facts.bounds)?)?;
                needs.extend(range.needs);
                Some(Interval { least: range.least, most: range.most })
            }
        }
    }

    /// The interval of what an instruction makes.
    fn definition(
        &self,
        definition: Definition,
        signed: bool,
        depth: u32,
        needs: &mut Vec<Need>,
    ) -> Option<Interval> {
        let Origin::Instruction(at) = definition.origin else { return None };
        let (line, operation) = (&self.code.body.lines[at.index()], self.code.operation(at));
        let (result, sources) = operation.split(&line.operands);
        let depth = depth.checked_sub(1)?;
        if line.guard.is_some() || !matches!(result, Some(Operand::Name(_))) {
            return None;
        }
        let ty = *operation.types().first()?;
        let number = |operand: &Operand<'_>| match operand {
            Operand::Constant(Constant::Integer(number)) => Some(*number),
            _ => None,
        };
        match (operation.opcode?, sources) {
            (Opcode::Ld, _) if operation.vector.is_none() => loaded(ty),
            (Opcode::And, [a, b]) => {
                let mask = number(b).or_else(|| number(a))?;
                (mask >= 0).then(|| Interval::numbers(0, mask))
            }
            (Opcode::Rem, [_, by]) if !ty.is_signed() => {
                let by = number(by).filter(|by| *by > 0)?;
                Some(Interval::numbers(0, by - 1))
            }
            (Opcode::Shr, [_, by]) if matches!(ty, ScalarType::U32 | ScalarType::B32) => {
                let by = number(by).filter(|by| (1..32).contains(by))?;
                Some(Interval::numbers(0, (1 << (32 - by)) - 1))
            }
            (Opcode::Min | Opcode::Max, [a, b])
                if ty.is_signed() == signed && ty.bytes() == 4 && !operation.has(Flag::Rectified) =>
            {
                let (a, b) =
                    (self.operand(at, a, signed, depth, needs)?, self.operand(at, b, signed, depth, needs)?);
                extreme(operation.opcode == Some(Opcode::Min), &a, &b, needs)
            }
            (Opcode::Mul, [a, b]) if operation.part == Some(Part::Wide) && ty == ScalarType::U16 => {
                let factor = i64::try_from(number(b)?).ok().filter(|factor| *factor > 0)?;
                self.narrow(at, a)?.times_number(factor)
            }
            (Opcode::Cvt, [source])
                if ty.bytes() >= 4 && operation.types().get(1).is_some_and(|from| !from.is_signed()) =>
            {
                self.narrow(at, source)
            }
            _ => None,
        }
    }

    fn operand(
        &self,
        at: InstructionId,
        operand: &Operand<'_>,
        signed: bool,
        depth: u32,
        needs: &mut Vec<Need>,
    ) -> Option<Interval> {
        let sum = self.code.operand(at, operand, 32)?;
        let found = self.sum(&sum, signed, depth, needs)?;
        // The instruction reads a register, so the number must not leave what a register holds.
        let (least, most) = numbers(32, signed);
        needs.extend(Need::at_most(&Poly::number(least), &found.least));
        needs.extend(Need::at_most(&found.most, &Poly::number(most)));
        Some(found)
    }

    /// The interval of a register of 16 bits that was loaded.
    fn narrow(&self, at: InstructionId, operand: &Operand<'_>) -> Option<Interval> {
        let Origin::Instruction(maker) = self.code.used(at, operand.register()?)?.origin else { return None };
        let operation = self.code.operation(maker);
        let is_plain = operation.is(&[Opcode::Ld]) && operation.vector.is_none();
        let is_guarded = self.code.body.lines[maker.index()].guard.is_some();
        if is_plain && !is_guarded { loaded(*operation.types().first()?) } else { None }
    }
}

/// The numbers that a load of this type gives.
fn loaded(ty: ScalarType) -> Option<Interval> {
    match ty {
        ScalarType::U8 => Some(Interval::numbers(0, u8::MAX.into())),
        ScalarType::U16 => Some(Interval::numbers(0, u16::MAX.into())),
        _ => None,
    }
}

/// The interval of the smaller or the greater of two numbers. Either side bounds it from one
/// direction; in the other one, both do.
fn extreme(is_minimum: bool, a: &Interval, b: &Interval, needs: &mut Vec<Need>) -> Option<Interval> {
    let is_number = |poly: &Poly| poly.constant().is_some();
    let tighter = |a: &Poly, b: &Poly| match (a.constant(), b.constant()) {
        (Some(a), Some(b)) => Poly::number(if is_minimum { a.min(b) } else { a.max(b) }),
        (Some(_), None) if is_minimum => b.clone(),
        (None, Some(_)) if !is_minimum => b.clone(),
        _ if is_number(a) == is_number(b) => b.clone(),
        _ => a.clone(),
    };
    let mut outer = |a: &Poly, b: &Poly| match (a.constant(), b.constant()) {
        (Some(a), Some(b)) => Poly::number(if is_minimum { a.min(b) } else { a.max(b) }),
        _ => {
            let (kept, other) = if is_number(a) == is_minimum { (a, b) } else { (b, a) };
            let (less, more) = if is_minimum { (kept, other) } else { (other, kept) };
            needs.extend(Need::at_most(less, more));
            kept.clone()
        }
    };
    Some(match is_minimum {
        true => Interval { least: outer(&a.least, &b.least), most: tighter(&a.most, &b.most) },
        false => Interval { least: tighter(&a.least, &b.least), most: outer(&a.most, &b.most) },
    })
}
