//! Conversions between data types.

use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::{Operation, OwnerKind};
use apex_profile::{Figure, Kernel, Profile};

/// Minimum launches of a conversion.
const LAUNCHES: u64 = 50;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T63",
    slug: "casts",
    title: "Repeated data type conversions",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "At least 50 launches of a framework's conversion kernels, with at least 2% of the GPU time \
        together.",
    source: "APEX. PyTorch, torch.amp: autocast keeps converted weights while it is active.",
    why: "A conversion reads and writes the whole tensor without computing anything.",
    change: "Convert once: use one torch.autocast region around the whole forward pass; store weights and \
        inputs in the compute type (model.to(torch.bfloat16)); do not call .float() or .half() inside the \
        loop.",
    saving: "Most of their time, between nothing and all of it: some conversions are necessary.",
    verify: "launches of cast kernels decrease",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let converts = |kernel: &Kernel| {
        let traits = &kernel.traits;
        traits.operation == Operation::Cast
            && traits.owner.kind() == OwnerKind::Framework
            && kernel.launches.ran() >= LAUNCHES
    };
    by_name::judge(
        profile,
        RULE.change,
        "it is unknown which conversions are necessary",
        |kernel| converts(kernel).then(|| Figure::predicted(0.7, (0.0, 1.0))),
        |who| format!("{who}: conversions between data types"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, called, named, timed};
    use super::RULE;

    const CAST: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::\
                        {lambda(float)#1}, std::array<char*, 2>>(int)";

    #[test]
    fn fires_on_repeated_conversions() {
        assert_finds(&RULE, timed(named(CAST), 2e3));
        assert_clear(&RULE, timed(called(named(CAST), 49, 4e3), 2e3));
        assert_clear(&RULE, timed(named("cast_by_hand"), 2e3));
    }
}
