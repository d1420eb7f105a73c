//! Walking and rewriting of a kernel's statements.

use ptx::syntax::tree::{Instruction, Item, Statement};
use ptx::syntax::{FunctionKind, Module};

/// The module with the statements of a kernel rewritten; `None` if `rewrite` gives none.
pub(crate) fn rewritten(
    module: &Module,
    kernel: &str,
    rewrite: impl FnOnce(&mut Vec<Statement>) -> Option<()>,
) -> Option<Module> {
    let mut module = module.clone();
    let body = module.items.iter_mut().find_map(|item| match item {
        Item::Function(function) if &*function.name == kernel && function.kind == FunctionKind::Entry => {
            function.body.as_mut()
        }
        _ => None,
    })?;
    rewrite(body)?;
    Some(module)
}

/// Calls `visit` for each list of statements: the function's own and those of its scopes.
pub(crate) fn lists(body: &mut Vec<Statement>, visit: &mut impl FnMut(&mut Vec<Statement>)) {
    // Lists of scopes are taken out while they are visited, so that nothing recurses.
    let mut open = vec![(Vec::new(), std::mem::take(body), 0)];
    while let Some((path, mut list, mut at)) = open.pop() {
        if at == 0 {
            visit(&mut list);
        }
        let inner = (at..list.len()).find(|&at| matches!(list[at], Statement::Block(_)));
        match inner {
            Some(place) => {
                let Statement::Block(inner) = &mut list[place] else { continue };
                let inner = std::mem::take(inner);
                at = place + 1;
                open.push((path, list, at));
                open.push((vec![place], inner, 0));
            }
            None => match (path.first(), open.last_mut()) {
                (Some(&place), Some((_, outer, _))) => outer[place] = Statement::Block(list),
                _ => *body = list,
            },
        }
    }
}

/// Whether an instruction names something.
pub(crate) fn mentions(instruction: &Instruction, wanted: &str) -> bool {
    let mut found = false;
    instruction.names(&mut |name| found |= name == wanted);
    found
}

/// Whether an instruction only computes in registers.
pub(crate) fn is_pure(instruction: &Instruction) -> bool {
    const PURE: [&str; 28] = [
        "add", "sub", "mul", "mad", "fma", "div", "rem", "neg", "abs", "min", "max", "and", "or", "xor",
        "not", "shl", "shr", "mov", "cvt", "cvta", "setp", "selp", "lop3", "bfe", "bfi", "shf", "rcp",
        "sqrt",
    ];
    PURE.contains(&instruction.mnemonic.opcode())
}
