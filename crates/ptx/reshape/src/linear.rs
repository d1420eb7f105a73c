//! Numbers of a thread as sums of its indices and of the rounds of loops, over the integers.
//!
//! A [`Linear`] is equal to the register's value modulo 2 to the power of its width. It is equal to
//! the number that an instruction reads from the register if it lies in the range of such numbers:
//! [`Need`]s say when it does.

use std::collections::BTreeMap;

use crate::code::Code;
use crate::form::{Form, Piece};
use crate::known::{Known, Poly};
use ptx::analysis::{Atom, Definition, Origin, Sum};

/// The first polynomial must be at most the second.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    pub less: Poly,
    pub more: Poly,
}

impl Need {
    /// `less <= more`; nothing if that holds in every launch.
    pub fn at_most(less: &Poly, more: &Poly) -> Option<Need> {
        let least = more.minus(less).and_then(|difference| difference.range()).map(|(least, _)| least);
        let always = least.is_some_and(|least| least >= 0);
        (!always).then(|| Need { less: less.clone(), more: more.clone() })
    }
}

/// `constant + Σ axes[a]·L[a] + Σ rounds[r]·rounds of loop r`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Linear {
    pub constant: Poly,
    pub axes: [Poly; 3],
    pub rounds: BTreeMap<u32, Poly>,
}

impl Linear {
    /// A number that is known at the launch.
    pub fn known(constant: Poly) -> Linear {
        Linear { constant, ..Linear::default() }
    }

    /// Whether it is known at the launch.
    pub fn is_known(&self) -> bool {
        self.rounds.is_empty() && self.axes.iter().all(Poly::is_zero)
    }

    /// Whether it differs from another one by what is known at the launch only.
    pub fn is_parallel(&self, other: &Linear) -> bool {
        self.axes == other.axes && self.rounds == other.rounds
    }

    /// The sum.
    pub fn plus(&self, other: &Linear) -> Option<Linear> {
        let mut sum = self.clone();
        sum.constant = sum.constant.plus(&other.constant)?;
        for (axis, other) in sum.axes.iter_mut().zip(&other.axes) {
            *axis = axis.plus(other)?;
        }
        for (round, step) in &other.rounds {
            let entry = sum.rounds.entry(*round).or_default();
            *entry = entry.plus(step)?;
        }
        sum.rounds.retain(|_, step| !step.is_zero());
        Some(sum)
    }

    /// The product with a known number.
    fn scaled(&self, factor: &Poly) -> Option<Linear> {
        let mut product = self.clone();
        product.constant = product.constant.times(factor)?;
        for part in product.axes.iter_mut().chain(product.rounds.values_mut()) {
            *part = part.times(factor)?;
        }
        Some(product)
    }

    /// The product, if one of the two is known.
    fn times(&self, other: &Linear) -> Option<Linear> {
        if other.is_known() {
            self.scaled(&other.constant)
        } else {
            self.is_known().then(|| other.scaled(&self.constant))?
        }
    }
}

/// A linear number of a thread is below a limit wherever the bound holds, or it is at least the
/// limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub form: Linear,
    /// The first number that is too large; the least one of a floor.
    pub limit: Poly,
    pub is_floor: bool,
    /// Facts that the bound rests on.
    pub needs: Vec<Need>,
}

/// A number that runs from 0: an index in the grid with the rounds by which T is added to it, or
/// rounds alone.
#[derive(Clone, Debug)]
pub(crate) struct Coordinate {
    /// The axis; none for rounds alone.
    pub axis: Option<usize>,
    /// Amount that one more adds.
    pub stride: Poly,
    /// Its least number.
    pub least: Poly,
    /// The first number that it does not reach, where that is known.
    pub count: Option<Poly>,
    /// Facts that both rest on.
    pub needs: Vec<Need>,
}

/// Splits a linear number into coordinates: it is its constant and the sum of each times its
/// stride.
pub(crate) fn coordinates(number: &Linear, bounds: &[Bound]) -> Option<Vec<Coordinate>> {
    let mut left = number.rounds.clone();
    let mut found = Vec::new();
    for (axis, stride) in number.axes.iter().enumerate().filter(|(_, stride)| !stride.is_zero()) {
        let period = stride.times(&Poly::threads(axis))?;
        let mut form = Linear::default();
        form.axes[axis] = Poly::number(1);
        left.retain(|round, step| match step.multiple_of(&period).filter(|times| *times > 0) {
            Some(times) => {
                let step = Poly::threads(axis).times(&Poly::number(times)).unwrap_or_default();
                form.rounds.insert(*round, step);
                false
            }
            None => true,
        });
        let plain = form.rounds.is_empty().then(|| (Poly::threads(axis), Vec::new()));
        let (count, needs) = limit(&form, bounds).or(plain).unzip();
        let (least, floor_needs) = floor(&form, bounds).unwrap_or_default();
        let needs = [needs.unwrap_or_default(), floor_needs].concat();
        found.push(Coordinate { axis: Some(axis), stride: stride.clone(), least, count, needs });
    }
    for (round, step) in left {
        found.push(of_rounds(round, step, bounds)?);
    }
    Some(found)
}

