//! SM throughput: the utilisation of the busiest part of the multiprocessors (as Nsight Compute
//! defines it), computed from the work of a launch and its duration.
//!
//! Each kind of instruction keeps a part of a multiprocessor for some cycles ([`Load`]): the issue
//! slots, units of arithmetic, the way to memory. Parts work side by side, so the cycles of the
//! busiest count; where others come close to it, what is counted for one may be another's, and
//! theirs count a little too: cycles are joined as `(a^p + b^p + ...)^(1/p)`.

use crate::case::{Basis, Placed};
use ptx::Class;

/// Cycles for which a part of a multiprocessor is kept busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Issue slots: by an instruction of the machine.
    Issue,
    /// Units of arithmetic: integers, ...
    Integer,
    /// ... double precision, ...
    Double,
    /// ... special functions and conversions, ...
    Special,
    /// ... matrix products.
    Tensor,
    /// The way to memory: by a request to global memory, ...
    Request,
    /// ... each sector of it, ...
    Sector,
    /// ... a wavefront of shared memory, ...
    Shared,
    /// ... an atomic operation there that others of the warp wait for, ...
    SharedAtomic,
    /// ... a sector of local memory, ...
    Local,
    /// ... an address of constant memory, ...
    Constant,
    /// ... an atomic operation.
    Atomic,
    /// The exponent by which parts are joined.
    Join,
    /// All arithmetic, over the cycles that issue takes of a warp.
    Busy,
}

impl Load {
    /// The number of loads.
    pub const COUNT: usize = Load::Busy as usize + 1;
}

/// A value for each [`Load`], in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loads(pub [f64; Load::COUNT]);

/// The exponent by which shares approach 1: few launches have a part that is always busy.
const FULL: f64 = 8.0;

impl Loads {
    /// Round guesses near what manuals say of compute capability 9.0: where a fit begins, and near
    /// which it stays.
    pub const PRIOR: Loads = Loads([0.25, 0.5, 1.0, 2.0, 4.0, 0.5, 0.1, 1.0, 1.0, 0.5, 2.0, 0.5, 3.0, 0.125]);

    /// The value of one.
    pub fn get(&self, load: Load) -> f64 {
        self.0[load as usize]
    }
}

/// The load that a launch puts on all multiprocessors of the device.
#[derive(Clone, Debug)]
pub struct Occupation {
    /// The count of each [`Load`]; 0 for the exponent.
    counts: [f64; Load::COUNT],
    /// Cycles of all multiprocessors in a microsecond.
    cycles_per_us: f64,
}

impl Occupation {
    /// Computes the load of a launch; `None` if it is unknown what the launch executes.
    pub fn of(placed: &Placed<'_>) -> Option<Occupation> {
        let work = placed.case.work.as_ref().filter(|_| placed.basis() == Basis::Work)?;
        let count = |classes: &[Class]| classes.iter().map(|&class| work.count(class)).sum::<f64>();
        Some(Occupation {
            counts: [
                work.machine_instructions,
                count(&[Class::Integer, Class::Compare]),
                work.count(Class::Double),
                count(&[Class::Special, Class::Convert]),
                work.count(Class::Tensor),
                work.global_load_requests + work.global_store_requests,
                work.global_load_sectors + work.global_store_sectors,
                work.shared_wavefronts,
                work.shared_atomic_turns,
                work.local_sectors,
                work.constant_wavefronts,
                work.atomic_wavefronts,
                0.0,
                work.issue_cycles * work.warps,
            ],
            cycles_per_us: f64::from(placed.device.limits.attributes.multiprocessors)
                * placed.device.cycles_per_us(),
        })
    }

    /// SM throughput, 0 to 1, of a launch that takes so long.
    pub fn utilisation(&self, loads: &Loads, us: f64) -> f64 {
        let cycles: [f64; Load::COUNT] = std::array::from_fn(|load| loads.0[load] * self.counts[load]);
        let parts = [
            cycles[Load::Issue as usize],
            cycles[Load::Integer as usize],
            cycles[Load::Double as usize],
            cycles[Load::Special as usize],
            cycles[Load::Tensor as usize],
            cycles[Load::Request as usize..=Load::Atomic as usize].iter().sum(),
        ];
        let busiest = join(loads.get(Load::Join), &parts).max(cycles[Load::Busy as usize]);
        let share = busiest / (self.cycles_per_us * us);
        share / (1.0 + share.powf(FULL)).powf(1.0 / FULL)
    }
}

/// Shares from which on launches belong to the second, the third and the fourth class of errors.
const LEVELS_FROM: [f64; 3] = [0.05, 0.2, 0.5];
/// Classes of launches whose errors of SM throughput have margins of their own.
pub const LEVELS: usize = LEVELS_FROM.len() + 1;

/// The class of errors of a predicted share, below [`LEVELS`].
pub fn level(share: f64) -> usize {
    LEVELS_FROM.iter().filter(|from| share >= **from).count()
}

/// Joins times of parts that hide each other in part.
pub(crate) fn join(power: f64, parts: &[f64]) -> f64 {
    match parts {
        [one] => *one,
        all => all.iter().map(|us| us.max(1e-6).powf(power)).sum::<f64>().powf(1.0 / power),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the occupation of a launch with these counts of loads.
    fn occupation(of: &[(Load, f64)]) -> Occupation {
        let mut counts = [0.0; Load::COUNT];
        of.iter().for_each(|&(load, count)| counts[load as usize] = count);
        Occupation { counts, cycles_per_us: 1000.0 }
    }

    #[test]
    fn the_busiest_part_counts_for_as_long_as_the_launch_takes() {
        let loads = Loads::PRIOR;
        let double = occupation(&[(Load::Issue, 1000.0), (Load::Double, 1000.0)]);
        let share = double.utilisation(&loads, 10.0);
        assert!((0.1..0.102).contains(&share), "{share}");
        assert!((double.utilisation(&loads, 20.0) - share / 2.0).abs() < 1e-6);
        // What keeps another part less busy hardly matters.
        let more = occupation(&[(Load::Double, 1000.0), (Load::Shared, 300.0)]).utilisation(&loads, 10.0);
        assert!((0.1..0.102).contains(&more), "{more}");
        // No part is busy for longer than the launch takes.
        let all = double.utilisation(&loads, 0.1);
        assert!((0.99..=1.0).contains(&all), "{all}");
        let nothing = occupation(&[]).utilisation(&loads, 1.0);
        assert!(nothing < 1e-6, "{nothing}");
    }

    #[test]
    fn shares_have_classes_by_their_size() {
        assert_eq!([0.0, 0.05, 0.3, 1.0].map(level), [0, 1, 2, 3]);
    }
}
