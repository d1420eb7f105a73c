//! Linking: several modules become one, as nvlink makes one of the objects of a program.
//!
//! What is visible in one module is what others declare `.extern`. What is not (string literals,
//! static functions) may have the same name in several modules and is renamed. Invariants:
//!
//! 1. The result means what the modules mean together; a symbol that is declared and defined
//!    nowhere stays a declaration.
//! 2. Declarations come before definitions, so that every name is known where it is used.
//! 3. Debugging sections are left out: their labels would collide, and lines (`.loc`) need none of
//!    them.

mod agreement;

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::syntax::*;

/// The reason why modules cannot be linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// There is nothing to link.
    NoModules,
    /// Modules have addresses of different sizes, in bits.
    AddressSizes(u32, u32),
    /// Two modules define the same symbol, and neither definition is weak.
    MultipleDefinition(Name),
    /// Modules state different sizes of a variable, in bytes.
    Sizes(Name, u64, u64),
    /// A `.common` variable is larger than its definition in another module, in bytes.
    LargerCommon {
        /// The variable.
        name: Name,
        /// Bytes of the common one.
        common: u64,
        /// Bytes of the other.
        defined: u64,
    },
    /// A variable lies in different state spaces.
    Spaces(Name, StateSpace, StateSpace),
    /// A variable is managed memory in one module only.
    Managed(Name),
    /// A symbol is a variable in one module and a function in another.
    VariableAndFunction(Name),
    /// A symbol is a kernel in one module and a function in another.
    KernelAndFunction(Name),
    /// A function has other parameters or results in one module than in another.
    Prototypes(Name),
}

impl fmt::Display for LinkError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::NoModules => out.write_str("there is no module to link"),
            LinkError::AddressSizes(one, other) => {
                write!(out, "modules with addresses of {one} and of {other} bits cannot be linked")
            }
            LinkError::MultipleDefinition(name) => write!(out, "multiple definition of `{name}`"),
            LinkError::Sizes(name, one, other) => {
                write!(out, "size doesn't match for `{name}`: {one} bytes in one module, {other} in another")
            }
            LinkError::LargerCommon { name, common, defined } => write!(
                out,
                "common symbol `{name}` of {common} bytes is larger than its definition of {defined} bytes"
            ),
            LinkError::Spaces(name, one, other) => {
                write!(
                    out,
                    "memory space doesn't match for `{name}`: {one} in one module, {other} in another"
                )
            }
            LinkError::Managed(name) => {
                write!(out, "managed attribute doesn't match for `{name}`: one module only has it")
            }
            LinkError::VariableAndFunction(name) => {
                write!(out, "`{name}` is a variable in one module and a function in another")
            }
            LinkError::KernelAndFunction(name) => {
                write!(out, "`{name}` is a kernel in one module and a function in another")
            }
            LinkError::Prototypes(name) => {
                write!(
                    out,
                    "prototype doesn't match for `{name}`: modules give it other parameters or results"
                )
            }
        }
    }
}

impl std::error::Error for LinkError {}

/// Makes one module of several.
///
/// # Errors
///
/// See [`LinkError`].
pub fn link(modules: Vec<Module>) -> Result<Module, LinkError> {
    let mut modules = modules;
    if modules.len() == 1 {
        return modules.pop().ok_or(LinkError::NoModules);
    }
    let first = modules.first().ok_or(LinkError::NoModules)?;
    let address_size = first.address_size;
    if let Some(other) = modules.iter().find(|module| module.address_size != address_size) {
        return Err(LinkError::AddressSizes(address_size, other.address_size));
    }
    let version = modules.iter().map(|module| module.version).max().unwrap_or_default();
    let newest = modules.iter().max_by_key(|module| module.architecture());
    let target = newest.map(|module| module.target.clone()).unwrap_or_default();
    separate_names(&mut modules);
    agreement::check(&modules)?;
    separate_files(&mut modules);
    let items = merge(modules.into_iter().flat_map(|module| module.items).collect())?;
    Ok(Module { version, target, address_size, items })
}

