//! Access sets for the injected library, which decides at each launch what it may run concurrently.
//!
//! Here a kernel is a barrier for more reasons than in [`Sets`], because the order of two kernels
//! that share no memory may still be observable: by a third kernel with which one of them
//! synchronises (`volatile`, memory orders, atomic operations, fences), or by clocks that kernels
//! read.

use launch_condition::{AccessedMemory, KernelAccess};
use ptx::instruction::{Cache, Flag, Opcode, Operation, Order};
use ptx::{Function, FunctionKind, Instruction, Module, StateSpace, Statement};

use crate::sets::{Base, Memory, Sets};

/// Special registers of clocks.
const CLOCKS: [&str; 2] = ["%globaltimer", "%clock"];

/// The memory that the kernels of a module access. The analysis ends when `goes_on` returns false;
/// the remaining kernels are not listed, so they may access anything.
pub fn schedulable(module: &Module, mut goes_on: impl FnMut() -> bool) -> Vec<KernelAccess> {
    let is_kernel = |function: &&Function| function.kind == FunctionKind::Entry && function.body.is_some();
    let kernels = module.functions().filter(is_kernel);
    kernels.map_while(|kernel| goes_on().then(|| of_kernel(module, kernel))).flatten().collect()
}

/// The memory that one kernel of a module accesses; `None` if the module has no code of it.
pub fn schedulable_kernel(module: &Module, kernel: &str) -> Option<KernelAccess> {
    let is_it = |function: &&Function| {
        &*function.name == kernel && function.kind == FunctionKind::Entry && function.body.is_some()
    };
    of_kernel(module, module.functions().find(is_it)?)
}

fn of_kernel(module: &Module, kernel: &Function) -> Option<KernelAccess> {
    let sets = Sets::of(module, &kernel.name)?;
    let is_open = sets.is_known() && !is_observable(kernel);
    let memory =
        is_open.then(|| sets.memory.iter().filter_map(of_memory).collect::<Option<Vec<_>>>()).flatten();
    let parameters = sets.parameters.iter().map(|parameter| parameter.offset).collect();
    Some(KernelAccess { name: kernel.name.to_string(), parameters, memory })
}

/// Memory as data; `Some(None)` for what has no form as data, and `None` for what needs none: only
/// kernels write variables of modules while kernels run, and those that do are barriers.
fn of_memory(memory: &Memory) -> Option<Option<AccessedMemory>> {
    let is_written = memory.access.is_written();
    let Base::Parameter { offset, .. } = memory.base else { return is_written.then_some(None) };
    let ranges = memory
        .ranges
        .as_ref()
        .map(|ranges| ranges.iter().map(|(access, range)| (access.is_written(), range.clone())).collect());
    Some(Some(AccessedMemory { offset, is_written, ranges }))
}

/// Whether others can observe when a kernel runs, because it synchronises with them or reads a
/// clock.
fn is_observable(kernel: &Function) -> bool {
    fn any(statements: &[Statement]) -> bool {
        statements.iter().any(|statement| match statement {
            Statement::Instruction(instruction) => synchronises(instruction) || tells_time(instruction),
            Statement::Block(inner) => any(inner),
            _ => false,
        })
    }
    kernel.body.iter().any(|body| any(body))
}

/// Whether another kernel, a copy or the host may wait for an instruction. They cannot access
/// shared and local memory.
fn synchronises(instruction: &Instruction) -> bool {
    let operation = Operation::of(&instruction.mnemonic);
    if matches!(operation.space, Some(StateSpace::Shared | StateSpace::Local | StateSpace::Param)) {
        return false;
    }
    operation.is(&[Opcode::Atom, Opcode::Red, Opcode::Fence, Opcode::Membar])
        || operation.order.is_some_and(|order| order != Order::Weak)
        || matches!(operation.cache, Some(Cache::Volatile | Cache::WriteThrough))
        || operation.has(Flag::MemoryMapped)
}

fn tells_time(instruction: &Instruction) -> bool {
    let text = instruction.to_string();
    CLOCKS.iter().any(|clock| text.contains(clock))
}
