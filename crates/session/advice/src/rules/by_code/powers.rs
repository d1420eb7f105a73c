//! Powers by logarithm and exponential.

use super::super::{Rule, percent};
use super::work::share;
use super::{Pattern, judge, own};
use apex_counts::FactKind;
use apex_profile::{Figure, Profile};

/// Minimum share of the instructions of `powf`.
const SHARE: f64 = 0.3;

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P136",
    slug: "general-powers",
    title: "Powers by logarithm and exponential",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 30% of its instructions are of powf, by the \
        coefficients of its polynomials in CUDA's headers. Loops count 8 times. Whether exponents are whole is not known.",
    source: "CUDA C++ Best Practices Guide, exponentiation with small fractional arguments; the coefficients: PTX of NVRTC 12.9. The \
        threshold is APEX's own.",
    why: "powf takes about 80 instructions and several branches for any exponent. A whole power takes one multiplication or a few.",
    change: "For whole exponents multiply: x * x, x * x * x, a loop of multiplications, or Horner's scheme for a polynomial; for 0.5 \
        sqrtf, for -0.5 rsqrtf, for thirds cbrtf. For other exponents of positive numbers exp2f(y * __log2f(x)), or __powf, if \
        their error is acceptable.",
    saving: "From nothing (memory limits the kernel) to a little more than the share of instructions; in testing/corpus/users, \
        sensor_polynomials becomes 83% faster on an H200.",
    judge: |profile: &Profile| judge(profile, &POWERS),
    ..super::RULE
};

const POWERS: Pattern = Pattern {
    kind: FactKind::Powers,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= SHARE,
    evidence: |fact| vec![share("of powf among the instructions", fact)],
    change: |_, fact| {
        format!(
            "powf is {} of the kernel's instructions: multiply for whole powers (x * x * x; Horner's scheme for a polynomial), sqrtf \
             and cbrtf for roots, __powf if its error is acceptable",
            percent(fact.share)
        )
    },
    saves: |_, fact| Figure::predicted(0.8 * fact.share, (0.0, (fact.share + 0.2).min(0.95))),
    headline: "powers by powf",
};
