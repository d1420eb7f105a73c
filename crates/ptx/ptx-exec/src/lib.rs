//! Executes PTX on the CPU.
//!
//! [`Program::compile`] turns a [`ptx::Module`] into steps over 32-lane registers; [`Linked`] adds
//! the addresses of its variables; [`launch`] runs a kernel over a grid, within the accessible
//! ranges of [`Memory`].
//!
//! | module | content |
//! | --- | --- |
//! | `budget` | the host memory that a launch takes |
//! | `operands` | the operands of steps: registers, operands of a handler |
//! | `registers` | a warp's registers, and computation on 32 lanes at a time |
//! | `arithmetic` | PTX arithmetic, on numbers and on whole registers |
//! | `memory` | accesses and their checks; `image` and `matrix` are separate families |
//! | `code` | a compiled function: steps, inputs, source lines |
//! | `compile` | from PTX to `code`; `compile::decode` has one file per family of instructions |
//! | `launch` | the state that all blocks of a launch share; symbolization of addresses |
//! | `warp` | 32 threads: divergence, warp batches, barriers, exchange between lanes |
//! | `runtime` | functions that the device provides: `printf`, `malloc`, the device runtime |
//! | `observe` | observation of a launch: counts and defects; `warp` calls `observe::probe` |
//! | `grid` | the blocks of a launch, executed by a pool of worker threads |
//!
//! Each module uses those above it, with two exceptions that Rust's types require: a `warp` calls
//! the `runtime` and a probe of `observe`, and both see the calling warp; `image` and `memory` name
//! the trait in `device`, whose methods return images.
//!
//! Invariants:
//!
//! 1. Every access is checked: a kernel can access only its registers and the ranges of `Memory`.
//! 2. Every thread that can make progress does, independent of the others: lanes of a warp, warps
//!    of a block, resident blocks. An endless launch can be cancelled.
//! 3. An error names the kernel, the block, the thread, the instruction and its line.
//! 4. Unsupported PTX compiles; only a kernel that reaches it fails.
//!
//! The module `soft` defines floating point; tests compare the fast implementations with it.

#![allow(
    clippy::double_comparisons,
    clippy::manual_is_multiple_of,
    clippy::needless_range_loop,
    clippy::needless_update,
    clippy::neg_cmp_op_on_partial_ord,
    clippy::nonminimal_bool,
    reason = "lanes index several arrays at once; comparisons and tests are written as the ISA words them"
)]
#![allow(clippy::result_large_err, reason = "a fault ends a launch: its size costs nothing")]

mod arithmetic;
mod budget;
mod code;
mod compile;
mod device;
mod fault;
mod float_control;
mod grid;
mod image;
mod launch;
mod matrix;
mod memory;
mod native;
mod observe;
mod operands;
mod program;
mod registers;
mod runtime;
mod warp;

pub use apex_counts::Counted;
pub use device::{DeviceLaunch, DeviceRuntime, DeviceWork, KernelId, Memory, Region, SUCCESS};
pub use fault::{Fault, FaultKind};
pub use grid::{LaunchStats, launch, watch};
pub use image::sampling::{AddressMode, Sampler, Texture};
pub use image::{ChannelFormat, Image};
pub use launch::{LaunchParams, Linked, MAX_CLUSTER, MAX_SHARED, MAX_THREADS, local_bytes};
pub use memory::shadow::Shadow;
pub use memory::tensor::{Corners, MAX_INNER, MAX_RANK, TensorMap};
pub use native::{Engine, Outside};
pub use observe::{Group, LatentDefect, Observation, WatchOptions};
pub use program::{
    GlobalLayout, GlobalSpace, KernelAttributes, ParamLayout, Program, Relocation, RelocationTarget,
};
pub use runtime::device_runtime::is_device_runtime;

/// Whether the device function called `name` needs no definition: the device provides it, as it
/// does `vprintf` and `malloc`, or says by name that it does not when a kernel reaches a call.
pub fn provides(name: &str) -> bool {
    compile::is_provided(name)
}

/// PTX that cannot be compiled, and where.
pub type CompileError = ptx::Diagnostic;
