//! Kernels and their launches.
//!
//! A launch is checked before it is made: as many arguments as the kernel has parameters, each of
//! its size, and of its type as far as PTX tells; memory and stream of the kernel's device; block,
//! grid and shared memory within what the kernel and the device allow. What no host can check is
//! what the kernel does with its arguments, so launching is unsafe.

mod elements;
mod kernel;
mod prepared;

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use cuda_launch::{Dim3, LaunchConfig, LaunchLimit, LimitExceeded};
use cudarc::driver::result;
use smallvec::SmallVec;

use crate::buffer::{Buffer, View, ViewMut, check_stream};
use crate::error::{Error, Result};
use crate::memory::Memory;
use crate::signature::Class;
use crate::stream::Stream;
use crate::uses::Access;

pub use elements::Elements;
pub use kernel::Kernel;
pub(crate) use prepared::Prepared;

/// Arguments of which most launches have fewer.
const FEW: usize = 12;

/// A type of a kernel's argument: plain values, and buffers or parts of them.
///
/// A `&Buffer` is passed as a pointer to read from, a `&mut Buffer` as one to write to: that
/// decides what other streams wait for. A kernel that writes to memory which it was given to read
/// breaks the contract of [`Launch::launch`].
///
/// ```
/// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
/// # let device = apex_gpu::Device::open(0)?;
/// /// As the kernel declares it: x becomes scale * x + shift, so many times.
/// #[repr(C)]
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// struct Affine {
///     scale: f32,
///     shift: f32,
///     times: u64,
/// }
/// // affine(Affine by, float* x)
/// let affine = device.load_ptx(PTX)?.kernel("affine")?;
/// let mut x = device.upload(&[0.0f32, 3.0])?;
/// let by = Affine { scale: 2.0, shift: 1.0, times: 3 };
/// // SAFETY: one thread, and a part of one element.
/// unsafe { affine.launch(1, 1).arg(by).arg(x.slice_mut(1..)).launch()? };
/// assert_eq!(x.to_vec()?, [0.0, 31.0]);
/// # apex_gpu::Result::Ok(())
/// ```
pub trait Argument<'a>: sealed::Argument<'a> {}

mod sealed {
    pub trait Argument<'a> {
        fn push(self, launch: &mut super::Launch<'a>);
    }
}

/// An argument that was given.
struct Given<'a> {
    /// The start of its value in [`Launch::values`], in units.
    start: usize,
    bytes: usize,
    /// Name of its type in Rust.
    name: &'static str,
    class: Class,
    memory: Option<Used<'a>>,
}

#[derive(Clone, Copy)]
struct Used<'a> {
    memory: &'a Arc<Memory>,
    access: Access,
    /// Bytes of what was given.
    bytes: usize,
}

impl<'a> Launch<'a> {
    fn push_value<T: Pod>(&mut self, value: T) {
        self.push(bytemuck::bytes_of(&value), std::any::type_name::<T>(), Class::of::<T>(), None);
    }

    fn push(&mut self, value: &[u8], name: &'static str, class: Class, memory: Option<Used<'a>>) {
        let start = self.values.len();
        let units = value.len().div_ceil(size_of::<u128>());
        self.values.resize(start + units, 0);
        bytemuck::cast_slice_mut::<u128, u8>(&mut self.values[start..])[..value.len()].copy_from_slice(value);
        self.arguments.push(Given { start, bytes: value.len(), name, class, memory });
    }

    fn push_memory<T: Pod>(&mut self, buffer: &'a Buffer<T>, address: u64, len: usize, access: Access) {
        let used = Used { memory: buffer.memory(), access, bytes: len * size_of::<T>() };
        self.push(&address.to_ne_bytes(), "a buffer", Class::Pointer, Some(used));
    }
}

macro_rules! arguments {
    ($($type:ty, |$launch:ident, $value:ident| $push:expr;)*) => { $(
        impl<'a, T: Pod> Argument<'a> for $type {}
        impl<'a, T: Pod> sealed::Argument<'a> for $type {
            #[inline]
            fn push(self, $launch: &mut Launch<'a>) {
                let $value = self;
                $push
            }
        }
    )* };
}

