//! Plans the operations that become one kernel.
//!
//! Without fusion each operation is a kernel. Then pairs of kernels are fused, the pair that saves
//! most bytes first, as long as a pair saves any, its nest is [legal](super::nest), no kernel would
//! wait for itself through another, and the estimate of registers leaves the row where it is held
//! before. Every decision is kept, with its figures, and printed by [`Plan`]'s `Display`.
//!
//! A kernel with column sums is followed by one that adds what its blocks left. It counts as a part
//! of the former where bytes are compared.
//!
//! Bytes are those of an ideal memory system: each tensor of a kernel counts once.

use std::collections::BTreeSet;
use std::fmt;

use super::emit::emit;
use super::graph::{Graph, Value, wrong};
use super::kernel::{Kernel, Work};
use super::nest::{Access, Memory, Nest, Place, Residence};
use super::schedule::{Held, Schedule, Target, Tuning};
use super::totals::Totals;
use crate::Result;

/// Parameters of a kernel, 8 bytes each, of which there may be 4 KiB; fewer are plenty.
const MOST_TENSORS: usize = 64;

/// Options of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Whether operations are fused; otherwise each is a kernel.
    pub fuse: bool,
    /// The device.
    pub target: Target,
    /// The choices that differ from the rule.
    pub tuning: Tuning,
}

impl Default for Options {
    fn default() -> Options {
        Options { fuse: true, target: Target::default(), tuning: Tuning::default() }
    }
}

/// The decision on fusing two kernels, with its reason.
#[derive(Clone, Debug)]
struct Decision {
    first: String,
    second: String,
    outcome: Outcome,
}

#[derive(Clone, Debug)]
enum Outcome {
    Fused { saves: usize, registers: usize, shared: usize, walkers: Option<usize> },
    Refused(String),
}

/// Kernels that compute a graph, and the decisions that led to them.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) kernels: Vec<Kernel>,
    decisions: Vec<Decision>,
    before: usize,
    operations: usize,
}

impl Plan {
    /// Plans a graph.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape): the graph has no outputs, or an operation has no
    /// kernel.
    pub fn new(graph: &Graph, options: &Options) -> Result<Plan> {
        if graph.outputs.is_empty() {
            return Err(wrong("the graph has no outputs".to_owned()));
        }
        let residence = Residence::of(graph);
        let planner = Planner { graph, residence: &residence, options };
        let mut groups = planner.operations()?;
        let before = groups.iter().map(Group::bytes).sum();
        let operations = groups.len();
        let mut decisions = vec![];
        if options.fuse {
            planner.fuse(&mut groups, &mut decisions);
        }
        planner.sort(&mut groups);
        let kernels: Vec<Kernel> =
            groups.into_iter().enumerate().flat_map(|(place, group)| planner.kernels(place, group)).collect();
        if let Some(kernel) = kernels.iter().find(|kernel| kernel.parameters().count() > MOST_TENSORS) {
            let tensors = kernel.parameters().count();
            return Err(wrong(format!(
                "an operation on {tensors} tensors; there are kernels for {MOST_TENSORS}"
            )));
        }
        Ok(Plan { kernels, decisions, before, operations })
    }

    /// In the order in which they run.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Bytes that the operations move if each is a kernel of its own.
    pub fn bytes_before(&self) -> usize {
        self.before
    }

    /// Bytes that the plan's kernels move.
    pub fn bytes_after(&self) -> usize {
        self.kernels.iter().map(Kernel::bytes).sum()
    }

    /// Tensors that kernels leave for others, and their bytes.
    pub(super) fn between(&self) -> impl Iterator<Item = (Memory, usize)> {
        self.kernels.iter().flat_map(Kernel::leaves)
    }
}

/// Nodes that will be one kernel.
struct Group {
    nodes: BTreeSet<Value>,
    nest: Nest,
    schedule: Schedule,
    /// The kernel that adds its partial sums.
    totals: Option<Totals>,
    /// Operations of the graph, by number.
    operations: BTreeSet<usize>,
}

impl Group {
    fn bytes(&self) -> usize {
        self.nest.bytes() + self.totals.as_ref().map_or(0, Totals::bytes)
    }
}

struct Planner<'a> {
    graph: &'a Graph,
    residence: &'a Residence<'a>,
    options: &'a Options,
}

