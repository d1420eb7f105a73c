//! Memory pools, from which `cuMemAllocAsync` allocates.
//!
//! Memory is allocated when it is asked for and freed when the stream reaches the free. Nothing is
//! kept back for reuse, so a pool's reserved memory is what is in use, and its release threshold is
//! kept without effect.

use crate::device;
use crate::error::{Error, Result, ensure};
use crate::handle::{Kind as HandleKind, Table};
use crate::memory::graph_memory;
use crate::memory::{Allocation, Kind, Request};
use cuda_abi::types::*;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

static POOLS: Table<Pool> = Table::new(HandleKind::Pool);

/// The device's default pool, which can't be destroyed.
static DEFAULT: OnceLock<Arc<Pool>> = OnceLock::new();

/// The pool that the device allocates from; the default one unless set.
static CURRENT: Mutex<Option<Arc<Pool>>> = Mutex::new(None);

/// Addresses whose free a stream has yet to reach: a second free of one is an error.
static FREEING: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

/// A pool.
pub struct Pool {
    /// As the program knows it.
    pub handle: u64,
    used: AtomicU64,
    highest: AtomicU64,
    settings: Mutex<HashMap<CUmemPool_attribute, u64>>,
}

impl Pool {
    /// Creates a pool and names it.
    pub fn create() -> Arc<Pool> {
        let reuse = [
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
            CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
            CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
        ];
        let mut settings: HashMap<_, _> = reuse.into_iter().map(|attribute| (attribute, 1)).collect();
        settings.insert(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0);
        let pool = Arc::new(Pool {
            handle: POOLS.reserve(),
            used: AtomicU64::new(0),
            highest: AtomicU64::new(0),
            settings: Mutex::new(settings),
        });
        POOLS.insert(pool.handle, pool.clone());
        pool
    }

    /// The pool that a handle names.
    pub fn resolve(handle: CUmemoryPool) -> Result<Arc<Pool>> {
        device::get()?;
        POOLS.get(handle as u64).ok_or(Error(CUDA_ERROR_INVALID_VALUE))
    }

    /// Takes away a pool's name. If the device allocated from it, it goes back to the default one.
    pub fn destroy(handle: CUmemoryPool) -> Result {
        let pool = Pool::resolve(handle)?;
        ensure(pool.handle != default_pool().handle, CUDA_ERROR_INVALID_VALUE)?;
        POOLS.remove(pool.handle);
        current_slot().take_if(|current| current.handle == pool.handle);
        Ok(())
    }

    /// Allocates from the pool.
    pub fn allocate(&self, bytes: u64, context: u64) -> Result<Arc<Allocation>> {
        let request = Request { bytes, kind: Kind::Pooled(self.handle), flags: 0, context };
        let allocation = device::get()?.memory.allocate(request)?;
        count_in(self.handle, bytes);
        Ok(allocation)
    }

    /// The value of an attribute.
    pub fn attribute(&self, attribute: CUmemPool_attribute) -> Result<u64> {
        match attribute {
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT | CU_MEMPOOL_ATTR_USED_MEM_CURRENT => {
                Ok(self.used.load(Ordering::Relaxed))
            }
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
                Ok(self.highest.load(Ordering::Relaxed))
            }
            _ => self.settings().get(&attribute).copied().ok_or(Error(CUDA_ERROR_INVALID_VALUE)),
        }
    }

    /// Sets an attribute. High-water marks can be set to 0 only, which means to what is in use now.
    pub fn set_attribute(&self, attribute: CUmemPool_attribute, value: u64) -> Result {
        match attribute {
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
                ensure(value == 0, CUDA_ERROR_INVALID_VALUE)?;
                self.highest.store(self.used.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            _ => {
                let mut settings = self.settings();
                *settings.get_mut(&attribute).ok_or(Error(CUDA_ERROR_INVALID_VALUE))? = value;
            }
        }
        Ok(())
    }

    fn settings(&self) -> MutexGuard<'_, HashMap<CUmemPool_attribute, u64>> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an attribute of a pool is a 64-bit number rather than an `int`.
pub fn is_wide(attribute: CUmemPool_attribute) -> bool {
    (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD..=CU_MEMPOOL_ATTR_USED_MEM_HIGH).contains(&attribute)
}

/// The device's default pool.
pub fn default_pool() -> Arc<Pool> {
    DEFAULT.get_or_init(Pool::create).clone()
}

/// The pool that the device allocates from.
pub fn current_pool() -> Arc<Pool> {
    current_slot().clone().unwrap_or_else(default_pool)
}

/// Has the device allocate from another pool.
pub fn set_current_pool(pool: Arc<Pool>) {
    *current_slot() = Some(pool);
}

fn current_slot() -> MutexGuard<'static, Option<Arc<Pool>>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count_in(pool: u64, bytes: u64) {
    if let Some(pool) = POOLS.get(pool) {
        let used = pool.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        pool.highest.fetch_max(used, Ordering::Relaxed);
    }
}

/// Checks that `address` may be freed in a stream, and remembers that it will be.
pub fn plan_free(address: u64) -> Result {
    if let Some(outcome) = graph_memory::submit_free(address) {
        return outcome;
    }
    check_freeable(address)?;
    let mut freeing = FREEING.lock().unwrap_or_else(PoisonError::into_inner);
    ensure(freeing.get_or_insert_default().insert(address), CUDA_ERROR_INVALID_VALUE)
}

/// Checks that `address` is the start of what a stream or a graph may free.
pub fn check_freeable(address: u64) -> Result {
    if graph_memory::is_known(address) {
        return Ok(());
    }
    let allocation = device::get()?.memory.find(address).filter(|found| found.start == address);
    let freeable = allocation.is_some_and(|found| matches!(found.kind, Kind::Pooled(_) | Kind::Device));
    ensure(freeable, CUDA_ERROR_INVALID_VALUE)
}

/// Frees what has been checked. A graph that is launched again may find it freed already.
pub fn free(address: u64) -> Result {
    if graph_memory::execute_free(address)? {
        return Ok(());
    }
    let mut freeing = FREEING.lock().unwrap_or_else(PoisonError::into_inner);
    freeing.get_or_insert_default().remove(&address);
    release(address).map(drop)
}

/// Frees device memory of any origin at once; false where `address` is not the start of any.
pub fn free_now(address: u64) -> Result<bool> {
    if let Some(outcome) = graph_memory::submit_free(address) {
        outcome?;
        return graph_memory::execute_free(address);
    }
    release(address).map(|released| released.is_some())
}

/// Releases device memory; `None` where `address` is not the start of any.
fn release(address: u64) -> Result<Option<Arc<Allocation>>> {
    let freeable = |kind| matches!(kind, Kind::Device | Kind::Managed | Kind::Pooled(_));
    let released = device::get()?.memory.release(address, freeable);
    if let Some(allocation) = &released
        && let Kind::Pooled(pool) = allocation.kind
        && let Some(pool) = POOLS.get(pool)
    {
        pool.used.fetch_sub(allocation.bytes, Ordering::Relaxed);
    }
    Ok(released)
}
