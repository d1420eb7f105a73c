//! Faults that the code of a busy kernel shows.
//!
//! On a GPU nothing counts what a kernel executes. Its PTX, which the session keeps, says how the
//! addresses of a warp lie and which instructions stand in its loops (`ptx::facts`). These rules
//! judge the kernels of the user's own that take much of the GPU time. How much a fault costs
//! depends on what limits the kernel, so savings begin at little. Where the CPU device counted the
//! same thing exactly, the rule about its counts judges instead.

pub(super) mod accesses;
pub(super) mod arrays;
pub(super) mod atomics;
pub(super) mod calls;
pub(super) mod chains;
pub(super) mod doubles;
pub(super) mod one_thread;
pub(super) mod powers;
pub(super) mod printing;
pub(super) mod products;
pub(super) mod reductions;
pub(super) mod summed_products;
pub(super) mod trigonometry;
pub(super) mod unstaged;
pub(super) mod work;

use super::{
    Confidence, Draft, Fault, Needs, Outcome, Rule, UNTIMED, about_kernels, confidence, kernel_finding,
    percent,
};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_counts::FactKind;
use apex_predict_session::recorded::BUSY;
use apex_profile::names::{Owner, OwnerKind};
use apex_profile::{CodeFact, Figure, Kernel, KnownCode, Profile};

/// Kernels without known code that are named.
const NAMED: usize = 2;

/// A rule about the code of kernels, without its texts.
const RULE: Rule = Rule {
    id: "",
    slug: "",
    title: "",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Code,
    parent: None,
    idle: &[],
    detects: "",
    source: "",
    why: "",
    change: "",
    saving: "",
    verify: "the kernel's duration decreases",
    judge: |_| Outcome::Clear,
};

/// The language that a kernel is written in, as far as it matters to its remedy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Cuda,
    Triton,
    /// XLA makes the kernel of what JAX gives it.
    Jax,
    CuPy,
}

impl Language {
    fn of(kernel: &Kernel, fact: &CodeFact) -> Self {
        let is_python = fact.file.as_deref().is_some_and(|file| file.ends_with(".py"));
        match kernel.traits.owner {
            Owner::Xla => Self::Jax,
            Owner::CuPy => Self::CuPy,
            _ if is_python => Self::Triton,
            _ => Self::Cuda,
        }
    }
}

/// A fault that a kernel's code shows.
struct Pattern {
    /// The facts that it is about.
    kind: FactKind,
    /// Whether the CPU device counts it too.
    is_counted: bool,
    /// Whose kernels have a remedy.
    owners: fn(OwnerKind) -> bool,
    /// Whether a fact is a fault.
    is_fault: fn(&Kernel, &CodeFact) -> bool,
    /// Returns the fact's measurements, as evidence.
    evidence: fn(&CodeFact) -> Vec<Evidence>,
    /// Returns the change to make.
    change: fn(Language, &CodeFact) -> String,
    /// Share of the kernel's time that the change saves.
    saves: fn(&Kernel, &CodeFact) -> Figure,
    /// What the kernels have, for the summary.
    headline: &'static str,
}

/// The kernels that the user wrote.
fn own(kind: OwnerKind) -> bool {
    kind == OwnerKind::Own
}

