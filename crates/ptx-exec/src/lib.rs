//! Executes PTX on the CPU.
//!
//! [`Program::compile`] turns a [`ptx::Module`] into steps over 32-lane registers; [`Linked`] adds the addresses of its
//! variables; [`launch`] runs a kernel over a grid, with [`Memory`] saying what may be accessed. Reading order: `code`
//! (what is executed), `lanes`, `access` and `pattern` (how a step computes and accesses memory), `warp` (divergence),
//! `convoy`, `prologue`, `block`, `launch`; then `compile`. `matrix`, `mbarrier` and `bulk` are families of instructions of their own.
//!
//! Invariants:
//!
//! 1. Every access is checked; a kernel can touch nothing but its own registers and what `Memory` allows.
//! 2. Every thread that can make progress does, whatever the others do: lanes of a warp, warps of a block, blocks that
//!    are resident. A launch that never ends can be cancelled.
//! 3. What fails names the kernel, the block, the thread, the instruction and its line.
//! 4. PTX that this device does not execute compiles; only a kernel that reaches it fails.
//!
//! One module is the definition of floating point (`soft`); what is fast is tested against it.

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

mod access;
mod approximate;
mod atomics;
mod block;
mod budget;
mod builtin;
mod bulk;
mod code;
mod compile;
mod convert;
mod convoy;
mod directed;
mod exchange;
mod fault;
mod float_control;
mod fuel;
mod half;
mod half_arithmetic;
mod image;
mod input;
mod lanes;
mod launch;
mod matrix;
mod mbarrier;
mod memory;
mod numbers;
mod observe;
mod pattern;
mod printf;
mod probe;
mod program;
mod prologue;
mod registers;
mod runtime;
mod shadow;
mod soft;
mod spaces;
mod straight;
mod surface;
mod texture;
mod vectors;
mod warp;
mod whereabouts;

pub use fault::{Fault, FaultKind};
pub use image::{ChannelFormat, Image};
pub use launch::{LaunchParams, LaunchStats, Linked, MAX_SHARED, launch, local_bytes, watch};
pub use memory::{Memory, Region};
pub use observe::{Counted, Group, Observation, Wishes};
pub use program::{
    GlobalLayout, GlobalSpace, KernelAttributes, KernelId, ParamLayout, Program, Relocation, RelocationTarget,
};
pub use runtime::{DeviceLaunch, DeviceRuntime, DeviceWork, SUCCESS, is_device_runtime};
pub use shadow::Shadow;
pub use texture::{AddressMode, Sampler, Texture};

/// Whether the device function called `name` needs no definition: the device provides it, as it does `vprintf` and
/// `malloc`, or says by name that it does not when a kernel reaches a call.
pub fn provides(name: &str) -> bool {
    compile::is_provided(name)
}

/// PTX that cannot be compiled, and where.
pub type CompileError = ptx::Diagnostic;
