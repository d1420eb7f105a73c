//! The state of the machine while the program ran.

use apex_view::{Loaded, Shown};

/// Describes the recorded state of the machine; nothing if kernels are selected.
pub fn sentences(loaded: &Loaded, shown: &Shown<'_>) -> Vec<String> {
    let cpus = loaded.session.meta.as_ref().map(|meta| meta.host.cpus);
    match loaded.machine_summary() {
        Some(summary) if shown.kernels.is_none() => apex_view::text::machine::sentences(&summary, cpus),
        _ => Vec::new(),
    }
}
