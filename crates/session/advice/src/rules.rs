//! The rules that judge a profile, one per file.
//!
//! A rule is a row of [`RULES`]: what it detects, at which threshold and on whose authority, what
//! to change, how its saving is estimated; and a function that looks at a profile and finds the
//! fault, or does not, or says why it cannot judge. `docs/advice.md` is generated from the table.
//! Identifiers are stable: `APEX-L…` needs launch and call records alone, `APEX-T…` needs sampled
//! kernel times, `APEX-C…` needs what the CPU device counted. Numbers are never used again.

mod backward;
mod bank_conflicts;
mod block_not_warp_multiple;
mod branch_divergence;
mod by_code;
mod by_name;
mod casts;
mod collectives;
mod compiled;
mod contended_atomics;
mod contended_updates;
pub(crate) mod costly_line;
mod device_copies;
mod double_arithmetic;
mod exposed_copies;
mod few_blocks_with_barriers;
mod fills;
mod frequent_synchronisation;
mod gpu_gap;
mod graph_candidate;
mod growing_passes;
mod growing_steps;
mod host_bound;
mod host_function;
mod host_memory;
mod independent_kernels;
pub(crate) mod known;
mod language;
mod launch_bound;
mod layout_conversions;
mod legacy_stream;
mod limits;
mod local_memory;
pub(crate) mod loops;
mod low_occupancy;
mod low_utilisation;
mod masked_attention;
mod misaligned_products;
mod pageable_async_copy;
mod parameter_passes;
mod plane_copies;
mod promoted_doubles;
mod repeated_allocation;
mod repeated_copies;
mod repeated_loads;
mod reread;
mod runs;
mod short_blocks;
mod short_graph_kernels;
mod short_kernels;
mod slow_launch;
mod small_batch;
mod small_copies;
mod small_grid;
mod small_model_kernels;
mod small_optimizer_kernels;
mod sorts;
mod strided_copies;
mod sub_wave_grid;
mod synchronous_calls;
mod tail_wave;
mod tiny_launches;
mod uncoalesced_access;
mod wide_products;

#[cfg(test)]
pub(crate) mod fixture;

use apex_ordered::Order;
use cuda_launch::LaunchConfig;
use std::collections::BTreeMap;

use crate::finding::{
    Confidence, Configuration, Evidence, Finding, KernelFinding, KnownCause, Level, Saving, Scope, Severity,
    in_short,
};
use apex_knowledge::{Cause, Knowledge};
use apex_profile::names::{Owner, OwnerKind};
use known::Frameworks;
// Sentences have whole percents; in rules, `share` is the number.
pub(crate) use apex_profile::units::{bytes, counted, share as percent, time};
use apex_profile::{
    Accounts, Activity, Copies, Figure, Gap, Geometry, IdleCause, Kernel, KernelCounts, Profile,
    SaturatingSum as _, Sizes, StackCount, total,
};

/// The data that a rule needs to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Records of launches and calls.
    Records,
    /// Sampled kernel times too.
    Times,
    /// The CPU device's counts.
    Counts,
    /// The PTX of kernels, and sampled kernel times.
    Code,
}

impl Needs {
    /// When a finding of a rule with such data can be wrong, and how to check it.
    pub fn limits(self) -> &'static str {
        match self {
            Self::Records => {
                "Launches and calls are counted exactly. What the change saves follows from the host's time in \
                 them: less is saved where the GPU's work hides that time. Check: compare the length of a step."
            }
            Self::Times => {
                "Kernel times are sampled: with few samples, or while clocks change, they vary. Check: record \
                 with --timing all, and look whether two runs without a change differ as much (apex diff)."
            }
            Self::Counts => {
                "Counts are exact for the input that was run on the CPU device. They have no caches and no \
                 time: what is counted as excess may be cheap. Check: the kernel's duration on a GPU."
            }
            Self::Code => {
                "The code is read and not run: how often a line runs, and with which values, is assumed. \
                 Check: apex run --device cpu counts each line, or measure the kernel after the change."
            }
        }
    }
}

/// A rule.
pub struct Rule {
    /// Stable identifier.
    pub id: &'static str,
    /// Stable name.
    pub slug: &'static str,
    /// The fault, in a few words.
    pub title: &'static str,
    /// The importance in general.
    pub severity: Severity,
    /// The subject.
    pub scope: Scope,
    /// The data that it needs.
    pub needs: Needs,
    /// The rule whose finding contains this one's: its saving is then part of that one's.
    pub parent: Option<&'static str>,
    /// The idle time of the device that a change on the host's side can save; empty for rules about
    /// kernels.
    pub idle: &'static [IdleCause],
    /// The condition, with the threshold.
    pub detects: &'static str,
    /// The authority for condition and threshold.
    pub source: &'static str,
    /// The reason why the fault costs time.
    pub why: &'static str,
    /// The change to make.
    pub change: &'static str,
    /// The estimate of the saving.
    pub saving: &'static str,
    /// The result that [`VERIFY`] then shows, if the change helped.
    pub verify: &'static str,
    pub(crate) judge: fn(&Profile) -> Outcome,
}

