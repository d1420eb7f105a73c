//! The configuration of a launch: the values between `<<<` and `>>>`, except the stream.

use crate::{DeviceAttributes, Dim3};
use std::fmt;

/// The configuration of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[repr(C)]
pub struct LaunchConfig {
    /// Blocks of the grid.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Blocks of a cluster; [`Dim3::ZERO`] without clusters.
    pub cluster: Dim3,
    /// Dynamic shared memory of a block.
    pub dynamic_shared_bytes: u32,
}

impl LaunchConfig {
    /// This grid of these blocks, without clusters and without dynamic shared memory.
    pub fn new(grid: impl Into<Dim3>, block: impl Into<Dim3>) -> Self {
        Self { grid: grid.into(), block: block.into(), cluster: Dim3::ZERO, dynamic_shared_bytes: 0 }
    }

    /// The same with this much dynamic shared memory for each block.
    pub const fn with_dynamic_shared_bytes(self, dynamic_shared_bytes: u32) -> Self {
        Self { dynamic_shared_bytes, ..self }
    }

    /// Blocks of the grid, at most [`u64::MAX`].
    pub const fn blocks(&self) -> u64 {
        self.grid.count()
    }

    /// Threads of a block, at most [`u64::MAX`].
    pub const fn threads_per_block(&self) -> u64 {
        self.block.count()
    }

    /// Threads of all blocks, at most [`u64::MAX`].
    pub const fn threads(&self) -> u64 {
        self.blocks().saturating_mul(self.threads_per_block())
    }

    /// Blocks of a cluster, at most [`u64::MAX`]; 1 without clusters.
    pub fn blocks_per_cluster(&self) -> u64 {
        self.cluster.map(|side| side.max(1)).count()
    }

    /// The same threads in blocks of another size: along each axis, the fewest blocks that hold at
    /// least as many threads as before, in whole clusters. `None` where a side of `block` is 0 or
    /// the grid would need a side above [`u32::MAX`].
    ///
    /// The axes are kept apart because kernels number their threads by axis
    /// (`blockIdx.y * blockDim.y + threadIdx.y`): blocks that hold as many threads in all, but
    /// fewer along y, would leave rows without a thread. In one dimension that is the total divided
    /// by the block, rounded up. A kernel that numbers its threads otherwise may need another grid.
    pub fn with_block(&self, block: Dim3) -> Option<Self> {
        let side = |blocks: u32, threads: u32, new_threads: u32, cluster: u32| {
            if new_threads == 0 {
                return None;
            }
            let blocks = (u64::from(blocks) * u64::from(threads)).div_ceil(new_threads.into());
            u32::try_from(blocks.checked_next_multiple_of(cluster.max(1).into())?).ok()
        };
        let Self { grid, block: old, cluster, .. } = *self;
        let grid = Dim3 {
            x: side(grid.x, old.x, block.x, cluster.x)?,
            y: side(grid.y, old.y, block.y, cluster.y)?,
            z: side(grid.z, old.z, block.z, cluster.z)?,
        };
        Some(Self { grid, block, ..*self })
    }

    /// The first limit of the device that grid and block exceed, or the first of them that is
    /// empty. Shared memory and registers depend on the kernel as well and are not looked at.
    pub fn exceeded_limit(&self, device: &DeviceAttributes) -> Option<LimitExceeded> {
        use LaunchLimit::{BlockDim, EmptyBlock, EmptyGrid, GridDim, ThreadsPerBlock};
        for (what, sides) in [(EmptyGrid, self.grid), (EmptyBlock, self.block)] {
            if sides.is_empty() {
                return Some(LimitExceeded { what, value: 0, limit: 0 });
            }
        }
        let along = |what: fn(char) -> LaunchLimit, sides: Dim3, limits: Dim3| {
            let [x, y, z] = sides.to_array();
            let [max_x, max_y, max_z] = limits.to_array();
            [(what('x'), x.into(), max_x), (what('y'), y.into(), max_y), (what('z'), z.into(), max_z)]
        };
        let threads = (ThreadsPerBlock, self.threads_per_block(), device.max_threads_per_block);
        along(GridDim, self.grid, device.max_grid_dim)
            .into_iter()
            .chain([threads])
            .chain(along(BlockDim, self.block, device.max_block_dim))
            .find(|&(_, value, limit)| value > u64::from(limit))
            .map(|(what, value, limit)| LimitExceeded { what, value, limit: limit.into() })
    }
}

/// One block of one thread.
impl Default for LaunchConfig {
    fn default() -> Self {
        Self::new(Dim3::ONE, Dim3::ONE)
    }
}

/// As it is written in CUDA C++: `<<<(128, 1, 1), (256, 1, 1), 0>>>`.
impl fmt::Display for LaunchConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "<<<{}, {}, {}>>>", self.grid, self.block, self.dynamic_shared_bytes)
    }
}

/// The limits of a device on a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaunchLimit {
    /// A side of the grid is 0.
    EmptyGrid,
    /// A side of the block is 0.
    EmptyBlock,
    /// Blocks of the grid along an axis, `x`, `y` or `z`.
    GridDim(char),
    /// Threads of a block along an axis, `x`, `y` or `z`.
    BlockDim(char),
    /// Threads of a block, all axes together.
    ThreadsPerBlock,
}

/// A launch asks for more than a device allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitExceeded {
    /// The limit that is exceeded, or the size that is zero.
    pub what: LaunchLimit,
    /// The value that the launch requests.
    pub value: u64,
    /// The most that the device allows.
    pub limit: u64,
}
