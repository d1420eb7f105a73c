//! What a multiprocessor has to give.
//!
//! Sources: the tables "Technical Specifications per Compute Capability" and "Shared Memory Capacity per Compute
//! Capability" of the CUDA C++ Programming Guide, and the sections on shared memory of NVIDIA's tuning guides (which
//! carve-outs exist, and the 1 KiB that the system keeps per block from compute capability 8.0 on). Allocation units
//! are those of Nsight Compute's occupancy calculator. Whatever the driver reports for a real device replaces the
//! table's value.

/// Limits of a device, per multiprocessor (SM) and per block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Multiprocessors; 0 where only the compute capability is known (products differ).
    pub sms: u32,
    /// Threads of a warp.
    pub warp_size: u32,
    /// Most threads of a block.
    pub max_threads_per_block: u32,
    /// Most threads of a block along x, y and z.
    pub max_block: [u32; 3],
    /// Most blocks of a grid along x, y and z.
    pub max_grid: [u32; 3],
    /// Most resident threads of an SM.
    pub max_threads_per_sm: u32,
    /// Most resident blocks of an SM.
    pub max_blocks_per_sm: u32,
    /// 32-bit registers of an SM.
    pub registers_per_sm: u32,
    /// Most 32-bit registers of a block.
    pub registers_per_block: u32,
    /// Most registers of a thread.
    pub max_registers_per_thread: u32,
    /// Registers are given to a warp in multiples of this.
    pub register_unit: u32,
    /// Processing blocks of an SM: each holds an equal share of its registers and of its warps.
    pub partitions: u32,
    /// Shared memory of an SM at its largest carve-out, bytes.
    pub shared_per_sm: u32,
    /// Most shared memory of a block that does not opt in to more, bytes.
    pub shared_per_block: u32,
    /// Most shared memory of a block that opts in, bytes.
    pub shared_per_block_optin: u32,
    /// Shared memory that the driver keeps in each block, bytes.
    pub reserved_shared_per_block: u32,
    /// Shared memory is given to a block in multiples of this, bytes.
    pub shared_unit: u32,
    /// Shared memory that an SM can be configured with, KiB, ascending.
    pub carveouts_kib: &'static [u32],
    /// Barriers of an SM; `None` where they never bind before blocks do.
    pub barriers_per_sm: Option<u32>,
}

/// The most threads of a block or warp that are believed. Attributes come from files too, and [`crate::what_if`] tries all
/// block sizes: no device comes near this, and what is far above would take minutes to try.
pub const MOST_THREADS: u32 = 1 << 16;

