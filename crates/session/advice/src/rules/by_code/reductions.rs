//! Reductions through shared memory with a barrier in each step.

use super::super::Rule;
use super::accesses::computed;
use super::{Pattern, judge, own};
use crate::finding::Unit;
use apex_counts::FactKind;
use apex_profile::{Figure, Profile};

/// Minimum share of the reduction in the kernel's instructions.
const SHARE: f64 = 0.4;
/// Most loads from global memory for each reduction: a loop that sums up before it counts as 8.
const LOADS: f64 = 8.0;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P112",
    slug: "barrier-reduction",
    title: "Reduction through shared memory with a barrier in each step",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 40% of its instructions are of a sum, a minimum or \
        another reduction in shared memory, in a loop that halves or doubles a distance and has a barrier, or in at least three \
        such steps, with fewer than 8 loads from global memory for each reduction. Loops count 8 times.",
    source: "ptx::facts; CUDA C++ Programming Guide, warp shuffle functions and warp reduce functions. The thresholds are APEX's \
             own.",
    why: "All warps of a block wait at each barrier, while fewer and fewer of their lanes add; a warp needs neither barriers nor \
        shared memory for its own 32 values.",
    change: "Reduce within warps by shuffles (__shfl_down_sync, or __reduce_add_sync for integers), put one value of each warp \
        into shared memory, and let one warp reduce these: one barrier instead of one for each step. cub::BlockReduce does \
        this; cub::BlockScan for prefix sums. Let each thread add several values first.",
    saving: "From nothing (memory limits the kernel) to 90%: in testing/corpus, volatile_sums becomes 83% faster.",
    judge: |profile: &Profile| judge(profile, &STEPS),
    ..super::RULE
};

const STEPS: Pattern = Pattern {
    kind: FactKind::BarrierReduction,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE && fact.cost < LOADS,
    evidence: |fact| {
        vec![
            computed("share of instructions for the reduction", fact.share, Unit::Share)
                .decrease_towards(0.0),
            computed("loads for each reduction", fact.cost, Unit::Count),
        ]
    },
    change: |_, _| {
        "a reduction in shared memory has a barrier in each step: reduce within warps by shuffles (__shfl_down_sync, \
         __reduce_add_sync) and once over the warps, or use cub::BlockReduce"
            .to_owned()
    },
    saves: |_, fact| Figure::predicted(0.7 * fact.share, (0.0, 0.9)),
    headline: "a reduction with a barrier in each step",
};
