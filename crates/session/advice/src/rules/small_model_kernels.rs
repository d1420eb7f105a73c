//! Layers that are made of many elementwise kernels: attention, normalisations, activations, or any
//! other chain.

use apex_ordered::Gather;
use std::collections::BTreeMap;

use super::by_name::is_any;
use super::runs::{Run, runs, shares};
use super::small_optimizer_kernels::is_step;
use super::{Needs, Outcome, Rule, UNTIMED, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::{Operation, Owner};
use apex_profile::{Figure, Profile};

/// Minimum kernels of a run.
const KERNELS: usize = 4;
/// Minimum repetitions of a run.
const REPEATS: u64 = 20;

/// The layer that a run of kernels computes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Attention,
    Normalisation,
    Activation,
    Chain,
}

impl Layer {
    fn name(self) -> &'static str {
        match self {
            Self::Attention => "unfused attention: products, scaling, mask and softmax",
            Self::Normalisation => "an unfused normalisation",
            Self::Activation => "an unfused activation",
            Self::Chain => "a chain of elementwise operations",
        }
    }

    /// The fused form.
    fn instead(self, owner: Owner) -> &'static str {
        match self {
            _ if owner == Owner::CuPy => {
                "compute the expression in one kernel: decorate the function with cupy.fuse(), or write a cupy.ElementwiseKernel or \
                 ReductionKernel"
            }
            Self::Attention => {
                "use torch.nn.functional.scaled_dot_product_attention (is_causal=True or attn_mask=…): one kernel, which never writes \
                 the scores to memory"
            }
            Self::Normalisation => {
                "use torch.nn.functional.layer_norm, rms_norm, group_norm or batch_norm; or compile the \
                    function with torch.compile"
            }
            Self::Activation => {
                "use torch.nn.functional.gelu, silu, softplus and the like; or compile the function with \
                    torch.compile"
            }
            Self::Chain => "compile the function with torch.compile, which fuses them",
        }
    }
}

pub(super) const RULE: Rule = Rule {
    id: "APEX-T66",
    slug: "unfused-layers",
    title: "Unfused layer: many small kernels",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "In a sequence of launches that repeats at least 20 times, at least 4 elementwise kernels or \
        reductions of PyTorch or CuPy one after the other; or a softmax between two matrix products; with 2% \
        of the GPU time together. The finding names the most expensive kind of layer; all others that a \
        compiler would fuse are included.",
    source: "APEX. PyTorch has one kernel for each of these layers, and torch.compile fuses chains.",
    why: "Each kernel reads and writes the whole tensor; a fused kernel reads and writes it once.",
    change: "Use PyTorch's fused function (scaled_dot_product_attention, layer_norm, rms_norm, gelu), or \
        torch.compile, which fuses the operations.",
    saving: "Of n kernels all but one, between half of that and all but half of one. Of attention nine tenths of softmax, scaling and mask, \
             and half of the products, which no longer write and read the scores (between nothing and nine tenths).",
    verify: "one kernel replaces several",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.totals.gpu_time_ns.is_none() {
        return Outcome::Unjudged(UNTIMED.to_owned());
    }
    let runs = runs(profile);
    let mut layers: BTreeMap<Layer, Vec<&Run>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.repeats >= REPEATS) {
        if let Some(layer) = layer(profile, run) {
            layers.entry(layer).or_default().push(run);
        }
    }
    // Whatever they compute, a compiler fuses them all.
    let others = layers.iter().filter(|(layer, _)| **layer != Layer::Attention);
    let fusible: Vec<&Run> = others.flat_map(|(_, runs)| runs.iter().copied()).collect();
    let savings = layers.into_iter().map(|(layer, runs)| (layer, savings(profile, layer, &runs)));
    let time = |savings: &BTreeMap<usize, Figure>| -> f64 {
        savings
            .iter()
            .filter_map(|(&row, share)| Some(profile.kernels[row].gpu_total_ns()? * share.value))
            .sum()
    };
    let costliest = savings.max_by(|a, b| time(&a.1).total_cmp(&time(&b.1)));
    let Some((layer, mut savings)) = costliest else { return Outcome::Clear };
    if layer != Layer::Attention {
        savings = self::savings(profile, layer, &fusible);
    }
    let owner = savings.keys().next().map_or(Owner::PyTorch, |&row| profile.kernels[row].traits.owner);
    by_name::judge_rows(
        profile,
        layer.instead(owner),
        "the order of kernels is recorded; their purpose is inferred from their names",
        |row| savings.get(&row).copied(),
        |who| format!("{who}: part of {}", layer.name()),
    )
}

/// Returns the layer that a run computes, if one kernel could do it.
fn layer(profile: &Profile, run: &Run) -> Option<Layer> {
    let is_product = |row: Option<usize>| {
        row.is_some_and(|row| profile.kernels[row].traits.operation == Operation::MatrixProduct)
    };
    let has = |operation| run.any(profile, |kernel| kernel.traits.operation == operation);
    let named = |names: &[&str]| run.any(profile, |kernel| is_any(kernel, names));
    let light = |row: &&usize| {
        !matches!(
            profile.kernels[**row].traits.operation,
            Operation::Cast | Operation::Copy | Operation::Fill
        )
    };
    if has(Operation::Softmax) && is_product(run.before) && is_product(run.after) {
        return Some(Layer::Attention);
    }
    if run.kernels.iter().filter(light).count() < KERNELS || run.any(profile, is_step) {
        return None;
    }
    Some(if has(Operation::Reduction) && named(&["sqrt", "rsqrt"]) {
        Layer::Normalisation
    } else if named(&["tanh", "erf", "sigmoid", "exp"]) && is_activation(profile, run) {
        Layer::Activation
    } else {
        Layer::Chain
    })
}

