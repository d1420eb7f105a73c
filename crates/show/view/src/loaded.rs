//! A session with its profile.

use crate::{Error, Filters};
use apex_energy::{Energy, Rates};
use apex_live::Follower;
use apex_machine::{Machine, Summary};
use apex_predict::Models;
use apex_predict_session::recorded;
use apex_profile::{PhaseKind, Predictions, Profile, Selection, origin_ns};
use apex_trace::{MappedControl, Session};
use std::ops::Range;
use std::path::Path;

/// The part of a session that filters by time and rank leave.
pub struct Loaded {
    /// The session.
    pub session: Session,
    /// Its profile, with predictions.
    pub profile: Profile,
    /// State of the machine meanwhile.
    pub machine: Machine,
}

impl Loaded {
    /// Reads the session in a folder.
    ///
    /// # Errors
    /// If it cannot be read, or if the filters leave nothing of it.
    pub fn read(dir: &Path, filters: &Filters) -> Result<Self, Error> {
        let session = Session::open(dir)?;
        let selection = filters.selection(&session)?;
        let profile = Profile::of_selection(&session, &selection);
        filters.check_window(&session, &profile)?;
        let machine = machine_of(&session, &selection);
        Ok(Self::of(session, profile, machine))
    }

    /// Reads the last seconds of a session that is followed. Returns also which window they are,
    /// in nanoseconds since the session's start.
    ///
    /// # Errors
    /// If it cannot be read, or if it has no such ranks.
    pub fn read_last(follower: &mut Follower, filters: &Filters) -> Result<(Self, Range<u64>), Error> {
        let now = follower.look()?;
        let processes = filters.selection(&now.session)?.processes;
        let profile = match processes {
            None => now.profile,
            Some(_) => {
                let selection = Selection { window: Some(now.window.clone()), processes };
                Profile::of_selection(&now.session, &selection)
            }
        };
        Ok((Self::of(now.session, profile, now.machine), now.window))
    }

    fn of(session: Session, profile: Profile, machine: Machine) -> Self {
        let predictions = predict(&profile);
        let mut profile = profile.with(predictions);
        profile.data_flows = apex_data_flow::of_session(&session, &profile);
        profile.recorder.problems.extend(machine.problems.iter().cloned());
        let left = MappedControl::open(&session.dir).ok().and_then(|control| control.complaint());
        profile.recorder.problems.extend(left);
        if session.meta.as_ref().is_some_and(|meta| !meta.imported.is_empty()) {
            // Nothing was recorded that cost anything; what the other profiler cost is not known.
            let recorder = &mut profile.recorder;
            (recorder.timing_ns, recorder.recording_ns, recorder.overhead_share) = (0.0, 0.0, None);
        }
        Self { session, profile, machine }
    }

    /// Whether the session was made of traces of other profilers.
    pub fn is_imported(&self) -> bool {
        self.session.meta.as_ref().is_some_and(|meta| !meta.imported.is_empty())
    }

    /// The command, as typed.
    pub fn command(&self) -> Option<String> {
        Some(self.session.meta.as_ref()?.command.join(" "))
    }

    /// What was recorded of the machine during the steady state, or in all of the time; `None`
    /// where nothing was, and in other phases.
    pub fn machine_in(&self, phase: Option<PhaseKind>) -> Option<Summary> {
        match phase {
            None => self.machine_summary(),
            Some(PhaseKind::Steady) => {
                let origin = origin_ns(&self.session);
                let spans = self.profile.activities.iter().filter_map(|activity| {
                    let start = self.profile.processes.get(activity.process)?.start_ns;
                    let steady = start + activity.iterations.as_ref()?.start_ns;
                    Some((steady, start + activity.start_ns + activity.span_ns))
                });
                let (from, to) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
                let [from, to] = [from, to].map(|at| origin.saturating_add(at as u64));
                let devices = &self.profile.devices;
                Summary::of(&self.machine.window(from, to), devices.iter().map(|device| device.uuid.as_str()))
            }
            Some(_) => None,
        }
    }

    /// The energy that the program's devices took; `None` where no energy counter was read.
    pub fn energy(&self, rates: Rates) -> Option<Energy> {
        Energy::of(&self.machine, &self.profile, origin_ns(&self.session), rates)
    }

    /// Recording of the machine; `None` where there is none.
    pub fn machine_summary(&self) -> Option<Summary> {
        let devices = &self.profile.devices;
        Summary::of(&self.machine, devices.iter().map(|device| device.uuid.as_str()))
    }
}

/// The shipped models' predictions for the kernels of a profile.
pub fn predict(profile: &Profile) -> Predictions {
    // Where there is nothing to predict, nothing is said of why not, either.
    match profile.kernels.is_empty() {
        true => Predictions::default(),
        false => recorded::predictions(profile, &Models::shipped()),
    }
}

/// State of the machine in the time that is selected.
fn machine_of(session: &Session, selection: &Selection) -> Machine {
    let machine = Machine::read(&session.dir);
    let Some(window) = &selection.window else { return machine };
    let [from, to] = [window.start, window.end].map(|at| origin_ns(session).saturating_add(at));
    machine.window(from, to)
}
