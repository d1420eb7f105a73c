//! Loops of one thread while the rest of its block waits.

use super::super::Rule;
use super::accesses::computed;
use super::{Pattern, judge, own};
use crate::finding::{Severity, Unit};
use apex_counts::FactKind;
use apex_profile::{Figure, Profile};

/// Minimum share of the accesses to global memory.
const SHARE: f64 = 0.5;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P119",
    slug: "one-thread",
    title: "One thread does the work of its block",
    severity: Severity::High,
    detects: "By the PTX of a kernel with at least 5% of the GPU time and more than one thread in a block, at least 50% of its \
        accesses to global memory are in loops that one thread enters, because its index equals a number. Loops count 8 times. \
        Atomic, volatile and ordered accesses do not count, and kernels with asynchronous copies neither.",
    source: "ptx::facts. The threshold is APEX's own.",
    why: "A thread waits for each of its loads; a block hides this by the loads of other threads, which have nothing to do here. 31 \
        of 32 lanes are idle, and each load uses a part of its sector.",
    change: "Let all threads of the block share the loop (for (i = threadIdx.x; i < n; i += blockDim.x)), and combine their results \
        by shuffles or cub::BlockReduce.",
    saving: "From nothing (the loop is short) to 99%.",
    judge: |profile: &Profile| judge(profile, &ALONE),
    ..super::RULE
};

const ALONE: Pattern = Pattern {
    kind: FactKind::OneThread,
    is_counted: false,
    owners: own,
    is_fault: |kernel, fact| fact.share >= SHARE && kernel.block_threads() > 1,
    evidence: |fact| {
        vec![
            computed("share of global accesses by one thread", fact.share, Unit::Share).decrease_towards(0.0),
        ]
    },
    change: |_, _| {
        "one thread of the block executes the loop: let all threads share it (i = threadIdx.x; i < n; i += blockDim.x), and \
         combine their results by shuffles or cub::BlockReduce"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.6, (0.0, 0.99)),
    headline: "one thread does the work of its block",
};
