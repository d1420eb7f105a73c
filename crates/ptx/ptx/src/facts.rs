//! Facts: what a kernel's code says about its cost without being executed.
//!
//! Each [`Fact`] has a place in the source, if the module has lines, and a share of the kernel's
//! work. Work is estimated from the listing alone: an instruction in a loop counts [`ROUNDS`] times
//! as much as one outside. Facts are no faults: which share matters is for who judges.
//!
//! Invariants: any module gives an answer, in time about linear in the length of the listing.

mod atomics;
mod chains;
mod code;
mod indirect;
mod origins;
mod probed;
mod reductions;
mod rows;
mod single;
mod untiled;

use std::collections::HashMap;

pub use apex_counts::FactKind;
pub use probed::{Lanes, Place, Probed};

use crate::analysis::{Values, named};
use crate::body::{Body, Names};
use crate::flow::{Flow, Loop, Tree};
use crate::instruction::{Class, Direction, Operations};
use crate::syntax::{Function, Module, StateSpace};
use origins::Origins;

/// Rounds that a loop is taken to have.
const ROUNDS: f64 = 8.0;
/// Loops in loops that count.
const DEPTH: u32 = 4;
/// Instructions of a kernel beyond which nothing is said of it.
const MOST_LINES: usize = 50_000;
/// Different addresses of a request to constant memory from which on it counts as divergent.
const DIVERGENT: u64 = 4;

/// Sectors of a warp's bytes that lie side by side: one, or two where they begin within one.
const SIDE_BY_SIDE: u64 = 2;

/// A fact about a kernel's code.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The kind of fact.
    pub kind: FactKind,
    /// Share of the kernel's work: see [`FactKind`].
    pub share: f64,
    /// The cost in the unit of [`FactKind`]; 0 if the kind has none.
    pub cost: f64,
    /// The least possible cost, in the same unit.
    pub least: f64,
    /// Whether it holds only if a parameter of the kernel is large.
    pub by_parameter: bool,
    /// The file and line of the part with the largest share.
    pub place: Option<(String, u32)>,
}

/// The facts about launches of a kernel whose accesses are `probed`, as an estimate finds them for
/// the configuration of the launches; none about a function without code.
pub fn facts(module: &Module, kernel: &Function, probed: &[Probed]) -> Vec<Fact> {
    let names = Names::new(module);
    // (A call by address may reach any function, which says nothing about this kernel.)
    let bodies = named(&names, kernel);
    if bodies.iter().map(|body| body.lines.len()).sum::<usize>() > MOST_LINES {
        return Vec::new();
    }
    let listing = Listing::of(&bodies[0]);
    let mut found = Found { module, facts: Vec::new() };
    // Compilers choose the layout of the operands of tensor cores.
    if !listing.operations.iter().any(|operation| operation.class() == Class::Tensor) {
        found.strided(probed);
        found.conflicts(probed);
    }
    found.narrow(probed);
    found.constants(probed, listing.all());
    code::generators(&bodies, &mut found);
    code::heap(&bodies, &mut found);
    indirect::calls(&bodies, &mut found);
    listing.prints(&bodies, &mut found);
    listing.divisions(&mut found);
    listing.doubles(&mut found);
    listing.sums(&mut found);
    listing.products(&mut found);
    listing.products_across_threads(&mut found);
    listing.powers(&mut found);
    listing.unstaged(&mut found);
    listing.untiled(&mut found);
    listing.reductions(&mut found);
    listing.rows(&mut found);
    listing.totals(&mut found);
    listing.shared_sums(&mut found);
    listing.swaps(&mut found);
    listing.fences(&mut found);
    listing.lonely(&mut found);
    listing.arrays(&mut found);
    listing.chains(&mut found);
    listing.searches(&mut found);
    found.facts
}

/// A listing, and how much each instruction of it counts.
struct Listing<'b, 'm> {
    body: &'b Body<'m>,
    operations: Operations,
    flow: Flow,
    dominators: Tree,
    loops: Vec<Loop>,
    /// The smallest loop around each instruction.
    innermost: Vec<Option<usize>>,
    weights: Vec<f64>,
    values: Values,
    origins: Origins,
}

impl<'b, 'm> Listing<'b, 'm> {
    fn of(body: &'b Body<'m>) -> Self {
        let operations = Operations::of(body);
        let flow = Flow::of(body, &operations);
        let dominators = flow.dominators();
        let loops = flow.loops(&dominators);
        let mut depths = vec![0; flow.blocks.len()];
        let mut inner = vec![None; flow.blocks.len()];
        for (index, found) in loops.iter().enumerate() {
            for block in &found.blocks {
                depths[block.index()] += 1;
                inner[block.index()].get_or_insert(index);
            }
        }
        let ids = (0..body.lines.len() as u32).map(crate::body::InstructionId);
        let blocks: Vec<usize> = ids.map(|at| flow.block_of(at).index()).collect();
        let weights = blocks.iter().map(|&block| weight(depths[block])).collect();
        let innermost = blocks.iter().map(|&block| inner[block]).collect();
        let values = Values::of(body, &operations, &flow);
        let origins = Origins::of(body, &operations, &values);
        Listing { body, operations, flow, dominators, loops, innermost, weights, values, origins }
    }

