//! Every form of every PTX instruction: one table, written in the notation below, that the
//! verifier, the coverage of the CPU device and the differential tester all read.
//!
//! The table is the text of `tables/`, a file for each chapter of the ISA. It was written from the
//! PTX ISA reference (up to 9.0) and is held to ptxas by `tests/forms.rs`: ptxas accepts every
//! instance of every form at the version and target that the table states.
//!
//! ```
//! use ptx::forms;
//! let instances = forms::named("add.sat.s32").unwrap();
//! assert_eq!(instances[0].operands.len(), 3);
//! assert!(forms::named("add.sat.f64").is_err());
//! let all: usize = forms::all().iter().map(|form| form.instances().len()).sum();
//! assert!(all > 1000);
//! ```
//!
//! # Notation
//!
//! A line is a form: mnemonic, operands, ` | `, and what it needs. Lines that start with a blank
//! continue the one before; lines that start with `#` are comments.
//!
//! ```text
//! let INTEGER = .u16|.u32|.u64|.s16|.s32|.s64
//! add{.sat}.s32       d:s32, a:s32, b:s32      | 1.0 sm_10
//! add<T=INTEGER>      d:T, a:T, b:T            | 1.0 sm_10
//! ```
//!
//! In a mnemonic, `<…|…>` is one of several modifiers and `{…|…}` one of several or none; both may
//! hold sequences and nest. `<T=…>` gives what was chosen a name. A choice that needs more than the
//! line says so after an `@`: `{.relu@7.0/sm_80}`. `let` names a list of choices.
//!
//! An operand is `name:kind`. Names that start with `d` are written, all others read. `name?:kind`
//! may be missing; `name?X:kind` is there if and only if the group named `X` chose something.
//! Kinds:
//!
//! | kind | operand |
//! | --- | --- |
//! | `u32`, `T` | register of that type (of the type that `T` chose); where it is read, also a constant |
//! | `u32!` | register only |
//! | `u32+` | register of that type or wider, as loads, stores and conversions allow |
//! | `u32&` | also the address of a variable, function or label |
//! | `sink` | `_` |
//! | `d:u32_` | register, or `_` where the result is not wanted |
//! | `wide(T)`, `bits(T)` | the integer twice as wide; untyped bits of the same width |
//! | `T*4`, `T*V` | `{…}` of four; of as many as `V` chose (the number in `.v2`, `.x4`, `.3d`), a plain operand if none |
//! | `T*V*2`, `T*N/4` | `{…}` of a multiple or part of that; of `.m64n128k16` the number after `n` counts |
//! | `pred` | predicate; where it is read, also `!p` |
//! | `d:s32{\|pred}`, `d:s32\|pred` | a second destination, optional or not |
//! | `imm(0..255)` | an integer constant in that range |
//! | `[S]`, `[global]`, `[]` | an address in the space that `S` chose, in that one, generic |
//! | `[tensor]` | an address in tensor memory, which has 32 bits |
//! | `[; s32*2]`, `[surf; s32*2]` | an address or surface with further operands inside the brackets |
//! | `[tex; s32*2]` | a texture, which a sampler may follow, with further operands |
//! | `part(u32)`, `halves(u32)`, `bytes(u32)` | register that may carry a selector: `.b0` or `.h1`; `.h10`; `.b3210` |
//! | `label`, `function`, `list`, `targets`, `table` | a branch target; a callee; `(a, b)`; a label of `.branchtargets`; one of `.calltargets` or `.callprototype` |
//!
//! Needs are `version target`; several, separated by ` or ` (after an `@` by `+`), are
//! alternatives. The version is never below the one that introduced the target. `needs NAME = …`
//! names them.

mod expand;
mod notation;
mod target;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::syntax::{ScalarType, StateSpace};
use notation::Part;
pub use target::{NEWEST, Need, Suffix, Target, Version};

