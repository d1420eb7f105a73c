//! Kernels that are given pointers to host memory.

use super::{Fault, Needs, Outcome, Rule, UNTIMED, about_kernels, confidence, kernel_finding};
use crate::finding::{Evidence, Level, Scope, Severity, Unit};
use apex_profile::names::OwnerKind;
use apex_profile::{Figure, Kernel, Profile};
use apex_trace::layout::MemoryKind;

/// Minimum share of the GPU time of a kernel.
const BUSY: f64 = 0.05;

pub(super) const RULE: Rule = Rule {
    id: "APEX-T110",
    slug: "host-memory-argument",
    title: "Kernel with pointers to host memory",
    severity: Severity::Medium,
    scope: Scope::Kernel,
    needs: Needs::Times,
    parent: None,
    idle: &[],
    detects: "A kernel of the user's own with at least 5% of the GPU time was given a pointer to page-locked host memory in the \
        first launch of a configuration.",
    source: "CUDA C++ Best Practices Guide, zero copy: mapped host memory is for data that is read or written once. The \
             threshold is APEX's own.",
    why: "Each access that misses the caches crosses PCIe, at about 50 GB/s instead of 4800 GB/s of an H200's memory.",
    change: "Copy what is read more than once to device memory before the launch (cudaMemcpyAsync), and keep it there if it \
        does not change.",
    saving: "From nothing (each byte is accessed once) to 99%: in testing/corpus, mapped_table becomes 99% faster.",
    verify: "the kernel's duration decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    let Some(all) = profile.totals.gpu_time_ns.map(|time| time.value).filter(|&time| time > 0.0) else {
        return Outcome::Unjudged(UNTIMED.to_owned());
    };
    let mut kernels = Vec::new();
    for (index, kernel) in profile.kernels.iter().enumerate() {
        let share = kernel.gpu_total_ns().unwrap_or(0.0) / all;
        let places = places(kernel);
        if share >= BUSY && kernel.traits.owner.kind() == OwnerKind::Own && !places.is_empty() {
            kernels.push(kernel_finding(profile, index, fault(share, &places)));
        }
    }
    if kernels.is_empty() {
        return Outcome::Clear;
    }
    let reason = "how often the kernel accesses that memory is not known";
    let headline = |who: &str| format!("{who}: pointers to host memory");
    Outcome::found(about_kernels(profile, kernels, confidence(Level::Medium, reason), headline))
}

/// The parameters with pointers to host memory, from 1.
fn places(kernel: &Kernel) -> Vec<u32> {
    let host = kernel.memory.iter().filter(|memory| memory.kind == MemoryKind::Pinned);
    host.map(|memory| memory.parameter.saturating_add(1)).collect()
}

fn fault(share: f64, places: &[u32]) -> Fault {
    let which: Vec<String> = places.iter().map(u32::to_string).collect();
    let which = match places {
        [_] => format!("parameter {}", which[0]),
        _ => format!("parameters {}", which.join(", ")),
    };
    Fault {
        evidence: vec![
            Evidence::new("share of GPU time", Figure::measured(share), Unit::Share),
            Evidence::new("parameters in host memory", Figure::measured(places.len() as f64), Unit::Count)
                .decrease_towards(0.0),
        ],
        change: format!(
            "{which} points to page-locked host memory, which is accessed over PCIe: copy what is read more than once to \
             device memory before the launch"
        ),
        saves: Ok(Figure::predicted(0.5, (0.0, 0.99))),
        threads: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{assert_clear, assert_finds, kernel_of, timed};
    use super::RULE;
    use apex_profile::{ArgumentMemory, Kernel};
    use apex_trace::layout::MemoryKind;

    fn given(kinds: &[MemoryKind]) -> Kernel {
        let memory = (0..).zip(kinds).map(|(parameter, &kind)| ArgumentMemory { parameter, kind });
        Kernel { memory: memory.collect(), ..timed(kernel_of(1000, 128), 1e5) }
    }

    #[test]
    fn names_the_parameter_in_host_memory() {
        use MemoryKind::{Device, Managed, Pinned};
        let finding = assert_finds(&RULE, given(&[Device, Pinned, Device]));
        assert!(finding.change.starts_with("parameter 2 points to page-locked"), "{}", finding.change);
        assert_finds(&RULE, given(&[Pinned, Pinned]));
        assert_clear(&RULE, given(&[Device, Managed]));
        assert_clear(&RULE, given(&[]));
    }
}
