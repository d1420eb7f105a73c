//! The host's samples as functions and as places: the functions that ran while devices were idle,
//! and the lines of the program that called them.
//!
//! A share is the ratio of samples, times the part of the idle time that was sampled. Its interval
//! is Wilson's 90% interval for a binomial proportion of as many samples. Samples come at jittered,
//! nearly regular times, which spread less than independent ones, so the interval is not too
//! narrow. Shares of an account and its unknown part add up to at most 1: self shares without those
//! of stacks whose innermost frame is not known.

use apex_ordered::{Gather, Order};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::telling::{self, Function, function_of};
use super::{Activity, Frame, HostFrame, HostStack, HostState, IdleSamples, IdleStack, Other, Profile};
use crate::accounts::IdleCause;
use crate::figure::{Figure, NINETY_PERCENT};

/// Minimum share of the samples for a function to be told.
const LEAST: f64 = 0.001;

/// Minimum share of a stack's samples that wait in a system call, for those that run to be in it.
const IN_CALL: f64 = 0.05;

/// The host's functions while devices were idle for one cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleFunctions {
    /// The account.
    pub cause: IdleCause,
    /// Its time, nanoseconds.
    pub idle_ns: Figure,
    /// Share of it without samples: what the host did is unknown.
    pub unknown_share: f64,
    /// Samples that were read.
    pub samples: u64,
    /// Functions, by total share.
    pub functions: Vec<IdleFunction>,
}

/// A function on the host's stacks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleFunction {
    /// The function, with the line of most samples.
    #[serde(flatten)]
    pub frame: HostFrame,
    /// Whether it belongs to an installed package, the standard library or the system.
    pub is_of_library: bool,
    /// Share of the account in which it was the innermost function.
    pub self_share: Figure,
    /// Share in which it was on the stack.
    pub total_share: Figure,
}

/// A place of the program at which the host was while devices were idle.
#[derive(Clone, Debug, PartialEq)]
pub struct IdlePlace<'p> {
    /// The innermost function that is not a library's; `None` where there is none.
    pub user: Option<&'p HostFrame>,
    /// The outermost function of a library that it calls and that tells something; of all
    /// functions, where there is no user's. `None` where the user's own code ran, and where what it
    /// calls through wrappers differs from sample to sample.
    pub library: Option<&'p HostFrame>,
    /// Whether the place is of another thread, for which the launching thread waited, in most
    /// samples.
    pub is_of_other: bool,
    /// What the thread did in most samples.
    pub state: HostState,
    /// For a thread that waited: the stack that most often kept it waiting.
    pub other: Option<(Other, &'p HostStack)>,
    /// The stacks, the most frequent first, with their samples.
    pub stacks: Vec<(&'p HostStack, u64)>,
    /// Idle time at this place, nanoseconds.
    pub time: Figure,
    /// The part of it in which the device was idle for at least [`crate::Pauses::LEAST_NS`] without
    /// a break, nanoseconds.
    pub in_pauses: Figure,
}

/// Samples of which shares are told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pool {
    /// Samples, each as often as it stands for others.
    all: u64,
    /// Samples that were read.
    read: u64,
    sampled_ns: f64,
}

impl Pool {
    fn of<'p>(groups: impl IntoIterator<Item = &'p IdleSamples>) -> Self {
        groups.into_iter().fold(Self::default(), |pool, group| Self {
            all: group.stacks.iter().map(|stack| stack.samples).fold(pool.all, u64::saturating_add),
            read: pool.read.saturating_add(group.read),
            sampled_ns: pool.sampled_ns + group.sampled_ns,
        })
    }

    /// Samples by the time that they stand for, nanoseconds.
    pub(super) fn of_time(time_ns: f64, read: u64) -> Self {
        Self { all: time_ns as u64, read, sampled_ns: time_ns }
    }

    /// The time that these samples stand for, nanoseconds.
    fn time(&self, samples: u64) -> Figure {
        let share = (samples as f64 / self.all.max(1) as f64).min(1.0);
        let (low, high) = wilson(share, self.read as f64);
        let time = |share: f64| share * self.sampled_ns;
        Figure::predicted(time(share), (time(low), time(high))).of_samples(self.read)
    }
}

