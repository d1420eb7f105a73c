//! Kernels as tables have them.
//!
//! A column is stated once: its heading, its place in a narrow table, what it means, and how its
//! cell is got. Tables choose among the columns.

use super::{Align, Table, bar};
use apex_ordered::Order;
use apex_profile::{DeviceNames, Geometry, GpuTime, Kernel, Profile, units};
use cuda_launch::{Dim3, LaunchConfig};
use occupancy::Limiter;

/// A row of a table.
pub struct Row<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Its name in this table.
    pub name: &'a str,
    /// Its share of what the table is sorted by.
    pub share: Share,
}

/// A kernel's share of what a table is sorted by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// From 0 to 1.
    Known(f64),
    /// The share is unknown.
    Unknown,
    /// A share of it says nothing.
    Meaningless,
}

impl From<Option<f64>> for Share {
    fn from(share: Option<f64>) -> Self {
        share.map_or(Self::Unknown, Self::Known)
    }
}

impl Share {
    /// The share of one kernel in the sum over all of them.
    pub fn in_sum(own: f64, sum: f64) -> Self {
        Self::Known(if sum > 0.0 { own / sum } else { 0.0 })
    }

    fn cell(self) -> String {
        match self {
            Self::Known(share) => units::share(share),
            Self::Unknown => "?".to_owned(),
            Self::Meaningless => "-".to_owned(),
        }
    }

