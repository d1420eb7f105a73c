//! The limit of a kernel: a roofline over the work of its launches.
//!
//! [`Bounds`] say how long each part of the device takes for the work at full rate. Where the
//! slowest part of memory or arithmetic accounts for most of the kernel's duration, that bounds it.
//! Where none does, dependent instructions and accesses wait for each other: latency. Before either
//! comes what no roofline shows: work that takes less than starting a kernel does, and a last wave
//! of blocks that leaves most of the device idle. The thresholds are Nsight Compute's, where it has
//! any ("SpeedOfLight": below 60% of both rooflines a kernel is latency-bound).

use apex_predict::bounds::{Bounds, EMPTY_KERNEL_US};
use apex_predict::{Basis, Placed};
use apex_profile::{Bound, BoundBy, Figure, Prediction, Provenance};

/// Least share of the duration that the slowest part of a kernel takes which it bounds.
const ROOFLINE: f64 = 0.6;
/// Least share of the multiprocessors' time that the last wave leaves idle of a kernel that it
/// bounds.
const TAIL: f64 = 0.25;

/// Returns the limit of a launch with the prediction `said`; `None` if it is not known what it
/// executes.
pub fn of(placed: &Placed<'_>, said: &Prediction) -> Option<Bound> {
    let work = placed.case.work.as_ref().filter(|_| placed.basis() == Basis::Work)?;
    let (duration_us, duration) = match said.measured_duration_ns {
        Some(measured) => (measured.value / 1e3, Provenance::Measured),
        None => (said.duration_ns?.value / 1e3, Provenance::Predicted),
    };
    let parts: Vec<_> = Bounds::of(placed).parts().collect();
    let longest = |all: &mut dyn Iterator<Item = (&'static str, f64)>| {
        all.max_by(|(_, one), (_, other)| one.total_cmp(other))
    };
    let (part, us) = longest(&mut parts.iter().copied().filter(|(name, _)| kind(name) != BoundBy::Latency))?;
    let (_, longest_us) = longest(&mut parts.iter().copied())?;
    let share = if duration_us > 0.0 { (us / duration_us).min(1.0) } else { 0.0 };
    let by = if longest_us < EMPTY_KERNEL_US {
        BoundBy::Launch
    } else if share >= ROOFLINE {
        kind(part)
    } else if idle_in_tail(placed) >= TAIL {
        BoundBy::Tail
    } else {
        BoundBy::Latency
    };
    let part_ns = Figure::computed(us * 1e3);
    Some(Bound { by, part: part.to_owned(), part_ns, share, duration, assumed: work.assumed })
}

/// Returns the kind of a part of [`Bounds`].
fn kind(part: &str) -> BoundBy {
    match part {
        "issue" | "single" | "integer" | "double" | "special" | "tensor" => BoundBy::Compute,
        "latency" => BoundBy::Latency,
        _ => BoundBy::Memory,
    }
}

/// Share of the places for blocks that stay empty in the last wave, of those of all waves; 0 for a
/// grid of one wave, which has no tail.
fn idle_in_tail(placed: &Placed<'_>) -> f64 {
    let waves = placed.waves.waves;
    if waves > 1.0 { 1.0 - waves / waves.ceil() } else { 0.0 }
}
