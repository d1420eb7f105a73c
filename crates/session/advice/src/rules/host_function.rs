//! Functions of the host that the device waits for, named by samples of the host's call stacks.
//!
//! The samples of a place are summed over all idle time, however short its stretches are: a
//! function of 100 µs that each step calls ten times costs as much as one of 1 ms. What launching
//! explains of it ([`launching`]) is no work of the place.

mod launching;

use apex_ordered::Order;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    AROUND_LAUNCHES, Draft, NOT_MODELLED, Needs, Outcome, Rule, compilation_cache, confidence, host_bound,
    job_saving, percent, reread,
};
use crate::finding::{Evidence, Finding, Level, Observed, Saving, Scope, Severity, Unit};
use crate::rules::known::cause_of_statement;
use crate::rules::loops;
use apex_knowledge::{Cause, Knowledge};
use apex_profile::{
    Activity, Figure, Frame, HostFrame, HostState, IdleCause, IdlePlace, IdleSamples, Other, Profile,
};
use launching::Queued;

/// The reason why nothing is judged in a session that has no samples.
const NOT_SAMPLED: &str = "the session has no samples of the host's call stacks while the device was idle";
/// Minimum share of the time in pauses for the first place to be a finding …
const LEAST: f64 = 0.1;
/// … or of the time in its function, pauses or not, of which this is the lower end of the interval
/// at least …
const SUMMED: f64 = 0.2;
const SURELY: f64 = 0.1;
/// … and for each further one to be named with it.
const NAMED: f64 = 0.02;
/// Places that are named.
const MOST: usize = 5;
/// Minimum samples at the first place: fewer may be chance.
pub(super) const SAMPLES: f64 = 10.0;
/// Share of a place's samples for a function below it to be named.
const MOSTLY: f64 = 0.6;
/// Priority of causes whose statements may stand beside a call of a library.
const PLAIN: i64 = 1;
/// Share of the time of a more general finding that named functions must explain to replace it.
const EXPLAINED: f64 = 0.5;

/// The beginnings of names of functions that import modules, that compile, and that save.
const IMPORTS: [&str; 1] = ["importlib._bootstrap"];
const COMPILES: [&str; 12] = [
    "torch._dynamo.convert_frame",
    "torch._inductor.compile_fx",
    "jax._src.compiler.",
    "jax._src.interpreters.mlir.",
    "jax._src.interpreters.partial_eval.trace_to_jaxpr",
    "triton.compiler.compiler.compile",
    "triton.runtime.autotuner.",
    "cupy.cuda.compiler.",
    "numba.core.compiler.",
    "numba.cuda.compiler.",
    "nvrtcCompileProgram",
    "tensorflow.python.eager.polymorphic_function.tracing_compilation",
];
const SAVES: [&str; 4] = [
    "torch.serialization.save",
    "torch.serialization._save",
    "torch.distributed.checkpoint.",
    "safetensors.",
];

pub(super) const RULE: Rule = Rule {
    id: "APEX-T87",
    slug: "host-function",
    title: "Host function on the critical path",
    severity: Severity::High,
    scope: Scope::Host,
    needs: Needs::Times,
    parent: Some(host_bound::RULE.id),
    idle: &IdleCause::ALL,
    detects: "In at least 10 samples, the device is idle while the thread that it waits for is at one \
        place of the program: the innermost line that is not a library's, and the outermost function of a library that this \
        calls. Pauses of at least 1 ms there take at least 10% of the time; or all idle time in this function of the \
        program, outside of driver calls other than launches, takes at least 20% (at least 10% by its interval), without what launching explains: 40 µs and its call for \
        each launch or copy from that line, unless a line takes more than 100 µs for each. \
        Further places of at least 2% are named with the first. Needs samples of the host's call stacks.",
    source: "APEX; samples of the thread that launches next, with Wilson's 90% interval.",
    why: "The device has finished all queued work, and the thread that queues the next is elsewhere.",
    change: "Move the function off the critical path: call it less often, before the loop, or in a thread or process that \
        runs while the device works.",
    saving: "The idle time at the named places: at least half of it; at most also the other idle time and the copies, \
        because a host that is not held up runs ahead.",
    verify: "the idle time at these places decreases, and the run time decreases",
    judge,
};

