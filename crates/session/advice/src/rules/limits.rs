//! What limits the device where one place takes most of its time: its units' readings, and the kind
//! of change that such a limit allows.
//!
//! The readings are of the whole GPU and of all the time, so that they say something about a place
//! only where that has most of the time. A unit is little used there only if it would be even with
//! nothing of its work outside of the place. They choose what to ask, and claim no saving.

use super::{framework, percent};
use apex_profile::names::Owner;
use apex_profile::{Kernel, Profile, UnitActivity};

/// Minimum share of the time of a place for the GPU's readings to be about it.
const MOST: f64 = 0.6;
/// Share of DRAM's peak bandwidth from which on a kernel is at the memory's speed …
const FULL: f64 = 0.6;
/// … and below which DRAM does not limit it.
const LOW: f64 = 0.3;
/// Share of the time in which tensor cores work, from which on they limit it.
const TENSOR: f64 = 0.5;
/// Share of the time below which a unit counts as idle.
const IDLE: f64 = 0.005;
/// Share of busy multiprocessors below which most of them lack blocks.
const FEW_SMS: f64 = 0.5;
/// Share of busy multiprocessors below which some wait for the last blocks of a kernel …
const BALANCED_SMS: f64 = 0.8;
/// … that has at least so many waves.
const MANY_WAVES: f64 = 4.0;
/// Share of the warps that there can be, below which too few hide latency.
const FEW_WARPS: f64 = 0.25;

/// What limits the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Memory,
    TensorCores,
    Blocks,
    LastBlocks,
    Warps,
    Instructions,
}

impl Limit {
    /// `None` where the readings are between the cases. `share` is the place's of the time, and
    /// `waves` are those of the largest kernel.
    fn of(units: &UnitActivity, share: f64, waves: f64) -> Option<Limit> {
        let most = at_most(units, share);
        match units {
            _ if units.dram >= FULL => Some(Limit::Memory),
            _ if units.tensor >= TENSOR => Some(Limit::TensorCores),
            _ if most.sms < FEW_SMS => Some(Limit::Blocks),
            _ if most.sms < BALANCED_SMS && waves >= MANY_WAVES => Some(Limit::LastBlocks),
            _ if most.dram >= LOW => None,
            _ if most.occupancy < FEW_WARPS => Some(Limit::Warps),
            _ if most.tensor < TENSOR / 2.0 => Some(Limit::Instructions),
            _ => None,
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Limit::Memory => "it works at the memory's speed",
            Limit::TensorCores => "tensor cores work for most of it",
            Limit::Blocks => "most multiprocessors have no work",
            Limit::LastBlocks => {
                "some multiprocessors have no work, though there are many blocks: some take longer"
            }
            Limit::Warps => {
                "few warps run on each multiprocessor, and neither memory nor tensor cores limit it"
            }
            Limit::Instructions => "instructions limit it, and neither memory nor tensor cores",
        }
    }

    fn change(self, owner: Option<Owner>) -> String {
        match self {
            Limit::Memory => {
                let joined = match owner {
                    Some(Owner::PyTorch) => "torch.compile joins neighbours",
                    Some(Owner::Xla) => "one jax.jit around neighbours joins them",
                    Some(Owner::CuPy) => "cupy.fuse or an ElementwiseKernel joins neighbours",
                    _ => "join neighbouring kernels",
                };
                format!(
                    "Only fewer bytes make it faster: smaller types, no arrays in between ({joined}), nothing read twice"
                )
            }
            Limit::TensorCores => "Only fewer or smaller products make it faster: a smaller type (FP8 in place of \
                half precision), or fewer rows and columns"
                .into(),
            Limit::Blocks => "Give it more independent work: more blocks, larger batches, several reductions at \
                once, or a form that divides one long row, sum or chain among blocks"
                .into(),
            Limit::LastBlocks => "Let the blocks that take longest start first (sort what they work on by length, the \
                longest first), or divide them: those that start last run alone while other multiprocessors are idle"
                .into(),
            Limit::Warps => "Give each multiprocessor more warps: fewer registers or less shared memory for each \
                block, more blocks, or several independent loads in flight in each thread"
                .into(),
            Limit::Instructions => "Fewer or cheaper instructions make it faster: less arithmetic for each element \
                (an algorithm of lower order, a table, float in place of double), no divergent branches, chains of \
                loads or contended atomics"
                .into(),
        }
    }
}

