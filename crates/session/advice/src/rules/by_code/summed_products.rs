//! Matrix products whose terms are added up across threads.

use super::super::Rule;
use super::accesses::computed;
use super::{Language, Pattern, judge, own};
use crate::finding::Unit;
use apex_counts::FactKind;
use apex_profile::{Figure, Profile};

/// Minimum share of products and their sums in the instructions.
const SHARE: f64 = 0.3;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P134",
    slug: "summed-product",
    title: "Matrix product by elementwise products and sums",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 30% of its instructions multiply pairs of loaded \
        numbers in FP32, each number at least four times, and add the products up by shuffles between threads; none is for \
        tensor cores. Loops count 8 times.",
    source: "ptx::facts. The threshold is APEX's own.",
    why: "Each product takes an instruction of its own, and each sum several shuffles. Tensor cores multiply tiles of matrices in \
        one instruction, at many times the rate.",
    change: "Write the product as one: tl.dot of two tiles in Triton, wmma, CUTLASS or cuBLAS in CUDA C++. Tensor cores need types of \
        16 bits and less, or TF32.",
    saving: "From nothing (tiny products) to 99%: in testing/corpus, triton_scored_pairs becomes 98% faster.",
    judge: |profile: &Profile| judge(profile, &SUMMED),
    ..super::RULE
};

const SUMMED: Pattern = Pattern {
    kind: FactKind::ProductAcrossThreads,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE,
    evidence: |fact| {
        vec![computed("share of instructions for products and their sums", fact.share, Unit::Share)]
    },
    change: |language, _| {
        match language {
            Language::Triton => {
                "tl.sum of a product by broadcasting is a matrix product: use tl.dot(a, b, sums), which runs on tensor cores"
            }
            _ => {
                "products of all pairs of two tiles are added up by shuffles: use tensor cores (cuBLAS, wmma, CUTLASS), or sum \
                 within a thread"
            }
        }
        .to_owned()
    },
    saves: |_, _| Figure::predicted(0.8, (0.2, 0.99)),
    headline: "a matrix product by elementwise products and sums, without tensor cores",
};
