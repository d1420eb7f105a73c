//! Conditions 3 and 4: additional threads do nothing, and no thread meets what another one stores.
//!
//! An access whose address is [linear](Linear) is split into [coordinates](Coordinate). Two
//! accesses that differ by a constant belong to the same buffer, where different threads must have
//! disjoint addresses ([`separate`]); all other pairs of which one writes must be apart in memory,
//! which only a launch can tell.

use crate::Rules;
use crate::access::{Access, Region, find};
use crate::code::Code;
use crate::guards::Guards;
use crate::index::Indices;
use crate::known::Poly;
use crate::linear::{Bound, Coordinate, Linear, Need, limit};
use crate::refusal::{Place, Reason, Refusal};
use apex_ordered::Order;
use ptx::StateSpace;
use ptx::body::{InstructionId, Operand};
use ptx::flow::BlockId;
use ptx::instruction::{Direction, Opcode};
use std::collections::HashMap;

/// Most accesses to memory of a kernel that stores: each pair is looked at.
const MOST_ACCESSES: usize = 256;

/// A condition that a launch must meet.
#[derive(Clone, Debug)]
pub(crate) enum Duty {
    /// The first number is at most the second.
    AtMost(Need),
    /// Two [regions](Duties::regions) do not overlap, or are the same where that does not matter.
    Apart { first: usize, second: usize, or_same: bool },
}

/// A guard that keeps additional threads along an axis from working, if its limit is at most the
/// number of threads before.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub axis: usize,
    pub limit: Poly,
    pub place: Place,
}

/// All that must hold of a launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Duties {
    /// Reason for which the number of threads along an axis must stay as it is.
    pub same_threads: [Option<Refusal>; 3],
    pub limits: Vec<Limit>,
    pub regions: Vec<Region>,
    /// Each with the refusal if it does not hold.
    pub duties: Vec<(Duty, Refusal)>,
}

impl Duties {
    fn at_most(&mut self, needs: &[Need], refusal: &Refusal) {
        for need in needs {
            let is_known = |(duty, _): &(Duty, Refusal)| matches!(duty, Duty::AtMost(known) if known == need);
            if !self.duties.iter().any(is_known) {
                self.duties.push((Duty::AtMost(need.clone()), refusal.clone()));
            }
        }
    }

    fn region(&mut self, region: Region) -> usize {
        let known = self.regions.iter().position(|known| *known == region);
        known.unwrap_or_else(|| {
            self.regions.push(region);
            self.regions.len() - 1
        })
    }

    /// Joins regions that differ by constants: the members of a structure, the parts of a vector.
    /// They must be apart from the same memory; that some pairs may coincide is lost, because
    /// others may not.
    fn join_regions(&mut self) {
        let mut joined: Vec<(Region, usize)> = Vec::new();
        let mut places = Vec::new();
        for region in &self.regions {
            let found = joined.iter().position(|(known, _)| known.joined(region).is_some());
            let place = found.unwrap_or(joined.len());
            match joined.get_mut(place) {
                Some((known, members)) => {
                    *known = known.joined(region).unwrap_or_default();
                    *members += 1;
                }
                None => joined.push((region.clone(), 1)),
            }
            places.push(place);
        }
        let mut duties: Vec<(Duty, Refusal)> = Vec::new();
        for (duty, refusal) in std::mem::take(&mut self.duties) {
            let Duty::Apart { first, second, or_same } = duty else {
                duties.push((duty, refusal));
                continue;
            };
            let (first, second) = (places[first], places[second]);
            let or_same = or_same && joined[first].1 == 1 && joined[second].1 == 1;
            let is_same_duty = |(known, _): &(Duty, Refusal)| matches!(known, Duty::Apart { first: a, second: b, .. } if (*a, *b) == (first, second));
            if !duties.iter().any(is_same_duty) {
                duties.push((Duty::Apart { first, second, or_same }, refusal));
            }
        }
        self.duties = duties;
        self.regions = joined.into_iter().map(|(region, _)| region).collect();
    }
}

