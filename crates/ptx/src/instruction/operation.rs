//! What a mnemonic says, whatever the operands are.

use super::class::Class;
use super::modifier::{Atomic, Cache, Comparison, Flag, Flags, Logic, Order, Rounding, Scope, Shuffle, Vote};
use super::opcode::Opcode;
use crate::forms;
use crate::syntax::tree::Mnemonic;
use crate::syntax::types::{ScalarType, StateSpace};

/// Most types that a mnemonic of the table has.
const TYPES: usize = 4;

/// A decoded mnemonic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operation {
    /// The opcode; none if no instruction has it.
    pub opcode: Option<Opcode>,
    /// Whether the first operand is written. All others are read.
    pub writes_first: bool,
    /// The first state space that is named; none for generic addresses.
    pub space: Option<StateSpace>,
    /// The number in `.v2`, `.v4`, `.v8`; 1 without.
    pub vector: u8,
    /// The number in `.x1`, `.x2`, …; 1 without.
    pub count: u8,
    /// The comparison of `setp` and `set`.
    pub comparison: Option<Comparison>,
    /// What `setp` and `set` combine their result by.
    pub logic: Option<Logic>,
    /// The rounding.
    pub rounding: Option<Rounding>,
    /// The lane that `shfl` reads.
    pub shuffle: Option<Shuffle>,
    /// What `vote` asks.
    pub vote: Option<Vote>,
    /// What `atom` and `red` do.
    pub atomic: Option<Atomic>,
    /// The memory order that is named.
    pub order: Option<Order>,
    /// The scope that is named.
    pub scope: Option<Scope>,
    /// The cache operator that is named.
    pub cache: Option<Cache>,
    /// Number of modifiers.
    pub modifiers: u8,
    types: [ScalarType; TYPES],
    type_count: u8,
    flags: Flags,
}

impl Operation {
    /// Decodes a mnemonic. One that the table of forms does not have is decoded as far as it goes.
    pub fn of(mnemonic: &Mnemonic) -> Operation {
        let opcode = Opcode::from_name(mnemonic.opcode());
        let mut operation = Operation {
            opcode,
            writes_first: writes_first(mnemonic, opcode),
            space: None,
            vector: 1,
            count: 1,
            comparison: None,
            logic: None,
            rounding: None,
            shuffle: None,
            vote: None,
            atomic: None,
            order: None,
            scope: None,
            cache: None,
            modifiers: 0,
            types: [ScalarType::B32; TYPES],
            type_count: 0,
            flags: Flags::default(),
        };
        mnemonic.modifiers().for_each(|word| operation.modifier(word));
        operation
    }

    fn modifier(&mut self, word: &str) {
        self.modifiers = self.modifiers.saturating_add(1);
        if let Some(ty) = ScalarType::from_name(word) {
            if usize::from(self.type_count) < TYPES {
                self.types[usize::from(self.type_count)] = ty;
                self.type_count += 1;
            }
            return;
        }
        if let Some(flag) = Flag::from_word(word) {
            self.flags.insert(flag);
        }
        let plain = word.split("::").next().unwrap_or(word);
        let numbered = |letter: char| word.strip_prefix(letter).and_then(|digits| digits.parse().ok());
        self.space = self.space.or_else(|| addressed_space(plain));
        self.vector = numbered('v').unwrap_or(self.vector);
        self.count = numbered('x').unwrap_or(self.count);
        self.rounding = self.rounding.or_else(|| Rounding::from_word(word));
        self.order = self.order.or_else(|| Order::from_word(word));
        self.scope = self.scope.or_else(|| Scope::from_word(word));
        self.cache = self.cache.or_else(|| Cache::from_word(word));
        match self.opcode {
            Some(Opcode::Setp | Opcode::Set) => {
                self.comparison = self.comparison.or_else(|| Comparison::from_word(word));
                self.logic = self.logic.or_else(|| Logic::from_word(word));
            }
            Some(Opcode::Shfl) => self.shuffle = self.shuffle.or_else(|| Shuffle::from_word(word)),
            Some(Opcode::Vote) => self.vote = self.vote.or_else(|| Vote::from_word(word)),
            Some(Opcode::Atom | Opcode::Red | Opcode::Redux | Opcode::Multimem | Opcode::Cp) => {
                self.atomic = self.atomic.or_else(|| Atomic::from_word(word));
            }
            _ => {}
        }
    }

    /// The types, in order.
    pub fn types(&self) -> &[ScalarType] {
        &self.types[..usize::from(self.type_count)]
    }

    /// Whether a flag is among the modifiers.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.has(flag)
    }

    /// Whether the opcode is one of these.
    pub fn is(&self, opcodes: &[Opcode]) -> bool {
        self.opcode.is_some_and(|opcode| opcodes.contains(&opcode))
    }

    /// The class.
    pub fn class(&self) -> Class {
        Class::of(self)
    }
}

/// The space of memory that a modifier names.
fn addressed_space(word: &str) -> Option<StateSpace> {
    use StateSpace::{Const, Global, Local, Param, Shared};
    StateSpace::from_name(word).filter(|space| matches!(space, Global | Shared | Local | Const | Param))
}

/// Whether the first operand is written: as the opcode's forms say where they agree, else as the mnemonic's own form
/// says. An instruction that the table does not have is taken to write what it names first.
fn writes_first(mnemonic: &Mnemonic, opcode: Option<Opcode>) -> bool {
    let all = forms::of(mnemonic.opcode());
    let written = all.iter().filter(|form| form.writes_first()).count();
    if opcode.is_some() && (written == 0 || written == all.len()) {
        return written > 0;
    }
    match forms::in_any_order(mnemonic.text()) {
        Ok(instances) => instances
            .iter()
            .any(|instance| instance.operands.first().is_some_and(forms::OperandForm::is_written)),
        Err(_) => true,
    }
}
