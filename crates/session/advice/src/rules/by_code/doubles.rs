//! Arithmetic in double precision throughout.

use super::super::Rule;
use super::accesses::computed;
use super::work::{CONVERSIONS, EACH};
use super::{Language, Pattern, judge};
use crate::finding::Unit;
use apex_counts::FactKind;
use apex_profile::names::OwnerKind;
use apex_profile::{Figure, Kernel, Profile};

/// Minimum share of FP64 in floating-point arithmetic.
const SHARE: f64 = 0.8;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P121",
    slug: "double-precision",
    title: "Arithmetic in FP64",
    detects: "By the code of a kernel with at least 5% of the GPU time, at least 80% of its floating-point instructions are FP64; in \
        kernels of the user's own, with less than one conversion for ten of them, and at least 4 of them for each load from \
        global memory. Kernels of XLA and CuPy are judged too. Loops count 8 times.",
    source: "ptx::facts. An H200 has half as many FP64 as FP32 operations a second, most other GPUs a 64th, and numbers of twice \
             the size take twice the bandwidth. The thresholds are APEX's own.",
    why: "FP64 takes at least twice the time of FP32. NumPy's arrays and Python's numbers are FP64 by default, and JAX's are with \
        jax_enable_x64.",
    change: "If single precision suffices, use it: arrays of dtype float32 (in JAX without jax_enable_x64), float and constants like \
        0.5f in CUDA C++.",
    saving: "Half; from nothing (FP64 is needed) to 97% on GPUs with few FP64 units. In testing/corpus, jax_doubles becomes 70% \
             faster on an H200.",
    judge: |profile: &Profile| judge(profile, &THROUGHOUT),
    ..super::RULE
};

const THROUGHOUT: Pattern = Pattern {
    kind: FactKind::Doubles,
    is_counted: true,
    owners: |kind| matches!(kind, OwnerKind::Own | OwnerKind::Compiler | OwnerKind::Framework),
    is_fault: |kernel, fact| {
        let is_meant = fact.cost < CONVERSIONS && fact.least >= EACH;
        fact.share >= SHARE && (is_given(kernel) || is_meant)
    },
    evidence: |fact| {
        let share = computed("share of FP64 among floating-point instructions", fact.share, Unit::Share);
        vec![share.decrease_towards(0.0)]
    },
    change: |language, _| {
        match language {
            Language::Jax => {
                "the arrays are float64: leave jax_enable_x64 off, or give the arrays dtype=jnp.float32, if single precision \
                 suffices"
            }
            Language::CuPy => {
                "the arrays are float64: create them with dtype=cupy.float32 (or astype), if single precision suffices"
            }
            Language::Triton => "its numbers are float64: pass tensors of torch.float32, if single precision suffices",
            Language::Cuda => {
                "its arithmetic is FP64 (double): if single precision suffices, use float; write constants as floats (0.5f) \
                 and call functions of single precision"
            }
        }
        .to_owned()
    },
    // Who writes double in C++ often means it.
    saves: |kernel, _| Figure::predicted(if is_given(kernel) { 0.5 } else { 0.2 }, (0.0, 0.97)),
    headline: "all arithmetic is FP64",
};

/// Whether the types of arrays decide the kernel's types: it was not written for these.
fn is_given(kernel: &Kernel) -> bool {
    kernel.traits.owner.kind() != OwnerKind::Own
}