/// Finds what must hold of a launch; an error if no launch can meet it.
pub(crate) fn duties(code: &Code<'_, '_>, indices: &Indices, rules: &Rules) -> Result<Duties, Refusal> {
    let guards = Guards::of(code);
    let mut duties = Duties::default();
    guarded(code, &guards, rules, &mut duties);
    if rules.total {
        for (axis, used) in indices.totals.iter().enumerate() {
            if let Some(at) = used {
                duties.same_threads[axis] = Some(code.refuse(Reason::Total, *at));
            }
        }
    }
    let found = find(code, &guards);
    let writes = |access: &&Access| access.direction != Direction::Load;
    if found.iter().filter(writes).count() > 0 && found.len() > MOST_ACCESSES {
        return Err(Refusal::of(Reason::TooLong));
    }
    // What a store needs by itself comes first: other pairs may rest on it.
    for store in found.iter().filter(writes) {
        pair(code, store, store, rules, &mut duties)?;
    }
    for (place, store) in found.iter().enumerate().filter(|(_, access)| writes(access)) {
        for (other_place, other) in found.iter().enumerate() {
            if other_place > place || !writes(&other) {
                pair(code, store, other, rules, &mut duties)?;
            }
        }
    }
    duties.join_regions();
    Ok(duties)
}

/// Condition 3: collects the limits below which a thread does anything.
fn guarded(code: &Code<'_, '_>, guards: &Guards<'_, '_, '_>, rules: &Rules, duties: &mut Duties) {
    if !rules.guarded {
        return;
    }
    let effects = code.lines().filter(|at| is_effect(code, *at)).map(|at| (at, guards.at(at)));
    let order: HashMap<BlockId, usize> = code.reached.iter().copied().zip(0..).collect();
    // Control may come back to the head of a loop, or to a block of a cycle without head.
    let comes_back = |block: &&BlockId| {
        let predecessors = &code.flow.block(**block).predecessors;
        predecessors.iter().any(|before| order.get(before).is_some_and(|at| *at >= order[*block]))
    };
    let heads = code.reached.iter().filter(comes_back);
    let heads = heads.map(|block| (code.flow.block(*block).first, guards.before(*block)));
    for (at, bounds) in effects.chain(heads) {
        for axis in 0..3 {
            guard(code, at, axis, &bounds, duties);
        }
    }
}

fn guard(code: &Code<'_, '_>, at: InstructionId, axis: usize, bounds: &[Bound], duties: &mut Duties) {
    let mut form = Linear::default();
    form.axes[axis] = Poly::number(1);
    match limit(&form, bounds) {
        Some((limit, needs)) => {
            duties.at_most(&needs, &code.refuse(Reason::Overflow, at));
            if !duties.limits.iter().any(|known| known.axis == axis && known.limit == limit) {
                duties.limits.push(Limit { axis, limit, place: code.place(at) });
            }
        }
        None => {
            duties.same_threads[axis].get_or_insert_with(|| code.refuse(Reason::Unguarded, at));
        }
    }
}

/// Whether an instruction changes memory or may fault.
fn is_effect(code: &Code<'_, '_>, at: InstructionId) -> bool {
    let (line, operation) = (&code.body.lines[at.index()], code.operation(at));
    let by_register =
        |operand: &Operand<'_>| operand.place().is_some_and(|(base, _)| base.register().is_some());
    match (operation.opcode, operation.space) {
        (Some(Opcode::Ld), Some(StateSpace::Const | StateSpace::Param)) => {
            line.operands.iter().any(by_register)
        }
        (Some(Opcode::Ld | Opcode::St), Some(StateSpace::Local)) => false,
        // (A call may take its time, and never end.)
        (Some(Opcode::Ld | Opcode::St | Opcode::Atom | Opcode::Red | Opcode::Call), _) => true,
        _ => false,
    }
}