/// The rounds of a loop as a coordinate; its unit is the step of a bound, if there is one.
fn of_rounds(round: u32, step: Poly, bounds: &[Bound]) -> Option<Coordinate> {
    let fits = |bound: &&Bound| {
        !bound.is_floor && bound.form.axes.iter().all(Poly::is_zero) && bound.form.rounds.len() == 1
    };
    let least = Poly::default();
    for bound in bounds.iter().filter(fits) {
        let Some(unit) = bound.form.rounds.get(&round) else { continue };
        let Some(times) = step.multiple_of(unit).filter(|_| unit.constant().is_some_and(|unit| unit > 0))
        else {
            continue;
        };
        let count = Some(bound.limit.minus(&bound.form.constant)?);
        return Some(Coordinate {
            axis: None,
            stride: Poly::number(times),
            least,
            count,
            needs: bound.needs.clone(),
        });
    }
    Some(Coordinate { axis: None, stride: step, least, count: None, needs: Vec::new() })
}

/// The limit that the bounds set to a number without constant.
pub(crate) fn limit(form: &Linear, bounds: &[Bound]) -> Option<(Poly, Vec<Need>)> {
    let bound = bounds.iter().find(|bound| !bound.is_floor && bound.form.is_parallel(form))?;
    Some((bound.limit.minus(&bound.form.constant)?, bound.needs.clone()))
}

/// The least value that the bounds leave to a number without constant.
fn floor(form: &Linear, bounds: &[Bound]) -> Option<(Poly, Vec<Need>)> {
    let bound = bounds.iter().find(|bound| bound.is_floor && bound.form.is_parallel(form))?;
    Some((bound.limit.minus(&bound.form.constant)?, bound.needs.clone()))
}

/// The least and the greatest value of a number, both known at the launch.
pub(crate) struct Range {
    pub least: Poly,
    pub most: Poly,
    pub needs: Vec<Need>,
}

impl Range {
    /// The range of a number without rounds and with bounds; nothing where a coordinate has none.
    pub fn of(number: &Linear, coordinates: &[Coordinate]) -> Option<Range> {
        let (mut least, mut most) = (number.constant.clone(), number.constant.clone());
        let mut needs = Vec::new();
        for coordinate in coordinates {
            let first = coordinate.stride.times(&coordinate.least)?;
            let last = coordinate.stride.times(&coordinate.count.as_ref()?.plus_number(-1)?)?;
            needs.extend(coordinate.needs.iter().cloned());
            let falls = coordinate.stride.constant().is_some_and(|stride| stride < 0);
            let (low, high) = if falls { (last, first) } else { (first, last) };
            (least, most) = (least.plus(&low)?, most.plus(&high)?);
            if !falls {
                needs.extend(Need::at_most(&Poly::default(), &coordinate.stride));
            }
        }
        Some(Range { least, most, needs })
    }

    /// What keeps the numbers within those that a register holds.
    pub fn within(mut self, bits: u32, signed: bool) -> Vec<Need> {
        let (low, high) = numbers(bits, signed);
        self.needs.extend(Need::at_most(&Poly::number(low), &self.least));
        self.needs.extend(Need::at_most(&self.most, &Poly::number(high)));
        self.needs
    }
}

/// The least and the greatest number that a register holds.
pub(crate) fn numbers(bits: u32, signed: bool) -> (i128, i128) {
    if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// What keeps a number that loops change within a register of this width and signedness.
type Stays<'f> = &'f dyn Fn(&Linear, u32, bool) -> Option<Vec<Need>>;

/// Facts that hold where a number is used.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'f> {
    /// Bounds that hold there.
    pub bounds: &'f [Bound],
    pub stays: Stays<'f>,
    /// Values in values that are looked through.
    pub depth: u32,
}

/// Values in values that are looked through: compilers extend and merge a few times at most.
pub(crate) const DEPTH: u32 = 12;

impl Facts<'_> {
    /// Nothing is known.
    pub const NONE: Facts<'static> = Facts { bounds: &[], stays: &|_, _, _| None, depth: DEPTH };
}

/// The linear number that a sum is, if it is one. Parameters are read as signed numbers or not.
pub(crate) fn linear(
    code: &Code<'_, '_>,
    sum: &Sum,
    signed: bool,
    facts: Facts<'_>,
    needs: &mut Vec<Need>,
) -> Option<Linear> {
    let mut total = Linear::default();
    for (pieces, coefficient) in Form::of(sum, code.values.sums()).terms {
        let mut product = Linear::known(Poly::number(coefficient.into()));
        for piece in pieces {
            product = product.times(&of_piece(code, piece, sum.bits, signed, facts, needs)?)?;
        }
        total = total.plus(&product)?;
    }
    Some(total)
}

