//! Copies of tensors that are not contiguous.

use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::{Access, Operation, Owner};
use apex_profile::{Figure, Kernel, Profile};

/// Minimum launches of a copy.
const LAUNCHES: u64 = 20;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T64",
    slug: "strided-copies",
    title: "Copies of non-contiguous tensors",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "PyTorch's copy kernel for strided tensors, launched at least 20 times, with 2% of the GPU time together.",
    source: "PyTorch: elementwise_kernel of direct_copy_kernel_cuda is what copies where source or destination is not contiguous.",
    why: "A transposed or sliced tensor is copied before an operator that requires contiguous memory; the \
        copy's accesses are uncoalesced on one side.",
    change: "Avoid .contiguous(), .reshape() and torch.cat after .transpose() or .permute() in the loop: \
        store the tensor in the order in which it is used, use operators that support strides (matmul, \
        scaled_dot_product_attention), or compile the function, which fuses the copy.",
    saving: "Most of their time, between nothing and all of it.",
    verify: "launches of `copy … strided` decrease",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let copies = |kernel: &Kernel| {
        let traits = &kernel.traits;
        traits.operation == Operation::Copy
            && traits.access == Access::Strided
            && traits.owner == Owner::PyTorch
            && kernel.launches.ran() >= LAUNCHES
    };
    by_name::judge(
        profile,
        RULE.change,
        "it is unknown which copies can be avoided",
        |kernel| copies(kernel).then(|| Figure::predicted(0.7, (0.0, 1.0))),
        |who| format!("{who}: copies of non-contiguous tensors"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, named, timed};
    use super::RULE;

    const LAMBDA: &str = "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}";

    #[test]
    fn fires_on_strided_copies_alone() {
        let strided = format!(
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{LAMBDA}>(int)::{{lambda(int)#1}}>(int)"
        );
        let contiguous =
            format!("void at::native::vectorized_elementwise_kernel<4, {LAMBDA}, std::array<char*, 2>>(int)");
        assert_finds(&RULE, timed(named(&strided), 2e3));
        assert_clear(&RULE, timed(named(&contiguous), 2e3));
    }
}
