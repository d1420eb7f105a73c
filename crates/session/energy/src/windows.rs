//! The windows of a session that have an account, on the machine's clock.

use apex_profile::{Activity, PhaseKind, Profile};
use std::collections::BTreeMap;

/// A time that the phases between iterations may take, as a share of the run, before the phases are
/// held to interleave.
const MOST_BETWEEN: f64 = 0.01;

/// A part of the time of the machine's monotonic clock, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from_ns: u64,
    pub to_ns: u64,
}

/// The windows of a device.
#[derive(Clone, Debug)]
pub struct DeviceWindows {
    /// Index into [`Profile::devices`].
    pub device: usize,
    /// From the first launch of all processes to the end of the last work.
    pub whole: Window,
    /// The phases, in the order of time; empty where they have no windows of their own.
    pub phases: Vec<(PhaseKind, Window)>,
    /// The iterations of the steady state: their number and the time that they take.
    pub iterations: Option<(u64, Window)>,
}

impl Window {
    /// Duration, nanoseconds.
    pub fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    fn hull(self, other: Self) -> Self {
        Self { from_ns: self.from_ns.min(other.from_ns), to_ns: self.to_ns.max(other.to_ns) }
    }
}

impl DeviceWindows {
    /// The windows of each device that a process used.
    pub fn of(profile: &Profile, origin_ns: u64) -> Vec<Self> {
        let mut by_device: BTreeMap<usize, Vec<&Activity>> = BTreeMap::new();
        for activity in &profile.activities {
            if let Some(device) = activity.device.filter(|&device| device < profile.devices.len()) {
                by_device.entry(device).or_default().push(activity);
            }
        }
        let windows = |(device, activities): (usize, Vec<&Activity>)| {
            let all = activities.iter().map(|activity| Clock::of(profile, activity, origin_ns).whole());
            let whole = all.reduce(Window::hull)?;
            let one = activities.first().filter(|_| activities.len() == 1);
            let clock = one.map(|activity| Clock::of(profile, activity, origin_ns));
            let phases = clock.as_ref().map_or_else(Vec::new, Clock::phases);
            let iterations = clock.as_ref().filter(|_| !phases.is_empty()).and_then(Clock::iterations);
            Some(Self { device, whole, phases, iterations })
        };
        by_device.into_iter().filter_map(windows).collect()
    }
}

/// Places the times of an activity on the machine's clock.
struct Clock<'a> {
    activity: &'a Activity,
    /// The process's start.
    start_ns: f64,
}

impl<'a> Clock<'a> {
    fn of(profile: &Profile, activity: &'a Activity, origin_ns: u64) -> Self {
        let start = profile.processes.get(activity.process).map_or(0.0, |process| process.start_ns);
        Self { activity, start_ns: origin_ns as f64 + start }
    }

    /// The window between two times after the process's start, nanoseconds.
    fn window(&self, from: f64, to: f64) -> Window {
        let [from_ns, to_ns] = [from, to].map(|at| (self.start_ns + at).max(0.0) as u64);
        Window { from_ns, to_ns }
    }

    fn end(&self) -> f64 {
        self.activity.start_ns + self.activity.span_ns
    }

    fn whole(&self) -> Window {
        self.window(self.activity.start_ns, self.end())
    }

    /// The phases one after the other. Those that interleave with others have no window.
    fn phases(&self) -> Vec<(PhaseKind, Window)> {
        let span = |kind| {
            let of_kind = self.activity.phases.iter().filter(|phase| phase.kind == kind);
            of_kind.map(|phase| phase.accounts.span_ns).sum::<f64>()
        };
        if span(PhaseKind::Between) > MOST_BETWEEN * self.activity.span_ns {
            return Vec::new();
        }
        let mut at = self.activity.start_ns;
        let mut phases = Vec::new();
        for kind in PhaseKind::ALL.into_iter().filter(|kind| *kind != PhaseKind::Between) {
            let from = at;
            at += span(kind);
            if at > from {
                phases.push((kind, self.window(from, at)));
            }
        }
        phases
    }

    fn iterations(&self) -> Option<(u64, Window)> {
        let iterations = self.activity.iterations.as_ref()?;
        let to = iterations.start_ns + iterations.count as f64 * iterations.step_ns.value;
        let window = self.window(iterations.start_ns, to.min(self.end()));
        (iterations.count > 0 && window.ns() > 0).then_some((iterations.count, window))
    }
}
