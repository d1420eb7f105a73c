//! Occupancy and waves of a launch on its device.

use occupancy::Limiter;
use serde::Serialize;
use std::collections::BTreeMap;

/// Computed from configuration, attributes and device.
#[derive(Debug, Serialize)]
pub struct Geometry {
    /// Theoretical occupancy.
    occupancy: f64,
    limiters: Vec<&'static str>,
    /// Blocks that an SM holds at once.
    blocks_per_sm: u32,
    warps_per_block: u32,
    max_warps_per_sm: u32,
    /// Blocks that each resource alone would admit; those that do not limit are left out.
    block_limits: BTreeMap<&'static str, u32>,
    blocks: u64,
    waves: f64,
    full_waves: u64,
    /// Blocks of the last, partial wave; 0 if all are full.
    tail_blocks: u64,
    /// Blocks of a full wave.
    wave_blocks: u64,
    tail_effect: f64,
    block_efficiency: f64,
}

impl Geometry {
    pub fn of(geometry: &apex_profile::Geometry) -> Self {
        let apex_profile::Geometry { occupancy, waves, block_efficiency } = geometry;
        let limit = |limiter: Limiter| Some((limiter.name(), occupancy.limit(limiter)?));
        Self {
            occupancy: occupancy.fraction(),
            limiters: occupancy.limiters().map(Limiter::name).collect(),
            blocks_per_sm: occupancy.blocks_per_sm,
            warps_per_block: occupancy.warps_per_block,
            max_warps_per_sm: occupancy.max_warps_per_sm,
            block_limits: Limiter::ALL.into_iter().filter_map(limit).collect(),
            blocks: waves.blocks,
            waves: waves.waves,
            full_waves: waves.full,
            tail_blocks: waves.tail_blocks,
            wave_blocks: waves.capacity,
            tail_effect: waves.tail_effect(),
            block_efficiency: *block_efficiency,
        }
    }
}
