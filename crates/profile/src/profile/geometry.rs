//! What follows from a kernel's configuration, its attributes and its device.

use cuda_launch::{FunctionAttributes, LaunchConfig};
use occupancy::{DeviceLimits, Waves, block_efficiency, theoretical};

use super::{Geometry, Kernel};

impl Geometry {
    /// Occupancy, waves and block efficiency of a kernel; `None` where its attributes are not
    /// known.
    pub fn of(limits: &DeviceLimits, kernel: &Kernel) -> Option<Self> {
        Some(Self::of_launch(limits, kernel.launch, &kernel.attributes?))
    }

    /// The same of a launch of a function with these attributes.
    pub fn of_launch(limits: &DeviceLimits, launch: LaunchConfig, attributes: &FunctionAttributes) -> Self {
        let threads = u32::try_from(launch.threads_per_block()).unwrap_or(u32::MAX);
        let occupancy = theoretical(limits, attributes, threads, launch.dynamic_shared_bytes);
        Self {
            occupancy,
            waves: Waves::of_clusters(
                launch.blocks(),
                launch.blocks_per_cluster(),
                occupancy.blocks_per_sm,
                limits.attributes.multiprocessors,
            ),
            block_efficiency: block_efficiency(threads, limits.attributes.warp_size),
        }
    }
}
