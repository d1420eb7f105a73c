//! Accesses to memory, as the code shows them.

use super::super::Rule;
use super::{Language, Pattern, judge, own};
use crate::finding::{Evidence, Unit};
use crate::rules::percent;
use apex_counts::FactKind;
use apex_profile::{CodeFact, Figure, Profile};

/// Minimum share of strided accesses, or of conflicting ones.
const SHARE: f64 = 0.25;
/// Minimum wavefronts for each that is needed.
const WAVEFRONTS: f64 = 4.0;
/// Minimum share of divergent constant loads among all instructions.
const CONSTANTS_SHARE: f64 = 0.02;

pub(in crate::rules) const STRIDED: Rule = Rule {
    id: "APEX-P101",
    slug: "strided-access",
    title: "Strided global accesses",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 25% of its loads from and stores to global \
        memory touch more than twice as many 32-byte sectors as they need, with what other accesses of the same thread \
        nearby use counted in. Loops count 8 times. Addresses that depend on data are not judged, and the operands of \
        tensor cores neither.",
    source: "ptx::facts: two evaluations of each address for a warp, with different parameters. Thresholds are APEX's own; \
             APEX-C31 counts the same on the CPU device.",
    why: "A request transfers whole sectors. If neighbouring threads read addresses far apart, most bytes of each sector \
        are unused.",
    change: "Access consecutive addresses from consecutive threads: swap loops or indices, or stage the data in shared \
        memory.",
    saving: "From nothing (the cache holds the sectors until all bytes are used) to the share of unused bytes.",
    judge: |profile: &Profile| judge(profile, &STRIDES),
    ..super::RULE
};

const STRIDES: Pattern = Pattern {
    kind: FactKind::StridedAccesses,
    is_counted: true,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE,
    evidence: |fact| {
        vec![
            computed("sectors per request", fact.cost, Unit::Count).decrease_towards(fact.least),
            computed("share of accesses", fact.share, Unit::Share).decrease_towards(0.0),
        ]
    },
    change: |language, fact| {
        let unless =
            if fact.by_parameter { ", unless the parameter that it multiplies is small," } else { "" };
        let remedy = match language {
            Language::Triton => {
                "let the last tl.arange of a block run along the dimension that is contiguous in memory"
            }
            _ => "access consecutive addresses from consecutive threads",
        };
        format!("a request takes {:.0} sectors{unless} instead of {:.0}: {remedy}", fact.cost, fact.least)
    },
    saves: |_, fact| Figure::predicted(0.5 * unused(fact), (0.0, unused(fact))),
    headline: "strided global accesses",
};

/// Minimum share of accesses of one byte.
const NARROW_SHARE: f64 = 0.5;

pub(in crate::rules) const NARROW: Rule = Rule {
    id: "APEX-P126",
    slug: "narrow-access",
    title: "Each thread accesses one byte at a time",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 50% of its loads from and stores to global \
        memory are of one byte for each thread, and those of a warp lie side by side. Loops count 8 times.",
    source: "CUDA C++ Programming Guide, device memory accesses: a thread accesses up to 16 bytes with one instruction. The \
             threshold is APEX's own.",
    why: "A warp's instruction moves 32 bytes, of 512 that it could: the units that issue memory instructions limit the kernel \
        long before the memory does.",
    change: "Let each thread access 16 bytes at once (uint4, or uchar4 for four): reinterpret the pointers, which must be aligned \
        to that, and handle the last bytes apart.",
    saving: "From nothing (something else limits the kernel) to 80%; in testing/corpus, bright_pixels becomes 68% faster on an \
             H200.",
    judge: |profile: &Profile| judge(profile, &BYTES),
    ..super::RULE
};

const BYTES: Pattern = Pattern {
    kind: FactKind::NarrowAccesses,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= NARROW_SHARE,
    evidence: |fact| {
        vec![computed("share of accesses of one byte", fact.share, Unit::Share).decrease_towards(0.0)]
    },
    change: |language, _| {
        match language {
            Language::Triton => {
                "a thread accesses one byte at a time: let each program handle a larger block, so that a thread has 16 bytes side \
                 by side"
            }
            _ => {
                "a thread accesses one byte at a time: access 16 bytes with one instruction, \
                 uint4 v = reinterpret_cast<const uint4 *>(in)[i], and handle its bytes in registers"
            }
        }
        .to_owned()
    },
    saves: |_, _| Figure::predicted(0.3, (0.0, 0.8)),
    headline: "accesses of one byte per thread",
};

