//! The table of top kernels.

use crate::text::{Align, Table, bar};
use crate::units;
use apex_profile::{Geometry, GpuTime, Kernel, Profile};
use cuda_launch::{Dim3, LaunchConfig};
use occupancy::Limiter;

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
    let mut order: Vec<_> =
        (0..profile.kernels.len()).filter(|&index| profile.kernels[index].launches.any()).collect();
    order.sort_by(|&a, &b| sort.of(&profile.kernels[b]).total_cmp(&sort.of(&profile.kernels[a])));
    order.truncate(top);
    order
}

/// What the headings and their marks mean.
pub const LEGEND: &str = "ᵐ measured, mean of a launch (×n: of n samples; GPU time above an empty kernel's) · ᶜ computed \
    exactly: theoretical occupancy and its limiter, waves, tail effect, block efficiency";

/// The table as lines, its header first. Shares are of all kernels of `job`.
pub fn table(profile: &Profile, job: &Profile, sort: Sort, top: usize, width: usize) -> Vec<String> {
    let cpu_time = if sort == Sort::Cpu { Align::Right } else { Align::Optional };
    let mut table = Table::new(&[
        ("kernel", Align::Flexible),
        ("launches", Align::Right),
        ("grid × block", Align::OptionalLeft),
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
            configuration(kernel),
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

/// `64,64 × 256`, with cluster and dynamic shared memory where there are any.
pub fn configuration(kernel: &Kernel) -> String {
    let LaunchConfig { grid, block, cluster, dynamic_shared_bytes } = kernel.launch;
    let mut text = format!("{} × {}", extent(grid), extent(block));
    if cluster.to_array().iter().any(|&side| side > 1) {
        text += &format!(" c{}", extent(cluster));
    }
    if dynamic_shared_bytes > 0 {
        text += &format!(" {}", units::bytes(dynamic_shared_bytes.into()).replace(' ', ""));
    }
    text
}

/// Dimensions without trailing ones.
pub fn extent(dimensions: Dim3) -> String {
    let dimensions = dimensions.to_array();
    let used = dimensions.iter().rposition(|&n| n != 1).map_or(1, |last| last + 1);
    dimensions[..used].iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn occupancy(geometry: &Geometry) -> String {
    let occupancy = &geometry.occupancy;
    let share = units::share(occupancy.fraction());
    // At 100% nothing more fits, whatever it is that is full.
    if occupancy.fraction() == 1.0 {
        return share;
    }
    let limiters: Vec<_> = occupancy.limiters().map(brief).collect();
    format!("{share} {}", limiters.join("+"))
}

/// A limiter's name as narrow as a table needs it.
fn brief(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::Registers => "regs",
        Limiter::SharedMemory => "shared",
        other => other.name(),
    }
}

fn waves(waves: f64) -> String {
    if waves < 99.95 { format!("{waves:.1}") } else { units::count(waves.round() as u64) }
}

/// `12.3 µs ±1% ×34`: mean, relative standard error, samples. A mean below its own error says no
/// more than a limit: `<95.0 ns ×49`, two standard errors above it.
fn gpu_time(gpu: &GpuTime) -> String {
    let samples = gpu.each.count;
    let mean = units::time(gpu.each.mean_ns);
    match gpu.deviation_ns {
        Some(deviation) if gpu.each.mean_ns > 0.0 => {
            let error = deviation / (samples as f64).sqrt();
            if error > gpu.each.mean_ns {
                return format!("<{} ×{samples}", units::time(gpu.each.mean_ns + 2.0 * error));
            }
            format!("{mean} ±{} ×{samples}", units::share(error / gpu.each.mean_ns))
        }
        _ => format!("{mean} ×{samples}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_leave_trailing_ones_out() {
        for (dimensions, text) in
            [([1, 1, 1], "1"), ([7, 1, 1], "7"), ([1, 2, 1], "1,2"), ([4, 1, 9], "4,1,9")]
        {
            assert_eq!(extent(dimensions.into()), text);
        }
    }
}
