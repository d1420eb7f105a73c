//! Scopes: the meaning of a name at a place of a function.
//!
//! The rules are in the [module](super). A scope is a pair of braces; parameters stand in the
//! outermost.

use std::collections::HashMap;

use super::{LabelId, Symbol, TableId, VariableId};
use crate::syntax::tree::Prototype;

/// A declaration in a scope.
#[derive(Clone, Copy, Debug)]
pub(super) enum Declared<'m> {
    /// Registers, by the number of their declaration; [`super::resolve`] makes each when it is
    /// first mentioned.
    Registers(u32),
    Variable(VariableId),
    Prototype(&'m Prototype),
    BranchTargets(TableId),
    CallTargets(TableId),
}

impl<'m> Declared<'m> {
    /// The symbol, of everything but registers.
    pub(super) fn symbol(self) -> Option<Symbol<'m>> {
        match self {
            Declared::Registers(_) => None,
            Declared::Variable(variable) => Some(Symbol::Variable(variable)),
            Declared::Prototype(prototype) => Some(Symbol::Prototype(prototype)),
            Declared::BranchTargets(table) => Some(Symbol::BranchTargets(table)),
            Declared::CallTargets(table) => Some(Symbol::CallTargets(table)),
        }
    }
}

/// The names of one pair of braces.
#[derive(Default)]
pub(super) struct Scope<'m> {
    plain: HashMap<&'m str, Declared<'m>>,
    /// `name<count>` by what stands before the brackets.
    numbered: HashMap<&'m str, (u32, Declared<'m>)>,
    /// The lowest number at the end of plain names, by what stands before it.
    lowest: HashMap<&'m str, u32>,
    /// Labels, those included that stand further down.
    pub(super) labels: HashMap<&'m str, LabelId>,
}

impl<'m> Scope<'m> {
    /// Declares `name`, or `name0` to `name(count-1)`; whether the scope had declared one of them.
    pub(super) fn declare(&mut self, name: &'m str, count: Option<u32>, what: Declared<'m>) -> bool {
        match count {
            None => {
                let known = self.find(name).is_some();
                self.plain.insert(name, what);
                if let Some((prefix, number)) = split_number(name) {
                    let lowest = self.lowest.entry(prefix).or_insert(number);
                    *lowest = number.min(*lowest);
                }
                known
            }
            Some(count) => {
                let is_member = self.lowest.get(name).is_some_and(|lowest| *lowest < count);
                let known = is_member || self.numbered.contains_key(name);
                self.numbered.entry(name).or_insert((count, what));
                known
            }
        }
    }

    /// Returns the declaration of `name` in this scope alone, so far, and its number in a
    /// parameterised declaration.
    pub(super) fn find(&self, name: &str) -> Option<(Declared<'m>, u32)> {
        if let Some(&plain) = self.plain.get(name) {
            return Some((plain, 0));
        }
        let (prefix, number) = split_number(name)?;
        let &(count, numbered) = self.numbered.get(prefix)?;
        (number < count).then_some((numbered, number))
    }
}

/// `%r12` as `%r` and 12, and so is `%r012`; none where no digits stand at the end.
pub(super) fn split_number(name: &str) -> Option<(&str, u32)> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (prefix, number) = name.split_at(name.len() - digits);
    Some((prefix, number.parse().ok()?))
}