/// Kernels of an activation that is written out, at most: GELU's approximation by tanh has 8.
const OF_ACTIVATION: usize = 10;

/// Whether a run is no longer than an activation, and has no other than elementwise operations.
fn is_activation(profile: &Profile, run: &Run) -> bool {
    let is_other = |row: &usize| profile.kernels[*row].traits.operation != Operation::Elementwise;
    run.kernels.len() <= OF_ACTIVATION && !run.kernels.iter().any(is_other)
}

/// Share of each kernel's time that the fused form saves.
fn savings(profile: &Profile, layer: Layer, runs: &[&Run]) -> BTreeMap<usize, Figure> {
    let mut longest: BTreeMap<usize, f64> = BTreeMap::new();
    for run in runs {
        for &row in &run.kernels {
            let length = longest.entry(row).or_default();
            *length = length.max(run.kernels.len() as f64);
        }
    }
    let mut savings: BTreeMap<usize, Figure> = shares(profile, runs.iter().copied())
        .into_iter()
        .map(|(row, share)| {
            let (one, all) = (1.0 / longest[&row], 1.0 - 1.0 / longest[&row]);
            let saved = match layer {
                Layer::Attention => Figure::predicted(0.9, (0.5, 1.0)),
                _ => Figure::predicted(all, (all / 2.0, 1.0 - one / 2.0)),
            };
            (row, saved.scaled(share))
        })
        .gathered();
    if layer == Layer::Attention {
        let products = runs.iter().flat_map(|run| [run.before, run.after]).flatten();
        products.for_each(|row| {
            savings.insert(row, Figure::predicted(0.5, (0.0, 0.9)));
        });
    }
    savings
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear_in, assert_finds_in, named, profile_of, timed};
    use super::RULE;
    use apex_profile::{Kernel, Profile, Sequence};

    fn elementwise(function: &str) -> Kernel {
        let functor = format!("at::native::{function}(at::TensorIteratorBase&)::{{lambda(float)#1}}");
        timed(
            named(&format!(
                "void at::native::vectorized_elementwise_kernel<4, {functor}, std::array<char*, 2>>(int)"
            )),
            2e3,
        )
    }

    fn repeated(profile: Profile, kernels: Vec<usize>) -> Profile {
        let sequence =
            Sequence { length: kernels.len() as u64, repeats: 1000, kernels, ..Sequence::default() };
        Profile { sequences: vec![sequence], ..profile }
    }

    #[test]
    fn fires_on_a_chain_and_names_what_it_computes() {
        let parts = || {
            profile_of([
                elementwise("pow_tensor_scalar_kernel_impl"),
                elementwise("tanh_kernel_cuda"),
                elementwise("mul_kernel"),
                timed(named("ampere_sgemm_128x64_tn"), 2e3),
            ])
        };
        let finding = assert_finds_in(&RULE, repeated(parts(), vec![0, 2, 1, 2, 3]));
        assert!(finding.change.contains("torch.nn.functional.gelu"), "{}", finding.change);
        // Four kernels become one: 3 of the 3 rows, each for three quarters.
        let saving = finding.saving.of_kernel.expect("timed");
        assert!((saving.value - 0.75).abs() < 1e-9, "{saving:?}");
        assert_clear_in(&RULE, repeated(parts(), vec![0, 2, 1, 3]));
        assert_clear_in(&RULE, parts());
    }

    #[test]
    fn a_shifted_tensor_is_part_of_a_chain() {
        let roll = "void at::native::(anonymous namespace)::roll_cuda_kernel<float>(float const*, float*)";
        let kernels = || {
            profile_of([elementwise("mul_kernel"), timed(named(roll), 2e3), timed(named("sum_by_hand"), 2e3)])
        };
        assert_finds_in(&RULE, repeated(kernels(), vec![0, 1, 0, 1, 2]));
        assert_clear_in(&RULE, repeated(kernels(), vec![0, 1, 0, 2]));
    }

    #[test]
    fn an_expression_of_cupy_is_a_chain() {
        let multiply = || timed(named("cupy_multiply__float32_float32_float32"), 2e3);
        let chain = repeated(profile_of([multiply(), timed(named("sum_by_hand"), 2e3)]), vec![0, 0, 0, 0, 1]);
        let finding = assert_finds_in(&RULE, chain);
        assert!(finding.change.contains("cupy.fuse()"), "{}", finding.change);
    }

    #[test]
    fn a_softmax_between_products_is_attention() {
        let product = || timed(named("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT"), 2e3);
        let softmax = || {
            timed(
                named(
                    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>(int)",
                ),
                2e3,
            )
        };
        let finding = assert_finds_in(&RULE, repeated(profile_of([product(), softmax()]), vec![0, 1]));
        assert!(finding.change.contains("scaled_dot_product_attention"), "{}", finding.change);
        let other = elementwise("tanh_kernel_cuda");
        let loss = profile_of([product(), softmax(), timed(named("sum_by_hand"), 1e3), other]);
        assert_clear_in(&RULE, repeated(loss, vec![0, 1, 2]));
    }
}
