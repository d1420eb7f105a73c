//! Sine and cosine of large arguments.

use super::super::Rule;
use super::work::share;
use super::{Pattern, judge, own};
use apex_counts::FactKind;
use apex_profile::{Figure, Profile};

/// Minimum share of the path's accesses among the instructions.
const SHARE: f64 = 0.02;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P124",
    slug: "argument-reduction",
    title: "Sine or cosine with a slow path for large arguments",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, sinf, cosf or their kin have their path for arguments beyond \
        105,615 (in FP64 beyond 2^31), and at least 2% of the instructions are its accesses to local memory. Loops count 8 times. \
        Whether arguments are that large is not known.",
    source: "CUDA C++ Best Practices Guide, trigonometric functions: the argument reduction of large arguments uses local memory. \
        The threshold is APEX's own.",
    why: "Large arguments are reduced with 160 bits of 2/π in local memory, which takes many times as long; one lane with such an \
        argument holds its warp up. Even unused, the path costs registers and a branch.",
    change: "Reduce arguments before: fmodf by the period where the phase is made, or sinpif(x) and cospif(x) of multiples of π, \
        whose reduction is short; with small arguments, __sinf and __cosf or -use_fast_math, if their error is acceptable.",
    saving: "From nothing (all arguments are small) to 90%; in testing/corpus, oscillators becomes 81% faster on an H200.",
    judge: |profile: &Profile| judge(profile, &REDUCTION),
    ..super::RULE
};

const REDUCTION: Pattern = Pattern {
    kind: FactKind::ArgumentReduction,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE,
    evidence: |fact| vec![share("of accesses for large arguments among the instructions", fact)],
    change: |_, _| {
        "sine and cosine (sinf, cosf) take a slow path for arguments beyond 105,615: reduce the arguments before (fmodf by the \
         period), or use sinpif and cospif"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.2, (0.0, 0.9)),
    headline: "has the slow path of sine and cosine",
};
