//! Context-local storage: values that the runtime keeps with a context, and wants back when the
//! context ends.

use cuda_abi::types::CUcontext;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Called with context, key and value when the context ends.
pub type Destructor = Option<unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void)>;

/// The values of one context, by key.
#[derive(Default)]
pub struct Storage {
    values: Mutex<HashMap<usize, Stored>>,
}

struct Stored {
    value: usize,
    destructor: Destructor,
}

impl Storage {
    /// Keeps a value.
    pub fn put(&self, key: usize, value: usize, destructor: Destructor) {
        self.lock().insert(key, Stored { value, destructor });
    }

    /// The value that is kept under a key.
    pub fn get(&self, key: usize) -> Option<usize> {
        self.lock().get(&key).map(|stored| stored.value)
    }

    /// Forgets a value.
    pub fn delete(&self, key: usize) {
        self.lock().remove(&key);
    }

    /// Gives every value to its destructor.
    pub fn clear(&self, context: u64) {
        let values = std::mem::take(&mut *self.lock());
        for (key, Stored { value, destructor }) in values {
            let Some(destructor) = destructor else { continue };
            let pointer = std::ptr::without_provenance_mut::<c_void>;
            // SAFETY: the runtime gave the destructor for these values.
            unsafe {
                destructor(crate::arguments::opaque(context), pointer(key), pointer(value));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Stored>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
