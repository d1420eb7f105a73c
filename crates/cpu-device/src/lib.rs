//! A libcuda.so.1 that executes PTX on the CPU.
//!
//! A program loads this library in place of NVIDIA's driver and runs: its kernels' PTX is executed on the
//! host's cores, its device memory is host memory. Everything that a program can see is CUDA's: results,
//! error codes, order. The way of a call:
//!
//! ```text
//! exported symbol ─► entry::SLOTS ─► api::* ─► stream ─► task ─► operation ─► copy, fill, launch ─► ptx-exec
//! ```
//!
//! * [`entry`]: how functions are declared, the contract at the ABI, and [`coverage`](mod@coverage): how far
//!   each is done.
//! * `api`: the functions, by the parts of the driver API's reference. They check and translate.
//! * `thread`: what is kept for each of the program's threads.
//! * `device`, `context`, `memory`, `host_memory`, `virtual_memory`, `pool`, `array`, `texture`, `module`, `link`: what there is.
//! * `advice`: what to do about machine code, in the words of the program that brings it.
//! * `ipc`: what is shared with other processes.
//! * `stream`, `event`, `capture`, `graph`, `graph_memory`, `graph_condition`: what is done when. `task` has the threads, `operation` what can
//!   be done.
//! * `launch` executes kernels with the crate `ptx-exec`, which knows nothing of the driver; `device_runtime` executes
//!   what kernels launch themselves, and `watchdog` bounds their time.
//!
//! Invariants:
//!
//! 1. A device address is a host address (`memory`).
//! 2. Nothing that a program passes makes the library panic or crash, unless it breaks the contract of
//!    [`entry`].
//! 3. No lock is held while a program's function is called, or while work is waited for.

mod advice;
mod api;
mod array;
mod capture;
mod context;
mod copy;
mod coverage;
mod device;
mod device_runtime;
pub mod entry;
mod error;
mod event;
mod fault;
mod graph;
mod graph_condition;
mod graph_memory;
mod handle;
mod host_memory;
mod integrity;
mod ipc;
mod launch;
mod link;
mod memory;
mod module;
mod operation;
mod pool;
mod storage;
mod stream;
mod stream_memory;
mod task;
mod texture;
mod thread;
mod user_object;
mod virtual_memory;
mod watch;
mod watchdog;

pub use coverage::{Coverage, coverage};

cuda_abi::export_entry_points!(crate::entry::SLOTS);
cuda_abi::exported_addresses!(EXPORTED);
