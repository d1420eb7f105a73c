//! The suite on a device: its modules loaded, its inputs filled, its kernels launched.
//!
//! Inputs lie in pools that all launches share: element `i` of a pool is a function of `i` and the
//! pool's seed ([`crate::fill`]), so nothing has to be copied and a test can compute what a kernel
//! reads.

use cuda_launch::LaunchConfig;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use apex_gpu::{Buffer, Device, Module, Result};

use crate::plan::{Allowed, Bounds, Launch};
use crate::suite::{Before, Element, FILL, Kernel, MODULES};

/// Threads of the launches that fill pools.
const FILL_BLOCK: u32 = 256;

/// The seed of the pool for an input of this type; the second input of `float`s or `double`s has a
/// pool of its own.
pub fn pool_seed(element: Element, second: bool) -> u32 {
    let base = match element {
        Element::F32 => 0x1000,
        Element::F64 => 0x2000,
        Element::F16 => 0x3000,
        Element::U32 => 0x4000,
    };
    base + u32::from(second)
}

/// The suite, ready on a device.
#[derive(Debug)]
pub struct Bench {
    device: Device,
    fill: Module,
    /// Of [`MODULES`], those whose kernels were asked for: a batch under the profiler is short, and
    /// has few families.
    modules: [OnceCell<Module>; MODULES.len()],
    pool_bytes: u64,
    pools: BTreeMap<u32, Buffer<u8>>,
    out: Option<Buffer<u8>>,
}

/// A kernel of the suite on a device.
#[derive(Debug)]
pub struct Loaded {
    /// Its description.
    pub kernel: Kernel,
    /// The loaded function.
    pub code: apex_gpu::Kernel,
}

impl Loaded {
    /// The device's limits for it.
    pub fn allowed(&self) -> Allowed {
        let attributes = self.code.attributes();
        let shared = self
            .code
            .device()
            .limits()
            .max_shared_bytes_per_block_optin
            .saturating_sub(attributes.static_shared_bytes);
        Allowed { threads: attributes.max_threads_per_block, dynamic_shared_bytes: shared.into() }
    }
}

impl Bench {
    /// Gets ready for the suite. Modules are loaded, and pools made, when they are needed first.
    ///
    /// # Errors
    /// The driver's error.
    pub fn open(device: &Device, bounds: &Bounds) -> Result<Bench> {
        Ok(Bench {
            fill: device.load_ptx(FILL.ptx())?,
            modules: Default::default(),
            device: device.clone(),
            pool_bytes: bounds.pool_bytes,
            pools: BTreeMap::new(),
            out: None,
        })
    }

    /// Frees pools and output; those of the following launches have `pool_bytes` bytes each.
    pub fn resize(&mut self, pool_bytes: u64) {
        self.pools.clear();
        self.out = None;
        self.pool_bytes = pool_bytes;
    }

    /// A kernel, loaded.
    ///
    /// # Errors
    /// The driver's error, for example that it is too old for the suite's PTX.
    pub fn load(&self, kernel: &Kernel) -> Result<Loaded> {
        Ok(Loaded { kernel: *kernel, code: self.module(kernel.module)?.kernel(kernel.name)? })
    }

    /// A module of the suite.
    fn module(&self, index: usize) -> Result<&Module> {
        let place = &self.modules[index];
        if let Some(module) = place.get() {
            return Ok(module);
        }
        let module = self.device.load_ptx(MODULES[index].ptx())?;
        Ok(place.get_or_init(|| module))
    }

    /// The kernel that does nothing.
    ///
    /// # Errors
    /// The driver's error.
    pub fn empty(&self) -> Result<apex_gpu::Kernel> {
        self.fill.kernel("empty")
    }

    /// Returns the kernel that keeps the device busy for a number of its clock cycles.
    ///
    /// # Errors
    /// The driver's error.
    pub fn spin(&self) -> Result<apex_gpu::Kernel> {
        self.fill.kernel("spin")
    }