/// Name and linkage of what an item declares or defines.
fn symbol(item: &Item) -> Option<(&Name, Linkage)> {
    match item {
        Item::Variable(variable) => Some((&variable.name, variable.linkage)),
        // A kernel is found by its name, whatever its linkage.
        Item::Function(Function { name, kind: FunctionKind::Entry, linkage: Linkage::Internal, .. }) => {
            Some((name, Linkage::Visible))
        }
        Item::Function(function) => Some((&function.name, function.linkage)),
        Item::Alias { name, .. } => Some((name, Linkage::Visible)),
        Item::File(_) | Item::Section(_) | Item::Pragma(_) => None,
    }
}

/// Renames what only one module can see, where another module uses the name too.
fn separate_names(modules: &mut [Module]) {
    let mut taken: HashSet<Name> = modules
        .iter()
        .flat_map(|module| &module.items)
        .filter_map(symbol)
        .map(|(name, _)| name.clone())
        .collect();
    let shared: HashSet<Name> = modules
        .iter()
        .flat_map(|module| &module.items)
        .filter_map(symbol)
        .filter(|(_, linkage)| *linkage != Linkage::Internal)
        .map(|(name, _)| name.clone())
        .collect();
    let mut seen: HashSet<Name> = HashSet::new();
    for (index, module) in modules.iter_mut().enumerate() {
        let mut internal: HashSet<Name> = HashSet::new();
        let mut own: HashSet<Name> = HashSet::new();
        for (name, linkage) in module.items.iter().filter_map(symbol) {
            own.insert(name.clone());
            if linkage == Linkage::Internal {
                internal.insert(name.clone());
            }
        }
        // A declaration may be internal while the definition is visible: then the name is not the
        // module's own.
        for (name, linkage) in module.items.iter().filter_map(symbol) {
            if linkage != Linkage::Internal {
                internal.remove(name);
            }
        }
        let mut renamed = HashMap::new();
        for name in internal.into_iter().filter(|name| seen.contains(name) || shared.contains(name)) {
            let fresh = (index..).map(|number| Name::from(format!("{name}$part{number}").as_str()));
            let Some(fresh) = fresh.into_iter().find(|fresh| !taken.contains(fresh)) else { continue };
            taken.insert(fresh.clone());
            renamed.insert(name, fresh);
        }
        if !renamed.is_empty() {
            rename::module(module, &|name| renamed.get(name).cloned());
        }
        seen.extend(own);
    }
}

/// Gives the files of all modules indices of their own.
fn separate_files(modules: &mut [Module]) {
    let mut next = 0;
    for module in modules {
        let files: Vec<u32> = module
            .items
            .iter()
            .filter_map(|item| if let Item::File(file) = item { Some(file.index) } else { None })
            .collect();
        let renumbered: HashMap<u32, u32> = files.into_iter().zip(next + 1..).collect();
        next += renumbered.len() as u32;
        for item in &mut module.items {
            match item {
                Item::File(file) => file.index = renumbered.get(&file.index).copied().unwrap_or(file.index),
                Item::Function(function) => {
                    locations(function.body.iter_mut().flatten(), &mut |location| {
                        location.file = renumbered.get(&location.file).copied().unwrap_or(location.file);
                        // Its function is named in a debugging section.
                        location.inlined = None;
                    });
                }
                _ => {}
            }
        }
    }
}

/// Shows every `.loc`, of inner scopes too.
fn locations<'a>(statements: impl Iterator<Item = &'a mut Statement>, visit: &mut impl FnMut(&mut Location)) {
    let mut open: Vec<&mut Statement> = statements.collect();
    while let Some(statement) = open.pop() {
        match statement {
            Statement::Location(location) => visit(location),
            Statement::Block(inner) => open.extend(inner),
            _ => {}
        }
    }
}

