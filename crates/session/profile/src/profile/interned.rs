//! Values that a profile holds once, however often they were met.

use apex_ordered::Order;
use std::collections::HashMap;
use std::hash::Hash;

/// Distinct values, by place.
#[derive(Clone, Debug)]
pub(super) struct Interned<T> {
    list: Vec<T>,
    index: HashMap<T, usize>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { list: Vec::new(), index: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash + Ord> Interned<T> {
    /// The place of a value.
    pub fn place(&mut self, value: T) -> usize {
        *self.index.entry(value).or_insert_with_key(|value| {
            self.list.push(value.clone());
            self.list.len() - 1
        })
    }

    /// The value at a place.
    pub fn get(&self, place: usize) -> &T {
        &self.list[place]
    }

    /// Adds the values of others; their places here.
    pub fn merge(&mut self, others: Self) -> Vec<usize> {
        others.list.into_iter().map(|value| self.place(value)).collect()
    }

    /// All of them in an order that does not depend on who came first, and where each of the others
    /// is in it.
    pub fn finish(self) -> (Vec<T>, Vec<usize>) {
        let mut order: Vec<usize> = (0..self.list.len()).collect();
        order.order_by(|&a, &b| self.list[a].cmp(&self.list[b]));
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
        let mut list = self.list;
        list.order_by(Ord::cmp);
        (list, place)
    }
}