/// Wilson's 90% interval of a proportion.
fn wilson(share: f64, samples: f64) -> (f64, f64) {
    if samples <= 0.0 {
        return (0.0, 1.0);
    }
    let square = NINETY_PERCENT * NINETY_PERCENT;
    let middle = share + square / (2.0 * samples);
    let off = NINETY_PERCENT * (share * (1.0 - share) / samples + square / (4.0 * samples * samples)).sqrt();
    let whole = 1.0 + square / samples;
    (((middle - off) / whole).max(0.0), ((middle + off) / whole).min(1.0))
}

/// Samples of functions while they are counted.
#[derive(Default)]
pub(super) struct Functions<'p> {
    /// Own samples, and all; and the frame of each line with its samples.
    counts: BTreeMap<Function<'p>, (u64, u64, BTreeMap<&'p HostFrame, u64>)>,
}

impl<'p> Functions<'p> {
    pub(super) fn add(&mut self, stack: &'p HostStack, samples: u64) {
        let mut met = BTreeSet::new();
        for (depth, frame) in stack.frames.iter().enumerate() {
            let function = function_of(frame);
            if !met.insert(function) {
                continue;
            }
            let (own, all, lines) = self.counts.entry(function).or_default();
            let is_innermost = depth == 0 && stack.is_settled;
            *own = own.saturating_add(if is_innermost { samples } else { 0 });
            *all = all.saturating_add(samples);
            let line = lines.entry(frame).or_default();
            *line = line.saturating_add(samples);
        }
    }

    /// As shares of `whole_ns`, the largest first.
    pub(super) fn finish(self, pool: &Pool, whole_ns: f64) -> Vec<IdleFunction> {
        let share = |samples: u64| pool.time(samples).scaled(1.0 / whole_ns.max(1.0)).at_most(1.0);
        let mut functions: Vec<IdleFunction> = self
            .counts
            .into_values()
            .filter(|&(_, all, _)| all as f64 >= LEAST * pool.all as f64)
            .filter_map(|(own, all, lines)| {
                let (frame, _) = lines.into_iter().max_by_key(|&(_, samples)| samples)?;
                Some(IdleFunction {
                    frame: frame.clone(),
                    is_of_library: frame.is_of_library(),
                    self_share: share(own),
                    total_share: share(all),
                })
            })
            .collect();
        functions.order_by(|a, b| {
            let by = |function: &IdleFunction| (function.total_share.value, function.self_share.value);
            by(b).partial_cmp(&by(a)).unwrap_or(std::cmp::Ordering::Equal).then_with(|| a.frame.cmp(&b.frame))
        });
        functions
    }
}

impl Profile {
    /// Returns the host's functions in each idle account, the longest account first; empty if the
    /// host was not sampled.
    pub fn idle_functions(&self) -> Vec<IdleFunctions> {
        if self.host_stacks.is_empty() {
            return Vec::new();
        }
        let mut idle: Vec<(IdleCause, Figure)> = self.accounts().idle.into_iter().collect();
        idle.retain(|(_, time)| time.value > 0.0);
        idle.order_by(|a, b| b.1.value.total_cmp(&a.1.value));
        idle.into_iter()
            .map(|(cause, idle_ns)| {
                let groups = || self.idle_samples().filter(move |samples| samples.cause == cause);
                let pool = Pool::of(groups());
                let mut functions = Functions::default();
                for one in groups().flat_map(|samples| &samples.stacks) {
                    functions.add(&self.host_stacks[one.stack], one.samples);
                }
                IdleFunctions {
                    cause,
                    idle_ns,
                    unknown_share: match pool.all {
                        0 => 1.0,
                        _ => (1.0 - pool.sampled_ns / idle_ns.value).clamp(0.0, 1.0),
                    },
                    samples: pool.read,
                    functions: functions.finish(&pool, idle_ns.value),
                }
            })
            .collect()
    }

    /// Functions on the host's stacks while devices were idle, for whatever cause: their shares are
    /// of the devices' time, in a profile of the steady state those of a step. The largest first.
    pub fn functions_while_idle(&self) -> Vec<IdleFunction> {
        let mut functions = Functions::default();
        for one in self.idle_samples().flat_map(|samples| &samples.stacks) {
            functions.add(&self.host_stacks[one.stack], one.samples);
        }
        functions.finish(&Pool::of(self.idle_samples()), self.accounts().span_ns)
    }

