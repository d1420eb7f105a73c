//! What the GPU's size allows: launches share it.
//!
//! A launch needs a share of the GPU: of its places for blocks, of which its last wave leaves some
//! free, or of the part that it uses most (memory, the issue of instructions), which its prediction
//! tells. Launches that are ready run at full speed together while they need no more than the whole
//! GPU; beyond that, all of them slow down alike. So the sum of what launches need per time is
//! never above the GPU.

use apex_profile::{FlowLaunch, Kernel};

/// The share of the GPU that a launch of a kernel needs.
pub(crate) fn share_of(kernel: &Kernel) -> f64 {
    let Some(geometry) = &kernel.geometry else { return 1.0 };
    let places = geometry.waves.capacity.max(1) as f64;
    let waves = kernel.launch.blocks() as f64 / places;
    let blocks = waves / waves.ceil().max(1.0);
    let bound = kernel.prediction.as_ref().and_then(|said| said.bound.as_ref());
    blocks.max(bound.map_or(0.0, |bound| bound.share)).clamp(0.0, 1.0)
}

/// The time of launches that wait for each other and share the GPU, nanoseconds.
pub(crate) fn concurrent_ns(launches: &[FlowLaunch]) -> f64 {
    let mut left: Vec<f64> = launches.iter().map(|launch| launch.ns).collect();
    let mut is_done = vec![false; launches.len()];
    let mut now = 0.0;
    loop {
        let is_ready =
            |at: &usize| !is_done[*at] && launches[*at].waits_for.iter().all(|&before| is_done[before]);
        let ready: Vec<usize> = (0..launches.len()).filter(is_ready).collect();
        if ready.is_empty() {
            return now;
        }
        let needed: f64 = ready.iter().map(|&at| launches[at].share).sum();
        let slower = needed.max(1.0);
        let first = ready.iter().map(|&at| left[at]).fold(f64::INFINITY, f64::min);
        now += first * slower;
        for at in ready {
            left[at] -= first;
            is_done[at] = left[at] <= 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(ns: f64, share: f64, waits_for: &[usize]) -> FlowLaunch {
        FlowLaunch { kernel: 0, ns, share, is_known: true, waits_for: waits_for.to_vec() }
    }

    #[test]
    fn small_launches_overlap_and_those_that_fill_the_gpu_do_not() {
        let two = |share| [launch(10.0, share, &[]), launch(6.0, share, &[])];
        assert_eq!(concurrent_ns(&two(0.2)), 10.0);
        assert_eq!(concurrent_ns(&two(0.5)), 10.0);
        assert_eq!(concurrent_ns(&two(1.0)), 16.0);
        // Both run at two thirds of their speed while there are two.
        assert!((concurrent_ns(&two(0.75)) - 13.0).abs() < 1e-9);
    }

    #[test]
    fn a_launch_starts_when_those_before_it_have_ended() {
        let diamond = [
            launch(4.0, 0.1, &[]),
            launch(5.0, 0.1, &[0]),
            launch(7.0, 0.1, &[0]),
            launch(2.0, 0.1, &[1, 2]),
        ];
        assert_eq!(concurrent_ns(&diamond), 13.0);
        assert_eq!(concurrent_ns(&[]), 0.0);
    }

    #[test]
    fn no_time_is_below_the_work_or_the_chain() {
        let mut random = apex_random::Random::new(1);
        for _ in 0..500 {
            let count = 1 + random.index(12);
            let launches: Vec<FlowLaunch> = (0..count)
                .map(|at| {
                    let waits_for: Vec<usize> = (0..at).filter(|_| random.index(3) == 0).collect();
                    launch(1.0 + random.index(20) as f64, 0.1 * (1 + random.index(10)) as f64, &waits_for)
                })
                .collect();
            let time = concurrent_ns(&launches);
            let work: f64 = launches.iter().map(|launch| launch.ns * launch.share).sum();
            let serial: f64 = launches.iter().map(|launch| launch.ns).sum();
            let (_, chain) = crate::order::longest_chain(&launches);
            assert!(time + 1e-6 >= work && time + 1e-6 >= chain, "{launches:?}: {time}");
            assert!(time <= serial + 1e-6, "{launches:?}: {time}");
        }
    }
}