/// The chapters: name and table.
const CHAPTERS: &[(&str, &str)] = &[
    ("integer arithmetic", include_str!("tables/integer.txt")),
    ("floating point", include_str!("tables/floating.txt")),
    ("half precision", include_str!("tables/half.txt")),
    ("comparison and selection", include_str!("tables/compare.txt")),
    ("logic and shift", include_str!("tables/logic.txt")),
    ("conversion", include_str!("tables/conversion.txt")),
    ("data movement", include_str!("tables/movement.txt")),
    ("control flow", include_str!("tables/control.txt")),
    ("warps", include_str!("tables/warp.txt")),
    ("synchronisation and atomics", include_str!("tables/synchronisation.txt")),
    ("asynchronous copies", include_str!("tables/asynchronous.txt")),
    ("matrices", include_str!("tables/matrix.txt")),
    ("warp groups and tensor memory", include_str!("tables/tensor.txt")),
    ("textures and surfaces", include_str!("tables/texture.txt")),
    ("video", include_str!("tables/video.txt")),
];

/// A line of the table.
#[derive(Debug)]
pub struct Form {
    /// Name of its chapter.
    pub chapter: &'static str,
    /// The opcode: what its mnemonics have before the first dot.
    pub opcode: &'static str,
    /// The line as it stands in the table.
    pub text: &'static str,
    parts: Vec<Part>,
    operands: Vec<notation::Operand>,
    needs: Vec<Need>,
}

/// A form with every choice made: one mnemonic, its operands and what it needs.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The form.
    pub form: &'static Form,
    /// The whole mnemonic: `add.sat.s32`.
    pub mnemonic: String,
    /// Its operands, in order; some may be optional.
    pub operands: Vec<OperandForm>,
    /// PTX version and target, any of which will do.
    pub needs: Vec<Need>,
}

/// The operand that an instance requires at a place.
#[derive(Clone, Debug, PartialEq)]
pub struct OperandForm {
    /// Name in the table: `d`, `a`, `b`, ….
    pub name: &'static str,
    /// Whether it may be missing.
    pub optional: bool,
    /// The kind of operand.
    pub kind: Kind,
}

impl OperandForm {
    /// Whether the instruction writes it.
    pub fn is_written(&self) -> bool {
        self.name.starts_with('d')
    }
}

/// The kind of an operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A register, or where `constant` a number too.
    Value {
        /// The type that the instruction gives it.
        ty: ScalarType,
        /// Whether it may be a number.
        constant: bool,
        /// Whether the register may be wider than the type.
        wider: bool,
        /// Whether it may be the address of a variable or function.
        symbol: bool,
        /// Whether `_` may stand for it.
        sink: bool,
    },
    /// A register with or without a selector of bytes or halves.
    Selected(ScalarType, Selector),
    /// `{ … }` of this number of operands.
    Vector(Box<Kind>, usize),
    /// `_`: there is a result, but it cannot be had.
    Sink,
    /// A predicate.
    Predicate,
    /// `d|p`; the second may be missing where the flag is set.
    Pair(Box<Kind>, Box<Kind>, bool),
    /// A constant within the bounds, both included.
    Immediate(i64, i64),
    /// `[address, rest…]`.
    Address {
        /// Its space; generic if none.
        space: Option<StateSpace>,
        /// Whether it is a texture, which a sampler may follow.
        sampler: bool,
        /// The operands after the address inside the brackets.
        rest: Vec<Kind>,
    },
    /// `[address]` in tensor memory: 32 bits.
    TensorAddress,
    /// A label.
    Label,
    /// A function, or a register that holds its address.
    Function,
    /// `(a, b)`: what a call passes or gets.
    List,
    /// A label of `.branchtargets`.
    Targets,
    /// A label of `.calltargets` or `.callprototype`.
    Table,
}

/// The selectors that the operand of a video instruction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `.b0` to `.b3`, `.h0`, `.h1`.
    Part,
    /// Halves: read `.h` and two digits from 0 to 3; written `.h0`, `.h1`, `.h10`.
    Halves,
    /// Bytes: read `.b` and four digits from 0 to 7; written `.b` and falling digits from 3 to 0.
    Bytes,
}

/// The reason why no form matches a mnemonic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// No instruction has this opcode.
    Opcode,
    /// The opcode exists; this modifier stands where none of its forms has it.
    Modifier(String),
    /// The opcode exists; the modifiers are fine so far, but some are missing at the end.
    Incomplete,
}

