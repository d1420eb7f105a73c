//! Handles: the opaque pointers by which a program names contexts, streams, functions and the rest.
//!
//! A handle is a serial number with the kind of thing it names, never an address, and is never used
//! again. Any value that a program passes can therefore be looked up: a destroyed handle, a handle
//! of another kind, or an arbitrary number gives an error code and not a crash. No handle is a
//! canonical small number, so the driver's reserved values (`CU_STREAM_LEGACY` and its like) can't
//! be mistaken for one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The kinds of things that handles name. A handle's upper bits are its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// `CUcontext`
    Context = 1,
    /// `CUstream`
    Stream,
    /// `CUevent`
    Event,
    /// `CUmodule`
    Module,
    /// `CUfunction`
    Function,
    /// `CUlibrary`
    Library,
    /// `CUkernel`
    Kernel,
    /// `CUgraph`
    Graph,
    /// `CUgraphNode`
    GraphNode,
    /// `CUgraphExec`
    GraphExec,
    /// `CUmemoryPool`
    Pool,
    /// `CUmemGenericAllocationHandle`
    Physical,
    /// `CUarray`
    Array,
    /// `CUmipmappedArray`
    MipmappedArray,
    /// `CUtexObject`
    Texture,
    /// `CUsurfObject`
    Surface,
    /// `CUlinkState`
    Link,
    /// `CUuserObject`
    UserObject,
    /// `CUgraphConditionalHandle`
    Condition,
}

const KIND_SHIFT: u32 = 40;

/// The things of one kind that exist, by handle.
pub struct Table<T> {
    kind: Kind,
    things: RwLock<Option<HashMap<u64, Arc<T>>>>,
    next: AtomicU64,
}

impl<T> Table<T> {
    /// A table without entries.
    pub const fn new(kind: Kind) -> Table<T> {
        Table { kind, things: RwLock::new(None), next: AtomicU64::new(1) }
    }

    /// A handle that nothing has had before; [`Table::insert`] gives it its meaning.
    pub fn reserve(&self) -> u64 {
        // The low four bits stay clear: some programs keep flags in those of a pointer.
        (self.kind as u64) << KIND_SHIFT | self.next.fetch_add(1, Ordering::Relaxed) << 4
    }

    /// Makes `handle` name `thing`.
    pub fn insert(&self, handle: u64, thing: Arc<T>) {
        let mut things = self.things.write().unwrap_or_else(PoisonError::into_inner);
        things.get_or_insert_default().insert(handle, thing);
    }

    /// Names `thing` with a handle of its own.
    pub fn add(&self, thing: Arc<T>) -> u64 {
        let handle = self.reserve();
        self.insert(handle, thing);
        handle
    }

    /// Returns the object that `handle` names.
    pub fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.things.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&handle).cloned()
    }

    /// Takes the meaning away from `handle`.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.things.write().unwrap_or_else(PoisonError::into_inner).as_mut()?.remove(&handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_one_thing_until_it_is_removed() {
        let streams = Table::new(Kind::Stream);
        let events = Table::new(Kind::Event);
        let first = streams.add(Arc::new("first"));
        let second = streams.add(Arc::new("second"));
        let event = events.add(Arc::new("event"));
        assert_eq!(*streams.get(second).unwrap(), "second");
        assert!(streams.get(event).is_none(), "a handle of another kind");
        assert_eq!(*streams.remove(first).unwrap(), "first");
        assert!(streams.get(first).is_none() && streams.remove(first).is_none());
        assert!(!(0..1000).any(|_| streams.add(Arc::new("later")) == first), "handles are not used again");
    }

    #[test]
    fn no_value_that_was_not_handed_out_names_anything() {
        let streams = Table::<u32>::new(Kind::Stream);
        for handle in [0, 1, 2, u64::MAX, streams.reserve()] {
            assert!(streams.get(handle).is_none());
        }
    }
}
