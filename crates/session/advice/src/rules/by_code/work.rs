//! Work that the code shows and a different code would not do.

use super::super::{Rule, percent};
use super::{Language, Pattern, judge, own};
use crate::finding::{Evidence, Severity, Unit};
use apex_counts::FactKind;
use apex_profile::{CodeFact, Figure, Profile};

/// Minimum share of the machine's instructions that divisions become.
const DIVISIONS_SHARE: f64 = 0.4;
/// Minimum share of FP64 among floating-point instructions.
const DOUBLES_SHARE: f64 = 0.25;
/// Minimum conversions for each FP64 instruction: a kernel that computes in doubles on purpose
/// converts little.
pub(super) const CONVERSIONS: f64 = 0.1;
/// Minimum FP64 instructions for each load from global memory.
pub(super) const EACH: f64 = 4.0;
/// Minimum launches of a kernel that sets up generators: a loop does, not the preparation of a run.
const LAUNCHES: u64 = 10;
/// Minimum share of a loop's accesses to global memory.
const SUM_SHARE: f64 = 0.25;
/// Minimum share of a kernel's instructions.
const PRODUCT_SHARE: f64 = 0.4;

pub(in crate::rules) const DIVISIONS: Rule = Rule {
    id: "APEX-P104",
    slug: "long-divisions",
    title: "64-bit integer divisions",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, 64-bit integer divisions and remainders by a number \
        that the compiler does not know become at least 40% of the machine's instructions. Loops count 8 times.",
    source: "ptx::facts; ptxas for sm_90 makes about 80 instructions of one. The threshold is APEX's own.",
    why: "GPUs have no instruction that divides integers. A 64-bit division takes about 80 instructions, a 32-bit one 17, \
        and a mask 2.",
    change: "Let the divisor be a power of two and use a mask, divide 32-bit numbers where the values fit, make the divisor a \
        template argument, or multiply by a precomputed reciprocal (__umul64hi).",
    saving: "From nothing (memory limits the kernel) to a little more than the share of instructions.",
    judge: |profile: &Profile| judge(profile, &LONG_DIVISIONS),
    ..super::RULE
};

const LONG_DIVISIONS: Pattern = Pattern {
    kind: FactKind::LongDivisions,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= DIVISIONS_SHARE,
    evidence: |fact| vec![share("of the machine's instructions for 64-bit divisions", fact)],
    change: |_, fact| {
        format!(
            "64-bit divisions become {} of the kernel's instructions: divide by a power of two (a mask), by a constant, or in \
             32 bits",
            percent(fact.share)
        )
    },
    saves: |_, fact| Figure::predicted(0.8 * fact.share, (0.0, (fact.share + 0.2).min(0.95))),
    headline: "64-bit integer divisions by an unknown number",
};

pub(in crate::rules) const DOUBLES: Rule = Rule {
    id: "APEX-P105",
    slug: "unintended-doubles",
    title: "FP64 arithmetic between conversions, by the code",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 25% of its floating-point instructions are FP64, \
        with at least one conversion for ten of them, and at least 4 of them for each load from global memory. Loops count \
        8 times.",
    source: "ptx::facts, with the thresholds of APEX-C84, which counts the same on the CPU device.",
    why: "A constant such as 0.5 is a double, and makes the expression around it one: its operands are converted, and the \
        result is converted back.",
    change: "Write constants as floats (0.5f) and call functions of single precision (sqrtf, expf, powf).",
    saving: "From nothing to 97%: it depends on the GPU's rate of FP64. In testing/corpus, double_literals becomes 71% \
             faster on an H200.",
    judge: |profile: &Profile| judge(profile, &FP64),
    ..super::RULE
};

const FP64: Pattern = Pattern {
    kind: FactKind::Doubles,
    is_counted: true,
    owners: own,
    is_fault: |_, fact| fact.share >= DOUBLES_SHARE && fact.cost >= CONVERSIONS && fact.least >= EACH,
    evidence: |fact| vec![share("of FP64 among floating-point instructions", fact)],
    change: |_, fact| {
        format!(
            "{} of its floating-point instructions are FP64: write constants as floats (0.5f) and call functions of single \
             precision",
            percent(fact.share)
        )
    },
    saves: |_, fact| Figure::predicted(0.5 * fact.share, (0.0, 0.97)),
    headline: "FP64 arithmetic whose operands are converted",
};

pub(in crate::rules) const GENERATORS: Rule = Rule {
    id: "APEX-P106",
    slug: "generator-set-up",
    title: "Random generators are set up in each launch",
    severity: Severity::High,
    detects: "The PTX of a kernel with at least 5% of the GPU time and at least 10 launches uses the tables with which cuRAND's \
        XORWOW and MRG32k3a generators skip ahead to the sequence of a thread.",
    source: "cuRAND device API, performance notes: curand_init is expensive; states should be kept between launches.",
    why: "curand_init multiplies matrices to skip to a thread's sequence. This takes far longer than drawing a few numbers.",
    change: "Set the states up once in a kernel of their own and keep them in memory, or use curandStatePhilox4_32_10_t, which \
        needs no skipping ahead.",
    saving: "Most of the kernel's time if it draws few numbers (98% in testing/corpus, random_states), little if it draws many.",
    judge: |profile: &Profile| judge(profile, &SET_UP),
    ..super::RULE
};

