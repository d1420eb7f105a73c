//! Checks that modules agree on the symbols that they share, as nvlink 13.5 does.
//!
//! 1. A symbol is a function, a kernel or a variable of one state space in all modules.
//! 2. Sized declarations and definitions of a variable have the same size. A `.common` variable may
//!    be smaller than another one, and than the definition that takes its place.
//! 3. Functions take and return values of the same sizes and of the same class, whole numbers or
//!    floating-point numbers; arrays have the same elements. A declaration that its module never
//!    mentions is not compared.

use std::collections::{HashMap, HashSet};

use super::{LinkError, symbol};
use crate::syntax::*;

/// The kind of a symbol, which is the same in all modules.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Variable(StateSpace),
    Kernel,
    Function,
}

/// The properties of a symbol in earlier modules.
struct Agreed<'m> {
    kind: Kind,
    managed: bool,
    /// Bytes where an `.extern` declaration states them.
    declared: Option<u64>,
    /// Bytes of a definition that is not `.common`.
    defined: Option<u64>,
    /// Bytes of the smallest and the largest `.common` definition.
    common: Option<(u64, u64)>,
    /// A function whose parameters count.
    function: Option<&'m Function>,
}

/// Fails for the first symbol on which modules disagree.
pub(super) fn check(modules: &[Module]) -> Result<(), LinkError> {
    let mut known: HashMap<&str, Agreed> = HashMap::new();
    for module in modules {
        let mentioned = mentions(module);
        for item in &module.items {
            match (item, symbol(item)) {
                (_, None | Some((_, Linkage::Internal))) => {}
                (Item::Variable(variable), _) => check_variable(&mut known, variable)?,
                (Item::Function(function), _) => check_function(&mut known, function, &mentioned)?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn entry<'k, 'm>(
    known: &'k mut HashMap<&'m str, Agreed<'m>>,
    name: &'m Name,
    kind: Kind,
    managed: bool,
) -> Result<&'k mut Agreed<'m>, LinkError> {
    let fresh = Agreed { kind, managed, declared: None, defined: None, common: None, function: None };
    let found = known.entry(name).or_insert(fresh);
    if found.kind != kind {
        let name = name.clone();
        return Err(match (found.kind, kind) {
            (Kind::Variable(one), Kind::Variable(other)) => LinkError::Spaces(name, one, other),
            (Kind::Variable(_), _) | (_, Kind::Variable(_)) => LinkError::VariableAndFunction(name),
            _ => LinkError::KernelAndFunction(name),
        });
    }
    if found.managed != managed {
        return Err(LinkError::Managed(name.clone()));
    }
    Ok(found)
}

fn check_variable<'m>(
    known: &mut HashMap<&'m str, Agreed<'m>>,
    variable: &'m Variable,
) -> Result<(), LinkError> {
    let managed = variable.attributes.iter().any(|attribute| &**attribute == ".managed");
    let found = entry(known, &variable.name, Kind::Variable(variable.space), managed)?;
    let Some(bytes) = variable.stated_bytes() else { return Ok(()) };
    match variable.linkage {
        Linkage::Common => {
            let (least, most) = found.common.unwrap_or((bytes, bytes));
            found.common = Some((least.min(bytes), most.max(bytes)));
        }
        Linkage::Extern => {
            let before = *found.declared.get_or_insert(bytes);
            same_size(variable, before, bytes)?;
        }
        _ => {
            let before = *found.defined.get_or_insert(bytes);
            same_size(variable, before, bytes)?;
        }
    }
    if let (Some(declared), Some((least, most))) = (found.declared, found.common) {
        same_size(variable, declared, least)?;
        same_size(variable, declared, most)?;
    }
    if let (Some(declared), Some(defined)) = (found.declared, found.defined) {
        same_size(variable, declared, defined)?;
    }
    match (found.common, found.defined) {
        (Some((_, common)), Some(defined)) if common > defined => {
            Err(LinkError::LargerCommon { name: variable.name.clone(), common, defined })
        }
        _ => Ok(()),
    }
}

fn same_size(variable: &Variable, one: u64, other: u64) -> Result<(), LinkError> {
    if one == other { Ok(()) } else { Err(LinkError::Sizes(variable.name.clone(), one, other)) }
}

fn check_function<'m>(
    known: &mut HashMap<&'m str, Agreed<'m>>,
    function: &'m Function,
    mentioned: &HashSet<&str>,
) -> Result<(), LinkError> {
    if function.body.is_none() && !mentioned.contains(&*function.name) {
        return Ok(());
    }
    let kind = if function.kind == FunctionKind::Entry { Kind::Kernel } else { Kind::Function };
    let found = entry(known, &function.name, kind, false)?;
    let before = *found.function.get_or_insert(function);
    let same = prototype(&before.returns) == prototype(&function.returns)
        && prototype(&before.params) == prototype(&function.params);
    // Kernels are called by nobody.
    match kind == Kind::Function && !same {
        true => Err(LinkError::Prototypes(function.name.clone())),
        false => Ok(()),
    }
}

/// Returns for each parameter whether it is a floating-point number, its bytes, and its elements; 0
/// for a scalar.
fn prototype(formals: &[Variable]) -> Vec<(bool, u64, u64)> {
    let of = |formal: &Variable| {
        let float = matches!(formal.ty, ScalarType::F32 | ScalarType::F64);
        let elements = formal.bytes().unwrap_or(0) / formal.element_bytes().max(1);
        (float, formal.element_bytes(), if formal.dimensions.is_empty() { 0 } else { elements })
    };
    formals.iter().map(of).collect()
}

/// The names that code and initial values mention.
fn mentions(module: &Module) -> HashSet<&str> {
    let mut names = HashSet::new();
    let mut values: Vec<&Initializer> =
        module.variables().filter_map(|variable| variable.initializer.as_ref()).collect();
    while let Some(value) = values.pop() {
        match value {
            Initializer::Symbol(address) => drop(names.insert(&*address.name)),
            Initializer::List(items) => values.extend(items),
            Initializer::Constant(_) | Initializer::Field(..) | Initializer::Setting(..) => {}
        }
    }
    for function in module.functions() {
        function.visit(&mut |statement| match statement {
            Statement::Instruction(instruction) => {
                let mut operands: Vec<&Operand> = instruction.operands.iter().collect();
                while let Some(operand) = operands.pop() {
                    match operand {
                        Operand::Name(name) | Operand::Offset(name, _) => drop(names.insert(&**name)),
                        Operand::Vector(parts) | Operand::List(parts) => operands.extend(parts),
                        _ => {}
                    }
                }
            }
            Statement::CallTargets(_, targets) => names.extend(targets.iter().map(|name| &**name)),
            _ => {}
        });
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::{LinkError, link};
    use crate::{Linkage, Module, StateSpace, parse};

    fn linked(one: &str, other: &str) -> Result<Module, LinkError> {
        let module = |text: &str| {
            let source = format!(".version 8.0\n.target sm_80\n.address_size 64\n{text}\n");
            parse(&source).unwrap_or_else(|error| panic!("{}", error.render("part", &source)))
        };
        link(vec![module(one), module(other)])
    }

    /// In either order.
    fn both(one: &str, other: &str) -> [Result<Module, LinkError>; 2] {
        [linked(one, other), linked(other, one)]
    }

    /// Bytes and linkage of the only variable `x`.
    fn variable(module: &Module) -> (Option<u64>, Linkage, u64) {
        let mut found = module.variables().filter(|variable| &*variable.name == "x");
        let x = found.next().expect("it is there");
        assert!(found.next().is_none());
        (x.bytes(), x.linkage, x.alignment())
    }

    #[test]
    fn the_largest_common_variable_is_kept_and_definitions_replace_it() {
        for module in both(".common .global .b32 x;", ".common .global .b64 x;") {
            assert_eq!(variable(&module.unwrap()), (Some(8), Linkage::Common, 8));
        }
        for module in both(".common .global .align 4 .b8 x[8];", ".common .global .align 16 .b8 x[4];") {
            assert_eq!(variable(&module.unwrap()), (Some(8), Linkage::Common, 16));
        }
        for module in both(".common .global .b32 x;", ".visible .global .b64 x = 5;") {
            assert_eq!(variable(&module.unwrap()), (Some(8), Linkage::Visible, 8));
        }
        for module in both(".common .global .b32 x;", ".weak .global .b32 x = 6;") {
            assert_eq!(variable(&module.unwrap()), (Some(4), Linkage::Weak, 4));
        }
        for module in both(".extern .global .b32 x[];", ".common .global .b64 x;") {
            assert_eq!(variable(&module.unwrap()), (Some(8), Linkage::Common, 8));
        }
    }

    #[test]
    fn variables_of_other_sizes_are_refused() {
        let sizes = [
            (".visible .global .b32 x;", ".weak .global .b64 x;"),
            (".weak .global .b32 x;", ".weak .global .b64 x;"),
            (".extern .global .b32 x;", ".visible .global .b64 x;"),
            (".extern .global .b32 x;", ".weak .global .b64 x;"),
            (".extern .global .b32 x;", ".common .global .b64 x;"),
            (".extern .global .b64 x;", ".common .global .b32 x;"),
            (".extern .global .b32 x;", ".extern .global .b64 x;"),
            (".visible .shared .b32 x;", ".extern .shared .b64 x;"),
        ];
        for (one, other) in sizes {
            for outcome in both(one, other) {
                let Err(error @ LinkError::Sizes(..)) = outcome else { panic!("{one} {other}: {outcome:?}") };
                assert!(error.to_string().starts_with("size doesn't match for `x`"), "{error}");
            }
        }
        for other in [".visible .global .b32 x = 5;", ".weak .global .b32 x = 5;"] {
            for outcome in both(".common .global .b64 x;", other) {
                let expected = LinkError::LargerCommon { name: "x".into(), common: 8, defined: 4 };
                assert_eq!(outcome, Err(expected), "{other}");
            }
        }
    }

    #[test]
    fn symbols_of_other_kinds_are_refused() {
        for other in [".extern .const .b32 x;", ".weak .const .b32 x;", ".extern .shared .b32 x[];"] {
            for outcome in both(".visible .global .b32 x;", other) {
                assert!(matches!(outcome, Err(LinkError::Spaces(_, one, two)) if one != two), "{outcome:?}");
            }
        }
        let managed = ".visible .global .attribute(.managed) .b32 x;";
        for outcome in both(managed, ".extern .global .b32 x;") {
            assert_eq!(outcome, Err(LinkError::Managed("x".into())));
        }
        for outcome in both(".visible .global .b32 x;", ".visible .func x() { ret; }") {
            assert_eq!(outcome, Err(LinkError::VariableAndFunction("x".into())));
        }
        for outcome in both(".visible .entry x() { ret; }", ".extern .func x(); .func g() { call x; ret; }") {
            assert_eq!(outcome, Err(LinkError::KernelAndFunction("x".into())));
        }
        assert!(linked(".visible .global .b32 x;", ".extern .global .f32 x;").is_ok());
        let x = linked(".extern .shared .b32 x[];", ".extern .shared .b64 x[];").unwrap();
        assert_eq!(x.variables().next().map(|variable| variable.space), Some(StateSpace::Shared));
    }

    #[test]
    fn functions_of_another_type_are_refused() {
        let caller = |prototype: &str| {
            format!(".extern .func {prototype}; .visible .entry k() {{ .reg .b64 %d; mov.u64 %d, f; ret; }}")
        };
        let definition = |prototype: &str| format!(".visible .func {prototype} {{ ret; }}");
        let word = "f(.param .b32 a)";
        for same in [word, "f(.param .u32 a)", "f(.reg .b32 a)"] {
            assert!(both(&caller(word), &definition(same)).iter().all(Result::is_ok), "{same}");
        }
        let others = [
            "f",
            "f(.param .b64 a)",
            "f(.param .f32 a)",
            "f(.param .b32 a, .param .b32 b)",
            "f(.param .align 4 .b8 a[4])",
            "(.param .b32 r) f(.param .b32 a)",
        ];
        for other in others {
            for outcome in both(&caller(word), &definition(other)) {
                assert_eq!(outcome, Err(LinkError::Prototypes("f".into())), "{other}");
            }
            // nvlink does not see what nobody mentions.
            let unused = format!(".extern .func {word};");
            assert!(both(&unused, &definition(other)).iter().all(Result::is_ok), "{other}");
        }
        let array = "f(.param .align 8 .b8 a[8])";
        assert!(linked(&caller(array), &definition("f(.param .align 16 .b8 a[8])")).is_ok());
        assert!(linked(&caller(array), &definition("f(.param .align 8 .b32 a[2])")).is_err());
    }

    #[test]
    fn what_one_module_keeps_to_itself_is_no_disagreement() {
        for module in both(".global .b32 x = 1;", ".visible .global .b64 x = 2;") {
            assert_eq!(module.unwrap().variables().count(), 2);
        }
    }
}
