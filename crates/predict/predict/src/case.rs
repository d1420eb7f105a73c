//! The facts about a launch that are known before it runs.

use crate::bounds::{self, Bounds};
use cuda_launch::{DeviceAttributes, FunctionAttributes, LaunchConfig, LaunchLimit, LimitExceeded};
use occupancy::{DeviceLimits, Occupancy, Waves, products, theoretical};

/// A device, as far as it decides what a launch does: its clocks and caches are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name, as the driver gives it.
    pub name: String,
    /// The resources of its multiprocessors.
    pub limits: DeviceLimits,
}

impl Device {
    /// A device with these pairs of `CUdevice_attribute` and value. `None` where one that is needed
    /// is missing, or of a compute capability whose rules are not known.
    pub fn from_pairs(name: &str, pairs: &[(u32, i32)]) -> Option<Device> {
        let limits = DeviceLimits::from_pairs(pairs)?;
        let device = &limits.attributes;
        let needed = [
            device.multiprocessors,
            device.clock_khz,
            device.memory_clock_khz,
            device.memory_bus_bits,
            device.l2_cache_bytes,
        ];
        (!needed.contains(&0)).then(|| Device { name: name.to_owned(), limits })
    }

    /// The H200, on most of whose launches the shipped models were trained.
    pub fn h200() -> Device {
        Device::known("NVIDIA H200", products::H200)
    }

    /// The H100 (SXM), on whose launches they were trained too: its memory and its L2 alone differ.
    pub fn h100() -> Device {
        Device::known("NVIDIA H100 80GB HBM3", products::H100)
    }

    fn known(name: &str, attributes: DeviceAttributes) -> Device {
        let limits = DeviceLimits::of_device(attributes).expect("its compute capability is in the tables");
        Device { name: name.to_owned(), limits }
    }

    /// The devices that the shipped models were trained on.
    pub fn trained() -> [Device; 2] {
        [Device::h200(), Device::h100()]
    }

    /// Bytes that its memory can move in a microsecond: two transfers a clock.
    pub fn memory_bytes_per_us(&self) -> f64 {
        self.limits.attributes.memory_bytes_per_ns() * 1e3
    }

    /// Clock cycles of its multiprocessors in a microsecond.
    pub fn cycles_per_us(&self) -> f64 {
        f64::from(self.limits.attributes.clock_khz) * 1e-3
    }
}

/// The facts about a launch that are known before it runs. The more, the better the prediction. The
/// more, the better the prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its configuration.
    pub launch: LaunchConfig,
    /// The attributes that the driver reports for the kernel.
    pub kernel: Option<FunctionAttributes>,
    /// The instruction mix of the kernel's PTX.
    pub mix: Option<ptx::Mix>,
    /// The work that the launch executes.
    pub work: Option<ptx_estimate::Work>,
}

impl Case {
    /// A launch of which nothing else is known.
    pub fn of_launch(launch: LaunchConfig) -> Case {
        Case { launch, kernel: None, mix: None, work: None }
    }
}

/// The facts on which a prediction is based: each variant adds to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Basis {
    /// The configuration.
    Launch,
    /// The kernel's attributes.
    Kernel,
    /// The kernel's PTX.
    Code,
    /// The work that the launch executes.
    Work,
}

impl Basis {
    /// All of them, from least to most.
    pub const ALL: [Basis; 4] = [Basis::Launch, Basis::Kernel, Basis::Code, Basis::Work];

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Launch => "launch",
            Basis::Kernel => "kernel",
            Basis::Code => "code",
            Basis::Work => "work",
        }
    }
}