pub(in crate::rules) const CONFLICTS: Rule = Rule {
    id: "APEX-P102",
    slug: "conflicting-banks",
    title: "Bank conflicts by the addresses in the code",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 25% of its loads from and stores to shared \
        memory conflict, with at least 4 wavefronts for each that they need. Loops count 8 times.",
    source: "ptx::facts. Thresholds are APEX's own; APEX-C32 counts the same on the CPU device.",
    why: "A bank serves one word per cycle. If n threads of a warp access n different words of one bank, the access takes \
        n wavefronts.",
    change: "Pad the rows of the tile by one element, or swizzle the columns.",
    saving: "From nothing (shared memory does not limit the kernel) to the share of excessive wavefronts.",
    judge: |profile: &Profile| judge(profile, &BANKS),
    ..super::RULE
};

const BANKS: Pattern = Pattern {
    kind: FactKind::BankConflicts,
    is_counted: true,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE && fact.cost >= WAVEFRONTS * fact.least,
    evidence: |fact| {
        vec![
            computed("wavefronts per request", fact.cost, Unit::Count).decrease_towards(fact.least),
            computed("share of accesses", fact.share, Unit::Share).decrease_towards(0.0),
        ]
    },
    change: |_, fact| {
        format!(
            "a request takes {:.0} wavefronts: pad the rows of the tile by one element, or swizzle its columns",
            fact.cost
        )
    },
    saves: |_, fact| Figure::predicted(0.4 * unused(fact), (0.0, unused(fact))),
    headline: "shared-memory bank conflicts",
};

pub(in crate::rules) const ROWS: Rule = Rule {
    id: "APEX-P113",
    slug: "rows-by-thread",
    title: "Neighbouring threads read different rows",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 25% of its loads from and stores to global memory \
        are in loops along a row of each thread's own: neighbouring threads load the beginnings of their rows, pointers or \
        indices, from neighbouring places of a table. Loops count 8 times.",
    source: "ptx::facts: what the addresses depend on. The threshold is APEX's own.",
    why: "The lanes of a warp read addresses a row apart, so that each request takes 32 sectors, of which the loop uses one word at \
        a time.",
    change: "Give each row to a warp: neighbouring lanes read neighbouring elements (k = lane; k < width; k += 32) and add up by \
        shuffles (__shfl_down_sync).",
    saving: "From nothing (short rows) to the share of unused bytes: in testing/corpus, table_of_pointers becomes 77% faster.",
    judge: |profile: &Profile| judge(profile, &BY_ROWS),
    ..super::RULE
};

const BY_ROWS: Pattern = Pattern {
    kind: FactKind::RowsByThread,
    is_counted: true,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE,
    evidence: |fact| {
        vec![
            computed("sectors per request", fact.cost, Unit::Count).decrease_towards(fact.least),
            computed("share of accesses", fact.share, Unit::Share).decrease_towards(0.0),
        ]
    },
    change: |_, fact| {
        format!(
            "each thread walks along a row of its own, so that a request takes {:.0} sectors unless rows are short: give each \
             row to a warp, whose neighbouring lanes read neighbouring elements",
            fact.cost
        )
    },
    saves: |_, fact| Figure::predicted(0.6 * unused(fact), (0.0, unused(fact))),
    headline: "uncoalesced accesses, neighbouring threads read different rows",
};

pub(in crate::rules) const CONSTANTS: Rule = Rule {
    id: "APEX-P103",
    slug: "divergent-constants",
    title: "Threads of a warp read different constants",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 2% of its instructions load from constant \
        memory at an address that differs between the threads of a warp. Loops count 8 times.",
    source: "CUDA C++ Best Practices Guide, constant memory: accesses to different addresses by threads within a warp are \
             serialised. The threshold is APEX's own.",
    why: "The constant cache serves one address of a warp at a time: 32 different ones take 32 times as long.",
    change: "Copy the table to shared memory at the beginning of the kernel, or read it from global memory (__ldg).",
    saving: "Typically half of the kernel's time, up to 97%: in testing/corpus, constant_table becomes 94% faster.",
    judge: |profile: &Profile| judge(profile, &DIVERGENT),
    ..super::RULE
};

const DIVERGENT: Pattern = Pattern {
    kind: FactKind::DivergentConstants,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= CONSTANTS_SHARE,
    evidence: |fact| vec![computed("share of instructions", fact.share, Unit::Share).decrease_towards(0.0)],
    change: |_, fact| {
        format!(
            "{} of the instructions load from constant memory at addresses that differ between threads: copy the table \
             to shared memory, or read it from global memory",
            percent(fact.share)
        )
    },
    saves: |_, _| Figure::predicted(0.5, (0.05, 0.97)),
    headline: "divergent addresses in constant memory",
};

pub(super) fn computed(name: &str, value: f64, unit: Unit) -> Evidence {
    Evidence::new(format!("{name} (by its code)"), Figure::computed(value), unit)
}

/// The share of what is transferred that is not needed.
fn unused(fact: &CodeFact) -> f64 {
    (1.0 - fact.least / fact.cost.max(1.0)).clamp(0.0, 1.0)
}
