//! Kernels and their launches.
//!
//! A launch is checked before it is made: as many arguments as the kernel has parameters, each of its size; memory and
//! stream of the kernel's device; block, grid and shared memory within what the kernel and the device allow. What no host
//! can check is what the kernel does with its arguments, so launching is unsafe.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::Pod;
use cuda_launch::{Dim3, FunctionAttributes, LaunchConfig, LaunchLimit, LimitExceeded};
use cudarc::driver::sys::CUfunction_attribute as Attribute;
use cudarc::driver::{CudaFunction, result, sys};
use smallvec::SmallVec;

use crate::buffer::{Buffer, View, ViewMut, check_stream};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::uses::{Access, Uses};

/// Arguments of which most launches have fewer.
const FEW: usize = 12;

/// A kernel that is loaded on a device.
///
/// ```
/// # let device = apex_gpu::Device::open(0)?;
/// let module = device.load_ptx("
/// .version 7.0
/// .target sm_75
/// .address_size 64
/// .visible .entry fill(.param .u64 to, .param .u32 value)
/// {
///     .reg .b32 %r<3>;
///     .reg .b64 %rd<2>;
///     ld.param.u64 %rd0, [to];
///     ld.param.u32 %r0, [value];
///     mov.u32 %r1, %tid.x;
///     mul.wide.u32 %rd1, %r1, 4;
///     add.u64 %rd1, %rd0, %rd1;
///     st.global.u32 [%rd1], %r0;
///     ret;
/// }
/// ")?;
/// let fill = module.kernel("fill")?;
/// assert_eq!(fill.parameters(), [8, 4]); // a pointer and a word
/// let mut words = device.zeros::<u32>(64)?;
/// // SAFETY: one block of as many threads as there are words.
/// unsafe { fill.launch(1, 64).arg(&mut words).arg(7u32).launch()? };
/// assert_eq!(words.download()?, [7; 64]);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Kernel {
    function: CudaFunction,
    device: Device,
    name: String,
    /// Sizes of the parameters in bytes.
    parameters: SmallVec<[usize; FEW]>,
    attributes: FunctionAttributes,
    /// Dynamic shared memory that the driver has been told of.
    shared_allowed: AtomicU32,
    /// Threads of a block for [`Kernel::over`].
    best_block: OnceLock<u32>,
}