/// The result of a rule for a profile.
pub(crate) enum Outcome {
    /// It looked, and the fault is not there.
    Clear,
    /// It could not look, and why.
    Unjudged(String),
    /// The fault is there.
    Found(Box<Draft>),
    /// A known cause matches.
    Known(Box<Draft>, Box<Cause>),
}

impl Outcome {
    pub fn found(draft: Draft) -> Self {
        Self::Found(Box::new(draft))
    }
}

/// A finding before savings are capped and before the table's columns are added.
pub(crate) struct Draft {
    pub summary: String,
    pub evidence: Vec<Evidence>,
    pub kernels: Vec<KernelFinding>,
    /// In place of the table's general advice.
    pub change: Option<String>,
    /// The saving of the job; a rule about kernels leaves it to the sum over `kernels`.
    pub saving: Saving,
    pub confidence: Confidence,
}

/// The rule that tells of idle time without its cause.
pub(crate) const SYMPTOM: &str = low_utilisation::RULE.id;

/// Rules whose findings name the account of idle time, and not its cause. APEX-T87 names a function
/// where samples show one.
pub(crate) const GENERAL: [&str; 6] = [
    launch_bound::RULE.id,
    host_bound::RULE.id,
    frequent_synchronisation::RULE.id,
    gpu_gap::RULE.id,
    graph_candidate::RULE.id,
    host_function::RULE.id,
];

/// Where the time of a general finding passes, in words; `None` if no call stack shows it.
pub(crate) fn places_of(profile: &Profile, rule: &str) -> Option<String> {
    let idle = Rule::named(rule).filter(|rule| rule.id != host_function::RULE.id)?.idle;
    let is_launching = [launch_bound::RULE.id, graph_candidate::RULE.id].contains(&rule);
    let sampled = (rule != graph_candidate::RULE.id).then(|| {
        host_function::mostly_at(profile, |_, samples| {
            idle.contains(&samples.cause) && !(is_launching && samples.is_pause)
        })
    });
    let launched = || {
        let stacks: Vec<StackCount> =
            profile.kernels.iter().flat_map(|kernel| kernel.stacks.iter().copied()).collect();
        profile.main_place(&stacks).map(|place| format!("most launches come from {place}"))
    };
    let sampled = sampled.flatten().map(|places| format!("the largest part of it at {places}"));
    sampled.or_else(|| is_launching.then(launched).flatten())
}

/// Whether a compiler made the kernels of most launches, whose statements are on no call stack.
pub(crate) fn is_compiled(profile: &Profile) -> bool {
    let is_of_compiler = |kernel: &&Kernel| kernel.traits.owner.kind() == OwnerKind::Compiler;
    2.0 * share_of_launches(profile, profile.kernels.iter().filter(is_of_compiler)) >= 1.0
}

/// The rule that says that launching is what the device waits for.
pub(crate) const LAUNCH_BOUND: &str = launch_bound::RULE.id;

/// The rule about waits in each step.
pub(crate) const WAITS: &str = frequent_synchronisation::RULE.id;
/// Rules about code of the host of which they know no function.
pub(crate) const OF_HOST_CODE: [&str; 2] = [host_bound::RULE.id, gpu_gap::RULE.id];
/// Rules about kernels whose finding does not say what the program wrote that launches them.
pub(crate) const OF_LIBRARIES: [&str; 11] = [
    small_grid::RULE.id,
    tail_wave::RULE.id,
    low_occupancy::RULE.id,
    sub_wave_grid::RULE.id,
    few_blocks_with_barriers::RULE.id,
    short_blocks::RULE.id,
    sorts::RULE.id,
    strided_copies::RULE.id,
    small_model_kernels::RULE.id,
    contended_updates::RULE.id,
    casts::RULE.id,
];

/// Rules about copies between host and device, which a change may shorten with the waits for them.
pub(crate) const OF_COPIES: [&str; 2] = [pageable_async_copy::RULE.id, synchronous_calls::RULE.id];

pub(crate) use host_function::drop_waits;
pub(crate) use reread::part_used;

/// The rule that says that ranks wait for another one.
pub(crate) const SLOW_RANK: &str = collectives::SLOW_RANK.id;

/// The rule that quotes the line that takes the time.
pub const COSTLY_LINE: &str = costly_line::RULE.id;
/// The rule about steps that make ever more launches.
pub(crate) const GROWING_STEPS: &str = growing_steps::RULE.id;

