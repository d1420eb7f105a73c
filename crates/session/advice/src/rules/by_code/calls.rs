//! Calls whose function is known when they are made, not before.

use super::super::Rule;
use super::work::share;
use super::{Pattern, judge, own};
use apex_counts::FactKind;
use apex_profile::{Figure, Profile};

pub(in crate::rules) const RULE: Rule = Rule {
    id: "APEX-P123",
    slug: "indirect-calls",
    title: "Calls by address in a loop",
    detects: "By the PTX of a kernel with at least 5% of the GPU time, a loop calls a function by its address: a virtual function, \
        or a pointer to a function.",
    source: "CUDA C++ Programming Guide, virtual functions and function pointers; CUDA C++ Best Practices Guide, branching and \
        divergence. APEX's own rule.",
    why: "The compiler does not know what is called: it cannot inline it, keeps values in local memory across the call, and lanes \
        that call different functions execute one after the other.",
    change: "Make the function known: a template parameter in place of a virtual function, a switch over the types with the code \
        in its branches, or one launch for each type, with objects sorted by type.",
    saving: "From nothing to 90%; in testing/corpus, scene_distances becomes 67% faster on an H200.",
    judge: |profile: &Profile| judge(profile, &CALLS),
    ..super::RULE
};

const CALLS: Pattern = Pattern {
    kind: FactKind::IndirectCalls,
    is_counted: false,
    owners: own,
    is_fault: |_, _| true,
    evidence: |fact| vec![share("of calls by address among the instructions", fact)],
    change: |_, _| {
        "a loop calls a function by its address (a virtual function or a pointer): make it known by a template parameter or a \
         switch over the types, so that it is inlined"
            .to_owned()
    },
    saves: |_, _| Figure::predicted(0.45, (0.0, 0.9)),
    headline: "calls functions by their address in a loop",
};
