//! Optimizers that update each parameter by kernels of its own, or each step of the update by
//! another.

use super::by_name::{is_any, launches_of};
use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::Owner;
use apex_profile::{Figure, Kernel, Profile};

/// What Adam's update consists of, one parameter at a time. Models use none of these.
const SINGLE: [&str; 3] = ["addcdiv", "addcmul", "lerp_scalar"];
/// The same for lists of parameters.
const LISTS: [&str; 3] = ["foreach_lerp", "foreach_sqrt", "foreach_divides"];
/// Least number of launches of these.
const LAUNCHES: u64 = 100;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T62",
    slug: "unfused-optimizer",
    title: "The optimizer consists of many small kernels",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "At least 100 launches of addcdiv, addcmul or lerp kernels of PyTorch (foreach: lerp, sqrt, divides), which are steps of Adam's update, with 2 % of \
              the GPU time together.",
    source: "PyTorch, torch.optim: implementations for-loop, foreach and fused.",
    why: "Each step of the update reads and writes all its tensors, and without foreach each parameter has its own launches; the \
          fused update reads and writes each tensor once, for all parameters at once.",
    change: "Use the fused update: torch.optim.AdamW(parameters, …, fused=True); at least foreach=True.",
    saving: "Two thirds of their time, between a third and 9/10. Other steps of the update and launch calls are not counted.",
    verify: "fused_adam takes the place of addcdiv and addcmul",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let launches = launches_of(profile, &SINGLE) + launches_of(profile, &LISTS);
    if launches < LAUNCHES && profile.totals.gpu_time_ns.is_some() {
        return Outcome::Clear;
    }
    let is_step = |kernel: &Kernel| {
        kernel.traits.owner == Owner::PyTorch && (is_any(kernel, &SINGLE) || is_any(kernel, &LISTS))
    };
    by_name::judge(
        profile,
        RULE.change,
        "the names are those of steps of Adam's update; another use of the same operators looks alike",
        |kernel| is_step(kernel).then(|| Figure::predicted(2.0 / 3.0, (1.0 / 3.0, 0.9))),
        |who| format!("{who} is a step of an optimizer's update"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, called, named, timed};
    use super::RULE;

    const STEP: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(at::TensorIteratorBase&)::\
                        {lambda(float, float, float)#1}, std::array<char*, 4>>(int)";

    #[test]
    fn fires_on_steps_of_the_update() {
        assert_finds(&RULE, timed(named(STEP), 2e3));
        assert_clear(&RULE, timed(called(named(STEP), 99, 4e3), 2e3));
    }
}
