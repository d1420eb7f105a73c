//! Static shared memory of a kernel.

use std::collections::HashSet;

use crate::body::{Names, Operand, Symbol};
use crate::instruction::{Control, Operations};
use crate::syntax::{Function, Linkage, Module, StateSpace, Statement, Variable};

/// Bytes of static shared memory that a kernel uses: the variables that it and the functions it may call declare, and
/// those of the module that they mention, each aligned, in the order of the module. What is sized at launch does not
/// count. A call by address may reach every function.
pub fn static_shared_bytes(module: &Module, kernel: &Function) -> u64 {
    let names = Names::new(module);
    let mut reached: Vec<&Function> = vec![kernel];
    let mut used: HashSet<*const Variable> = HashSet::new();
    let mut next = 0;
    while let Some(&function) = reached.get(next) {
        next += 1;
        let body = names.body(function);
        used.extend(body.variables.iter().map(|place| std::ptr::from_ref(place.declaration)));
        let mut callees = Vec::new();
        for (line, operation) in body.lines.iter().zip(Operations::of(&body).iter()) {
            let functions = line.operands.iter().filter_map(|operand| match operand {
                Operand::Name(Symbol::Function(function)) => Some(*function),
                _ => None,
            });
            let before = callees.len();
            callees.extend(functions);
            if operation.control() == Control::Call && callees.len() == before {
                callees.extend(module.functions());
            }
        }
        for callee in callees {
            if !reached.iter().any(|known| std::ptr::eq(*known, callee)) {
                reached.push(callee);
            }
        }
    }
    let mut end = 0u64;
    let mut add = |variable: &Variable| {
        let is_static = variable.space == StateSpace::Shared && variable.linkage != Linkage::Extern;
        let bytes = variable.bytes().filter(|_| is_static && used.contains(&std::ptr::from_ref(variable)));
        if let Some(bytes) = bytes {
            let start = end.checked_next_multiple_of(variable.alignment().max(1)).unwrap_or(u64::MAX);
            end = start.saturating_add(bytes);
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
    end
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