/// The reason why a launch cannot run, so that nothing is predicted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// Something has no extent.
    #[error("the {0} has a side of 0: each side is at least 1")]
    Empty(&'static str),
    /// Something is more than the device allows.
    #[error("{what}: {value} is above the device's limit of {most}")]
    TooLarge {
        /// The resource.
        what: String,
        /// The amount that the launch requests.
        value: u64,
        /// The most that the device allows.
        most: u64,
    },
    /// The block has more threads than the kernel allows, by its launch bounds or its registers.
    #[error(
        "threads of a block: {threads} is above the kernel's limit of {most} (its launch bounds or registers)"
    )]
    Threads {
        /// Threads of the block.
        threads: u64,
        /// Most that the kernel allows.
        most: u32,
    },
    /// No block fits on a multiprocessor.
    #[error("no block fits on a multiprocessor: {0} is the limit")]
    DoesNotFit(&'static str),
}

/// A case whose launch can run, with what follows exactly from it.
#[derive(Clone, Debug)]
pub struct Placed<'a> {
    /// The device.
    pub device: &'a Device,
    /// The facts about the launch.
    pub case: &'a Case,
    /// Theoretical occupancy; that of a kernel with few registers where the kernel is not known.
    pub occupancy: Occupancy,
    /// The waves in which the grid fills the device.
    pub waves: Waves,
}

/// Registers of a kernel that is not known: so few that they limit nothing.
const FEW_REGISTERS: u32 = 32;

/// Most local memory of a thread, bytes: the same for every compute capability (CUDA programming
/// guide, technical specifications).
const MOST_LOCAL_BYTES: u32 = 512 * 1024;

/// Compares what a launch and its kernel ask for with what the device allows, one by one, so that a
/// refusal names the limit.
fn check_limits(
    limits: &DeviceLimits,
    launch: &LaunchConfig,
    kernel: &FunctionAttributes,
) -> Result<(), Impossible> {
    let device = &limits.attributes;
    if let Some(LimitExceeded { what, value, limit: most }) = launch.exceeded_limit(device) {
        return Err(match what {
            LaunchLimit::EmptyGrid => Impossible::Empty("grid"),
            LaunchLimit::EmptyBlock => Impossible::Empty("block"),
            LaunchLimit::GridDim(axis) => {
                Impossible::TooLarge { what: format!("{axis} of the grid"), value, most }
            }
            LaunchLimit::BlockDim(axis) => {
                Impossible::TooLarge { what: format!("{axis} of the block"), value, most }
            }
            LaunchLimit::ThreadsPerBlock => {
                Impossible::TooLarge { what: "threads of a block".to_owned(), value, most }
            }
        });
    }
    let shared = u64::from(kernel.static_shared_bytes) + u64::from(launch.dynamic_shared_bytes);
    for (what, value, most) in [
        ("registers of a thread", kernel.registers.into(), limits.max_registers_per_thread),
        ("local memory of a thread, bytes", kernel.local_bytes.into(), MOST_LOCAL_BYTES),
        (
            "static shared memory of a block, bytes",
            kernel.static_shared_bytes.into(),
            device.max_shared_bytes_per_block,
        ),
        ("shared memory of a block, bytes", shared, device.max_shared_bytes_per_block_optin),
    ] {
        if value > u64::from(most) {
            return Err(Impossible::TooLarge { what: what.to_owned(), value, most: most.into() });
        }
    }
    Ok(())
}

/// Returns the residency of a kernel's blocks on a multiprocessor with these limits.
///
/// # Errors
///
/// The reason why the launch cannot run there.
pub fn resident(
    limits: &DeviceLimits,
    launch: &LaunchConfig,
    kernel: &FunctionAttributes,
) -> Result<Occupancy, Impossible> {
    check_limits(limits, launch, kernel)?;
    let (threads, most) = (launch.threads_per_block(), kernel.max_threads_per_block);
    if most > 0 && threads > u64::from(most) {
        return Err(Impossible::Threads { threads, most });
    }
    // Whether it consented to more shared memory, and how it wants the SM divided, is not among
    // the features.
    let resources = FunctionAttributes {
        registers: kernel.registers,
        static_shared_bytes: kernel.static_shared_bytes,
        max_threads_per_block: most,
        ..FunctionAttributes::default()
    };
    let occupancy = theoretical(limits, &resources, threads as u32, launch.dynamic_shared_bytes);
    if occupancy.blocks_per_sm == 0 {
        let limiter = occupancy.limiters().next().map_or("the device", occupancy::Limiter::name);
        return Err(Impossible::DoesNotFit(limiter));
    }
    Ok(occupancy)
}

