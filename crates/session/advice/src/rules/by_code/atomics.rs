//! Atomic operations that make threads wait for each other.

use super::super::Rule;
use super::accesses::computed;
use super::{Language, Pattern, judge, own};
use crate::finding::{Severity, Unit};
use apex_counts::FactKind;
use apex_profile::{CodeFact, Figure, Profile};

/// Minimum share of atomic operations in the accesses to global and shared memory.
const TOTAL_SHARE: f64 = 0.1;
/// The same of sums by all blocks, of sums by compare-and-swap, and of locks.
const SWAP_SHARE: f64 = 0.05;
/// Minimum fences for each access.
const FENCE_SHARE: f64 = 0.1;

fn share(fact: &CodeFact) -> Vec<crate::finding::Evidence> {
    vec![computed("share of memory accesses", fact.share, Unit::Share).decrease_towards(0.0)]
}

pub(in crate::rules) const TOTAL: Rule = Rule {
    id: "APEX-P114",
    slug: "one-total",
    title: "All threads add to one number",
    severity: Severity::High,
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 10% of its accesses to global and shared memory are \
        atomic sums in floating point or 64 bits at one address, by all threads: no thread, block or data chooses the address, \
        and neither data nor the number of a lane decide who adds. Loops count 8 times.",
    source: "ptx::facts. ptxas combines sums of 32-bit integers within a warp, and no others. The threshold is APEX's own; \
             APEX-C68 counts the same on the CPU device.",
    why: "The L2 cache adds one value after another at one address, however many threads there are.",
    change: "Add up in a register first, then within warps by shuffles (__shfl_down_sync) and within the block \
        (cub::BlockReduce), and let one thread of each block add the block's sum.",
    saving: "Most of the kernel's time where each thread adds once or more; little if the values take long to compute.",
    judge: |profile: &Profile| judge(profile, &TOTALS),
    ..super::RULE
};

const TOTALS: Pattern = Pattern {
    kind: FactKind::OneTotal,
    is_counted: true,
    owners: own,
    is_fault: |_, fact| fact.share >= TOTAL_SHARE,
    evidence: share,
    change: |_, _| {
        "all threads add to one number: add up within each block first (shuffles, cub::BlockReduce), so that one thread of a \
         block adds"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.6, (0.0, 0.99)),
    headline: "all threads add to one number",
};

/// Minimum number of blocks that add to the same numbers: fewer hardly wait for each other.
const ADDING_BLOCKS: u64 = 4096;

pub(in crate::rules) const SHARED: Rule = Rule {
    id: "APEX-P138",
    slug: "shared-sums",
    title: "All blocks add to the same numbers",
    severity: Severity::High,
    detects: "By the PTX of a kernel with at least 5% of the GPU time and at least 4096 blocks, at least 5% of its accesses to global \
        and shared memory are atomic sums in global memory at addresses that neither the block's number nor data choose. Loops \
        count 8 times.",
    source: "ptx::facts; CUDA C++ Programming Guide, atomic functions. The thresholds are APEX's own.",
    why: "The L2 cache adds one value after another at one address, so all blocks wait for each other.",
    change: "Let each block handle many rows, add up in registers or shared memory, and write its sum once: to a row of its own of a \
        table that a second kernel sums (partial[blockIdx.x]), or by one atomic at the end.",
    saving: "Most of the kernel's time where each block adds little else; little if the values take long to compute.",
    judge: |profile: &Profile| judge(profile, &SHARED_SUMS),
    ..super::RULE
};

const SHARED_SUMS: Pattern = Pattern {
    kind: FactKind::SharedSums,
    is_counted: false,
    owners: own,
    is_fault: |kernel, fact| fact.share >= SWAP_SHARE && kernel.blocks() >= ADDING_BLOCKS,
    evidence: share,
    change: |language, _| {
        match language {
            Language::Triton => {
                "all programs add to the same numbers by tl.atomic_add, one after another: let each program handle many rows in a \
                 loop and add up in registers, store its sum in a row of its own (partial), and sum these in a second kernel \
                 (partial.sum(0))"
            }
            _ => {
                "all blocks add to the same numbers by atomics, one after another: let each block handle many rows, add up in \
                 registers or shared memory, and write one sum for each block to a row of its own, which a second kernel sums"
            }
        }
        .to_owned()
    },
    saves: |_, _| Figure::predicted(0.6, (0.0, 0.99)),
    headline: "all blocks add to the same numbers, by atomics",
};

