//! The blocks that are worth trying: those that the proof allows and the models keep.

use apex_ordered::Order;
use apex_predict::{Change, Models};
use apex_predict_session::explore::explored;
use apex_predict_session::programs::Programs;
use apex_profile::{Kernel, Profile};
use apex_reshape::Proof;
use cuda_launch::Dim3;

/// Most blocks that are tried in one search: each takes its share of the launches.
const MOST: usize = 4;
/// Threads of the blocks that are looked at.
const THREADS: [u64; 5] = [64, 128, 256, 512, 1024];
/// Least threads along x of a block with several rows: a row is at least one warp.
const LEAST_ROW: u32 = 32;
/// The share of the time that a block may cost by the models' prediction and still be tried: the
/// models are not exact.
const MOST_COST: f64 = 0.25;

/// The candidates for a kernel, the best by the models first.
pub fn of(proof: &Proof, models: &Models, profile: &Profile, kernel: &Kernel) -> Vec<Dim3> {
    let recorded = Programs::of(profile).recorded(kernel);
    let predicted = |block: Dim3| {
        let change = Change { block: Some(block), ..Change::default() };
        let found = explored(models, profile, &recorded, kernel, &change).ok()?;
        let saves = found.saves.map_or(0.0, |saves| saves.value);
        (found.impossible.is_none() && saves >= -MOST_COST).then_some((block, saves))
    };
    let is_usual = |block: &Dim3| {
        THREADS.contains(&block.count())
            && (block.x >= LEAST_ROW || block.y == 1)
            && *block != kernel.launch.block
    };
    let blocks = proof.candidates(&kernel.launch).into_iter().filter(is_usual);
    let mut kept: Vec<(Dim3, f64)> = blocks.filter_map(predicted).collect();
    kept.order_by(|a, b| b.1.total_cmp(&a.1));
    kept.into_iter().map(|(block, _)| block).take(MOST).collect()
}