/// What differs between compute capabilities.
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

    /// Limits by compute capability alone; the number of multiprocessors is then 0. `None` for a capability that is
    /// not in the tables: its rules of allocation are not known, and occupancy is never guessed.
    pub fn of_compute_capability(major: u32, minor: u32) -> Option<Self> {
        let row = ROWS.iter().find(|row| row.compute_capability == (major, minor))?;
        let shared_kib = row.carveouts_kib[row.carveouts_kib.len() - 1];
        let reserved_kib = if major >= 8 { 1 } else { 0 };
        Some(Self {
            compute_capability: row.compute_capability,
            sms: 0,
            warp_size: 32,
            max_threads_per_block: 1024,
            max_block: [1024, 1024, 64],
            max_grid: [i32::MAX.cast_unsigned(), 65_535, 65_535],
            max_threads_per_sm: row.threads,
            max_blocks_per_sm: row.blocks,
            registers_per_sm: 64 * 1024,
            registers_per_block: 64 * 1024,
            max_registers_per_thread: 255,
            register_unit: 256,
            partitions: 4,
            shared_per_sm: shared_kib * 1024,
            shared_per_block: 48 * 1024,
            shared_per_block_optin: (shared_kib - reserved_kib) * 1024,
            reserved_shared_per_block: reserved_kib * 1024,
            shared_unit: if major >= 8 { 128 } else { 256 },
            carveouts_kib: row.carveouts_kib,
            // Before Hopper the driver does not count barriers when it computes occupancy.
            barriers_per_sm: (major >= 9).then_some(row.blocks * row.barriers_per_block),
        })
    }

    /// Limits of a real device, from pairs of `CUdevice_attribute` and value. `None` without a compute capability
    /// among them, or with one that is not in the tables.
    pub fn from_attributes(attributes: &[(u32, i32)]) -> Option<Self> {
        let value = |attribute| attributes.iter().find(|(id, _)| *id == attribute).map(|&(_, value)| value);
        let major = u32::try_from(value(attribute::COMPUTE_CAPABILITY_MAJOR)?).ok()?;
        let minor = u32::try_from(value(attribute::COMPUTE_CAPABILITY_MINOR)?).ok()?;
        Some(Self::of_compute_capability(major, minor)?.with_attributes(attributes))
    }

    /// Replaces what the attributes name. Values that are not positive are not believed (`RESERVED_SHARED_MEMORY_PER_BLOCK`
    /// may be 0), nor are warps and blocks of more than [`MOST_THREADS`] threads; attributes that do not matter here are
    /// passed over.
    pub fn with_attributes(mut self, attributes: &[(u32, i32)]) -> Self {
        for &(id, value) in attributes {
            let Ok(value) = u32::try_from(value) else { continue };
            let field = match id {
                attribute::MAX_THREADS_PER_BLOCK => &mut self.max_threads_per_block,
                attribute::MAX_BLOCK_DIM_X => &mut self.max_block[0],
                attribute::MAX_BLOCK_DIM_Y => &mut self.max_block[1],
                attribute::MAX_BLOCK_DIM_Z => &mut self.max_block[2],
                attribute::MAX_GRID_DIM_X => &mut self.max_grid[0],
                attribute::MAX_GRID_DIM_Y => &mut self.max_grid[1],
                attribute::MAX_GRID_DIM_Z => &mut self.max_grid[2],
                attribute::MAX_SHARED_MEMORY_PER_BLOCK => &mut self.shared_per_block,
                attribute::WARP_SIZE => &mut self.warp_size,
                attribute::MAX_REGISTERS_PER_BLOCK => &mut self.registers_per_block,
                attribute::MULTIPROCESSOR_COUNT => &mut self.sms,
                attribute::MAX_THREADS_PER_MULTIPROCESSOR => &mut self.max_threads_per_sm,
                attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => &mut self.shared_per_sm,
                attribute::MAX_REGISTERS_PER_MULTIPROCESSOR => &mut self.registers_per_sm,
                attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => &mut self.shared_per_block_optin,
                attribute::MAX_BLOCKS_PER_MULTIPROCESSOR => &mut self.max_blocks_per_sm,
                attribute::RESERVED_SHARED_MEMORY_PER_BLOCK => {
                    self.reserved_shared_per_block = value;
                    continue;
                }
                _ => continue,
            };
            let of_threads = matches!(id, attribute::MAX_THREADS_PER_BLOCK | attribute::WARP_SIZE);
            if value > 0 && !(of_threads && value > MOST_THREADS) {
                *field = value;
            }
        }
        self
    }

    /// Most resident warps of an SM.
    pub fn max_warps_per_sm(&self) -> u32 {
        self.max_threads_per_sm / self.warp_size
    }

    /// Warps that a block of so many threads takes: the last one may be partly filled.
    pub fn warps_of(&self, block_threads: u32) -> u32 {
        block_threads.div_ceil(self.warp_size)
    }

    /// The smallest shared-memory configuration of an SM that holds `bytes`, in bytes; `None` if none does.
    pub(crate) fn carveout_holding(&self, bytes: u64) -> Option<u64> {
        self.carveouts_kib.iter().map(|&kib| u64::from(kib) * 1024).find(|&size| size >= bytes)
    }
}