/// Condition 4 for two accesses, of which the first one writes.
fn pair(
    code: &Code<'_, '_>,
    store: &Access,
    other: &Access,
    rules: &Rules,
    duties: &mut Duties,
) -> Result<(), Refusal> {
    if store.reduction.is_some() && store.reduction == other.reduction {
        return Ok(());
    }
    let reason = match (store.direction, other.direction) {
        (Direction::Atomic, _) | (_, Direction::Atomic) => Reason::Atomic,
        (_, Direction::Load) => Reason::ForeignLoad,
        _ => Reason::SharedStore,
    };
    let unknown = store.number.is_none() || other.number.is_none();
    let shares_pointer = store.pointers.iter().any(|pointer| other.pointers.contains(pointer));
    if store.at == other.at || distance(store, other).is_some() || unknown && shares_pointer {
        if !rules.own {
            return Ok(());
        }
        let refusal = code.refuse(reason, other.at);
        let needs = separate(store, other).ok_or_else(|| refusal.clone())?;
        duties.at_most(&needs, &refusal);
        for access in [store, other] {
            let refusal = code.refuse(Reason::Overflow, access.at);
            duties.at_most(&access.whole(code).ok_or_else(|| refusal.clone())?, &refusal);
            duties.at_most(&access.needs, &refusal);
        }
        return Ok(());
    }
    if rules.apart { apart(code, store, other, duties) } else { Ok(()) }
}

/// Two accesses that must not meet in memory.
fn apart(code: &Code<'_, '_>, store: &Access, other: &Access, duties: &mut Duties) -> Result<(), Refusal> {
    let mut places = [0; 2];
    for (place, access) in places.iter_mut().zip([store, other]) {
        let (region, needs) = access.region();
        if region.extent.is_none() && region.pointers.is_empty() {
            return Err(code.refuse(Reason::Pointer, access.at));
        }
        duties.at_most(&needs, &code.refuse(Reason::Overflow, access.at));
        *place = duties.region(region);
    }
    let [first, second] = places;
    let or_same = may_coincide(store, other, duties);
    let is_known = duties.duties.iter_mut().any(|(duty, _)| match duty {
        Duty::Apart { first: a, second: b, or_same: both } if (*a, *b) == (first, second) => {
            *both &= or_same;
            true
        }
        _ => false,
    });
    if !is_known {
        let refusal = code.refuse(Reason::Overlap, other.at);
        duties.duties.push((Duty::Apart { first, second, or_same }, refusal));
    }
    Ok(())
}

/// Whether two accesses may begin at the same address, because each thread then accesses only its
/// own part: what keeps the threads apart must hold anyway.
fn may_coincide(store: &Access, other: &Access, duties: &Duties) -> bool {
    let known = |need: &Need| {
        let is_same_duty = |(duty, _): &(Duty, Refusal)| matches!(duty, Duty::AtMost(known) if known == need);
        duties.duties.iter().any(is_same_duty)
    };
    let (Some(a), Some(b)) = (&store.number, &other.number) else { return false };
    let is_plain = store.reduction.is_none() && other.reduction.is_none();
    // Equal first addresses mean equal constants if both begin with the same indices.
    let falls = |one: &Coordinate| one.stride.constant().is_some_and(|stride| stride < 0);
    let begin = |access: &Access| {
        access.coordinates.iter().map(|one| (one.axis, one.least.clone())).collect::<Vec<_>>()
    };
    let rounds_are_plain = |access: &Access| access.coordinates.iter().all(|one| !falls(one));
    if begin(store) != begin(other) || !rounds_are_plain(store) || !rounds_are_plain(other) {
        return false;
    }
    let shifted = Linear { constant: a.constant.clone(), ..b.clone() };
    let needs = separated(store, other, [a, &shifted]);
    is_plain && needs.is_some_and(|needs| needs.iter().all(known))
}

/// The constant that lies between two accesses, and the axis along which there are also some
/// multiples of T between them.
fn distance(one: &Access, other: &Access) -> Option<(i128, Option<usize>)> {
    between(one.number.as_ref()?, other.number.as_ref()?)
}

