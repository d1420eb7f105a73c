//! A libcuda.so.1 that executes PTX on the CPU.
//!
//! A program loads this library instead of NVIDIA's driver. The PTX of its kernels is executed on
//! the host's cores, and its device memory is host memory. Results, error codes and order are those
//! of CUDA. The path of a call:
//!
//! ```text
//! exported symbol ─► slots::SLOTS ─► api::* ─► stream ─► task ─► operation ─► copy, fill, launch ─► ptx-exec
//! ```
//!
//! * [`entry`]: the declaration of functions and the contract at the ABI; `arguments` reads what a
//!   program passes. `slots` is the table of all functions, [`coverage`](mod@coverage) tells which
//!   are supported, `refusal` names features that are not.
//! * `api`: the functions, by the parts of the driver API's reference. They check and translate
//!   arguments.
//! * `context`: contexts, which own work, memory and faults.
//! * `thread`: the state of each thread of the program; `headroom`: whether work can still get
//!   memory; `fault`, `log`, `observation`: what is told about work, to people, by the error log,
//!   and to the session.
//! * `device`, `memory`, `image`, `module`: the objects. `memory` has device memory, pools, host
//!   memory, address ranges, copies, and sharing between processes; `module` also links, and
//!   reports images without PTX.
//! * `stream`, `graph`: the order of work. `stream` has events, capture, the threads
//!   (`stream::task`) and the operations (`stream::operation`).
//! * `launch` executes kernels with the crate `ptx-exec`, which does not know the driver API:
//!   `launch::device_runtime` executes launches from device code, `launch::time_limit` limits their
//!   time. `observation` selects the launches that are counted and checked, and writes the results.
//!
//! Invariants:
//!
//! 1. A device address is a host address (`memory`).
//! 2. No argument makes the library panic or crash, unless it violates the contract of [`entry`].
//! 3. No lock is held during a call of the program's function or a wait for work.

mod api;
mod arguments;
mod context;
mod coverage;
mod device;
pub mod entry;
mod error;
mod error_string;
mod fault;
mod graph;
mod handle;
mod headroom;
mod image;
mod launch;
mod log;
mod memory;
mod module;
mod observation;
mod refusal;
pub mod slots;
mod stream;
mod thread;

pub use coverage::{Coverage, coverage};

cuda_abi::export_entry_points!(crate::slots::SLOTS);
cuda_abi::exported_addresses!(EXPORTED);
