//! The accesses of a kernel to memory that threads share, and where they go.
//!
//! An address is [linear](Linear) or has an [interval](Interval); if neither is known, the
//! parameters that may hold its pointer are.

use crate::code::Code;
use crate::guards::Guards;
use crate::interval::{Interval, Intervals};
use crate::known::Poly;
use crate::linear::{Bound, Coordinate, DEPTH, Facts, Linear, Need, Range, coordinates, limit, linear};
use crate::screen::reduction;
use ptx::analysis::{Atom, Definition, Origin, Sum};
use ptx::body::InstructionId;
use ptx::instruction::{self, Atomic, Direction, Opcode, accesses};
use ptx::{ScalarType, StateSpace};
use std::collections::BTreeSet;

/// Start of the names of tables that the compiler adds and nobody else can name.
const COMPILERS_TABLES: &str = "__cudart_";
/// The greatest address that conditions are evaluated with.
const LAST_ADDRESS: i128 = i64::MAX as i128;
/// The longest step of an address that cannot cross the addresses without memory: these are at
/// least half of all.
const LONGEST_STEP: i128 = 1 << 46;

/// An access of a kernel to memory.
pub(crate) struct Access {
    pub at: InstructionId,
    pub direction: Direction,
    /// The commuting operation, of an atomic access.
    pub reduction: Option<(Atomic, ScalarType)>,
    pub bytes: i128,
    /// The address, its constant left out, in coordinates.
    pub coordinates: Vec<Coordinate>,
    pub number: Option<Linear>,
    /// Bounds that hold of a thread that makes the access.
    pub bounds: Vec<Bound>,
    pub needs: Vec<Need>,
    /// The first and the last address, if they are known, and what they rest on.
    pub reach: Option<(Interval, Vec<Need>)>,
    /// Offsets of the parameters that may hold the pointer.
    pub pointers: Vec<u32>,
}

/// Memory that an access may touch, as far as the code tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    /// The first address and the number of bytes, if they are known.
    pub extent: Option<(Poly, Poly)>,
    /// Offsets of the parameters that may hold the pointer.
    pub pointers: Vec<u32>,
}

/// The accesses to memory that threads share.
pub(crate) fn find(code: &Code<'_, '_>, guards: &Guards<'_, '_, '_>) -> Vec<Access> {
    let mut found = Vec::new();
    for at in code.lines() {
        let (line, operation) = (&code.body.lines[at.index()], code.operation(at));
        if operation.is(&[Opcode::Ld, Opcode::St, Opcode::Atom, Opcode::Red]) {
            let all = accesses(operation, &line.operands);
            found.extend(
                all.iter().enumerate().filter_map(|(place, one)| Access::of(code, guards, at, place, one)),
            );
        }
    }
    found
}

impl Region {
    /// The region around both, if they begin and end a constant number of bytes apart.
    pub fn joined(&self, other: &Region) -> Option<Region> {
        let ((start, bytes), (other_start, other_bytes)) = (self.extent.as_ref()?, other.extent.as_ref()?);
        let before = start.minus(other_start)?.constant()?.max(0);
        let end = start.plus(bytes)?;
        let after = other_start.plus(other_bytes)?.minus(&end)?.constant()?.max(0);
        let extent = (start.plus_number(-before)?, bytes.plus_number(before.checked_add(after)?)?);
        (self.pointers == other.pointers).then(|| Region { extent: Some(extent), ..self.clone() })
    }
}

impl Access {
    /// An access of an instruction; nothing if no other thread can see it.
    fn of(
        code: &Code<'_, '_>,
        guards: &Guards<'_, '_, '_>,
        at: InstructionId,
        place: usize,
        access: &instruction::Access<'_>,
    ) -> Option<Access> {
        use StateSpace::{Const, Local, Param};
        let address = code.values.address(at, place);
        let sum = address.map(|address| code.values.sums().get(address.value).clone());
        let is_unseen = [Local, Param, Const].map(Some).contains(&access.space);
        if is_unseen || sum.as_ref().is_some_and(|sum| is_compilers_table(code, sum)) {
            return None;
        }
        let is_atomic = access.direction == Direction::Atomic;
        let mut one = Access {
            at,
            direction: access.direction,
            reduction: reduction(code.operation(at)).filter(|_| is_atomic),
            bytes: access.bytes.into(),
            coordinates: Vec::new(),
            number: None,
            bounds: guards.at(at),
            needs: Vec::new(),
            reach: None,
            pointers: Vec::new(),
        };
        if let Some(sum) = sum.filter(|sum| sum.bits == 64) {
            one.pointers = pointers(code, &sum, &mut BTreeSet::new()).unwrap_or_default();
            one.locate(code, &sum, access.offset, guards);
        }
        Some(one)
    }

