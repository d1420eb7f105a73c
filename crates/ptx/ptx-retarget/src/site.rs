//! An instruction that is to be lowered, as rows look at it.

use ptx::ScalarType;
use ptx::body::{Base, Body, Line, Symbol};
use ptx::syntax::tree::{AddressBase, Operand};

/// An instruction with its words and operands.
pub(crate) struct Site<'s, 'm> {
    pub(crate) body: &'s Body<'m>,
    pub(crate) line: &'s Line<'m>,
    /// Opcode and modifiers.
    pub(crate) words: Vec<&'m str>,
}

impl<'s, 'm> Site<'s, 'm> {
    pub(crate) fn new(body: &'s Body<'m>, line: &'s Line<'m>) -> Self {
        Site { body, line, words: line.instruction.mnemonic.text().split('.').collect() }
    }

    pub(crate) fn opcode(&self) -> &'m str {
        self.words[0]
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.words[1..].contains(&word)
    }

    /// The last modifier, which is the type of most instructions.
    pub(crate) fn last(&self) -> &'m str {
        self.words[self.words.len() - 1]
    }

    /// `.word`, or nothing.
    pub(crate) fn dotted(&self, word: &str) -> String {
        if self.has(word) { format!(".{word}") } else { String::new() }
    }

    /// The rounding, dot included; to nearest if the instruction names none.
    pub(crate) fn rounding(&self) -> String {
        let named = self.words.iter().find(|word| matches!(**word, "rn" | "rz" | "rm" | "rp"));
        format!(".{}", named.unwrap_or(&"rn"))
    }

    /// The mnemonic with other words: `change` gives the word in place of each, or `None` to leave
    /// it out.
    pub(crate) fn rewritten(&self, change: impl Fn(&'m str) -> Option<&'m str>) -> String {
        let kept: Vec<&str> = self.words.iter().filter_map(|word| change(word)).collect();
        kept.join(".")
    }

    pub(crate) fn operands(&self) -> &'m [Operand] {
        &self.line.instruction.operands
    }

    /// The text of an operand.
    pub(crate) fn operand(&self, index: usize) -> Option<String> {
        self.operands().get(index).map(ToString::to_string)
    }

    /// The texts of the operands from `start` on, with commas.
    pub(crate) fn rest(&self, start: usize) -> String {
        let rest: Vec<String> =
            self.operands()[start.min(self.operands().len())..].iter().map(ToString::to_string).collect();
        rest.join(", ")
    }

    /// The elements of a vector operand.
    pub(crate) fn elements(&self, index: usize) -> Option<&'m [Operand]> {
        match self.operands().get(index)? {
            Operand::Vector(items) => Some(items),
            _ => None,
        }
    }

    /// The text of an address operand, `bytes` further.
    pub(crate) fn address(&self, index: usize, bytes: i64) -> Option<String> {
        let Operand::Address(address) = self.operands().get(index)? else { return None };
        let moved =
            ptx::syntax::tree::Address { offset: address.offset.checked_add(bytes)?, ..address.clone() };
        Some(moved.to_string())
    }

    /// The register from which an address starts: its text and its type.
    pub(crate) fn base_register(&self, index: usize) -> Option<(String, ScalarType)> {
        let Operand::Address(address) = self.operands().get(index)? else { return None };
        let AddressBase::Name(name) = &address.base else { return None };
        let (Base::Name(Symbol::Register(id)), _) = self.line.operands.get(index)?.place()? else {
            return None;
        };
        Some((name.to_string(), self.body.registers[id.index()].declaration?.ty))
    }

    /// The offset of an address operand in bytes.
    pub(crate) fn offset(&self, index: usize) -> i64 {
        match self.operands().get(index) {
            Some(Operand::Address(address)) => address.offset,
            _ => 0,
        }
    }
}
