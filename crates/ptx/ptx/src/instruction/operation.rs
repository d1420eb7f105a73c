//! The meaning of a mnemonic, whatever the operands are.

use super::class::Class;
use super::modifier::{
    Atomic, Cache, Comparison, Flag, Flags, Geometry, Layout, Letter, Limit, Logic, Order, Part, Permutation,
    Phase, Property, Query, Rounding, Scope, Shuffle, Vote,
};
use super::opcode::Opcode;
use crate::forms;
use crate::syntax::tree::Mnemonic;
use crate::syntax::types::{ScalarType, StateSpace};

/// Most types that a mnemonic of the table has.
const TYPES: usize = 4;

macro_rules! operation {
    ($($(#[$doc:meta])* $field:ident: $ty:ty),* $(,)?) => {
        /// A decoded mnemonic.
        ///
        /// Each modifier is in exactly one place: a field, a type, a layout or a [`Flag`]. Who
        /// translates instructions takes what it understands out of a copy
        /// ([`take`](Operation::take) and its like), and refuses what is left.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Operation {
            /// The opcode; none if no instruction has it.
            pub opcode: Option<Opcode>,
            /// Whether the first operand is written. All others are read.
            pub writes_first: bool,
            $($(#[$doc])* pub $field: Option<$ty>,)*
            /// Modifiers that are in no other place: nobody asks for them, or they are none.
            pub unknown: u8,
            layouts: [Option<Layout>; 2],
            types: [ScalarType; TYPES],
            type_count: u8,
            flags: Flags,
        }

        impl Operation {
            /// An instruction without modifiers.
            fn plain(opcode: Option<Opcode>) -> Operation {
                Operation {
                    opcode,
                    writes_first: false,
                    $($field: None,)*
                    unknown: 0,
                    layouts: [None; 2],
                    types: [ScalarType::B32; TYPES],
                    type_count: 0,
                    flags: Flags::default(),
                }
            }

            /// Whether all modifiers have been taken.
            pub fn is_spent(&self) -> bool {
                let fields = [$(self.$field.is_some()),*];
                !fields.contains(&true)
                    && (self.unknown, self.type_count) == (0, 0)
                    && self.layouts == [None; 2]
                    && self.flags.is_empty()
            }

            /// Whether it has a modifier that the other one has too.
            fn meets(&self, other: &Operation) -> bool {
                let fields = [$(self.$field.is_some() && self.$field == other.$field),*];
                fields.contains(&true)
                    || self.unknown.min(other.unknown) > 0
                    || self.types().iter().any(|ty| other.types().contains(ty))
                    || self.layouts.iter().flatten().any(|layout| other.layouts.contains(&Some(*layout)))
                    || self.flags.meet(other.flags)
            }
        }
    };
}

operation! {
    /// The first state space that is named; none for generic addresses.
    space: StateSpace,
    /// The second one, of a copy: where it comes from.
    source_space: StateSpace,
    /// The number in `.v2`, `.v4`, `.v8`.
    vector: u8,
    /// The number in `.x1`, `.x2`, ….
    count: u8,
    /// Rows, columns and terms of a matrix product: the numbers in `.m16n8k16`; no terms where none
    /// are named.
    tile: [u16; 3],
    /// The comparison of `setp`, `set`, `vset`.
    comparison: Comparison,
    /// The operation that combines two predicates.
    logic: Logic,
    /// The rounding.
    rounding: Rounding,
    /// The part of a product that is kept.
    part: Part,
    /// The lane that `shfl` reads.
    shuffle: Shuffle,
    /// The question of `vote` or `match`.
    vote: Vote,
    /// The operation of `atom`, `red` and their variants; the second operation of video
    /// instructions.
    atomic: Atomic,
    /// The memory order that is named.
    order: Order,
    /// The scope that is named.
    scope: Scope,
    /// The cache operator that is named.
    cache: Cache,
    /// The treatment of an amount or a coordinate that is too large.
    limit: Limit,
    /// The dimensions of an image.
    geometry: Geometry,
    /// The letter of `wmma`, `tld4` and surface instructions.
    letter: Letter,
    /// The way in which `prmt` selects bytes.
    permutation: Permutation,
    /// The property that `testp` tests.
    property: Property,
    /// The attribute that `txq` and `suq` return.
    query: Query,
    /// The operation of `mbarrier`.
    phase: Phase,
}

/// Puts what a word means, if anything, into a field that has nothing yet; whether it did.
fn put<T>(field: &mut Option<T>, meaning: Option<T>) -> bool {
    let fits = field.is_none() && meaning.is_some();
    if fits {
        *field = meaning;
    }
    fits
}

impl Operation {
    /// Decodes a mnemonic. One that the table of forms does not have is decoded as far as it goes.
    pub fn of(mnemonic: &Mnemonic) -> Operation {
        let opcode = Opcode::from_name(mnemonic.opcode());
        let writes_first = writes_first(mnemonic, opcode);
        let mut operation = Operation { writes_first, ..Operation::plain(opcode) };
        mnemonic.modifiers().for_each(|word| operation.modifier(word));
        operation
    }

    fn modifier(&mut self, word: &str) {
        if let Some(ty) = ScalarType::from_name(word) {
            match usize::from(self.type_count) {
                TYPES => self.unknown = self.unknown.saturating_add(1),
                count => {
                    self.types[count] = ty;
                    self.type_count += 1;
                }
            }
        } else if !(self.own(word) || self.common(word)) {
            match Flag::from_word(word) {
                Some(flag) => self.flags.insert(flag),
                None => self.unknown = self.unknown.saturating_add(1),
            }
        }
    }

    /// A modifier that means something to this opcode only.
    fn own(&mut self, word: &str) -> bool {
        use Opcode::*;
        let Some(opcode) = self.opcode else { return false };
        match opcode {
            Setp | Set | Vset | Vset2 | Vset4 if put(&mut self.comparison, Comparison::from_word(word)) => {
                true
            }
            Setp | Set | Lop3 | Mma | Wmma | Bar | Barrier => put(&mut self.logic, Logic::from_word(word)),
            Shfl => put(&mut self.shuffle, Shuffle::from_word(word)),
            Vote | Match => put(&mut self.vote, super::modifier::Vote::from_word(word)),
            Atom | Red | Redux | Multimem | Cp | Sured => put(&mut self.atomic, Atomic::from_word(word)),
            Vadd | Vsub | Vabsdiff | Vmin | Vmax | Vshl | Vshr | Vset | Vadd2 | Vadd4 | Vsub2 | Vsub4
            | Vabsdiff2 | Vabsdiff4 | Vmin2 | Vmin4 | Vmax2 | Vmax4 | Vavrg2 | Vavrg4 | Vset2 | Vset4 => {
                put(&mut self.atomic, Atomic::from_word(word))
            }
            Prmt => put(&mut self.permutation, Permutation::from_word(word)),
            Testp => put(&mut self.property, Property::from_word(word)),
            Txq | Suq => put(&mut self.query, Query::from_word(word)),
            Mbarrier => put(&mut self.phase, Phase::from_word(word)),
            _ => false,
        }
    }

    /// A modifier that means the same wherever it stands.
    fn common(&mut self, word: &str) -> bool {
        use Opcode::{Bar, Barrier, Suld, Suq, Sured, Sust, Tex, Tld4, Txq, Wmma};
        let numbered = |letter: char| word.strip_prefix(letter).and_then(|digits| digits.parse().ok());
        let space = addressed_space(word.split("::").next().unwrap_or(word));
        if put(&mut self.space, space) || put(&mut self.source_space, space) {
            if word == "param::func" {
                self.flags.insert(Flag::FunctionParameter);
            }
            return true;
        }
        if self.is(&[Wmma, Tld4, Suld, Sust, Sured]) && put(&mut self.letter, Letter::from_word(word)) {
            return true;
        }
        if self.is(&[Tex, Tld4, Txq, Suq, Suld, Sust, Sured])
            && put(&mut self.geometry, Geometry::from_word(word))
        {
            return true;
        }
        // `barrier.cluster` is another barrier, not a scope.
        let scope =
            Scope::from_word(word).filter(|scope| *scope != Scope::Cluster || !self.is(&[Bar, Barrier]));
        let layout = Layout::from_word(word);
        put(&mut self.vector, numbered('v'))
            || put(&mut self.count, numbered('x'))
            || put(&mut self.tile, tile(word))
            || put(&mut self.rounding, Rounding::from_word(word))
            || put(&mut self.part, Part::from_word(word))
            || put(&mut self.order, Order::from_word(word))
            || put(&mut self.scope, scope)
            || put(&mut self.cache, Cache::from_word(word))
            || put(&mut self.limit, Limit::from_word(word))
            || self.layouts.iter_mut().any(|field| put(field, layout))
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

    /// Takes a flag; whether it was there.
    pub fn take(&mut self, flag: Flag) -> bool {
        self.flags.take(flag)
    }

    /// Takes the first of these flags that is there.
    pub fn take_one(&mut self, flags: &[Flag]) -> Option<Flag> {
        flags.iter().copied().find(|flag| self.take(*flag))
    }

    /// Takes the first type.
    pub fn take_type(&mut self) -> Option<ScalarType> {
        let first = self.types().first().copied()?;
        self.types.rotate_left(1);
        self.type_count -= 1;
        Some(first)
    }

    /// Takes the first state space.
    pub fn take_space(&mut self) -> Option<StateSpace> {
        self.take(Flag::FunctionParameter);
        let first = self.space.take();
        self.space = self.source_space.take();
        first
    }

    /// Takes the first layout.
    pub fn take_layout(&mut self) -> Option<Layout> {
        let first = self.layouts[0].take();
        self.layouts.rotate_left(1);
        first
    }

    /// Takes all modifiers.
    pub fn take_all(&mut self) {
        *self = Operation { writes_first: self.writes_first, ..Operation::plain(self.opcode) };
    }

    /// The first modifier of the mnemonic that has not been taken.
    pub fn left<'i>(&self, mnemonic: &'i Mnemonic) -> Option<&'i str> {
        mnemonic.modifiers().find(|word| {
            let mut one = Operation::plain(self.opcode);
            one.modifier(word);
            self.meets(&one)
        })
    }
}

/// The numbers in `m16n8k16` or `m8n8`.
fn tile(word: &str) -> Option<[u16; 3]> {
    let (rows, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (columns, terms) = rest.split_once('k').unwrap_or((rest, "0"));
    Some([rows.parse().ok()?, columns.parse().ok()?, terms.parse().ok()?])
}

/// The space of memory that a modifier names.
fn addressed_space(word: &str) -> Option<StateSpace> {
    use StateSpace::{Const, Global, Local, Param, Shared};
    StateSpace::from_name(word).filter(|space| matches!(space, Global | Shared | Local | Const | Param))
}

/// Whether the first operand is written: as the opcode's forms say where they agree, else as the
/// mnemonic's own form says. An instruction that the table does not have is taken to write what it
/// names first.
fn writes_first(mnemonic: &Mnemonic, opcode: Option<Opcode>) -> bool {
    let all = forms::of_opcode(mnemonic.opcode());
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
