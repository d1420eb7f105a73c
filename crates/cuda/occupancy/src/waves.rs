//! The waves in which the blocks of a grid fill the device.
//!
//! A *wave* is as many blocks as the device holds at once. The last wave of a grid is rarely full;
//! while it runs, part of the device is idle: the *tail effect*. The figures assume blocks of equal
//! duration.

/// A grid in waves.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Waves {
    /// Blocks of the grid.
    pub blocks: u64,
    /// Blocks that the device holds at once; 0 if the kernel cannot run or the number of SMs is
    /// unknown.
    pub capacity: u64,
    /// Blocks over capacity: 2.25 is two full waves and a quarter.
    pub waves: f64,
    /// Full waves.
    pub full: u64,
    /// Blocks of the last, partial wave; 0 if all are full.
    pub tail_blocks: u64,
    /// Multiprocessors that get at least one block, as a share of all.
    pub sm_coverage: f64,
}

impl Waves {
    /// Waves of a grid of `blocks` on a device with `sms` multiprocessors that hold `blocks_per_sm`
    /// each.
    pub fn of_grid(blocks: u64, blocks_per_sm: u32, sms: u32) -> Self {
        Self::of_clusters(blocks, 1, blocks_per_sm, sms)
    }

    /// The same for a grid whose blocks come in clusters of `cluster_blocks` that are placed as
    /// one. The capacity is then an upper bound: a cluster must fit into one GPU processing
    /// cluster, whose size the driver does not tell.
    pub fn of_clusters(blocks: u64, blocks_per_cluster: u64, blocks_per_sm: u32, sms: u32) -> Self {
        let cluster = blocks_per_cluster.max(1);
        let capacity = u64::from(blocks_per_sm) * u64::from(sms) / cluster * cluster;
        let (waves, full, tail_blocks) = match blocks.checked_div(capacity) {
            Some(full) => (blocks as f64 / capacity as f64, full, blocks % capacity),
            None => (0.0, 0, 0),
        };
        let sm_coverage = if sms == 0 { 0.0 } else { (blocks as f64 / f64::from(sms)).min(1.0) };
        Self { blocks, capacity, waves, full, tail_blocks, sm_coverage }
    }

    /// Share of the device's time that the partial last wave leaves idle: 1 - waves / ceil(waves).
    pub fn tail_effect(&self) -> f64 {
        let all = self.full + u64::from(self.tail_blocks > 0);
        if all == 0 { 0.0 } else { 1.0 - self.waves / all as f64 }
    }
}

/// Share of a block's lanes that hold a thread: threads over warps times warp size. 0 for an empty
/// block.
pub fn block_efficiency(block_threads: u32, warp_size: u32) -> f64 {
    let lanes = u64::from(block_threads.div_ceil(warp_size.max(1))) * u64::from(warp_size);
    if lanes == 0 { 0.0 } else { f64::from(block_threads) / lanes as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_wave_has_no_tail() {
        let waves = Waves::of_grid(264, 2, 132);
        assert_eq!((waves.waves, waves.full, waves.tail_blocks), (1.0, 1, 0));
        assert_eq!(waves.tail_effect(), 0.0);
    }

    #[test]
    fn one_block_too_many_costs_nearly_half() {
        let waves = Waves::of_grid(265, 2, 132);
        assert_eq!((waves.full, waves.tail_blocks), (1, 1));
        assert!((waves.tail_effect() - (1.0 - 265.0 / 528.0)).abs() < 1e-12);
    }

    #[test]
    fn a_small_grid_covers_some_sms() {
        let waves = Waves::of_grid(33, 4, 132);
        assert_eq!((waves.full, waves.sm_coverage), (0, 0.25));
        assert!((waves.tail_effect() - (1.0 - 33.0 / 528.0)).abs() < 1e-12);
    }

    #[test]
    fn clusters_round_the_capacity_down() {
        assert_eq!(Waves::of_clusters(64, 8, 1, 132).capacity, 128);
    }

    #[test]
    fn what_cannot_run_has_no_waves() {
        for waves in [Waves::of_grid(10, 0, 132), Waves::of_grid(10, 4, 0), Waves::of_grid(0, 4, 132)] {
            assert_eq!((waves.waves, waves.tail_effect()), (0.0, 0.0));
        }
    }

    #[test]
    fn lanes_without_a_thread_count_against_the_block() {
        assert_eq!(block_efficiency(128, 32), 1.0);
        assert_eq!(block_efficiency(100, 32), 0.78125);
        assert_eq!(block_efficiency(0, 32), 0.0);
    }
}