/// One definition of each symbol, its declarations before all definitions, and nothing twice.
fn merge(items: Vec<Item>) -> Result<Vec<Item>, LinkError> {
    let mut chosen: HashMap<Name, (usize, Linkage)> = HashMap::new();
    for (index, item) in items.iter().enumerate().filter(|(_, item)| defines(item)) {
        let Some((name, linkage)) = symbol(item) else { continue };
        let before = chosen.get(name).map(|(kept, other)| (&items[*kept], *other));
        let replaces = match before {
            None => true,
            Some((kept, Linkage::Common)) if linkage == Linkage::Common => size(item) > size(kept),
            Some((_, other)) => strength(linkage) > strength(other),
        };
        let strong = |linkage| strength(linkage) == strength(Linkage::Visible);
        if strong(linkage) && before.is_some_and(|(_, other)| strong(other)) {
            return Err(LinkError::MultipleDefinition(name.clone()));
        }
        if replaces {
            chosen.insert(name.clone(), (index, linkage));
        }
    }
    let alignments = common_alignments(&items);
    let (mut head, mut variables, mut code) = (Vec::new(), Vec::new(), Vec::new());
    let mut declared = HashSet::new();
    for (index, item) in items.into_iter().enumerate() {
        let definition = symbol(&item).and_then(|(name, _)| chosen.get(name).copied());
        let kept = definition.is_some_and(|(kept, _)| kept == index);
        match item {
            Item::File(_) | Item::Pragma(_) => head.push(item),
            Item::Section(_) => {}
            // An undefined one stays declared; a defined one needs no declaration, as variables
            // come first.
            Item::Variable(mut variable) => {
                if let Some(&align) = alignments.get(&variable.name).filter(|_| kept)
                    && u64::from(align) > variable.alignment()
                {
                    variable.align = Some(align);
                }
                if kept || definition.is_none() && declared.insert(variable.name.clone()) {
                    variables.push(Item::Variable(variable));
                }
            }
            Item::Function(function) => {
                if declared.insert(function.name.clone()) {
                    let linkage = definition.map_or(function.linkage, |(_, linkage)| linkage);
                    head.push(Item::Function(Function { body: None, linkage, ..function.clone() }));
                }
                if kept {
                    code.push(Item::Function(function));
                }
            }
            Item::Alias { .. } if kept => code.push(item),
            Item::Alias { .. } => {}
        }
    }
    head.append(&mut variables);
    head.append(&mut code);
    Ok(head)
}

/// Returns the rank of a definition: the highest one replaces the others.
fn strength(linkage: Linkage) -> u8 {
    match linkage {
        Linkage::Common => 0,
        Linkage::Weak => 1,
        Linkage::Internal | Linkage::Extern | Linkage::Visible => 2,
    }
}

/// Bytes of a variable.
fn size(item: &Item) -> u64 {
    match item {
        Item::Variable(variable) => variable.bytes().unwrap_or(0),
        _ => 0,
    }
}

/// The alignment that the `.common` definitions of each variable need together.
fn common_alignments(items: &[Item]) -> HashMap<Name, u32> {
    let mut alignments = HashMap::new();
    for item in items {
        if let Item::Variable(variable) = item
            && variable.linkage == Linkage::Common
        {
            let most = alignments.entry(variable.name.clone()).or_insert(1);
            *most = (*most).max(u32::try_from(variable.alignment()).unwrap_or(1));
        }
    }
    alignments
}

/// Whether an item defines its symbol rather than declaring it. `.extern .shared` is sized at
/// launch: a declaration.
fn defines(item: &Item) -> bool {
    match item {
        Item::Variable(variable) => variable.linkage != Linkage::Extern,
        Item::Function(function) => function.body.is_some(),
        Item::Alias { .. } => true,
        Item::File(_) | Item::Section(_) | Item::Pragma(_) => false,
    }
}

/// Renaming of identifiers throughout a module. Names of functions' own registers and variables are
/// renamed with the rest: wherever one hides a symbol of the module, it goes on hiding it.
mod rename {
    use super::*;

    type Renamed<'a> = &'a dyn Fn(&Name) -> Option<Name>;

