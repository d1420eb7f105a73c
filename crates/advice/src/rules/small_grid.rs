//! A grid with fewer blocks than the device has multiprocessors.

use super::tiny_launches::is_tiny;
use super::{Fault, Needs, Outcome, Rule, Subject, confidence, judge_kernels, up_to};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::{Figure, Profile};

pub(super) const RULE: Rule = Rule {
    id: "APEX-L02",
    slug: "small-grid",
    title: "Fewer blocks than multiprocessors",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Records,
    parent: None,
    idle: &[],
    detects: "Blocks of the grid < multiprocessors (SMs) of the device, where APEX-L42 does not speak of the kernel.",
    source: "Nsight Compute, launch statistics: grid size below the number of SMs.",
    why: "A block runs on one SM: the SMs without a block are idle for the whole kernel, unless another kernel runs beside it.",
    change: "Spread the work over at least as many blocks as there are SMs: smaller blocks, or less work per thread; \
             else launch independent kernels on streams of their own, so that they run side by side.",
    saving: "(SMs - blocks) / SMs of the kernel's time.",
    verify: "the grid covers all SMs, and the kernel's duration falls",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_kernels(
        profile,
        confidence(
            Level::Low,
            "only where the work can be divided further, and no other kernel fills the idle SMs",
        ),
        fault,
        |who| format!("{who}: part of the SMs get no block"),
    )
}

fn fault(Subject { kernel, geometry, sms, profile }: Subject<'_>) -> Option<Fault> {
    let blocks = kernel.blocks();
    if sms == 0 || blocks >= u64::from(sms) || is_tiny(kernel, profile) {
        return None;
    }
    Some(Fault {
        evidence: vec![
            Evidence::new("blocks", Figure::measured(blocks as f64), Unit::Count)
                .increase_towards(sms.into()),
            Evidence::new("SMs with a block", Figure::computed(geometry.waves.sm_coverage), Unit::Share)
                .increase_towards(1.0),
        ],
        change: change(blocks, kernel.block_threads(), sms),
        saves: Ok(up_to(1.0 - blocks as f64 / f64::from(sms))),
        threads: smaller_blocks(blocks, kernel.block_threads(), sms),
    })
}

/// A block size with which the same threads make a block for every SM, where there is one.
fn smaller_blocks(blocks: u64, threads: u32, sms: u32) -> Option<u32> {
    let warps_per_sm = blocks.saturating_mul(threads.div_ceil(32).into()) / u64::from(sms);
    u32::try_from(warps_per_sm.saturating_mul(32)).ok().filter(|smaller| (32..threads).contains(smaller))
}

fn change(blocks: u64, threads: u32, sms: u32) -> String {
    if let Some(smaller) = smaller_blocks(blocks, threads, sms) {
        let more = blocks.saturating_mul(threads.into()).div_ceil(smaller.into());
        format!(
            "use {smaller} instead of {threads} threads per block: the same threads then make {more} blocks"
        )
    } else {
        format!(
            "give each thread less work, so that there are at least {sms} blocks instead of {blocks}; or run it beside other kernels on a stream of its own"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{SMS, assert_clear, assert_finds, kernel_of, named};
    use super::RULE;
    use apex_profile::Kernel;

    #[test]
    fn fires_below_the_number_of_sms() {
        let finding = assert_finds(&RULE, kernel_of(33, 1024));
        assert_eq!(
            finding.change,
            "use 256 instead of 1024 threads per block: the same threads then make 132 blocks"
        );
        assert_eq!(finding.kernels[0].saving.of_kernel.expect("a share").value, 0.75);
    }

    #[test]
    fn says_what_to_do_where_smaller_blocks_are_not_enough() {
        assert!(assert_finds(&RULE, kernel_of(3, 128)).change.starts_with("give each thread less work"));
    }

    #[test]
    fn a_library_s_launches_are_not_the_users_to_change() {
        let launch = kernel_of(33, 1024).launch;
        for name in [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)",
            "ampere_sgemm_128x64_tn",
            "triton_poi_fused_add_0",
        ] {
            assert_clear(&RULE, Kernel { launch, ..named(name) });
        }
    }

    #[test]
    fn the_boundary_is_the_number_of_sms() {
        assert_finds(&RULE, kernel_of(SMS - 1, 128));
        assert_clear(&RULE, kernel_of(SMS, 128));
    }
}
