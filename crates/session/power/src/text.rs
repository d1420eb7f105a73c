//! The result of a run as sentences.

use crate::{Ended, OfPhase, Outcome};

/// Minimum share of limited readings for them to be mentioned.
const MUCH: f64 = 0.1;

impl Outcome {
    /// Only the sentences about what went wrong.
    pub fn warnings(&self, highest: u32) -> Vec<String> {
        let is_report = matches!(self.ended, None | Some(Ended::WouldSet { .. }));
        let ended = self.ended.filter(|_| !is_report).map(|ended| of_end(ended, highest));
        ended.into_iter().chain(is_left(self)).collect()
    }

    /// Sentences about the run, for a device with this highest clock, MHz.
    pub fn sentences(&self, highest: u32) -> Vec<String> {
        let phases = self.phases.iter().enumerate().map(|(at, phase)| of_phase(at + 1, phase, highest));
        let held = (self.held > MUCH).then(|| {
            let percent = self.held * 100.0;
            format!(
                "a power cap, heat or an idle GPU held the clock in {percent:.0}% of the readings, so \
                 that these predict nothing for other clocks"
            )
        });
        let ended = self.ended.map(|ended| of_end(ended, highest));
        let nothing = (self.phases.is_empty() && self.ended.is_none()).then(|| {
            "the program launched too little on the GPU: no clock was measured, and none was set".to_owned()
        });
        let calls = (self.calls > 0).then(|| {
            let calls = if self.calls == 1 { "1 call".to_owned() } else { format!("{} calls", self.calls) };
            format!("{calls} set or released the GPU's clock while the program ran")
        });
        phases.chain(held).chain(ended).chain(nothing).chain(calls).chain(is_left(self)).collect()
    }
}

fn is_left(outcome: &Outcome) -> Option<String> {
    let told = "THE GPU'S CLOCK IS STILL SET: NVML refused to release it; `sudo nvidia-smi -i N -rgc` does that for GPU N";
    outcome.is_left.then(|| told.to_owned())
}

fn of_phase(number: usize, phase: &OfPhase, highest: u32) -> String {
    let is_open = if phase.is_found { "" } else { " (the search for a better one had not ended)" };
    match phase.clock {
        Some(mhz) => format!(
            "phase {number}: at {mhz} MHz of {highest}, a launch took {:.1}% less energy and {:.1}% more time, \
             measured{is_open}",
            phase.saving * 100.0,
            phase.slowdown * 100.0
        ),
        None => format!("phase {number}: no lower clock was better than the GPU's own{is_open}"),
    }
}

fn of_end(ended: Ended, highest: u32) -> String {
    match ended {
        Ended::WouldSet { seconds, mhz } => format!(
            "dry run: after {seconds} s it would have set {mhz} MHz of {highest}, and lower clocks after it as \
             long as a launch takes less energy and the slowdown stays in its bound; nothing was set, so what \
             that saves is not known"
        ),
        Ended::NeverHighest(seen) => format!(
            "nothing was set: the GPU ran at {seen} MHz at most, and not at its {highest} MHz. Either a power cap \
             held it all the time, or another tool has locked its clock (`nvidia-smi -i N -rgc` releases that of GPU N)"
        ),
        Ended::Foreign => {
            "another tool set the GPU's clock meanwhile, so no clock is set any more".to_owned()
        }
        Ended::NoPermission => {
            "NVML refused to set the clock: no permission. A container needs the capability \
                                SYS_ADMIN; otherwise use --dry-run"
                .to_owned()
        }
        Ended::Refused => {
            "NVML or the helper refused a call, or reported no clocks, so governing has stopped".to_owned()
        }
        Ended::NoWatchdog => {
            "the watchdog that releases the clock ended, so no clock is set any more".to_owned()
        }
    }
}
