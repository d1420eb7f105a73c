//! What a thread has stored stays in a register, so that the second kernel need not load it.
//!
//! For each width of 2, 4 and 8 bytes there is one *slot*: the address of the last store of that
//! width, and its value. A load of the second kernel compares its address with the slot's, and
//! takes the value instead of loading where they are equal.
//!
//! # Invariants
//! 1. *Nothing depends on an analysis of addresses.* They are compared when the kernel runs.
//! 2. A slot is what memory holds there, as far as the thread itself changes it: each store of
//!    another width, or in another form, empties the slots. What other threads store, the proof
//!    keeps away from this thread's addresses.
//! 3. Values keep their bits: a load and a store of one width move registers of that width, which
//!    the verifier checks afterwards.

use crate::NAME;
use crate::joined::instruction;

use ptx::syntax::tree::{
    Address, AddressBase, Constant, Function, Instruction, Item, Linkage, Name, Operand, Predicate,
    Statement, Variable,
};
use ptx::syntax::{Module, ScalarType, StateSpace};

/// Widths of slots in bytes, and the types of their registers.
const WIDTHS: [(u64, ScalarType); 3] = [(2, ScalarType::B16), (4, ScalarType::B32), (8, ScalarType::B64)];
/// The address of an empty slot: no load of two bytes or more may have it.
const EMPTY: i128 = 1;
/// Most loads and stores that are rewritten.
const MOST: usize = 256;

/// The module of a joined kernel in which loads of the second kernel take what was stored from
/// registers; `None` if none could.
pub(crate) fn forwarded(module: &Module) -> Option<Module> {
    let mut module = module.clone();
    let [Item::Function(function)] = &mut module.items[..] else { return None };
    let body = function.body.as_mut()?;
    let mut blocks = body.iter_mut().filter_map(|statement| match statement {
        Statement::Block(inner) => Some(inner),
        _ => None,
    });
    let (first, second) = (blocks.next()?, blocks.next()?);
    let slots = Slots::of(first, second)?;
    *first = slots.rewritten(first, false);
    *second = slots.rewritten(second, true);
    let mut begun = slots.declared(function);
    let body = function.body.as_mut()?;
    begun.append(body);
    *body = begun;
    Some(module)
}

/// An access to global memory in a form that is rewritten: its width, and its type as text.
struct Plain<'i> {
    bytes: u64,
    ty: &'i str,
    address: &'i Address,
    value: &'i Operand,
}

/// A load or store of one register, with no more than a hint for the caches.
fn plain<'i>(known: &'i Instruction, opcode: &str) -> Option<Plain<'i>> {
    const HINTS: [&str; 6] = ["ca", "cg", "cs", "lu", "wb", "wt"];
    let mut modifiers = known.mnemonic.modifiers();
    let ty = modifiers.next_back()?;
    let is_global = modifiers.next() == Some("global");
    let bytes = match ty {
        "b16" | "u16" | "s16" => 2,
        "b32" | "u32" | "s32" | "f32" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        _ => return None,
    };
    let operands = match opcode {
        "st" => known.operands.first().zip(known.operands.get(1)),
        _ => known.operands.get(1).zip(known.operands.first()),
    };
    let (Operand::Address(address), value) = operands? else { return None };
    let is_register = matches!(address.base, AddressBase::Name(_)) && address.rest.is_empty();
    let is_one = matches!(value, Operand::Name(_) | Operand::Constant(_)) && known.operands.len() == 2;
    let is_it = known.mnemonic.opcode() == opcode && is_global && modifiers.all(|one| HINTS.contains(&one));
    (is_it && is_register && is_one).then_some(Plain { bytes, ty, address, value })
}

/// Whether an instruction may change memory that other loads read.
fn writes(known: &Instruction) -> bool {
    let text = known.mnemonic.text();
    let is_own = text.starts_with("st.local") || text.starts_with("st.param");
    matches!(known.mnemonic.opcode(), "st" | "red" | "atom") && !is_own
}

fn visit(statements: &[Statement], see: &mut impl FnMut(&Instruction)) {
    for statement in statements {
        match statement {
            Statement::Block(inner) => visit(inner, see),
            Statement::Instruction(known) => see(known),
            _ => {}
        }
    }
}

/// The widths that have a slot.
struct Slots(Vec<(u64, ScalarType)>);

impl Slots {
    /// Those of which the first kernel stores and the second one loads.
    fn of(first: &[Statement], second: &[Statement]) -> Option<Self> {
        let (mut stored, mut loaded) = (Vec::new(), Vec::new());
        visit(first, &mut |known| stored.extend(plain(known, "st").map(|store| store.bytes)));
        visit(second, &mut |known| loaded.extend(plain(known, "ld").map(|load| load.bytes)));
        let is_shared = |width: &(u64, ScalarType)| stored.contains(&width.0) && loaded.contains(&width.0);
        let slots: Vec<_> = WIDTHS.into_iter().filter(is_shared).collect();
        (!slots.is_empty() && stored.len() + loaded.len() <= MOST).then_some(Self(slots))
    }

