//! Causes that are known by name ([`apex_knowledge`]), joined with a profile.
//!
//! Each rule here reports the known cause that costs most; its finding has the title, the remedy
//! and the check of that cause. What it claims is a share of time that was spent there: GPU time of
//! the matched kernels, CPU time of the matched calls, idle time of the device that goes with them,
//! or idle time in which samples found the host in a function. So a cause that matches and costs
//! little stands below the one that dominates.

mod calls;
mod host;
mod kernels;
mod launches;
mod rows;
mod variables;

use apex_ordered::Order;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Draft, NOT_MODELLED, Outcome, account, idle_during, job_saving};
use crate::finding::Saving;
use apex_knowledge::{Cause, Claims, Framework, Kernel as Names, Knowledge, Saves};
use apex_profile::{Activity, CallStack, Figure, Frame, IdleCause, Kernel, Profile, Site, StackCount, total};

pub(super) use calls::RULE as CALLS;
pub(super) use kernels::RULE as KERNELS;
pub(super) use variables::RULE as VARIABLES;

/// Least share of the job that a known cause saves to be reported.
const LEAST: f64 = 0.02;
/// Maximum share of the kernels' time that goes with memory which is mapped anew. A step of
/// testing/corpus/cuda/scratch_fields.cu took 0.73 ms without, of which all kernels are a part, and
/// its kernels 0.96 ms with it (an H200).
const FRESH: f64 = 0.25;
/// Causes that a finding names beside its own, at most.
const OTHERS: usize = 3;

/// A cause that matches.
struct Known<'k> {
    cause: &'k Cause,
    remedy: &'k str,
    /// With a change of its own where the remedy depends on the profile.
    draft: Draft,
    /// The likely saving, in nanoseconds; `None` if it is unknown.
    saves_ns: Option<f64>,
}

/// The outcome of a rule: the cause that saves most. The summary names the others.
fn outcome(mut found: Vec<Known<'_>>) -> Outcome {
    let saves = |known: &Known<'_>| known.saves_ns.unwrap_or(0.0);
    found.order_by(|a, b| saves(b).total_cmp(&saves(a)).then(b.cause.priority.cmp(&a.cause.priority)));
    let mut found = found.into_iter();
    let Some(Known { cause, remedy, draft, .. }) = found.next() else { return Outcome::Clear };
    let others: Vec<String> = found.take(OTHERS).map(|known| format!("“{}”", known.cause.title)).collect();
    let also = match &others[..] {
        [] => String::new(),
        others => format!("; also found: {}", others.join(", ")),
    };
    let summary = format!("{}{also}", draft.summary);
    let change = draft.change.or_else(|| Some(remedy.to_owned()));
    let draft = Draft { summary, change, ..draft };
    Outcome::Known(Box::new(draft), Box::new(cause.clone()))
}

/// The causes that have a remedy for this program, with it.
fn causes_for<'k>(
    profile: &Profile,
    knowledge: &'k Arc<Knowledge>,
) -> impl Iterator<Item = (&'k Cause, &'k str)> {
    let uses = frameworks(profile);
    knowledge.causes().iter().filter_map(move |cause| Some((cause, cause.remedy(|of| uses.contains(&of))?)))
}

/// Returns the change that a rule's case proposes for this program: `host-bound/input`.
pub(super) fn remedy_of_case(profile: &Profile, case: &str) -> Option<String> {
    let uses = frameworks(profile);
    Knowledge::current().remedy_of_rule(case, |of| uses.contains(&of)).map(str::to_owned)
}

/// Frameworks that a program uses.
pub(crate) type Frameworks = BTreeSet<Framework>;

