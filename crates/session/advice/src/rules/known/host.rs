//! Functions of the host that a cause names, on the sampled call stacks of idle time.

use super::super::host_function::{SAMPLES, of_what, samples_of};
use super::super::{Draft, confidence, job_saving, launch_bound, percent, sampled_part};
use super::{Known, is_worth, likely_ns, rows, runs_ahead, with_kernels};
use crate::finding::{Evidence, Level, Observed, Saving, Unit};
use apex_knowledge::{Cause, Claims};
use apex_profile::{Figure, Frame, HostFrame, HostStack, IdlePlace, Profile};

/// Minimum part of the idle time in the functions of a cause that claims all of it.
const PART: f64 = 0.05;

/// A claim says that it is of more than the sampled time from this ratio on.
const DIVIDED: f64 = 1.1;
const PATH: &str = "; time of the host that was not sampled, or beside work of the device, is divided as the sampled time is";

/// The places at which the host was in idle time, looked up once for all causes.
pub(super) struct Places<'p>(Vec<IdlePlace<'p>>);

impl<'p> Places<'p> {
    pub fn of(profile: &'p Profile) -> Self {
        let is_sampled = !profile.host_stacks.is_empty();
        Self(if is_sampled { profile.idle_places(|_, _| true) } else { Vec::new() })
    }

    /// A stack of the largest place in a function of this cause.
    fn main(&self, cause: &Cause) -> Option<OnStack<'p>> {
        self.0.iter().find_map(|place| {
            let mut stacks = place.stacks.iter().map(|&(stack, _)| stack);
            let other = place.other.map(|(_, stack)| stack);
            stacks.find_map(|stack| function_in(stack, cause)).or_else(|| function_in(other?, cause))
        })
    }

    /// All stacks in functions of this cause, each with its samples.
    fn all<'a>(&'a self, cause: &'a Cause) -> impl Iterator<Item = rows::Inside<'p>> + 'a {
        let stacks = self.0.iter().flat_map(|place| &place.stacks);
        stacks.filter_map(|&(stack, samples)| {
            let OnStack { function, inner, .. } = function_in(stack, cause)?;
            Some((function, inner, samples))
        })
    }
}

/// A function of a library on a stack.
struct OnStack<'p> {
    /// Frames that the function called, innermost first.
    inner: &'p [HostFrame],
    function: &'p HostFrame,
    /// Frames that called the function.
    outer: &'p [HostFrame],
}

impl OnStack<'_> {
    /// The function in words, and the program's line beside it: the innermost one that the function
    /// calls, else the one that calls the function.
    fn in_words(&self) -> String {
        let name = self.function.qualified_name();
        let line = |frames: &[HostFrame]| {
            frames.iter().find(|frame| !frame.is_of_library()).map(|frame| frame.frame.to_string())
        };
        match (line(self.inner), line(self.outer)) {
            (Some(called), _) => format!("`{name}`, which calls {called}"),
            (None, Some(from)) => format!("`{name}`, called from {from}"),
            (None, None) => format!("`{name}`"),
        }
    }
}

/// The outermost function of a library on a stack that the cause is about. A process that was
/// forked has the frames of its parent below its own: these run in neither.
fn function_in<'p>(stack: &'p HostStack, cause: &Cause) -> Option<OnStack<'p>> {
    let is_named = |frame: &HostFrame| {
        frame.is_of_library() && cause.names_host(&frame.frame.file, &frame.frame.function)
    };
    let own = stack.frames.iter().position(begins_a_process).unwrap_or(stack.frames.len());
    let at = stack.frames[..own].iter().rposition(is_named)?;
    let (inner, outer) = (&stack.frames[..at], &stack.frames[at + 1..own]);
    Some(OnStack { inner, function: &stack.frames[at], outer })
}

/// Whether a frame is the first of a process that Python's `multiprocessing` forked.
fn begins_a_process(frame: &HostFrame) -> bool {
    let Frame { file, function, .. } = &frame.frame;
    file.ends_with("multiprocessing/process.py") && function.ends_with("_bootstrap")
}

/// Returns the finding that samples support for a cause; `None` where its functions cost little, or
/// were not sampled.
pub(super) fn known<'k>(
    profile: &Profile,
    places: &Places<'_>,
    cause: &'k Cause,
    remedy: &'k str,
) -> Option<Known<'k>> {
    if cause.host.is_empty() {
        return None;
    }
    let time = profile.idle_time_where(|stack| function_in(stack, cause).is_some())?;
    let mut saving = with_kernels(profile, cause, saving(profile, cause, time));
    if samples_of(profile, time.samples, time) < SAMPLES || !is_worth(profile, &saving) {
        return None;
    }
    let main = places.main(cause)?;
    let name = main.function.qualified_name();
    let doing = format!("the host is in {}", main.in_words());
    let rows = rows::of(profile, places.all(cause));
    let (rows, change) =
        rows.map_or_else(Default::default, |rows| (format!("; {rows}"), rows.change(profile)));
    let span = profile.totals.span_ns.max(1.0);
    saving.observed = Some(Observed { time_ns: time, doing: doing.clone() });
    let draft = Draft {
        summary: format!(
            "the GPU waits {} {} while {doing}: {}{rows}",
            percent(time.value / span),
            of_what(profile),
            cause.meaning.trim_end_matches('.')
        ),
        evidence: vec![
            Evidence::new(format!("idle in `{name}`"), time.scaled(1.0 / span).at_most(1.0), Unit::Share)
                .decrease_towards(0.0),
        ],
        kernels: Vec::new(),
        change,
        confidence: confidence(
            Level::Medium,
            format!(
                "sampled call stacks name the function; it is unknown how much of it can overlap with the device's work{}",
                if on_the_host_s_path(profile, time.value) > DIVIDED * time.value { PATH } else { "" }
            ),
        ),
        saving,
    };
    let saves_ns = likely_ns(&draft.saving);
    Some(Known { cause, remedy, draft, saves_ns })
}

/// A share of the time in the functions; of all idle time where a cause claims that, because it
/// makes host and device wait for one another, and its functions are in a known part of it.
fn saving(profile: &Profile, cause: &Cause, time: Figure) -> Saving {
    let saves = cause.saves;
    let idle = super::saving(profile, cause, 0.0, &[]);
    let is_part = time.value >= PART * profile.accounts().idle_ns().value;
    if cause.claims == Claims::Idle && is_part && likely_ns(&idle) > Some(time.value * saves.likely) {
        return idle;
    }
    let (low, high) = time.bounds();
    let whole = on_the_host_s_path(profile, time.value);
    let likely = whole * saves.likely;
    let figure = Figure::predicted(likely, (low * saves.least, (high * saves.most).max(likely)));
    let ahead = Figure::predicted(0.0, (0.0, runs_ahead(profile, whole)));
    Saving { beyond: Some(ahead), ..job_saving(profile, figure.at_most(profile.totals.span_ns)) }
}

/// The time on the critical path, nanoseconds, of a function that was sampled for `seen`
/// nanoseconds of the idle time; at most all idle time. Idle time that was not sampled is divided
/// in the same proportions. If the device waits for launches, the host is on the critical path also
/// while the device is busy, so a function's share of the idle time is its share of all time.
fn on_the_host_s_path(profile: &Profile, seen: f64) -> f64 {
    let idle = profile.accounts().idle_ns().value;
    let all = if launch_bound::lost(profile).is_some() { profile.totals.span_ns } else { idle };
    let share = seen / sampled_part(profile) / idle.max(1.0);
    (share * all.max(idle)).min(idle).max(seen)
}