pub(in crate::rules) const SWAP: Rule = Rule {
    id: "APEX-P115",
    slug: "sum-by-swap",
    title: "A sum by compare-and-swap",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 5% of its accesses to global and shared memory are \
        compare-and-swap operations in a loop that adds floating-point numbers at an address that does not change.",
    source: "ptx::facts; CUDA C++ Programming Guide, atomicAdd: double needs compute capability 6.0, __half2 6.0, __half 7.0, \
             __nv_bfloat16 8.0. The threshold is APEX's own.",
    why: "Of the threads that want to add at one address, one succeeds in each round; the others read again and try again.",
    change: "Call atomicAdd on the number itself (double since compute capability 6.0), and compile for the GPU's own architecture \
        (-arch=native). Where many threads add at one address, add up within the block first.",
    saving: "From nothing (threads rarely meet) to 95%.",
    judge: |profile: &Profile| judge(profile, &SWAPS),
    ..super::RULE
};

const SWAPS: Pattern = Pattern {
    kind: FactKind::SumBySwap,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= SWAP_SHARE,
    evidence: share,
    change: |_, _| {
        "a loop of atomicCAS adds floating-point numbers: call atomicAdd, which takes double since compute capability 6.0"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.4, (0.0, 0.95)),
    headline: "sums by compare-and-swap",
};

pub(in crate::rules) const LOCK: Rule = Rule {
    id: "APEX-P116",
    slug: "device-lock",
    title: "Threads wait for a lock",
    severity: Severity::High,
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 5% of its accesses to global and shared memory are \
        compare-and-swap operations of one number for another, in each round of a loop, at an address that the loop does not \
        change: a lock, which each thread takes, or one for its block in a loop without other accesses to global memory.",
    source: "ptx::facts. The threshold is APEX's own.",
    why: "One thread at a time has the lock; all others execute the loop meanwhile, and the lanes of its warp wait for it.",
    change: "Replace the lock by atomic operations on the data (atomicAdd, atomicMax, atomicCAS on a packed 64-bit value), or give \
        each block data of its own and combine them afterwards.",
    saving: "Most of the kernel's time where many threads want the same lock; little where they rarely meet.",
    judge: |profile: &Profile| judge(profile, &LOCKS),
    ..super::RULE
};

const LOCKS: Pattern = Pattern {
    kind: FactKind::Lock,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= SWAP_SHARE,
    evidence: share,
    change: |language, _| {
        let (swap, add) = match language {
            Language::Triton => ("tl.atomic_cas", "tl.atomic_add"),
            _ => ("atomicCAS", "atomic operations"),
        };
        format!(
            "threads wait in a loop of {swap} for a lock: use {add} on the data, or data for each block that are combined \
             afterwards, or more locks"
        )
    },
    saves: |_, _| Figure::predicted(0.5, (0.0, 0.99)),
    headline: "threads wait for a lock",
};

pub(in crate::rules) const FENCE: Rule = Rule {
    id: "APEX-P117",
    slug: "fence-in-loop",
    title: "A fence in each round of a loop",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, a loop without atomic, volatile or ordered accesses has a \
        fence for the device or the system in each round, and there is at least one for ten accesses to global and shared \
        memory.",
    source: "ptx::facts; CUDA C++ Programming Guide, memory fence functions. The threshold is APEX's own.",
    why: "A fence waits until all earlier stores of the thread are visible to the whole device: each round then waits for memory.",
    change: "Move __threadfence() behind the loop, where other blocks may read what was stored; use __syncthreads() where only \
        threads of the block do, which orders their accesses too.",
    saving: "From nothing (few threads store) to 95%.",
    judge: |profile: &Profile| judge(profile, &FENCES),
    ..super::RULE
};

const FENCES: Pattern = Pattern {
    kind: FactKind::FenceInLoop,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= FENCE_SHARE,
    evidence: |fact| vec![computed("fences for each access", fact.share, Unit::Count).decrease_towards(0.0)],
    change: |_, _| {
        "each round of the loop waits at __threadfence(): call it once behind the loop, or use __syncthreads() where only the \
         block reads the values"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.4, (0.0, 0.95)),
    headline: "a fence in each round of a loop",
};