/// Frameworks that the program uses: kernels and call stacks show them.
pub(crate) fn frameworks(profile: &Profile) -> Frameworks {
    let ran = profile.kernels.iter().filter(|kernel| kernel.launches.any());
    let owners = ran.filter_map(|kernel| Framework::of_owner(kernel.traits.owner));
    let frames = profile.call_stacks.iter().flat_map(|stack| &stack.frames);
    let mut uses: Frameworks =
        owners.chain(frames.filter_map(|frame| Framework::of_file(&frame.file))).collect();
    if uses.is_empty() {
        let frames = profile.host_stacks.iter().flat_map(|stack| &stack.frames);
        uses.extend(frames.filter_map(|frame| Framework::of_file(&frame.frame.file)));
    }
    if uses.is_empty() {
        uses.insert(Framework::Cuda);
    }
    if uses.contains(&Framework::Vllm) {
        // vLLM is written in PyTorch.
        uses.insert(Framework::PyTorch);
    }
    uses
}

/// Whether the stack has a function that this holds of.
fn has_function(stack: &CallStack, is_such: impl Fn(&str, &str) -> bool) -> bool {
    stack.frames.iter().chain(&stack.native).any(|frame| is_such(&frame.file, &frame.function))
}

/// Share of the stacks that go through a function of the cause: of the sampled ones, or of those
/// seen first if none was sampled. 1 for a cause that is about no function; `None` without stacks.
fn share_from(profile: &Profile, stacks: &[StackCount], cause: &Cause) -> Option<f64> {
    if cause.functions.is_empty() {
        return Some(1.0);
    }
    share_where(stacks, |count| {
        let stack = profile.call_stacks.get(count.stack);
        stack.is_some_and(|stack| has_function(stack, |file, function| cause.is_from(file, function)))
    })
}

/// Share of the stacks that are such ones: of the sampled ones, or of those seen first if none was
/// sampled; `None` without stacks.
pub(super) fn share_where(stacks: &[StackCount], is_such: impl Fn(&StackCount) -> bool) -> Option<f64> {
    let share = |weight: fn(&StackCount) -> u64| {
        let sum = |counts: &mut dyn Iterator<Item = &StackCount>| total(counts.map(|of| weight(of) as f64));
        let all = sum(&mut stacks.iter());
        (all > 0.0).then(|| sum(&mut stacks.iter().filter(|count| is_such(count))) / all)
    };
    share(|count| count.sampled).or_else(|| share(|count| count.first_seen))
}

/// Returns the saving of a cause on the host's side, out of the time that it claims; `matched` is
/// the CPU time of the matched calls, `during` the host's activity in them.
fn saving(profile: &Profile, cause: &Cause, matched: f64, during: &[IdleCause]) -> Saving {
    let idle = |of: &dyn Fn(IdleCause) -> bool| {
        let causes: Vec<IdleCause> = IdleCause::ALL.into_iter().filter(|cause| of(*cause)).collect();
        idle_during(profile, &causes).map(|idle| idle.value)
    };
    let claimed = match cause.claims {
        Claims::Matched => Some(matched),
        Claims::Gaps => Some(gaps(profile, during)),
        Claims::Idle => idle(&|cause| cause != IdleCause::Transferring),
        Claims::Launches => idle(&|cause| super::AROUND_LAUNCHES.contains(&cause)),
        Claims::Allocating => idle(&|cause| cause == IdleCause::Allocating),
        Claims::Releasing => idle(&|cause| matches!(cause, IdleCause::Allocating | IdleCause::Synchronising)),
        Claims::Loading => idle(&|cause| cause == IdleCause::Loading),
        Claims::Kernels | Claims::Collectives => return busy_saving(profile, cause),
        Claims::Unknown => None,
    };
    let shares = cause.saves;
    let figure =
        |time: f64| Figure::predicted(time * shares.likely, (time * shares.least, time * shares.most));
    match claimed {
        Some(time) => {
            let time = time.min(profile.totals.span_ns);
            let anew = match cause.claims {
                Claims::Releasing => FRESH * account(profile, |accounts| accounts.kernels).value,
                _ => 0.0,
            };
            let beyond = Figure::predicted(anew / 2.0, (0.0, runs_ahead(profile, time) + anew));
            Saving { beyond: Some(beyond), ..job_saving(profile, figure(time)) }
        }
        None => Saving { unknown_because: Some(NOT_MODELLED.to_owned()), ..Saving::default() },
    }
}

