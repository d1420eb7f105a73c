//! Eight features that are known for every launch, as numbers of about one.

use super::{Sink, log};
use crate::case::Placed;

/// Logarithms of sides, shared memory and threads over what they reach at most, about.
pub(super) fn put(placed: &Placed<'_>, sink: &mut dyn Sink) {
    let launch = &placed.case.launch;
    for (name, side) in ["grid_x", "grid_y", "grid_z"].into_iter().zip(launch.grid.to_array()) {
        sink.put("", name, f64::from(side).log2() / 15.0);
    }
    for (name, side) in ["block_x", "block_y", "block_z"].into_iter().zip(launch.block.to_array()) {
        sink.put("", name, f64::from(side).log2() / 11.0);
    }
    sink.put("", "dynamic_shared", log(f64::from(launch.dynamic_shared_bytes)) / 20.0);
    let threads = launch.blocks() as f64 * launch.threads_per_block() as f64;
    sink.put("", "threads", threads.log2() / 25.0);
}