    fn locate(&mut self, code: &Code<'_, '_>, sum: &Sum, offset: i64, guards: &Guards<'_, '_, '_>) {
        let mut needs = Vec::new();
        let stays = |number: &Linear, bits, signed| guards.keep(number, bits, signed);
        let facts = Facts { bounds: &self.bounds, stays: &stays, depth: DEPTH };
        let mut own = Vec::new();
        let reach = Intervals { code, facts }.of(sum, false, &mut own);
        self.reach = reach.and_then(|reach| Some((reach.moved(offset)?, own)));
        let Some(mut number) = linear(code, sum, false, facts, &mut needs) else { return };
        let constant = number.constant.plus_number(offset.into());
        if let (Some(constant), Some(coordinates)) = (constant, coordinates(&number, &self.bounds)) {
            number.constant = constant;
            (self.number, self.coordinates, self.needs) = (Some(number), coordinates, needs);
        }
    }

    /// What keeps addresses from wrapping: the last one is known, or the access is made in each
    /// round, so that it would have to cross the addresses at which there is no memory.
    pub fn whole(&self, code: &Code<'_, '_>) -> Option<Vec<Need>> {
        let number = self.number.as_ref()?;
        if let Some(range) = Range::of(number, &self.coordinates) {
            let mut needs = range.needs;
            needs.extend(Need::at_most(&range.most, &Poly::number(LAST_ADDRESS)));
            return Some(needs);
        }
        let block = code.flow.block_of(self.at);
        let mut needs = Vec::new();
        for (round, step) in &number.rounds {
            if code.most_rounds(*round).is_some() {
                continue;
            }
            let latches = &code.values.loops().get(*round as usize)?.latches;
            let always = latches.iter().all(|latch| code.definitions.dominators().is_above(block, *latch));
            always.then_some(())?;
            needs.extend(Need::at_most(step, &Poly::number(LONGEST_STEP)));
        }
        Some(needs)
    }

    /// The number of indices along an axis that addresses do not depend on, if it is one.
    pub fn is_single(&self, axis: usize) -> Option<Need> {
        let mut form = Linear::default();
        form.axes[axis] = Poly::number(1);
        let one = Poly::number(1);
        let bound = limit(&form, &self.bounds).is_some_and(|(limit, needs)| {
            needs.is_empty() && limit.constant().is_some_and(|limit| limit <= 1)
        });
        (!bound).then(|| Need { less: Poly::threads(axis), more: one })
    }

    /// The memory that all threads together may touch, and what the answer rests on.
    pub fn region(&self) -> (Region, Vec<Need>) {
        let extent = self.reach.as_ref().and_then(|(reach, needs)| {
            let bytes = reach.most.minus(&reach.least)?.plus_number(self.bytes)?;
            Some(((reach.least.clone(), bytes), needs.clone()))
        });
        let (extent, needs) = extent.unzip();
        (Region { extent, pointers: self.pointers.clone() }, needs.unwrap_or_default())
    }
}

/// Whether an address lies in a table of the compiler's, which nobody writes.
pub(crate) fn is_compilers_table(code: &Code<'_, '_>, sum: &Sum) -> bool {
    let mut found = false;
    for term in &sum.terms {
        if let [factor] = term.factors.as_slice()
            && let Atom::Address(variable) = code.values.sums().atom(*factor)
        {
            found |= code.body.variable(variable).name.starts_with(COMPILERS_TABLES);
        }
    }
    found
}

/// The parameters that may hold the pointer of an address; nothing if it may come from elsewhere.
fn pointers(code: &Code<'_, '_>, sum: &Sum, seen: &mut BTreeSet<Definition>) -> Option<Vec<u32>> {
    let (mut own, mut unknown) = (Vec::new(), Vec::new());
    for term in &sum.terms {
        let ([factor], 1) = (term.factors.as_slice(), term.coefficient) else { continue };
        match code.values.sums().atom(*factor) {
            Atom::Parameter { variable, offset, bytes: 8 } => {
                own.push(code.offset(variable)?.checked_add(offset)?);
            }
            Atom::Address(_) => return None,
            Atom::Unknown(definition) => unknown.push(definition),
            _ => {}
        }
    }
    match (own.len(), unknown.as_slice()) {
        (1, _) => Some(own),
        (0, [only]) => of_definition(code, *only, seen),
        _ => None,
    }
}

/// The parameters that may hold a pointer that depends on the path.
fn of_definition(
    code: &Code<'_, '_>,
    definition: Definition,
    seen: &mut BTreeSet<Definition>,
) -> Option<Vec<u32>> {
    if !seen.insert(definition) {
        return Some(Vec::new());
    }
    let Origin::Block(block) = definition.origin else { return None };
    let mut all = Vec::new();
    for &before in &code.flow.block(block).predecessors {
        let last = code.definitions.at_exit(definition.register, before)?;
        let sum = code.values.definition(last)?;
        all.extend(pointers(code, sum, seen)?);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}
