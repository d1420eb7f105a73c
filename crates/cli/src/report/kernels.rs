//! The table of top kernels.

use crate::text::kernels::{
    BAR, CONFIGURATION, CPU_TIME, Column, EFFICIENCY, GPU_TIME, LAUNCHES, OCCUPANCY, Row, SHARE, Share, TAIL,
    WAVES, configuration,
};
use crate::text::{self, Align, Table};
use apex_profile::{GpuShares, Kernel, Profile, units};

/// Columns with computed figures.
const COMPUTED: [Column; 4] = [OCCUPANCY, WAVES, TAIL, EFFICIENCY];

/// The order of the table.
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
    /// Returns the order if the user names none: time, if any was measured.
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

/// The table of kernels, and what its headings mean.
pub struct Kernels {
    /// The header and the rows.
    pub lines: Vec<String>,
    /// The meaning of the headings and marks of the shown columns.
    pub legend: String,
}

/// The table for a width. Shares are of all kernels of `job`, whose devices tell rows apart.
pub fn table(profile: &Profile, job: &Profile, sort: Sort, top: usize, width: usize) -> Kernels {
    let ranked = ranked(profile, sort, top);
    let names: Vec<&str> = ranked.iter().map(|&index| &*profile.kernels[index].short_name).collect();
    let wide = rows(profile, job, sort, &ranked, &names);
    let headings = wide.headings(width);
    // Without configurations, a name stands for one row alone.
    let table = match headings.contains(&CONFIGURATION.heading) {
        true => wide,
        false => {
            let unique = unique_names(profile, &ranked);
            rows(profile, job, sort, &ranked, &unique.iter().map(String::as_str).collect::<Vec<_>>())
        }
    };
    let headings = table.headings(width);
    let is_timed = |&index: &usize| profile.kernels[index].gpu.is_some();
    let is_by_graphs = |&index: &usize| profile.kernels[index].launches.by_graphs > 0;
    let of_graphs = (sort == Sort::Time && ranked.iter().any(is_by_graphs)).then(|| of_graphs(job));
    let timed = legend(&headings, ranked.iter().any(is_timed), ranked.iter().all(is_timed));
    let legend = [timed].into_iter().chain(of_graphs).collect::<Vec<_>>().join(" · ");
    Kernels { lines: table.lines(width), legend }
}

/// The short names of these kernels, each with its configuration where that alone tells rows of a
/// device apart.
fn unique_names(profile: &Profile, ranked: &[usize]) -> Vec<String> {
    let kernel = |index: usize| &profile.kernels[index];
    let is_alone = |index: usize| {
        let of = |index: usize| (&kernel(index).short_name, kernel(index).device);
        ranked.iter().filter(|&&other| of(other) == of(index)).count() == 1
    };
    let name = |&index: &usize| match is_alone(index) {
        true => kernel(index).short_name.clone(),
        false => format!("{} {}", kernel(index).short_name, configuration(kernel(index).launch)),
    };
    ranked.iter().map(name).collect()
}

fn rows(profile: &Profile, job: &Profile, sort: Sort, ranked: &[usize], names: &[&str]) -> Table {
    let kept = |column: Column| Column { align: Align::Right, ..column };
    let cpu_time = if sort == Sort::Cpu { kept(CPU_TIME) } else { CPU_TIME };
    let measured = [GPU_TIME, kept(SHARE), cpu_time, BAR];
    let columns = [&[LAUNCHES, CONFIGURATION][..], &COMPUTED, &measured].concat();
    let total: f64 = job.kernels.iter().map(|kernel| sort.of(kernel)).sum();
    let shares = GpuShares::of(job);
    let row = |(&index, &name): (&usize, &_)| {
        let kernel = &profile.kernels[index];
        let share = match sort {
            Sort::Time => shares.share(kernel).into(),
            Sort::Count | Sort::Cpu => Share::in_sum(sort.of(kernel), total),
        };
        Row { kernel, name, share }
    };
    text::kernels::table(&job.device_names(), &columns, ranked.iter().zip(names).map(row))
}

/// Says why the share of a kernel that graphs run is unknown, and what share the graphs have.
fn of_graphs(job: &Profile) -> String {
    let share = GpuShares::of(job).of_graphs();
    let share = share.map_or_else(String::new, |share| format!("; all graphs: {}", units::share(share)));
    format!("share ?: graphs run the kernel, and a graph has one time for all of its kernels{share}")
}

