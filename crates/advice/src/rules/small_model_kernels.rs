//! Normalisations and activations that are made of many elementwise kernels.

use super::by_name::{is_any, launches_of};
use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::Owner;
use apex_profile::{Figure, Kernel, Profile};

/// Least number of launches of each kernel of a composition.
const LAUNCHES: u64 = 50;

/// Kernels of PyTorch that, all of them in one session, compose something that one kernel can do.
struct Composition {
    what: &'static str,
    /// The fused form.
    instead: &'static str,
    kernels: &'static [&'static str],
}

const COMPOSITIONS: [Composition; 2] = [
    Composition {
        what: "a root-mean-square normalisation",
        instead: "use torch.nn.RMSNorm (torch.nn.functional.rms_norm), or compile the module: torch.compile(module)",
        kernels: &["pow_tensor_scalar", "mean", "rsqrt"],
    },
    Composition {
        what: "GELU by tanh",
        instead: "use torch.nn.GELU(approximate=\"tanh\"), or compile the module: torch.compile(module)",
        kernels: &["pow_tensor_scalar", "tanh", "add"],
    },
];

pub(super) const RULE: Rule = Rule {
    id: "APEX-T66",
    slug: "unfused-layers",
    title: "A layer consists of many small kernels",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "PyTorch's kernels of a root-mean-square normalisation (pow, mean, rsqrt) or of GELU by tanh (pow, tanh, add), each launched \
              at least 50 times, with 2 % of the GPU time together.",
    source: "APEX. PyTorch has one kernel for each of these layers.",
    why: "Each kernel reads and writes the whole tensor; one kernel for the layer reads and writes it once.",
    change: "Use the layer that PyTorch has (torch.nn.RMSNorm, torch.nn.GELU), or torch.compile, which fuses what is written out.",
    saving: "Two thirds of these kernels' time, between nothing and 9/10; multiplications between them are not counted.",
    verify: "one kernel takes the place of several",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let is_present = |composition: &&Composition| {
        composition.kernels.iter().all(|name| launches_of(profile, &[*name]) >= LAUNCHES)
    };
    let Some(found) = COMPOSITIONS.iter().find(is_present) else {
        return match profile.totals.gpu_time_ns {
            Some(_) => Outcome::Clear,
            None => Outcome::Unjudged(super::UNTIMED.to_owned()),
        };
    };
    // Additions are everywhere: only what belongs to the composition alone is counted.
    let own: Vec<&str> = found.kernels.iter().copied().filter(|name| *name != "add").collect();
    let is_part = |kernel: &Kernel| kernel.traits.owner == Owner::PyTorch && is_any(kernel, &own);
    by_name::judge(
        profile,
        found.instead,
        "the names fit; that the kernels belong together is not known",
        |kernel| is_part(kernel).then(|| Figure::predicted(2.0 / 3.0, (0.0, 0.9))),
        |who| format!("{who} looks like a part of {}", found.what),
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear_in, assert_finds_in, named, profile_of, timed};
    use super::RULE;

    fn elementwise(function: &str) -> apex_profile::Kernel {
        let functor = format!("at::native::{function}(at::TensorIteratorBase&)::{{lambda(float)#1}}");
        timed(
            named(&format!(
                "void at::native::vectorized_elementwise_kernel<4, {functor}, std::array<char*, 2>>(int)"
            )),
            2e3,
        )
    }

    #[test]
    fn fires_where_all_parts_are_there() {
        let pow = || elementwise("pow_tensor_scalar_kernel_impl");
        let add = || elementwise("add_kernel");
        let finding = assert_finds_in(&RULE, profile_of([pow(), elementwise("tanh_kernel_cuda"), add()]));
        assert!(finding.change.contains("torch.nn.GELU"), "{}", finding.change);
        assert_eq!(finding.kernels.len(), 2, "the addition may belong elsewhere");
        assert_clear_in(&RULE, profile_of([pow(), add()]));
    }
}