/// The commands that show whether a change helped.
pub const VERIFY: &str = "apex run -o NEW -- COMMAND, then apex diff OLD NEW";

/// All rules, in the order of their numbers.
pub static RULES: &[Rule] = &[
    block_not_warp_multiple::RULE,
    small_grid::RULE,
    few_blocks_with_barriers::RULE,
    tail_wave::RULE,
    low_occupancy::RULE,
    sub_wave_grid::RULE,
    gpu_gap::RULE,
    low_utilisation::RULE,
    pageable_async_copy::RULE,
    synchronous_calls::RULE,
    short_kernels::RULE,
    slow_launch::RULE,
    legacy_stream::RULE,
    repeated_allocation::RULE,
    launch_bound::RULE,
    graph_candidate::RULE,
    uncoalesced_access::RULE,
    bank_conflicts::RULE,
    branch_divergence::RULE,
    host_bound::RULE,
    tiny_launches::RULE,
    frequent_synchronisation::RULE,
    wide_products::RULE,
    layout_conversions::RULE,
    small_optimizer_kernels::RULE,
    casts::RULE,
    strided_copies::RULE,
    misaligned_products::RULE,
    small_model_kernels::RULE,
    small_batch::RULE,
    contended_atomics::RULE,
    contended_updates::RULE,
    collectives::SLOW_RANK,
    collectives::SMALL,
    collectives::EXPOSED,
    short_blocks::RULE,
    small_copies::RULE,
    exposed_copies::RULE,
    wide_products::FP64,
    parameter_passes::RULE,
    local_memory::ACCESSES,
    local_memory::SIZE,
    device_copies::RULE,
    sorts::RULE,
    masked_attention::RULE,
    double_arithmetic::RULE,
    short_graph_kernels::RULE,
    repeated_loads::RULE,
    host_function::RULE,
    known::KERNELS,
    known::CALLS,
    known::VARIABLES,
    by_code::accesses::STRIDED,
    by_code::accesses::CONFLICTS,
    by_code::accesses::CONSTANTS,
    by_code::work::DIVISIONS,
    by_code::work::DOUBLES,
    by_code::work::GENERATORS,
    by_code::work::HEAP,
    by_code::work::SUMS,
    by_code::work::PRODUCTS,
    host_memory::RULE,
    by_code::printing::RULE,
    by_code::reductions::RULE,
    by_code::accesses::ROWS,
    by_code::atomics::TOTAL,
    by_code::atomics::SWAP,
    by_code::atomics::LOCK,
    by_code::atomics::FENCE,
    by_code::arrays::RULE,
    by_code::one_thread::RULE,
    by_code::products::RULE,
    by_code::doubles::RULE,
    fills::RULE,
    by_code::calls::RULE,
    by_code::trigonometry::RULE,
    repeated_copies::RULE,
    by_code::accesses::NARROW,
    costly_line::RULE,
    growing_steps::RULE,
    by_code::chains::RULE,
    plane_copies::RULE,
    by_code::summed_products::RULE,
    growing_passes::RULE,
    by_code::powers::RULE,
    by_code::unstaged::RULE,
    by_code::atomics::SHARED,
    promoted_doubles::RULE,
    by_code::chains::SEARCH,
    independent_kernels::RULE,
];

/// Topics of rules, in a word, with the rules of each: it is fine where all of these found nothing.
pub static TOPICS: [(&str, &[Rule]); 8] = [
    (
        "copies",
        &[
            pageable_async_copy::RULE,
            synchronous_calls::RULE,
            small_copies::RULE,
            exposed_copies::RULE,
            device_copies::RULE,
            fills::RULE,
            repeated_copies::RULE,
            plane_copies::RULE,
        ],
    ),
    ("allocation", &[repeated_allocation::RULE]),
    ("pauses", &[gpu_gap::RULE]),
    ("synchronisation", &[frequent_synchronisation::RULE]),
    ("launch calls", &[slow_launch::RULE, launch_bound::RULE, short_kernels::RULE, tiny_launches::RULE]),
    (
        "launch shapes",
        &[block_not_warp_multiple::RULE, small_grid::RULE, tail_wave::RULE, sub_wave_grid::RULE],
    ),
    ("occupancy", &[low_occupancy::RULE]),
    ("memory accesses", &[uncoalesced_access::RULE, bank_conflicts::RULE, local_memory::ACCESSES]),
];

/// The rule about arrays that become FP64.
pub(crate) const PROMOTED: &str = promoted_doubles::RULE.id;
/// The rule about passes that are computed again.
pub(crate) const GROWING_PASSES: &str = growing_passes::RULE.id;

