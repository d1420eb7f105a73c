//! Attributes of a device by name.
//!
//! A driver answers in pairs of `CUdevice_attribute` and value, and so do files. [`attribute`] has
//! the numbers; [`DeviceAttributes`] has a field for each.

use crate::Dim3;

/// The numbers of `CUdevice_attribute` that APEX computes with, without their prefix
/// `CU_DEVICE_ATTRIBUTE_`.
#[expect(missing_docs, reason = "the names are CUDA's; the fields of DeviceAttributes say what they hold")]
pub mod attribute {
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
    pub const CLOCK_RATE: u32 = 13;
    pub const MULTIPROCESSOR_COUNT: u32 = 16;
    pub const MEMORY_CLOCK_RATE: u32 = 36;
    pub const GLOBAL_MEMORY_BUS_WIDTH: u32 = 37;
    pub const L2_CACHE_SIZE: u32 = 38;
    pub const MAX_THREADS_PER_MULTIPROCESSOR: u32 = 39;
    pub const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
    pub const COMPUTE_CAPABILITY_MINOR: u32 = 76;
    pub const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: u32 = 81;
    pub const MAX_REGISTERS_PER_MULTIPROCESSOR: u32 = 82;
    pub const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: u32 = 97;
    pub const MAX_BLOCKS_PER_MULTIPROCESSOR: u32 = 106;
    pub const RESERVED_SHARED_MEMORY_PER_BLOCK: u32 = 111;
}

/// The most threads of a block or warp that are believed. Attributes come from files too, and
/// occupancy is computed for all block sizes: no device comes near this, and what is far above
/// would take minutes.
const MAX_BELIEVED_THREADS: u32 = 1 << 16;

/// Attributes of a device (`cuDeviceGetAttribute`); 0 where the driver did not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceAttributes {
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// Multiprocessors (SMs).
    pub multiprocessors: u32,
    /// Threads of a warp.
    pub warp_size: u32,
    /// Most threads of a block, all axes together.
    pub max_threads_per_block: u32,
    /// Most threads of a block along x, y and z.
    pub max_block_dim: Dim3,
    /// Most blocks of a grid along x, y and z.
    pub max_grid_dim: Dim3,
    /// Most resident threads of a multiprocessor.
    pub max_threads_per_multiprocessor: u32,
    /// Most resident blocks of a multiprocessor.
    pub max_blocks_per_multiprocessor: u32,
    /// 32-bit registers of a multiprocessor.
    pub max_registers_per_multiprocessor: u32,
    /// Most 32-bit registers of a block.
    pub max_registers_per_block: u32,
    /// Most shared memory of a multiprocessor.
    pub max_shared_bytes_per_multiprocessor: u32,
    /// Most shared memory of a block that does not opt in to more.
    pub max_shared_bytes_per_block: u32,
    /// Most shared memory of a block that opts in.
    pub max_shared_bytes_per_block_optin: u32,
    /// Shared memory that the driver keeps in each block.
    pub reserved_shared_bytes_per_block: u32,
    /// Highest clock of the multiprocessors.
    pub clock_khz: u32,
    /// Highest clock of the memory.
    pub memory_clock_khz: u32,
    /// Width of the bus to the memory.
    pub memory_bus_bits: u32,
    /// Size of the L2 cache.
    pub l2_cache_bytes: u32,
}

impl DeviceAttributes {
    /// The attributes of a device before its driver is asked.
    pub const UNKNOWN: Self = Self {
        compute_capability: (0, 0),
        multiprocessors: 0,
        warp_size: 0,
        max_threads_per_block: 0,
        max_block_dim: Dim3::ZERO,
        max_grid_dim: Dim3::ZERO,
        max_threads_per_multiprocessor: 0,
        max_blocks_per_multiprocessor: 0,
        max_registers_per_multiprocessor: 0,
        max_registers_per_block: 0,
        max_shared_bytes_per_multiprocessor: 0,
        max_shared_bytes_per_block: 0,
        max_shared_bytes_per_block_optin: 0,
        reserved_shared_bytes_per_block: 0,
        clock_khz: 0,
        memory_clock_khz: 0,
        memory_bus_bits: 0,
        l2_cache_bytes: 0,
    };