/// The values of `CUdevice_attribute` that matter here.
mod attribute {
    pub const MAX_THREADS_PER_BLOCK: u32 = 1;
    pub const MAX_BLOCK_DIM_X: u32 = 2;
    pub const MAX_BLOCK_DIM_Y: u32 = 3;
    pub const MAX_BLOCK_DIM_Z: u32 = 4;
    pub const MAX_GRID_DIM_X: u32 = 5;
    pub const MAX_GRID_DIM_Y: u32 = 6;
    pub const MAX_GRID_DIM_Z: u32 = 7;
    pub const MAX_SHARED_MEMORY_PER_BLOCK: u32 = 8;
    pub const WARP_SIZE: u32 = 10;
    pub const MAX_REGISTERS_PER_BLOCK: u32 = 12;
    pub const MULTIPROCESSOR_COUNT: u32 = 16;
    pub const MAX_THREADS_PER_MULTIPROCESSOR: u32 = 39;
    pub const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
    pub const COMPUTE_CAPABILITY_MINOR: u32 = 76;
    pub const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: u32 = 81;
    pub const MAX_REGISTERS_PER_MULTIPROCESSOR: u32 = 82;
    pub const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: u32 = 97;
    pub const MAX_BLOCKS_PER_MULTIPROCESSOR: u32 = 106;
    pub const RESERVED_SHARED_MEMORY_PER_BLOCK: u32 = 111;
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
            DeviceLimits::from_attributes(&[(75, 9), (76, 0), (16, 132), (39, 1024), (111, 0), (106, -1)])
                .expect("9.0 is known");
        assert_eq!((limits.sms, limits.max_threads_per_sm, limits.reserved_shared_per_block), (132, 1024, 0));
        assert_eq!(limits.max_blocks_per_sm, 32, "a negative value is not believed");
        assert_eq!(
            limits.shared_per_block_optin,
            227 * 1024,
            "what the driver did not say comes from the table"
        );
    }

    /// The limits that an attribute replaces, by its number in `cuda.h`.
    fn replaced(limits: &DeviceLimits) -> [(u32, u32); 17] {
        [
            (1, limits.max_threads_per_block),
            (2, limits.max_block[0]),
            (3, limits.max_block[1]),
            (4, limits.max_block[2]),
            (5, limits.max_grid[0]),
            (6, limits.max_grid[1]),
            (7, limits.max_grid[2]),
            (8, limits.shared_per_block),
            (10, limits.warp_size),
            (12, limits.registers_per_block),
            (16, limits.sms),
            (39, limits.max_threads_per_sm),
            (81, limits.shared_per_sm),
            (82, limits.registers_per_sm),
            (97, limits.shared_per_block_optin),
            (106, limits.max_blocks_per_sm),
            (111, limits.reserved_shared_per_block),
        ]
    }

    #[test]
    fn each_attribute_replaces_its_limit_and_no_other() {
        let table = DeviceLimits::of_compute_capability(9, 0).expect("9.0 is known");
        for (place, &(id, before)) in replaced(&table).iter().enumerate() {
            // One grid's limit is the largest value that there is.
            let value = if before == i32::MAX.cast_unsigned() { before - 7 } else { before + 7 };
            let limits = table.clone().with_attributes(&[(id, value as i32)]);
            let mut expected = replaced(&table);
            expected[place].1 = value;
            assert_eq!(replaced(&limits), expected, "attribute {id}");
        }
    }

    #[test]
    fn zero_and_negative_values_are_not_believed() {
        let mut table = DeviceLimits::of_compute_capability(9, 0).expect("9.0 is known");
        table.sms = 132;
        for (id, _) in replaced(&table) {
            let with = |value| table.clone().with_attributes(&[(id, value)]);
            assert_eq!(with(-1), table, "attribute {id}");
            // A device may keep no shared memory for itself.
            let expected = match id {
                111 => DeviceLimits { reserved_shared_per_block: 0, ..table.clone() },
                _ => table.clone(),
            };
            assert_eq!(with(0), expected, "attribute {id}");
        }
    }

    #[test]
    fn blocks_and_warps_that_no_device_has_are_not_believed() {
        let table = DeviceLimits::of_compute_capability(9, 0).expect("9.0 is known");
        for id in [1, 10] {
            assert_eq!(table.clone().with_attributes(&[(id, i32::MAX)]), table);
            assert_eq!(table.clone().with_attributes(&[(id, MOST_THREADS as i32 + 1)]), table);
            assert_ne!(table.clone().with_attributes(&[(id, MOST_THREADS as i32)]), table);
        }
    }

    #[test]
    fn an_unknown_capability_is_not_guessed() {
        assert_eq!(DeviceLimits::of_compute_capability(8, 1), None);
        assert_eq!(DeviceLimits::from_attributes(&[(75, 99), (76, 0), (16, 10)]), None);
        assert_eq!(DeviceLimits::from_attributes(&[(16, 10)]), None);
    }

    #[test]
    fn every_known_capability_has_limits() {
        for (major, minor) in DeviceLimits::known() {
            let limits = DeviceLimits::of_compute_capability(major, minor).expect("it is known");
            assert_eq!(limits.max_threads_per_sm % (limits.warp_size * limits.partitions), 0);
            assert_eq!(
                limits.carveout_holding(u64::from(limits.shared_per_sm)),
                Some(u64::from(limits.shared_per_sm))
            );
        }
    }
}