/// Rules about the configuration of launches, which do not say what kernels do.
pub(crate) const OF_CONFIGURATION: [&str; 7] = [
    block_not_warp_multiple::RULE.id,
    small_grid::RULE.id,
    few_blocks_with_barriers::RULE.id,
    tail_wave::RULE.id,
    low_occupancy::RULE.id,
    sub_wave_grid::RULE.id,
    short_blocks::RULE.id,
];

/// Rules that set a grid against the number of multiprocessors.
const OF_MULTIPROCESSORS: [&str; 4] =
    [few_blocks_with_barriers::RULE.id, tail_wave::RULE.id, sub_wave_grid::RULE.id, short_blocks::RULE.id];

impl Rule {
    /// Runs the rule on a profile. On the CPU device times are the host's, and multiprocessors are
    /// its processors: nothing that depends on either is judged there, except for a grid that is
    /// too small for every GPU ([`LEAST_SMS`]). If the device is unknown, it may be either: nothing
    /// that depends on times is judged. Where no call of the host was recorded, nothing of the host
    /// is fine.
    pub(crate) fn says(&self, profile: &Profile) -> Outcome {
        if profile.device_is_unknown() && self.needs == Needs::Times {
            return Outcome::Unjudged(UNKNOWN_DEVICE.into());
        }
        let host = self.scope == Scope::Host;
        if !profile.on_cpu_device() {
            return match (self.judge)(profile) {
                // What the host did is not known to be fine.
                Outcome::Clear if host && profile.lacks_calls() => Outcome::Unjudged(NO_CALLS.into()),
                outcome => outcome,
            };
        }
        if host && self.needs == Needs::Times && self.id != small_copies::RULE.id {
            return Outcome::Unjudged(CPU_TIMES.into());
        }
        if OF_MULTIPROCESSORS.contains(&self.id) {
            return Outcome::Unjudged(CPU_MULTIPROCESSORS.into());
        }
        match (self.judge)(profile) {
            // Too little time was lost to it there.
            Outcome::Clear if host && self.id != device_copies::RULE.id => {
                Outcome::Unjudged(CPU_TIMES.into())
            }
            // It fills some GPUs and not others.
            Outcome::Clear if self.id == small_grid::RULE.id => Outcome::Unjudged(CPU_MULTIPROCESSORS.into()),
            outcome => outcome,
        }
    }

    /// The rule with this identifier, with or without `APEX-`, or with this name.
    pub fn named(name: &str) -> Option<&'static Rule> {
        let is_id = |id: &str| id.eq_ignore_ascii_case(name);
        let bare = |id: &'static str| id.strip_prefix("APEX-").unwrap_or(id);
        RULES.iter().find(|rule| is_id(rule.id) || is_id(bare(rule.id)) || rule.slug == name)
    }

    /// The finding of a known cause: its title and its check stand for the rule's.
    pub(crate) fn finding_of(&self, draft: Box<Draft>, cause: Cause, uses: &Frameworks) -> Finding {
        Finding {
            title: cause.title,
            verify: format!("{VERIFY}: {}", cause.check.trim_end_matches('.')),
            cause: Some(KnownCause { id: cause.id, source: cause.source }),
            explains: cause.explains,
            ..self.finding(draft, uses)
        }
    }

    /// The finding of a draft. Where the draft has no change of its own, the change is the general
    /// one in the words of the frameworks that the program uses.
    pub(crate) fn finding(&self, draft: Box<Draft>, uses: &Frameworks) -> Finding {
        let knowledge = Knowledge::current();
        let general = || knowledge.remedy_of_rule(self.slug, |of| uses.contains(&of)).unwrap_or(self.change);
        let own = draft.change.filter(|change| change != self.change);
        let change = own.unwrap_or_else(|| general().to_owned());
        Finding {
            rule: self.id.to_owned(),
            slug: self.slug.to_owned(),
            title: self.title.to_owned(),
            cause: None,
            severity: self.severity,
            scope: self.scope,
            within: None,
            explains: Vec::new(),
            leads: Vec::new(),
            part_of: None,
            apart_ns: None,
            within_time: None,
            summary: draft.summary,
            place: None,
            evidence: draft.evidence,
            remedy: in_short(&change) + suffix(&change, &draft.kernels),
            kernels: draft.kernels,
            change,
            saving: draft.saving,
            confidence: draft.confidence,
            verify: format!("{VERIFY}: {}", self.verify),
        }
    }
}

