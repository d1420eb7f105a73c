//! Sums of products, and the table that numbers sums and their atoms.

use std::collections::{HashMap, HashSet};

use super::definitions::Definition;
use crate::body::{SpecialRegister, VariableId};

/// Most terms of a sum.
const MOST_TERMS: usize = 12;

/// The elements of sums: a number that each thread has, read as an unsigned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// `%tid` along an axis.
    Thread(u8),
    /// `%ctaid` along an axis.
    Block(u8),
    /// `%ntid` along an axis.
    BlockSize(u8),
    /// `%nctaid` along an axis.
    GridSize(u8),
    /// Another special register that never changes.
    Special(SpecialRegister),
    /// A number in the kernel's parameters.
    Parameter {
        /// The parameter.
        variable: VariableId,
        /// The offset at which it begins there, in bytes.
        offset: u32,
        /// Its size.
        bytes: u8,
    },
    /// The address of a variable in its own space.
    Address(VariableId),
    /// The number of rounds of a loop that the thread has completed since it entered the loop: an
    /// induction variable. The field is the loop's index in
    /// [`Flow::loops`](crate::flow::Flow::loops).
    Round(u32),
    /// A 32-bit value, extended to 64 bits.
    Extended {
        /// The value.
        value: SumId,
        /// Whether its sign is extended.
        signed: bool,
        /// A register that has the value, if it is one.
        source: Option<Definition>,
    },
    /// A value of which nothing is known.
    Unknown(Definition),
}

/// An atom: its place in [`Sums`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AtomId(u32);

/// A sum: its place in [`Sums`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SumId(u32);

/// A product of a number and of atoms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The number, modulo the sum's width.
    pub coefficient: u64,
    /// The atoms, in order; at least one.
    pub factors: Vec<AtomId>,
}

/// `c₀ + Σ cᵢ·xᵢ` modulo 2 to the power of its width, where each `xᵢ` is a product of atoms.
///
/// Sums that are written differently and are equal as polynomials are the same sum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sum {
    /// Its width in bits: 32 or 64.
    pub bits: u32,
    /// `c₀`.
    pub constant: u64,
    /// The products, in order of their factors, none with coefficient 0.
    pub terms: Vec<Term>,
}

impl Sum {
    /// A number.
    pub fn number(constant: u64, bits: u32) -> Sum {
        Sum { bits, constant: constant & mask(bits), terms: Vec::new() }
    }

    fn of_atom(atom: AtomId, bits: u32) -> Sum {
        Sum { bits, constant: 0, terms: vec![Term { coefficient: 1, factors: vec![atom] }] }
    }

    /// The same with another constant and other products, which need not be in order.
    fn collect(bits: u32, constant: u64, mut terms: Vec<Term>) -> Option<Sum> {
        terms.sort_by(|a, b| a.factors.cmp(&b.factors));
        terms.dedup_by(|next, kept| {
            let same = next.factors == kept.factors;
            if same {
                kept.coefficient = kept.coefficient.wrapping_add(next.coefficient);
            }
            same
        });
        terms.iter_mut().for_each(|term| term.coefficient &= mask(bits));
        terms.retain(|term| term.coefficient != 0);
        (terms.len() <= MOST_TERMS).then(|| Sum { bits, constant: constant & mask(bits), terms })
    }

    /// The sum of two; none if it has too many terms.
    pub fn plus(&self, other: &Sum) -> Option<Sum> {
        let terms = self.terms.iter().chain(&other.terms).cloned().collect();
        Sum::collect(self.bits, self.constant.wrapping_add(other.constant), terms)
    }

    /// The product with a number.
    pub fn times_number(&self, factor: u64) -> Sum {
        let scaled = |term: &Term| Term {
            coefficient: term.coefficient.wrapping_mul(factor) & mask(self.bits),
            factors: term.factors.clone(),
        };
        let terms = self.terms.iter().map(scaled).filter(|term| term.coefficient != 0).collect();
        Sum { bits: self.bits, constant: self.constant.wrapping_mul(factor) & mask(self.bits), terms }
    }