static TABLE: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let forms = CHAPTERS.iter().map(|(chapter, text)| notation::read(chapter, text));
    forms
        .collect::<Result<Vec<_>, _>>()
        .unwrap_or_else(|error| unreachable!("{error}"))
        .into_iter()
        .flatten()
        .collect()
});

static BY_OPCODE: LazyLock<HashMap<&'static str, Vec<&'static Form>>> = LazyLock::new(|| {
    let mut map: HashMap<_, Vec<_>> = HashMap::new();
    for form in all() {
        map.entry(form.opcode).or_default().push(form);
    }
    map
});

/// The table.
pub fn all() -> &'static [Form] {
    &TABLE
}

/// The forms of an opcode; none if no instruction has it.
pub fn of_opcode(opcode: &str) -> &'static [&'static Form] {
    BY_OPCODE.get(opcode).map_or(&[], Vec::as_slice)
}

/// The instances whose mnemonic is `mnemonic` (several where an opcode takes different operands),
/// or why there is none.
pub fn named(mnemonic: &str) -> Result<Vec<Instance>, Unknown> {
    let mut words = mnemonic.split('.');
    let forms = of_opcode(words.next().unwrap_or(""));
    if forms.is_empty() {
        return Err(Unknown::Opcode);
    }
    let words: Vec<&str> = words.collect();
    let mut furthest = 0;
    let found: Vec<_> = forms.iter().flat_map(|form| form.matching(&words, &mut furthest)).collect();
    match (found.is_empty(), words.get(furthest)) {
        (false, _) => Ok(found),
        (true, Some(word)) => Err(Unknown::Modifier((*word).to_owned())),
        (true, None) => Err(Unknown::Incomplete),
    }
}

/// As [`named`], but where no form has the modifiers in this order, in another that keeps types and
/// layouts in theirs: ptxas takes `atom.global.gpu.acq_rel.cas.b32`, where the ISA has the order
/// first, and modifiers that are repeated.
pub fn in_any_order(mnemonic: &str) -> Result<Vec<Instance>, Unknown> {
    let exact = named(mnemonic);
    if !matches!(exact, Err(Unknown::Modifier(_) | Unknown::Incomplete)) {
        return exact;
    }
    let mut words = mnemonic.split('.');
    let forms = of_opcode(words.next().unwrap_or(""));
    let mut distinct: Vec<&str> = Vec::new();
    for word in words {
        if !(distinct.contains(&word) && expand::is_repeatable(word)) {
            distinct.push(word);
        }
    }
    let found: Vec<_> = forms.iter().flat_map(|form| form.permuted(&distinct)).collect();
    if found.is_empty() { exact } else { Ok(found) }
}

impl Form {
    /// Whether the first operand of its instances is written. No further operand is: `d|p` is one.
    pub(crate) fn writes_first(&self) -> bool {
        self.operands.first().is_some_and(notation::Operand::is_written)
    }

    /// Every instance of the form.
    pub fn instances(&'static self) -> Vec<Instance> {
        expand::expand(&self.parts, &self.needs).iter().map(|choice| self.instance(choice)).collect()
    }

    /// The instances with exactly these modifiers. `furthest` becomes the number of words that some
    /// form understood, if that is more than it was.
    fn matching(&'static self, words: &[&str], furthest: &mut usize) -> Vec<Instance> {
        let found = expand::matching(&self.parts, &self.needs, words, furthest);
        found.iter().map(|choice| self.instance(choice)).collect()
    }

    /// The instances with these modifiers in any order.
    fn permuted(&'static self, words: &[&str]) -> Vec<Instance> {
        expand::permuted(&self.parts, &self.needs, words).iter().map(|choice| self.instance(choice)).collect()
    }

    fn instance(&'static self, choice: &expand::Choice) -> Instance {
        let mut mnemonic = self.opcode.to_owned();
        for word in &choice.words {
            mnemonic.push('.');
            mnemonic.push_str(word);
        }
        let operands = self.operands.iter().filter_map(|operand| operand.choose(choice)).collect();
        Instance { form: self, mnemonic, operands, needs: choice.needs.clone() }
    }
}
