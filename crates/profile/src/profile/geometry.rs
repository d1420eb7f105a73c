//! What follows from a kernel's configuration, its attributes and its device.

use occupancy::{Carveout, DeviceLimits, Waves, block_efficiency, theoretical};

use super::{Attributes, Geometry, Kernel};

impl Geometry {
    /// Occupancy, waves and block efficiency of a kernel; `None` where its attributes are not known.
    pub fn of(limits: &DeviceLimits, kernel: &Kernel) -> Option<Self> {
        let attributes = kernel.attributes?;
        let threads = kernel.block_threads();
        let occupancy = theoretical(
            limits,
            &attributes.resources,
            threads,
            kernel.dynamic_shared,
            attributes.preferred_carveout(),
        );
        let cluster = kernel.cluster.iter().fold(1u32, |blocks, &n| blocks.saturating_mul(n.max(1)));
        Some(Self {
            occupancy,
            waves: Waves::of_clusters(kernel.blocks(), cluster, occupancy.blocks_per_sm, limits.sms),
            block_efficiency: block_efficiency(threads, limits.warp_size),
        })
    }
}

impl Attributes {
    /// The carve-out as `occupancy` takes it.
    pub fn preferred_carveout(&self) -> Carveout {
        Carveout::from_attribute(self.carveout)
    }
}