/// The most that units can be used during a place of this share of the time: all of their work.
fn at_most(units: &UnitActivity, share: f64) -> UnitActivity {
    let of = |all: f64| (all / share).min(1.0);
    UnitActivity {
        sms: of(units.sms),
        occupancy: of(units.occupancy),
        tensor: of(units.tensor),
        dram: of(units.dram),
    }
}

/// What limits the device during a place of this share of the time: the end of a sentence about the
/// place, and what to change; `None` where nothing is known.
pub(super) fn of_place(
    profile: &Profile,
    share: f64,
    kernel: Option<&Kernel>,
) -> Option<(String, Option<String>)> {
    let units = profile.unit_activity.as_ref().filter(|_| share >= MOST)?;
    let tensor = match units.tensor < IDLE {
        true => "tensor cores idle".to_owned(),
        false => format!("tensor cores at {}", percent(units.tensor)),
    };
    let read = format!(
        "multiprocessors {} busy with {} of their warps, DRAM at {} of its peak, {tensor}",
        percent(units.sms),
        percent(units.occupancy),
        percent(units.dram)
    );
    let waves =
        kernel.and_then(|kernel| kernel.geometry.as_ref()).map_or(0.0, |geometry| geometry.waves.waves);
    let limit = Limit::of(units, share, waves);
    let words = limit.map_or_else(|| read.clone(), |limit| format!("{}: {read}", limit.in_words()));
    Some((words, limit.map(|limit| limit.change(framework(profile)))))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::profile_of;
    use super::*;

    fn units(sms: f64, occupancy: f64, tensor: f64, dram: f64) -> UnitActivity {
        UnitActivity { sms, occupancy, tensor, dram }
    }

    #[test]
    fn readings_say_what_limits_a_device() {
        for (units, limit) in [
            (units(0.99, 0.8, 0.0, 0.85), Some(Limit::Memory)),
            (units(0.99, 0.2, 0.7, 0.4), Some(Limit::TensorCores)),
            (units(0.05, 0.03, 0.0, 0.01), Some(Limit::Blocks)),
            (units(0.98, 0.1, 0.0, 0.05), Some(Limit::Warps)),
            (units(0.98, 0.9, 0.0, 0.02), Some(Limit::Instructions)),
            (units(0.98, 0.9, 0.0, 0.4), None),
        ] {
            assert_eq!(Limit::of(&units, 1.0, 1.0), limit, "{units:?}");
        }
        let uneven = units(0.7, 0.11, 0.0, 0.01);
        assert_eq!(
            [1.0, 23.0].map(|waves| Limit::of(&uneven, 1.0, waves)),
            [Some(Limit::Warps), Some(Limit::LastBlocks)]
        );
        let idle_beside = units(0.64, 0.46, 0.0, 0.46);
        assert_eq!(Limit::of(&idle_beside, 0.65, 23.0), None, "all of the place may be busy");
    }

    #[test]
    fn only_a_place_of_most_of_the_time_is_limited_by_what_is_read() {
        let mut profile = profile_of([]);
        assert_eq!(of_place(&profile, 1.0, None), None);
        profile.unit_activity = Some(units(0.99, 0.8, 0.0, 0.85));
        assert_eq!(of_place(&profile, 0.5, None), None);
        let (words, change) = of_place(&profile, 0.9, None).expect("a limit");
        assert!(words.contains("DRAM at 85% of its peak, tensor cores idle"), "{words}");
        assert!(change.expect("a change").contains("fewer bytes"));
    }
}
