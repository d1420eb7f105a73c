//! CUDA from Rust, with or without a GPU.
//!
//! This crate is [cudarc](https://docs.rs/cudarc)'s contexts, streams, modules and memory, with
//! what programs otherwise write themselves: errors that say what to do, launches that are checked,
//! buffers that keep their order between streams, kernels compiled once and cached, small tensors;
//! and a device that executes PTX on the host's cores where there is no GPU, so that the same
//! program runs, and is tested, everywhere.
//!
//! ```
//! use apex_gpu::{Device, Source};
//!
//! # if apex_gpu::Module::can_compile().is_err() { return Ok(()) } // no NVRTC here
//! let device = Device::open(0)?; // a GPU, or the CPU device: `device.kind()` says which and why
//! let module = device.compile(&Source::new(r#"
//!     extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned n) {
//!         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//!         if (i < n) y[i] += a * x[i];
//!     }
//! "#))?;
//! let saxpy = module.kernel("saxpy")?;
//!
//! let x = device.upload(&[1.0f32, 2.0, 3.0])?;
//! let mut y = device.upload(&[0.5f32, 0.5, 0.5])?;
//! // SAFETY: the kernel reads and writes three elements.
//! unsafe { saxpy.over(3).arg(2.0f32).arg(&x).arg(&mut y).arg(3u32).launch()? };
//! assert_eq!(y.to_vec()?, [2.5, 4.5, 6.5]);
//! # apex_gpu::Result::Ok(())
//! ```
//!
//! # What is where
//!
//! | | |
//! | --- | --- |
//! | [`Device`], [`Kind`], [`DeviceAttributes`] | what there is, and what it allows |
//! | [`Buffer`], [`View`], [`Pinned`] | memory of the device, parts of it, pinned memory of the host |
//! | [`Stream`], [`Event`] | order and time |
//! | [`Source`], [`Module`], [`Kernel`], [`FunctionAttributes`], [`Dim3`], [`Elements`], [`Launch`] | from CUDA C++, PTX or CUBIN to a launch |
//! | [`Global`] | variables of modules |
//! | [`Graph`], [`Schedule`], [`Scheduler`], [`Host`] | captured work; work whose order follows from what it borrows |
//! | [`Tensor`], [`Extents`] | products of matrices, element by element, reductions, softmax |
//! | [`Error`] | what went wrong |
//!
//! # What is safe
//!
//! Everything but launching a kernel: what a kernel does with its arguments is known to its author
//! only. The number, sizes and types of arguments, block, grid, shared memory and devices are
//! checked before.
//!
//! A buffer that is used on several streams makes each of them wait for the work it must not
//! overtake, and is freed when the last use is done. That costs nothing while one stream uses it,
//! and an event where another takes over.
//!
//! Streams and memory of others, a framework's for instance, can be borrowed
//! ([`Device::borrow_stream`], [`Device::borrow_buffer`]): the caller then says how long they live.
//!
//! # Without a GPU
//!
//! [`Device::open`] then gives the CPU device: compute capability 8.0, PTX only. Cargo builds it
//! beside the program, as the default feature `cpu-device` asks, and there it is found:
//! `libapex_cpu_device.so`, with a hash behind the name where this crate comes from a git
//! repository. It is also looked for in the library path and in installations of APEX, or where
//! `APEX_CPU_DEVICE` says. [`Choice::Gpu`] refuses it, [`Choice::Cpu`] insists on it, and the
//! environment variable `APEX_DEVICE` (`gpu`, `cpu`) decides where the program does not.
//!
//! # What is needed
//!
//! A build needs nothing. To run on a GPU, a program needs NVIDIA's driver for CUDA 12.8 or newer.
//! To compile CUDA C++, it needs NVRTC: from a toolkit, or `pip install nvidia-cuda-nvrtc`. It uses
//! cuBLAS if that is there. The platform is Linux on x86-64.

/// The examples of the guide, which are tested with those of this documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/rust.md")]
struct Guide;

mod borrowed;
mod buffer;
mod cache;
mod compiler;
mod cpu_device;
mod device;
mod driver;
mod error;
mod global;
mod graph;
mod launch;
mod libraries;
mod memory;
mod module;
mod pinned;
mod schedule;
mod signature;
mod source;
mod stream;
mod tensor;
mod uses;

pub use buffer::{Buffer, View, ViewMut};
pub use cache::Cached;
pub use cuda_launch::{DeviceAttributes, Dim3, FunctionAttributes};
pub use device::Device;
pub use driver::{Choice, Kind};
pub use error::{Context, Error, Result};
pub use global::Global;
pub use graph::Graph;
pub use launch::{Argument, Elements, Kernel, Launch};
pub use module::Module;
pub use pinned::Pinned;
#[doc(hidden)]
pub use schedule::Rule;
pub use schedule::{Host, Schedule, Scheduler};
pub use source::{CacheFolder, Source};
pub use stream::{Event, Stream};
pub use tensor::{Backend, Extents, Float, Number, Tensor};