arguments! {
    T, |launch, value| launch.push_value(value);
    &'a Buffer<T>, |launch, buffer| launch.push_memory(buffer, buffer.address(), buffer.len(), Access::Read);
    &'a mut Buffer<T>, |launch, buffer| launch.push_memory(&*buffer, buffer.address(), buffer.len(), Access::Write);
    View<'a, T>, |launch, view| {
        let (buffer, address) = view.parts();
        launch.push_memory(buffer, address, view.len(), Access::Read)
    };
    ViewMut<'a, T>, |launch, view| {
        let len = view.len();
        let (buffer, address) = view.into_parts();
        launch.push_memory(buffer, address, len, Access::Write)
    };
}

/// A launch in the making, see [`Kernel::over`] and [`Kernel::launch`].
///
/// ```
/// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
/// # let device = apex_gpu::Device::open(0)?;
/// // saxpy(float a, unsigned n, const float* x, float* y)
/// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
/// let (x, mut y) = (device.upload(&[1.0f32, 2.0])?, device.upload(&[0.5f32, 0.5])?);
/// let launch = saxpy.over(2).arg(10.0f32).arg(2u32).arg(&x).arg(&mut y);
/// // SAFETY: both buffers have two elements.
/// unsafe { launch.launch()? };
/// assert_eq!(y.to_vec()?, [10.5, 20.5]);
/// # apex_gpu::Result::Ok(())
/// ```
#[must_use = "nothing is launched before `launch`"]
pub struct Launch<'a> {
    kernel: &'a Kernel,
    stream: &'a Stream,
    config: LaunchConfig,
    /// The elements that the grid has to cover, for launches of [`Kernel::over`].
    over: Option<Elements>,
    cooperative: bool,
    arguments: SmallVec<[Given<'a>; FEW]>,
    /// Values, each aligned as any parameter may be.
    values: SmallVec<[u128; FEW]>,
}

impl fmt::Debug for Launch<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LaunchConfig { grid, block, .. } = self.config;
        let (kernel, device) = (&self.kernel.name, self.kernel.device.name());
        write!(out, "Launch({kernel}: {grid} blocks of {block} threads on {device})")
    }
}

