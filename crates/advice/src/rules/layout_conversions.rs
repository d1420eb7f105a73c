//! Conversions between layouts around convolutions.

use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::{Operation, Owner};
use apex_profile::{Figure, Kernel, Profile};

pub(super) const RULE: Rule = Rule {
    id: "APEX-T61",
    slug: "layout-conversions",
    title: "Tensors are converted between layouts around convolutions",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "Kernels of cuDNN that convert between NCHW and NHWC, with 2% of the GPU time together.",
    source: "cuDNN: kernels for tensor cores take NHWC; PyTorch, channels last memory format.",
    why: "cuDNN's kernels for tensor cores work on NHWC; tensors in NCHW are converted before and after each convolution.",
    change: "Keep the model and its input in NHWC: model.to(memory_format=torch.channels_last), \
             input.to(memory_format=torch.channels_last).",
    saving: "Their time; at least half of it, because kernels between the convolutions may be slower or faster in NHWC.",
    verify: "nchw_to_nhwc and nhwc_to_nchw are gone",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let converts = |kernel: &Kernel| {
        let traits = &kernel.traits;
        traits.operation == Operation::LayoutConversion && traits.owner == Owner::CuDnn
    };
    by_name::judge(
        profile,
        RULE.change,
        "operators between the convolutions must know NHWC too, or they convert again",
        |kernel| converts(kernel).then(|| Figure::predicted(0.9, (0.5, 1.0))),
        |who| format!("{who}: conversions of layouts for cuDNN"),
    )
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
    fn a_transposition_of_the_user_is_his_own() {
        assert_clear(&RULE, timed(named("_Z9transposePKfPf"), 1e6));
    }
}