fn judge(profile: &Profile) -> Outcome {
    if profile.activities.is_empty() {
        return Outcome::Clear;
    }
    if profile.host_stacks.is_empty() {
        let lost = profile.host_sampling.as_ref().and_then(|sampling| sampling.lost.first());
        return Outcome::Unjudged(lost.cloned().unwrap_or_else(|| NOT_SAMPLED.to_owned()));
    }
    if profile.activities.iter().all(|activity| activity.idle_share.is_none()) {
        return Outcome::Unjudged(NOT_MODELLED.to_owned());
    }
    let span = profile.totals.span_ns.max(1.0);
    let places = work_of_places(profile, span);
    let Some(first) = places.first().filter(|first| first.is_cause) else { return Outcome::Clear };
    let time = Figure::sum(places.iter().map(|place| place.time)).unwrap_or_default();
    let (low, high) = time.bounds();
    let evidence = |Work { place, time, .. }: &Work<'_>| {
        Evidence::new(format!("idle at {place}"), time.scaled(1.0 / span).at_most(1.0), Unit::Share)
            .decrease_towards(0.0)
    };
    let knowledge = Knowledge::current();
    let known = cause_of_place(profile, &knowledge, &first.place);
    let meaning = known.map_or_else(String::new, |(cause, _)| format!("; {}", cause.meaning));
    let within = mostly_within(&first.place).map_or_else(String::new, |within| format!(", {within}"));
    Outcome::found(Draft {
        summary: format!(
            "the GPU waits {} {} while {}{within}{meaning}",
            percent(first.time.value / span),
            of_what(profile),
            seen(&first.place)
        ),
        evidence: places.iter().map(evidence).collect(),
        kernels: Vec::new(),
        change: Some(match (known, written_at(&first.place)) {
            (Some((_, remedy)), Some(line)) => format!("{}: {remedy}", place_of(line)),
            _ => change(profile, &first.place),
        }),
        saving: Saving {
            observed: Some(Observed { time_ns: first.time, doing: seen(&first.place) }),
            beyond: Some(Figure::predicted(0.0, (0.0, host_bound::behind_it(profile)))),
            ..job_saving(profile, Figure::predicted(time.value, (low / 2.0, high.min(span))))
        },
        confidence: confidence(
            Level::Medium,
            "sampled call stacks name the function; it is unknown how much of it can overlap with the device's work",
        ),
    })
}

/// The host's work at a place, beside launching.
struct Work<'p> {
    place: IdlePlace<'p>,
    /// Idle time that launching does not explain, nanoseconds.
    time: Figure,
    /// Whether the place alone is a finding.
    is_cause: bool,
}

/// The places that are named, the first one the cause if any is.
fn work_of_places(profile: &Profile, span: f64) -> Vec<Work<'_>> {
    let queued = Queued::of(profile);
    // Where launching takes so long that it explains nothing, all idle time counts.
    let is_slow = profile.activities.iter().all(host_bound::is_slow);
    let work = |place: &IdlePlace<'_>| {
        let apart = if is_slow { place.time } else { place.in_pauses };
        let own = queued.as_ref().map_or(apart, |queued| queued.own_work(place));
        (apart, if own.value > apart.value { own } else { apart })
    };
    let places = profile.idle_places(is_of_code).into_iter().filter(is_known);
    let of_places: Vec<_> = places.map(|place| (work(&place), place)).collect();
    let mut of_functions: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    for ((_, time), place) in &of_places {
        let (sum, low) = of_functions.entry(function_of(place)).or_default();
        (*sum, *low) = (*sum + time.value, *low + time.bounds().0);
    }
    let mut named: Vec<Work<'_>> = Vec::new();
    for ((apart, time), place) in of_places.iter().filter(|((_, time), _)| time.value >= NAMED * span) {
        let (sum, low) = of_functions[&function_of(place)];
        let is_summed = sum >= SUMMED * span && low >= SURELY * span && time.value >= LEAST * span;
        let is_cause = (apart.value >= LEAST * span || is_summed) && is_sampled(place, *time, profile);
        named.push(Work { place: place.clone(), time: *time, is_cause });
    }
    // Imports are of the start-up, where the run has no steps.
    named.order_by(|a, b| {
        let last = |work: &Work<'_>| (Kind::of(&work.place) == Kind::Import, !work.is_cause);
        last(a).cmp(&last(b)).then(b.time.value.total_cmp(&a.time.value))
    });
    named.truncate(MOST);
    named
}

