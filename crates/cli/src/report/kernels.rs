//! The table of top kernels.

use crate::text::kernels::{configuration, gpu_time, occupancy, waves};
use crate::text::{self, Align, Table, bar};
use crate::units;
use apex_profile::{Geometry, Kernel, Profile};

/// What the table is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// GPU time, where it was measured
    Time,
    /// Launches
    Count,
    /// CPU time in launch calls
    Cpu,
}

impl Sort {
    /// What the table is sorted by if the user does not say: time, where any was measured.
    pub fn default_of(profile: &Profile) -> Self {
        if profile.totals.gpu_time_ns.is_some() { Sort::Time } else { Sort::Count }
    }

    /// As a heading has it.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Time => "GPU time",
            Sort::Count => "launches",
            Sort::Cpu => "CPU time of launch calls",
        }
    }

    /// The quantity, of one kernel.
    fn of(self, kernel: &Kernel) -> f64 {
        match self {
            Sort::Time => kernel.gpu_total_ns().unwrap_or(0.0),
            Sort::Count => kernel.launches.ran() as f64,
            Sort::Cpu => kernel.cpu.total_ns,
        }
    }
}

/// Indices of the first `top` kernels that were launched.
pub fn ranked(profile: &Profile, sort: Sort, top: usize) -> Vec<usize> {
    let mut order = text::kernels::ranked(profile, |kernel| sort.of(kernel));
    order.truncate(top);
    order
}

/// What the headings and their marks mean.
pub const LEGEND: &str = "ᵐ measured, mean per launch (×n: n samples) · ᶜ \
    computed exactly: theoretical occupancy and its limiter, waves, tail effect, block efficiency";

/// The table as lines, its header first. Shares are of all kernels of `job`.
pub fn table(profile: &Profile, job: &Profile, sort: Sort, top: usize, width: usize) -> Vec<String> {
    let cpu_time = if sort == Sort::Cpu { Align::Right } else { Align::Optional };
    let mut table = Table::new(&[
        ("kernel", Align::Flexible),
        ("launches", Align::Right),
        ("configuration", Align::OptionalLeft),
        ("occupancyᶜ", Align::OptionalLeft),
        ("wavesᶜ", Align::Optional),
        ("tailᶜ", Align::Optional),
        ("eff.ᶜ", Align::Optional),
        ("GPU timeᵐ", Align::Right),
        ("share", Align::Optional),
        ("CPU timeᵐ", cpu_time),
        ("", Align::Optional),
    ]);
    let total: f64 = job.kernels.iter().map(|kernel| sort.of(kernel)).sum();
    let computed =
        |kernel: &Kernel, text: fn(&Geometry) -> String| kernel.geometry.as_ref().map_or("?".into(), text);
    for index in ranked(profile, sort, top) {
        let kernel = &profile.kernels[index];
        let share = if total > 0.0 { sort.of(kernel) / total } else { 0.0 };
        table.row(vec![
            kernel.short_name.clone(),
            units::count(kernel.launches.ran()),
            configuration(kernel.launch),
            computed(kernel, occupancy),
            computed(kernel, |geometry| waves(geometry.waves.waves)),
            computed(kernel, |geometry| units::share(geometry.waves.tail_effect())),
            computed(kernel, |geometry| units::share(geometry.block_efficiency)),
            kernel.gpu.as_ref().map_or("not timed".into(), gpu_time),
            units::share(share),
            if kernel.cpu.count > 0 { units::time(kernel.cpu.mean_ns) } else { "-".into() },
            bar(share, 8),
        ]);
    }
    table.lines(width)
}