/// Judges the busy kernels of a pattern's owners.
fn judge(profile: &Profile, pattern: &Pattern) -> Outcome {
    let Some(all) = profile.totals.gpu_time_ns.map(|time| time.value).filter(|&time| time > 0.0) else {
        return Outcome::Unjudged(UNTIMED.to_owned());
    };
    let has_remedy = |kernel: &Kernel| (pattern.owners)(kernel.traits.owner.kind());
    let share = |kernel: &Kernel| kernel.gpu_total_ns().unwrap_or(0.0) / all;
    let counted = |kernel: &Kernel| pattern.is_counted && kernel.counts.is_some();
    let busy: Vec<(usize, &Kernel)> = (0..)
        .zip(&profile.kernels)
        .filter(|(_, kernel)| has_remedy(kernel) && share(kernel) >= BUSY && !counted(kernel))
        .collect();
    let (mut kernels, mut by_parameter, mut from_ptx) = (Vec::new(), false, true);
    for &(index, kernel) in &busy {
        let facts = kernel.code.iter().flat_map(|code| &code.facts);
        let mut faults = facts.filter(|fact| fact.kind == pattern.kind && (pattern.is_fault)(kernel, fact));
        if let Some(fact) = faults.next() {
            by_parameter |= fact.by_parameter;
            from_ptx &= has_ptx(kernel);
            kernels.push(kernel_finding(profile, index, fault(pattern, kernel, share(kernel), fact)));
        }
    }
    if kernels.is_empty() {
        return unknown(&busy, share).map_or(Outcome::Clear, Outcome::Unjudged);
    }
    let headline = |who: &str| format!("{who}: {}", pattern.headline);
    let draft = about_kernels(profile, kernels, sure(by_parameter, from_ptx), headline);
    let by = if from_ptx { "code" } else { "machine code" };
    Outcome::found(Draft { summary: format!("{}, by its {by}", draft.summary), ..draft })
}

/// Whether a kernel's PTX is known.
fn has_ptx(kernel: &Kernel) -> bool {
    kernel.code.as_ref().is_some_and(|code| matches!(code.known, Some(KnownCode::Ptx)))
}

fn sure(by_parameter: bool, from_ptx: bool) -> Confidence {
    match by_parameter {
        false if !from_ptx => confidence(
            Level::Medium,
            "computed from the kernel's machine code, without executing it; the cost depends on what limits \
                the kernel",
        ),
        false => confidence(
            Level::Medium,
            "by the kernel's PTX, without executing it; the cost depends on what limits the kernel",
        ),
        true => confidence(
            Level::Low,
            "by the kernel's PTX, if a parameter such as a row's length is large; the cost depends on what \
                limits the kernel",
        ),
    }
}

fn fault(pattern: &Pattern, kernel: &Kernel, share: f64, fact: &CodeFact) -> Fault {
    let mut evidence = vec![Evidence::new("share of GPU time", Figure::measured(share), Unit::Share)];
    evidence.extend((pattern.evidence)(fact));
    let change = format!("{}{}", place(fact), (pattern.change)(Language::of(kernel, fact), fact));
    Fault { evidence, change, saves: Ok((pattern.saves)(kernel, fact)), threads: None }
}

/// `kernel.cu:7: `, where the PTX has lines.
fn place(fact: &CodeFact) -> String {
    let name = fact.file.as_deref().and_then(|file| file.rsplit('/').next());
    name.zip(fact.line).map_or_else(String::new, |(file, line)| format!("{file}:{line}: "))
}

