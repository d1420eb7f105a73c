//! The layout of a kernel's shared memory.
//!
//! Variables stand in the order of the module, each aligned; all that are sized at launch begin
//! behind the others.

use std::collections::HashSet;

use crate::body::{Body, Names, Operand, Symbol};
use crate::instruction::{Control, Operations};
use crate::syntax::{Function, Module, StateSpace, Statement, Variable};

/// The layout of shared variables in a block's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedLayout {
    /// Offset of each variable, in the order in which they were given.
    pub offsets: Vec<u64>,
    /// Bytes of the variables whose size the module states.
    pub static_bytes: u64,
    /// The start of the memory that is sized at launch; all variables in it begin there.
    pub dynamic_start: u64,
}

impl SharedLayout {
    /// Lays variables out one after the other, each aligned; those that are sized at launch come
    /// after all others.
    pub fn new(variables: &[&Variable]) -> SharedLayout {
        let aligned = |end: u64, align: u64| end.checked_next_multiple_of(align.max(1)).unwrap_or(u64::MAX);
        let mut offsets = vec![0; variables.len()];
        let (mut end, mut dynamic_align) = (0u64, 1);
        for (offset, variable) in offsets.iter_mut().zip(variables) {
            match variable.stated_bytes() {
                Some(bytes) => {
                    *offset = aligned(end, variable.alignment());
                    end = offset.saturating_add(bytes);
                }
                None => dynamic_align = variable.alignment().max(dynamic_align),
            }
        }
        let dynamic_start = aligned(end, dynamic_align);
        for (offset, variable) in offsets.iter_mut().zip(variables) {
            if variable.stated_bytes().is_none() {
                *offset = dynamic_start;
            }
        }
        SharedLayout { offsets, static_bytes: end, dynamic_start }
    }
}

/// Bytes of static shared memory that a kernel uses: the variables that it and the functions it may
/// call declare, and those of the module that they mention, each aligned, in the order of the
/// module. What is sized at launch does not count. A call by address may reach every function.
pub fn static_shared_bytes<'m>(module: &'m Module, kernel: &'m Function) -> u64 {
    let names = Names::new(module);
    let reached = reached(&names, module, kernel);
    let places = reached.iter().flat_map(|body| &body.variables);
    let used: HashSet<*const Variable> = places.map(|place| std::ptr::from_ref(place.declaration)).collect();
    let mut shared = Vec::new();
    let mut add = |variable: &'m Variable| {
        if variable.space == StateSpace::Shared && used.contains(&std::ptr::from_ref(variable)) {
            shared.push(variable);
        }
    };
    module.variables().for_each(&mut add);
    for function in module.functions() {
        function.visit(&mut |statement| {
            if let Statement::Variable(variable) = statement {
                add(variable);
            }
        });
    }
    SharedLayout::new(&shared).static_bytes
}

/// The listings of a kernel and of the functions that it may call, the kernel first. A call by
/// address may reach every function.
fn reached<'m>(names: &Names<'m>, module: &'m Module, kernel: &'m Function) -> Vec<Body<'m>> {
    let all: Vec<&Function> = module.functions().collect();
    follow(names, kernel, &all)
}

/// The listings of a kernel and of the functions that it names, or that those name, the kernel
/// first.
pub(crate) fn named<'m>(names: &Names<'m>, kernel: &'m Function) -> Vec<Body<'m>> {
    follow(names, kernel, &[])
}

/// Follows calls from a kernel; those by address may reach `by_address`.
fn follow<'m>(names: &Names<'m>, kernel: &'m Function, by_address: &[&'m Function]) -> Vec<Body<'m>> {
    let mut bodies = vec![names.body(kernel)];
    let mut next = 0;
    while let Some(body) = bodies.get(next) {
        next += 1;
        let mut callees = Vec::new();
        for (line, operation) in body.lines.iter().zip(Operations::of(body).iter()) {
            let functions = line.operands.iter().filter_map(|operand| match operand {
                Operand::Name(Symbol::Function(function)) => Some(*function),
                _ => None,
            });
            let before = callees.len();
            callees.extend(functions);
            if operation.control() == Control::Call && callees.len() == before {
                callees.extend(by_address);
            }
        }
        for callee in callees {
            if !bodies.iter().any(|known| std::ptr::eq(known.function, callee)) {
                bodies.push(names.body(callee));
            }
        }
    }
    bodies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_callees_and_mentions_count() {
        let source = "
            .version 8.0 .target sm_80 .address_size 64
            .shared .align 1 .b8 flag[1];
            .shared .align 16 .b8 tile[64];
            .shared .align 4 .b8 unused[1000];
            .extern .shared .align 16 .b8 dynamic[];
            .func inner() { .shared .align 8 .b8 own[8]; ret; }
            .func outer() { call inner; ret; }
            .entry plain() { .reg .b32 %r; mov.b32 %r, flag; mov.b32 %r, dynamic; ret; }
            .entry both() { .reg .b32 %r; mov.b32 %r, flag; ld.shared.b32 %r, [tile+4]; ret; }
            .entry calls() { .reg .b32 %r; mov.b32 %r, flag; call outer; ret; }
        ";
        let module = crate::parse(source).unwrap_or_else(|error| panic!("{}", error.render("k", source)));
        let bytes = |name: &str| {
            let kernel = module.functions().find(|function| &*function.name == name).expect("it is there");
            static_shared_bytes(&module, kernel)
        };
        assert_eq!((bytes("plain"), bytes("both"), bytes("calls")), (1, 80, 16));
    }
}