/// Returns the owner of the functions that the program calls: the framework with the most launches,
/// or [`Owner::Own`] if there is none and the program's own kernels ran. Kernels that Triton
/// compiles count as the program's own, so that a framework beside them decides.
pub(crate) fn framework(profile: &Profile) -> Option<Owner> {
    let mut launches: BTreeMap<Owner, u64> = BTreeMap::new();
    for kernel in profile.kernels.iter().filter(|kernel| kernel.launches.ran() > 0) {
        let of = launches.entry(kernel.traits.owner).or_default();
        *of = of.saturating_add(kernel.launches.ran());
    }
    let is_framework = |owner: &Owner| matches!(owner.kind(), OwnerKind::Framework | OwnerKind::Compiler);
    let most = launches.iter().filter(|(owner, _)| is_framework(owner)).max_by_key(|(_, count)| **count);
    most.map(|(owner, _)| *owner).or_else(|| launches.contains_key(&Owner::Own).then_some(Owner::Own))
}

/// `, from train.py:48 train_step`: where most of the calls come from whose call stacks were read;
/// empty where none was.
pub(crate) fn from_place<'p>(
    profile: &Profile,
    stacks: impl IntoIterator<Item = &'p Vec<StackCount>>,
) -> String {
    let counts: Vec<StackCount> = stacks.into_iter().flatten().copied().collect();
    profile.main_place(&counts).map_or_else(String::new, |place| format!(", from {place}"))
}

/// ` of 4 B` or ` (60 of 4 B, 1 of 64.0 KiB)`: the sizes of copies, after their number.
pub(crate) fn sizes<'p>(copies: impl IntoIterator<Item = &'p Copies>) -> String {
    let mut sizes = Sizes::default();
    copies.into_iter().for_each(|copy| sizes.merge(&copy.sizes));
    sizes.in_words()
}

/// The fault of one kernel, as a rule found it.
pub(crate) struct Fault {
    pub evidence: Vec<Evidence>,
    pub change: String,
    /// Share of the kernel's time that the change would save; or why that is unknown.
    pub saves: Result<Figure, &'static str>,
    /// Threads of a block that `change` names for the same threads in all, where it does.
    pub threads: Option<u32>,
}

/// A kernel that ran and whose geometry is known.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub kernel: &'a Kernel,
    pub geometry: &'a Geometry,
    /// See [`multiprocessors`].
    pub sms: u32,
    pub profile: &'a Profile,
}

/// Asks `fault` about every kernel of the user's own that ran and whose geometry is known; one
/// finding for all that have the fault. How a library or framework launches its kernels, and what
/// these access, is not the user's to change. `headline` words the summary from how many they are
/// and how often they ran.
pub(crate) fn judge_kernels(
    profile: &Profile,
    confidence: Confidence,
    fault: impl Fn(Subject<'_>) -> Option<Fault>,
    headline: impl Fn(&str) -> String,
) -> Outcome {
    let own = |subject: Subject<'_>| match subject.kernel.traits.owner.kind() {
        OwnerKind::Own => fault(subject),
        _ => None,
    };
    judge_all_kernels(profile, confidence, own, headline)
}

