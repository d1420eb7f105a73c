//! A launch as the proof sees it, and the shapes that are worth trying.

use cuda_launch::{Dim3, LaunchConfig};

/// Most threads of a block on every device.
const MOST_THREADS: u32 = 1024;
/// Most threads of a block along z.
const MOST_Z: u32 = 64;
/// Most blocks along y and z.
const MOST_ROWS: u32 = 65_535;
/// Threads of a warp.
const WARP: u32 = 32;

/// A launch that the program asks for.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    /// Grid, block, cluster and dynamic shared memory.
    pub config: LaunchConfig,
    /// Whether it is a cooperative launch.
    pub cooperative: bool,
    /// The kernel's parameters, as its parameter space holds them.
    pub parameters: &'a [u8],
    /// The allocation that holds an address: its base and its size in bytes; `None` if it is not
    /// known. Allocations must not share memory: an address in memory that is mapped twice, and
    /// one of a module's variable, has none.
    pub allocation: &'a dyn Fn(u64) -> Option<(u64, u64)>,
}

/// Difference of a shape from the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The same number of threads along each axis, divided differently into blocks.
    SameThreads,
    /// More threads along an axis; the additional ones do nothing.
    MoreThreads,
}

/// Whether CUDA allows a launch on every device, memory and registers left out.
pub(crate) fn is_valid(launch: &LaunchConfig) -> bool {
    let LaunchConfig { grid, block, .. } = *launch;
    !grid.is_empty()
        && !block.is_empty()
        && grid.x <= i32::MAX as u32
        && grid.y <= MOST_ROWS
        && grid.z <= MOST_ROWS
        && block.z <= MOST_Z
        && block.count() <= u64::from(MOST_THREADS)
}

/// Threads along each axis.
pub(crate) fn threads(launch: &LaunchConfig) -> [u64; 3] {
    let (grid, block) = (launch.grid.to_array(), launch.block.to_array());
    std::array::from_fn(|axis| u64::from(grid[axis]) * u64::from(block[axis]))
}

/// The blocks that are worth trying instead of the launch's own: whole warps. A launch along x
/// alone has blocks along x; one along x and y also those whose rows are whole warps; one along z
/// keeps the block's depth.
pub(crate) fn blocks(launch: &LaunchConfig, most: u32) -> Vec<Dim3> {
    let most = most.min(MOST_THREADS);
    let depth = launch.block.z.max(1);
    let is_flat = launch.grid.y == 1 && launch.block.y == 1;
    let rows: Vec<u32> = if is_flat { vec![1] } else { vec![1, 2, 4, 8, 16, 32] };
    let warps = (1..=MOST_THREADS / WARP).map(|warps| warps * WARP);
    let all = warps.flat_map(|x| rows.iter().map(move |&y| Dim3::new(x, y, depth)));
    all.filter(|block| block.count() <= u64::from(most) && *block != launch.block).collect()
}
