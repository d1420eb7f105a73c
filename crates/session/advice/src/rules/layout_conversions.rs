//! Conversions between layouts around convolutions.

use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::{Operation, Owner};
use apex_profile::{Figure, Kernel, Profile};

/// PyTorch's kernels for batch normalisation of tensors in NCHW.
const BATCH_NORM: [&str; 3] =
    ["batch_norm_backward", "batch_norm_collect_statistics", "batch_norm_transform_input"];

pub(super) const RULE: Rule = Rule {
    id: "APEX-T61",
    slug: "layout-conversions",
    title: "Layout conversions around convolutions",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Kernels of cuDNN that convert between NCHW and NHWC, with 2% of the GPU time together.",
    source: "cuDNN: kernels for tensor cores take NHWC; PyTorch, channels last memory format.",
    why: "cuDNN's tensor-core kernels use NHWC; NCHW tensors are converted before and after each convolution.",
    change: "Keep the model and its input in NHWC: model.to(memory_format=torch.channels_last), \
             input.to(memory_format=torch.channels_last).",
    saving: "Their time, at least half of it; and of PyTorch's batch normalisation in NCHW half, between nothing and nine tenths: in NHWC it \
             reads neighbouring channels.",
    verify: "the kernels nchw_to_nhwc and nhwc_to_nchw disappear",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let converts = |kernel: &Kernel| {
        let traits = &kernel.traits;
        traits.operation == Operation::LayoutConversion && traits.owner == Owner::CuDnn
    };
    let all = profile.totals.gpu_time_ns.map_or(0.0, |time| time.value);
    let converting: f64 =
        profile.kernels.iter().filter(|kernel| converts(kernel)).filter_map(Kernel::gpu_total_ns).sum();
    if all > 0.0 && converting < by_name::SHARE * all {
        return Outcome::Clear;
    }
    by_name::judge(
        profile,
        RULE.change,
        "operators between the convolutions must support NHWC, or they convert again",
        |kernel| match kernel {
            kernel if converts(kernel) => Some(Figure::predicted(0.9, (0.5, 1.0))),
            kernel if normalises(kernel) => Some(Figure::predicted(0.5, (0.0, 0.9))),
            _ => None,
        },
        |who| format!("{who}: layout conversions for cuDNN, and NCHW kernels between them"),
    )
}

/// Whether it is PyTorch's batch normalisation of NCHW, which has a faster sister for NHWC.
fn normalises(kernel: &Kernel) -> bool {
    kernel.traits.owner == Owner::PyTorch && by_name::is_any(kernel, &BATCH_NORM)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_clear_in, assert_finds_in, named, profile_of, timed};
    use super::RULE;

    const CONVERSION: &str = "void cudnn::nchwToNhwcKernel<float, float, float, 0, 1, 0>(int)";

    #[test]
    fn fires_from_two_percent_of_the_time() {
        let with = |share: f64| {
            profile_of([timed(named(CONVERSION), share * 1e6), timed(named("other"), (1.0 - share) * 1e6)])
        };
        assert_finds_in(&RULE, with(0.03));
        assert_clear_in(&RULE, with(0.01));
    }

    #[test]
    fn normalisation_in_nchw_is_part_of_it() {
        let name =
            "void at::native::batch_norm_backward_kernel<c10::BFloat16, c10::BFloat16, float, int>(int)";
        let both = profile_of([timed(named(CONVERSION), 1e6), timed(named(name), 9e6)]);
        let saving = assert_finds_in(&RULE, both).saving.of_kernel.expect("timed");
        assert!((saving.value - 0.54).abs() < 1e-9, "{saving:?}");
        assert_clear(&RULE, timed(named(name), 1e6));
    }

    #[test]
    fn a_transposition_of_the_user_is_his_own() {
        assert_clear(&RULE, timed(named("_Z9transposePKfPf"), 1e6));
    }
}