    pub(super) fn module(module: &mut Module, renamed: Renamed) {
        for item in &mut module.items {
            match item {
                Item::Variable(declared) => variable(declared, renamed),
                Item::Function(declared) => function(declared, renamed),
                Item::Alias { name: alias, function } => {
                    name(alias, renamed);
                    name(function, renamed);
                }
                Item::File(_) | Item::Section(_) | Item::Pragma(_) => {}
            }
        }
    }

    fn name(given: &mut Name, renamed: Renamed) {
        if let Some(fresh) = renamed(given) {
            *given = fresh;
        }
    }

    fn variable(declared: &mut Variable, renamed: Renamed) {
        name(&mut declared.name, renamed);
        let mut open: Vec<&mut Initializer> = declared.initializer.iter_mut().collect();
        while let Some(initializer) = open.pop() {
            match initializer {
                Initializer::Symbol(address) => name(&mut address.name, renamed),
                Initializer::List(items) => open.extend(items),
                Initializer::Constant(_) | Initializer::Field(..) | Initializer::Setting(..) => {}
            }
        }
    }

    fn function(declared: &mut Function, renamed: Renamed) {
        name(&mut declared.name, renamed);
        declared.returns.iter_mut().chain(&mut declared.params).for_each(|formal| variable(formal, renamed));
        let mut open: Vec<&mut Statement> = declared.body.iter_mut().flatten().collect();
        while let Some(statement) = open.pop() {
            match statement {
                Statement::Block(inner) => open.extend(inner),
                other => single(other, renamed),
            }
        }
    }

    fn single(statement: &mut Statement, renamed: Renamed) {
        match statement {
            Statement::Label(label, _) => name(label, renamed),
            Statement::Instruction(instruction) => {
                if let Some(predicate) = &mut instruction.predicate {
                    name(&mut predicate.register, renamed);
                }
                instruction.operands.iter_mut().for_each(|given| operand(given, renamed));
            }
            Statement::Variable(declared) => variable(declared, renamed),
            Statement::Prototype(prototype) => {
                name(&mut prototype.name, renamed);
                prototype
                    .returns
                    .iter_mut()
                    .chain(&mut prototype.params)
                    .for_each(|formal| variable(formal, renamed));
            }
            Statement::CallTargets(label, names) | Statement::BranchTargets(label, names) => {
                name(label, renamed);
                names.iter_mut().for_each(|given| name(given, renamed));
            }
            Statement::Block(_) | Statement::Location(_) | Statement::Pragma(_) => {}
        }
    }