    fn bar(self) -> String {
        match self {
            Self::Known(share) => bar(share, 8),
            Self::Unknown | Self::Meaningless => String::new(),
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy)]
pub struct Column {
    /// Its heading.
    pub heading: &'static str,
    /// The alignment of the column.
    pub align: Align,
    /// The column's text in a legend, or empty.
    pub meaning: &'static str,
    /// Its cell.
    pub cell: fn(&Row<'_>) -> String,
}

const fn column(
    heading: &'static str,
    align: Align,
    meaning: &'static str,
    cell: fn(&Row<'_>) -> String,
) -> Column {
    Column { heading, align, meaning, cell }
}

/// Its runs.
pub const LAUNCHES: Column =
    column("launches", Align::Right, "", |row| units::count(row.kernel.launches.ran()));
/// Its launch configuration.
pub const CONFIGURATION: Column =
    column("configuration", Align::OptionalLeft, "", |row| configuration(row.kernel.launch));
/// Its GPU time.
pub const GPU_TIME: Column = column("GPU timeᵐ", Align::Right, "", |row| {
    row.kernel.gpu.as_ref().map_or("not timed".into(), gpu_time)
});
/// CPU time of its launch calls.
pub const CPU_TIME: Column = column("CPU timeᵐ", Align::Optional, "", |row| match &row.kernel.cpu {
    cpu if cpu.count > 0 => units::time(cpu.mean_ns),
    _ => "-".into(),
});
/// Its share.
pub const SHARE: Column = column("share", Align::Optional, "", |row| row.share.cell());
/// The share as a bar.
pub const BAR: Column = column("", Align::OptionalLeft, "", |row| row.share.bar());
/// Its theoretical occupancy.
pub const OCCUPANCY: Column =
    column("occupancyᶜ", Align::OptionalLeft, "theoretical occupancy and its limiter", |row| {
        computed(row, occupancy)
    });
/// Its waves.
pub const WAVES: Column =
    column("wavesᶜ", Align::Optional, "waves", |row| computed(row, |of| waves(of.waves.waves)));
/// Its tail effect.
pub const TAIL: Column = column("tailᶜ", Align::Optional, "tail effect", |row| {
    computed(row, |of| units::share(of.waves.tail_effect()))
});
/// Its block efficiency.
pub const EFFICIENCY: Column = column("eff.ᶜ", Align::Optional, "block efficiency", |row| {
    computed(row, |of| units::share(of.block_efficiency))
});

fn computed(row: &Row<'_>, text: fn(&Geometry) -> String) -> String {
    row.kernel.geometry.as_ref().map_or("?".into(), text)
}

/// A table with each kernel's name, its device where there are several, and these columns.
pub fn table<'a>(devices: &DeviceNames, columns: &[Column], rows: impl Iterator<Item = Row<'a>>) -> Table {
    let has_several = devices.cells.len() > 1;
    let device = has_several.then_some((devices.heading, Align::Right));
    let headings = columns.iter().map(|column| (column.heading, column.align));
    let headings = [("kernel", Align::Flexible)].into_iter().chain(device).chain(headings);
    let mut table = Table::new(&headings.collect::<Vec<_>>());
    for row in rows {
        let device = has_several.then(|| devices.cell(row.kernel.device));
        let cells = columns.iter().map(|column| (column.cell)(&row));
        table.row([row.name.to_owned()].into_iter().chain(device).chain(cells).collect());
    }
    table
}

/// Indices of the kernels that were launched, those with the greatest value of `key` first.
pub fn ranked(profile: &Profile, key: impl Fn(&Kernel) -> f64) -> Vec<usize> {
    let mut order: Vec<_> =
        (0..profile.kernels.len()).filter(|&index| profile.kernels[index].launches.any()).collect();
    order.order_by(|&a, &b| key(&profile.kernels[b]).total_cmp(&key(&profile.kernels[a])));
    order
}

/// A launch configuration as CUDA C++ writes it: `<<<(64, 64), 256, 2 KiB>>>`, without the dynamic
/// shared memory if there is none, and with the cluster if there is one.
pub fn configuration(launch: LaunchConfig) -> String {
    let LaunchConfig { grid, block, cluster, dynamic_shared_bytes } = launch;
    let shared = match dynamic_shared_bytes {
        0 => String::new(),
        shared => format!(", {}", without_zeros(&units::bytes(shared.into()))),
    };
    let cluster = match cluster.to_array().iter().any(|&side| side > 1) {
        true => format!(" cluster {}", extent(cluster)),
        false => String::new(),
    };
    format!("<<<{}, {}{shared}>>>{cluster}", extent(grid), extent(block))
}

/// `2 KiB` for `2.00 KiB`; `1.50 KiB` stays.
fn without_zeros(size: &str) -> String {
    match size.split_once(' ').and_then(|(number, unit)| Some((number.split_once('.')?, unit))) {
        Some(((whole, digits), unit)) if digits.bytes().all(|digit| digit == b'0') => {
            format!("{whole} {unit}")
        }
        _ => size.to_owned(),
    }
}

/// Dimensions without trailing ones: `256` or `(64, 64)`; `?` where a trace does not have them.
fn extent(dimensions: Dim3) -> String {
    match dimensions.to_array() {
        [0, 0, 0] => "?".to_owned(),
        [x, 1, 1] => x.to_string(),
        [x, y, 1] => format!("({x}, {y})"),
        [x, y, z] => format!("({x}, {y}, {z})"),
    }
}

/// `67% regs`: theoretical occupancy and what limits it.
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

/// Waves of a launch, to a tenth where that matters.
fn waves(waves: f64) -> String {
    if waves < 99.95 { format!("{waves:.1}") } else { units::count(waves.round() as u64) }
}

/// `12.3 µs ±1% ×34`: mean, relative standard error, samples. A mean below its own error says no
/// more than a limit: `<95.0 ns ×49`, two standard errors above it.
pub fn gpu_time(gpu: &GpuTime) -> String {
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
            [([1, 1, 1], "1"), ([7, 1, 1], "7"), ([1, 2, 1], "(1, 2)"), ([4, 1, 9], "(4, 1, 9)")]
        {
            assert_eq!(extent(dimensions.into()), text);
        }
    }

    #[test]
    fn a_configuration_is_written_as_in_cuda() {
        let launch = LaunchConfig::new([64, 64, 1], 256);
        assert_eq!(configuration(launch), "<<<(64, 64), 256>>>");
        let launch = LaunchConfig { cluster: [2, 1, 1].into(), ..launch.with_dynamic_shared_bytes(2048) };
        assert_eq!(configuration(launch), "<<<(64, 64), 256, 2 KiB>>> cluster 2");
        assert_eq!(configuration(launch.with_dynamic_shared_bytes(1)), "<<<(64, 64), 256, 1 B>>> cluster 2");
        assert_eq!(
            configuration(launch.with_dynamic_shared_bytes(1536)),
            "<<<(64, 64), 256, 1.50 KiB>>> cluster 2"
        );
    }
}
