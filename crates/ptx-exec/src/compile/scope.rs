//! Bodies of functions as flat lists of instructions, and what names mean in them.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::code::Source;
use ptx::{Function, Instruction, Name, Prototype, ScalarType, StateSpace, Statement, Variable};

/// What a name of a function's body stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Symbol<'m> {
    /// A register; `Reg`s are made when it is first used.
    Register {
        ty: ScalarType,
        vector: u8,
    },
    /// A variable in another space.
    Variable(&'m Variable),
    /// The line that follows the label.
    Label(usize),
    Prototype(&'m Prototype),
    BranchTargets(&'m [Name]),
    CallTargets(&'m [Name]),
}

/// An instruction with its surroundings.
pub(super) struct Line<'m> {
    pub(super) instruction: &'m Instruction,
    pub(super) scope: usize,
    /// The last `.loc`.
    pub(super) source: Option<Source>,
}

#[derive(Default)]
struct Scope<'m> {
    parent: Option<usize>,
    symbols: HashMap<&'m str, Symbol<'m>>,
    /// `%r<count>`: by prefix.
    numbered: HashMap<&'m str, (u32, Symbol<'m>)>,
}

/// A function's body.
#[derive(Default)]
pub(super) struct Body<'m> {
    pub(super) lines: Vec<Line<'m>>,
    scopes: Vec<Scope<'m>>,
    /// Variables that take memory, in source order, with the scope that declares them.
    pub(super) variables: Vec<(usize, &'m Variable)>,
}

impl<'m> Body<'m> {
    pub(super) fn new(function: &'m Function) -> Self {
        let mut body = Body { scopes: vec![Scope::default()], ..Body::default() };
        for parameter in function.returns.iter().chain(&function.params) {
            body.declare(0, parameter);
        }
        let mut source = None;
        // Scopes that are open: what is left of each, and its index. The parser bounds how deep they nest.
        let mut open = vec![(function.body.as_deref().unwrap_or_default().iter(), 0)];
        while let Some((statements, scope)) = open.last_mut() {
            let scope = *scope;
            match statements.next() {
                None => {
                    open.pop();
                }
                Some(Statement::Block(inner)) => {
                    body.scopes.push(Scope { parent: Some(scope), ..Scope::default() });
                    open.push((inner.iter(), body.scopes.len() - 1));
                }
                Some(Statement::Location(location)) => {
                    let inlined_at = location.inlined.as_ref().map(|inlined| (inlined.file, inlined.line));
                    let this = Source { at: (location.file, location.line), inlined_at };
                    source = (location.line != 0).then_some(this).or(source);
                }
                Some(statement) => body.statement(scope, source, statement),
            }
        }
        body
    }

    fn statement(&mut self, scope: usize, source: Option<Source>, statement: &'m Statement) {
        let next = self.lines.len();
        match statement {
            Statement::Instruction(instruction) => self.lines.push(Line { instruction, scope, source }),
            Statement::Label(name, _) => self.insert(scope, name, Symbol::Label(next)),
            Statement::Variable(variable) => self.declare(scope, variable),
            Statement::Prototype(prototype) => {
                self.insert(scope, &prototype.name, Symbol::Prototype(prototype))
            }
            Statement::BranchTargets(name, targets) => {
                self.insert(scope, name, Symbol::BranchTargets(targets))
            }
            Statement::CallTargets(name, targets) => self.insert(scope, name, Symbol::CallTargets(targets)),
            Statement::Pragma(_) | Statement::Block(_) | Statement::Location(_) => {}
        }
    }

    fn insert(&mut self, scope: usize, name: &'m Name, symbol: Symbol<'m>) {
        self.scopes[scope].symbols.insert(name, symbol);
    }

    fn declare(&mut self, scope: usize, variable: &'m Variable) {
        let symbol = match variable.space {
            StateSpace::Reg => Symbol::Register { ty: variable.ty, vector: variable.vector },
            _ => {
                self.variables.push((scope, variable));
                Symbol::Variable(variable)
            }
        };
        match variable.count {
            Some(count) => {
                self.scopes[scope].numbered.insert(&variable.name, (count, symbol));
            }
            None => self.insert(scope, &variable.name, symbol),
        }
    }

    /// The one name of what `scope` declares as `name`: `%r12` for `%r012` where the declaration is `%r<20>`.
    pub(super) fn canonical_name<'n>(&self, scope: usize, name: &'n str) -> Cow<'n, str> {
        match split_number(name) {
            Some((prefix, number)) if !self.scopes[scope].symbols.contains_key(name) => {
                format!("{prefix}{number}").into()
            }
            _ => name.into(),
        }
    }

    /// The meaning of `name` in `scope`, and the scope that declares it.
    pub(super) fn lookup(&self, mut scope: usize, name: &str) -> Option<(usize, Symbol<'m>)> {
        let numbered = split_number(name);
        loop {
            let here = &self.scopes[scope];
            if let Some(symbol) = here.symbols.get(name) {
                return Some((scope, *symbol));
            }
            if let Some((prefix, number)) = numbered
                && let Some((count, symbol)) = here.numbered.get(prefix)
                && number < *count
            {
                return Some((scope, *symbol));
            }
            scope = here.parent?;
        }
    }
}

/// `%r12` as `%r` and 12, and so is `%r012`.
fn split_number(name: &str) -> Option<(&str, u32)> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (prefix, number) = name.split_at(name.len() - digits);
    Some((prefix, number.parse().ok()?))
}
