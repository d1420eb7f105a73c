//! What the machine did while the program ran.

use crate::filters::Shown;
use crate::loaded::Loaded;
use apex_machine::Summary;

/// What was recorded of it, in the part of the session that is read; `None` where nothing was.
pub fn summary(loaded: &Loaded) -> Option<Summary> {
    let devices = &loaded.profile.devices;
    Summary::of(&loaded.machine, devices.iter().map(|device| device.uuid.as_str()))
}

/// It in words. What is asked of kernels is not answered by the machine.
pub fn sentences(loaded: &Loaded, shown: &Shown<'_>) -> Vec<String> {
    let cpus = loaded.session.meta.as_ref().map(|meta| meta.host.cpus);
    match summary(loaded) {
        Some(summary) if shown.kernels.is_none() => apex_text::machine::sentences(&summary, cpus),
        _ => Vec::new(),
    }
}