/// Describes the busy kernels that have no known PTX; `None` if all have it.
fn unknown(busy: &[(usize, &Kernel)], share: impl Fn(&Kernel) -> f64) -> Option<String> {
    let without: Vec<&Kernel> = busy
        .iter()
        .map(|(_, kernel)| *kernel)
        .filter(|kernel| own(kernel.traits.owner.kind()) && !has_ptx(kernel))
        .collect();
    let name = |kernel: &&Kernel| format!("`{}` ({} of GPU time)", kernel.short_name, percent(share(kernel)));
    let named: Vec<String> = without.iter().take(NAMED).map(name).collect();
    let others = match without.len().saturating_sub(NAMED) {
        0 => String::new(),
        others => format!(" and of {others} more"),
    };
    let is_known = without.is_empty();
    (!is_known).then(|| format!("the session has no PTX of {}{others}", named.join(" and of ")))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        assert_clear, assert_finds, assert_unjudged, counted, kernel_of, named, profile_of, timed,
    };
    use super::super::{RULES, Rule};
    use super::{
        Needs, accesses, arrays, atomics, calls, chains, doubles, one_thread, powers, printing, products,
        reductions, summed_products, trigonometry, unstaged, work,
    };
    use apex_counts::{Direction, FactKind, Space};
    use apex_profile::{CodeFact, Kernel, KernelCode, KnownCode, MachineCode};

    /// A kernel whose PTX is known, and says this.
    fn saying(kernel: Kernel, facts: Vec<CodeFact>) -> Kernel {
        saying_in(1e5, kernel, facts)
    }

    /// The same, of launches that took so many nanoseconds.
    pub(super) fn saying_in(took_ns: f64, kernel: Kernel, facts: Vec<CodeFact>) -> Kernel {
        let code = KernelCode { known: Some(KnownCode::Ptx), facts, ..KernelCode::default() };
        timed(Kernel { code: Some(code), ..kernel }, took_ns)
    }

    pub(super) fn fact(kind: FactKind, share: f64, cost: f64, least: f64) -> CodeFact {
        CodeFact {
            kind,
            share,
            cost,
            least,
            file: Some("/src/kernel.cu".to_owned()),
            line: Some(7),
            by_parameter: false,
        }
    }

    fn with(kind: FactKind, share: f64, cost: f64, least: f64) -> Kernel {
        saying(kernel_of(1000, 128), vec![fact(kind, share, cost, least)])
    }

    #[test]
    fn each_rule_finds_its_fault_and_no_other() {
        let faults: [(&Rule, Kernel); 29] = [
            (&accesses::STRIDED, with(FactKind::StridedAccesses, 0.5, 32.0, 4.0)),
            (&accesses::CONFLICTS, with(FactKind::BankConflicts, 0.9, 32.0, 1.0)),
            (&accesses::CONSTANTS, with(FactKind::DivergentConstants, 0.15, 32.0, 1.0)),
            (&work::DIVISIONS, with(FactKind::LongDivisions, 0.7, 0.0, 0.0)),
            (&work::DOUBLES, with(FactKind::Doubles, 1.0, 0.5, 140.0)),
            (&work::GENERATORS, with(FactKind::GeneratorSetUp, 1.0, 0.0, 0.0)),
            (&work::HEAP, with(FactKind::DeviceHeap, 1.0, 0.0, 0.0)),
            (&work::SUMS, with(FactKind::SumInMemory, 0.67, 0.0, 0.0)),
            (&work::PRODUCTS, with(FactKind::ScalarProduct, 0.8, 1000.0, 400.0)),
            (&printing::RULE, with(FactKind::Printf, 1.0, 1.0, 0.0)),
            (&reductions::RULE, with(FactKind::BarrierReduction, 0.7, 1.0, 0.0)),
            (&accesses::ROWS, with(FactKind::RowsByThread, 0.9, 32.0, 4.0)),
            (&atomics::TOTAL, with(FactKind::OneTotal, 0.5, 0.0, 0.0)),
            (&atomics::SHARED, saying(kernel_of(5000, 128), vec![fact(FactKind::SharedSums, 0.3, 0.0, 0.0)])),
            (&atomics::SWAP, with(FactKind::SumBySwap, 0.7, 0.0, 0.0)),
            (&atomics::LOCK, with(FactKind::Lock, 0.2, 0.0, 0.0)),
            (&atomics::FENCE, with(FactKind::FenceInLoop, 0.5, 0.0, 0.0)),
            (&arrays::RULE, with(FactKind::LocalArray, 0.3, 0.0, 0.0)),
            (&one_thread::RULE, with(FactKind::OneThread, 0.9, 0.0, 0.0)),
            (&products::RULE, with(FactKind::UntiledProduct, 0.3, 0.0, 0.0)),
            (&doubles::RULE, with(FactKind::Doubles, 1.0, 0.05, 140.0)),
            (&chains::RULE, with(FactKind::ChainOfLoads, 0.3, 0.0, 0.0)),
            (&chains::SEARCH, with(FactKind::LinearSearch, 0.9, 0.0, 0.0)),
            (&calls::RULE, with(FactKind::IndirectCalls, 0.1, 0.0, 0.0)),
            (&trigonometry::RULE, with(FactKind::ArgumentReduction, 0.2, 0.0, 0.0)),
            (&summed_products::RULE, with(FactKind::ProductAcrossThreads, 0.8, 256.0, 36.0)),
            (&accesses::NARROW, with(FactKind::NarrowAccesses, 0.9, 1.0, 1.0)),
            (&powers::RULE, with(FactKind::Powers, 0.6, 0.0, 0.0)),
            (&unstaged::RULE, with(FactKind::UnstagedProduct, 0.9, 0.0, 0.0)),
        ];
        assert_eq!(faults.len(), RULES.iter().filter(|rule| rule.needs == Needs::Code).count());
        for (rule, kernel) in &faults {
            let finding = assert_finds(rule, kernel.clone());
            assert!(finding.change.starts_with("kernel.cu:7: "), "{}: {}", rule.id, finding.change);
            assert!(finding.summary.ends_with(", by its code"), "{}", finding.summary);
            let (low, high) = finding.kernels[0].saving.of_kernel.expect("a share").bounds();
            assert!((0.0..0.5).contains(&low) && high <= 1.0, "{}: {low} to {high}", rule.id);
            for (other, kernel) in &faults {
                if other.id != rule.id {
                    assert_clear(rule, kernel.clone());
                }
            }
        }
    }

    #[test]
    fn small_shares_are_no_faults() {
        assert_clear(&accesses::STRIDED, with(FactKind::StridedAccesses, 0.2, 32.0, 4.0));
        assert_clear(&accesses::CONFLICTS, with(FactKind::BankConflicts, 0.2, 32.0, 1.0));
        assert_clear(&accesses::CONFLICTS, with(FactKind::BankConflicts, 0.9, 2.0, 1.0));
        assert_clear(&accesses::CONSTANTS, with(FactKind::DivergentConstants, 0.005, 32.0, 1.0));
        assert_clear(&work::DIVISIONS, with(FactKind::LongDivisions, 0.3, 0.0, 0.0));
        // Doubles on purpose are converted little; few of them for each load do not matter.
        assert_clear(&work::DOUBLES, with(FactKind::Doubles, 1.0, 0.05, 140.0));
        assert_clear(&work::DOUBLES, with(FactKind::Doubles, 1.0, 0.5, 2.0));
        assert_clear(&work::SUMS, with(FactKind::SumInMemory, 0.2, 0.0, 0.0));
        assert_clear(&work::PRODUCTS, with(FactKind::ScalarProduct, 0.2, 1000.0, 400.0));
        assert_clear(&reductions::RULE, with(FactKind::BarrierReduction, 0.3, 1.0, 0.0));
        // A sum over many values before it.
        assert_clear(&reductions::RULE, with(FactKind::BarrierReduction, 0.7, 8.0, 0.0));
        assert_clear(&accesses::ROWS, with(FactKind::RowsByThread, 0.2, 32.0, 4.0));
        assert_clear(&accesses::NARROW, with(FactKind::NarrowAccesses, 0.4, 1.0, 1.0));
        assert_clear(&atomics::TOTAL, with(FactKind::OneTotal, 0.05, 0.0, 0.0));
        // A thousand blocks are few.
        assert_clear(&atomics::SHARED, with(FactKind::SharedSums, 0.3, 0.0, 0.0));
        assert_clear(&arrays::RULE, with(FactKind::LocalArray, 0.2, 0.0, 0.0));
        assert_clear(&one_thread::RULE, with(FactKind::OneThread, 0.3, 0.0, 0.0));
        assert_clear(&summed_products::RULE, with(FactKind::ProductAcrossThreads, 0.2, 256.0, 36.0));
        assert_clear(&products::RULE, with(FactKind::UntiledProduct, 0.1, 0.0, 0.0));
        assert_clear(&powers::RULE, with(FactKind::Powers, 0.2, 0.0, 0.0));
        assert_clear(&unstaged::RULE, with(FactKind::UnstagedProduct, 0.4, 0.0, 0.0));
        assert_clear(&doubles::RULE, with(FactKind::Doubles, 0.5, 0.05, 140.0));
    }

    #[test]
    fn a_block_of_one_thread_has_no_other_that_could_help() {
        let facts = vec![fact(FactKind::OneThread, 0.9, 0.0, 0.0)];
        assert_clear(&one_thread::RULE, saying(kernel_of(1000, 1), facts));
    }

    #[test]
    fn machine_code_is_named_as_the_source() {
        let mut kernel = with(FactKind::Doubles, 1.0, 0.0, 140.0);
        kernel.code.as_mut().expect("code").known = Some(KnownCode::MachineCode(MachineCode::default()));
        let finding = assert_finds(&doubles::RULE, kernel);
        assert!(finding.summary.ends_with(", by its machine code"), "{}", finding.summary);
        assert!(finding.confidence.reason.contains("from the kernel's machine code"));
    }

    #[test]
    fn types_are_told_in_the_words_of_who_chose_them() {
        let facts = || vec![fact(FactKind::Doubles, 1.0, 0.0, 1.0)];
        // Few of them for each load: in a kernel of the user's own, memory may limit it.
        assert_clear(&doubles::RULE, saying(kernel_of(1000, 128), facts()));
        let of_xla = saying(named("loop_add_fusion"), facts());
        let finding = assert_finds(&doubles::RULE, of_xla);
        assert!(finding.change.contains("jax_enable_x64"), "{}", finding.change);
    }

    #[test]
    fn set_up_once_is_no_fault() {
        let mut once = with(FactKind::GeneratorSetUp, 1.0, 0.0, 0.0);
        once.launches.calls = 1;
        assert_clear(&work::GENERATORS, once);
        // Generators that are set up in memory write their state there.
        let facts =
            vec![fact(FactKind::GeneratorSetUp, 1.0, 0.0, 0.0), fact(FactKind::SumInMemory, 1.0, 0.0, 0.0)];
        assert_clear(&work::SUMS, saying(kernel_of(1000, 128), facts));
    }

    #[test]
    fn what_a_parameter_decides_is_less_sure_and_in_the_owners_language() {
        let fact = CodeFact {
            by_parameter: true,
            file: Some("/src/model.py".to_owned()),
            ..fact(FactKind::StridedAccesses, 0.5, 32.0, 4.0)
        };
        let finding = assert_finds(&accesses::STRIDED, saying(kernel_of(1000, 128), vec![fact]));
        assert_eq!(finding.confidence.level, crate::finding::Level::Low);
        assert!(finding.change.contains("tl.arange"), "{}", finding.change);
    }

    #[test]
    fn counts_of_the_cpu_device_go_before() {
        let kernel = counted(Space::Global, Direction::Load, 100, 400, 0);
        let facts = vec![fact(FactKind::StridedAccesses, 0.5, 32.0, 4.0)];
        assert_clear(&accesses::STRIDED, saying(kernel, facts));
    }

    #[test]
    fn without_ptx_it_says_whose_is_missing() {
        let profile = profile_of([timed(kernel_of(1000, 128), 1e5)]);
        assert_unjudged(&work::HEAP, profile.clone());
        let super::Outcome::Unjudged(why) = super::super::fixture::judged(&work::HEAP, &profile) else {
            panic!("judged")
        };
        assert!(why.contains("no PTX of `") && why.contains("(100% of GPU time)"), "{why}");
    }
}
