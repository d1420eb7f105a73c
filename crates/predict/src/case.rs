//! What is known of a launch before it runs.

use crate::bounds::{self, Bounds};
use occupancy::{Carveout, DeviceLimits, KernelResources, Occupancy, Waves, theoretical};

/// A device, as far as it decides what a launch does.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name, as the driver gives it.
    pub name: String,
    /// What its multiprocessors have to give.
    pub limits: DeviceLimits,
    /// Highest clock of its multiprocessors, kHz.
    pub sm_clock_khz: u32,
    /// Highest clock of its memory, kHz.
    pub memory_clock_khz: u32,
    /// Width of the way to its memory, bits.
    pub memory_bus_bits: u32,
    /// Bytes of its L2 cache.
    pub l2_bytes: u32,
}

/// Values of `CUdevice_attribute` that matter here, beside those of [`DeviceLimits`].
mod attribute {
    pub const CLOCK_RATE: u32 = 13;
    pub const MEMORY_CLOCK_RATE: u32 = 36;
    pub const GLOBAL_MEMORY_BUS_WIDTH: u32 = 37;
    pub const L2_CACHE_SIZE: u32 = 38;
}

/// Attributes of an H200, of those that matter here: as its driver tells (`data/device-h200.csv`).
const H200: [(u32, i32); 17] = [
    (1, 1024),
    (8, 49_152),
    (10, 32),
    (12, 65_536),
    (attribute::CLOCK_RATE, 1_980_000),
    (16, 132),
    (attribute::MEMORY_CLOCK_RATE, 3_201_000),
    (attribute::GLOBAL_MEMORY_BUS_WIDTH, 6016),
    (attribute::L2_CACHE_SIZE, 62_914_560),
    (39, 2048),
    (75, 9),
    (76, 0),
    (81, 233_472),
    (82, 65_536),
    (97, 232_448),
    (106, 32),
    (111, 1024),
];

impl Device {
    /// A device with these pairs of `CUdevice_attribute` and value. `None` where one that is needed is missing, or of a
    /// compute capability whose rules are not known.
    pub fn from_attributes(name: &str, attributes: &[(u32, i32)]) -> Option<Device> {
        let value = |wanted: u32| {
            let &(_, value) = attributes.iter().find(|(id, _)| *id == wanted)?;
            u32::try_from(value).ok().filter(|&value| value > 0)
        };
        let limits = DeviceLimits::from_attributes(attributes)?;
        (limits.sms > 0).then_some(())?;
        Some(Device {
            name: name.to_owned(),
            limits,
            sm_clock_khz: value(attribute::CLOCK_RATE)?,
            memory_clock_khz: value(attribute::MEMORY_CLOCK_RATE)?,
            memory_bus_bits: value(attribute::GLOBAL_MEMORY_BUS_WIDTH)?,
            l2_bytes: value(attribute::L2_CACHE_SIZE)?,
        })
    }

    /// The H200, on which the shipped models were trained.
    pub fn h200() -> Device {
        Device::from_attributes("NVIDIA H200", &H200).expect("its attributes are complete")
    }

    /// Bytes that its memory can move in a microsecond: two transfers a clock.
    pub fn memory_bytes_per_us(&self) -> f64 {
        f64::from(self.memory_clock_khz) * 1e-3 * 2.0 * f64::from(self.memory_bus_bits) / 8.0
    }

    /// Clock cycles of its multiprocessors in a microsecond.
    pub fn cycles_per_us(&self) -> f64 {
        f64::from(self.sm_clock_khz) * 1e-3
    }
}

/// What the driver says of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block, bytes.
    pub static_shared_bytes: u32,
    /// Local memory of a thread, bytes.
    pub local_bytes: u32,
    /// Most threads that a block may have; 0 if unknown.
    pub max_threads_per_block: u32,
}

/// A configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared_bytes: u32,
}

impl Launch {
    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&side| u64::from(side)).fold(1, u64::saturating_mul)
    }

    /// Threads of a block.
    pub fn threads(&self) -> u64 {
        self.block.iter().map(|&side| u64::from(side)).fold(1, u64::saturating_mul)
    }
}

/// What is known of a launch. The more, the better the prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its configuration.
    pub launch: Launch,
    /// What the driver says of its kernel.
    pub kernel: Option<Kernel>,
    /// What the kernel's PTX is made of.
    pub mix: Option<ptx::Mix>,
    /// What the launch executes.
    pub work: Option<ptx::walk::Work>,
}

impl Case {
    /// A launch of which nothing else is known.
    pub fn of_launch(launch: Launch) -> Case {
        Case { launch, kernel: None, mix: None, work: None }
    }
}

/// What a prediction was made from: everything before it in this list, and this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Basis {
    /// The configuration.
    Launch,
    /// The kernel's attributes.
    Kernel,
    /// The kernel's PTX.
    Code,
    /// What the launch executes.
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

/// Why a launch cannot run, so that nothing is predicted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// Something has no extent.
    #[error("the {0} has a side of 0: each side is at least 1")]
    Empty(&'static str),
    /// Something is more than the device allows.
    #[error("{what}: {value} is above the device's limit of {most}")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// How much of it is asked for.
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
    /// What is known.
    pub case: &'a Case,
    /// Theoretical occupancy; that of a kernel with few registers where the kernel is not known.
    pub occupancy: Occupancy,
    /// How the grid fills the device.
    pub waves: Waves,
}

/// Registers of a kernel that is not known: so few that they limit nothing.
const FEW_REGISTERS: u32 = 32;

/// Most local memory of a thread, bytes: the same for every compute capability (CUDA programming guide, technical
/// specifications).
const MOST_LOCAL: u32 = 512 * 1024;

