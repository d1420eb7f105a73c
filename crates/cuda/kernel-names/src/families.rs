//! The families of kernel names: each module knows those of one origin.

mod aten;
mod attention;
mod coded;
mod collective;
mod compiled;
mod cublas;
mod cudnn;
mod cutlass;
mod functor;
mod own;
mod primitives;
mod python;
mod solver;

use crate::outline::{self, Part};
use crate::{DataType, Identity, Operation, Owner, Traits, Types};

/// A name and its parts.
pub(crate) struct Name<'a> {
    /// The whole name, as [`crate::demangle::plain`] gives it.
    pub text: &'a str,
    /// Its parts, the function last.
    pub path: Vec<Part<'a>>,
}

impl<'a> Name<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, path: outline::path(text) }
    }

    /// The kernel's function.
    pub fn function(&self) -> Part<'a> {
        self.path.last().copied().unwrap_or_default()
    }

    /// Whether the function is in a namespace or class of this name.
    pub fn is_in(&self, namespace: &str) -> bool {
        self.path.iter().rev().skip(1).any(|part| part.name == namespace)
    }
}

/// The families that know names, the most specific first.
const FAMILIES: &[fn(&Name<'_>) -> Option<Identity>] = &[
    collective::identify,
    compiled::identify,
    python::identify,
    attention::identify,
    cudnn::identify,
    cublas::identify,
    cutlass::identify,
    primitives::identify,
    aten::identify,
    solver::identify,
];

/// Identifies a kernel by its name; see [`crate::identify`].
pub(crate) fn identify(text: &str) -> Identity {
    let name = Name::of(text);
    FAMILIES.iter().find_map(|family| family(&name)).unwrap_or_else(|| own::identify(&name))
}

/// An identity of these, the rest unknown.
fn known(short_name: String, operation: Operation, input: Option<DataType>, owner: Owner) -> Identity {
    let traits = Traits { operation, types: Types::of(input), owner, ..Traits::default() };
    Identity { name: String::new(), short_name, traits }
}

/// `name<float>`, or the name alone.
fn typed(name: &str, types: impl IntoIterator<Item = DataType>) -> String {
    let types: Vec<&str> = types.into_iter().map(DataType::cpp).collect();
    if types.is_empty() { name.to_owned() } else { format!("{name}<{}>", types.join(", ")) }
}

/// The first of these that is an extent, `128x64`, as `128×64`.
fn tile<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let is_extent = |word: &&str| {
        let sides: Vec<&str> = word.split('x').collect();
        sides.len() >= 2
            && sides.iter().all(|side| !side.is_empty() && side.bytes().all(|b| b.is_ascii_digit()))
    };
    let found = words.into_iter().map(|word| word.trim_start_matches("tilesize")).find(is_extent)?;
    let sides: Vec<&str> = found.split('x').take(2).collect();
    Some(sides.join("×"))
}

/// These words with blanks between, without those that are missing.
fn joined<const N: usize>(words: [Option<String>; N]) -> String {
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The number after a prefix of one of these words: 8 for `align8`.
fn number_after<'a>(words: impl IntoIterator<Item = &'a str>, prefix: &str) -> Option<u32> {
    words.into_iter().find_map(|word| word.strip_prefix(prefix)?.parse().ok())
}
