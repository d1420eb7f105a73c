//! The recorder's tables: fixed capacity, read without locks.
//!
//! Every table is reserved whole when recording starts and never grows, so the memory that a
//! recorded process can need is known beforehand ([`crate::limits`]); pages that are never used are
//! never touched. Reads take no lock and write nothing. Writes are rare (a handle or configuration
//! seen for the first time) and are made under the recorder's lock.

mod configs;
mod handles;

pub use configs::{ConfigKey, ConfigTable, PackedBlock};
pub use handles::HandleMap;

use std::alloc::{Layout, alloc_zeroed};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Types for which all bits zero is a value.
///
/// # Safety
/// All bits zero must be a valid value of the type.
pub unsafe trait Zeroable {}

/// A boxed slice of zeros whose pages the system provides when they are first written.
/// `None` if the system has no memory for it.
pub fn zeroed<T: Zeroable>(length: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(length).expect("a table's size fits the address space");
    assert!(layout.size() > 0, "a table has a capacity");
    // SAFETY: the layout is not empty. The memory is exclusively ours, of the right layout, and all
    // zeros, which is a valid T.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<T>();
        (!memory.is_null()).then(|| Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, length)))
    }
}

/// Enters a value into a map that may have to grow; false, and nothing done, if the system has no
/// memory for it.
pub fn put<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>, key: K, value: V) -> bool {
    let has_room = map.try_reserve(1).is_ok();
    if has_room {
        map.insert(key, value);
    }
    has_room
}

/// Appends a value to a list that may have to grow; false, and nothing done, if the system has no
/// memory for it.
pub fn push<T>(list: &mut Vec<T>, value: T) -> bool {
    let has_room = list.try_reserve(1).is_ok();
    if has_room {
        list.push(value);
    }
    has_room
}

/// Spreads a key over a table: multiply, then fold the high half in.
#[inline]
pub fn spread(key: u64) -> u64 {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product >> 64) as u64 ^ product as u64
}