/// Idle time that other rules do not explain by a driver call: short waits for allocations or
/// copies are theirs.
fn is_of_code(activity: &Activity, samples: &IdleSamples) -> bool {
    samples.is_pause || host_bound::is_slow(activity) || AROUND_LAUNCHES.contains(&samples.cause)
}

/// The function of the user's at a place; of a library where it has none.
fn function_of<'p>(place: &IdlePlace<'p>) -> Option<(&'p str, &'p str)> {
    let frame = &place.user.or(place.library)?.frame;
    Some((&frame.file, &frame.function))
}

/// Whether a function is known.
fn is_known(place: &IdlePlace<'_>) -> bool {
    place.user.is_some() || place.library.is_some()
}

/// Whether there are enough samples of this time at a place.
fn is_sampled(place: &IdlePlace<'_>, time: Figure, profile: &Profile) -> bool {
    samples_of(profile, place.time.samples, time) >= SAMPLES
}

/// How many of so many samples are those of a part of the idle time.
pub(super) fn samples_of(profile: &Profile, read: u64, time: Figure) -> f64 {
    let groups = profile.activities.iter().flat_map(|activity| &activity.host_samples);
    let sampled: f64 = groups.map(|samples| samples.sampled_ns).sum();
    read as f64 * (time.value / sampled.max(1.0))
}

pub(super) fn of_what(profile: &Profile) -> &'static str {
    if profile.steps().is_some() { "of each step" } else { "of the time" }
}

/// The places where the host is for most of some idle time, with their shares of it: "`f`, called
/// from train.py:41 main (61%)"; `None` without samples of it.
pub(super) fn mostly_at(
    profile: &Profile,
    is_meant: impl Fn(&Activity, &IdleSamples) -> bool,
) -> Option<String> {
    let places = profile.idle_places(is_meant);
    let all: f64 = places.iter().map(|place| place.time.value).sum();
    let shares = places.iter().map(|place| (place, place.time.value / all.max(1.0)));
    let named: Vec<String> = shares
        .filter(|(place, share)| *share >= LEAST && is_known(place))
        .take(2)
        .map(|(place, share)| format!("{place} ({})", percent(share)))
        .collect();
    (!named.is_empty()).then(|| named.join("; "))
}

/// The kind of work at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Another thread holds the interpreter's lock.
    Gil,
    /// Processes that the program started are to bring data.
    Workers,
    /// Another thread of the process runs meanwhile.
    Thread,
    Compile,
    Save,
    Import,
    Sleep,
    Code,
}

impl Kind {
    fn of(place: &IdlePlace<'_>) -> Self {
        let is_in = |names: &'static [&'static str]| {
            let is_named = move |frame: &HostFrame| {
                let name = frame.qualified_name();
                names.iter().any(|start| name.starts_with(start))
            };
            place.is_mostly_in(is_named)
        };
        let other = place.other.map(|(other, _)| other);
        match place.state {
            HostState::WaitsForGil => Self::Gil,
            _ if is_in(&COMPILES) => Self::Compile,
            _ if is_in(&SAVES) => Self::Save,
            _ if is_in(&IMPORTS) => Self::Import,
            HostState::Sleeps => Self::Sleep,
            HostState::Running => Self::Code,
            _ if other == Some(Other::Worker) => Self::Workers,
            _ if place.is_of_other => Self::Code,
            _ if other == Some(Other::Thread) => Self::Thread,
            _ => Self::Code,
        }
    }
}

