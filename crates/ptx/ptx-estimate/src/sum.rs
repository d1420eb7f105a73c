//! Sums steps and figures into the work of a launch.

use super::Work;
use super::code::{Code, Step};
use super::latency;
use super::warp::Counters;

/// Turns visits of steps into instructions.
pub(super) struct Sum {
    /// Instructions of each step.
    instructions: Vec<f64>,
    /// Most instructions of a warp that was seen.
    longest: f64,
}

impl Sum {
    pub(super) fn new(code: &Code) -> Sum {
        let instructions = |step: &Step| step.tally.iter().map(|&(_, count)| f64::from(count)).sum();
        Sum { instructions: code.steps.iter().map(instructions).collect(), longest: 0.0 }
    }

    /// Instructions in all.
    pub(super) fn instructions(&self, counters: &Counters) -> f64 {
        counters.visits.iter().zip(&self.instructions).map(|(visits, count)| visits * count).sum()
    }

    /// Takes note of a warp.
    pub(super) fn see(&mut self, warp: &Counters) {
        self.longest = self.longest.max(self.instructions(warp));
    }

    /// The work that was counted; its barriers and cycles are those of all warps together.
    pub(super) fn work(&self, code: &Code, Counters { visits, lanes, figures }: &Counters) -> Work {
        let mut work = Work { longest_warp: self.longest, ..Work::default() };
        for ((step, visits), lanes) in code.steps.iter().zip(visits).zip(lanes) {
            for &(class, count) in &step.tally {
                work.instructions[class as usize] += visits * f64::from(count);
                work.thread_instructions += lanes * f64::from(count);
            }
            work.latency_cycles += visits * step.cycles;
            work.serial_loads += visits * step.serial_loads;
            work.issue_cycles += visits * step.busy;
            work.machine_instructions += visits * step.machine;
        }
        work.count_figures(figures);
        work.latency_cycles += latency::wavefronts(&work);
        work
    }
}
