//! A mnemonic that is being decoded.
//!
//! Decoders *take* the modifiers that they know; whatever is left over makes the instruction unsupported, so that no
//! modifier is ever ignored by accident.

use ptx::{Mnemonic, ScalarType};

use crate::arithmetic::soft::Rounding;

/// Opcode and the modifiers not yet taken.
pub(crate) struct Form<'i> {
    pub(crate) opcode: &'i str,
    rest: Vec<&'i str>,
}

impl<'i> Form<'i> {
    pub(crate) fn new(mnemonic: &'i Mnemonic) -> Self {
        Form { opcode: mnemonic.opcode(), rest: mnemonic.modifiers().collect() }
    }

    /// Takes `modifier` if it is there.
    pub(crate) fn flag(&mut self, modifier: &str) -> bool {
        let found = self.rest.iter().position(|m| *m == modifier);
        if let Some(index) = found {
            self.rest.remove(index);
        }
        found.is_some()
    }

    /// Whether `modifier` is there; it stays.
    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.rest.contains(&modifier)
    }

    /// Takes the first modifier that `convert` knows.
    pub(crate) fn take<T>(&mut self, convert: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (index, value) =
            self.rest.iter().enumerate().find_map(|(index, m)| Some((index, convert(m)?)))?;
        self.rest.remove(index);
        Some(value)
    }

    /// Takes one of `names`.
    pub(crate) fn one_of(&mut self, names: &[&'static str]) -> Option<&'static str> {
        self.take(|m| names.iter().copied().find(|name| *name == m))
    }

    /// Takes the first type.
    pub(crate) fn ty(&mut self) -> Option<ScalarType> {
        self.take(ScalarType::from_name)
    }

    /// The types, without taking them.
    pub(crate) fn types(&self) -> Vec<ScalarType> {
        self.rest.iter().filter_map(|m| ScalarType::from_name(m)).collect()
    }

    /// Takes `.rn`, `.rz`, `.rm` or `.rp`; to nearest where there is none.
    pub(crate) fn rounding(&mut self) -> Rounding {
        self.take(|m| match m {
            "rn" => Some(Rounding::NearestEven),
            "rz" => Some(Rounding::Zero),
            "rm" => Some(Rounding::Down),
            "rp" => Some(Rounding::Up),
            _ => None,
        })
        .unwrap_or(Rounding::NearestEven)
    }

    /// The first modifier that nobody has taken.
    pub(crate) fn left_over(&self) -> Option<&'i str> {
        self.rest.first().copied()
    }
}
