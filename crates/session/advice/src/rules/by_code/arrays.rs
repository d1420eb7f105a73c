//! Arrays that are not in registers.

use super::super::Rule;
use super::accesses::computed;
use super::{Pattern, judge, own};
use crate::finding::Unit;
use apex_counts::FactKind;
use apex_profile::{Figure, Profile};

/// Minimum share of accesses to local memory at unknown indices.
const SHARE: f64 = 0.25;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P118",
    slug: "local-array",
    title: "An array in local memory instead of registers",
    detects: "By the code of a kernel with at least 5% of the GPU time, at least 25% of its accesses to global, shared and local \
        memory are to arrays of a thread, at indices that the compiler does not know. Loops count 8 times. The small array that \
        sine and cosine have for large arguments is not counted.",
    source: "ptx::facts; CUDA C++ Programming Guide, local memory: arrays that are not indexed with constants. The threshold is \
             APEX's own; APEX-C79 counts the same on the CPU device.",
    why: "Registers have no index. An array that is indexed by a variable is in local memory, which is device memory: its accesses \
        take the latency and bandwidth of the L1 cache, and beyond it those of L2 and DRAM.",
    change: "Unroll the loops over the array (#pragma unroll, a constant number of rounds), so that each index is a constant; \
        otherwise put it into shared memory, with threads side by side, or make it smaller.",
    saving: "From nothing (the L1 cache serves it) to 90%.",
    judge: |profile: &Profile| judge(profile, &ARRAYS),
    ..super::RULE
};

const ARRAYS: Pattern = Pattern {
    kind: FactKind::LocalArray,
    is_counted: true,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE,
    evidence: |fact| {
        vec![computed("share of memory accesses", fact.share, Unit::Share).decrease_towards(0.0)]
    },
    change: |_, _| {
        "an array in local memory is indexed by a variable: unroll the loops over it, so that its elements are in registers, or \
         put it into shared memory"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.3, (0.0, 0.9)),
    headline: "an array in local memory",
};
