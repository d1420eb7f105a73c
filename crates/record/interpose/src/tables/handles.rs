//! Maps the driver's handles to the session's identifiers.
//!
//! The driver reuses a handle as soon as its object is destroyed. An entry therefore has the epoch
//! in which it was made. A call that destroys objects either removes one handle
//! ([`HandleMap::remove`]) or starts the next epoch, after which all older entries are invalid.
//!
//! The map is set-associative: a key has [`WAYS`] possible places. If valid keys occupy all of
//! them, one is evicted, and its handle is looked up at the driver again when it next occurs. The
//! map therefore never fills and never grows.

use super::{Zeroable, spread, zeroed};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Places in which a key may lie.
const WAYS: usize = 8;

/// Key of a place that was never used.
const EMPTY: u64 = 0;

/// One place. `value` is 0 while the place changes hands, else [`stamp`] above the identifier.
///
/// A reader that sees the key, a value and the same key again could have met three changes of
/// hands: from the key to another and back. The stamp is what then tells it that the value was the
/// other's.
#[derive(Default)]
struct Place {
    key: AtomicU64,
    value: AtomicU64,
}

// SAFETY: two atomic integers, for which zero is a value.
unsafe impl Zeroable for Place {}

/// Returns the stamp that a place of `handle` made in `epoch` holds above its identifier, so that a
/// value of another key is not taken for one of this key.
#[inline]
fn stamp(handle: u64, epoch: u32) -> u32 {
    (spread(handle) >> 32) as u32 ^ epoch
}

/// A map from non-zero handles to identifiers, read without locks. Writers must exclude each other.
pub struct HandleMap {
    places: Box<[Place]>,
}

impl HandleMap {
    /// Bytes that a map of this capacity takes.
    pub const fn bytes(capacity: usize) -> usize {
        capacity * size_of::<Place>()
    }

    /// A map with room for `capacity` handles, a power of two; `None` if there is no memory for it.
    pub fn new(capacity: usize) -> Option<HandleMap> {
        assert!(capacity.is_power_of_two() && capacity >= WAYS);
        Some(HandleMap { places: zeroed(capacity)? })
    }

    /// The identifier of `handle` in `epoch`.
    #[inline]
    pub fn get(&self, handle: u64, epoch: u32) -> Option<u32> {
        let stamp = stamp(handle, epoch);
        self.set_of(handle).iter().find_map(|place| {
            if place.key.load(Acquire) != handle {
                return None;
            }
            let value = place.value.load(Acquire);
            let (stamped, id) = ((value >> 32) as u32, value as u32);
            (id != 0 && stamped == stamp && place.key.load(Relaxed) == handle).then_some(id)
        })
    }

    /// Makes `handle` stand for `id` (not 0). The caller keeps other writers out.
    pub fn insert(&self, handle: u64, epoch: u32, id: u32) {
        let set = self.set_of(handle);
        let with = |test: &dyn Fn(&Place) -> bool| set.iter().find(|place| test(place));
        let of_another_epoch = |place: &Place| {
            let stamped = (place.value.load(Relaxed) >> 32) as u32;
            stamped != stamp(place.key.load(Relaxed), epoch)
        };
        let place = with(&|place| place.key.load(Relaxed) == handle)
            .or_else(|| with(&|place| place.value.load(Relaxed) == 0))
            .or_else(|| with(&of_another_epoch))
            .unwrap_or(&set[spread(u64::from(id)) as usize % WAYS]);
        place.value.store(0, Release);
        place.key.store(handle, Release);
        place.value.store(u64::from(stamp(handle, epoch)) << 32 | u64::from(id), Release);
    }

    /// Forgets `handle`. The caller keeps other writers out.
    pub fn remove(&self, handle: u64) {
        if handle == EMPTY {
            return;
        }
        for place in self.set_of(handle) {
            if place.key.load(Relaxed) == handle {
                place.value.store(0, Release);
            }
        }
    }

    #[inline]
    fn set_of(&self, handle: u64) -> &[Place] {
        let sets = self.places.len() / WAYS;
        let first = (spread(handle) as usize & (sets - 1)) * WAYS;
        &self.places[first..first + WAYS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_random::Random;
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;

    /// Random numbers, the same in every run.
    fn numbers(seed: u64) -> impl Iterator<Item = u64> {
        let mut random = Random::new(seed);
        std::iter::repeat_with(move || random.bits())
    }

    #[test]
    fn what_was_put_in_is_found_until_it_is_removed() {
        let map = HandleMap::new(4096).unwrap();
        let mut model = HashMap::new();
        let mut random = numbers(1);
        for id in 1..=1000 {
            let handle = random.next().unwrap() | 1;
            map.insert(handle, 7, id);
            model.insert(handle, id);
        }
        for (&handle, &id) in &model {
            assert_eq!(map.get(handle, 7), Some(id));
            assert_eq!(map.get(handle, 8), None, "an entry of an older epoch is a stranger");
            map.remove(handle);
            assert_eq!(map.get(handle, 7), None);
        }
    }

    #[test]
    fn a_full_map_forgets_and_never_lies() {
        let map = HandleMap::new(64).unwrap();
        let handles: Vec<u64> = numbers(2).take(10_000).collect();
        for (index, &handle) in handles.iter().enumerate() {
            map.insert(handle, 1, index as u32 + 1);
            assert_eq!(map.get(handle, 1), Some(index as u32 + 1));
        }
        let kept = handles.iter().enumerate().filter_map(|(index, &handle)| {
            let found = map.get(handle, 1)?;
            assert_eq!(found, index as u32 + 1);
            Some(())
        });
        assert!((1..=64).contains(&kept.count()));
    }

    #[test]
    fn readers_beside_a_writer_see_a_value_of_the_key_or_none() {
        let map = HandleMap::new(8).unwrap();
        let done = AtomicBool::new(false);
        let value_of = |handle: u64| handle as u32 * 10;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        for handle in 1..=20 {
                            assert!(map.get(handle, 1).is_none_or(|id| id == value_of(handle)));
                        }
                    }
                });
            }
            for handle in numbers(3).take(200_000).map(|number| number % 20 + 1) {
                map.insert(handle, 1, value_of(handle));
            }
            done.store(true, Relaxed);
        });
    }
}