/// The most that a host saves beside the time that a cause claims, nanoseconds: the other idle
/// time, because a host that is not held up runs ahead of the device.
fn runs_ahead(profile: &Profile, claimed: f64) -> f64 {
    (profile.accounts().idle_ns().bounds().1 - claimed).max(0.0)
}

/// Returns the saving of a variable in the time in which the device is busy.
fn busy_saving(profile: &Profile, cause: &Cause) -> Saving {
    let claimed = match cause.claims {
        Claims::Collectives => account(profile, |accounts| accounts.collectives).value,
        _ => {
            let is_named = |kernel: &&Kernel| cause.kernels.is_empty() || cause.names_kernel(names(kernel));
            let kernels = profile.kernels.iter().filter(is_named);
            total(kernels.filter_map(Kernel::gpu_total_ns)) * super::on_the_clock(profile)
        }
    };
    let Saves { least, likely, most } = cause.saves;
    let busy = Figure::predicted(claimed * likely, (claimed * least, claimed * most));
    Saving { beyond: Some(busy), ..job_saving(profile, Figure::default()) }
}

/// Adds the GPU time of the kernels that disappear with a cause's host functions, because these
/// launch them, where the cause says so.
fn with_kernels(profile: &Profile, cause: &Cause, saving: Saving) -> Saving {
    if !cause.with_kernels {
        return saving;
    }
    let is_in = |stack: &CallStack| has_function(stack, |file, function| cause.names_host(file, function));
    let from = |count: &StackCount| profile.call_stacks.get(count.stack).is_some_and(is_in);
    let time = |kernel: &Kernel| Some(kernel.gpu_total_ns()? * share_where(&kernel.stacks, from)?);
    let time = total(profile.kernels.iter().filter_map(time)) * super::on_the_clock(profile);
    let Saves { least, likely, most } = cause.saves;
    let busy = Figure::predicted(time * likely, (time * least, time * most));
    Saving { beyond: Figure::sum(saving.beyond.into_iter().chain([busy])), ..saving }
}

fn names(kernel: &Kernel) -> Names<'_> {
    Names { name: &kernel.name, short_name: &kernel.short_name, traits: &kernel.traits }
}

/// Time of the long gaps in which the host does something of this, nanoseconds.
fn gaps(profile: &Profile, during: &[IdleCause]) -> f64 {
    let of = |activity: &Activity| {
        let length = |is_such: &dyn Fn(&apex_profile::Gap) -> bool| {
            let gaps = activity.gaps.iter().filter(|gap| is_such(gap));
            total(gaps.map(|gap| gap.duration_ns.value))
        };
        let does = |gap: &apex_profile::Gap| {
            during.iter().any(|cause| gap.by.get(cause).is_some_and(|time| *time > 0.0))
        };
        // Not all gaps are listed.
        length(&does) / length(&|_| true).max(1.0) * activity.long_gaps_ns
    };
    total(profile.activities.iter().map(of))
}

/// Returns the likely saving, busy time included, in nanoseconds; `None` if it is unknown.
fn likely_ns(saving: &Saving) -> Option<f64> {
    Some(saving.time_ns?.value + saving.beyond.map_or(0.0, |busy| busy.value))
}

/// Whether a cause with this saving is worth a finding.
fn is_worth(profile: &Profile, saving: &Saving) -> bool {
    likely_ns(saving).is_none_or(|time| time >= LEAST * profile.totals.span_ns)
}

