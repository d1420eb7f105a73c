//! The identifiers of ranges.
//!
//! A range is found by a digest of what it is, without a lock. Programs that number their ranges
//! (`step 1`, `step 2`, …) would fill any table. So where a range already holds [`SIBLINGS`] ranges
//! whose names differ in numbers alone, further ones share the name in which `#` stands for each
//! number; and where the table is full, what is inside of a range belongs to that range.

use crate::limits;
use crate::per_process::{OfProcess, PerProcess};
use crate::switch::guarded;
use crate::tables::{HandleMap, push, put};
use apex_trace::ForkGuard;
use apex_trace::definition::without_numbers;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ranges inside of one range whose names differ in numbers alone, and which are still told apart.
const SIBLINGS: u32 = 32;

/// The definition of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The range around it; 0 if there is none.
    pub parent: u32,
    /// A handle of [`super::texts::DOMAINS`], 0 for the default domain.
    pub domain: u32,
    /// Its name.
    pub name: String,
}

/// See the [module](self).
pub struct Table {
    guard: ForkGuard,
    known: HandleMap,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    nodes: Vec<Node>,
    ids: HashMap<u64, u32>,
    /// The number of ranges that differ in numbers alone, by digest of the name without numbers.
    siblings: HashMap<u64, u32>,
}

static TABLE: PerProcess<Table> = PerProcess::new();

impl OfProcess for Table {
    fn is_ours(&self) -> bool {
        self.guard.is_same_process()
    }
}

/// The table of this process; `None` if there is no memory for it.
pub fn table() -> Option<&'static Table> {
    TABLE.get().or_else(|| TABLE.get_or_make(|| Some(Box::new(Table::new()?)), |_| {}))
}

impl Table {
    fn new() -> Option<Table> {
        let known = HandleMap::new(limits::RANGES)?;
        Some(Table { guard: ForkGuard::new().ok()?, known, given: Mutex::default() })
    }

    /// Tells this process from its children.
    pub fn guard(&self) -> ForkGuard {
        self.guard
    }

    /// The range of that name inside of `parent`; `parent` itself if the table is full.
    pub fn range(&self, parent: u32, domain: u32, name: &str) -> u32 {
        let digest = digest(parent, domain, name);
        self.known
            .get(digest, 0)
            .or_else(|| guarded(|| self.add(digest, parent, domain, name)).flatten())
            .unwrap_or(parent)
    }

    /// The range of the same name as `range` inside of `parent`.
    pub fn moved(&self, range: u32, parent: u32) -> u32 {
        let node = guarded(|| self.node(range)).flatten();
        node.map_or(parent, |node| self.range(parent, node.domain, &node.name))
    }

    /// Returns the definition of a range.
    pub fn node(&self, range: u32) -> Option<Node> {
        self.given().nodes.get((range as usize).checked_sub(1)?).cloned()
    }

    fn add(&self, digest_of_name: u64, parent: u32, domain: u32, name: &str) -> Option<u32> {
        let mut given = self.given();
        let form = without_numbers(name);
        let digest_of_form = digest(parent, domain, &form);
        let siblings = given.siblings.get(&digest_of_form).copied().unwrap_or(0);
        let is_new = !given.ids.contains_key(&digest_of_name);
        let shares = is_new && siblings >= SIBLINGS;
        let (digest, name) = if shares { (digest_of_form, form.as_str()) } else { (digest_of_name, name) };
        let id = match given.ids.get(&digest) {
            Some(&id) => id,
            None => {
                let id = given.nodes.len() as u32 + 1;
                let has_room = given.nodes.len() < limits::RANGES
                    && put(&mut given.siblings, digest_of_form, siblings + 1)
                    && push(&mut given.nodes, Node { parent, domain, name: name.to_owned() })
                    && put(&mut given.ids, digest, id);
                if !has_room {
                    return None;
                }
                id
            }
        };
        self.known.insert(digest_of_name, 0, id);
        Some(id)
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        // A panic while it was held leaves the maps valid: every step of their changes is.
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(parent: u32, domain: u32, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, domain, name).hash(&mut hasher);
    // 0 is no key of a handle map.
    hasher.finish() | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_same_names_around_it_is_the_same_range() {
        let table = Table::new().unwrap();
        let outer = table.range(0, 0, "outer");
        let inner = table.range(outer, 0, "inner");
        assert_eq!(table.range(outer, 0, "inner"), inner);
        let others =
            [table.range(0, 0, "inner"), table.range(outer, 1, "inner"), table.range(inner, 0, "inner")];
        assert_eq!((outer, inner, others), (1, 2, [3, 4, 5]));
        assert_eq!(table.node(2), Some(Node { parent: 1, domain: 0, name: "inner".to_owned() }));
        assert_eq!(table.moved(inner, 0), others[0]);
        assert_eq!((table.node(0), table.node(6)), (None, None));
    }

    #[test]
    fn numbered_ranges_do_not_fill_the_table() {
        let table = Table::new().unwrap();
        let steps: Vec<u32> = (0..100_000).map(|step| table.range(0, 0, &format!("step {step}"))).collect();
        assert_eq!(steps[..32], (1..=32).collect::<Vec<_>>());
        assert!(steps[32..].iter().all(|&step| step == 33));
        assert_eq!(table.node(33).unwrap().name, "step #");
        assert_eq!(table.range(0, 0, "step 7"), 8, "what is known stays");
        assert_eq!(without_numbers("aten::add, seq = 1234 (2.5)"), "aten::add, seq = # (#.#)");
    }

    #[test]
    fn a_full_table_gives_the_range_around() {
        let table = Table::new().unwrap();
        let outer = table.range(0, 0, "outer");
        // Letters, not numbers.
        let name = |number: u32| format!("{number:b}").replace('0', "x").replace('1', "y");
        let last = (0..limits::RANGES as u32 + 10).map(|number| table.range(outer, 0, &name(number))).last();
        assert_eq!(last, Some(outer));
        assert_eq!(table.range(0, 0, "other"), 0);
    }
}
