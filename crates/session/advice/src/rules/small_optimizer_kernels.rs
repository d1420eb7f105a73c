//! Optimizers that update each parameter by kernels of its own, or each step of the update by
//! another.

use std::collections::BTreeMap;

use super::by_name::{is_any, launches_of};
use super::runs::{Run, runs, shares};
use super::{Needs, Outcome, Rule, by_name, idle_around_launches};
use crate::finding::{Saving, Scope, Severity};
use apex_profile::names::Owner;
use apex_profile::{Figure, Frame, Kernel, Profile};

/// Names of the operations of Adam's update, one parameter at a time. Models use none of these.
pub(super) const SINGLE: [&str; 3] = ["addcdiv", "addcmul", "lerp_scalar"];
/// The same for lists of parameters.
pub(super) const LISTS: [&str; 3] = ["foreach_lerp", "foreach_sqrt", "foreach_divides"];
/// Least number of launches of these.
pub(super) const LAUNCHES: u64 = 100;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T62",
    slug: "unfused-optimizer",
    title: "Unfused optimizer: many small kernels",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "At least 100 launches of addcdiv, addcmul or lerp kernels of PyTorch (foreach: lerp, sqrt, divides), which are steps of Adam's \
              update, with 2% of the GPU time together, and a function of an optimizer on the call stacks, where these were read. Elementwise kernels that follow them in a repeated sequence are steps too.",
    source: "PyTorch, torch.optim: implementations for-loop, foreach and fused.",
    why: "Each operation of the update reads and writes all its tensors, and without foreach each parameter \
        needs its own launches; the fused update reads and writes each tensor once, in one kernel for all \
        parameters.",
    change: "Use the fused update: torch.optim.AdamW(parameters, …, fused=True); at least foreach=True.",
    saving: "Two thirds of their time, between a third and 9/10; and where each parameter has launches of its own, the idle time around \
             these, at least half of it.",
    verify: "fused_adam replaces addcdiv and addcmul",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let launches = launches_of(profile, &SINGLE) + launches_of(profile, &LISTS);
    if launches < LAUNCHES && profile.totals.gpu_time_ns.is_some() || is_of_another(profile) {
        return Outcome::Clear;
    }
    let runs = runs(profile);
    let updates: Vec<&Run> = runs.iter().filter(|run| run.any(profile, is_single)).collect();
    let mut steps: BTreeMap<usize, f64> = shares(profile, updates.into_iter());
    let named = profile.kernels.iter().enumerate().filter(|(_, kernel)| is_step(kernel));
    steps.extend(named.map(|(row, _)| (row, 1.0)));
    let outcome = by_name::judge_rows(
        profile,
        RULE.change,
        "the kernels' names match Adam's update; other uses of the same operators look the same",
        |row| Some(Figure::predicted(2.0 / 3.0, (1.0 / 3.0, 0.9)).scaled(*steps.get(&row)?)),
        |who| format!("{who}: parts of an optimizer's update"),
    );
    let Outcome::Found(mut draft) = outcome else { return outcome };
    let calls: f64 =
        steps.iter().map(|(&row, share)| profile.kernels[row].launches.calls as f64 * share).sum();
    let share = (calls / profile.totals.launches.max(1) as f64).min(1.0);
    let idle = idle_around_launches(profile, Figure::predicted(share, (share / 2.0, share)));
    draft.saving = Saving { beyond: idle, ..Saving::default() };
    Outcome::Found(draft)
}

/// Whether call stacks of these kernels were read, and none of them is an optimizer's.
fn is_of_another(profile: &Profile) -> bool {
    let kernels = profile.kernels.iter().filter(|kernel| is_step(kernel));
    let stacks = kernels.flat_map(|kernel| &kernel.stacks);
    let mut frames = stacks
        .filter_map(|count| profile.call_stacks.get(count.stack))
        .map(|stack| &stack.frames)
        .filter(|frames| !frames.is_empty())
        .peekable();
    frames.peek().is_some() && !frames.flatten().any(is_of_optimizer)
}

/// Whether a function is an optimizer's, by its file or its name.
fn is_of_optimizer(frame: &Frame) -> bool {
    let is_named = |text: &str| {
        let text = text.to_lowercase();
        ["optim", "adam", "lamb", "adagrad", "rmsprop"].iter().any(|word| text.contains(word))
    };
    is_named(&frame.file) || is_named(&frame.function)
}

/// Whether a kernel is a step of Adam's update by its name.
pub(super) fn is_step(kernel: &Kernel) -> bool {
    is_single(kernel) || kernel.traits.owner == Owner::PyTorch && is_any(kernel, &LISTS)
}

/// Whether it is a step for one parameter.
fn is_single(kernel: &Kernel) -> bool {
    kernel.traits.owner == Owner::PyTorch && is_any(kernel, &SINGLE)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear, assert_clear_in, assert_finds, assert_finds_in, called, launched_at, named, profile_of,
        timed,
    };
    use super::RULE;

    const STEP: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(at::TensorIteratorBase&)::\
                        {lambda(float, float, float)#1}, std::array<char*, 4>>(int)";

    #[test]
    fn fires_on_steps_of_the_update() {
        assert_finds(&RULE, timed(named(STEP), 2e3));
        assert_clear(&RULE, timed(called(named(STEP), 99, 4e3), 2e3));
    }

    #[test]
    fn the_same_kernels_of_a_model_are_no_optimizer() {
        let from = |file, function| {
            let mut profile = profile_of([timed(named(STEP), 2e3)]);
            launched_at(&mut profile, file, 7, function);
            profile
        };
        assert_clear_in(&RULE, from("/home/me/climate.py", "Climate.forward"));
        assert_finds_in(&RULE, from("/v/site-packages/torch/optim/adam.py", "_multi_tensor_adam"));
        assert_finds_in(&RULE, from("/home/me/own.py", "MyAdamW.step"));
    }
}
