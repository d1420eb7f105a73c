//! User objects: objects of the program that graphs keep alive.
//!
//! A user object is a reference count. The program and graphs hold references. When the last one is
//! released, the object's destructor, a function of the program, is called.

use crate::device;
use crate::error::{Error, Result, ensure};
use crate::handle::{Kind, Table};
use cuda_abi::types::*;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static OBJECTS: Table<UserObject> = Table::new(Kind::UserObject);

/// A user object.
pub struct UserObject {
    handle: u64,
    references: AtomicU64,
    destructor: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

// SAFETY: a program that makes a user object knows that any thread may call its destructor; the
// pointer is its own business.
unsafe impl Send for UserObject {}
// SAFETY: as for `Send`.
unsafe impl Sync for UserObject {}

impl UserObject {
    /// Creates an object to which the program holds `references` references; returns its handle.
    pub fn create(
        destructor: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
        references: u32,
    ) -> Result<u64> {
        device::get()?;
        ensure(is_count(references), CUDA_ERROR_INVALID_VALUE)?;
        let handle = OBJECTS.reserve();
        let references = AtomicU64::new(references.into());
        OBJECTS.insert(handle, Arc::new(UserObject { handle, references, destructor, data }));
        Ok(handle)
    }

    /// Returns the user object of a handle.
    pub fn resolve(handle: CUuserObject) -> Result<Arc<UserObject>> {
        device::get()?;
        OBJECTS.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
    }

    /// Adds references.
    pub fn retain(&self, count: u32) -> Result {
        ensure(is_count(count), CUDA_ERROR_INVALID_VALUE)?;
        self.references.fetch_add(count.into(), Ordering::AcqRel);
        Ok(())
    }

    /// Takes references back, of which there have to be as many.
    pub fn release(&self, count: u32) -> Result {
        ensure(is_count(count), CUDA_ERROR_INVALID_VALUE)?;
        let less = |references: u64| references.checked_sub(count.into());
        let before = self.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        let before = before.map_err(|_| Error(CUDA_ERROR_INVALID_VALUE))?;
        if before == u64::from(count) {
            OBJECTS.remove(self.handle);
            // SAFETY: the program gave the destructor for this data, and this was the last
            // reference.
            unsafe { (self.destructor)(self.data) };
        }
        Ok(())
    }
}

fn is_count(count: u32) -> bool {
    (1..=i32::MAX as u32).contains(&count)
}

/// References that a graph holds; whoever drops it gives them back.
pub struct HeldObject {
    object: Arc<UserObject>,
    count: AtomicU32,
}

impl HeldObject {
    /// Holds references that the object has been given already.
    pub fn new(object: Arc<UserObject>, count: u32) -> HeldObject {
        HeldObject { object, count: AtomicU32::new(count) }
    }

    /// The object's handle.
    pub fn object(&self) -> u64 {
        self.object.handle
    }

    /// Returns the number of references held.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Gives some of them back.
    pub fn give_back(&self, count: u32) {
        let less = |held: u32| held.checked_sub(count);
        if self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok() {
            // The object has at least the references that are held here.
            let _ = self.object.release(count);
        }
    }
}

impl Drop for HeldObject {
    fn drop(&mut self) {
        self.give_back(self.count());
    }
}
