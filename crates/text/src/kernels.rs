//! Kernels as tables have them.

use crate::units;
use apex_profile::{Geometry, GpuTime, Kernel, Profile};
use cuda_launch::{Dim3, LaunchConfig};
use occupancy::Limiter;

/// Indices of the kernels that were launched, those with the greatest value of `key` first.
pub fn ranked(profile: &Profile, key: impl Fn(&Kernel) -> f64) -> Vec<usize> {
    let mut order: Vec<_> =
        (0..profile.kernels.len()).filter(|&index| profile.kernels[index].launches.any()).collect();
    order.sort_by(|&a, &b| key(&profile.kernels[b]).total_cmp(&key(&profile.kernels[a])));
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

/// Dimensions without trailing ones: `256` or `(64, 64)`.
fn extent(dimensions: Dim3) -> String {
    match dimensions.to_array() {
        [x, 1, 1] => x.to_string(),
        [x, y, 1] => format!("({x}, {y})"),
        [x, y, z] => format!("({x}, {y}, {z})"),
    }
}

/// `67% regs`: theoretical occupancy and what limits it.
pub fn occupancy(geometry: &Geometry) -> String {
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
pub fn waves(waves: f64) -> String {
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
