//! The work of a launch as features: the work of each warp, and the time of each part of the device
//! for all of it.

use super::{Sink, log};
use crate::bounds::Bounds;
use crate::case::{Basis, Placed};
use ptx::Class;
use ptx_estimate::Work;

pub(super) fn put(placed: &Placed<'_>, sink: &mut dyn Sink) {
    let work = placed.case.work.as_ref().filter(|_| placed.basis() == Basis::Work);
    sink.put("work", "known", f64::from(u8::from(work.is_some())));
    let nothing = Work::default();
    let known = work.is_some();
    let work = work.unwrap_or(&nothing);
    of_warps(work, sink);
    bounds(placed, known, sink);
}

/// Puts the averages over warps.
fn of_warps(work: &Work, sink: &mut dyn Sink) {
    let warps = work.warps.max(1.0);
    let all = work.total();
    let part = |count: f64, of: f64| if of > 0.0 { count / of } else { 0.0 };
    sink.put("work", "instructions", log(all / warps));
    for class in Class::ALL {
        sink.put("work", class.name(), log(work.count(class) / warps));
        sink.put("work_share", class.name(), part(work.count(class), all));
    }
    sink.put("work", "lanes", part(work.thread_instructions, 32.0 * all));
    sink.put(
        "work",
        "load_sectors_per_request",
        log(part(work.global_load_sectors, work.global_load_requests)),
    );
    sink.put(
        "work",
        "store_sectors_per_request",
        log(part(work.global_store_sectors, work.global_store_requests)),
    );
    sink.put("work", "load_use", part(work.global_load_bytes, 32.0 * work.global_load_sectors));
    sink.put("work", "store_use", part(work.global_store_bytes, 32.0 * work.global_store_sectors));
    sink.put("work", "load_sectors", log(work.global_load_sectors / warps));
    sink.put("work", "store_sectors", log(work.global_store_sectors / warps));
    sink.put("work", "shared_passes_per_request", log(part(work.shared_wavefronts, work.shared_requests)));
    sink.put("work", "shared_passes", log(work.shared_wavefronts / warps));
    sink.put("work", "local_requests", log(work.local_requests / warps));
    sink.put("work", "atomic_lanes", log(work.atomic_lanes / warps));
    sink.put("work", "atomic_passes", log(work.atomic_wavefronts / warps));
    sink.put("work", "local_sectors_per_request", log(part(work.local_sectors, work.local_requests)));
    sink.put("work", "constant_passes", log(work.constant_wavefronts / warps));
    sink.put("work", "atomic_sectors", log(work.atomic_sectors));
    sink.put("work", "latency", log(work.latency_cycles));
    sink.put("work", "parallelism", part(all, warps * work.latency_cycles));
    sink.put("work", "barriers", log(work.barriers_per_warp));
    sink.put("work", "imbalance", log(part(work.longest_warp * warps, all)));
    sink.put("work", "all_atomic_lanes", log(work.atomic_lanes));
    sink.put("work", "all_atomic_passes", log(work.atomic_wavefronts));
    sink.put("work", "all_sectors", log(work.global_load_sectors + work.global_store_sectors));
    sink.put("work", "assumed", f64::from(u8::from(work.assumed)));
    sink.put("work", "unknown_branches", log(work.unknown_branches / warps));
}

/// Logarithms of how long each part needs, in microseconds.
fn bounds(placed: &Placed<'_>, known: bool, sink: &mut dyn Sink) {
    let bounds = Bounds::of(placed);
    for (name, us) in bounds.parts() {
        sink.put("bound", name, if known { us.max(1e-3).log2() } else { 0.0 });
    }
    sink.put("bound", "least", if known { bounds.least().log2() } else { 0.0 });
}