/// Returns the meaning of these headings, and the reason why a kernel may be without a time.
fn legend(headings: &[&str], is_any_timed: bool, are_all_timed: bool) -> String {
    let is_shown = |column: &Column| headings.contains(&column.heading);
    let computed: Vec<&str> =
        COMPUTED.iter().filter(|column| is_shown(column)).map(|column| column.meaning).collect();
    let is_measured = is_any_timed || is_shown(&CPU_TIME);
    let parts = [
        is_measured.then(|| "ᵐ measured, mean per launch (×n: n samples)".to_owned()),
        (!computed.is_empty()).then(|| format!("ᶜ computed exactly: {}", computed.join(", "))),
        (!are_all_timed).then(|| {
            "not timed: no launch of the kernel was sampled (`apex run --timing all` times each)".to_owned()
        }),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use apex_profile::{Device, Launches};
    use cuda_launch::LaunchConfig;

    /// Three configurations of one kernel on each of two devices.
    fn profile() -> Profile {
        let kernel = |at: u32| Kernel {
            short_name: "sum<bf16>".to_owned(),
            device: Some((at % 2) as usize),
            launch: LaunchConfig::new(1 << at, 256),
            launches: Launches { calls: 10 + u64::from(at), ..Launches::default() },
            ..Kernel::default()
        };
        let device = |ordinal| Device { ordinals: vec![ordinal], ..Device::default() };
        Profile {
            devices: vec![device(1), device(0)],
            kernels: (0..6).map(kernel).collect(),
            ..Profile::default()
        }
    }

    #[test]
    fn rows_differ_and_have_their_share_and_device_at_every_width() {
        let profile = profile();
        for width in [70, 80, 100, 120, 200] {
            let Kernels { lines, legend } = table(&profile, &profile, Sort::Count, 6, width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
            let headings: Vec<&str> = lines[0].split_whitespace().collect();
            assert!(headings.contains(&"share") && headings.contains(&"GPU"), "{width}: {headings:?}");
            // Beside the figures, the cells that name a kernel.
            let named = |line: &String| {
                let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
                let names = cells
                    .filter(|cell| cell.starts_with("sum") || cell.starts_with("<<<") || cell.len() == 1);
                names.collect::<Vec<_>>().join(" ")
            };
            let mut names: Vec<String> = lines[1..].iter().map(named).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), 6, "{width}: {lines:#?}");
            // The first used device has ordinal 1.
            assert!(lines[1].contains(" 0 ") && lines[2].contains(" 1 "), "{lines:#?}");
            let has_waves = lines[0].contains("wavesᶜ");
            assert_eq!(legend.contains("waves"), has_waves, "{width}: {legend}");
            assert!(legend.contains("not timed: "), "{legend}");
        }
    }

    #[test]
    fn kernels_that_graphs_run_have_no_share_of_the_time() {
        let mut profile = profile();
        let launches = Launches { by_graphs: 30, ..Launches::default() };
        profile.kernels.truncate(2);
        profile.kernels[0].launches = launches;
        let shares = |profile: &Profile, sort| {
            let Kernels { lines, legend } = table(profile, profile, sort, 6, 200);
            let cells = lines[1..].iter().map(|line| line.split("  ").map(str::trim).any(|cell| cell == "?"));
            (cells.collect::<Vec<_>>(), legend.contains("share ?: graphs run the kernel"))
        };
        let (unknown, is_explained) = shares(&profile, Sort::Time);
        assert!(unknown[0] && is_explained);
        // Launches are counted.
        assert!(!shares(&profile, Sort::Count).1);
    }

    #[test]
    fn a_legend_explains_the_columns_that_are_shown() {
        assert_eq!(legend(&["kernel", "share"], true, true), "ᵐ measured, mean per launch (×n: n samples)");
        let all = legend(&["occupancyᶜ", "wavesᶜ", "tailᶜ", "eff.ᶜ"], false, false);
        assert_eq!(
            all,
            "ᶜ computed exactly: theoretical occupancy and its limiter, waves, tail effect, block efficiency · not timed: no \
                launch of the kernel was sampled (`apex run --timing all` times each)"
        );
    }
}