impl Planner<'_> {
    fn group(&self, nodes: BTreeSet<Value>) -> std::result::Result<Group, String> {
        let nest = Nest::of(self.residence, &nodes)?;
        let is_of_all_rows = |write: &&Access| matches!(write.place, Place::Whole | Place::Columns);
        for write in nest.writes.iter().filter(|write| !is_of_all_rows(write)) {
            nest.varies(self.graph.shape(write.value))?;
        }
        let mut nest = nest.collapsed(self.graph);
        let schedule = Schedule::of(self.graph, &nest, &self.options.target, &self.options.tuning);
        if nest.has_column_sums() && schedule.held != Held::Registers {
            return Err(format!(
                "column sums stay in the registers of one block, which do not hold a row of {}",
                nest.length
            ));
        }
        let rows = schedule.partials(&nest);
        nest.leave_partials(rows);
        let totals = Totals::of(&nest.writes, &nest.totals, rows, nest.length);
        let operations = nodes.iter().filter_map(|value| self.graph.nodes[value.0].operation).collect();
        Ok(Group { nodes, nest, schedule, totals, operations })
    }

    /// A group for each operation whose results are used.
    fn operations(&self) -> Result<Vec<Group>> {
        let used = self.used();
        let mut groups = vec![];
        for (number, name) in self.graph.operations.iter().enumerate() {
            let nodes: BTreeSet<Value> = used
                .iter()
                .copied()
                .filter(|value| self.graph.nodes[value.0].operation == Some(number))
                .collect();
            if nodes.is_empty() {
                continue;
            }
            match self.group(nodes.clone()) {
                Ok(group) => groups.push(group),
                // An operation whose parts do not fit into one kernel.
                Err(_) => {
                    for value in nodes {
                        let group = self.group(BTreeSet::from([value]));
                        groups.push(group.map_err(|why| wrong(format!("{name}: no kernel: {why}")))?);
                    }
                }
            }
        }
        Ok(groups)
    }

    /// Nodes that outputs depend on and that have to be computed.
    fn used(&self) -> BTreeSet<Value> {
        let mut used = BTreeSet::new();
        let mut waiting: Vec<Value> = self.graph.outputs.iter().map(|output| output.value).collect();
        while let Some(value) = waiting.pop() {
            let op = &self.graph.nodes[value.0].op;
            if !op.is_free() && used.insert(value) {
                waiting.extend(op.operands());
            }
        }
        used
    }

    fn fuse(&self, groups: &mut Vec<Group>, decisions: &mut Vec<Decision>) {
        let mut refused = BTreeSet::new();
        loop {
            let mut best: Option<(usize, usize, usize, Group)> = None;
            for one in 0..groups.len() {
                for other in one + 1..groups.len() {
                    let (first, second) = (&groups[one], &groups[other]);
                    if !self.are_related(first, second) {
                        continue;
                    }
                    match self.together(groups, one, other) {
                        Ok((saves, group)) if best.as_ref().is_none_or(|best| saves > best.2) => {
                            best = Some((one, other, saves, group));
                        }
                        Ok(_) => {}
                        Err(why) => {
                            let names = (self.title(first), self.title(second));
                            if refused.insert(names.clone()) {
                                let outcome = Outcome::Refused(why);
                                decisions.push(Decision { first: names.0, second: names.1, outcome });
                            }
                        }
                    }
                }
            }
            let Some((one, other, saves, group)) = best else { break };
            let (first, second) = (self.title(&groups[one]), self.title(&groups[other]));
            let registers = group.schedule.registers;
            let shared = emit(self.graph, &group.nest, &group.schedule, "estimate").shared;
            let walkers = group.totals.as_ref().map(|_| group.schedule.grid(&group.nest));
            let outcome = Outcome::Fused { saves, registers, shared, walkers };
            decisions.push(Decision { first, second, outcome });
            groups[one] = group;
            groups.remove(other);
        }
        // What was refused and became possible within a larger kernel is no decision.
        decisions.retain(|decision| match decision.outcome {
            Outcome::Fused { .. } => true,
            Outcome::Refused(_) => {
                let titles: Vec<String> = groups.iter().map(|group| self.title(group)).collect();
                titles.contains(&decision.first) && titles.contains(&decision.second)
            }
        });
    }

    /// Whether they share a tensor.
    fn are_related(&self, one: &Group, other: &Group) -> bool {
        let of = |group: &Group| -> BTreeSet<Value> {
            let Nest { reads, writes, totals, .. } = &group.nest;
            reads.iter().chain(writes).chain(totals).map(|access| access.value).collect()
        };
        !of(one).is_disjoint(&of(other))
    }

    /// The group of both and the bytes that it saves, or why they stay apart.
    fn together(
        &self,
        groups: &[Group],
        one: usize,
        other: usize,
    ) -> std::result::Result<(usize, Group), String> {
        let (first, second) = (&groups[one], &groups[other]);
        if self.passes_through(groups, one, other) {
            return Err("a kernel between them needs one and feeds the other".to_owned());
        }
        let group = self.group(first.nodes.union(&second.nodes).copied().collect())?;
        let saves = (first.bytes() + second.bytes()).saturating_sub(group.bytes());
        if saves == 0 {
            return Err("it saves no bytes".to_owned());
        }
        let rank = |held| match held {
            Held::Registers => 0,
            Held::Shared => 1,
            Held::Memory => 2,
        };
        let parts = rank(first.schedule.held).max(rank(second.schedule.held));
        if group.schedule.held == Held::Memory && parts < 2 {
            return Err("a row would fit neither into registers nor into shared memory".to_owned());
        }
        if group.nest.reads.len() + group.nest.writes.len() > MOST_TENSORS {
            return Err(format!("a kernel of more than {MOST_TENSORS} tensors"));
        }
        Ok((saves, group))
    }

    /// Whether a third group lies on a way from one to the other.
    fn passes_through(&self, groups: &[Group], one: usize, other: usize) -> bool {
        let both = groups[one].nodes.union(&groups[other].nodes).copied().collect::<BTreeSet<_>>();
        let owner = |value: Value| groups.iter().position(|group| group.nodes.contains(&value));
        let mut waiting: Vec<usize> = vec![];
        let mut seen = BTreeSet::new();
        let mut enter = |nodes: &BTreeSet<Value>, waiting: &mut Vec<usize>| {
            for user in nodes.iter().flat_map(|&value| self.residence.users(value)) {
                if let Some(place) = owner(*user).filter(|_| !both.contains(user))
                    && seen.insert(place)
                {
                    waiting.push(place);
                }
            }
        };
        enter(&both, &mut waiting);
        let mut reached = vec![];
        while let Some(place) = waiting.pop() {
            reached.push(place);
            enter(&groups[place].nodes, &mut waiting);
        }
        reached.into_iter().any(|place| {
            groups[place]
                .nodes
                .iter()
                .any(|&value| self.residence.users(value).iter().any(|user| both.contains(user)))
        })
    }

    /// Sorts kernels so that they run after those whose results they read.
    fn sort(&self, groups: &mut Vec<Group>) {
        let mut sorted: Vec<Group> = vec![];
        while !groups.is_empty() {
            let ready = groups.iter().position(|group| {
                let is_waiting = |value: &Value| {
                    groups.iter().any(|other| !std::ptr::eq(group, other) && other.nodes.contains(value))
                };
                !group.nest.reads.iter().any(|read| is_waiting(&read.value))
            });
            sorted.push(groups.remove(ready.expect("groups have no cycle")));
        }
        *groups = sorted;
    }

    fn title(&self, group: &Group) -> String {
        let names: Vec<&str> = group.operations.iter().map(|&number| self.graph.operations[number]).collect();
        names.join(" + ")
    }

    /// The kernel of a group, and the one that adds its partial sums.
    fn kernels(&self, place: usize, group: Group) -> impl Iterator<Item = Kernel> {
        let Group { nest, schedule, totals, operations, .. } = group;
        let name = format!("fused_{place}");
        let operations = operations.iter().map(|&number| self.graph.operations[number]).collect();
        let second = totals.map(|totals| {
            let name = format!("{name}_totals");
            let writes = totals.totals.iter().map(|(_, total)| total.clone()).collect();
            let reads = totals.partials.clone();
            let code = totals.emit(&name);
            Kernel { name, reads, writes, work: Work::Totals(totals), code, operations: vec!["column-sum"] }
        });
        let code = emit(self.graph, &nest, &schedule, &name);
        let (reads, writes) = (nest.reads.clone(), nest.writes.clone());
        let first =
            Kernel { name, reads, writes, work: Work::Nest(Box::new(nest), schedule), code, operations };
        std::iter::once(first).chain(second)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for decision in &self.decisions {
            let Decision { first, second, outcome } = decision;
            match outcome {
                Outcome::Fused { saves, registers, shared, walkers } => {
                    write!(
                        out,
                        "fused: {first} | {second}: saves {saves} bytes; needs about {registers} registers a thread and \
                         {shared} bytes of shared memory"
                    )?;
                    match walkers {
                        Some(blocks) => writeln!(out, "; {blocks} blocks walk through the rows")?,
                        None => writeln!(out)?,
                    }
                }
                Outcome::Refused(why) => writeln!(out, "not fused: {first} | {second}: {why}")?,
            }
        }
        for kernel in &self.kernels {
            writeln!(out, "{kernel}")?;
        }
        let (before, after) = (self.before, self.bytes_after());
        let saved = if before == 0 { 0.0 } else { 100.0 * (1.0 - after as f64 / before as f64) };
        write!(
            out,
            "operations: {}; kernels: {}; memory traffic (computed): {before} bytes before, {after} after, {saved:.0}% saved",
            self.operations,
            self.kernels.len()
        )
    }
}
