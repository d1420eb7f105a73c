//! What the walked warps did, added up so that it stands for the launch.

use super::Work;
use super::code::{Code, Step};
use super::warp::{Counters, Figure};

/// What the walked warps have done, each as often as what it stands for.
pub(super) struct Sum {
    counters: Counters,
    /// Instructions of each step.
    instructions: Vec<f64>,
    longest: f64,
    /// How many warps, and of their instructions the sum and the sum of squares.
    moments: [f64; 3],
}

impl Sum {
    pub(super) fn new(code: &Code) -> Sum {
        let instructions = |step: &Step| step.tally.iter().map(|&(_, count)| f64::from(count)).sum();
        Sum {
            counters: Counters::new(code.steps.len()),
            instructions: code.steps.iter().map(instructions).collect(),
            longest: 0.0,
            moments: [0.0; 3],
        }
    }

    /// Adds a warp that stands for `weight` of them.
    pub(super) fn add(&mut self, warp: &Counters, weight: f64) {
        let own = warp.visits.iter().zip(&self.instructions).map(|(visits, count)| visits * count).sum();
        self.longest = f64::max(self.longest, own);
        let add = |sum: &mut [f64], more: &[f64]| {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += weight * more);
        };
        add(&mut self.counters.visits, &warp.visits);
        add(&mut self.counters.lanes, &warp.lanes);
        add(&mut self.counters.figures, &warp.figures);
        let more = [1.0, own, own * own];
        self.moments.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }

    /// The standard error of the mean of the warps' instructions, over that mean, had they been drawn by chance.
    pub(super) fn doubt(&self) -> f64 {
        let [count, sum, squares] = self.moments;
        if sum == 0.0 {
            return 0.0;
        }
        let mean = sum / count;
        let variance = (squares / count - mean * mean).max(0.0);
        (variance / count).sqrt() / mean
    }

    /// The work of the launch, if all of its warps were added `times` times; barriers are those of all warps.
    pub(super) fn work(&self, code: &Code, times: f64) -> Work {
        let mut work = Work { longest_warp: self.longest, ..Work::default() };
        let Counters { visits, lanes, figures } = &self.counters;
        for ((step, visits), lanes) in code.steps.iter().zip(visits).zip(lanes) {
            for &(class, count) in &step.tally {
                work.instructions[class as usize] += visits * f64::from(count) / times;
                work.thread_instructions += lanes * f64::from(count) / times;
            }
        }
        for (place, figure) in [
            (&mut work.global_load_requests, Figure::LoadRequests),
            (&mut work.global_load_sectors, Figure::LoadSectors),
            (&mut work.global_load_bytes, Figure::LoadBytes),
            (&mut work.global_store_requests, Figure::StoreRequests),
            (&mut work.global_store_sectors, Figure::StoreSectors),
            (&mut work.global_store_bytes, Figure::StoreBytes),
            (&mut work.shared_requests, Figure::SharedRequests),
            (&mut work.shared_passes, Figure::SharedPasses),
            (&mut work.local_requests, Figure::LocalRequests),
            (&mut work.atomic_requests, Figure::AtomicRequests),
            (&mut work.atomic_lanes, Figure::AtomicLanes),
            (&mut work.atomic_passes, Figure::AtomicPasses),
            (&mut work.barriers_per_warp, Figure::Barriers),
            (&mut work.unknown_branches, Figure::UnknownBranches),
        ] {
            *place = figures[figure as usize] / times;
        }
        work
    }
}
