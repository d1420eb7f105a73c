//! The elements that a launch must cover, and the blocks and grids that cover them.

use cuda_launch::Dim3;

/// Threads of a block over several dimensions, if the program does not say.
const BLOCK: u32 = 256;

/// The numbers of threads along x, y and z that a launch has at least, see
/// [`Kernel::over`](super::Kernel::over): made from `n`, `(width, height)` or
/// `(width, height, depth)`.
///
/// ```
/// # const PTX: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.ptx"));
/// # let device = apex_gpu::Device::open(0)?;
/// # let kernel = device.load_ptx(PTX)?.kernel("positions")?;
/// println!("{:?}", kernel.over(1_000_000)); // Launch(positions: …)
/// println!("{:?}", kernel.over((1920, 1080)));
/// println!("{:?}", kernel.over((64, 64, 64)).block((8, 8, 4)));
/// # apex_gpu::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements([usize; 3]);

impl From<usize> for Elements {
    fn from(n: usize) -> Elements {
        Elements([n, 1, 1])
    }
}

impl From<(usize, usize)> for Elements {
    fn from((x, y): (usize, usize)) -> Elements {
        Elements([x, y, 1])
    }
}

impl From<(usize, usize, usize)> for Elements {
    fn from((x, y, z): (usize, usize, usize)) -> Elements {
        Elements([x, y, z])
    }
}

impl Elements {
    /// A block of at most `best` threads: along x alone if there is no other dimension; else a warp
    /// along x, or fewer threads where there are not as many, and the rest along y, then z.
    pub(super) fn block(self, best: u32) -> Dim3 {
        let Elements([x, y, z]) = self;
        if (y, z) == (1, 1) {
            return Dim3::from(best);
        }
        let mut left = best.min(BLOCK);
        let mut along = |elements: usize, most: u32| {
            let wanted = u32::try_from(elements).unwrap_or(u32::MAX).clamp(1, most).next_power_of_two();
            let threads = wanted.min(left).max(1);
            left /= threads;
            threads
        };
        let (x, y) = (along(x, 32), along(y, 32));
        Dim3::from((x, y, along(z, 8)))
    }

    /// The grid of such blocks that covers all: at least one block. More than a grid can have are
    /// refused at the launch.
    pub(super) fn blocks_of(self, block: Dim3) -> Dim3 {
        let [threads_x, threads_y, threads_z]: [u32; 3] = block.into();
        let blocks = |elements: usize, threads: u32| {
            u32::try_from(elements.div_ceil(threads.max(1) as usize).max(1)).unwrap_or(u32::MAX)
        };
        let Elements([x, y, z]) = self;
        Dim3::from((blocks(x, threads_x), blocks(y, threads_y), blocks(z, threads_z)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_cover_all_elements_and_no_block_is_useless() {
        for elements in [(1, 1, 1), (1000, 1, 1), (33, 2, 1), (5, 7, 1), (1, 1000, 3), (2, 3, 900), (0, 4, 1)]
        {
            for best in [1, 32, 96, 256, 1024] {
                let covered = Elements::from(elements);
                let block = covered.block(best);
                let (grid, block): ([u32; 3], [u32; 3]) = (covered.blocks_of(block).into(), block.into());
                assert!(block.iter().product::<u32>() <= best, "{elements:?}: {block:?}");
                let sizes = [elements.0, elements.1, elements.2].map(|size: usize| size.max(1) as u32);
                for axis in 0..3 {
                    assert!(grid[axis] * block[axis] >= sizes[axis], "{elements:?} with {block:?}");
                    assert!((grid[axis] - 1) * block[axis] < sizes[axis], "{elements:?} with {block:?}");
                }
            }
        }
    }

    #[test]
    fn rows_of_an_image_are_read_by_whole_warps() {
        assert_eq!(Elements::from((1920, 1080)).block(1024), Dim3::from((32, 8, 1)));
        assert_eq!(Elements::from((8, 1080)).block(1024), Dim3::from((8, 32, 1)));
        assert_eq!(Elements::from(1920).block(1024), Dim3::from(1024));
    }
}