/// As [`judge_kernels`], about kernels of libraries and frameworks too.
pub(crate) fn judge_all_kernels(
    profile: &Profile,
    confidence: Confidence,
    fault: impl Fn(Subject<'_>) -> Option<Fault>,
    headline: impl Fn(&str) -> String,
) -> Outcome {
    let mut seen = 0;
    let mut kernels = Vec::new();
    for (index, kernel) in profile.kernels.iter().enumerate().filter(|(_, kernel)| kernel.launches.ran() > 0)
    {
        let Some(geometry) = &kernel.geometry else { continue };
        seen += 1;
        let sms = multiprocessors(profile, kernel);
        // A block that the code requires is the compiler's choice.
        let is_possible = |fault: &Fault| fault.threads.is_none() || !kernel.requires_block;
        if let Some(fault) = fault(Subject { kernel, geometry, sms, profile }).filter(is_possible) {
            kernels.push(kernel_finding(profile, index, fault));
        }
    }
    if seen == 0 && profile.totals.kernels_run() > 0 {
        return Outcome::Unjudged("attributes and device of the kernels are unknown".to_owned());
    }
    if kernels.is_empty() {
        return Outcome::Clear;
    }
    Outcome::found(about_kernels(profile, kernels, confidence, headline))
}

/// Multiprocessors that a kernel's device has at least; 0 if unknown.
pub(crate) fn multiprocessors(profile: &Profile, kernel: &Kernel) -> u32 {
    match kernel.device.and_then(|device| profile.devices.get(device)) {
        Some(_) if profile.on_cpu_device() => LEAST_SMS,
        device => device.map_or(0, |device| device.sms),
    }
}

/// As [`judge_kernels`], about kernels whose instructions and transactions were counted. How sure a
/// finding is follows from that: what the counts cost a GPU is not known.
pub(crate) fn judge_counts(
    profile: &Profile,
    fault: impl Fn(Subject<'_>, &KernelCounts) -> Option<Fault>,
    headline: impl Fn(&str) -> String,
) -> Outcome {
    if profile.kernels.iter().all(|kernel| kernel.counts.is_none()) && profile.totals.kernels_run() > 0 {
        return Outcome::Unjudged("nothing was counted; `apex run --device cpu` counts".to_owned());
    }
    let confidence = confidence(
        Level::Medium,
        "counted by the CPU device, exactly or from a sample of a long launch; the cost on a GPU depends on \
            what limits the kernel",
    );
    let counted = |subject: Subject<'_>| fault(subject, subject.kernel.counts.as_ref()?);
    judge_kernels(profile, confidence, counted, headline)
}

/// A draft about `kernels`. The time that the change saves decides their order, then their share of
/// the counted work, then their launches.
pub(crate) fn about_kernels(
    profile: &Profile,
    mut kernels: Vec<KernelFinding>,
    confidence: Confidence,
    headline: impl Fn(&str) -> String,
) -> Draft {
    let work = profile.counted_shares();
    // Times of the CPU device decide nothing.
    let saved = |finding: &KernelFinding| match finding.saving.time_ns {
        Some(time) if !profile.on_cpu_device() => time.value,
        _ => 0.0,
    };
    kernels.order_by(|a, b| {
        saved(b)
            .total_cmp(&saved(a))
            .then(work[b.kernel].total_cmp(&work[a.kernel]))
            .then(b.launches.cmp(&a.launches))
            .then(a.kernel.cmp(&b.kernel))
    });
    let launches = kernels.iter().map(|finding| finding.launches).saturating_sum();
    let launched = counted(launches, "launch", "launches");
    let share = match profile.counted_part(kernels.iter().map(|finding| finding.kernel)) {
        None => format!(
            "{} of all launches",
            percent(launches as f64 / profile.totals.kernels_run().max(1) as f64)
        ),
        Some((share, what)) => format!("{} of the {what}", percent(share)),
    };
    let who = match &kernels[..] {
        [one] => format!("`{}` ({launched}, {share})", one.name),
        many => format!("{} kernels ({launched}, {share})", many.len()),
    };
    let change = kernels.first().map(|first| match kernels.len() - 1 {
        0 => first.change.clone(),
        others => format!("`{}`: {}{}", first.name, first.change, likewise(others)),
    });
    Draft {
        summary: headline(&who),
        evidence: Vec::new(),
        kernels,
        change,
        saving: Saving::default(),
        confidence,
    }
}

/// The end of a change that is stated for the first of several kernels.
fn likewise(others: usize) -> String {
    format!("; likewise {}", counted(others as u64, "other", "others"))
}

/// The end of a change that its short form keeps: what the finding claims is of all kernels.
fn suffix<'c>(change: &'c str, kernels: &[KernelFinding]) -> &'c str {
    let others = kernels.len().saturating_sub(1);
    let end = change.len().saturating_sub(likewise(others).len());
    if others > 0 && change.ends_with(&likewise(others)) { &change[end..] } else { "" }
}

/// Makes the finding of `fault` for the kernel at `index`, with its saving in the job's time.
pub(crate) fn kernel_finding(profile: &Profile, index: usize, fault: Fault) -> KernelFinding {
    let kernel = &profile.kernels[index];
    let saving = match (fault.saves, kernel.gpu.map(|gpu| gpu.total_ns)) {
        (Err(because), _) => Saving { unknown_because: Some(because.to_owned()), ..Saving::default() },
        (Ok(local), Some(time)) => Saving {
            of_kernel: Some(local),
            ..job_saving(profile, local.part_of(time).scaled(on_the_clock(profile)))
        },
        (Ok(local), None) => Saving {
            of_kernel: Some(local),
            unknown_because: Some("the kernel was not timed".to_owned()),
            ..Saving::default()
        },
    };
    KernelFinding {
        kernel: index,
        name: kernel.short_name.clone(),
        configuration: kernel.launch.to_string(),
        launches: kernel.launches.ran(),
        evidence: fault.evidence,
        change: language::in_words_of(kernel, fault.change),
        saving,
        to: fault
            .threads
            .and_then(|threads| in_blocks_of(kernel, threads))
            .map(|LaunchConfig { grid, block, .. }| Configuration { grid, block }),
        what_if: None,
    }
}

/// Returns the launch of a kernel with the same threads in blocks of `threads`
/// ([`LaunchConfig::with_block`]). Only a block in one dimension has one: the arrangement of
/// threads in more dimensions is the kernel's affair.
pub(crate) fn in_blocks_of(kernel: &Kernel, threads: u32) -> Option<LaunchConfig> {
    kernel.launch.block.is_one_dimensional().then(|| kernel.launch.with_block(threads.into()))?
}