    /// Idle time in which the launching thread, or the one that kept it waiting, was in such a
    /// stack, nanoseconds; `None` where the host was not sampled.
    pub fn idle_time_where(&self, is_such: impl Fn(&HostStack) -> bool) -> Option<Figure> {
        let is_such: Vec<bool> = self.host_stacks.iter().map(is_such).collect();
        let in_calls = self.in_calls();
        let is_in = |one: &&IdleStack| {
            is_such[shown(one, &in_calls)] || one.other.is_some_and(|(_, other)| is_such[other])
        };
        let pool = Pool::of(self.idle_samples());
        let stacks = self.idle_samples().flat_map(|group| &group.stacks);
        let samples = stacks.filter(is_in).map(|one| one.samples).fold(0, u64::saturating_add);
        (pool.all > 0).then(|| pool.time(samples))
    }

    /// The places of the program at which the host was in some of the idle time, the largest first.
    pub fn idle_places(&self, is_meant: impl Fn(&Activity, &IdleSamples) -> bool) -> Vec<IdlePlace<'_>> {
        let groups: Vec<&IdleSamples> = self
            .activities
            .iter()
            .flat_map(|activity| activity.host_samples.iter().map(move |samples| (activity, samples)))
            .filter(|(activity, samples)| is_meant(activity, samples))
            .map(|(_, samples)| samples)
            .collect();
        let pool = Pool::of(groups.iter().copied());
        let in_calls = self.in_calls();
        let mut places: BTreeMap<_, AtPlace<'_>> = BTreeMap::new();
        let all = groups.iter().flat_map(|group| group.stacks.iter().map(|one| (one, group.is_pause)));
        for (one, is_pause) in all {
            let one = &IdleStack { stack: shown(one, &in_calls), ..*one };
            let found = self.stack_that_tells(one);
            let (user, called) = telling::user_and_called(found);
            let waits_for_gil = one.state == HostState::WaitsForGil;
            let key = (user, called.map(function_of), waits_for_gil);
            let place = places.entry(key).or_insert_with(|| AtPlace::new(user, called));
            place.add(one, found, one.other.map(|(other, stack)| (other, &self.host_stacks[stack])));
            place.pauses = place.pauses.saturating_add(if is_pause { one.samples } else { 0 });
            let is_other = !std::ptr::eq(found, &self.host_stacks[one.stack]);
            place.of_other = place.of_other.saturating_add(if is_other { one.samples } else { 0 });
        }
        let mut places: Vec<IdlePlace<'_>> =
            places.into_values().filter_map(|place| place.finish(&pool)).collect();
        places.order_by(|a, b| {
            b.time.value.total_cmp(&a.time.value).then_with(|| (a.user, a.library).cmp(&(b.user, b.library)))
        });
        places
    }

    fn idle_samples(&self) -> impl Iterator<Item = &IdleSamples> {
        self.activities.iter().flat_map(|activity| &activity.host_samples)
    }

    /// Stacks of Python, each with the system call that its thread is in where it runs. A thread
    /// that runs has no frame of compiled code, so that its time in the kernel looks like the
    /// line's own: where some samples of a stack wait in a call, those that run are counted for it
    /// too.
    fn in_calls(&self) -> BTreeMap<usize, usize> {
        let mut samples: BTreeMap<usize, u64> = BTreeMap::new();
        for one in self.idle_samples().flat_map(|group| &group.stacks) {
            let sum = samples.entry(one.stack).or_default();
            *sum = sum.saturating_add(one.samples);
        }
        let key = |at: usize, skipped: usize| {
            let HostStack { frames, thread, process, .. } = &self.host_stacks[at];
            (&frames[skipped..], thread, process)
        };
        let is_call = |at: &usize| self.host_stacks[*at].frames.first().is_some_and(HostFrame::is_call);
        let (calls, others): (Vec<usize>, Vec<usize>) = samples.keys().partition(|at| is_call(at));
        let by_frames: BTreeMap<_, usize> = others.into_iter().map(|at| (key(at, 0), at)).gathered();
        let mut found: BTreeMap<usize, usize> = BTreeMap::new();
        for call in calls {
            let Some(&base) = by_frames.get(&key(call, 1)) else { continue };
            let all = samples[&call].saturating_add(samples[&base]);
            let is_enough = samples[&call] as f64 >= IN_CALL * all as f64;
            let is_most = found.get(&base).is_none_or(|other| samples[other] < samples[&call]);
            if is_enough && is_most {
                found.insert(base, call);
            }
        }
        found
    }

    /// The thread's own stack; where that has no function of the user's and another thread of the
    /// process kept it waiting, that one's: a worker of autograd waits for the thread that calls
    /// it.
    fn stack_that_tells(&self, one: &IdleStack) -> &HostStack {
        let own = &self.host_stacks[one.stack];
        let has_user = |stack: &HostStack| stack.frames.iter().any(|frame| !frame.is_of_library());
        match one.other {
            Some((Other::Thread, other)) if !has_user(own) && has_user(&self.host_stacks[other]) => {
                &self.host_stacks[other]
            }
            _ => own,
        }
    }
}