/// Describes the host's activity at a place, as the end of "the GPU waits while …".
fn seen(place: &IdlePlace<'_>) -> String {
    let other = place.other.and_then(|(_, stack)| Some((stack, stack.place()?)));
    match (place.state, other) {
        (HostState::Running, _) => format!("the host runs {place}"),
        (_, Some((stack, _))) if place.is_of_other => {
            format!("thread `{}` runs {place}, for which the launching thread waits", stack.thread)
        }
        (HostState::WaitsForGil, Some((stack, at))) => format!(
            "{place} waits for the interpreter's lock (GIL), which thread `{}` holds in {at}",
            stack.thread
        ),
        (state, Some((stack, at))) if state != HostState::WaitsForGil => {
            let who = match place.other {
                Some((Other::Worker, _)) => format!("process `{}`", stack.process),
                _ => format!("thread `{}`", stack.thread),
            };
            format!("the host {} in {place}; meanwhile {who} runs {at}", state.in_words())
        }
        (state, _) => format!("the host {} in {place}", state.in_words()),
    }
}

/// The function that is to leave the critical path: that of the library, else the user's.
fn subject(place: &IdlePlace<'_>) -> String {
    let line = place.user.map(|user| user.frame.to_string());
    match (place.library.map(HostFrame::qualified_name), line) {
        (Some(library), Some(line)) => format!("`{library}` ({line})"),
        (Some(library), None) => format!("`{library}`"),
        (None, line) => line.unwrap_or_else(|| "this code".into()),
    }
}

fn change(profile: &Profile, place: &IdlePlace<'_>) -> String {
    let what = subject(place);
    let other = place.other.and_then(|(_, stack)| stack.place());
    let other = other.unwrap_or_else(|| "its work".into());
    match Kind::of(place) {
        Kind::Gil => format!(
            "Run {other} in another process (multiprocessing), or in code that releases the lock: a thread of Python \
                code stops the one that launches for up to 5 ms each time (sys.setswitchinterval)"
        ),
        Kind::Workers => format!(
            "Use more worker processes (DataLoader(num_workers=…)), or make their work cheaper: they run {other}"
        ),
        Kind::Thread => format!("Make what the launching thread waits for shorter: {other}"),
        Kind::Compile => {
            let cache = compilation_cache(profile).map_or_else(String::new, |cache| format!(". {cache}"));
            let what = place.user.map_or(what, |user| format!("what {} calls", user.frame));
            format!(
                "Compile {what} once: keep shapes, and numbers that compiled code contains, the same from step to step \
                    (pad shapes, mark them dynamic, pass numbers as tensors or arguments){cache}"
            )
        }
        Kind::Save => format!(
            "Save less often, or in the background: {what} holds up the launches. Copy the state to host memory and \
                write it in another thread (torch.distributed.checkpoint.async_save)"
        ),
        Kind::Import => format!("Import modules before the loop: {what}"),
        Kind::Sleep => format!("Wait for an event instead of sleeping in {what}"),
        Kind::Code => {
            let cheaper = cheaper(profile, place);
            if let Some(read) = place.user.and_then(|user| reread::change(profile, &user.frame)) {
                return format!("{read}. Otherwise move {what} off the critical path. {cheaper}");
            }
            match host_bound::reason(profile) {
                Some(change) => {
                    format!("Move {what} off the critical path. {}. {cheaper}", change.trim_end_matches('.'))
                }
                None => format!(
                    "Move {what} off the critical path: call it less often, before the loop, or in a thread or process \
                        that runs while the device works. {cheaper}"
                ),
            }
        }
    }
}

/// A way in which code of the host may take less time, by whose code it is.
fn cheaper(profile: &Profile, place: &IdlePlace<'_>) -> String {
    let is_python = |user: &HostFrame| user.frame.file.ends_with(".py");
    let around = place.user.and_then(|user| loops::around_line(profile, &user.frame));
    match (place.library, place.user, around) {
        (None, Some(user), Some(around)) if is_python(user) => format!(
            "Write {around} as one expression over all its elements (arrays of NumPy or of the device), or do it once                 before the steps"
        ),
        (None, Some(user), None) if is_python(user) => {
            "If it goes through elements one by one, let one call work on all of them (arrays of NumPy or of the device)"
                .into()
        }
        (None, ..) => "If it does the same in each step, keep what it made".into(),
        (Some(_), ..) => "If its input is the same in each step, call it once and keep the result".into(),
    }
}

