//! The resources of a multiprocessor.
//!
//! Sources: the tables "Technical Specifications per Compute Capability" and "Shared Memory
//! Capacity per Compute Capability" of the CUDA C++ Programming Guide, and the sections on shared
//! memory of NVIDIA's tuning guides (which carve-outs exist, and the 1 KiB that the system keeps
//! per block from compute capability 8.0 on). Allocation units are those of Nsight Compute's
//! occupancy calculator. Whatever the driver reports for a real device replaces the table's value.

use cuda_launch::{DeviceAttributes, Dim3, compute_capability};

/// The resources of a device per multiprocessor (SM) and per block, and the units in which it gives
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Attributes of the device; 0 multiprocessors where only the compute capability is known
    /// (products differ), and no clocks.
    pub attributes: DeviceAttributes,
    /// Most registers of a thread.
    pub max_registers_per_thread: u32,
    /// Registers are given to a warp in multiples of this.
    pub register_unit: u32,
    /// Processing blocks of an SM: each holds an equal share of its registers and of its warps.
    pub partitions: u32,
    /// Shared memory is given to a block in multiples of this.
    pub shared_unit_bytes: u32,
    /// Shared memory that an SM can be configured with, ascending.
    pub carveouts_kib: &'static [u32],
    /// Barriers of an SM; `None` where they never bind before blocks do.
    pub barriers_per_sm: Option<u32>,
}

/// The differences between compute capabilities.
struct Row {
    compute_capability: (u32, u32),
    threads: u32,
    blocks: u32,
    carveouts_kib: &'static [u32],
    /// Barriers for each block that an SM can hold.
    barriers_per_block: u32,
}

const UP_TO_64: &[u32] = &[32, 64];
const UP_TO_100: &[u32] = &[0, 8, 16, 32, 64, 100];
const UP_TO_164: &[u32] = &[0, 8, 16, 32, 64, 100, 132, 164];
const UP_TO_228: &[u32] = &[0, 8, 16, 32, 64, 100, 132, 164, 196, 228];

const fn row(
    compute_capability: (u32, u32),
    threads: u32,
    blocks: u32,
    carveouts_kib: &'static [u32],
    barriers_per_block: u32,
) -> Row {
    Row { compute_capability, threads, blocks, carveouts_kib, barriers_per_block }
}

/// One row per compute capability. CUDA 13 calls 11.0 what CUDA 12 called 10.1.
const ROWS: &[Row] = &[
    row((7, 5), 1024, 16, UP_TO_64, 2),
    row((8, 0), 2048, 32, UP_TO_164, 2),
    row((8, 6), 1536, 16, UP_TO_100, 1),
    row((8, 7), 1536, 16, UP_TO_164, 1),
    row((8, 9), 1536, 24, UP_TO_100, 1),
    row((9, 0), 2048, 32, UP_TO_228, 2),
    row((10, 0), 2048, 32, UP_TO_228, 2),
    row((10, 1), 1536, 24, UP_TO_228, 1),
    row((10, 3), 2048, 32, UP_TO_228, 1),
    row((11, 0), 1536, 24, UP_TO_228, 1),
    row((12, 0), 1536, 24, UP_TO_100, 1),
    row((12, 1), 1536, 24, UP_TO_100, 1),
];

impl DeviceLimits {
    /// The compute capabilities that [`Self::of_compute_capability`] knows, ascending.
    pub fn known() -> impl Iterator<Item = (u32, u32)> {
        ROWS.iter().map(|row| row.compute_capability)
    }