    /// The weight of all instructions.
    fn all(&self) -> f64 {
        self.weights.iter().sum()
    }
}

fn weight(depth: u32) -> f64 {
    ROUNDS.powi(depth.min(DEPTH) as i32)
}

/// Weights of parts of something, and where they stand.
#[derive(Default)]
struct Parts {
    weight: f64,
    cost: f64,
    least: f64,
    by_parameter: bool,
    places: HashMap<Option<Place>, f64>,
}

impl Parts {
    /// One part.
    fn add(&mut self, weight: f64, (cost, least): (f64, f64), place: Option<Place>) {
        self.weight += weight;
        self.cost += weight * cost;
        self.least += weight * least;
        *self.places.entry(place).or_default() += weight;
    }
}

/// The facts so far.
struct Found<'m> {
    module: &'m Module,
    facts: Vec<Fact>,
}

impl Found<'_> {
    /// Adds the fact that parts make, if there are any; `all` is the weight of the whole.
    fn tell(&mut self, kind: FactKind, parts: Parts, all: f64) {
        if parts.weight <= 0.0 {
            return;
        }
        let most = parts.places.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
        let place = most.and_then(|(place, _)| *place);
        let place = place.and_then(|at| Some((self.module.file(at.file)?.to_owned(), at.line)));
        self.facts.push(Fact {
            kind,
            share: parts.weight / all.max(parts.weight),
            cost: parts.cost / parts.weight,
            least: parts.least / parts.weight,
            by_parameter: parts.by_parameter,
            place,
        });
    }

    fn strided(&mut self, probed: &[Probed]) {
        let moves = |one: &&Probed| one.space == StateSpace::Global && one.direction != Direction::Atomic;
        self.wide(FactKind::StridedAccesses, probed.iter().filter(moves), |cost, least| cost > 2 * least);
    }

    fn conflicts(&mut self, probed: &[Probed]) {
        let moves = |one: &&Probed| one.space == StateSpace::Shared && one.direction != Direction::Atomic;
        self.wide(FactKind::BankConflicts, probed.iter().filter(moves), |cost, least| cost > least);
    }

    /// Accesses that cost too much: those of the code alone, if there are any, else those of
    /// launches with large parameters.
    fn wide<'p>(
        &mut self,
        kind: FactKind,
        probed: impl Iterator<Item = &'p Probed>,
        is_wide: impl Fn(u64, u64) -> bool,
    ) {
        let (mut all, mut always) = (0.0, Parts::default());
        let mut if_large = Parts { by_parameter: true, ..Parts::default() };
        for one in probed {
            let weight = weight(one.depth);
            all += weight;
            let Lanes::Known { cost, cost_if_large, least } = one.lanes else { continue };
            let figures = |cost: u64| (cost as f64, least as f64);
            if is_wide(cost, least) {
                always.add(weight, figures(cost), one.place);
            }
            if is_wide(cost_if_large, least) {
                if_large.add(weight, figures(cost_if_large), one.place);
            }
        }
        // What a parameter adds is told where it is most of it.
        let parts = if always.weight * 2.0 >= if_large.weight { always } else { if_large };
        self.tell(kind, parts, all);
    }

    fn narrow(&mut self, probed: &[Probed]) {
        let (mut all, mut parts) = (0.0, Parts::default());
        let moves = |one: &&Probed| one.space == StateSpace::Global && one.direction != Direction::Atomic;
        for one in probed.iter().filter(moves) {
            let weight = weight(one.depth);
            all += weight;
            match one.lanes {
                Lanes::Known { cost_if_large, least, .. }
                    if one.bytes == 1 && cost_if_large <= SIDE_BY_SIDE =>
                {
                    parts.add(weight, (cost_if_large as f64, least as f64), one.place);
                }
                _ => {}
            }
        }
        self.tell(FactKind::NarrowAccesses, parts, all);
    }

    fn constants(&mut self, probed: &[Probed], all: f64) {
        let mut parts = Parts::default();
        for one in probed.iter().filter(|one| one.space == StateSpace::Const) {
            let addresses = match one.lanes {
                Lanes::One => continue,
                Lanes::Data => 32,
                Lanes::Known { cost, .. } => cost,
            };
            if addresses >= DIVERGENT {
                parts.add(weight(one.depth), (addresses as f64, 1.0), one.place);
            }
        }
        self.tell(FactKind::DivergentConstants, parts, all);
    }
}
