//! What follows from a kernel's configuration, its attributes and its device.

use occupancy::{DeviceLimits, Waves, block_efficiency, theoretical};

use super::{Geometry, Kernel};

impl Geometry {
    /// Occupancy, waves and block efficiency of a kernel; `None` where its attributes are not
    /// known.
    pub fn of(limits: &DeviceLimits, kernel: &Kernel) -> Option<Self> {
        let attributes = kernel.attributes?;
        let threads = kernel.block_threads();
        let occupancy = theoretical(limits, &attributes, threads, kernel.launch.dynamic_shared_bytes);
        let cluster = kernel.launch.blocks_per_cluster();
        Some(Self {
            occupancy,
            waves: Waves::of_clusters(
                kernel.blocks(),
                cluster,
                occupancy.blocks_per_sm,
                limits.attributes.multiprocessors,
            ),
            block_efficiency: block_efficiency(threads, limits.attributes.warp_size),
        })
    }
}