    /// Makes the pools that a kernel reads and the output that it writes.
    ///
    /// # Errors
    /// The driver's error.
    pub fn prepare(&mut self, kernel: &Kernel) -> Result<()> {
        if self.out.is_none() {
            self.out = Some(self.device.zeros(self.pool_bytes as usize)?);
        }
        for (element, second) in [(kernel.x, false), (kernel.y, true)] {
            let seed = pool_seed(element, second);
            if !self.pools.contains_key(&seed) {
                let pool = self.fill_pool(element, seed)?;
                self.pools.insert(seed, pool);
            }
        }
        Ok(())
    }

    fn fill_pool(&self, element: Element, seed: u32) -> Result<Buffer<u8>> {
        let mut pool = self.device.zeros::<u8>(self.pool_bytes as usize)?;
        let kernel = self.fill.kernel(match element {
            Element::F32 => "fill_f32",
            Element::F64 => "fill_f64",
            Element::F16 => "fill_f16",
            Element::U32 => "fill_u32",
        })?;
        let elements = (self.pool_bytes / element.bytes()) as u32;
        let blocks = elements.div_ceil(FILL_BLOCK).min(1 << 16);
        let launch = kernel.launch(blocks, FILL_BLOCK);
        // SAFETY: the pool holds so many elements of the type that the kernel writes.
        unsafe { launch.arg(&mut pool).arg(elements).arg(seed).launch()? };
        Ok(pool)
    }

    /// Sets the output's bytes that a launch uses to what the kernel expects before, in the order
    /// of the device's stream.
    ///
    /// # Errors
    /// The driver's error.
    pub fn reset_output(&mut self, kernel: &Kernel, launch: &Launch) -> Result<()> {
        self.prepare(kernel)?;
        let words = output_bytes(kernel, launch).div_ceil(4);
        let out = self.out.as_mut().expect("prepared");
        match kernel.before {
            Before::Zero => out.slice_mut(..4 * words as usize).clear_on(self.device.stream()),
            Before::Marked => {
                let blocks = words.div_ceil(FILL_BLOCK.into()).min(1 << 16) as u32;
                let mark = self.fill.kernel("mark")?;
                let launch = mark.launch(blocks, FILL_BLOCK);
                // SAFETY: the output has so many words: the pools' size is a multiple of 4.
                unsafe { launch.arg(out).arg(words as u32).launch() }
            }
        }
    }

    /// Launches, in the order of the device's stream.
    ///
    /// # Errors
    /// The driver's error, or that the launch is not allowed.
    pub fn launch(&mut self, loaded: &Loaded, launch: &Launch) -> Result<()> {
        self.prepare(&loaded.kernel)?;
        let Bench { pools, out, .. } = self;
        let x = &pools[&pool_seed(loaded.kernel.x, false)];
        let y = &pools[&pool_seed(loaded.kernel.y, true)];
        let out = out.as_mut().expect("prepared");
        assert!(
            loaded.kernel.pool_bytes(launch.shape()) <= self.pool_bytes,
            "{launch:?} was not planned for this bench"
        );
        let LaunchConfig { grid, block, dynamic_shared_bytes, .. } = launch.config;
        let made = loaded.code.launch(grid, block).shared(dynamic_shared_bytes);
        // SAFETY: the kernel uses no more elements than the suite says (its tests watch that on the
        // CPU device), and the pools hold as many; it writes to the output alone.
        unsafe { made.arg(x).arg(y).arg(out).arg(launch.n).arg(launch.m).launch() }
    }

    /// The output's first `bytes` bytes.
    ///
    /// # Errors
    /// An error of the launches before.
    pub fn output(&self, from: u64, bytes: u64) -> Result<Vec<u8>> {
        let out = self.out.as_ref().expect("something was launched");
        out.slice(from as usize..(from + bytes) as usize).to_vec()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// Bytes of the output that a launch writes.
pub fn output_bytes(kernel: &Kernel, launch: &Launch) -> u64 {
    (kernel.sizes)(launch.shape()).out * kernel.out.bytes()
}
