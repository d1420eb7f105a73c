//! Loads that wait for each other.

use super::super::Rule;
use super::accesses::computed;
use super::{Pattern, judge, own};
use crate::finding::Unit;
use apex_counts::FactKind;
use apex_profile::{Figure, Profile};

/// Minimum share of the accesses to global memory.
const SHARE: f64 = 0.1;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P132",
    slug: "chained-loads",
    title: "Each load waits for the one before: a linked list",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 10% of the accesses to global memory are loads in a \
        loop from an address that the round before has loaded.",
    source: "ptx::facts. The threshold is APEX's own.",
    why: "A thread has one such load under way at a time, so that each round takes the latency of memory, and the lanes of a warp \
        read scattered addresses.",
    change: "Store what belongs together side by side (an array and the offset of each row, as in the CSR format), so that loads do \
        not depend on each other and neighbouring threads read neighbouring addresses.",
    saving: "From nothing (lists are short or cached) to 95%.",
    judge: |profile: &Profile| judge(profile, &CHAINS),
    ..super::RULE
};

const CHAINS: Pattern = Pattern {
    kind: FactKind::ChainOfLoads,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE,
    evidence: |fact| vec![computed("loads of a chain", fact.share, Unit::Share).decrease_towards(0.0)],
    change: |_, _| {
        "each round loads the address of the next load, as along a linked list: store the elements side by side (an array and \
         the offset of each row), and let neighbouring threads read neighbouring elements"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.5, (0.0, 0.95)),
    headline: "loads that depend on each other",
};
