//! The memory that a kernel accesses, by what its addresses are computed from.

use std::collections::BTreeMap;

use launch_condition::Range;
use ptx::body::{Body, InstructionId, Names, VariableId};
use ptx::instruction::{Access, Direction, Opcode, Operation, Operations, accesses};
use ptx::{Module, StateSpace};

use crate::Fault;
use crate::barrier::{Barrier, Reason, is_known};
use crate::origin::{Origin, Origins, parameter};
use crate::range;

/// Most instructions of a kernel that is looked at.
const MOST_LINES: usize = 100_000;

/// What is done with memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// It may be read.
    pub read: bool,
    /// It may be written.
    pub written: bool,
    /// It may be read and written by atomic operations.
    pub atomic: bool,
}

impl Use {
    /// Whether its contents may change.
    pub fn is_written(self) -> bool {
        self.written || self.atomic
    }

    /// Whether its contents may matter.
    pub fn is_read(self) -> bool {
        self.read || self.atomic
    }

    fn add(&mut self, direction: Direction) {
        match direction {
            Direction::Load => self.read = true,
            Direction::Store => self.written = true,
            Direction::Atomic => self.atomic = true,
        }
    }
}

/// What an address is computed from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// A word of 64 bits of a parameter.
    Parameter {
        /// The place of the parameter, from 0.
        index: u32,
        /// Bytes from the beginning of the parameter space.
        offset: u32,
    },
    /// A variable of the module.
    Variable(String),
}

/// Memory of one base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The base.
    pub base: Base,
    /// What is done with it.
    pub access: Use,
    /// The ranges in which all accesses lie, and what is done with each; none if the code does not
    /// tell: then they lie in the allocation that the base points into.
    pub ranges: Option<Vec<(Use, Range)>>,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the PTX; `param_0` where the compiler has put the kernel's name before it.
    pub name: String,
    /// Bytes from the beginning of the parameter space.
    pub offset: u32,
}

/// The access sets of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sets {
    /// The kernel's parameters, in order.
    pub parameters: Vec<Parameter>,
    /// Why the kernel may access any memory, if it may. What [`Sets::memory`] lists is then a part.
    pub barrier: Option<Barrier>,
    /// What is accessed, parameters first.
    pub memory: Vec<Memory>,
}

impl Sets {
    /// The access sets of a kernel; `None` if the module has no code of such a kernel.
    pub fn of(module: &Module, kernel: &str) -> Option<Sets> {
        Sets::with_fault(module, kernel, None)
    }

    /// The same by an analysis with a fault.
    #[doc(hidden)]
    pub fn with_fault(module: &Module, kernel: &str, fault: Option<Fault>) -> Option<Sets> {
        let function = module.kernel(kernel)?;
        let body = Names::new(module).body(function);
        let operations = Operations::of(&body);
        let offsets = offsets(&body);
        let parameters = function.params.iter().zip(&offsets);
        let parameters: Vec<Parameter> = parameters
            .map(|(variable, offset)| Parameter { name: short(&variable.name, kernel), offset: *offset })
            .collect();
        let unknown = |parameters| Sets { parameters, barrier: Some(malformed()), memory: Vec::new() };
        let undeclared = body.registers.iter().any(|register| register.declaration.is_none());
        let is_odd = module.address_size != 64 || !body.problems.is_empty() || undeclared;
        if is_odd || body.lines.len() > MOST_LINES {
            return Some(unknown(parameters));
        }
        let Some(origins) = Origins::of(&body, &operations, &offsets, fault) else {
            return Some(unknown(parameters));
        };
        let ranges = apex_reshape::access_ranges(module, kernel);
        let ranges = ranges.into_iter().map(|range| (range.at, range::of(range, fault))).collect();
        let (sets, barrier) = (BTreeMap::new(), None);
        let mut found = Found { body: &body, offsets: &offsets, fault, ranges, sets, barrier };
        for at in (0..body.lines.len() as u32).map(InstructionId) {
            found.instruction(at, &operations[at.index()], &origins);
        }
        Some(found.finish(parameters))
    }

    /// Whether nothing but what [`Sets::memory`] lists is accessed.
    pub fn is_known(&self) -> bool {
        self.barrier.is_none()
    }
}

/// The name of a parameter without that of its kernel.
fn short(name: &str, kernel: &str) -> String {
    let rest = name.strip_prefix(kernel).and_then(|rest| rest.strip_prefix('_'));
    rest.filter(|rest| rest.starts_with("param_")).unwrap_or(name).to_owned()
}

fn malformed() -> Barrier {
    Barrier { reason: Reason::Malformed, instruction: String::new(), line: 0 }
}

