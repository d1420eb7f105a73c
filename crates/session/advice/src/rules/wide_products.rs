//! Matrix products and convolutions in types that are wider than they need to be: FP32 without tensor
//! cores, and FP64.

use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::{DataType, Operation, OwnerKind};
use apex_profile::{Figure, Kernel, Profile};

/// Minimum duration of a product that is limited by compute instead of launch or memory.
const LONG_NS: f64 = 100e3;
/// First compute capability with TF32.
const TF32: (u32, u32) = (8, 0);

pub(super) const RULE: Rule = Rule {
    id: "APEX-T60",
    slug: "fp32-products",
    title: "FP32 matrix products without tensor cores",
    severity: Severity::High,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Matrix products and convolutions of a library whose names show 32-bit operands and no tensor \
        cores (ffma, simt, sgemm), and attention in FP32, with 2% of the GPU time together, on compute \
        capability 8.0 and newer.",
    source: "cuBLAS and cuDNN documentation on math modes; PyTorch, torch.set_float32_matmul_precision. An H200 has 67 TFLOP/s in \
             FP32 and 495 in TF32.",
    why: "Tensor cores multiply operands rounded to TF32 or BF16 several times faster; they accumulate in 32 \
        bits.",
    change: "If 10 bits of mantissa suffice, use TF32 for FP32 products: \
        torch.set_float32_matmul_precision(\"high\") and torch.backends.cudnn.allow_tf32 = True; \
        jax.config.update(\"jax_default_matmul_precision\", \"tensorfloat32\"); \
        cublasSetMathMode(CUBLAS_TF32_TENSOR_OP_MATH). Or train under torch.autocast(dtype=torch.bfloat16).",
    saving: "Four fifths of their time; between half of it (nothing below 100 µs: limited by memory or launches) and 14/15 (peak rates of \
             BF16 and FP32; of TF32 and FP32: 6/7).",
    verify: "the products' names contain tf32 or bf16, and their GPU time decreases",
    judge: judge_fp32,
};

pub(super) const FP64: Rule = Rule {
    id: "APEX-T77",
    slug: "fp64-products",
    title: "FP64 matrix products",
    severity: Severity::High,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Matrix products and convolutions of a library whose names show 64-bit operands, with 2% of the \
        GPU time together, on compute capability 8.0 and newer.",
    source: "NVIDIA H200 data sheet: 67 TFLOP/s in FP64 with tensor cores, 495 in TF32. Other GPUs have a 64th of their FP32 rate in FP64.",
    why: "NumPy arrays are float64 by default, and so are the tensors made from them.",
    change: "If single precision suffices, convert the input: array.astype(numpy.float32), tensor.float(), \
        model.float(); and use TF32 for FP32 products (torch.set_float32_matmul_precision(\"high\")).",
    saving: "Four fifths of their time; between half of it (nothing below 100 µs: limited by memory or launches) and 14/15 (peak rates of \
             BF16 and FP64).",
    verify: "the products' names contain f32 or tf32, and their GPU time decreases",
    judge: judge_fp64,
};

fn judge_fp32(profile: &Profile) -> Outcome {
    let reason = "the speed-up depends on the sizes; results change in the last bits of FP32";
    // The names of attention do not tell; in FP32 PyTorch computes it like its products.
    let attends = |kernel: &Kernel| {
        let traits = &kernel.traits;
        traits.operation == Operation::Attention
            && traits.owner.kind() != OwnerKind::Own
            && traits.types.input == Some(DataType::F32)
            && traits.tensor_cores != Some(true)
    };
    let multiplies =
        |kernel: &Kernel| is_of(kernel, DataType::F32) && kernel.traits.tensor_cores == Some(false);
    judge(
        profile,
        &RULE,
        reason,
        |kernel| multiplies(kernel) || attends(kernel),
        "FP32 products without tensor cores",
    )
}

fn judge_fp64(profile: &Profile) -> Outcome {
    let reason = "it is unknown whether the program needs double precision";
    judge(profile, &FP64, reason, |kernel| is_of(kernel, DataType::F64), "FP64 products")
}

fn judge(
    profile: &Profile,
    rule: &Rule,
    reason: &str,
    is_wide: impl Fn(&Kernel) -> bool,
    what: &str,
) -> Outcome {
    let saves = |kernel: &Kernel| {
        let device = kernel.device.and_then(|device| profile.devices.get(device));
        let capable = device.and_then(|device| device.compute_capability).is_some_and(|has| has >= TF32);
        let long = kernel.gpu.is_some_and(|gpu| gpu.each.mean_ns >= LONG_NS);
        let least = if long { 0.5 } else { 0.0 };
        (capable && is_wide(kernel)).then(|| Figure::predicted(0.8, (least, 14.0 / 15.0)))
    };
    by_name::judge(profile, rule.change, reason, saves, |who| format!("{who}: {what}"))
}

/// Whether a library multiplies operands of this type.
fn is_of(kernel: &Kernel, input: DataType) -> bool {
    let traits = &kernel.traits;
    matches!(traits.operation, Operation::MatrixProduct | Operation::Convolution)
        && traits.types.input == Some(input)
        && traits.owner.kind() != OwnerKind::Own
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, assert_unjudged, named, profile_of, timed};
    use super::{FP64, RULE};

    #[test]
    fn doubles_are_another_finding() {
        let finding = assert_finds(&FP64, timed(named("ampere_dgemm_128x64_tn"), 1e6));
        assert!(finding.change.contains("single precision"), "{}", finding.change);
        assert_clear(&FP64, timed(named("ampere_sgemm_128x64_tn"), 1e6));
    }

    #[test]
    fn fires_on_products_without_tensor_cores() {
        let finding = assert_finds(&RULE, timed(named("ampere_sgemm_128x64_tn"), 1e6));
        let saving = finding.saving.of_kernel.expect("timed");
        assert!((saving.value - 0.8).abs() < 1e-9 && (saving.bounds().0 - 0.5).abs() < 0.01);
        assert!(finding.summary.ends_with("100% of GPU time"), "{}", finding.summary);
    }

    #[test]
    fn a_short_product_may_gain_nothing() {
        let short = assert_finds(&RULE, timed(named("ampere_sgemm_128x64_tn"), 99e3));
        assert_eq!(short.saving.of_kernel.expect("timed").bounds().0, 0.0);
    }

    #[test]
    fn tensor_cores_and_own_kernels_are_fine() {
        for name in ["nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "sgemm_by_hand", "ampere_dgemm_128x64_tn"] {
            assert_clear(&RULE, timed(named(name), 1e6));
        }
        assert_unjudged(&RULE, profile_of([named("ampere_sgemm_128x64_tn")]));
    }
}