const SET_UP: Pattern = Pattern {
    kind: FactKind::GeneratorSetUp,
    is_counted: false,
    owners: own,
    is_fault: |kernel, _| kernel.launches.ran() >= LAUNCHES,
    evidence: |_| Vec::new(),
    change: |_, _| {
        "curand_init runs in each launch: set the states up once and keep them in memory, or use \
         curandStatePhilox4_32_10_t"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.8, (0.1, 0.99)),
    headline: "sets up random generators in each launch",
};

pub(in crate::rules) const HEAP: Rule = Rule {
    id: "APEX-P107",
    slug: "device-heap",
    title: "malloc in a kernel",
    severity: Severity::High,
    detects: "The PTX of a kernel with at least 5% of the GPU time calls malloc, or new, on the device.",
    source: "CUDA programming guide, dynamic global memory allocation: allocations are served by a heap that all threads share.",
    why: "Threads that allocate at the same time wait for each other.",
    change: "Use an array in registers or shared memory, or one buffer that is allocated before the launch.",
    saving: "Most of the kernel's time where each thread allocates (100% in testing/corpus, malloc_in_kernel).",
    judge: |profile: &Profile| judge(profile, &MALLOC),
    ..super::RULE
};

const MALLOC: Pattern = Pattern {
    kind: FactKind::DeviceHeap,
    is_counted: false,
    owners: own,
    is_fault: |_, _| true,
    evidence: |_| Vec::new(),
    change: |_, _| {
        "threads allocate from the device's heap: use an array in registers or shared memory, or a buffer that is allocated \
         before the launch"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.8, (0.05, 1.0)),
    headline: "calls malloc on the device",
};

pub(in crate::rules) const SUMS: Rule = Rule {
    id: "APEX-P108",
    slug: "sum-in-memory",
    title: "A loop stores to the same address in each round",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 25% of the accesses of a loop to global memory \
        are stores at an address that the loop does not change, in each of its rounds, and loads from it.",
    source: "ptx::facts. The threshold is APEX's own.",
    why: "Each round waits for memory, and writes a value that the next round overwrites. The compiler must not move the store \
        out of the loop if another pointer may point there, or if it is volatile.",
    change: "Sum up in a local variable and store it after the loop; pointers that are __restrict__ let the compiler do it.",
    saving: "From nothing (the cache takes the stores) to 95%: in testing/corpus, sum_in_memory becomes 94% faster.",
    judge: |profile: &Profile| judge(profile, &IN_MEMORY),
    ..super::RULE
};

const IN_MEMORY: Pattern = Pattern {
    kind: FactKind::SumInMemory,
    is_counted: false,
    owners: own,
    is_fault: |kernel, fact| {
        let facts = kernel.code.iter().flat_map(|code| &code.facts);
        // What sets up generators in memory does that too, and it has a rule of its own.
        fact.share >= SUM_SHARE && !facts.into_iter().any(|other| other.kind == SET_UP.kind)
    },
    evidence: |fact| vec![share("of the loop's global accesses", fact)],
    change: |_, _| {
        "the loop stores to the same address in each round: sum up in a local variable and store it after the loop".to_owned()
    },
    saves: |_, _| Figure::predicted(0.5, (0.0, 0.95)),
    headline: "stores to one address in each round of a loop",
};

pub(in crate::rules) const PRODUCTS: Rule = Rule {
    id: "APEX-P109",
    slug: "scalar-product",
    title: "Matrix product without tensor cores",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, at least 40% of its instructions are FP32 products of two \
        loaded numbers that are summed up in a loop, each number is used at least twice, and none is for tensor cores. Loops \
        count 8 times.",
    source: "ptx::facts. The thresholds are APEX's own.",
    why: "An H200 multiplies FP32 matrices at 67 TFLOP/s in FP32 units, and at 495 TFLOP/s in TF32 on tensor cores.",
    change: "If TF32's 10 bits of mantissa suffice, use tensor cores: cuBLAS with CUBLAS_COMPUTE_32F_FAST_TF32, wmma or CUTLASS; \
        in Triton input_precision=\"tf32\". If they do not, use \"tf32x3\", or cuBLAS in FP32.",
    saving: "From nothing (FP32 is needed) to 87%.",
    judge: |profile: &Profile| judge(profile, &SCALAR),
    ..super::RULE
};

const SCALAR: Pattern = Pattern {
    kind: FactKind::ScalarProduct,
    is_counted: false,
    owners: own,
    is_fault: |_, fact| fact.share >= PRODUCT_SHARE,
    evidence: |fact| vec![share("of the instructions for FP32 products", fact)],
    change: |language, _| {
        match language {
            Language::Triton => {
                "the product runs in FP32 units: pass input_precision=\"tf32\" to tl.dot if its precision suffices, else \
                 \"tf32x3\""
            }
            _ => {
                "the product runs in FP32 units: use tensor cores if TF32 suffices (cuBLAS with \
                 CUBLAS_COMPUTE_32F_FAST_TF32, wmma, CUTLASS)"
            }
        }
        .to_owned()
    },
    saves: |_, _| Figure::predicted(0.3, (0.0, 0.87)),
    headline: "a matrix product in FP32 without tensor cores",
};

/// The share of a fact as evidence.
pub(super) fn share(of: &str, fact: &CodeFact) -> Evidence {
    let share = Figure::computed(fact.share);
    Evidence::new(format!("share {of} (by its code)"), share, Unit::Share).decrease_towards(0.0)
}
