//! Occupancy and waves, computed from a kernel's configuration, its attributes and its device.

use cuda_launch::{FunctionAttributes, LaunchConfig};
use occupancy::{DeviceLimits, Occupancy, Waves, block_efficiency, theoretical};
use serde::Serialize;

use super::kernels::Kernel;

/// Figures computed from configuration, attributes and device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Geometry {
    /// Theoretical occupancy.
    pub occupancy: Occupancy,
    /// Waves and tail.
    pub waves: Waves,
    /// Share of the lanes of a block's warps that hold a thread.
    pub block_efficiency: f64,
}

impl Geometry {
    /// Occupancy, waves and block efficiency of a kernel; `None` if its attributes or its launch
    /// configuration are not known.
    pub fn of(limits: &DeviceLimits, kernel: &Kernel) -> Option<Self> {
        let attributes = kernel.attributes.filter(|_| kernel.has_configuration())?;
        Some(Self::of_launch(limits, kernel.launch, &attributes))
    }

    /// The same for a launch of a function with these attributes.
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
