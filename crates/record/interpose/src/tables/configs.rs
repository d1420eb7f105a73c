//! Maps launch configurations to identifiers.
//!
//! The table is open-addressed and only ever added to: a configuration is made of identifiers and
//! numbers, none of which change meaning while the process lives. An entry's identifier is stored
//! last, so a reader that sees it sees the whole key.

use super::{Zeroable, spread, zeroed};
use cuda_launch::{Dim3, LaunchConfig};
use std::cell::UnsafeCell;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The properties in which equal launches agree.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigKey {
    /// A function identifier.
    pub function: u32,
    /// A context identifier, 0 if unknown.
    pub context: u32,
    /// The configuration that the program asks for. If its threads are launched in another block,
    /// that stands in place of the cluster ([`PackedBlock::as_cluster`]).
    pub launch: LaunchConfig,
}

/// The sides of a block, which CUDA allows, in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedBlock(NonZeroU32);

impl PackedBlock {
    /// `None` of a block that CUDA does not allow.
    pub fn of(block: Dim3) -> Option<PackedBlock> {
        let [x, y, z] = block.to_array();
        let is_allowed = (1..=1024).contains(&x) && (1..=1024).contains(&y) && (1..=64).contains(&z);
        NonZeroU32::new(x | y << 11 | z << 22).filter(|_| is_allowed).map(PackedBlock)
    }

    /// It as a number, which is not 0.
    #[inline(always)]
    pub fn word(self) -> u32 {
        self.0.get()
    }

    /// The inverse of [`PackedBlock::word`]; `None` of 0.
    #[inline(always)]
    pub fn from_word(word: u32) -> Option<PackedBlock> {
        NonZeroU32::new(word).map(PackedBlock)
    }

    /// It in place of a cluster: no launch has one of this size, and a reshaped launch has none.
    #[inline(always)]
    pub fn as_cluster(self) -> Dim3 {
        Dim3::new(u32::MAX, self.0.get(), 0)
    }

    /// The block that stands in place of a cluster; `None` of a cluster.
    pub fn in_cluster(cluster: Dim3) -> Option<Dim3> {
        PackedBlock::from_word(cluster.y).filter(|_| cluster.x == u32::MAX).map(Dim3::from)
    }
}

impl From<PackedBlock> for Dim3 {
    #[inline(always)]
    fn from(packed: PackedBlock) -> Dim3 {
        let word = packed.word();
        Dim3::new(word & 0x7ff, word >> 11 & 0x7ff, word >> 22)
    }
}

impl ConfigKey {
    fn hash(&self) -> u64 {
        let LaunchConfig { grid, block, cluster, dynamic_shared_bytes } = self.launch;
        let [gx, gy, gz] = grid.to_array().map(u64::from);
        let [bx, by, bz] = block.to_array().map(u64::from);
        let [cx, cy, cz] = cluster.to_array().map(u64::from);
        let who = u64::from(self.function) << 32 | u64::from(self.context);
        [
            gx << 32 | gy,
            gz << 32 | bx,
            by << 32 | bz,
            cx << 32 | cy,
            cz << 32 | u64::from(dynamic_shared_bytes),
        ]
        .iter()
        .fold(spread(who), |hash, &word| spread(hash ^ word))
    }
}

#[derive(Default)]
struct Entry {
    id: AtomicU32,
    key: UnsafeCell<ConfigKey>,
}

// SAFETY: integers throughout.
unsafe impl Zeroable for Entry {}

/// A table of configurations, read without locks. Writers must exclude each other.
pub struct ConfigTable {
    entries: Box<[Entry]>,
    count: AtomicU32,
}

// SAFETY: a key is written once, by the one writer that callers of `insert` vouch for, before its
// `id` is stored with release; readers look at a key only after they loaded an `id` other than 0
// with acquire.
unsafe impl Sync for ConfigTable {}
// SAFETY: the table owns plain memory.
unsafe impl Send for ConfigTable {}

impl ConfigTable {
    /// Most configurations that a table of `places` holds; the rest is kept empty so that searches
    /// stay short.
    pub const fn capacity(places: usize) -> usize {
        places / 2
    }

    /// Bytes that a table of `places` takes.
    pub const fn bytes(places: usize) -> usize {
        places * size_of::<Entry>()
    }

    /// An empty table of `places`, a power of two; `None` if there is no memory for it.
    pub fn new(places: usize) -> Option<ConfigTable> {
        assert!(places.is_power_of_two());
        Some(ConfigTable { entries: zeroed(places)?, count: AtomicU32::new(0) })
    }

