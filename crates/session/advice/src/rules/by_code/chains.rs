//! Loads that wait for each other.

use super::super::Rule;
use super::accesses::computed;
use super::{Pattern, judge, own};
use crate::finding::{Severity, Unit};
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

/// Minimum share of the accesses to global memory.
const SEARCH_SHARE: f64 = 0.5;

pub(in crate::rules) const SEARCH: Rule = Rule {
    id: "APEX-P140",
    slug: "linear-search",
    title: "A linear search in each thread",
    severity: Severity::High,
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least half of the accesses to global memory are loads in a \
        loop that goes along a table, only compares what it loads, and ends by a comparison. Loops count 8 times.",
    source: "ptx::facts. The threshold is APEX's own.",
    why: "A thread reads half of the table on average, one value after the other, and a warp as far as its slowest lane; a binary \
        search of 2,048 sorted values reads 11.",
    change: "Search sorted values by halving (a binary search: std::upper_bound's loop), or compute the place: a table of first places \
        for equal intervals, an alias table for draws with weights.",
    saving: "From nothing (tables are short) to nearly all of the kernel's time.",
    judge: |profile: &Profile| judge(profile, &SEARCHES),
    ..super::RULE
};

const SEARCHES: Pattern = Pattern {
    kind: FactKind::LinearSearch,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= SEARCH_SHARE,
    evidence: |fact| vec![computed("loads of a search", fact.share, Unit::Share).decrease_towards(0.0)],
    change: |_, _| {
        "each thread goes along a table from its start until a value compares, a linear search: if the table is sorted (cumulative \
         sums are), use a binary search, which halves the rest with each read, or an alias table for draws with weights"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.6, (0.0, 0.99)),
    headline: "a linear search of a table in each thread",
};
