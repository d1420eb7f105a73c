//! Lower bounds of the time that each part of a device needs for the work of a launch.
//!
//! Rates are those of a multiprocessor of compute capability 9.0, in warps' instructions a cycle.
//! Those of arithmetic come from the table "Throughput of Native Arithmetic Instructions" of the
//! CUDA C++ Programming Guide, over 32 lanes; memory's from the device; a few, which say so, were
//! taken from measured launches. A matrix product's rate, and two sectors a cycle between a
//! multiprocessor and L2, are round figures. A launch takes about as long as its slowest part; what
//! part is idle meanwhile, and how far the slowest falls short of its rate, is what the models
//! learn.

use crate::case::{Basis, Device, Placed};
use ptx::Class;
use ptx_estimate::Work;

/// What it takes a GPU to start and end a kernel that does nothing, microseconds (measured on an
/// H200: `data/h200/launches`).
pub const EMPTY_KERNEL_US: f64 = 2.0;

/// Bytes of a sector, the smallest part of memory that is moved.
const SECTOR_BYTES: f64 = 32.0;
/// Instructions of a warp that a multiprocessor issues in a cycle.
const ISSUE: f64 = 4.0;
/// Sectors of local memory, and different addresses of constant memory, that a multiprocessor
/// serves in a cycle (measured on an H200: families `local` and `constant` of
/// `data/h200/launches`).
const LOCAL: f64 = 0.6;
const CONSTANTS: f64 = 0.5;
/// Operations on one sector of memory that a GPU does in a microsecond, and on all sectors together
/// (measured on an H200: families `atomic`, `histogram` and `reduce` of `data/h200/launches`).
const ATOMICS_OF_SECTOR: f64 = 1500.0;
const ATOMICS_OF_DEVICE: f64 = 340e3;

/// Blocks that a multiprocessor is given in a cycle, at most.
const BLOCKS: f64 = 1.0;
/// Bytes that a multiprocessor's L1 cache serves in a cycle, at most: nothing moves global memory
/// faster.
const L1_BYTES: f64 = 128.0;

/// Returns a time that no launch can fall below, in microseconds. Predictions are never less.
///
/// [`Bounds`] say what a launch takes about; they hold rates that were fitted, and nothing of a
/// launch whose code is not known. Here is only what holds for any code: each warp issues one
/// instruction at least, the one that ends it, and each block is given to a multiprocessor. Where
/// it is known what the launch executes (and no guess decides it), the bytes that its accesses to
/// global memory ask for pass through L1.
pub fn floor_us(placed: &Placed<'_>) -> f64 {
    let launch = &placed.case.launch;
    let blocks = launch.blocks() as f64;
    let warps = blocks * f64::from(placed.occupancy.warps_per_block);
    let work = placed.case.work.as_ref().filter(|work| placed.basis() == Basis::Work && !work.assumed);
    let sectors = work.map_or(0.0, |work| work.global_load_sectors + work.global_store_sectors);
    let cycles = [warps / ISSUE, blocks / BLOCKS, SECTOR_BYTES * sectors / L1_BYTES];
    cycles.into_iter().fold(0.0, f64::max) / placed.sms_used() / placed.device.cycles_per_us()
}

/// Bytes of the sectors that loads from and stores to global memory touch.
pub fn global_bytes(work: &Work) -> f64 {
    SECTOR_BYTES * (work.global_load_sectors + work.global_store_sectors)
}

/// The roofs of a device, in nanoseconds: PTX instructions of warps that it issues at most, and
/// bytes that its memory moves at most.
pub fn roofs(device: &Device) -> (f64, f64) {
    let sms = f64::from(device.limits.attributes.multiprocessors);
    (ISSUE * sms * device.cycles_per_us() * 1e-3, device.memory_bytes_per_us() * 1e-3)
}

/// Microseconds that each part of the device needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    parts: [(&'static str, f64); 14],
}

impl Bounds {
    /// Computes the bounds of a launch. All but the empty kernel's are 0 if it is unknown what the
    /// launch executes.
    pub fn of(placed: &Placed<'_>) -> Bounds {
        let nothing = Default::default();
        let work = placed.case.work.as_ref().filter(|_| placed.basis() == Basis::Work).unwrap_or(&nothing);
        let device = placed.device;
        let cycles = |per_sm: f64| per_sm / placed.sms_used() / device.cycles_per_us();
        let count = |classes: &[Class]| classes.iter().map(|&class| work.count(class)).sum::<f64>();
        let rate = |classes: &[Class], a_cycle: f64| cycles(count(classes) / a_cycle);
        let turns = placed.waves.waves.ceil().max(1.0);
        let loads = work.global_load_requests + work.local_requests;
        let sectors = work.global_load_sectors + work.global_store_sectors;
        let atomics = (ATOMICS_OF_SECTOR * work.atomic_sectors).clamp(ATOMICS_OF_SECTOR, ATOMICS_OF_DEVICE);
        let bytes = global_bytes(work);
        Bounds {
            parts: [
                ("issue", cycles(work.total() / ISSUE)),
                ("single", rate(&[Class::Single, Class::Half], 4.0)),
                ("integer", rate(&[Class::Integer, Class::Compare], 2.0)),
                ("double", rate(&[Class::Double], 2.0)),
                ("special", rate(&[Class::Special, Class::Convert], 0.5)),
                ("tensor", rate(&[Class::Tensor], 0.25)),
                ("requests", cycles(loads + work.global_store_requests)),
                ("shared", cycles(work.shared_wavefronts)),
                ("sectors", cycles(sectors / 2.0)),
                ("local", cycles(work.local_sectors / LOCAL)),
                ("constants", cycles(work.constant_wavefronts / CONSTANTS)),
                ("memory", bytes / device.memory_bytes_per_us()),
                ("atomics", work.atomic_lanes / atomics),
                ("latency", turns * work.latency_cycles / device.cycles_per_us()),
            ],
        }
    }

    /// Name and microseconds of each part.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.parts.into_iter()
    }

    /// Returns an approximate lower bound of the duration: the time of the slowest part plus that
    /// of an empty kernel.
    pub fn least(&self) -> f64 {
        EMPTY_KERNEL_US + self.parts.iter().map(|(_, us)| *us).fold(0.0, f64::max)
    }
}
