//! Collectives that wait for other ranks.

use super::{Needs, Outcome, Rule, by_name};
use crate::finding::{Scope, Severity};
use apex_profile::names::Operation;
use apex_profile::{Figure, Kernel, Profile};

/// Ratio of a collective's 90th to its 10th percentile from which it waits.
const SPREAD: f64 = 2.0;
/// Least number of timed launches.
const SAMPLES: u64 = 10;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T67",
    slug: "waiting-collectives",
    title: "Collectives wait for a slower rank",
    severity: Severity::High,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "A collective, timed at least 10 times, whose 90th percentile is at least twice its 10th; with 2 % of the GPU time together.",
    source: "Holistic Trace Analysis and Nsight Systems' straggler recipe: a collective's shortest time is its own, the rest is waiting.",
    why: "A collective's kernel runs from the moment that its own rank is ready until all are.",
    change: "Give all ranks the same work (equal batches and lengths, the same layers), look at the slowest rank's session for what it does \
             beyond the others, and let communication overlap with computation (gradient buckets of DDP, FSDP's prefetch).",
    saving: "What its launches take beyond the 10th percentile, at most; messages of different sizes under one name look alike.",
    verify: "the collective's 90th percentile comes near its 10th",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    by_name::judge(
        profile,
        RULE.change,
        "sizes of messages are not known: large ones take longer without waiting",
        waits,
        |who| format!("{who} takes much longer at times: it waits for other ranks"),
    )
}

/// Share of a collective's time that it spends beyond its 10th percentile.
fn waits(kernel: &Kernel) -> Option<Figure> {
    let each = kernel.gpu.as_ref().filter(|_| kernel.traits.operation == Operation::Collective)?.each;
    let spread = each.count >= SAMPLES && each.p10_ns > 0.0 && each.p90_ns >= SPREAD * each.p10_ns;
    let share = (1.0 - each.p10_ns / each.mean_ns).clamp(0.0, 1.0);
    spread.then(|| super::up_to(share))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, named, timed};
    use super::RULE;
    use apex_profile::Kernel;

    fn collective(p10_ns: f64) -> Kernel {
        let mut kernel =
            timed(named("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"), 1e5);
        if let Some(gpu) = &mut kernel.gpu {
            gpu.each.p10_ns = p10_ns;
        }
        kernel
    }

    #[test]
    fn fires_where_times_are_spread() {
        let finding = assert_finds(&RULE, collective(4e4));
        assert!((finding.saving.of_kernel.expect("timed").value - 0.6).abs() < 1e-9);
        assert_clear(&RULE, collective(9e4));
    }
}
