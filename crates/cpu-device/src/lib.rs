//! A libcuda.so.1 that executes PTX on the CPU.
//!
//! A program loads this library in place of NVIDIA's driver and runs: its kernels' PTX is executed
//! on the host's cores, its device memory is host memory. Everything that a program can see is
//! CUDA's: results, error codes, order. The way of a call:
//!
//! ```text
//! exported symbol ─► entry::SLOTS ─► api::* ─► stream ─► task ─► operation ─► copy, fill, launch ─► ptx-exec
//! ```
//!
//! * [`entry`]: how functions are declared, the contract at the ABI, and
//!   [`coverage`](mod@coverage): how far each is done.
//! * `api`: the functions, by the parts of the driver API's reference. They check and translate.
//! * `context`: whose work, memory and faults belong together; what is kept for each of the
//!   program's threads.
//! * `log`: what went wrong, in words.
//! * `device`, `memory`, `image`, `module`: what there is. `memory` has device memory, pools, host
//!   memory, address ranges, copies, and what is shared with other processes; `module` also links,
//!   and says what to do about machine code.
//! * `stream`, `graph`: what is done when. `stream` has events, capture, the threads
//!   (`stream::task`) and what can be done (`stream::operation`).
//! * `launch` executes kernels with the crate `ptx-exec`, which knows nothing of the driver:
//!   `launch::device_runtime` executes what kernels launch themselves, `launch::observation` says
//!   which launches are counted and checked and writes what was found, `launch::time_limit` bounds
//!   their time.
//!
//! Invariants:
//!
//! 1. A device address is a host address (`memory`).
//! 2. Nothing that a program passes makes the library panic or crash, unless it breaks the contract
//!    of [`entry`].
//! 3. No lock is held while a program's function is called, or while work is waited for.

mod api;
mod context;
mod coverage;
mod device;
pub mod entry;
mod error;
mod graph;
mod handle;
mod image;
mod launch;
mod log;
mod memory;
mod module;
mod stream;

pub use coverage::{Coverage, coverage};

cuda_abi::export_entry_points!(crate::entry::SLOTS);
cuda_abi::exported_addresses!(EXPORTED);
