//! `printf` in a kernel.

use super::super::Rule;
use super::{Pattern, judge, own};
use crate::finding::{Level, Severity};
use apex_counts::FactKind;
use apex_profile::{CodeFact, Figure, Kernel, Profile};

/// Warp instructions that a slow GPU executes in a nanosecond.
const RATE: f64 = 50.0;
/// Least duration of a launch, in nanoseconds.
const LAUNCH_NS: f64 = 5e3;
/// How many times as long as its instructions take a kernel takes if it prints.
const SLOWER: f64 = 10.0;
/// Lanes of a warp.
const LANES: f64 = 32.0;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P111",
    slug: "device-printf",
    title: "printf in a kernel",
    severity: Severity::High,
    detects: "The PTX of a kernel with at least 5% of the GPU time calls vprintf: in each thread, or under a condition in a kernel \
        without loops that takes 10 times as long as its instructions. Where a condition decides and loops hide what the rest \
        takes, the finding claims little.",
    source: "CUDA C++ Programming Guide, formatted output: the arguments go to a buffer that the host formats at \
             synchronisations. The thresholds are APEX's own.",
    why: "Each call takes a place in a buffer of the whole device, one thread after another, and at the next synchronisation the \
        host formats the text. Even a call that is never made takes registers and a stack.",
    change: "Remove the call, or compile it for debugging alone (#ifndef NDEBUG); count what is unusual in an integer \
        (atomicAdd) and print that on the host.",
    saving: "Nearly all of the kernel's time if each launch prints some hundred lines (99% in testing/corpus, printing_kernel); \
             nothing if the call is never made.",
    judge: |profile: &Profile| judge(profile, &PRINTS),
    ..super::RULE
};

const PRINTS: Pattern = Pattern {
    kind: FactKind::Printf,
    is_counted: false,
    owners: own,
    is_fault: |kernel, fact| likelihood(kernel, fact) != Level::Low || fact.least == 0.0,
    evidence: |_| Vec::new(),
    change: |_, fact| {
        let who = if fact.cost > 0.0 { "each thread calls printf" } else { "the kernel calls printf" };
        format!(
            "{who}: remove the call, or compile it for debugging alone (#ifndef NDEBUG); count what is unusual with atomicAdd \
             and print that on the host"
        )
    },
    saves: |kernel, fact| match likelihood(kernel, fact) {
        Level::High => Figure::predicted(0.8, (0.1, 1.0)),
        Level::Medium => Figure::predicted(0.8, (0.0, 1.0)),
        Level::Low => Figure::predicted(0.02, (0.0, 0.99)),
    },
    headline: "printf in the kernel",
};

/// Returns the likelihood that launches print: each thread does, or the kernel takes far longer
/// than its instructions.
fn likelihood(kernel: &Kernel, fact: &CodeFact) -> Level {
    if fact.cost > 0.0 {
        return Level::High;
    }
    let instructions = kernel.threads() as f64 / LANES * fact.least;
    let took = kernel.gpu.map_or(0.0, |gpu| gpu.each.mean_ns);
    let is_slow = fact.least > 0.0 && took >= SLOWER * (instructions / RATE + LAUNCH_NS);
    if is_slow { Level::Medium } else { Level::Low }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{assert_clear, assert_finds, kernel_of};
    use super::super::tests::{fact, saying_in};
    use super::{CodeFact, FactKind, RULE};

    fn prints(cost: f64, instructions: f64) -> CodeFact {
        fact(FactKind::Printf, 1.0, cost, instructions)
    }

    #[test]
    fn a_call_in_each_thread_is_certain() {
        let finding = assert_finds(&RULE, saying_in(1e5, kernel_of(1000, 128), vec![prints(1.0, 40.0)]));
        assert!(finding.change.contains("each thread calls printf"), "{}", finding.change);
        assert!(finding.kernels[0].saving.of_kernel.expect("known").value > 0.5);
    }

    #[test]
    fn time_tells_whether_a_condition_holds() {
        // A million threads of 40 instructions.
        let taking = |ns: f64| saying_in(ns, kernel_of(4096, 256), vec![prints(0.0, 40.0)]);
        assert!(assert_finds(&RULE, taking(1.2e6)).kernels[0].saving.of_kernel.expect("known").value > 0.5);
        assert_clear(&RULE, taking(2e4));
    }

    #[test]
    fn behind_loops_little_is_claimed() {
        let finding = assert_finds(&RULE, saying_in(1.2e6, kernel_of(4096, 256), vec![prints(0.0, 0.0)]));
        assert!(finding.kernels[0].saving.of_kernel.expect("known").value < 0.05);
    }
}