    /// The product of two; none if it has too many terms, or a product of more factors than this.
    pub fn times(&self, other: &Sum, most_factors: usize) -> Option<Sum> {
        let mut terms = self.times_number(other.constant).terms;
        terms.extend(other.times_number(self.constant).terms);
        for a in &self.terms {
            for b in &other.terms {
                let mut factors: Vec<AtomId> = a.factors.iter().chain(&b.factors).copied().collect();
                if factors.len() > most_factors {
                    return None;
                }
                factors.sort_unstable();
                terms.push(Term { coefficient: a.coefficient.wrapping_mul(b.coefficient), factors });
            }
        }
        Sum::collect(self.bits, self.constant.wrapping_mul(other.constant), terms)
    }

    /// The difference of two; none if it has too many terms.
    pub fn minus(&self, other: &Sum) -> Option<Sum> {
        self.plus(&other.times_number(u64::MAX))
    }

    /// The lower bits.
    pub fn truncated(&self, bits: u32) -> Sum {
        Sum { bits, ..self.clone() }.times_number(1)
    }
}

/// The bits of a width.
fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The sums of a function and the atoms that they are made of, each once.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    atoms: Vec<Atom>,
    atom_ids: HashMap<Atom, AtomId>,
    /// Atoms of extended values by value and signedness: each value has one atom per extension.
    extended: HashMap<(SumId, bool), AtomId>,
    sums: Vec<Sum>,
    sum_ids: HashMap<Sum, SumId>,
}

impl Sums {
    /// An atom.
    pub fn atom(&self, id: AtomId) -> Atom {
        self.atoms[id.0 as usize]
    }

    /// A sum.
    pub fn get(&self, id: SumId) -> &Sum {
        &self.sums[id.0 as usize]
    }

    /// The number of a sum.
    pub(super) fn put(&mut self, sum: Sum) -> SumId {
        let next = SumId(self.sums.len() as u32);
        let id = *self.sum_ids.entry(sum.clone()).or_insert(next);
        if id == next {
            self.sums.push(sum);
        }
        id
    }

    /// The sum that is one atom.
    pub(super) fn single(&mut self, atom: Atom, bits: u32) -> Sum {
        let next = AtomId(self.atoms.len() as u32);
        let id = match atom {
            Atom::Extended { value, signed, .. } => *self.extended.entry((value, signed)).or_insert(next),
            _ => *self.atom_ids.entry(atom).or_insert(next),
        };
        if id == next {
            self.atoms.push(atom);
        }
        Sum::of_atom(id, bits)
    }

    /// The 64-bit sum that has the value of a 32-bit one, extended.
    pub(super) fn extended(&mut self, sum: Sum, signed: bool, source: Option<Definition>) -> Sum {
        if sum.terms.is_empty() {
            let number = if signed { sum.constant as u32 as i32 as u64 } else { sum.constant };
            return Sum::number(number, 64);
        }
        let value = self.put(sum);
        self.single(Atom::Extended { value, signed, source }, 64)
    }

    /// The lower half of a 64-bit sum, in which an extended value is that value: they are the same
    /// modulo 2 to the power of 32.
    pub(super) fn lower_half(&self, sum: &Sum, most_factors: usize) -> Sum {
        let factor = |&id: &AtomId| match self.atom(id) {
            Atom::Extended { value, .. } => self.get(value).clone(),
            _ => Sum::of_atom(id, 32),
        };
        let product = |term: &Term| {
            let number = Sum::number(term.coefficient, 32);
            term.factors.iter().try_fold(number, |product, id| product.times(&factor(id), most_factors))
        };
        let start = Sum::number(sum.constant, 32);
        let whole = sum.terms.iter().try_fold(start, |total, term| total.plus(&product(term)?));
        whole.unwrap_or_else(|| sum.truncated(32))
    }

    /// The atoms of a sum and of the values that it extends.
    pub fn atoms_of(&self, sum: &Sum, visit: &mut impl FnMut(Atom)) {
        let mut open: Vec<AtomId> = sum.terms.iter().flat_map(|term| &term.factors).copied().collect();
        let mut seen = HashSet::new();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            let atom = self.atom(id);
            visit(atom);
            if let Atom::Extended { value, .. } = atom {
                open.extend(self.get(value).terms.iter().flat_map(|term| &term.factors));
            }
        }
    }
}
