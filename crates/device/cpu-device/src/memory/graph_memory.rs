//! Memory of graphs, which allocation nodes provide.
//!
//! Such memory has one address for the life of its graph, so that other nodes can name it. Each
//! launch allocates it, and a free node or `cuMemFreeAsync` frees it again.
//!
//! Invariants:
//! - Whether an allocation or a free is allowed is decided in the order in which work is submitted:
//!   a free that is submitted behind a launch is valid although the launch has not run, and so is
//!   the next launch.
//! - The memory is known to the device from the submission of a launch until the last submitted
//!   free has been executed (`Plan::outstanding`). A free between two launches therefore takes
//!   nothing from the second.
//! - Pages stay with the graph when its memory is freed: they are what
//!   `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT` counts, until they are trimmed.

use crate::device::{self, Device};
use crate::error::{Error, Result, ensure, fail};
use crate::memory::{AllocationError, Backing, Kind, Request};
use cuda_abi::types::*;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static STATE: Mutex<State> = Mutex::new(State {
    memories: BTreeMap::new(),
    used: Footprint { current: 0, high: 0 },
    reserved: Footprint { current: 0, high: 0 },
});

/// The memory of all graphs.
struct State {
    /// By address.
    memories: BTreeMap<u64, Plan>,
    /// Bytes that are allocated.
    used: Footprint,
    /// Bytes whose pages the graphs hold, allocated or not.
    reserved: Footprint,
}

/// A number of bytes, and the highest that it has been.
struct Footprint {
    current: u64,
    high: u64,
}

impl Footprint {
    fn add(&mut self, bytes: u64) {
        self.current += bytes;
        self.high = self.high.max(self.current);
    }

    fn subtract(&mut self, bytes: u64) {
        self.current = self.current.saturating_sub(bytes);
    }
}

/// The memory of an allocation node, and what has been submitted that allocates and frees it.
struct Plan {
    backing: Arc<Backing>,
    request: Request,
    /// Whether it is allocated when everything that has been submitted is done.
    allocated: bool,
    /// Submitted allocations whose free has not been executed.
    outstanding: u64,
    /// Whether its pages count as reserved.
    reserved: bool,
    /// Whether its graph is gone: it lives until it is freed.
    orphaned: bool,
}

/// A step of a launch that concerns memory at an address, which need not be a graph's.
#[derive(Clone, Copy)]
pub enum Use {
    /// An allocation node gives it out.
    Allocate(u64),
    /// It is freed.
    Free(u64),
}

/// Memory of a graph, for as long as a node or a launch needs it.
pub struct GraphMemory {
    address: u64,
    bytes: u64,
}

impl GraphMemory {
    /// Memory of `bytes` bytes. The device knows it at once, so that nodes that name it can be
    /// checked.
    pub fn new(bytes: u64, context: u64) -> Result<Arc<GraphMemory>> {
        ensure(bytes > 0, CUDA_ERROR_INVALID_VALUE)?;
        let request = Request { bytes, kind: Kind::Graph, flags: 0, context };
        let backing = Backing::map(bytes)?;
        let address = backing.start();
        device::get()?.memory.adopt(backing.clone(), request, true)?;
        let plan =
            Plan { backing, request, allocated: false, outstanding: 0, reserved: false, orphaned: false };
        state().memories.insert(address, plan);
        Ok(Arc::new(GraphMemory { address, bytes }))
    }

    /// Returns the address of the memory.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        let mut state = state();
        let Some(plan) = state.memories.get_mut(&self.address) else { return };
        plan.orphaned = true;
        if plan.outstanding == 0 {
            state.forget(self.address);
        }
    }
}

impl State {
    /// Allocates memory for a launch that is being submitted.
    fn submit_allocation(&mut self, address: u64) -> Result {
        let plan = self.memories.get_mut(&address).ok_or(Error(CUDA_ERROR_INVALID_VALUE))?;
        if plan.allocated {
            // This launch frees it first: one allocation takes the place of the other.
            return Ok(());
        }
        if plan.outstanding == 0 {
            match device::get()?.memory.adopt(plan.backing.clone(), plan.request, true) {
                // Known already: since the node was made.
                Ok(_) | Err(AllocationError::Overlaps) => {}
                Err(error) => return Err(error.into()),
            }
            self.used.add(plan.request.bytes);
            if !std::mem::replace(&mut plan.reserved, true) {
                self.reserved.add(plan.request.bytes);
            }
        }
        plan.outstanding += 1;
        plan.allocated = true;
        Ok(())
    }

    fn submit_free(&mut self, address: u64) -> Option<Result> {
        let plan = self.memories.get_mut(&address)?;
        Some(ensure(std::mem::replace(&mut plan.allocated, false), CUDA_ERROR_INVALID_VALUE))
    }