/// The stack that is shown for samples.
fn shown(one: &IdleStack, in_calls: &BTreeMap<usize, usize>) -> usize {
    let call = in_calls.get(&one.stack).filter(|_| one.state == HostState::Running);
    call.copied().unwrap_or(one.stack)
}

/// Samples at one place while they are counted.
struct AtPlace<'p> {
    user: Option<&'p HostFrame>,
    called: Option<&'p HostFrame>,
    samples: u64,
    /// Samples of these in pauses, and in which the place is of another thread.
    pauses: u64,
    of_other: u64,
    states: BTreeMap<HostState, u64>,
    others: BTreeMap<(Other, &'p HostStack), u64>,
    stacks: BTreeMap<&'p HostStack, u64>,
}

impl<'p> AtPlace<'p> {
    fn new(user: Option<&'p HostFrame>, called: Option<&'p HostFrame>) -> Self {
        let (states, others, stacks) = Default::default();
        Self { user, called, samples: 0, pauses: 0, of_other: 0, states, others, stacks }
    }

    fn add(&mut self, one: &IdleStack, stack: &'p HostStack, other: Option<(Other, &'p HostStack)>) {
        let add = |count: &mut u64| *count = count.saturating_add(one.samples);
        add(&mut self.samples);
        add(self.states.entry(one.state).or_default());
        add(self.stacks.entry(stack).or_default());
        other.into_iter().for_each(|other| add(self.others.entry(other).or_default()));
    }

    fn finish(self, pool: &Pool) -> Option<IdlePlace<'p>> {
        let (state, _) = self.states.into_iter().max_by_key(|&(_, samples)| samples)?;
        let mut stacks: Vec<(&HostStack, u64)> = self.stacks.into_iter().collect();
        stacks.order_by_key(|&(_, samples)| std::cmp::Reverse(samples));
        let other = self.others.into_iter().max_by_key(|&(_, samples)| samples).map(|(other, _)| other);
        let library = self.called.or_else(|| telling::mostly_in(&stacks));
        let Self { user, samples, pauses, of_other, .. } = self;
        let (time, in_pauses) = (pool.time(samples), pool.time(pauses));
        let is_of_other = of_other.saturating_mul(2) > samples;
        Some(IdlePlace { user, library, is_of_other, state, other, stacks, time, in_pauses })
    }
}

impl IdlePlace<'_> {
    /// The line of the user's, if one is known.
    pub fn line(&self) -> Option<&Frame> {
        self.user.map(|user| &user.frame)
    }

    /// Whether most samples have a frame inside of the user's of which this is true.
    pub fn is_mostly_in(&self, is_such: impl Fn(&HostFrame) -> bool) -> bool {
        let inner =
            |stack: &HostStack| stack.frames.iter().take_while(|frame| frame.is_of_library()).any(&is_such);
        self.share_of_samples(inner) > 0.5
    }

    /// Share of the samples whose stack is such.
    pub fn share_of_samples(&self, is_such: impl Fn(&HostStack) -> bool) -> f64 {
        let sum = |is_such: &dyn Fn(&HostStack) -> bool| {
            let such = self.stacks.iter().filter(|(stack, _)| is_such(stack));
            such.map(|&(_, samples)| samples).fold(0, u64::saturating_add)
        };
        sum(&is_such) as f64 / sum(&|_| true).max(1) as f64
    }
}

impl HostStack {
    /// The innermost line that is not a library's, and what it calls: `numpy.sort, called from
    /// pictures.py:7 decode`; `None` without frames.
    pub fn place(&self) -> Option<String> {
        let (user, library) = telling::user_and_library(self);
        in_words(user, library)
    }
}

impl fmt::Display for IdlePlace<'_> {
    /// The function of a library in backquotes, and the line that calls it.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&in_words(self.user, self.library).unwrap_or_else(|| "unknown functions".into()))
    }
}

fn in_words(user: Option<&HostFrame>, library: Option<&HostFrame>) -> Option<String> {
    let called = library.map(|library| format!("`{}`", library.qualified_name()));
    match (called, user.map(|user| &user.frame)) {
        (Some(called), Some(user)) => Some(format!("{called}, called from {user}")),
        (Some(called), None) => Some(called),
        (None, Some(user)) => Some(user.to_string()),
        (None, None) => None,
    }
}

