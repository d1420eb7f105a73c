//! What the models say of the top kernels, beside what was measured.

use super::kernels::configuration;
use super::places::write;
use crate::text::{Align, Ink, Style, Table, shorten, wrap};
use crate::units;
use apex_profile::{Estimate, Profile};
use std::io::{self, Write};

/// A prediction is shown whose interval spans at most such a factor.
const WIDEST: f64 = 4.0;

/// What the headings mean.
const LEGEND: &str = "ᵖ predicted from launch and attributes, with the interval that holds nine of ten cases like those that \
    the models were tested on · ᵐ measured, here with what an empty kernel takes, as the prediction has it. Occupancy: \
    achieved. SM util.: compute (SM) throughput. * unlike anything that the models were trained on.";

/// The table of predictions, of the kernels at `indices` that have any; and why there are none,
/// where that is so.
pub fn table(
    out: &mut dyn Write,
    profile: &Profile,
    indices: &[usize],
    style: Style,
    width: usize,
) -> io::Result<()> {
    let kernels = indices.iter().map(|&index| &profile.kernels[index]);
    let all = kernels.filter_map(|kernel| Some((kernel, kernel.prediction.as_ref()?)));
    let predicted: Vec<_> = all.filter(|(_, said)| says_something(said.duration_ns)).collect();
    for why in &profile.unpredicted {
        for line in wrap(why, width, "  ") {
            writeln!(out, "{}", style.paint(Ink::Dim, line))?;
        }
    }
    if predicted.is_empty() {
        return if profile.unpredicted.is_empty() { Ok(()) } else { writeln!(out) };
    }
    let mut table = Table::new(&[
        ("kernel", Align::Flexible),
        ("grid × block", Align::Left),
        ("durationᵖ", Align::Right),
        ("measuredᵐ", Align::Right),
        ("ᵐ/ᵖ", Align::Right),
        ("occupancyᵖ", Align::Right),
        ("SM util.ᵖ", Align::Optional),
    ]);
    for (kernel, said) in predicted {
        let time = said.duration_ns;
        let strange = if said.unfamiliar.is_empty() { "" } else { "*" };
        table.row(vec![
            shorten(&kernel.short_name, 60),
            configuration(kernel),
            format!("{}{strange}", units::time_between(time.value, time.low, time.high)),
            said.measured_duration_ns.map_or("-".into(), |measured| units::time(measured.value)),
            said.measured_over_predicted.map_or("-".into(), units::ratio),
            share(said.achieved_occupancy),
            share(said.sm_utilisation),
        ]);
    }
    write(out, "Predicted", &table, LEGEND, style, width)
}

/// Whether the interval of a prediction is narrow enough to be of use.
fn says_something(time: Estimate) -> bool {
    time.high <= WIDEST * time.low
}

fn share(share: Estimate) -> String {
    units::share_between(share.value, share.low, share.high)
}
