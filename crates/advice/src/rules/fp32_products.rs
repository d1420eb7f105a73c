//! Matrix products and convolutions of 32-bit floats without tensor cores.

use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::{DataType, Operation, OwnerKind};
use apex_profile::{Figure, Kernel, Profile};

/// First compute capability with TF32.
const TF32: (u32, u32) = (8, 0);

pub(super) const RULE: Rule = Rule {
    id: "APEX-T60",
    slug: "fp32-products",
    title: "Matrix products run in FP32 without tensor cores",
    severity: Severity::High,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Matrix products and convolutions of a library whose names say operands of 32 bits and no tensor cores (ffma, simt, \
              sgemm), with 2% of the GPU time together, on compute capability 8.0 and newer.",
    source: "cuBLAS and cuDNN documentation on math modes; PyTorch, torch.set_float32_matmul_precision. An H200 has 67 TFLOP/s in \
             FP32 and 495 in TF32.",
    why: "Tensor cores multiply operands rounded to TF32 or BF16 several times faster; sums stay in 32 bits.",
    change: "If 10 bits of mantissa suffice, let FP32 products use TF32: torch.set_float32_matmul_precision(\"high\") and \
             torch.backends.cudnn.allow_tf32 = True; jax.config.update(\"jax_default_matmul_precision\", \"tensorfloat32\"); \
             cublasSetMathMode(CUBLAS_TF32_TENSOR_OP_MATH). Or train under torch.autocast(dtype=torch.bfloat16).",
    saving: "Four fifths of their time; between nothing (limited by memory or launches) and 14/15 (peak rates of BF16 and FP32; of TF32 \
             and FP32: 6/7).",
    verify: "products are named tf32 or bf16, and their GPU time falls",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let reason = "how much faster they are depends on their sizes; results change in the last bits of FP32";
    let saves =
        |kernel: &Kernel| (has_fault(profile, kernel)).then(|| Figure::predicted(0.8, (0.0, 14.0 / 15.0)));
    by_name::judge(profile, RULE.change, reason, saves, |who| {
        format!("{who}: FP32 products without tensor cores")
    })
}

fn has_fault(profile: &Profile, kernel: &Kernel) -> bool {
    let traits = &kernel.traits;
    let device = kernel.device.and_then(|device| profile.devices.get(device));
    matches!(traits.operation, Operation::MatrixProduct | Operation::Convolution)
        && traits.types.input == Some(DataType::F32)
        && traits.tensor_cores == Some(false)
        && traits.owner.kind() != OwnerKind::Own
        && device.and_then(|device| device.compute_capability).is_some_and(|capability| capability >= TF32)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, assert_unjudged, named, profile_of, timed};
    use super::RULE;

    #[test]
    fn fires_on_products_without_tensor_cores() {
        let finding = assert_finds(&RULE, timed(named("ampere_sgemm_128x64_tn"), 1e6));
        let saving = finding.saving.of_kernel.expect("timed");
        assert!((saving.value - 0.8).abs() < 1e-9 && saving.bounds().0 == 0.0);
        assert!(finding.summary.ends_with("100% of GPU time"), "{}", finding.summary);
    }

    #[test]
    fn tensor_cores_and_own_kernels_are_fine() {
        for name in ["nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "sgemm_by_hand", "ampere_dgemm_128x64_tn"] {
            assert_clear(&RULE, timed(named(name), 1e6));
        }
        assert_unjudged(&RULE, profile_of([named("ampere_sgemm_128x64_tn")]));
    }
}