    /// The identifier of `key`.
    pub fn get(&self, key: &ConfigKey) -> Option<u32> {
        self.search(key).ok()
    }

    /// Whether there is no room for another configuration.
    pub fn is_full(&self) -> bool {
        self.count.load(Relaxed) as usize >= Self::capacity(self.entries.len())
    }

    /// Adds `key` and gives its identifier; `None` when the table is full, or when `define`
    /// refuses. `define` is called with a new identifier before any other thread can see it. The
    /// caller keeps other writers out.
    pub fn insert(&self, key: &ConfigKey, define: impl FnOnce(u32) -> bool) -> Option<u32> {
        let place = match self.search(key) {
            Ok(id) => return Some(id),
            Err(place) => place,
        };
        let id = self.count.load(Relaxed) + 1;
        if self.is_full() || !define(id) {
            return None;
        }
        let entry = &self.entries[place];
        // SAFETY: the entry's `id` is 0, so no reader looks at the key, and the caller keeps other
        // writers out.
        unsafe { *entry.key.get() = *key };
        entry.id.store(id, Release);
        self.count.store(id, Relaxed);
        Some(id)
    }

    /// The identifier of `key`, or the empty place where it belongs.
    fn search(&self, key: &ConfigKey) -> Result<u32, usize> {
        let mask = self.entries.len() - 1;
        let mut place = key.hash() as usize & mask;
        loop {
            let entry = &self.entries[place];
            let id = entry.id.load(Acquire);
            if id == 0 {
                return Err(place);
            }
            // SAFETY: `id` is not 0: the key was complete before it was stored and does not change
            // any more.
            if unsafe { *entry.key.get() } == *key {
                return Ok(id);
            }
            place = (place + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_launch::Dim3;

    fn key(number: u32) -> ConfigKey {
        ConfigKey { function: number % 7 + 1, launch: LaunchConfig::new(number, 128), ..ConfigKey::default() }
    }

    #[test]
    fn identifiers_count_from_one_and_stay() {
        let table = ConfigTable::new(1024).unwrap();
        let mut defined = Vec::new();
        for round in 0..2 {
            for number in 0..300 {
                let id = table.insert(&key(number), |id| {
                    defined.push(id);
                    true
                });
                assert_eq!(id, Some(number + 1), "round {round}");
                assert_eq!(table.get(&key(number)), id);
            }
        }
        assert_eq!(defined, (1..=300).collect::<Vec<_>>(), "each is defined once");
        assert_eq!(table.get(&key(300)), None);
    }

    #[test]
    fn a_full_table_says_so_and_keeps_what_it_has() {
        let table = ConfigTable::new(64).unwrap();
        let given = (0..100).filter_map(|number| table.insert(&key(number), |_| true)).count();
        assert_eq!(given, ConfigTable::capacity(64));
        assert_eq!(table.get(&key(0)), Some(1));
        assert_eq!(table.get(&key(99)), None);
        assert!(table.is_full());
    }

    #[test]
    fn what_could_not_be_defined_is_not_in_the_table() {
        let table = ConfigTable::new(64).unwrap();
        assert_eq!(table.insert(&key(0), |_| false), None);
        assert_eq!(table.get(&key(0)), None);
        assert_eq!(table.insert(&key(1), |_| true), Some(1), "the identifier was not used up");
    }

    #[test]
    fn every_field_tells_configurations_apart() {
        let table = ConfigTable::new(64).unwrap();
        let launch = LaunchConfig { cluster: Dim3::ONE, dynamic_shared_bytes: 1, ..LaunchConfig::default() };
        let base = ConfigKey { function: 1, context: 1, launch };
        let mut all = vec![base];
        for changed in [[2, 1, 1], [1, 2, 1], [1, 1, 2]].map(Dim3::from) {
            let launches = [
                LaunchConfig { grid: changed, ..launch },
                LaunchConfig { block: changed, ..launch },
                LaunchConfig { cluster: changed, ..launch },
            ];
            all.extend(launches.map(|launch| ConfigKey { launch, ..base }));
        }
        all.push(ConfigKey { function: 2, ..base });
        all.push(ConfigKey { context: 2, ..base });
        all.push(ConfigKey { launch: launch.with_dynamic_shared_bytes(2), ..base });
        let ids: Vec<_> = all.iter().map(|key| table.insert(key, |_| true).unwrap()).collect();
        assert_eq!(ids, (1..=all.len() as u32).collect::<Vec<_>>());
    }
}