    /// Removes memory that is not allocated and whose graph is gone.
    fn forget(&mut self, address: u64) {
        let Some(plan) = self.memories.remove(&address) else { return };
        if plan.reserved {
            self.reserved.subtract(plan.request.bytes);
        }
        if let Ok(device) = device::get() {
            device.memory.release(address, |kind| kind == Kind::Graph);
        }
    }

    /// Follows the allocations and frees of a launch, in their order.
    fn check(&self, uses: &[Use], automatic: bool) -> Result {
        let submitted = |address| self.memories.get(&address).is_some_and(|plan| plan.allocated);
        let mut allocated = HashMap::new();
        for &step in uses {
            match step {
                Use::Allocate(address) => {
                    let before = allocated.insert(address, true);
                    let unfreed = before.unwrap_or_else(|| !automatic && submitted(address));
                    ensure(!unfreed, CUDA_ERROR_INVALID_VALUE)?;
                }
                Use::Free(address) if self.memories.contains_key(&address) => {
                    let before = allocated.insert(address, false);
                    ensure(before.unwrap_or_else(|| submitted(address)), CUDA_ERROR_INVALID_VALUE)?;
                }
                Use::Free(_) => {}
            }
        }
        Ok(())
    }

    /// Does what [`check`](Self::check) has followed.
    fn submit(&mut self, uses: &[Use]) -> Result {
        uses.iter().try_for_each(|step| match *step {
            Use::Allocate(address) => self.submit_allocation(address),
            Use::Free(address) => self.submit_free(address).unwrap_or(Ok(())),
        })
    }
}

/// Allocates the memory of a graph that is being launched. Memory that an earlier launch has
/// allocated and that no submitted work frees makes the launch fail, unless `automatic` says that
/// launches free it.
pub fn submit_launch(uses: &[Use], automatic: bool) -> Result {
    let mut state = state();
    state.check(uses, automatic)?;
    state.submit(uses)
}

/// Whether `address` is that of a graph's memory, allocated or not.
pub fn is_known(address: u64) -> bool {
    state().memories.contains_key(&address)
}

/// Notes a free that is being submitted; `None` where `address` is no memory of a graph.
pub fn submit_free(address: u64) -> Option<Result> {
    state().submit_free(address)
}

/// Executes a free that has been submitted; false where `address` is no memory of a graph.
pub fn execute_free(address: u64) -> Result<bool> {
    let mut state = state();
    let Some(plan) = state.memories.get_mut(&address) else { return Ok(false) };
    plan.outstanding = plan.outstanding.saturating_sub(1);
    if plan.outstanding > 0 {
        return Ok(true);
    }
    let (bytes, orphaned) = (plan.request.bytes, plan.orphaned);
    state.used.subtract(bytes);
    device::get()?.memory.release(address, |kind| kind == Kind::Graph);
    if orphaned {
        state.forget(address);
    }
    Ok(true)
}

/// Notes that the end of a context has released memory.
pub fn end_context(device: &Device) {
    let mut state = state();
    let State { memories, used, reserved } = &mut *state;
    memories.retain(|address, plan| {
        if plan.outstanding == 0 || device.memory.find(*address).is_some() {
            return true;
        }
        used.subtract(plan.request.bytes);
        (plan.allocated, plan.outstanding) = (false, 0);
        if plan.orphaned && plan.reserved {
            reserved.subtract(plan.request.bytes);
        }
        !plan.orphaned
    });
}

/// An attribute of the device's memory for graphs.
pub fn attribute(attribute: CUgraphMem_attribute) -> Result<u64> {
    let state = state();
    Ok(match attribute {
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT => state.used.current,
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => state.used.high,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT => state.reserved.current,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => state.reserved.high,
        _ => return fail(CUDA_ERROR_INVALID_VALUE),
    })
}

/// Sets a high-water mark to what there is now: the only value that can be set is 0.
pub fn reset_attribute(attribute: CUgraphMem_attribute, value: u64) -> Result {
    ensure(value == 0, CUDA_ERROR_INVALID_VALUE)?;
    let mut state = state();
    let footprint = match attribute {
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => &mut state.used,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => &mut state.reserved,
        _ => return fail(CUDA_ERROR_INVALID_VALUE),
    };
    footprint.high = footprint.current;
    Ok(())
}

/// Gives the pages of memory that is not allocated back to the system.
pub fn trim() {
    let mut state = state();
    let State { memories, reserved, .. } = &mut *state;
    for plan in memories.values_mut().filter(|plan| plan.outstanding == 0 && plan.reserved) {
        plan.reserved = false;
        reserved.subtract(plan.request.bytes);
        plan.backing.discard_pages();
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}
