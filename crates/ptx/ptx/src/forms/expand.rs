//! Expands a form into its mnemonics: all of them, or those that begin as a given one does.
//!
//! Both are one walk over the form's parts that keeps every choice made so far; matching drops
//! those that are no prefix of the words wanted, so it stays small.

use super::notation::Part;
use super::target::Need;
use crate::syntax::{ScalarType, StateSpace};

/// Choices made: the words of the mnemonic and what named groups chose.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) words: Vec<&'static str>,
    pub(super) named: Vec<(&'static str, Option<&'static str>)>,
    pub(super) needs: Vec<Need>,
}

impl Choice {
    /// Returns the last word that the group `name` chose, if it chose one.
    pub(super) fn word(&self, name: &str) -> Option<&'static str> {
        self.named.iter().rev().find(|(known, _)| *known == name).and_then(|(_, word)| *word)
    }
}

/// Every choice.
pub(super) fn expand(parts: &[Part], needs: &[Need]) -> Vec<Choice> {
    walk(parts, vec![start(needs)], &mut |_| true)
}

/// The choices that give exactly `words`; see [`super::Form::matching`].
pub(super) fn matching(parts: &[Part], needs: &[Need], words: &[&str], furthest: &mut usize) -> Vec<Choice> {
    let mut found = walk(parts, vec![start(needs)], &mut |chosen| {
        let last = chosen.len() - 1;
        let fits = words.get(last).is_some_and(|word| *word == chosen[last]);
        if fits {
            *furthest = (*furthest).max(chosen.len());
        }
        fits
    });
    found.retain(|choice| choice.words.len() == words.len());
    found
}

/// The choices that give `words` in some order; types keep theirs among each other, and so do the
/// layouts of matrices.
pub(super) fn permuted(parts: &[Part], needs: &[Need], words: &[&str]) -> Vec<Choice> {
    let count = |words: &[&str], word: &str| words.iter().filter(|other| **other == word).count();
    let mut found = walk(parts, vec![start(needs)], &mut |chosen| {
        let last = chosen[chosen.len() - 1];
        if count(chosen, last) > count(words, last) {
            return false;
        }
        let order = Order::of(last);
        let alike = |word: &&str| Order::of(word) == order;
        let place = chosen.iter().filter(|word| alike(word)).count();
        order == Order::Free || words.iter().copied().filter(alike).nth(place - 1) == Some(last)
    });
    found.retain(|choice| choice.words.len() == words.len());
    found
}

/// Among which modifiers the place of one matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Among none.
    Free,
    /// Among the layouts of matrices.
    Layouts,
    /// Among types and all others.
    Types,
}

impl Order {
    fn of(word: &str) -> Order {
        match word {
            "row" | "col" => Order::Layouts,
            _ if is_free(word) || is_shape(word) => Order::Free,
            _ => Order::Types,
        }
    }
}

/// Whether the word is the shape of matrices: `m16n8k16`.
fn is_shape(word: &str) -> bool {
    let numbers = word.strip_prefix('m').and_then(|rest| rest.split_once('n'));
    let Some((m, rest)) = numbers else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(m) && rest.split_once('k').is_some_and(|(n, k)| digits(n) && digits(k))
}

/// Modifiers that ptxas takes in any place: orders, scopes, spaces, cache hints, rounding,
/// saturation, vectors, what atomics do, the shape and number of the matrices of `ldmatrix`.
fn is_free(word: &str) -> bool {
    FREE.contains(&word) || word.starts_with("L1::") || word.starts_with("L2::") || word.contains("shared")
}

const FREE: &[&str] = &[
    "weak",
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "sc",
    "mmio",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "global",
    "local",
    "const",
    "param",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "rn",
    "rz",
    "rm",
    "rp",
    "rni",
    "rzi",
    "rmi",
    "rpi",
    "ftz",
    "sat",
    "relu",
    "satfinite",
    "uni",
    "sync",
    "aligned",
    "v2",
    "v4",
    "v8",
    "add",
    "min",
    "max",
    "and",
    "or",
    "xor",
    "inc",
    "dec",
    "exch",
    "cas",
    "noftz",
    "m8n8",
    "x1",
    "x2",
    "x4",
];

/// Modifiers that ptxas takes more than once; it refuses types, spaces and roundings that are
/// repeated, and matrices have a layout each.
pub(super) fn is_repeatable(word: &str) -> bool {
    let once = ["ftz", "rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "row", "col"];
    ScalarType::from_name(word).is_none() && StateSpace::from_name(word).is_none() && !once.contains(&word)
}

fn start(needs: &[Need]) -> Choice {
    Choice { words: Vec::new(), named: Vec::new(), needs: needs.to_vec() }
}

/// Continues each of `choices` over `parts`; `keep` is asked after each word.
fn walk(
    parts: &[Part],
    mut choices: Vec<Choice>,
    keep: &mut dyn FnMut(&[&'static str]) -> bool,
) -> Vec<Choice> {
    for part in parts {
        choices = match part {
            Part::Word(word) => {
                choices.iter_mut().for_each(|choice| choice.words.push(word));
                choices.retain(|choice| keep(&choice.words));
                choices
            }
            Part::Group { name, optional, branches } => {
                let mut next = Vec::new();
                for choice in &choices {
                    if *optional {
                        let mut without = choice.clone();
                        without.named.extend(name.map(|name| (name, None)));
                        next.push(without);
                    }
                    for branch in branches {
                        let before = choice.words.len();
                        for mut with in walk(&branch.parts, vec![choice.clone()], keep) {
                            let chosen =
                                (with.words.len() > before).then(|| with.words[with.words.len() - 1]);
                            with.named.extend(name.map(|name| (name, chosen)));
                            if !branch.needs.is_empty() {
                                with.needs = Need::both(&with.needs, &branch.needs);
                            }
                            next.push(with);
                        }
                    }
                }
                next
            }
        };
    }
    // Choices that no target has together are no instruction.
    choices.retain(|choice| !choice.needs.is_empty());
    choices
}
