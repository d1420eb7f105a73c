//! Kernels: their attributes as the driver reports them, and the start of a launch.

use std::fmt;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use cuda_launch::{Dim3, FunctionAttributes, LaunchConfig};
use cudarc::driver::sys::CUfunction_attribute as Attribute;
use cudarc::driver::{CudaFunction, sys};
use smallvec::SmallVec;

use super::{Elements, FEW, Launch};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::signature::Declared;

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
/// assert_eq!(words.to_vec()?, [7; 64]);
/// # apex_gpu::Result::Ok(())
/// ```
pub struct Kernel {
    pub(super) function: CudaFunction,
    pub(super) device: Device,
    pub(super) name: Arc<str>,
    /// Sizes of the parameters in bytes.
    pub(super) parameters: SmallVec<[usize; FEW]>,
    /// Their types; none if the code does not tell.
    pub(super) types: SmallVec<[Declared; FEW]>,
    pub(super) attributes: FunctionAttributes,
    /// Dynamic shared memory that the driver has been told of.
    shared_allowed: AtomicU32,
    /// Threads of a block for [`Kernel::over`].
    best_block: OnceLock<u32>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parameters, registers) = (self.parameters.len(), self.attributes.registers);
        let plural = if parameters == 1 { "" } else { "s" };
        write!(
            out,
            "Kernel({}: {parameters} parameter{plural}, {registers} registers a thread, on {})",
            self.name,
            self.device.name()
        )
    }
}

impl Kernel {
    /// `types` are those that its code declares for its parameters, if it does.
    pub(crate) fn new(
        device: &Device,
        function: CudaFunction,
        name: &str,
        types: &[Declared],
    ) -> Result<Kernel> {
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
            types: types.into(),
            function,
            device: device.clone(),
            name: name.into(),
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

    /// Returns the attributes that the driver reported when the kernel was loaded.
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

    /// Starts a launch over (at least) this number of threads: `n`, `(width, height)` or `(width,
    /// height, depth)`, along x, y and z. Blocks have as many threads as fill the device best
    /// ([`Kernel::best_block`]), in two and three dimensions at most 256, if [`Launch::block`] does
    /// not say otherwise. The kernel checks itself which of the last blocks' threads have an
    /// element.
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
    /// assert!(y.to_vec()?.iter().all(|&value| value == 3.0));
    ///
    /// // positions(unsigned* out, unsigned width, unsigned height): out[y * width + x] = y << 16 | x
    /// let positions = device.load_ptx(PTX)?.kernel("positions")?;
    /// let (width, height) = (50, 3);
    /// let mut out = device.zeros::<u32>(width * height)?;
    /// let launch = positions.over((width, height));
    /// // SAFETY: as above, with `width * height` words.
    /// unsafe { launch.arg(&mut out).arg(width as u32).arg(height as u32).launch()? };
    /// assert_eq!(out.to_vec()?[2 * width + 7], 2 << 16 | 7);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn over(&self, elements: impl Into<Elements>) -> Launch<'_> {
        let elements = elements.into();
        let block = elements.block(self.best_block());
        Launch { over: Some(elements), ..self.launch(elements.blocks_of(block), block) }
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
    /// assert_eq!(y.to_vec()?, [1.0; 100]);
    /// # apex_gpu::Result::Ok(())
    /// ```
    pub fn launch(&self, grid: impl Into<Dim3>, block: impl Into<Dim3>) -> Launch<'_> {
        Launch {
            kernel: self,
            stream: self.device.stream(),
            config: LaunchConfig::new(grid, block),
            over: None,
            cooperative: false,
            arguments: SmallVec::new(),
            values: SmallVec::new(),
        }
    }

    /// Threads of a block, along x alone, with which the most threads of this kernel are resident,
    /// without dynamic shared memory: the driver's own calculation.
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

    /// Blocks of `threads` threads, each with `shared` bytes of dynamic shared memory, that a
    /// multiprocessor holds at once.
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
    /// The driver's error.
    pub fn blocks_per_multiprocessor(&self, threads: u32, shared: u32) -> Result<u32> {
        let blocks =
            self.function.occupancy_max_active_blocks_per_multiprocessor(threads, shared as usize, None);
        blocks.map_err(
            self.device
                .core()
                .failed_at("cuOccupancyMaxActiveBlocksPerMultiprocessor", || self.name.to_string()),
        )
    }

    /// Lets blocks have `bytes` of dynamic shared memory, which beyond 48 KiB has to be asked for.
    pub(super) fn allow_shared(&self, bytes: u32) -> Result<()> {
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

    pub(super) fn refused(&self, why: String) -> Error {
        Error::LaunchShape { kernel: self.name.to_string(), why }
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
