//! The symbols of a module.
//!
//! A name may be used from the first item that declares it on. It then means the definition, even
//! if that follows.

use std::collections::HashMap;

use crate::diagnostic::Diagnostic;
use crate::diagnostic::Position;
use crate::syntax::tree::{Function, Item, Linkage, Module, Variable};

/// The meaning of a module's symbol.
#[derive(Clone, Copy, Debug)]
pub enum Global<'m> {
    /// A variable: its definition if the module has one, else a declaration.
    Variable(&'m Variable),
    /// A function, likewise.
    Function(&'m Function),
}

/// The symbols of a module, and what is wrong with their declarations. By default there are none: a
/// function can be looked at without its module.
#[derive(Clone, Debug, Default)]
pub struct Names<'m> {
    /// The functions, each with its place among the module's items.
    functions: Vec<(usize, &'m Function)>,
    /// Each symbol, and the item that declares it first.
    symbols: HashMap<&'m str, (usize, Global<'m>)>,
    /// Declarations that contradict each other, in source order.
    pub problems: Vec<Diagnostic>,
}

impl<'m> Names<'m> {
    /// Collects the symbols of a module.
    pub fn new(module: &'m Module) -> Names<'m> {
        let mut names = Names::default();
        for (index, item) in module.items.iter().enumerate() {
            match item {
                Item::Variable(variable) => names.variable(index, variable),
                Item::Function(function) => names.function(index, function),
                Item::Alias { name, function } => names.alias(index, name, function),
                Item::File(_) | Item::Section(_) | Item::Pragma(_) => {}
            }
        }
        // What an alias names may be defined after it.
        for item in &module.items {
            if let Item::Alias { name, function } = item
                && let Some(function) = names.get(function)
                && let Some((_, global)) = names.symbols.get_mut(&**name)
            {
                *global = function;
            }
        }
        names
    }

    /// Returns the meaning of a name in the module.
    pub fn get(&self, name: &str) -> Option<Global<'m>> {
        self.symbols.get(name).map(|(_, global)| *global)
    }

    /// Returns the meaning of a name after the items before `item`, and in that item itself.
    pub(crate) fn before(&self, item: usize, name: &str) -> Option<Global<'m>> {
        self.symbols.get(name).filter(|(first, _)| *first <= item).map(|(_, global)| *global)
    }

    /// The place of a function among the module's items; one of another module comes after all of
    /// them.
    pub(super) fn item(&self, function: &Function) -> usize {
        let same = |(_, candidate): &&(usize, &Function)| std::ptr::eq(*candidate, function);
        self.functions.iter().find(same).map_or(usize::MAX, |(item, _)| *item)
    }

    fn problem(&mut self, position: Position, message: String) {
        self.problems.push(Diagnostic::new(position, message));
    }

    fn variable(&mut self, index: usize, variable: &'m Variable) {
        let known = self.get(&variable.name);
        let is_external = |variable: &Variable| variable.linkage == Linkage::Extern;
        match known {
            None => {
                self.symbols.insert(&variable.name, (index, Global::Variable(variable)));
            }
            // A variable may be declared `.extern` and defined later.
            Some(Global::Variable(other)) if is_external(other) || is_external(variable) => {
                if !is_external(variable)
                    && let Some((_, global)) = self.symbols.get_mut(&*variable.name)
                {
                    *global = Global::Variable(variable);
                }
            }
            Some(_) => {
                let message = format!("`{}` is declared twice in this scope: rename one", variable.name);
                self.problem(variable.position, message);
            }
        }
    }

    fn function(&mut self, index: usize, function: &'m Function) {
        self.functions.push((index, function));
        match self.get(&function.name) {
            None => {
                self.symbols.insert(&function.name, (index, Global::Function(function)));
            }
            Some(Global::Function(other)) => {
                self.redeclaration(function, other);
                if other.body.is_none()
                    && let Some((_, global)) = self.symbols.get_mut(&*function.name)
                {
                    *global = Global::Function(function);
                }
            }
            Some(Global::Variable(_)) => {
                let message = format!("`{}` is a variable already: rename one", function.name);
                self.problem(function.position, message);
            }
        }
    }

    fn redeclaration(&mut self, function: &Function, other: &Function) {
        if function.body.is_some() && other.body.is_some() {
            let message = format!("`{}` is defined twice: remove or rename one", function.name);
            self.problem(function.position, message);
        }
        let counts = |function: &Function| (function.returns.len(), function.params.len());
        if counts(function) != counts(other) {
            let message = format!(
                "`{}` was declared with {} parameters and {} results, here it has {} and {}",
                function.name,
                other.params.len(),
                other.returns.len(),
                function.params.len(),
                function.returns.len()
            );
            self.problem(function.position, message);
        }
    }

    fn alias(&mut self, index: usize, name: &'m str, function: &str) {
        let Some(target @ Global::Function(_)) = self.get(function) else {
            let message = format!("`{name}` is an alias of `{function}`, which is no function");
            return self.problem(Position::default(), message);
        };
        self.symbols.entry(name).or_insert((index, target));
    }
}