impl<'a> Placed<'a> {
    /// Places a launch on a device.
    ///
    /// # Errors
    /// The reason why it cannot run there.
    pub fn new(device: &'a Device, case: &'a Case) -> Result<Placed<'a>, Impossible> {
        let launch = &case.launch;
        let unknown = FunctionAttributes { registers: FEW_REGISTERS, ..FunctionAttributes::default() };
        let kernel = case.kernel.unwrap_or(unknown);
        let occupancy = resident(&device.limits, launch, &kernel)?;
        let waves = Waves::of_grid(
            launch.blocks(),
            occupancy.blocks_per_sm,
            device.limits.attributes.multiprocessors,
        );
        Ok(Placed { device, case, occupancy, waves })
    }

    /// Returns the facts on which its prediction is based.
    pub fn basis(&self) -> Basis {
        let Case { kernel, mix, work, .. } = self.case;
        match (kernel, mix, work) {
            (None, ..) => Basis::Launch,
            (Some(_), None, _) => Basis::Kernel,
            // What a function does whose code is not known may be all that the launch does.
            (Some(_), Some(_), Some(work)) if work.unknown_calls == 0.0 => Basis::Work,
            (Some(_), Some(_), _) => Basis::Code,
        }
    }

    /// Blocks that are on the device at once, at most.
    pub fn resident_blocks(&self) -> f64 {
        let most = f64::from(self.occupancy.blocks_per_sm)
            * f64::from(self.device.limits.attributes.multiprocessors);
        (self.case.launch.blocks() as f64).min(most)
    }

    /// Returns the upper bound of achieved occupancy: the theoretical one, or less if the grid has
    /// too few blocks for it.
    pub fn occupancy_bound(&self) -> f64 {
        let sms = u64::from(self.device.limits.attributes.multiprocessors);
        let blocks = u64::from(self.occupancy.blocks_per_sm).min(self.case.launch.blocks().div_ceil(sms));
        let warps = blocks as f64 * f64::from(self.occupancy.warps_per_block);
        warps / f64::from(self.occupancy.max_warps_per_sm)
    }

    /// Returns an approximate upper bound of warp efficiency: that of the sampled warps if it is
    /// known what the launch executes, else the block's.
    pub fn warp_efficiency_bound(&self) -> f64 {
        let warp = f64::from(self.device.limits.attributes.warp_size);
        match &self.case.work {
            Some(work) if self.basis() == Basis::Work && work.total() > 0.0 => {
                (work.thread_instructions / (warp * work.total())).clamp(1.0 / warp, 1.0)
            }
            _ => {
                let threads = self.case.launch.threads_per_block() as u32;
                occupancy::block_efficiency(threads, self.device.limits.attributes.warp_size)
            }
        }
    }

    /// Returns a time that no launch like this can fall below, in microseconds: see
    /// [`crate::bounds::floor_us`].
    pub fn floor_us(&self) -> f64 {
        bounds::floor_us(self)
    }

    /// Returns an approximate lower bound of the duration, in microseconds: see [`crate::bounds`].
    pub fn least_duration_us(&self) -> f64 {
        Bounds::of(self).least()
    }

    /// Multiprocessors that have a block.
    pub fn sms_used(&self) -> f64 {
        (self.case.launch.blocks() as f64).min(f64::from(self.device.limits.attributes.multiprocessors))
    }
}

/// Any launch, of which the names of features are taken.
pub(crate) fn example() -> (Device, Case) {
    (Device::h200(), Case::of_launch(LaunchConfig::new(1, 32)))
}
