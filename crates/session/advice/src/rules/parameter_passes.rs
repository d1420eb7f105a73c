//! Training whose time goes into the parameters rather than the model.

use super::by_name::launches_of;
use super::small_optimizer_kernels::{LAUNCHES, LISTS, SINGLE};
use super::{Needs, Outcome, Rule, UNTIMED, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::{Operation, Owner};
use apex_profile::{Figure, Kernel, Profile};

/// Minimum share of the GPU time in such passes.
const SHARE: f64 = 0.5;
/// Minimum duration of a fill; shorter ones set small tensors.
const LONG_NS: f64 = 50e3;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T78",
    slug: "parameter-passes",
    title: "Parameter updates dominate the GPU time",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "PyTorch's kernels for lists of tensors (fused and foreach optimizers, clipping, averages) take at least half of the GPU time, \
              together with fills of 50 µs and more. Adam's update in single steps is APEX-T62's.",
    source: "APEX. Their time depends only on the size of the model, not on the batch.",
    why: "Each step reads and writes all parameters, even those that the step does not use.",
    change: "For a large embedding whose rows are mostly unused in a step, use nn.Embedding(…, sparse=True) \
        with torch.optim.SparseAdam or SGD, which update only the used rows. Otherwise do more work per \
        update: enlarge the batch, or accumulate gradients over several batches.",
    saving: "Half of their time, between nothing (the batch cannot grow) and all of it.",
    verify: "the share of the optimizer's kernels and fills decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let Some(all) = profile.totals.gpu_time_ns.map(|time| time.value).filter(|&time| time > 0.0) else {
        return Outcome::Unjudged(UNTIMED.to_owned());
    };
    let lists = |kernel: &&Kernel| kernel.traits.owner == Owner::PyTorch && kernel.traits.many_tensors;
    let fills = |kernel: &&Kernel| {
        kernel.traits.owner == Owner::PyTorch
            && kernel.traits.operation == Operation::Fill
            && kernel.gpu.is_some_and(|gpu| gpu.each.mean_ns >= LONG_NS)
    };
    let passes = |kernel: &&Kernel| lists(kernel) || fills(kernel);
    let time: f64 = profile.kernels.iter().filter(passes).filter_map(Kernel::gpu_total_ns).sum();
    let in_steps = launches_of(profile, &SINGLE) + launches_of(profile, &LISTS) >= LAUNCHES;
    if in_steps || time < SHARE * all || !profile.kernels.iter().any(|kernel| lists(&kernel)) {
        return Outcome::Clear;
    }
    by_name::judge(
        profile,
        RULE.change,
        "it is unknown whether the gradients are sparse or the batch can grow",
        |kernel| passes(&kernel).then(|| Figure::predicted(0.5, (0.0, 1.0))),
        |who| format!("{who}: passes over parameters and their gradients"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear, assert_clear_in, assert_finds, assert_finds_in, named, profile_of, timed,
    };
    use super::RULE;
    use apex_profile::Kernel;

    fn update() -> Kernel {
        timed(
            named(
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, \
                 at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>(int)",
            ),
            60e3,
        )
    }

    fn fill(each_ns: f64) -> Kernel {
        let name = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1>>(int)";
        timed(named(name), each_ns)
    }

    #[test]
    fn fires_where_updates_and_fills_take_half_of_the_time() {
        let model = |each_ns| timed(named("ampere_sgemm_128x64_tn"), each_ns);
        let saving = assert_finds(&RULE, update()).saving.of_kernel.expect("timed");
        assert!((saving.value - 0.5).abs() < 1e-9 && saving.bounds() == (0.0, 1.0), "{saving:?}");
        let finding = assert_finds_in(&RULE, profile_of([update(), fill(60e3), model(110e3)]));
        assert_eq!(finding.kernels.len(), 2);
        assert_clear_in(&RULE, profile_of([update(), fill(60e3), model(130e3)]));
        assert_clear(&RULE, fill(60e3));
    }
}
