//! The kernels' shares of the GPU's time.
//!
//! A graph has one time for all of its nodes. So the share of a kernel that graphs run is unknown,
//! while the graphs' time belongs to the whole that other kernels have a share of.

use super::{Graph, Kernel, Profile};
use crate::figure::total;

/// The time that kernels have a share of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuShares {
    /// Nanoseconds, in launch calls and graphs; `None` where a graph's time is unknown.
    whole_ns: Option<f64>,
    in_calls_ns: f64,
}

impl GpuShares {
    /// The shares in a profile.
    pub fn of(profile: &Profile) -> Self {
        let launched = profile.graphs.iter().filter(|graph| graph.launches > 0);
        let in_graphs: Option<Vec<f64>> = launched.map(|graph| graph_ns(profile, graph)).collect();
        let in_calls = total(profile.kernels.iter().filter_map(Kernel::gpu_total_ns));
        Self { whole_ns: in_graphs.map(|graphs| in_calls + total(graphs)), in_calls_ns: in_calls }
    }

    /// The share of all graphs, from 0 to 1; `None` where it is unknown.
    pub fn of_graphs(&self) -> Option<f64> {
        self.whole_ns.filter(|whole| *whole > 0.0).map(|whole| 1.0 - self.in_calls_ns / whole)
    }

    /// The share of a kernel, from 0 to 1; `None` where it is unknown: nothing of the kernel was
    /// timed, or graphs run it.
    pub fn share(&self, kernel: &Kernel) -> Option<f64> {
        if kernel.launches.ran() == 0 {
            return Some(0.0);
        }
        let own = kernel.gpu_total_ns().filter(|_| kernel.launches.by_graphs == 0)?;
        self.whole_ns.map(|whole| if whole > 0.0 { own / whole } else { 0.0 })
    }
}

/// The time of a graph's launches, by samples of its own, else by those of its kernels.
fn graph_ns(profile: &Profile, graph: &Graph) -> Option<f64> {
    if let Some(gpu) = &graph.gpu {
        return Some(gpu.total_ns.value);
    }
    let node = |&(kernel, nodes): &(usize, u32)| {
        Some(profile.kernels.get(kernel)?.gpu?.each.mean_ns * f64::from(nodes))
    };
    let once: Option<Vec<f64>> = graph.kernels.iter().map(node).collect();
    once.filter(|_| graph.opaque == 0).map(|nodes| total(nodes) * graph.launches as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Figure;
    use crate::profile::{Basis, GpuTime, Launches};
    use crate::sketch::Distribution;

    fn gpu(mean_ns: f64, launches: u64) -> GpuTime {
        GpuTime {
            each: Distribution { mean_ns, ..Distribution::default() },
            deviation_ns: None,
            basis: Basis::Queued,
            queued_samples: 1,
            busy_samples: 0,
            idle_samples: 0,
            correction_ns: 0.0,
            total_ns: Figure::measured(mean_ns * launches as f64),
        }
    }

    /// A kernel of so many launch calls and runs by graphs, each of which takes so long.
    fn kernel(calls: u64, by_graphs: u64, mean_ns: f64) -> Kernel {
        let launches = Launches { calls, by_graphs, ..Launches::default() };
        Kernel { launches, gpu: Some(gpu(mean_ns, calls)), ..Kernel::default() }
    }

    fn shares(profile: &Profile) -> Vec<Option<f64>> {
        let shares = GpuShares::of(profile);
        profile.kernels.iter().map(|kernel| shares.share(kernel)).collect()
    }

    #[test]
    fn kernels_that_graphs_run_have_no_share_and_others_have_one_of_the_graphs_time_too() {
        let graph = |gpu| Graph { launches: 10, kernels: vec![(1, 2)], gpu, ..Graph::default() };
        let mut profile = Profile {
            kernels: vec![kernel(10, 0, 5.0), kernel(2, 20, 7.5), kernel(0, 0, 0.0)],
            graphs: vec![graph(Some(gpu(13.5, 10)))],
            ..Profile::default()
        };
        assert_eq!(shares(&profile), [Some(0.25), None, Some(0.0)]);
        assert_eq!(GpuShares::of(&profile).of_graphs(), Some(0.675));
        // Without a time of its own, the graph takes what its two nodes take.
        profile.graphs = vec![graph(None)];
        assert_eq!(shares(&profile), [Some(50.0 / 215.0), None, Some(0.0)]);
        // Nodes that nobody knows may take any time.
        profile.graphs = vec![Graph { opaque: 1, ..graph(None) }];
        assert_eq!(shares(&profile), [None, None, Some(0.0)]);
        profile.graphs[0].launches = 0;
        assert_eq!(shares(&profile), [Some(50.0 / 65.0), None, Some(0.0)]);
    }

    #[test]
    fn a_kernel_that_was_not_timed_has_no_share() {
        let untimed = Kernel { gpu: None, ..kernel(3, 0, 1.0) };
        let profile = Profile { kernels: vec![kernel(1, 0, 4.0), untimed], ..Profile::default() };
        assert_eq!(shares(&profile), [Some(1.0), None]);
        assert_eq!(shares(&Profile { kernels: vec![kernel(1, 0, 0.0)], ..Profile::default() }), [Some(0.0)]);
    }
}