impl Kernel {
    pub(crate) fn new(device: &Device, function: CudaFunction, name: &str) -> Result<Kernel> {
        let get = |attribute| {
            let value = function.get_attribute(attribute);
            Ok(value.map_err(device.core().failed_at("cuFuncGetAttribute", || name.to_owned()))?.max(0)
                as u32)
        };
        let allowed = get(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?;
        let attributes = FunctionAttributes {
            registers: get(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            static_shared_bytes: get(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local_bytes: get(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            constant_bytes: get(Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
            max_threads_per_block: get(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            max_dynamic_shared_bytes: Some(allowed),
            binary_version: get(Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
            ptx_version: get(Attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
            ..FunctionAttributes::default()
        };
        Ok(Kernel {
            parameters: parameters(&function),
            function,
            device: device.clone(),
            name: name.to_owned(),
            attributes,
            shared_allowed: AtomicU32::new(allowed),
            best_block: OnceLock::new(),
        })
    }

    /// The name by which it was asked for.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// assert_eq!(device.load_ptx(PTX)?.kernel("saxpy")?.name(), "saxpy");
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it needs, as the driver said when it was loaded.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// let needs = saxpy.attributes();
    /// assert!(needs.registers > 0 && needs.static_shared_bytes == 0);
    /// assert!(needs.max_threads_per_block <= device.limits().max_threads_per_block);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn attributes(&self) -> &FunctionAttributes {
        &self.attributes
    }

    /// Sizes of its parameters in bytes, in order.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // saxpy(float a, unsigned n, const float* x, float* y)
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// assert_eq!(saxpy.parameters(), [4, 4, 8, 8]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn parameters(&self) -> &[usize] {
        &self.parameters
    }

    /// The device that it is loaded on.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// let x = saxpy.device().upload(&[1.0f32, 2.0])?; // memory where the kernel can use it
    /// assert_eq!(x.device().name(), device.name());
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// cudarc's function, for what this crate does not offer.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// let handle = saxpy.cuda().cu_function(); // the `CUfunction` that a C library wants
    /// assert!(!handle.is_null());
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn cuda(&self) -> &CudaFunction {
        &self.function
    }

    /// A launch over (at least) `elements` threads in one dimension. Blocks have as many threads as fill the device best
    /// ([`Kernel::best_block`]); the kernel checks itself which of the last block's threads have an element.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // saxpy(float a, unsigned n, const float* x, float* y)
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// let n = 10_000;
    /// let (x, mut y) = (device.upload(&vec![1.0f32; n])?, device.zeros::<f32>(n)?);
    /// // SAFETY: both buffers have `n` elements, and the kernel leaves out the threads beyond.
    /// unsafe { saxpy.over(n).arg(3.0f32).arg(n as u32).arg(&x).arg(&mut y).launch()? };
    /// assert!(y.download()?.iter().all(|&value| value == 3.0));
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn over(&self, elements: usize) -> Launch<'_> {
        let block = self.best_block();
        let blocks = elements.div_ceil(block as usize).max(1);
        // More than a grid can have is refused at the launch.
        self.launch(u32::try_from(blocks).unwrap_or(u32::MAX), block)
    }

    /// A launch of `grid` blocks of `block` threads, each told as one to three numbers.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // saxpy(float a, unsigned n, const float* x, float* y)
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// let (x, mut y) = (device.upload(&[2.0f32; 100])?, device.zeros::<f32>(100)?);
    /// let (grid, block) = (4, 32); // 128 threads for 100 elements
    /// // SAFETY: both buffers have 100 elements.
    /// unsafe { saxpy.launch(grid, block).arg(0.5f32).arg(100u32).arg(&x).arg(&mut y).launch()? };
    /// assert_eq!(y.download()?, [1.0; 100]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn launch(&self, grid: impl Into<Dim3>, block: impl Into<Dim3>) -> Launch<'_> {
        Launch {
            kernel: self,
            stream: self.device.stream(),
            config: LaunchConfig::new(grid, block),
            cooperative: false,
            arguments: SmallVec::new(),
            values: SmallVec::new(),
        }
    }

    /// Threads of a block, along x alone, with which the most threads of this kernel are resident, without dynamic shared
    /// memory: the driver's own calculation.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let saxpy = device.load_ptx(PTX)?.kernel("saxpy")?;
    /// assert!(saxpy.best_block() <= saxpy.attributes().max_threads_per_block);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn best_block(&self) -> u32 {
        extern "C" fn none(_: std::ffi::c_int) -> usize {
            0
        }
        *self.best_block.get_or_init(|| {
            let best = self.function.occupancy_max_potential_block_size(none, 0, 0, None);
            best.map_or(self.attributes.max_threads_per_block.min(256), |(_, block)| block).max(1)
        })
    }

    /// Blocks of `threads` threads, each with `shared` bytes of dynamic shared memory, that a multiprocessor holds at once.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// let reverse = device.load_ptx(PTX)?.kernel("reverse")?;
    /// let at_once = reverse.blocks_per_multiprocessor(256, 1024)? * device.limits().multiprocessors;
    /// println!("{at_once} blocks run at the same time");
    /// # apex_gpu::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// What the driver says.
    pub fn blocks_per_multiprocessor(&self, threads: u32, shared: u32) -> Result<u32> {
        let blocks =
            self.function.occupancy_max_active_blocks_per_multiprocessor(threads, shared as usize, None);
        blocks.map_err(
            self.device.core().failed_at("cuOccupancyMaxActiveBlocksPerMultiprocessor", || self.name.clone()),
        )
    }

    /// Lets blocks have `bytes` of dynamic shared memory, which beyond 48 KiB has to be asked for.
    fn allow_shared(&self, bytes: u32) -> Result<()> {
        if bytes <= self.shared_allowed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let limits = self.device.limits();
        let most =
            limits.max_shared_bytes_per_block_optin.saturating_sub(self.attributes.static_shared_bytes);
        if bytes > most {
            return Err(self.refused(format!(
                "{bytes} bytes of dynamic shared memory are more than the {most} that {} has for a block beside the \
                 kernel's own {}",
                self.device.name(),
                self.attributes.static_shared_bytes
            )));
        }
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let set = self.function.set_attribute(attribute, bytes as i32);
        set.map_err(
            self.device.core().failed_at("cuFuncSetAttribute", || format!("{bytes} bytes of shared memory")),
        )?;
        self.shared_allowed.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn refused(&self, why: String) -> Error {
        Error::LaunchShape { kernel: self.name.clone(), why }
    }
}

/// Sizes of the parameters, as the driver knows them.
fn parameters(function: &CudaFunction) -> SmallVec<[usize; FEW]> {
    let mut sizes = SmallVec::new();
    let (mut offset, mut bytes) = (0, 0);
    // SAFETY: the function is loaded, and both are valid for writing.
    while unsafe { sys::cuFuncGetParamInfo(function.cu_function(), sizes.len(), &mut offset, &mut bytes) }
        .result()
        .is_ok()
    {
        sizes.push(bytes);
    }
    sizes
}

/// What may be an argument of a kernel: plain values, and buffers or parts of them.
///
/// A `&Buffer` is passed as a pointer to read from, a `&mut Buffer` as one to write to: that decides what other streams
/// wait for. A kernel that writes to memory which it was given to read breaks the contract of [`Launch::launch`].
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
/// assert_eq!(x.download()?, [0.0, 31.0]);
/// # apex_gpu::Result::Ok(())
/// ```
pub trait Argument<'a>: sealed::Argument<'a> {}

mod sealed {
    pub trait Argument<'a> {
        fn push(self, launch: &mut super::Launch<'a>);
    }
}

/// An argument that was given.
#[derive(Debug)]
struct Given<'a> {
    /// Where its value begins in [`Launch::values`], in units.
    start: usize,
    bytes: usize,
    memory: Option<Memory<'a>>,
}

#[derive(Debug)]
struct Memory<'a> {
    uses: &'a Uses,
    access: Access,
    device: &'a Device,
}

impl<'a> Launch<'a> {
    fn push_value(&mut self, value: &[u8], memory: Option<Memory<'a>>) {
        let start = self.values.len();
        let units = value.len().div_ceil(size_of::<u128>());
        self.values.resize(start + units, 0);
        bytemuck::cast_slice_mut::<u128, u8>(&mut self.values[start..])[..value.len()].copy_from_slice(value);
        self.arguments.push(Given { start, bytes: value.len(), memory });
    }

    fn push_memory<T: Pod>(&mut self, buffer: &'a Buffer<T>, address: u64, access: Access) {
        let memory = Memory { uses: buffer.uses(), access, device: buffer.device() };
        self.push_value(&address.to_ne_bytes(), Some(memory));
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
    T, |launch, value| launch.push_value(bytemuck::bytes_of(&value), None);
    &'a Buffer<T>, |launch, buffer| launch.push_memory(buffer, buffer.address(), Access::Read);
    &'a mut Buffer<T>, |launch, buffer| launch.push_memory(&*buffer, buffer.address(), Access::Write);
    View<'a, T>, |launch, view| { let (buffer, address) = view.parts(); launch.push_memory(buffer, address, Access::Read) };
    ViewMut<'a, T>, |launch, view| {
        let (buffer, address) = view.into_parts();
        launch.push_memory(buffer, address, Access::Write)
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
/// assert_eq!(y.download()?, [10.5, 20.5]);
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is launched before `launch`"]
pub struct Launch<'a> {
    kernel: &'a Kernel,
    stream: &'a Stream,
    config: LaunchConfig,
    cooperative: bool,
    arguments: SmallVec<[Given<'a>; FEW]>,
    /// Values, each aligned as any parameter may be.
    values: SmallVec<[u128; FEW]>,
}

impl<'a> Launch<'a> {
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
    /// assert_eq!(y.download()?, [4.0]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn on(mut self, stream: &'a Stream) -> Self {
        self.stream = stream;
        self
    }

    /// With so many bytes of dynamic shared memory for each block.
    ///
    /// ```
    /// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
    /// # let device = apex_gpu::Device::open(0)?;
    /// // reverse(unsigned* words): through shared memory, a word for each thread
    /// let reverse = device.load_ptx(PTX)?.kernel("reverse")?;
    /// let mut words = device.upload(&[1u32, 2, 3, 4])?;
    /// // SAFETY: as many threads as words, and 4 bytes of shared memory for each.
    /// unsafe { reverse.launch(1, 4).shared(16).arg(&mut words).launch()? };
    /// assert_eq!(words.download()?, [4, 3, 2, 1]);
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
    /// assert_eq!(words.download()?, [2, 1]);
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

    /// Launches. Returns at once; an error of the kernel itself shows when its stream is waited for.
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
    /// For these arguments the kernel accesses no memory outside the buffers that it is given, writes to none that it is
    /// given to read, and interprets the bytes of its parameters as what they are. (Their number and sizes are checked.)
    ///
    /// # Errors
    /// [`Error::ArgumentCount`], [`Error::ArgumentSize`], [`Error::LaunchShape`], [`Error::WrongDevice`]; what the driver
    /// says otherwise. Then nothing was launched.
    pub unsafe fn launch(mut self) -> Result<()> {
        self.check()?;
        let device = self.kernel.device.core();
        device.bind()?;
        let LaunchConfig { grid, block, dynamic_shared_bytes, .. } = self.config;
        self.kernel.allow_shared(dynamic_shared_bytes)?;
        for memory in self.arguments.iter().filter_map(|given| given.memory.as_ref()) {
            memory.uses.order(self.stream, memory.access)?;
        }
        let values = self.values.as_mut_ptr();
        let pointer = |given: &Given| values.wrapping_add(given.start).cast::<c_void>();
        let mut pointers: SmallVec<[*mut c_void; FEW]> = self.arguments.iter().map(pointer).collect();
        let (function, stream) = (self.kernel.function.cu_function(), self.stream.raw());
        // SAFETY: the kernel is loaded, the pointers are those of as many values of the right sizes; what it does with them
        // is the caller's promise. The buffers live until now; when they are freed, that waits for this stream.
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

    fn check(&self) -> Result<()> {
        let kernel = self.kernel;
        let name = || kernel.name.clone();
        let (expected, found) = (kernel.parameters.len(), self.arguments.len());
        if expected != found {
            return Err(Error::ArgumentCount { kernel: name(), expected, found });
        }
        for (index, (given, &expected)) in self.arguments.iter().zip(&kernel.parameters).enumerate() {
            if given.bytes != expected {
                return Err(Error::ArgumentSize { kernel: name(), index, expected, found: given.bytes });
            }
            if let Some(memory) = &given.memory
                && memory.device.cuda().cu_ctx() != kernel.device.cuda().cu_ctx()
            {
                return Err(Error::WrongDevice {
                    what: format!("argument {index} of kernel `{}`", kernel.name),
                    found: memory.device.name().to_owned(),
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