    /// Bytes that its memory moves in a nanosecond at most, with two transfers a clock; 0 if its
    /// clock or its bus is unknown.
    pub fn memory_bytes_per_ns(&self) -> f64 {
        f64::from(self.memory_clock_khz) * 1e-6 * 2.0 * f64::from(self.memory_bus_bits) / 8.0
    }

    /// Replaces what these pairs of `CUdevice_attribute` and value name. Values that are not
    /// positive are not believed (`RESERVED_SHARED_MEMORY_PER_BLOCK` may be 0), nor are warps and
    /// blocks of more than 65,536 threads; other attributes are passed over.
    pub fn with_pairs(mut self, pairs: &[(u32, i32)]) -> Self {
        for &(id, value) in pairs {
            let Ok(value) = u32::try_from(value) else { continue };
            let is_believed = match id {
                attribute::RESERVED_SHARED_MEMORY_PER_BLOCK => true,
                attribute::MAX_THREADS_PER_BLOCK | attribute::WARP_SIZE => {
                    (1..=MAX_BELIEVED_THREADS).contains(&value)
                }
                _ => value > 0,
            };
            if let Some(field) = self.field(id).filter(|_| is_believed) {
                *field = value;
            }
        }
        self.compute_capability = compute_capability(pairs).unwrap_or(self.compute_capability);
        self
    }

    /// The value of an attribute, by its number; `None` if it is none of those in [`attribute`].
    pub fn get(&self, id: u32) -> Option<u32> {
        match id {
            attribute::COMPUTE_CAPABILITY_MAJOR => Some(self.compute_capability.0),
            attribute::COMPUTE_CAPABILITY_MINOR => Some(self.compute_capability.1),
            _ => { *self }.field(id).copied(),
        }
    }

    /// The field of an attribute, but for the compute capability, whose halves belong together.
    fn field(&mut self, id: u32) -> Option<&mut u32> {
        Some(match id {
            attribute::MAX_THREADS_PER_BLOCK => &mut self.max_threads_per_block,
            attribute::MAX_BLOCK_DIM_X => &mut self.max_block_dim.x,
            attribute::MAX_BLOCK_DIM_Y => &mut self.max_block_dim.y,
            attribute::MAX_BLOCK_DIM_Z => &mut self.max_block_dim.z,
            attribute::MAX_GRID_DIM_X => &mut self.max_grid_dim.x,
            attribute::MAX_GRID_DIM_Y => &mut self.max_grid_dim.y,
            attribute::MAX_GRID_DIM_Z => &mut self.max_grid_dim.z,
            attribute::MAX_SHARED_MEMORY_PER_BLOCK => &mut self.max_shared_bytes_per_block,
            attribute::WARP_SIZE => &mut self.warp_size,
            attribute::MAX_REGISTERS_PER_BLOCK => &mut self.max_registers_per_block,
            attribute::CLOCK_RATE => &mut self.clock_khz,
            attribute::MULTIPROCESSOR_COUNT => &mut self.multiprocessors,
            attribute::MEMORY_CLOCK_RATE => &mut self.memory_clock_khz,
            attribute::GLOBAL_MEMORY_BUS_WIDTH => &mut self.memory_bus_bits,
            attribute::L2_CACHE_SIZE => &mut self.l2_cache_bytes,
            attribute::MAX_THREADS_PER_MULTIPROCESSOR => &mut self.max_threads_per_multiprocessor,
            attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => &mut self.max_shared_bytes_per_multiprocessor,
            attribute::MAX_REGISTERS_PER_MULTIPROCESSOR => &mut self.max_registers_per_multiprocessor,
            attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => &mut self.max_shared_bytes_per_block_optin,
            attribute::MAX_BLOCKS_PER_MULTIPROCESSOR => &mut self.max_blocks_per_multiprocessor,
            attribute::RESERVED_SHARED_MEMORY_PER_BLOCK => &mut self.reserved_shared_bytes_per_block,
            _ => return None,
        })
    }
}

/// The compute capability that pairs of `CUdevice_attribute` and value name; `None` unless they
/// have both of its numbers.
pub fn compute_capability(pairs: &[(u32, i32)]) -> Option<(u32, u32)> {
    let value = |wanted: u32| {
        let &(_, value) = pairs.iter().find(|(id, _)| *id == wanted)?;
        u32::try_from(value).ok()
    };
    Some((value(attribute::COMPUTE_CAPABILITY_MAJOR)?, value(attribute::COMPUTE_CAPABILITY_MINOR)?))
}