fn between(a: &Linear, b: &Linear) -> Option<(i128, Option<usize>)> {
    let (number, rest) = a.constant.minus(&b.constant)?.split();
    if rest.is_zero() {
        return Some((number, None));
    }
    let along = |axis: &usize| {
        let period = a.axes[*axis].times(&Poly::threads(*axis));
        !a.axes[*axis].is_zero() && period.and_then(|period| rest.multiple_of(&period)).is_some()
    };
    (0..3).find(along).map(|axis| (number, Some(axis)))
}

/// A stride of two accesses.
struct Stride {
    axis: Option<usize>,
    bytes: Poly,
    /// The counts in both accesses, as far as they are known.
    counts: Vec<Option<Poly>>,
    needs: Vec<Need>,
}

/// What keeps the addresses of different threads apart; nothing if nothing does.
fn separate(one: &Access, other: &Access) -> Option<Vec<Need>> {
    separated(one, other, [one.number.as_ref()?, other.number.as_ref()?])
}

/// The same of accesses at these addresses.
///
/// Both addresses are `c + Σ stride·coordinate`. The strides are put in an order in which each is
/// at least the one before times its count. Then different coordinates give addresses that differ
/// by the first stride at least, and this is at least what the constants differ by plus the width
/// of an access. Threads that differ have different coordinates, because a coordinate is equal to
/// its index modulo T. The last coordinate needs no count.
fn separated(one: &Access, other: &Access, numbers: [&Linear; 2]) -> Option<Vec<Need>> {
    let [a, b] = numbers;
    let (distance, shifted) = between(a, b)?;
    if a.axes != b.axes {
        return None;
    }
    // One address for all threads lies before another one.
    let (before, after) = (distance <= -one.bytes, distance >= other.bytes);
    if shifted.is_none() && one.coordinates.is_empty() && other.coordinates.is_empty() && (before || after) {
        return Some(Vec::new());
    }
    let mut strides: Vec<Stride> = Vec::new();
    for coordinate in one.coordinates.iter().chain(&other.coordinates) {
        add_stride(&mut strides, coordinate);
    }
    strides.order_by_key(|stride| (stride.bytes.size(), stride.axis.is_some()));
    // Multiples of T lead out of the count of a coordinate.
    if shifted.is_some() && strides.last().is_some_and(|last| last.axis != shifted) {
        return None;
    }
    let mut needs = nested(&strides, distance.abs() + one.bytes.max(other.bytes))?;
    for axis in (0..3).filter(|axis| a.axes[*axis].is_zero()) {
        needs.extend(one.is_single(axis).into_iter().chain(other.is_single(axis)));
    }
    Some(needs)
}

/// What makes each stride at least the one before it times its counts, and the first one at least
/// this number of bytes; nothing if a count is not known.
fn nested(strides: &[Stride], bytes: i128) -> Option<Vec<Need>> {
    let (mut needs, mut least) = (Vec::new(), vec![Poly::number(bytes)]);
    let mut left = strides.iter().peekable();
    while let Some(stride) = left.next() {
        needs.extend(least.iter().filter_map(|least| Need::at_most(least, &stride.bytes)));
        if left.peek().is_some() {
            let reach = |count: &Option<Poly>| stride.bytes.times(count.as_ref()?);
            least = stride.counts.iter().map(reach).collect::<Option<_>>()?;
            needs.extend(stride.needs.iter().cloned());
        }
    }
    Some(needs)
}

fn add_stride(strides: &mut Vec<Stride>, coordinate: &Coordinate) {
    let is_negative = coordinate.stride.constant().is_some_and(|stride| stride < 0);
    let sign = Poly::number(if is_negative { -1 } else { 1 });
    let bytes = coordinate.stride.times(&sign).unwrap_or_default();
    let known = strides.iter_mut().find(|known| known.axis == coordinate.axis && known.bytes == bytes);
    match known {
        Some(known) => {
            known.counts.push(coordinate.count.clone());
            known.needs.extend(coordinate.needs.iter().cloned());
        }
        None => strides.push(Stride {
            axis: coordinate.axis,
            bytes,
            counts: vec![coordinate.count.clone()],
            needs: coordinate.needs.clone(),
        }),
    }
}
