//! The part of a session that the filters leave.

use crate::filters::shown_window;
use crate::text::verdict::{Chosen, Part};
use crate::{Applied, Error, Filters, Loaded, Phase};
use apex_advice::{Advice, Options};
use apex_machine::Summary;
use apex_ordered::Order;
use apex_predict::Models;
use apex_profile::{Accounts, Iterations, Kernel, KernelPattern, PhaseKind, Profile};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Kernels that an error names.
const NAMED: usize = 8;

/// Part of a session that is shown.
pub struct Shown<'a> {
    /// The run, or the window and ranks of it.
    pub whole: &'a Profile,
    /// Phase of that part.
    pub job: Cow<'a, Profile>,
    /// Which phase; `None` for all of it.
    pub phase: Option<PhaseKind>,
    /// The phase that was asked for, where the run has none.
    lacking: Option<PhaseKind>,
    /// The kernels that are meant; `None` for all of them.
    pub kernels: Option<BTreeSet<usize>>,
    /// The job, without launches of other kernels.
    of_kernels: Option<Profile>,
    /// State of the machine in the phase.
    machine: Option<Summary>,
    filters: &'a Filters,
}

impl Filters {
    /// Selects the part of a session that is shown, from what was read with these filters.
    ///
    /// # Errors
    /// If the filters name no kernel of it.
    pub fn shown<'a>(&'a self, loaded: &'a Loaded) -> Result<Shown<'a>, Error> {
        Ok(self.shown_alike(std::slice::from_ref(loaded))?.remove(0))
    }

    /// Selects the shown parts of sessions that are compared: the same phase of each.
    ///
    /// # Errors
    /// If the filters name no kernel of any of them.
    pub fn shown_alike<'a>(&'a self, loaded: &'a [Loaded]) -> Result<Vec<Shown<'a>>, Error> {
        let steady = |loaded: &Loaded| {
            // Times of the CPU device say nothing about a GPU, and its counts are of all launches.
            loaded.profile.has_phase(PhaseKind::Steady) && !loaded.profile.on_cpu_device()
        };
        let phase = match self.phase {
            None => (self.window.is_none() && loaded.iter().all(steady)).then_some(PhaseKind::Steady),
            Some(Phase::Startup) => Some(PhaseKind::Startup),
            Some(Phase::Warmup) => Some(PhaseKind::Warmup),
            Some(Phase::Steady) => Some(PhaseKind::Steady),
            Some(Phase::All) => None,
        };
        let mut shown: Vec<Shown<'a>> = loaded.iter().map(|loaded| self.of_phase(loaded, phase)).collect();
        if !self.kernels.is_empty() {
            shown.iter_mut().for_each(|shown| shown.keep(shown.job.kernels_named(&self.kernels)));
            let launched = |shown: &Shown<'_>| shown.whole.kernels.iter().any(|kernel| kernel.launches.any());
            let none = |shown: &Shown<'_>| shown.kernels.as_ref().is_some_and(BTreeSet::is_empty);
            if shown.iter().all(none) && shown.iter().any(launched) {
                return Err(Error::Empty(self.no_kernel(&shown[0])));
            }
        }
        Ok(shown)
    }

    /// The profile of a phase; of the whole run if `None`, or where it has no such phase.
    fn of_phase<'a>(&'a self, loaded: &'a Loaded, phase: Option<PhaseKind>) -> Shown<'a> {
        let whole = &loaded.profile;
        let in_phase = phase.and_then(|kind| whole.in_phase(kind));
        let lacking = phase.filter(|_| in_phase.is_none());
        let (phase, job) = match in_phase {
            Some(profile) => (phase, Cow::Owned(profile)),
            None => (None, Cow::Borrowed(whole)),
        };
        let (job, machine) = (without_guests(whole, job), loaded.machine_in(phase));
        Shown { whole, job, phase, lacking, kernels: None, of_kernels: None, machine, filters: self }
    }

    /// Says why no kernel is left, and which kernels there are.
    fn no_kernel(&self, shown: &Shown<'_>) -> String {
        let wanted: Vec<String> =
            self.kernels.iter().map(|pattern| format!("`{}`", pattern.text())).collect();
        let wanted = wanted.join(" or ");
        if !shown.whole.kernels_named(&self.kernels).is_empty() {
            let part =
                shown.phase.map_or("this part of the run".into(), |phase| format!("the {}", phase.name()));
            return format!(
                "no kernel that matches {wanted} was launched in {part}: phase `all` shows the others"
            );
        }
        let part =
            self.kernels.iter().map(|pattern| pattern.text().trim_start_matches("regex:").to_lowercase());
        let parts: Vec<String> = part.collect();
        let is_near = |name: &str| parts.iter().any(|part| name.to_lowercase().contains(part.as_str()));
        let mut seen = BTreeSet::new();
        let launched = shown.job.kernels.iter().filter(|kernel| kernel.launches.any());
        let mut names: Vec<&Kernel> = launched.filter(|kernel| seen.insert(&kernel.short_name)).collect();
        names.order_by_key(|kernel| !is_near(&kernel.name) && !is_near(&kernel.short_name));
        let listed: Vec<String> =
            names.iter().take(NAMED).map(|kernel| format!("`{}`", kernel.short_name)).collect();
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("no kernel matches {wanted}; the session has {}{more}", listed.join(", "))
    }
}