impl<'a> Launch<'a> {
    /// Sets blocks of `block` threads, given as one to three numbers. A launch [over](Kernel::over)
    /// elements gets as many blocks as it takes to cover them.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // positions(unsigned* out, unsigned width, unsigned height): out[y * width + x] = y << 16 | x
    /// let positions = device.load_ptx(PTX)?.kernel("positions")?;
    /// let (width, height) = (100, 30);
    /// let mut out = device.zeros::<u32>(width * height)?;
    /// let launch = positions.over((width, height)).block((16, 16)); // a grid of 7 by 2 blocks
    /// // SAFETY: the kernel writes `width * height` words, and leaves out the threads beyond.
    /// unsafe { launch.arg(&mut out).arg(width as u32).arg(height as u32).launch()? };
    /// assert_eq!(out.to_vec()?[29 * width + 99], 29 << 16 | 99);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn block(mut self, block: impl Into<Dim3>) -> Self {
        self.config.block = block.into();
        if let Some(over) = self.over {
            self.config.grid = over.blocks_of(self.config.block);
        }
        self
    }

    /// In the order of `stream` rather than of the device's own.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // saxpy(float a, unsigned n, const float* x, float* y)
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// let stream = device.new_stream()?;
    /// let (x, mut y) = (device.upload(&[4.0f32])?, device.zeros::<f32>(1)?);
    /// // SAFETY: both buffers have one element.
    /// unsafe { saxpy.over(1).on(&stream).arg(1.0f32).arg(1u32).arg(&x).arg(&mut y).launch()? };
    /// assert_eq!(y.to_vec()?, [4.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn on(mut self, stream: &'a Stream) -> Self {
        self.stream = stream;
        self
    }

    /// Sets the dynamic shared memory of each block, in bytes.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // reverse(unsigned* words): through shared memory, a word for each thread
    /// let reverse = device.load_ptx(PTX)?.kernel("reverse")?;
    /// let mut words = device.upload(&[1u32, 2, 3, 4])?;
    /// // SAFETY: as many threads as words, and 4 bytes of shared memory for each.
    /// unsafe { reverse.launch(1, 4).shared(16).arg(&mut words).launch()? };
    /// assert_eq!(words.to_vec()?, [4, 3, 2, 1]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn shared(mut self, bytes: u32) -> Self {
        self.config.dynamic_shared_bytes = bytes;
        self
    }

    /// Cooperatively: all blocks are resident at once and can synchronise.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let reverse = device.load_ptx(PTX)?.kernel("reverse")?;
    /// let mut words = device.upload(&[1u32, 2])?;
    /// let launch = reverse.launch(1, 2).shared(8).cooperative();
    /// // SAFETY: as many threads as words, and 4 bytes of shared memory for each.
    /// unsafe { launch.arg(&mut words).launch()? };
    /// assert_eq!(words.to_vec()?, [2, 1]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn cooperative(mut self) -> Self {
        self.cooperative = true;
        self
    }

    /// The next argument.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // saxpy(float a, unsigned n, const float* x, float* y)
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// // SAFETY: refused, as two pointers are missing.
    /// let error = unsafe { saxpy.over(1).arg(1.0f32).arg(1u32).launch() }.unwrap_err();
    /// assert_eq!(error.to_string(), "kernel `saxpy` takes 4 arguments, not 2");
    /// # apex_gpu::Result::Ok(())
    /// ```
    #[inline]
    pub fn arg(mut self, argument: impl Argument<'a>) -> Self {
        argument.push(&mut self);
        self
    }

    /// Launches. Returns at once; an error of the kernel itself shows when its stream is waited
    /// for.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let reverse = device.load_ptx(PTX)?.kernel("reverse")?;
    /// let mut words = device.zeros::<u32>(1 << 20)?;
    /// // SAFETY: refused before anything runs.
    /// let error = unsafe { reverse.launch(1, 4096).arg(&mut words).launch() }.unwrap_err();
    /// assert!(matches!(&error, apex_gpu::Error::LaunchShape { .. }));
    /// println!("{error}"); // says how many threads the kernel allows
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Safety
    /// For these arguments the kernel accesses no memory outside the buffers that it is given,
    /// writes to none that it is given to read, and interprets the bytes of its parameters as what
    /// they are. (Their number and sizes are checked, and that integers and floating-point numbers
    /// are not confused, where PTX tells.) While the stream is captured, this holds for every
    /// launch of the graph.
    ///
    /// # Errors
    /// [`Error::ArgumentCount`], [`Error::ArgumentSize`], [`Error::ArgumentType`],
    /// [`Error::LaunchShape`], [`Error::WrongDevice`]; what the driver says otherwise. Then nothing
    /// was launched.
    pub unsafe fn launch(mut self) -> Result<()> {
        self.check()?;
        let device = self.kernel.device.core();
        device.bind()?;
        let LaunchConfig { grid, block, dynamic_shared_bytes, .. } = self.config;
        self.kernel.allow_shared(dynamic_shared_bytes)?;
        for Used { memory, access, .. } in self.arguments.iter().filter_map(|given| given.memory) {
            memory.order(self.stream, access)?;
        }
        device.has_launched(&self.kernel.name);
        if self.stream.is_captured() {
            self.stream.recording(|recording| recording.keeps_code(&self.kernel.function));
        }
        let values = self.values.as_mut_ptr();
        let pointer = |given: &Given| values.wrapping_add(given.start).cast::<c_void>();
        let mut pointers: SmallVec<[*mut c_void; FEW]> = self.arguments.iter().map(pointer).collect();
        let (function, stream) = (self.kernel.function.cu_function(), self.stream.raw());
        // SAFETY: the kernel is loaded, the pointers are those of as many values of the right
        // sizes; what it does with them is the caller's promise. The buffers live until now; when
        // they are freed, that waits for this stream.
        let launched = unsafe {
            match self.cooperative {
                false => result::launch_kernel(
                    function,
                    grid.into(),
                    block.into(),
                    dynamic_shared_bytes,
                    stream,
                    &mut pointers,
                ),
                true => result::launch_cooperative_kernel(
                    function,
                    grid.into(),
                    block.into(),
                    dynamic_shared_bytes,
                    stream,
                    &mut pointers,
                ),
            }
        };
        launched.map_err(device.failed_at("cuLaunchKernel", || {
            format!("`{}` with {:?} blocks of {:?} threads", self.kernel.name, grid, block)
        }))
    }

    /// The memory that it was given, how it is accessed, and which bytes of it.
    pub(crate) fn uses(&self) -> Vec<(Arc<Memory>, Access, Range<u64>)> {
        let used = |given: &Given<'a>| {
            let Used { memory, access, bytes } = given.memory?;
            let address = bytemuck::cast::<u128, [u64; 2]>(self.values[given.start])[0];
            Some((memory.clone(), access, address..address + bytes as u64))
        };
        self.arguments.iter().filter_map(used).collect()
    }

    fn check(&self) -> Result<()> {
        let kernel = self.kernel;
        let name = || kernel.name.to_string();
        let (expected, found) = (kernel.parameters.len(), self.arguments.len());
        if expected != found {
            return Err(Error::ArgumentCount { kernel: name(), expected, found });
        }
        for (index, (given, &expected)) in self.arguments.iter().zip(&kernel.parameters).enumerate() {
            if given.bytes != expected {
                let (given, found) = (given.name, given.bytes);
                return Err(Error::ArgumentSize { kernel: name(), index, given, expected, found });
            }
            if let Some(declared) = kernel.types.get(index)
                && !declared.accepts(given.class)
            {
                let (given, expected) = (given.name, declared.to_string());
                return Err(Error::ArgumentType { kernel: name(), index, given, expected });
            }
            if let Some(Used { memory, .. }) = given.memory
                && memory.device().cuda().cu_ctx() != kernel.device.cuda().cu_ctx()
            {
                return Err(Error::WrongDevice {
                    what: format!("argument {index} of kernel `{}`", kernel.name),
                    found: memory.device().name().to_owned(),
                    expected: kernel.device.name().to_owned(),
                });
            }
        }
        check_stream(kernel.device.core(), self.stream)?;
        self.check_shape()
    }

    fn check_shape(&self) -> Result<()> {
        let kernel = self.kernel;
        let LaunchConfig { grid, block, .. } = self.config;
        let (threads, allowed) = (self.config.threads_per_block(), kernel.attributes.max_threads_per_block);
        if grid.is_empty() || block.is_empty() {
            return Err(kernel.refused(format!("a grid of {grid:?} blocks of {block:?} threads has none")));
        }
        if threads > u64::from(allowed) {
            return Err(kernel.refused(format!(
                "a block of {block:?} has {threads} threads, and the kernel allows {allowed} (its {} registers a thread, \
                 or __launch_bounds__, decide that)",
                kernel.attributes.registers
            )));
        }
        let Some(LimitExceeded { what, value, limit }) = self.config.exceeded_limit(kernel.device.limits())
        else {
            return Ok(());
        };
        Err(kernel.refused(match what {
            LaunchLimit::BlockDim(axis) => {
                format!("a block has at most {limit} threads along {axis}, not {value}")
            }
            LaunchLimit::GridDim(axis) => {
                format!("a grid has at most {limit} blocks along {axis}, not {value}")
            }
            LaunchLimit::ThreadsPerBlock => format!("a block has at most {limit} threads, not {value}"),
            LaunchLimit::EmptyGrid | LaunchLimit::EmptyBlock => "there is nothing to launch".to_owned(),
        }))
    }
}
