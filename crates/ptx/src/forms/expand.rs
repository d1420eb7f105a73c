//! Which mnemonics a form has: all of them, or those that begin as a given one does.
//!
//! Both are one walk over the form's parts that keeps every choice made so far; matching drops those that are no prefix
//! of the words wanted, so it stays small.

use super::notation::Part;
use super::target::Need;

/// Choices made: the words of the mnemonic and what named groups chose.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) words: Vec<&'static str>,
    pub(super) named: Vec<(&'static str, Option<&'static str>)>,
    pub(super) needs: Vec<Need>,
}

impl Choice {
    /// What the group `name` chose: its last word, or nothing.
    pub(super) fn of(&self, name: &str) -> Option<&'static str> {
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
