//! Facts that follow from single instructions, and facts about loops.

use std::collections::HashSet;

use super::{FactKind, Found, Listing, Parts, Place};
use crate::analysis::{Atom, Definition, Origin};
use crate::body::{Body, InstructionId, Line, Operand, RegisterId, Symbol};
use crate::instruction::{Class, Control, Direction, Opcode, accesses};
use crate::machine;
use crate::syntax::{Constant, ScalarType, StateSpace};

/// Tables by which generators of cuRAND skip ahead to their sequence.
const SKIP_AHEAD: [&str; 2] = ["precalc_xorwow", "mrg32k3aM"];
/// The first coefficient of the polynomial by which `powf` computes its exponential, in the headers
/// of CUDA 12; `expf` and `exp2f` have an instruction for it.
const POWER: u32 = 0x391f_cb8e;
/// Instructions of `powf` for each such polynomial, about: without the logarithm, which does not
/// depend on the exponent and may stand before a loop.
const OF_A_POWER: f64 = 45.0;
/// Least products of a round for a matrix product.
const PRODUCTS: usize = 16;

/// Finds kernels that use the tables for skipping ahead.
pub(super) fn generators(bodies: &[Body<'_>], found: &mut Found<'_>) {
    // The tables are static: in a namespace, and in code that is linked, their names have more
    // around.
    let is_table = |name: &str| SKIP_AHEAD.iter().any(|stem| name.contains(stem));
    let mut places = bodies.iter().flat_map(|body| &body.variables);
    if places.any(|place| is_table(&place.declaration.name)) {
        let mut parts = Parts::default();
        parts.add(1.0, (0.0, 0.0), None);
        found.tell(FactKind::GeneratorSetUp, parts, 1.0);
    }
}

/// Calls of `malloc`, which the driver provides.
pub(super) fn heap(bodies: &[Body<'_>], found: &mut Found<'_>) {
    let mut parts = Parts::default();
    for line in bodies.iter().flat_map(|body| &body.lines) {
        if calls(line, "malloc") {
            parts.add(1.0, (0.0, 0.0), Place::of(line));
        }
    }
    let all = parts.weight;
    found.tell(FactKind::DeviceHeap, parts, all);
}

/// The factor π/2 · 2^-64, by which sine and cosine of FP32 scale the reduced argument in their
/// slow path for large ones.
const REDUCTION_SCALE: u64 = 0x3bf9_21fb_5444_2d19;

/// Whether an instruction is the product in FP64 of that path: the program does not ask for it.
fn scales_reduction(line: &Line<'_>) -> bool {
    let is_scale = |operand: &Operand<'_>| matches!(operand, Operand::Constant(Constant::Double(bits)) if *bits == REDUCTION_SCALE);
    line.operands.iter().any(is_scale)
}

/// Whether an instruction names a function that the driver provides.
fn calls(line: &Line<'_>, name: &str) -> bool {
    line.operands.iter().any(|operand| match operand {
        Operand::Name(Symbol::Function(callee)) => &*callee.name == name && callee.body.is_none(),
        _ => false,
    })
}

impl Listing<'_, '_> {
    /// Calls of `vprintf`, which is what `printf` calls.
    pub(super) fn prints(&self, bodies: &[Body<'_>], found: &mut Found<'_>) {
        let is_straight = self.loops.is_empty() && bodies.len() == 1;
        let instructions = if is_straight { self.all() } else { 0.0 };
        let mut parts = Parts::default();
        for (depth, body) in bodies.iter().enumerate() {
            for (at, line) in (0..).map(InstructionId).zip(&body.lines) {
                if calls(line, "vprintf") {
                    let for_all = depth == 0 && self.is_for_all(at);
                    parts.add(1.0, (f64::from(u8::from(for_all)), instructions), Place::of(line));
                }
            }
        }
        let all = parts.weight;
        found.tell(FactKind::Printf, parts, all);
    }

    pub(super) fn divisions(&self, found: &mut Found<'_>) {
        let machine = machine::instructions(self.body, &self.operations);
        let (mut all, mut parts) = (0.0, Parts::default());
        for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
            let work = self.weights[at] * machine[at];
            all += work;
            let divides = matches!(operation.opcode, Some(Opcode::Div | Opcode::Rem));
            let long = operation.types().last().is_some_and(|ty| !ty.is_float() && ty.bytes() == 8);
            if divides && long && line.operands.last().is_some_and(|by| by.register().is_some()) {
                parts.add(work, (0.0, 0.0), Place::of(line));
            }
        }
        found.tell(FactKind::LongDivisions, parts, all);
    }

    pub(super) fn doubles(&self, found: &mut Found<'_>) {
        let (mut all, mut conversions, mut loads) = (0.0, 0.0, 0.0);
        let mut parts = Parts::default();
        for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
            let weight = self.weights[at];
            match operation.class() {
                // One conversion before it, and one behind.
                Class::Double if scales_reduction(line) => conversions -= 2.0 * weight,
                Class::Double => {
                    all += weight;
                    parts.add(weight, (0.0, 0.0), Place::of(line));
                }
                Class::Single | Class::Half => all += weight,
                Class::Convert if operation.types().contains(&ScalarType::F64) => conversions += weight,
                Class::GlobalLoad => loads += weight,
                _ => {}
            }
        }
        let doubles = parts.weight;
        (parts.cost, parts.least) = (f64::max(conversions, 0.0), doubles * doubles / f64::max(loads, 1.0));
        found.tell(FactKind::Doubles, parts, all);
    }

    pub(super) fn sums(&self, found: &mut Found<'_>) {
        let values = &self.values;
        for index in 0..self.loops.len() {
            let (mut all, mut parts, mut stored) = (0.0, Parts::default(), HashSet::new());
            let mut loads = Vec::new();
            for (at, direction) in self.global_accesses(index) {
                let weight = self.weights[at.index()];
                all += weight;
                let Some(address) = values.address(at, 0) else { continue };
                let place = Place::of(&self.body.lines[at.index()]);
                match direction {
                    Direction::Load => loads.push((address.value, weight, place)),
                    Direction::Store if self.is_in_each_round(at, index) && self.stays(at, index) => {
                        stored.insert(address.value);
                        parts.add(weight, (0.0, 0.0), place);
                    }
                    _ => {}
                }
            }
            for (address, weight, place) in loads {
                if stored.contains(&address) {
                    parts.add(weight, (0.0, 0.0), place);
                }
            }
            found.tell(FactKind::SumInMemory, parts, all);
        }
        found.keep_largest(FactKind::SumInMemory);
    }

    /// The accesses to global memory whose smallest loop this is.
    fn global_accesses(&self, index: usize) -> Vec<(InstructionId, Direction)> {
        let lines = self.body.lines.iter().zip(self.operations.iter()).enumerate();
        let inside = lines.filter(|(at, _)| self.innermost[*at] == Some(index));
        let direction = |(at, (line, operation)): (usize, (&crate::body::Line<'_>, _))| {
            let all = accesses(operation, &line.operands);
            let first = all.first().filter(|access| access.space == Some(StateSpace::Global))?;
            Some((InstructionId(at as u32), first.direction))
        };
        inside.filter_map(direction).collect()
    }

    /// Whether each round of a loop executes an instruction.
    pub(super) fn is_in_each_round(&self, at: InstructionId, index: usize) -> bool {
        let block = self.flow.block_of(at);
        let guarded = self.body.lines[at.index()].guard.is_some();
        !guarded && self.loops[index].latches.iter().all(|&latch| self.dominators.is_above(block, latch))
    }

    /// Whether a loop leaves the address of an access as it is.
    pub(super) fn stays(&self, at: InstructionId, index: usize) -> bool {
        let values = &self.values;
        let Some(address) = values.address(at, 0) else { return false };
        let inside = |block| self.loops[index].blocks.binary_search(&block).is_ok();
        let mut stays = true;
        values.sums().atoms_of(values.sums().get(address.value), &mut |atom| {
            stays &= match atom {
                Atom::Round(round) => !inside(values.loops()[round as usize].head),
                Atom::Unknown(Definition { origin: Origin::Instruction(by), .. }) => {
                    !inside(self.flow.block_of(by))
                }
                Atom::Unknown(Definition { origin: Origin::Block(block), .. }) => !inside(block),
                _ => true,
            };
        });
        stays
    }

    pub(super) fn products(&self, found: &mut Found<'_>) {
        if self.operations.iter().any(|operation| operation.class() == Class::Tensor) {
            return;
        }
        let loaded = self.loaded(false);
        for index in 0..self.loops.len() {
            let (mut parts, mut numbers, mut products) = (Parts::default(), 0, 0);
            for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
                if self.innermost[at] != Some(index) {
                    continue;
                }
                if is_load(operation.opcode, operation.space) {
                    operation.writes(line, self.body, &mut |_| numbers += 1);
                }
                let is_product = operation.opcode == Some(Opcode::Fma)
                    && operation.types().last() == Some(&ScalarType::F32)
                    && factors(line, &loaded).is_some();
                if is_product {
                    products += 1;
                    parts.add(self.weights[at], (0.0, 0.0), Place::of(line));
                }
            }
            if products >= PRODUCTS && products >= 2 * numbers {
                let weight = parts.weight;
                (parts.cost, parts.least) = (weight * products as f64, weight * numbers as f64);
                found.tell(FactKind::ScalarProduct, parts, self.all());
            }
        }
        found.keep_largest(FactKind::ScalarProduct);
    }

    /// Finds products of loaded numbers in loops that also add them up by shuffles.
    pub(super) fn products_across_threads(&self, found: &mut Found<'_>) {
        if self.operations.iter().any(|operation| operation.class() == Class::Tensor) {
            return;
        }
        let loaded = self.loaded(true);
        for index in 0..self.loops.len() {
            let (mut parts, mut numbers) = (Parts::default(), HashSet::new());
            let (mut products, mut shuffles) = (0, 0);
            for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
                if self.innermost[at] != Some(index) {
                    continue;
                }
                let of_floats = operation.types().last() == Some(&ScalarType::F32);
                match operation.opcode {
                    Some(Opcode::Shfl) => shuffles += 1,
                    Some(Opcode::Add) if of_floats => {}
                    Some(Opcode::Mul | Opcode::Fma) if of_floats => {
                        let Some(both) = factors(line, &loaded) else { continue };
                        numbers.extend(both);
                        products += 1;
                    }
                    _ => continue,
                }
                parts.add(self.weights[at], (0.0, 0.0), Place::of(line));
            }
            if products >= PRODUCTS.max(2 * numbers.len()) && shuffles >= products {
                let weight = parts.weight;
                (parts.cost, parts.least) = (weight * products as f64, weight * numbers.len() as f64);
                found.tell(FactKind::ProductAcrossThreads, parts, self.all());
            }
        }
        found.keep_largest(FactKind::ProductAcrossThreads);
    }

    /// Calls of `powf`, which compilers write out.
    pub(super) fn powers(&self, found: &mut Found<'_>) {
        let is_first = |operand: &Operand<'_>| matches!(operand, Operand::Constant(Constant::Single(POWER)));
        let mut parts = Parts::default();
        for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
            let (_, sources) = operation.split(&line.operands);
            let is_moved = |source: &Operand<'_>| {
                let maker = self.maker(InstructionId(at as u32), source);
                maker.is_some_and(|maker| self.body.lines[maker.index()].operands.iter().any(is_first))
            };
            let begins = operation.opcode == Some(Opcode::Fma)
                && sources.iter().any(|source| is_first(source) || is_moved(source));
            if begins {
                parts.add(self.weights[at] * OF_A_POWER, (0.0, 0.0), Place::of(line));
            }
        }
        found.tell(FactKind::Powers, parts, self.all());
    }

    /// Products on tensor cores whose operands are loaded in the same round of their loop.
    pub(super) fn unstaged(&self, found: &mut Found<'_>) {
        if self.operations.iter().any(|operation| operation.class() == Class::AsyncCopy) {
            return;
        }
        for index in 0..self.loops.len() {
            let (mut parts, mut loads, mut products) = (Parts::default(), 0, 0);
            for (at, (line, operation)) in self.body.lines.iter().zip(self.operations.iter()).enumerate() {
                if self.innermost[at] != Some(index) {
                    continue;
                }
                match operation.class() {
                    Class::GlobalLoad => loads += 1,
                    Class::Tensor => products += 1,
                    _ => {}
                }
                parts.add(self.weights[at], (0.0, 0.0), Place::of(line));
            }
            if loads > 0 && products > 0 {
                found.tell(FactKind::UnstagedProduct, parts, self.all());
            }
        }
        found.keep_largest(FactKind::UnstagedProduct);
    }

    /// Registers that hold nothing but what was loaded from global or shared memory; `converted`:
    /// or what that was converted to.
    fn loaded(&self, converted: bool) -> HashSet<RegisterId> {
        let (mut loaded, mut other) = (HashSet::new(), HashSet::new());
        for (line, operation) in self.body.lines.iter().zip(self.operations.iter()) {
            let (_, sources) = operation.split(&line.operands);
            let is_same =
                operation.opcode == Some(Opcode::Mov) || converted && operation.opcode == Some(Opcode::Cvt);
            let moves = is_same
                && operation.control() == Control::Next
                && sources.iter().all(|source| source.register().is_some_and(|r| loaded.contains(&r)));
            let is_loaded = moves || is_load(operation.opcode, operation.space);
            operation.writes(line, self.body, &mut |register| {
                if is_loaded {
                    loaded.insert(register)
                } else {
                    other.insert(register)
                };
            });
        }
        loaded.retain(|register| !other.contains(register));
        loaded
    }
}

/// The factors of a product, if both were loaded.
fn factors(line: &Line, loaded: &HashSet<RegisterId>) -> Option<[RegisterId; 2]> {
    let factor = |at: usize| line.operands.get(at)?.register().filter(|register| loaded.contains(register));
    Some([factor(1)?, factor(2)?])
}

fn is_load(opcode: Option<Opcode>, space: Option<StateSpace>) -> bool {
    opcode == Some(Opcode::Ld) && matches!(space, Some(StateSpace::Global | StateSpace::Shared))
}

impl Found<'_> {
    /// The fact with the largest share stays, of several of a kind.
    fn keep_largest(&mut self, kind: FactKind) {
        let shares = self.facts.iter().filter(|fact| fact.kind == kind).map(|fact| fact.share);
        let Some(most) = shares.reduce(f64::max) else { return };
        let mut kept = false;
        self.facts.retain(|fact| {
            let stays = fact.kind != kind || (!kept && fact.share >= most);
            kept |= fact.kind == kind && stays;
            stays
        });
    }
}
