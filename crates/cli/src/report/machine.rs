//! The state of the machine while the program ran, and the energy that it took.

use apex_energy::Rates;
use apex_view::{Loaded, Shown, text};

/// Describes the recorded state of the machine; nothing if kernels are selected.
pub fn sentences(loaded: &Loaded, shown: &Shown<'_>, rates: Rates) -> Vec<String> {
    if shown.kernels.is_some() {
        return Vec::new();
    }
    let cpus = loaded.session.meta.as_ref().map(|meta| meta.host.cpus);
    let machine = loaded.machine_summary().map(|summary| text::machine::sentences(&summary, cpus));
    let energy = loaded.energy(rates).map(|energy| text::energy::sentences(&energy));
    let energy = energy.or_else(|| rates.any().then(|| vec![text::energy::cost_without_readings()]));
    machine.into_iter().chain(energy).flatten().collect()
}