/// Time on the clock for each unit of GPU time: 1, or less where kernels overlap, so that together
/// they take more GPU time than passes while the device is busy.
pub(crate) fn on_the_clock(profile: &Profile) -> f64 {
    let summed = profile.totals.gpu_time_ns.map_or(0.0, |time| time.value);
    let busy = total(
        profile
            .activities
            .iter()
            .map(|activity| activity.span_ns * (1.0 - activity.idle_share.map_or(0.0, |share| share.value))),
    );
    if profile.activities.is_empty() || summed <= busy { 1.0 } else { busy / summed }
}

/// A saving of at most so much, of which nothing is sure.
pub(crate) fn up_to(most: f64) -> Figure {
    Figure::predicted(most, (0.0, most))
}

/// A saving of so much time, and the share of the job that it is.
pub(crate) fn job_saving(profile: &Profile, time_ns: Figure) -> Saving {
    let span = profile.totals.span_ns;
    Saving {
        time_ns: Some(time_ns),
        of_job: (span > 0.0).then(|| time_ns.scaled(1.0 / span)),
        ..Saving::default()
    }
}

pub(crate) fn confidence(level: Level, reason: impl Into<String>) -> Confidence {
    Confidence { level, reason: reason.into() }
}

/// Bytes of a sector.
pub(crate) const SECTOR: f64 = 32.0;

/// The reason why nothing is judged if no launch was timed.
pub(crate) const UNTIMED: &str = "no launch was timed: record with --timing sampled or all";

/// The reason why rules about the host's side that depend on times do not judge a run on the CPU
/// device.
pub(crate) const CPU_TIMES: &str = "times of the CPU device say nothing about when a GPU waits for the host";

/// The reason why rules that depend on times do not judge a session that does not name its device.
pub(crate) const NO_CALLS: &str = "no call of the host was recorded";
pub(crate) const UNKNOWN_DEVICE: &str =
    "the session does not name the device, so that its times may be the CPU device's";

/// The reason why rules about the number of multiprocessors do not judge a run on the CPU device.
pub(crate) const CPU_MULTIPROCESSORS: &str =
    "the multiprocessors of the CPU device are the host's processors, not a GPU's";

/// Multiprocessors of the smallest GPU that a program recorded on the CPU device is assumed to be
/// for: a Jetson Orin Nano has 8, an H200 132.
pub(crate) const LEAST_SMS: u32 = 8;

/// ` took 3.1 ms of CPU time`: what calls cost the host. Empty on the CPU device, where calls take
/// as long as the kernels that the host executes for them.
pub(crate) fn cost_of_calls(profile: &Profile, before: &str, spent_ns: f64, after: &str) -> String {
    if profile.on_cpu_device() { String::new() } else { format!("{before}{}{after}", time(spent_ns)) }
}

/// The reason why the saving of a finding on the CPU device is unknown.
pub(crate) const CPU_SAVING: &str = "times of the CPU device say nothing about a GPU's";

/// The reason why idle time is not judged if too few launches were timed.
pub(crate) const NOT_MODELLED: &str =
    "too few launches were timed to know when the device is idle: record with --timing all, or for longer";

/// The idle time of all devices by what the host did meanwhile, nanoseconds; empty where nothing
/// was modelled.
pub(crate) fn idle_by_cause(profile: &Profile) -> BTreeMap<IdleCause, f64> {
    let mut sums = BTreeMap::new();
    for (&cause, idle) in profile.activities.iter().flat_map(|activity| &activity.idle_by) {
        *sums.entry(cause).or_default() += idle;
    }
    sums
}

/// The share of the idle time in which the host was sampled. The rest counts neither for nor
/// against a function. 1 if all or none of it was sampled.
pub(crate) fn sampled_part(profile: &Profile) -> f64 {
    let samples = profile.activities.iter().flat_map(|activity| &activity.host_samples);
    let sampled = total(samples.map(|samples| samples.sampled_ns));
    let part = sampled / profile.accounts().idle_ns().value.max(1.0);
    if part > 0.0 { part.min(1.0) } else { 1.0 }
}

/// The idle time of all devices that passes while the host does any of this; `None` unless all of
/// it was modelled.
pub(crate) fn idle_during(profile: &Profile, causes: &[IdleCause]) -> Option<Figure> {
    let modelled = profile.activities.iter().all(|activity| activity.idle_share.is_some());
    let of = |activity: &Activity| {
        let idle = causes.iter().filter_map(|cause| activity.idle_by.get(cause).copied());
        activity.idle_part(total(idle))
    };
    Figure::sum(profile.activities.iter().map(of)).filter(|_| modelled)
}

