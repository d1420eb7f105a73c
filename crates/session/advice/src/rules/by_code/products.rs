//! Matrix products out of global memory.

use super::super::Rule;
use super::accesses::computed;
use super::{Pattern, judge, own};
use crate::finding::Unit;
use apex_counts::FactKind;
use apex_profile::{Figure, Profile};

/// Minimum share of products and their loads in the instructions.
const SHARE: f64 = 0.2;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P120",
    slug: "untiled-product",
    title: "Matrix product without tiles",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 20% of its instructions are products of two numbers \
        that a loop loads from global memory, and their loads: the row of block and thread says which number is the first, \
        their column which is the second. Loops count 8 times; a kernel that loads from shared memory has tiles.",
    source: "ptx::facts; CUDA C++ Programming Guide, shared memory. The threshold is APEX's own; APEX-C86 counts the same on the \
             CPU device.",
    why: "Each product needs two loads. The threads of a row load the same numbers, and so do those of a column: caches serve most \
        of these loads, at their own rate.",
    change: "Call cuBLAS (cublasGemmEx). Otherwise load tiles of both matrices into shared memory, once for each block, and let each \
        thread compute several results from values in registers; use tensor cores (wmma, CUTLASS).",
    saving: "From nothing (small matrices) to 98%: in testing/corpus, naive_product becomes 81% faster with tiles.",
    judge: |profile: &Profile| judge(profile, &UNTILED),
    ..super::RULE
};

const UNTILED: Pattern = Pattern {
    kind: FactKind::UntiledProduct,
    is_counted: true,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE,
    evidence: |fact| vec![computed("share of instructions for products", fact.share, Unit::Share)],
    change: |_, _| {
        "a product of matrices loads both numbers of each multiplication from global memory: call cuBLAS, or load tiles into \
         shared memory"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.7, (0.0, 0.98)),
    headline: "a matrix product without tiles",
};
