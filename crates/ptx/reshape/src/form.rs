//! Sums of thread and block, written with the thread's index in the grid where that is possible.
//!
//! `L = block · block size + thread` along an axis, and `T = grid size · block size`. A sum that
//! can be written with L and T alone has the same value in every shape that keeps L and T; the rest
//! is what this module calls *loose*. The numbers are exact modulo 2 to the power of the sum's
//! width, because no proof holds for a launch with 2^31 threads along an axis, so neither L nor T
//! wraps.

use std::collections::BTreeMap;

use ptx::analysis::{Atom, Sum, SumId, Sums};

/// An atom of a [`Form`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Piece {
    /// L along an axis.
    Index(u8),
    /// T along an axis.
    Total(u8),
    /// Anything else.
    Atom(Atom),
}

impl Piece {
    /// Whether its value changes with the shape though L and T do not.
    pub fn is_loose(self) -> bool {
        matches!(
            self,
            Piece::Atom(Atom::Thread(_) | Atom::Block(_) | Atom::BlockSize(_) | Atom::GridSize(_))
                | Piece::Atom(Atom::Special(_))
        )
    }
}

/// Products with their coefficients; the product of nothing is 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    /// Coefficients lie around 0: they are signed numbers of the sum's width.
    pub terms: BTreeMap<Vec<Piece>, i64>,
}

impl Form {
    /// The form of a sum.
    pub fn of(sum: &Sum, sums: &Sums) -> Form {
        let mut form = Form::default();
        form.add(Vec::new(), sum.constant, sum.bits);
        for term in &sum.terms {
            let mut pieces = Vec::new();
            for &factor in &term.factors {
                match sums.atom(factor) {
                    Atom::Extended { value, .. } => match within_31_bits(value, sums) {
                        Some(inner) => pieces.extend(inner),
                        None => pieces.push(Piece::Atom(without_source(sums.atom(factor)))),
                    },
                    atom => pieces.push(Piece::Atom(atom)),
                }
            }
            form.add_indices(pieces, term.coefficient, sum.bits);
        }
        form
    }

    /// Adds a product, after `block · block size` became `L - thread` and `grid size · block size`
    /// became T.
    fn add_indices(&mut self, mut pieces: Vec<Piece>, coefficient: u64, bits: u32) {
        let place =
            |pieces: &[Piece], atom: Atom| pieces.iter().position(|piece| *piece == Piece::Atom(atom));
        for axis in 0..3 {
            let Some(size) = place(&pieces, Atom::BlockSize(axis)) else { continue };
            if let Some(grid) = place(&pieces, Atom::GridSize(axis)) {
                pieces[size] = Piece::Total(axis);
                pieces.remove(grid);
                return self.add_indices(pieces, coefficient, bits);
            }
            if let Some(block) = place(&pieces, Atom::Block(axis)) {
                pieces[size] = Piece::Index(axis);
                let mut threads = pieces.clone();
                pieces.remove(block);
                threads[size] = Piece::Atom(Atom::Thread(axis));
                threads.remove(block);
                self.add_indices(pieces, coefficient, bits);
                return self.add_indices(threads, coefficient.wrapping_neg(), bits);
            }
        }
        self.add(pieces, coefficient, bits);
    }

    fn add(&mut self, mut pieces: Vec<Piece>, coefficient: u64, bits: u32) {
        pieces.sort_unstable();
        let entry = self.terms.entry(pieces.clone()).or_insert(0);
        let unused = 64 - bits.min(64);
        *entry = ((*entry as u64).wrapping_add(coefficient) << unused) as i64 >> unused;
        if *entry == 0 {
            self.terms.remove(&pieces);
        }
    }

    /// The pieces of all products.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.terms.keys().flatten().copied()
    }
}

/// The factors of an extended value that is one product of numbers of one axis and stays below
/// 2^31, so that extending it changes nothing.
fn within_31_bits(value: SumId, sums: &Sums) -> Option<Vec<Piece>> {
    let sum = sums.get(value);
    let [term] = sum.terms.as_slice() else { return None };
    if (sum.constant, term.coefficient) != (0, 1) {
        return None;
    }
    let factors: Vec<Atom> = term.factors.iter().map(|&factor| sums.atom(factor)).collect();
    let is_small = match *factors.as_slice() {
        [Atom::Thread(_) | Atom::Block(_) | Atom::BlockSize(_) | Atom::GridSize(_)] => true,
        [Atom::Block(a), Atom::BlockSize(b)] | [Atom::BlockSize(b), Atom::Block(a)] => a == b,
        [Atom::GridSize(a), Atom::BlockSize(b)] | [Atom::BlockSize(b), Atom::GridSize(a)] => a == b,
        _ => false,
    };
    is_small.then(|| factors.into_iter().map(Piece::Atom).collect())
}

/// An extended value is the same whichever register it came from.
fn without_source(atom: Atom) -> Atom {
    match atom {
        Atom::Extended { value, signed, .. } => Atom::Extended { value, signed, source: None },
        other => other,
    }
}
