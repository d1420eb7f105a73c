//! Kernels that compute in double precision what they load and store in single precision.

use super::{Fault, Needs, Outcome, Rule, judge_counts, percent};
use crate::finding::{Evidence, Scope, Severity, Unit};
use apex_counts::{Direction, InstructionClass, Space};
use apex_profile::{KernelCounts, Profile};

/// Minimum share of FP64 among the floating-point operations outside of tensor cores.
const DOUBLES: f64 = 0.25;
/// Minimum conversions for each FP64 operation: a kernel that computes in doubles on purpose
/// converts little.
const CONVERSIONS: f64 = 0.1;
/// Minimum FP64 operations of a thread that loads a value.
const EACH: f64 = 4.0;

pub(super) const RULE: Rule = Rule {
    id: "APEX-C84",
    slug: "double-arithmetic",
    title: "FP64 arithmetic between conversions",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Counts,
    parent: None,
    idle: &[],
    detects: "A kernel of which at least 25% of the floating-point operations outside of tensor cores are FP64, with at least one \
        conversion for ten of them, and with at least 4 of them for each value loaded from global memory.",
    source: "NVIDIA, CUDA C++ Best Practices Guide, on constants without the suffix f. An H200 has half as many FP64 as FP32 \
             operations a second, most other GPUs a 64th. The thresholds are APEX's own.",
    why: "A constant such as 0.5 is a double, and makes the expression around it one: its operands are converted, and \
        the result is converted back.",
    change: "Write constants as floats (0.5f) and call functions of single precision (sqrtf, expf, powf); .f64 in the \
        PTX (nvcc -ptx) shows what is left.",
    saving: "Unknown: the cost of FP64 depends on the GPU. On an H200 a kernel of such arithmetic takes 71% less time with constants of type float (testing/corpus, \
             double_literals).",
    verify: "FP64 operations and conversions disappear",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    judge_counts(
        profile,
        |_, counts| fault(counts),
        |who| format!("{who}: FP64 arithmetic whose operands are converted"),
    )
}

fn fault(counts: &KernelCounts) -> Option<Fault> {
    let of = |class| counts.sums.threads_of(class) as f64;
    let (doubles, conversions) = (of(InstructionClass::Double), of(InstructionClass::Conversion));
    let all = doubles + of(InstructionClass::Single) + of(InstructionClass::Half);
    let loaded = counts.sums.traffic(Space::Global, Direction::Load).threads as f64;
    if doubles < DOUBLES * all || conversions < CONVERSIONS * doubles || doubles < EACH * loaded.max(1.0) {
        return None;
    }
    let share = doubles / all;
    Some(Fault {
        evidence: vec![
            Evidence::new(
                "share of FP64 among floating-point instructions",
                counts.figure(share),
                Unit::Share,
            )
            .decrease_towards(0.0),
            Evidence::new(
                "conversions for each FP64 instruction",
                counts.figure(conversions / doubles),
                Unit::Count,
            ),
        ],
        change: format!(
            "{} of its floating-point instructions are FP64: write constants as floats (0.5f) and call functions of single precision",
            percent(share)
        ),
        saves: Err("the cost of FP64 depends on the GPU"),
        threads: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, counted, execute};
    use super::RULE;
    use apex_counts::{Direction, Space};
    use apex_profile::Kernel;

    /// 3,200 values loaded, and these instructions of threads.
    fn computing(doubles: u64, singles: u64, conversions: u64) -> Kernel {
        let mut kernel = counted(Space::Global, Direction::Load, 100, 400, 0);
        execute(&mut kernel, doubles, singles, conversions);
        kernel
    }

    #[test]
    fn fires_on_doubles_between_conversions() {
        let finding = assert_finds(&RULE, computing(100_000, 100_000, 50_000));
        assert!(finding.change.contains("50% of its floating-point instructions"), "{}", finding.change);
    }

    #[test]
    fn doubles_on_purpose_few_of_them_and_copies_are_fine() {
        assert_clear(&RULE, computing(100_000, 0, 9_000));
        assert_clear(&RULE, computing(100_000, 400_000, 50_000));
        assert_clear(&RULE, computing(12_000, 0, 6_400));
    }
}