    /// Limits by compute capability alone; the number of multiprocessors is then 0. `None` for a
    /// capability that is not in the tables: its rules of allocation are not known, and occupancy
    /// is never guessed.
    pub fn of_compute_capability(major: u32, minor: u32) -> Option<Self> {
        let row = ROWS.iter().find(|row| row.compute_capability == (major, minor))?;
        let shared_kib = row.carveouts_kib[row.carveouts_kib.len() - 1];
        let reserved_kib = if major >= 8 { 1 } else { 0 };
        let attributes = DeviceAttributes {
            compute_capability: row.compute_capability,
            warp_size: 32,
            max_threads_per_block: 1024,
            max_block_dim: Dim3::new(1024, 1024, 64),
            max_grid_dim: Dim3::new(i32::MAX.cast_unsigned(), 65_535, 65_535),
            max_threads_per_multiprocessor: row.threads,
            max_blocks_per_multiprocessor: row.blocks,
            max_registers_per_multiprocessor: 64 * 1024,
            max_registers_per_block: 64 * 1024,
            max_shared_bytes_per_multiprocessor: shared_kib * 1024,
            max_shared_bytes_per_block: 48 * 1024,
            max_shared_bytes_per_block_optin: (shared_kib - reserved_kib) * 1024,
            reserved_shared_bytes_per_block: reserved_kib * 1024,
            ..DeviceAttributes::UNKNOWN
        };
        Some(Self {
            attributes,
            max_registers_per_thread: 255,
            register_unit: 256,
            partitions: 4,
            shared_unit_bytes: if major >= 8 { 128 } else { 256 },
            carveouts_kib: row.carveouts_kib,
            // Before Hopper the driver does not count barriers when it computes occupancy.
            barriers_per_sm: (major >= 9).then_some(row.blocks * row.barriers_per_block),
        })
    }

    /// Limits of a real device, from pairs of `CUdevice_attribute` and value, of which the
    /// believable ones replace the table's. `None` without a compute capability among them, or with
    /// one that is not in the tables.
    pub fn from_pairs(pairs: &[(u32, i32)]) -> Option<Self> {
        let (major, minor) = compute_capability(pairs)?;
        let table = Self::of_compute_capability(major, minor)?;
        Some(Self { attributes: table.attributes.with_pairs(pairs), ..table })
    }

    /// Limits of a device all of whose attributes are known. `None` for a compute capability that
    /// is not in the tables.
    pub fn of_device(attributes: DeviceAttributes) -> Option<Self> {
        let (major, minor) = attributes.compute_capability;
        Some(Self { attributes, ..Self::of_compute_capability(major, minor)? })
    }

    /// Most resident warps of an SM.
    pub fn max_warps_per_sm(&self) -> u32 {
        self.attributes.max_threads_per_multiprocessor / self.attributes.warp_size
    }

    /// Returns the number of warps of a block of `block_threads` threads: the last one may be
    /// partly filled.
    pub fn warps_of(&self, block_threads: u32) -> u32 {
        block_threads.div_ceil(self.attributes.warp_size)
    }

    /// The smallest shared-memory configuration of an SM that holds `bytes`, in bytes; `None` if
    /// none does.
    pub(crate) fn carveout_holding(&self, bytes: u64) -> Option<u64> {
        self.carveouts_kib.iter().map(|&kib| u64::from(kib) * 1024).find(|&size| size >= bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_capabilities_are_those_of_the_table() {
        let known: Vec<_> = DeviceLimits::known().collect();
        assert_eq!((known.first(), known.last(), known.len()), (Some(&(7, 5)), Some(&(12, 1)), ROWS.len()));
        assert!(known.is_sorted());
    }

    #[test]
    fn attributes_of_the_driver_replace_the_table() {
        let limits =
            DeviceLimits::from_pairs(&[(75, 9), (76, 0), (16, 132), (39, 1024), (111, 0), (106, -1)])
                .expect("9.0 is known")
                .attributes;
        assert_eq!((limits.multiprocessors, limits.max_threads_per_multiprocessor), (132, 1024));
        assert_eq!(limits.reserved_shared_bytes_per_block, 0);
        assert_eq!(limits.max_blocks_per_multiprocessor, 32, "a negative value is not believed");
        assert_eq!(
            limits.max_shared_bytes_per_block_optin,
            227 * 1024,
            "what the driver did not say comes from the table"
        );
    }

    #[test]
    fn an_unknown_capability_is_not_guessed() {
        assert_eq!(DeviceLimits::of_compute_capability(8, 1), None);
        assert_eq!(DeviceLimits::from_pairs(&[(75, 99), (76, 0), (16, 10)]), None);
        assert_eq!(DeviceLimits::from_pairs(&[(16, 10)]), None);
    }

    #[test]
    fn every_known_capability_has_limits() {
        for (major, minor) in DeviceLimits::known() {
            let limits = DeviceLimits::of_compute_capability(major, minor).expect("it is known");
            let device = limits.attributes;
            assert_eq!(device.max_threads_per_multiprocessor % (device.warp_size * limits.partitions), 0);
            let largest = u64::from(device.max_shared_bytes_per_multiprocessor);
            assert_eq!(limits.carveout_holding(largest), Some(largest));
        }
    }
}