/// Idle time in pauses of the host, nanoseconds, without long gaps; 0 if idle time was not
/// modelled.
pub(crate) fn in_pauses(activity: &Activity) -> f64 {
    let of = |gap: &Gap| gap.by.get(&IdleCause::HostCode).copied().unwrap_or(0.0);
    let paused = activity.idle_share.map_or(0.0, |_| activity.accounts.pauses.time.value);
    (paused - total(activity.gaps.iter().map(of))).max(0.0)
}

/// Time of all devices in one of their accounts, nanoseconds.
pub(crate) fn account(profile: &Profile, of: impl Fn(&Accounts) -> Figure) -> Figure {
    Figure::sum(profile.activities.iter().map(|activity| of(&activity.accounts))).unwrap_or_default()
}

/// Idle time that a launch costs beside the kernel's own: in launch calls and the program's code
/// between them. A change that makes a share of the launches needless saves this share of it.
pub(crate) const AROUND_LAUNCHES: &[IdleCause] = &[IdleCause::Launching, IdleCause::HostCode];

/// The part of the time in copies ([`Accounts::copies`]) that copies of this sort take.
pub(crate) fn copying(profile: &Profile, of: impl Fn(&Copies) -> bool) -> Figure {
    copies_part(profile, queued_ns(profile, of))
}

/// The part of the time in copies that fills take: the account has both.
pub(crate) fn setting(profile: &Profile) -> Figure {
    copies_part(profile, profile.time_of_sets().value)
}

/// The part of the time in copies that belongs to transfers of this duration, in nanoseconds.
fn copies_part(profile: &Profile, taken_ns: f64) -> Figure {
    let all_ns = queued_ns(profile, |_| true) + profile.time_of_sets().value;
    account(profile, |accounts| accounts.copies).scaled(taken_ns / all_ns.max(1.0))
}

/// The duration of queued copies of this sort, one after the other, in nanoseconds.
fn queued_ns(profile: &Profile, of: impl Fn(&Copies) -> bool) -> f64 {
    let queued = profile.copies.iter().filter(|copy| !copy.wait() && of(copy));
    total(queued.map(|copy| profile.time_of_copies(copy).value))
}

/// Whether most launches are of kernels that XLA made.
pub(crate) fn is_mostly_xla(profile: &Profile) -> bool {
    let of_xla = profile.kernels.iter().filter(|kernel| kernel.traits.owner == Owner::Xla);
    let launches = of_xla.map(|kernel| kernel.launches.ran()).saturating_sum();
    2 * launches >= profile.totals.kernels_run().max(1)
}

/// The setting by which JAX keeps compiled functions and measurements of XLA for the next run.
pub(crate) const JAX_CACHE: &str = "JAX keeps compiled functions for the next run only in a persistent compilation \
    cache: jax.config.update(\"jax_compilation_cache_dir\", DIR), and \
    jax_persistent_cache_min_compile_time_secs = 0 for those that compile in less than 1 s";

/// Returns the setting by which a program that compiles at run time keeps the results for its next
/// run; `None` if no kernel shows a compiler.
pub(crate) fn compilation_cache(profile: &Profile) -> Option<&'static str> {
    let is_by = |owner| move |kernel: &Kernel| kernel.launches.ran() > 0 && kernel.traits.owner == owner;
    if is_mostly_xla(profile) {
        Some(JAX_CACHE)
    } else if profile.kernels.iter().any(is_by(Owner::Inductor)) {
        Some(
            "torch.compile keeps compiled graphs for the next run in the system's temporary folder: set \
                TORCHINDUCTOR_CACHE_DIR if that is lost between runs, as in a container",
        )
    } else {
        None
    }
}

/// Share of the launch calls that these kernels are.
pub(crate) fn share_of_launches<'a>(profile: &Profile, kernels: impl IntoIterator<Item = &'a Kernel>) -> f64 {
    let calls: f64 = kernels.into_iter().map(|kernel| kernel.launches.calls as f64).sum();
    (calls / profile.totals.launches.max(1) as f64).min(1.0)
}

/// Idle time that goes with this share of the launches; `None` where there is none, or nothing was
/// modelled.
pub(crate) fn idle_around_launches(profile: &Profile, share: Figure) -> Option<Figure> {
    let idle = idle_during(profile, AROUND_LAUNCHES)?;
    Some(share.part_of(idle)).filter(|idle| idle.value > 0.0)
}

/// Returns the time of a call that only queues work in this session, in nanoseconds: the median
/// launch call of the kernel launched most often; 0 without launches.
pub(crate) fn typical_launch_call(profile: &Profile) -> f64 {
    profile
        .kernels
        .iter()
        .max_by_key(|kernel| kernel.launches.calls)
        .map_or(0.0, |kernel| kernel.cpu.median_ns)
}

#[cfg(test)]
mod tests;