/// Offsets of a kernel's parameters: each begins at the next multiple of its alignment.
fn offsets(body: &Body<'_>) -> Vec<u32> {
    let mut end: u64 = 0;
    let mut offsets = Vec::with_capacity(body.function.params.len());
    for parameter in &body.function.params {
        let start = end.next_multiple_of(parameter.alignment().max(1));
        offsets.push(u32::try_from(start).unwrap_or(u32::MAX));
        end = start.saturating_add(parameter.bytes().unwrap_or(u64::from(u32::MAX)));
    }
    offsets
}

/// What is known of a base so far: all ranges, or none of an access.
#[derive(Default)]
struct Known {
    access: Use,
    ranges: Vec<(Use, Range)>,
    is_unbounded: bool,
}

struct Found<'a, 'm> {
    body: &'a Body<'m>,
    offsets: &'a [u32],
    fault: Option<Fault>,
    ranges: BTreeMap<InstructionId, Range>,
    sets: BTreeMap<Base, Known>,
    barrier: Option<Barrier>,
}

impl<'m> Found<'_, 'm> {
    fn instruction(&mut self, at: InstructionId, operation: &Operation, origins: &Origins<'_, 'm>) {
        if operation.is(&[Opcode::Call]) {
            if self.fault != Some(Fault::Calls) {
                self.bar(Reason::Call, at);
            }
            return;
        }
        if !is_known(operation) {
            return self.bar(Reason::Instruction, at);
        }
        if operation.is(&[Opcode::Cp]) && self.fault == Some(Fault::AsyncCopies) {
            return;
        }
        for access in accesses(operation, &self.body.lines[at.index()].operands) {
            self.access(at, &access, origins);
        }
    }

    fn access(&mut self, at: InstructionId, access: &Access<'m>, origins: &Origins<'_, 'm>) {
        use StateSpace::{Const, Global, Local, Param, Shared};
        if [Local, Shared, Param].map(Some).contains(&access.space) {
            return;
        }
        if ![None, Some(Global), Some(Const)].contains(&access.space) {
            return self.bar(Reason::Instruction, at);
        }
        let origin = origins.of_base(&access.base);
        let is_seen = |variable: &&VariableId| {
            let space = self.body.variable(**variable).space;
            [Global, Const].contains(&space)
        };
        // Addresses of a thread's own or its block's memory, as generic ones.
        let has_own = origin.variables.iter().any(|variable| !is_seen(&variable));
        if origin.loaded {
            self.bar(Reason::Loaded, at);
        } else if origin.bare || origin.parameters.is_empty() && origin.variables.is_empty() && !has_own {
            self.bar(Reason::Absolute, at);
        }
        let direction = match access.direction {
            Direction::Atomic if self.fault == Some(Fault::Atomics) => Direction::Load,
            direction => direction,
        };
        for base in self.bases(&origin) {
            let range = self.ranges.get(&at);
            let known = self.sets.entry(base).or_default();
            known.access.add(direction);
            known.add(direction, range);
        }
    }

    /// The parameters and the module's variables of an origin.
    fn bases(&self, origin: &Origin) -> Vec<Base> {
        let word = |offset: &u32| {
            let index = self.offsets.partition_point(|start| start <= offset) - 1;
            Base::Parameter { index: index as u32, offset: *offset }
        };
        let variable = |id: &VariableId| {
            let is_own = parameter(self.body, self.offsets, *id).is_some();
            let variable = self.body.variable(*id);
            let is_seen = [StateSpace::Global, StateSpace::Const].contains(&variable.space);
            (is_seen && !is_own).then(|| Base::Variable(variable.name.to_string()))
        };
        let words = origin.parameters.iter().map(word);
        words.chain(origin.variables.iter().filter_map(variable)).collect()
    }

    fn bar(&mut self, reason: Reason, at: InstructionId) {
        let instruction = &self.body.lines[at.index()].instruction;
        let text = instruction.to_string().trim().to_owned();
        let line = instruction.position.line;
        self.barrier.get_or_insert(Barrier { reason, instruction: text, line });
    }

    fn finish(self, parameters: Vec<Parameter>) -> Sets {
        let memory = |(base, known): (Base, Known)| Memory {
            base,
            access: known.access,
            ranges: (!known.is_unbounded).then_some(known.ranges),
        };
        Sets { parameters, barrier: self.barrier, memory: self.sets.into_iter().map(memory).collect() }
    }
}

impl Known {
    fn add(&mut self, direction: Direction, range: Option<&Range>) {
        let Some(range) = range else {
            self.is_unbounded = true;
            return;
        };
        match self.ranges.iter_mut().find(|(_, known)| known == range) {
            Some((access, _)) => access.add(direction),
            None => {
                let mut access = Use::default();
                access.add(direction);
                self.ranges.push((access, range.clone()));
            }
        }
    }
}