/// The profile without what ranks hardly do on other ranks' GPUs: those are no GPUs of theirs.
fn without_guests<'a>(whole: &Profile, job: Cow<'a, Profile>) -> Cow<'a, Profile> {
    let guests = whole.guest_uses();
    if guests.is_empty() {
        return job;
    }
    let mut job = job.into_owned();
    job.leave_out_uses(&guests);
    Cow::Owned(job)
}

impl<'a> Shown<'a> {
    /// Leaves launches of these kernels alone.
    fn keep(&mut self, kernels: BTreeSet<usize>) {
        self.of_kernels = Some(self.job.of_kernels(&kernels));
        self.kernels = Some(kernels);
    }

    /// Data of figures and tables.
    pub fn profile(&self) -> &Profile {
        self.of_kernels.as_ref().unwrap_or(&self.job)
    }

    /// The rules' judgement, without these rules.
    pub fn advise(&self, suppress: &[String]) -> Advice {
        let options = Options {
            suppress: suppress.iter().cloned().collect(),
            models: Some(Models::shipped()),
            kernels: self.kernels.clone(),
        };
        apex_advice::advise(&self.job, &options)
    }

    /// State of the machine in the phase; `None` where nothing was recorded.
    pub fn machine(&self) -> Option<&Summary> {
        self.machine.as_ref()
    }

    /// Which phase is missing, in words; `None` where none is.
    pub fn lacks(&self) -> Option<String> {
        let phase = self.lacking?.name();
        Some(format!(
            "this run has no {phase} phase, so all of it is shown; phases are found from repeated launches"
        ))
    }

    /// Whether a window of the run is shown.
    pub fn is_window(&self) -> bool {
        self.filters.window.is_some()
    }

    /// Whether some ranks were chosen and others left out.
    pub fn is_of_chosen_ranks(&self) -> bool {
        !self.filters.ranks.is_empty()
    }

    /// The filters, for a document.
    pub fn applied(&self) -> Applied<'a> {
        self.filters.applied(self.phase)
    }

    /// The filters in words; `None` without any.
    pub fn described(&self) -> Option<String> {
        let Filters { kernels, window, ranks, .. } = self.filters;
        let names = |pattern: &KernelPattern| format!("`{}`", pattern.text());
        let kernels: Vec<String> = kernels.iter().map(names).collect();
        let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
        let parts = [
            (!ranks.is_empty()).then(|| format!("rank {}", ranks.join(", "))),
            window.as_ref().map(|window| format!("the window {}", shown_window(window))),
            (!kernels.is_empty())
                .then(|| format!("kernels {} (the accounts above include all kernels)", kernels.join(", "))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| format!("Shown: {}.", parts.join(" · ")))
    }

    /// Subject of a verdict.
    pub fn part(&self) -> Part<'_> {
        let name = match self.phase {
            Some(PhaseKind::Steady) => "each step".into(),
            Some(phase) => format!("the {}", phase.name()),
            None if self.is_window() => "the window".into(),
            None => "the time".into(),
        };
        let has_no_phase = self.whole.activities.iter().all(|activity| activity.iterations.is_none());
        let chosen = |kernels| Chosen { kernels, profile: self.profile() };
        Part {
            job: &self.job,
            name,
            iterations: self.iterations(),
            steps: self.steps(),
            is_window: self.is_window(),
            is_without_steps: has_no_phase && !self.is_window(),
            kernels: self.kernels.as_ref().map(chosen),
            machine: self.machine.as_ref(),
        }
    }

    /// Accounts of the devices' time.
    pub fn accounts(&self) -> Accounts {
        self.job.accounts()
    }

    /// The iterations of the device with the most of them, where the steady state is shown.
    pub fn iterations(&self) -> Option<&Iterations> {
        let steady = self.phase == Some(PhaseKind::Steady);
        let of = self.job.activities.iter().filter_map(|activity| activity.iterations.as_ref());
        of.max_by_key(|iterations| iterations.count).filter(|_| steady)
    }

    /// Steps of all devices.
    pub fn steps(&self) -> Option<f64> {
        self.iterations()?;
        let steps = self.job.activities.iter().filter_map(apex_profile::Activity::steps);
        Some(steps.sum()).filter(|steps| *steps > 0.0)
    }
}
