//! Products on tensor cores that load nothing ahead.

use super::super::Rule;
use super::work::share;
use super::{Language, Pattern, judge, own};
use apex_counts::FactKind;
use apex_profile::{Figure, Profile};

/// Minimum share of the loop among the instructions.
const SHARE: f64 = 0.5;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P137",
    slug: "unstaged-product",
    title: "A product that loads nothing ahead",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 50% of its instructions stand in a loop that both \
        loads from global memory and multiplies on tensor cores, and the kernel has no asynchronous copies (cp.async, TMA). Loops \
        count 8 times.",
    source: "CUDA C++ Programming Guide, asynchronous data copies; Triton's num_stages. The threshold is APEX's own.",
    why: "The tensor cores wait in each round until the tiles of this round have come from memory.",
    change: "Load the tiles of later rounds while this one is multiplied: num_stages=3 or 4 in Triton (autotune over it), cp.async or \
        cuda::pipeline with two to four buffers in CUDA C++; or call cuBLAS or CUTLASS.",
    saving: "From nothing (other warps hide the loads) to 60%; in testing/corpus/users, triton_projected_tokens becomes 35% faster on \
        an H200.",
    judge: |profile: &Profile| judge(profile, &UNSTAGED),
    ..super::RULE
};

const UNSTAGED: Pattern = Pattern {
    kind: FactKind::UnstagedProduct,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE,
    evidence: |fact| vec![share("of the loop among the instructions", fact)],
    change: |language, _| {
        match language {
            Language::Triton => {
                "the loop of tl.dot loads its tiles in the same round: launch it with num_stages=3 or 4 (triton.autotune over \
                 num_stages and num_warps), which loads later tiles meanwhile"
            }
            _ => {
                "the loop loads its tiles in the round that multiplies them: copy later tiles meanwhile (cp.async, cuda::pipeline \
                 with two to four buffers), or call cuBLAS or CUTLASS"
            }
        }
        .to_owned()
    },
    saves: |_, _| Figure::predicted(0.25, (0.0, 0.6)),
    headline: "a product on tensor cores that loads nothing ahead",
};
