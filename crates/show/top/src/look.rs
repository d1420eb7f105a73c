//! The state of a session at one moment.

use apex_advice::{Advice, Options, advise};
use apex_live::{SinceStart, Snapshot};
use apex_machine::Summary;
use apex_profile::units;
use apex_profile::{Figure, Profile};
use apex_trace::meta::{Exit, Meta};
use apex_view::text::verdict::{self, Part};
use std::ops::Range;

/// A session at one moment: its last seconds, and the advice about them.
#[derive(Clone, Debug)]
pub struct Look {
    /// Start of the program; `None` where the session does not say.
    pub run: Option<Meta>,
    /// Identifiers of the processes that run; none of a session that has ended.
    pub running: Vec<u32>,
    /// The seconds that the rest is of, in nanoseconds since the session's start.
    pub window: Range<u64>,
    /// The last seconds.
    pub profile: Profile,
    /// Advice about them.
    pub advice: Advice,
    /// Counts since the session's start.
    pub since_start: SinceStart,
    /// State of the machine in them; `None` where that is not known.
    pub machine: Option<Summary>,
}

impl Look {
    /// What a snapshot says, judged with these options.
    pub fn of(snapshot: Snapshot, options: &Options) -> Self {
        let Snapshot { session, running, window, profile, machine, since_start } = snapshot;
        let advice = advise(&profile, options);
        let devices = profile.devices.iter().map(|device| device.uuid.as_str());
        let machine = Summary::of(&machine, devices);
        Self { run: session.meta, running, window, profile, advice, since_start, machine }
    }

    /// Whether nothing more will happen: processes were recorded, or the program ended, and none
    /// runs.
    pub fn is_over(&self) -> bool {
        let ended = self.run.as_ref().is_some_and(apex_trace::meta::Meta::is_over);
        self.running.is_empty() && (ended || !self.profile.processes.is_empty())
    }

    /// Whether a process has made a CUDA call: before that, there is no time to speak of.
    pub fn has_calls(&self) -> bool {
        !self.profile.processes.is_empty()
    }

    /// Length of the window.
    pub fn seconds(&self) -> f64 {
        self.window.end.saturating_sub(self.window.start) as f64 / 1e9
    }

    /// Kernels that ran in each second of the window, on average: measured. `None` of an empty
    /// window.
    pub fn launches_per_s(&self) -> Option<f64> {
        (self.seconds() > 0.0).then(|| self.profile.totals.kernels_run() as f64 / self.seconds())
    }

    /// Share of the time in which kernels ran; `None` where nothing was timed, and on the CPU
    /// device, whose times say nothing about a GPU.
    pub fn gpu_busy(&self) -> Option<Figure> {
        self.profile.totals.gpu_busy.filter(|_| !self.profile.on_cpu_device())
    }

    /// Says in a sentence what the last seconds went into; `None` before the first launch.
    pub fn verdict(&self) -> Option<String> {
        let is_begun = self.profile.kernels.iter().any(|kernel| kernel.launches.any());
        let part = Part {
            job: &self.profile,
            name: format!("the last {}", units::time(self.seconds() * 1e9)),
            iterations: None,
            steps: None,
            is_window: true,
            is_without_steps: false,
            kernels: None,
            machine: None,
        };
        is_begun.then(|| verdict::sentence(&part, &self.advice))
    }

    /// The command, as typed.
    pub(crate) fn command(&self) -> String {
        self.run.as_ref().map_or_else(|| "unknown command".to_owned(), |run| run.command.join(" "))
    }

    /// `running`, or how the session ended.
    pub(crate) fn state(&self) -> String {
        match self.run.as_ref().and_then(|run| run.exit) {
            Some(Exit::Code(0)) => "ended".to_owned(),
            Some(Exit::Code(code)) => format!("ended with status {code}"),
            Some(Exit::Signal(signal)) => format!("ended by signal {signal}"),
            None if self.is_over() => "ended".to_owned(),
            None if self.running.is_empty() => "not started".to_owned(),
            None => "running".to_owned(),
        }
    }
}