    fn operand(given: &mut Operand, renamed: Renamed) {
        let mut open = vec![given];
        while let Some(operand) = open.pop() {
            match operand {
                Operand::Name(base)
                | Operand::Component(base, _)
                | Operand::Offset(base, _)
                | Operand::Element(base, _)
                | Operand::Not(base)
                | Operand::Negated(base) => name(base, renamed),
                Operand::Indexed(array, register, _) => {
                    name(array, renamed);
                    name(register, renamed);
                }
                Operand::Constant(_) | Operand::Sink => {}
                Operand::Pair(one, other) => open.extend([&mut **one, &mut **other]),
                Operand::Vector(parts) | Operand::List(parts) => open.extend(parts),
                Operand::Address(address) => {
                    if let AddressBase::Name(base) | AddressBase::Component(base, _) = &mut address.base {
                        name(base, renamed);
                    }
                    open.extend(&mut address.rest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use crate::syntax::StateSpace;

    const HEADER: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

    fn linked(sources: &[&str]) -> Result<Module, LinkError> {
        let modules = sources.iter().map(|source| parse(&format!("{HEADER}{source}")).unwrap()).collect();
        link(modules)
    }

    /// Prints, and parses again: what the linker makes is PTX.
    fn printed(sources: &[&str]) -> String {
        let module = linked(sources).unwrap();
        let text = module.to_string();
        assert_eq!(parse(&text).unwrap(), module, "{text}");
        text
    }

    #[test]
    fn a_declaration_gives_way_to_the_definition() {
        let text = printed(&[
            ".extern .global .b32 counter;\n.extern .func f();\n.visible .entry k() { call f; ret; }",
            ".visible .global .b32 counter = 7;\n.visible .func f() { ret; }",
        ]);
        assert!(!text.contains(".extern"), "{text}");
        assert_eq!(text.matches("counter").count(), 1, "{text}");
        let declaration = text.find(".visible .func f").unwrap();
        assert!(declaration < text.find(".entry k").unwrap(), "{text}");
    }

    #[test]
    fn names_that_only_one_module_sees_stay_apart() {
        let source = |kernel: &str, value: u32| {
            format!(
                ".global .b32 same = {value};\n.func own() {{ ret; }}\n.visible .entry {kernel}() {{ .reg .b32 %r;\n\
                 ld.global.b32 %r, [same];\ncall own;\nret; }}"
            )
        };
        let module = linked(&[&source("one", 1), &source("two", 2), &source("three", 3)]).unwrap();
        let names: HashSet<_> = module.variables().map(|variable| variable.name.clone()).collect();
        assert_eq!(names.len(), 3);
        for (kernel, value) in [("one", 1), ("two", 2), ("three", 3)] {
            let function = module.functions().find(|f| &*f.name == kernel && f.body.is_some()).unwrap();
            let mut read = None;
            function.visit(&mut |statement| {
                if let Statement::Instruction(instruction) = statement
                    && let Some(Operand::Address(address)) = instruction.operands.get(1)
                    && let AddressBase::Name(name) = &address.base
                {
                    read = Some(name.clone());
                }
            });
            let variable = module.variables().find(|variable| Some(&variable.name) == read.as_ref()).unwrap();
            assert_eq!(variable.initializer, Some(Initializer::Constant(Constant::Integer(value))));
        }
    }

    #[test]
    fn weak_definitions_count_once_and_strong_ones_win() {
        let weak = ".weak .func f() { ret; }";
        assert_eq!(linked(&[weak, weak]).unwrap().functions().filter(|f| f.body.is_some()).count(), 1);
        let text = printed(&[weak, ".visible .func f() { trap; }"]);
        assert!(text.contains("trap") && !text.contains(".weak"), "{text}");
    }

    #[test]
    fn what_cannot_be_linked_is_said() {
        let strong = ".visible .global .b32 x;";
        assert_eq!(linked(&[strong, strong]), Err(LinkError::MultipleDefinition("x".into())));
        assert_eq!(link(Vec::new()), Err(LinkError::NoModules));
        let small = parse(".version 8.0\n.target sm_80\n.address_size 32\n").unwrap();
        let big = parse(HEADER).unwrap();
        assert_eq!(link(vec![small, big]), Err(LinkError::AddressSizes(32, 64)));
    }

    #[test]
    fn the_newest_header_and_all_files_are_kept() {
        let one = ".version 7.0\n.target sm_75\n.address_size 64\n.file 1 \"a.cu\"\n\
                   .visible .entry a() { .loc 1 3 0\nret; }";
        let two = ".version 8.3\n.target sm_90a\n.address_size 64\n.file 1 \"b.cu\"\n\
                   .visible .entry b() { .loc 1 4 0\nret; }";
        let module = link(vec![parse(one).unwrap(), parse(two).unwrap()]).unwrap();
        assert_eq!((module.version, &*module.target[0]), ((8, 3), "sm_90a"));
        let mut files = Vec::new();
        for function in module.functions() {
            function.visit(&mut |statement| {
                if let Statement::Location(location) = statement {
                    files.push(module.file(location.file).unwrap().to_owned());
                }
            });
        }
        assert_eq!(files, ["a.cu", "b.cu"]);
    }

    #[test]
    fn shared_memory_sized_at_launch_is_declared_once() {
        let source = |kernel: &str| {
            format!(".extern .shared .align 16 .b8 memory[];\n.visible .entry {kernel}() {{ ret; }}")
        };
        let module = linked(&[&source("a"), &source("b")]).unwrap();
        assert_eq!(module.variables().filter(|v| v.space == StateSpace::Shared).count(), 1);
    }
}
