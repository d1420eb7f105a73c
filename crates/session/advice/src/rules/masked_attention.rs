//! Attention that gets its mask as a tensor.

use apex_ordered::Gather;
use std::collections::BTreeSet;

use super::by_name::{self, is_any};
use super::{Needs, Outcome, Rule, UNTIMED};
use crate::finding::{Scope, Severity};
use apex_profile::names::{Operation, OwnerKind};
use apex_profile::{Figure, Kernel, Profile, Sequence};

/// Maximum number of kernels between the one that turns the mask into numbers and attention.
const BETWEEN: usize = 3;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T83",
    slug: "masked-attention",
    title: "Attention with a mask as a tensor",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "A framework's or library's attention kernel that follows, in a sequence that repeats, at most 3 kernels after \
        PyTorch's kernel of torch.where, by which scaled_dot_product_attention turns a boolean mask into \
        numbers; with 2% of the GPU time together.",
    source: "PyTorch, torch.nn.functional.scaled_dot_product_attention: FlashAttention takes is_causal and no mask. APEX: on an H200, \
             4,096 causal keys of width 128 take 59% less time without the tensor (testing/corpus, masked_attention).",
    why: "With a tensor the kernel computes all scores and reads a number for each; a causal kernel skips the half that is \
        masked.",
    change: "If the mask is causal, pass is_causal=True and no attn_mask. If it hides padding, use sequences without \
        padding (torch.nested, torch.nn.attention.varlen) or batches of similar lengths.",
    saving: "Half of the time of attention, between nothing (any other mask) and three quarters.",
    verify: "no kernel of torch.where precedes attention, and the GPU time of attention decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.totals.gpu_time_ns.is_none() {
        return Outcome::Unjudged(UNTIMED.to_owned());
    }
    let masked: BTreeSet<usize> =
        profile.sequences.iter().flat_map(|sequence| masked_in(profile, sequence)).gathered();
    by_name::judge_rows(
        profile,
        RULE.change,
        "it is unknown what the mask hides",
        |row| masked.contains(&row).then(|| Figure::predicted(0.5, (0.0, 0.75))),
        |who| format!("{who}: attention with a mask as a tensor"),
    )
}

/// Attention kernels of a sequence that follow the conversion of a boolean mask.
fn masked_in(profile: &Profile, sequence: &Sequence) -> Vec<usize> {
    let kernels: Vec<(usize, &Kernel)> =
        sequence.kernels.iter().filter_map(|&row| Some((row, profile.kernels.get(row)?))).collect();
    let is_masked = |at: usize| {
        let before = kernels[at.saturating_sub(BETWEEN + 1)..at].iter().rev();
        let mut light = before.take_while(|(_, kernel)| !attends(kernel) && !multiplies(kernel));
        light.any(|(_, kernel)| is_any(kernel, &["where"]))
    };
    let attention = kernels.iter().enumerate().filter(|&(at, (_, kernel))| attends(kernel) && is_masked(at));
    attention.map(|(_, &(row, _))| row).collect()
}

fn attends(kernel: &Kernel) -> bool {
    kernel.traits.operation == Operation::Attention && kernel.traits.owner.kind() != OwnerKind::Own
}

fn multiplies(kernel: &Kernel) -> bool {
    kernel.traits.operation == Operation::MatrixProduct
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear_in, assert_finds_in, named, profile_of, timed};
    use super::RULE;
    use apex_profile::{Profile, Sequence};

    const ATTENTION: &str = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0";
    const WHERE: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::where_kernel_impl(at::TensorIterator&)::\
                         {lambda(bool, float, float)#1}, std::array<char*, 4>>(int)";
    const PRODUCT: &str = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT";

    fn in_order(symbols: &[usize]) -> Profile {
        let profile = profile_of([WHERE, ATTENTION, PRODUCT].map(|symbol| timed(named(symbol), 1e5)));
        let sequence = Sequence { length: 9, repeats: 100, kernels: symbols.to_vec(), ..Sequence::default() };
        Profile { sequences: vec![sequence], ..profile }
    }

    #[test]
    fn fires_where_a_mask_is_converted_before_attention() {
        let finding = assert_finds_in(&RULE, in_order(&[2, 0, 1, 2]));
        assert!(finding.change.contains("is_causal=True"), "{}", finding.change);
        assert_eq!(finding.kernels.len(), 1);
        assert_clear_in(&RULE, in_order(&[0, 2, 1, 2]));
        assert_clear_in(&RULE, in_order(&[2, 1, 0, 2]));
    }
}
