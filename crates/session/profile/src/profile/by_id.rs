//! Maps from identifiers in records to entries of a list. Identifiers count from 1, so a dense
//! table holds nearly all of them. This matters because some are looked up for every record. Large
//! identifiers, which only a damaged file contains, go into a hash map, so that they do not enlarge
//! the table.

use std::collections::HashMap;

/// Identifiers below this are looked up by index.
const DENSE: u32 = 1 << 16;

/// The index of each identifier's entry.
#[derive(Clone, Default)]
pub(crate) struct IndexById {
    dense: Vec<Option<u32>>,
    rest: HashMap<u32, u32>,
}

impl IndexById {
    pub fn get(&self, id: u32) -> Option<usize> {
        let place = if id < DENSE { *self.dense.get(id as usize)? } else { self.rest.get(&id).copied() };
        place.map(|place| place as usize)
    }

    pub fn insert(&mut self, id: u32, place: usize) {
        if id >= DENSE {
            self.rest.insert(id, place as u32);
            return;
        }
        if self.dense.len() <= id as usize {
            self.dense.resize(id as usize + 1, None);
        }
        self.dense[id as usize] = Some(place as u32);
    }
}

/// Something for each identifier, in the order in which they came.
#[derive(Clone)]
pub(crate) struct ById<T> {
    places: IndexById,
    list: Vec<T>,
}

impl<T> Default for ById<T> {
    fn default() -> Self {
        Self { places: IndexById::default(), list: Vec::new() }
    }
}

impl<T> ById<T> {
    pub fn get(&self, id: u32) -> Option<&T> {
        self.places.get(id).map(|place| &self.list[place])
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.places.get(id).map(|place| &mut self.list[place])
    }

    /// Returns the entry of an identifier; `new` makes it if there is none yet.
    pub fn entry(&mut self, id: u32, new: impl FnOnce() -> T) -> &mut T {
        let place = self.places.get(id).unwrap_or_else(|| {
            self.places.insert(id, self.list.len());
            self.list.push(new());
            self.list.len() - 1
        });
        &mut self.list[place]
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.list.iter()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.list.iter_mut()
    }

    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.list.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_identifier_has_a_place() {
        let mut places = IndexById::default();
        for (place, id) in [1, 3, 0, DENSE - 1, DENSE, u32::MAX].into_iter().enumerate() {
            assert_eq!(places.get(id), None);
            places.insert(id, place);
            assert_eq!(places.get(id), Some(place));
        }
        assert_eq!((places.get(2), places.get(3)), (None, Some(1)));
    }
}