    /// The registers, and the slots empty.
    fn declared(&self, function: &Function) -> Vec<Statement> {
        let Some(like) = function.params.first() else { return Vec::new() };
        let register = |name: Name, ty: ScalarType| {
            Statement::Variable(Variable {
                linkage: Linkage::Internal,
                space: StateSpace::Reg,
                attributes: Vec::new(),
                align: None,
                vector: 1,
                ty,
                pointer: None,
                name,
                count: None,
                dimensions: Vec::new(),
                initializer: None,
                ..like.clone()
            })
        };
        let mut all = vec![register(there(), ScalarType::B64), register(hit(), ScalarType::Pred)];
        for &(bytes, ty) in &self.0 {
            all.push(register(at(bytes), ScalarType::B64));
            all.push(register(value(bytes), ty));
        }
        all.extend(self.0.iter().map(|&(bytes, _)| emptied(bytes, None)));
        all
    }

    fn rewritten(&self, statements: &[Statement], loads: bool) -> Vec<Statement> {
        let mut all = Vec::new();
        for statement in statements {
            match statement {
                Statement::Block(inner) => all.push(Statement::Block(self.rewritten(inner, loads))),
                Statement::Instruction(known) if writes(known) => {
                    all.push(statement.clone());
                    self.store(known, &mut all);
                }
                Statement::Instruction(known) => {
                    let load = plain(known, "ld").filter(|load| loads && self.has(load.bytes));
                    match load {
                        Some(load) => self::load(known, &load, &mut all),
                        None => all.push(statement.clone()),
                    }
                }
                other => all.push(other.clone()),
            }
        }
        all
    }

    fn has(&self, bytes: u64) -> bool {
        self.0.iter().any(|slot| slot.0 == bytes)
    }

    /// Keeps what a store has stored, and empties the other slots.
    fn store(&self, known: &Instruction, to: &mut Vec<Statement>) {
        let guard = &known.predicate;
        let store = plain(known, "st").filter(|store| self.has(store.bytes));
        if let Some(store) = &store {
            to.push(guarded(guard, moved_address(at(store.bytes), store.address)));
            let operands = vec![Operand::Name(value(store.bytes)), store.value.clone()];
            to.push(guarded(guard, instruction(&format!("mov.{}", store.ty), operands)));
        }
        let kept = store.map(|store| store.bytes);
        let others = self.0.iter().filter(|slot| Some(slot.0) != kept);
        to.extend(others.map(|slot| emptied(slot.0, guard.clone())));
    }
}

/// A load, or the slot's value where the slot has its address.
fn load(known: &Instruction, load: &Plain<'_>, to: &mut Vec<Statement>) {
    let at = || Operand::Name(at(load.bytes));
    let compare = |how: &str| {
        let mut operands = vec![Operand::Name(hit()), Operand::Name(there()), at()];
        let mnemonic = match &known.predicate {
            None => format!("setp.{how}.s64"),
            Some(Predicate { negated, register }) => {
                let guard = register.clone();
                operands.push(if *negated { Operand::Not(guard) } else { Operand::Name(guard) });
                format!("setp.{how}.and.s64")
            }
        };
        instruction(&mnemonic, operands)
    };
    let if_hit = Some(Predicate { negated: false, register: hit() });
    to.push(moved_address(there(), load.address));
    to.push(compare("eq"));
    let operands = vec![load.value.clone(), Operand::Name(value(load.bytes))];
    to.push(guarded(&if_hit, instruction(&format!("mov.{}", load.ty), operands)));
    to.push(compare("ne"));
    to.push(Statement::Instruction(Instruction { predicate: if_hit, ..known.clone() }));
}

/// Puts an address into a register.
fn moved_address(to: Name, from: &Address) -> Statement {
    let AddressBase::Name(base) = &from.base else { return instruction("mov.u64", Vec::new()) };
    let offset = Operand::Constant(Constant::Integer(from.offset.into()));
    instruction("add.s64", vec![Operand::Name(to), Operand::Name(base.clone()), offset])
}

fn emptied(bytes: u64, guard: Option<Predicate>) -> Statement {
    let operands = vec![Operand::Name(at(bytes)), Operand::Constant(Constant::Integer(EMPTY))];
    guarded(&guard, instruction("mov.u64", operands))
}

fn guarded(guard: &Option<Predicate>, statement: Statement) -> Statement {
    match statement {
        Statement::Instruction(known) => {
            Statement::Instruction(Instruction { predicate: guard.clone(), ..known })
        }
        other => other,
    }
}

/// The address of a slot.
fn at(bytes: u64) -> Name {
    Name::from(&*format!("{NAME}_at_{bytes}"))
}

/// The value of a slot.
fn value(bytes: u64) -> Name {
    Name::from(&*format!("{NAME}_value_{bytes}"))
}

/// The address of the load that is made.
fn there() -> Name {
    Name::from(&*format!("{NAME}_there"))
}

/// Whether a slot has that address.
fn hit() -> Name {
    Name::from(&*format!("{NAME}_hit"))
}