/// Returns the change to make if at least half of the calls with these stacks come from one
/// function that is known to wait for the device.
pub(super) fn remedy_of_waits(profile: &Profile, stacks: &[StackCount]) -> Option<String> {
    let weight = |count: &StackCount| count.sampled.saturating_add(count.first_seen);
    let all: u64 = stacks.iter().map(weight).fold(0, u64::saturating_add);
    let knowledge = Knowledge::current();
    let waits = causes_for(profile, &knowledge).filter(|(cause, _)| !cause.waits.is_empty());
    let mut those_of_half = waits.filter(|(cause, _)| {
        let comes_from = |count: &&StackCount| {
            let stack = profile.call_stacks.get(count.stack);
            stack.is_some_and(|stack| has_function(stack, |file, name| cause.names_wait(file, name)))
        };
        let from = stacks.iter().filter(comes_from).map(weight).fold(0, u64::saturating_add);
        all > 0 && from.saturating_mul(2) >= all
    });
    those_of_half.next().map(|(_, remedy)| remedy.to_owned())
}

/// The first cause that is about a statement of the program in this file, with its remedy for this
/// program. Statements of causes are Python's: those of C++ may look like them (`gpu_open(`), and
/// are known only to causes with a remedy in that language.
pub(crate) fn cause_of_statement<'k>(
    profile: &Profile,
    knowledge: &'k Arc<Knowledge>,
    file: &str,
    is_about_it: impl Fn(&Cause) -> bool,
) -> Option<(&'k Cause, &'k str)> {
    let is_cpp = is_of_cpp(file);
    let is_told = |cause: &Cause| !is_cpp || cause.remedies.by_framework.contains_key(&Framework::Cuda);
    causes_for(profile, knowledge).find(|(cause, _)| is_told(cause) && is_about_it(cause))
}

/// Whether a file holds C, C++ or CUDA, by its name.
fn is_of_cpp(file: &str) -> bool {
    const ENDINGS: [&str; 14] =
        ["c", "cc", "cpp", "cxx", "cu", "cuh", "h", "hh", "hpp", "hxx", "inl", "inc", "tcc", "ipp"];
    file.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending))
}

/// Whether at least half of the time of these kernels, of a statement, is in operations that a cause
/// names; true for a cause that names none.
pub(crate) fn fits_operations(
    profile: &Profile,
    cause: &Cause,
    kernels: impl IntoIterator<Item = (usize, f64)>,
) -> bool {
    let (mut all, mut named) = (0.0, 0.0);
    for (row, time) in kernels {
        let Some(kernel) = profile.kernels.get(row) else { continue };
        all += time;
        named += if cause.operations.contains(&kernel.traits.operation) { time } else { 0.0 };
    }
    cause.operations.is_empty() || named >= 0.5 * all
}

/// Blocks of a kernel that handles one small element, at most.
const SMALL_BLOCKS: u64 = 8;

/// A known loop over elements at a line that makes so many waits: what it means, and what to
/// change. Most waits go with a small kernel of that loop, which is launched from the line.
pub(super) fn loop_at(profile: &Profile, line: &Frame, waits: f64) -> Option<(String, String)> {
    let is_from = |kernel: &&Kernel| {
        let is_line =
            |site: Site<'_>| matches!(site, Site::Line(of) | Site::Through { python: of, .. } if of == line);
        let is_small = kernel.has_configuration() && kernel.blocks() <= SMALL_BLOCKS;
        is_small
            && kernel.launches.ran() as f64 >= waits / 2.0
            && profile.sites(&kernel.stacks).first().is_some_and(|first| is_line(first.site))
    };
    let kernels: Vec<&Kernel> = profile.kernels.iter().filter(is_from).collect();
    let knowledge = Knowledge::current();
    let mut known = causes_for(profile, &knowledge)
        .filter(|(cause, _)| kernels.iter().any(|kernel| cause.names_loop(names(kernel))));
    known.next().map(|(cause, remedy)| (cause.meaning.clone(), remedy.to_owned()))
}

#[cfg(test)]
mod tests;