/// The innermost function of a library in which most samples of a place are, where that is another
/// one than the place names: "mostly in `torch.nn.functional.pad` (83%)".
fn mostly_within(place: &IdlePlace<'_>) -> Option<String> {
    let named = place.library?;
    let (stack, _) = place.stacks.iter().max_by_key(|(_, samples)| *samples)?;
    let is_same = |a: &HostFrame, b: &HostFrame| {
        (&a.frame.file, &a.frame.function) == (&b.frame.file, &b.frame.function)
    };
    let called = stack.frames.iter().take_while(|frame| !is_same(frame, named));
    let share =
        |of: &HostFrame| place.share_of_samples(|stack| stack.frames.iter().any(|frame| is_same(frame, of)));
    let mut deep = called.filter(|frame| frame.is_of_library() && !frame.frame.function.is_empty());
    let found = deep.find(|frame| share(frame) >= MOSTLY)?;
    Some(format!("mostly in `{}` ({})", found.qualified_name(), percent(share(found))))
}

/// The line of the program that the time of a place passes at: in the process or thread that works
/// meanwhile, if one does.
fn written_at<'p>(place: &IdlePlace<'p>) -> Option<&'p Frame> {
    let of_other = place.other.filter(|_| Kind::of(place) == Kind::Workers).map(|(_, stack)| stack);
    let worker = of_other.and_then(|stack| stack.frames.iter().find(|frame| !frame.is_of_library()));
    worker.or(place.user).map(|frame| &frame.frame)
}

/// `train.py:48`
fn place_of(line: &Frame) -> String {
    let name = line.file.rsplit('/').next().unwrap_or(&line.file);
    line.line.map_or_else(|| name.to_owned(), |number| format!("{name}:{number}"))
}

/// The known cause of the statement at a place, with its remedy. What other threads hold up, and
/// what compiles, saves or imports, has a remedy of its own.
fn cause_of_place<'k>(
    profile: &Profile,
    knowledge: &'k Arc<Knowledge>,
    place: &IdlePlace<'_>,
) -> Option<(&'k Cause, &'k str)> {
    if !matches!(Kind::of(place), Kind::Code | Kind::Sleep | Kind::Workers) {
        return None;
    }
    let line = written_at(place)?;
    let quote = profile.quote(line)?;
    // A library's function says more than what is written around it.
    let least = if place.library.is_some() { PLAIN + 1 } else { i64::MIN };
    let is_about_it = |cause: &Cause| {
        cause.priority >= least && (cause.names_host_line(quote) || cause.names_wait_line(quote))
    };
    cause_of_statement(profile, knowledge, &line.file, is_about_it).or_else(|| {
        // What the statement calls, whose frames samples may miss.
        let called = profile.statements_called(&line.file, quote);
        cause_of_statement(profile, knowledge, &line.file, |cause| {
            cause.priority >= OF_CALLED
                && called.iter().any(|(_, statement)| cause.names_host_line(statement))
        })
    })
}

/// Minimum priority of causes that statements of functions which a line calls are compared with.
const OF_CALLED: i64 = 4;

/// Removes findings that say no more than that the device waits for the host, where named functions
/// explain most of what they promise.
pub(crate) fn drop_waits(findings: &mut Vec<Finding>) {
    let time = |finding: &Finding| finding.saving.time_ns.map_or(0.0, |time| time.value);
    let Some(explained) = findings.iter().find(|finding| finding.rule == RULE.id).map(time) else { return };
    let general = [host_bound::RULE.id, super::gpu_gap::RULE.id];
    findings
        .retain(|finding| !general.contains(&finding.rule.as_str()) || explained < EXPLAINED * time(finding));
}
