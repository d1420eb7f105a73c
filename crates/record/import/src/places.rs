//! Numbers for things that occur again and again.

use std::collections::HashMap;

/// Things by number, each once.
#[derive(Debug)]
pub struct Places<T> {
    numbers: HashMap<T, u32>,
    /// The things.
    pub list: Vec<T>,
    last: Option<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), list: Vec::new(), last: None }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Places<T> {
    /// The number of a thing.
    pub fn number(&mut self, thing: T) -> u32 {
        // Mostly it is the one that was asked for before.
        if let Some(last) = self.last.filter(|&last| self.list[last as usize] == thing) {
            return last;
        }
        let next = self.list.len() as u32;
        let number = *self.numbers.entry(thing).or_insert_with_key(|thing| {
            self.list.push(thing.clone());
            next
        });
        self.last = Some(number);
        number
    }
}