/// Compares what a launch and its kernel ask for with what the device allows, one by one, so that a refusal names the limit.
fn check_limits(limits: &DeviceLimits, launch: &Launch, kernel: &Kernel) -> Result<(), Impossible> {
    let shared = u64::from(kernel.static_shared_bytes) + u64::from(launch.dynamic_shared_bytes);
    let [grid, block] = [launch.grid, launch.block].map(|sides| sides.map(u64::from));
    for (what, value, most) in [
        ("x of the grid", grid[0], limits.max_grid[0]),
        ("y of the grid", grid[1], limits.max_grid[1]),
        ("z of the grid", grid[2], limits.max_grid[2]),
        ("threads of a block", launch.threads(), limits.max_threads_per_block),
        ("x of the block", block[0], limits.max_block[0]),
        ("y of the block", block[1], limits.max_block[1]),
        ("z of the block", block[2], limits.max_block[2]),
        ("registers of a thread", kernel.registers.into(), limits.max_registers_per_thread),
        ("local memory of a thread, bytes", kernel.local_bytes.into(), MOST_LOCAL),
        (
            "static shared memory of a block, bytes",
            kernel.static_shared_bytes.into(),
            limits.shared_per_block,
        ),
        ("shared memory of a block, bytes", shared, limits.shared_per_block_optin),
    ] {
        if value > u64::from(most) {
            return Err(Impossible::TooLarge { what, value, most: most.into() });
        }
    }
    Ok(())
}

impl<'a> Placed<'a> {
    /// Places a launch on a device.
    ///
    /// # Errors
    /// Why it cannot run there.
    pub fn new(device: &'a Device, case: &'a Case) -> Result<Placed<'a>, Impossible> {
        let launch = &case.launch;
        for (what, sides) in [("grid", launch.grid), ("block", launch.block)] {
            if sides.contains(&0) {
                return Err(Impossible::Empty(what));
            }
        }
        let kernel = case.kernel.unwrap_or(Kernel { registers: FEW_REGISTERS, ..Kernel::default() });
        check_limits(&device.limits, launch, &kernel)?;
        let (threads, most) = (launch.threads(), kernel.max_threads_per_block);
        if most > 0 && threads > u64::from(most) {
            return Err(Impossible::Threads { threads, most });
        }
        let resources = KernelResources {
            registers: kernel.registers,
            static_shared: kernel.static_shared_bytes,
            max_threads: kernel.max_threads_per_block,
            ..KernelResources::default()
        };
        let shared = launch.dynamic_shared_bytes;
        let occupancy = theoretical(&device.limits, &resources, threads as u32, shared, Carveout::Default);
        if occupancy.blocks_per_sm == 0 {
            let limiter = occupancy.limiters().next().map_or("the device", occupancy::Limiter::name);
            return Err(Impossible::DoesNotFit(limiter));
        }
        let waves = Waves::of_grid(launch.blocks(), occupancy.blocks_per_sm, device.limits.sms);
        Ok(Placed { device, case, occupancy, waves })
    }

    /// What is known of it.
    pub fn basis(&self) -> Basis {
        let Case { kernel, mix, work, .. } = self.case;
        match (kernel, mix, work) {
            (None, ..) => Basis::Launch,
            (Some(_), None, _) => Basis::Kernel,
            (Some(_), Some(_), None) => Basis::Code,
            (Some(_), Some(_), Some(_)) => Basis::Work,
        }
    }

    /// Blocks that are on the device at once, at most.
    pub fn resident_blocks(&self) -> f64 {
        let most = f64::from(self.occupancy.blocks_per_sm) * f64::from(self.device.limits.sms);
        (self.case.launch.blocks() as f64).min(most)
    }

    /// What achieved occupancy cannot exceed: the theoretical one, or less where the grid has too few blocks for it.
    pub fn occupancy_bound(&self) -> f64 {
        let sms = u64::from(self.device.limits.sms);
        let blocks = u64::from(self.occupancy.blocks_per_sm).min(self.case.launch.blocks().div_ceil(sms));
        let warps = blocks as f64 * f64::from(self.occupancy.warps_per_block);
        warps / f64::from(self.occupancy.max_warps_per_sm)
    }

    /// What warp efficiency does not exceed, about: that of the warps that were walked, if what the launch executes is known;
    /// else the block's.
    pub fn warp_efficiency_bound(&self) -> f64 {
        let warp = f64::from(self.device.limits.warp_size);
        match &self.case.work {
            Some(work) if self.basis() == Basis::Work && work.total() > 0.0 => {
                (work.thread_instructions / (warp * work.total())).clamp(1.0 / warp, 1.0)
            }
            _ => {
                let threads = self.case.launch.threads() as u32;
                occupancy::block_efficiency(threads, self.device.limits.warp_size)
            }
        }
    }

    /// What no launch like this can fall below, microseconds: see [`crate::bounds::floor_us`].
    pub fn floor_us(&self) -> f64 {
        bounds::floor_us(self)
    }

    /// What the launch takes at least, about, microseconds: see [`crate::bounds`].
    pub fn least_duration_us(&self) -> f64 {
        Bounds::of(self).least()
    }

    /// Multiprocessors that have a block.
    pub fn sms_used(&self) -> f64 {
        (self.case.launch.blocks() as f64).min(f64::from(self.device.limits.sms))
    }
}

/// Any launch, of which the names of features are taken.
pub(crate) fn example() -> (Device, Case) {
    let launch = Launch { grid: [1, 1, 1], block: [32, 1, 1], dynamic_shared_bytes: 0 };
    (Device::h200(), Case::of_launch(launch))
}