impl HostFrame {
    /// The function's name with its module: `json.loads`, `torch.serialization.save`; of compiled
    /// code with its library: `cudnnCreate (libcudnn.so.9)`.
    pub fn qualified_name(&self) -> String {
        let Frame { file, function, .. } = &self.frame;
        let name = file.rsplit('/').next().unwrap_or_default();
        if self.is_native {
            let function = without_arguments(function);
            return if function.is_empty() { format!("({name})") } else { format!("{function} ({name})") };
        }
        match module_of(file) {
            Some(module) => format!("{module}.{function}"),
            None => function.clone(),
        }
    }
}

/// A name of C++ without the arguments of templates, which are longer than it:
/// `std::vector<float, std::allocator<float> >::assign<float const*, void>` is
/// `std::vector::assign`.
fn without_arguments(function: &str) -> String {
    // `operator<`, `operator->` and functions in `<lambda>` have no arguments in these brackets.
    if function.contains("operator") || function.matches('<').count() != function.matches('>').count() {
        return function.to_owned();
    }
    let mut depth = 0usize;
    let mut name = String::new();
    for c in function.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => name.push(c),
            _ => {}
        }
    }
    // A name that is nothing but brackets.
    if name.trim().is_empty() { function.to_owned() } else { name }
}

/// The module that a file of a Python library defines.
fn module_of(file: &str) -> Option<String> {
    if let Some(frozen) = file.strip_prefix("<frozen ").and_then(|rest| rest.strip_suffix('>')) {
        return Some(frozen.to_owned());
    }
    let after = |folder: &str| Some(file.rsplit_once(folder)?.1);
    let in_packages = after("/site-packages/").or_else(|| after("/dist-packages/"));
    // `/usr/lib/python3.11/json/__init__.py`
    let in_library = || after("/lib/python3.")?.split_once('/').map(|(_, rest)| rest);
    let path = in_packages.or_else(in_library)?.strip_suffix(".py")?;
    Some(path.strip_suffix("/__init__").unwrap_or(path).replace('/', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(file: &str, line: u32, function: &str) -> HostFrame {
        let frame = Frame { file: file.into(), line: Some(line), function: function.into() };
        HostFrame { frame, is_native: false }
    }

    fn native(file: &str, function: &str) -> HostFrame {
        let frame = Frame { file: file.into(), line: None, function: function.into() };
        HostFrame { frame, is_native: true }
    }

    #[test]
    fn functions_have_the_names_that_a_user_writes() {
        for (frame, name) in [
            (python("/usr/lib/python3.11/json/__init__.py", 1, "loads"), "json.loads"),
            (
                python("/v/lib/python3.12/site-packages/torch/serialization.py", 1, "save"),
                "torch.serialization.save",
            ),
            (python("<frozen importlib._bootstrap>", 1, "_load"), "importlib._bootstrap._load"),
            (python("/home/me/train.py", 1, "main"), "main"),
            (native("/lib/libcudnn.so.9", "cudnnCreate"), "cudnnCreate (libcudnn.so.9)"),
            (native("/lib/libcudnn.so.9", ""), "(libcudnn.so.9)"),
            (
                native("/usr/include/c++/12/bits/stl_vector.h", "std::vector<float>::assign<int>"),
                "std::vector::assign (stl_vector.h)",
            ),
            (native("/x/prog", "std::operator< <char>"), "std::operator< <char> (prog)"),
        ] {
            assert_eq!(frame.qualified_name(), name);
        }
    }

    #[test]
    fn wilsons_interval_holds_the_share_and_narrows_with_samples() {
        assert_eq!(wilson(0.5, 0.0), (0.0, 1.0));
        let mut width = 1.0;
        for samples in [1.0, 10.0, 100.0, 10_000.0] {
            for share in [0.0, 0.1, 0.5, 1.0] {
                let (low, high) = wilson(share, samples);
                assert!(0.0 <= low && low <= share && share <= high && high <= 1.0, "{share} of {samples}");
            }
            let (low, high) = wilson(0.5, samples);
            assert!(high - low < width);
            width = high - low;
        }
        // 8 of 10: Wilson's interval at 90% is 0.541 to 0.931.
        let (low, high) = wilson(0.8, 10.0);
        assert!((low - 0.541).abs() < 1e-3 && (high - 0.931).abs() < 1e-3, "{low} {high}");
    }
}