/// The linear number that an atom is.
pub(crate) fn of_piece(
    code: &Code<'_, '_>,
    piece: Piece,
    bits: u32,
    signed: bool,
    facts: Facts<'_>,
    needs: &mut Vec<Need>,
) -> Option<Linear> {
    let mut number = Linear::default();
    code.spend()?;
    let inner = Facts { depth: facts.depth.checked_sub(1)?, ..facts };
    match piece {
        Piece::Index(axis) => number.axes[usize::from(axis)] = Poly::number(1),
        Piece::Total(axis) => number.constant = Poly::threads(axis.into()),
        Piece::Atom(Atom::Round(round)) => {
            number.rounds.insert(round, Poly::number(1));
        }
        Piece::Atom(Atom::Parameter { variable, offset, bytes }) => {
            let offset = code.offset(variable)?.checked_add(offset)?;
            number.constant = Poly::of(Known::Parameter { offset, bytes, signed });
        }
        Piece::Atom(Atom::Extended { value, signed, .. }) => {
            number = linear(code, code.values.sums().get(value), signed, inner, needs)?;
            let plain = within(&number, signed, &[]).filter(Vec::is_empty);
            let bounded = plain.or_else(|| within(&number, signed, facts.bounds));
            needs.extend(bounded.or_else(|| (facts.stays)(&number, 32, signed))?);
        }
        Piece::Atom(Atom::Unknown(definition)) => {
            number = merged(code, definition, bits, signed, inner, needs)?
        }
        Piece::Atom(_) => return None,
    }
    Some(number)
}

/// A number that depends on the path, on each of which it is the same but for multiples of T: such
/// a multiple is added, which counts as the rounds of a loop that [`Code`] numbers.
fn merged(
    code: &Code<'_, '_>,
    definition: Definition,
    bits: u32,
    signed: bool,
    facts: Facts<'_>,
    needs: &mut Vec<Need>,
) -> Option<Linear> {
    let Origin::Block(block) = definition.origin else { return None };
    let is_head = code.values.loops().iter().any(|found| found.head == block);
    if is_head {
        return None;
    }
    let mut ways = Vec::new();
    for &before in &code.flow.block(block).predecessors {
        let last = code.definitions.at_exit(definition.register, before)?;
        let sum = code.values.definition(last).filter(|sum| sum.bits == bits && last != definition)?;
        ways.push(linear(code, sum, signed, facts, needs)?);
    }
    ways.iter().find_map(|base| above(code, definition, base, &ways))
}

/// The number that lies some periods above one of its ways, if all ways do.
fn above(code: &Code<'_, '_>, definition: Definition, base: &Linear, ways: &[Linear]) -> Option<Linear> {
    let mut axes = (0..3).filter(|axis| !base.axes[*axis].is_zero());
    let (axis, None) = (axes.next()?, axes.next()) else { return None };
    let period = base.axes[axis].times(&Poly::threads(axis))?;
    let base = Linear { rounds: BTreeMap::new(), ..base.clone() };
    let times: Vec<Option<i128>> =
        ways.iter().map(|way| periods(code, &base, way, &period)).collect::<Option<_>>()?;
    let most = times.into_iter().collect::<Option<Vec<_>>>().and_then(|times| times.into_iter().max());
    let round = code.add_merged(definition, most);
    Some(Linear { rounds: BTreeMap::from([(round, period)]), ..base })
}

/// How many periods a number lies above another one at most; an outer nothing if it may lie
/// elsewhere, an inner one if there is no limit.
fn periods(code: &Code<'_, '_>, base: &Linear, way: &Linear, period: &Poly) -> Option<Option<i128>> {
    let ahead = way.constant.minus(&base.constant)?;
    let mut times = if ahead.is_zero() { 0 } else { ahead.multiple_of(period)? };
    let mut known = times >= 0 && way.axes == base.axes;
    let mut most = Some(0);
    for (round, step) in &way.rounds {
        let steps = step.multiple_of(period)?;
        known &= steps >= 0;
        most = most
            .zip(code.most_rounds(*round))
            .and_then(|(most, rounds)| steps.checked_mul(rounds)?.checked_add(most));
    }
    times += most.unwrap_or(0);
    known.then(|| most.map(|_| times))
}

/// What keeps a number within those that 32 bits hold.
fn within(number: &Linear, signed: bool, bounds: &[Bound]) -> Option<Vec<Need>> {
    let own = coordinates_or_all(number, bounds)?;
    Some(Range::of(number, &own)?.within(32, signed))
}

/// The coordinates of a number; if a bound is about the number itself, that number as one.
fn coordinates_or_all(number: &Linear, bounds: &[Bound]) -> Option<Vec<Coordinate>> {
    let own = coordinates(number, bounds)?;
    if own.iter().all(|coordinate| coordinate.count.is_some()) {
        return Some(own);
    }
    // (Its constant stays apart: the count is of what is added to it.)
    let (count, mut needs) = limit(number, bounds)?;
    let strides = number.axes.iter().chain(number.rounds.values());
    strides.for_each(|stride| needs.extend(Need::at_most(&Poly::default(), stride)));
    Some(vec![Coordinate {
        axis: None,
        stride: Poly::number(1),
        least: Poly::default(),
        count: Some(count),
        needs,
    }])
}
