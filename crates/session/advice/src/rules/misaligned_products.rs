//! Matrix products whose sizes do not suit tensor cores.

use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::{DataType, Operation, OwnerKind};
use apex_profile::{Figure, Kernel, Profile};

/// Bytes that tensor cores' operands are loaded by.
const LOAD: u32 = 16;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T65",
    slug: "misaligned-products",
    title: "Matrix dimensions not aligned for tensor cores",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Matrix products and convolutions of TF32, 16-bit or 8-bit operands whose names say an \
        alignment below 16 bytes (align1, aligna2), or no tensor cores for operands of 16 bits; with 2% of \
        the GPU time together. Names without an alignment (nvjet, most of xmma) are not judged.",
    source: "NVIDIA, Matrix Multiplication Background: dimensions that are multiples of 16 bytes.",
    why: "Rows that do not begin at multiples of 16 bytes are loaded in smaller pieces, and the fastest \
        kernels do not support them.",
    change: "Make the dimensions of both operands multiples of 8 elements of 16 bits (4 of TF32, 16 of FP8): pad the vocabulary, heads, \
             channels or the batch, for example 50257 to 50304.",
    saving: "Three fifths of their time, between nothing and 0.85: aligned products run at up to 7 times the rate (an H200, with 2-byte \
             loads and without its own tensor core instructions).",
    verify: "the products' names say align8, or nvjet",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    by_name::judge(
        profile,
        RULE.change,
        "the name does not show which dimension is misaligned, and the speed-up depends on the sizes",
        |kernel| has_fault(kernel).then(|| Figure::predicted(0.6, (0.0, 0.85))),
        |who| format!("{who}: operands not aligned for tensor cores"),
    )
}

fn has_fault(kernel: &Kernel) -> bool {
    let traits = &kernel.traits;
    let bytes = match traits.types.input {
        Some(DataType::Tf32) => 4,
        Some(DataType::F16 | DataType::Bf16) => 2,
        Some(DataType::E4m3 | DataType::E5m2) => 1,
        _ => return false,
    };
    let misaligned = traits.alignment.is_some_and(|elements| elements * bytes < LOAD);
    matches!(traits.operation, Operation::MatrixProduct | Operation::Convolution)
        && traits.owner.kind() != OwnerKind::Own
        && (misaligned || bytes == 2 && traits.tensor_cores == Some(false) && traits.alignment.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, named, timed};
    use super::RULE;

    #[test]
    fn fires_on_alignments_below_16_bytes() {
        let product = |align: u32| {
            timed(
                named(&format!(
                    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_64x64_nt_align{align}>(int)"
                )),
                1e6,
            )
        };
        assert_finds(&RULE, product(1));
        assert_finds(&RULE, product(4));
        assert_clear(&RULE, product(8));
        assert_clear(&RULE, timed(named("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"), 1e6));
    }
}
