//! All facts about a launch as features: configuration, residency, device, kernel, PTX, executed
//! work.

use super::{DEVICE, Sink, log, work};
use crate::case::{Basis, Placed};
use occupancy::{Limiter, block_efficiency};
use ptx::{Class, Mix};

pub(super) fn put(placed: &Placed<'_>, sink: &mut dyn Sink) {
    put_changing(placed, sink);
    device(placed, sink);
    kernel(placed, sink);
    mix(placed.case.mix.as_ref().filter(|_| placed.basis() >= Basis::Code), sink);
}

/// Puts the features that differ between launches of one kernel.
pub(super) fn put_changing(placed: &Placed<'_>, sink: &mut dyn Sink) {
    configuration(placed, sink);
    residency(placed, sink);
    work::put(placed, sink);
}

fn configuration(placed: &Placed<'_>, sink: &mut dyn Sink) {
    let launch = &placed.case.launch;
    let (blocks, threads) = (launch.blocks() as f64, launch.threads_per_block() as f64);
    let warps = f64::from(placed.occupancy.warps_per_block);
    for (name, side) in ["grid_x", "grid_y", "grid_z"].into_iter().zip(launch.grid.to_array()) {
        sink.put("", name, f64::from(side).log2());
    }
    for (name, side) in ["block_x", "block_y", "block_z"].into_iter().zip(launch.block.to_array()) {
        sink.put("", name, f64::from(side).log2());
    }
    sink.put("", "blocks", blocks.log2());
    sink.put("", "block_threads", threads.log2());
    sink.put("", "block_warps", warps.log2());
    sink.put("", "warps", (blocks * warps).log2());
    sink.put(
        "",
        "block_efficiency",
        block_efficiency(threads as u32, placed.device.limits.attributes.warp_size),
    );
    // Threads whose neighbours along x are in the same warp.
    let row = launch.block.x.min(placed.device.limits.attributes.warp_size);
    sink.put("", "warp_row", f64::from(row).log2());
    sink.put("", "dynamic_shared", log(f64::from(launch.dynamic_shared_bytes)));
}

/// Puts the features of how the grid fills the device: exact, and the larger part of achieved
/// occupancy.
fn residency(placed: &Placed<'_>, sink: &mut dyn Sink) {
    let (occupancy, waves) = (&placed.occupancy, &placed.waves);
    let sms = f64::from(placed.device.limits.attributes.multiprocessors);
    let warps = f64::from(occupancy.warps_per_block);
    let total = placed.case.launch.blocks() as f64 * warps;
    let resident = placed.resident_blocks() * warps;
    let per_sm = waves.blocks as f64 / sms;
    sink.put("", "theoretical_occupancy", occupancy.fraction());
    sink.put("", "occupancy_bound", placed.occupancy_bound());
    sink.put("", "occupancy_bound_log", placed.occupancy_bound().log2());
    sink.put("", "mean_residency", resident / sms / f64::from(occupancy.max_warps_per_sm));
    sink.put("", "blocks_per_sm", f64::from(occupancy.blocks_per_sm).log2());
    for limiter in Limiter::ALL {
        let binds = occupancy.limiters().any(|other| other == limiter);
        sink.put("limited_by", limiter_name(limiter), f64::from(u8::from(binds)));
    }
    sink.put("", "waves", waves.waves.log2());
    sink.put("", "tail_effect", if waves.full > 0 { waves.tail_effect() } else { 0.0 });
    // By how much whole waves, or whole blocks of a multiprocessor, last longer than their share of
    // the work.
    sink.put(
        "",
        "wave_rounding",
        if waves.waves > 1.0 { (waves.waves.ceil() / waves.waves).log2() } else { 0.0 },
    );
    sink.put("", "sm_rounding", if per_sm > 1.0 { (per_sm.ceil() / per_sm).log2() } else { 0.0 });
    sink.put("", "sms_used", placed.sms_used().log2());
    sink.put("", "sm_coverage", waves.sm_coverage);
    sink.put("", "resident_warps", resident.log2());
    sink.put("", "resident_warps_per_sm", (resident / placed.sms_used()).log2());
    sink.put("", "turns", (total / resident).log2());
}

fn limiter_name(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::Warps => "warps",
        Limiter::Blocks => "blocks",
        Limiter::Registers => "registers",
        Limiter::SharedMemory => "shared_memory",
        Limiter::Barriers => "barriers",
    }
}

fn device(placed: &Placed<'_>, sink: &mut dyn Sink) {
    let (device, limits) = (placed.device, &placed.device.limits);
    sink.put(DEVICE, "sms", f64::from(limits.attributes.multiprocessors).log2());
    sink.put(DEVICE, "warps_per_sm", f64::from(limits.max_warps_per_sm()).log2());
    sink.put(DEVICE, "shared_per_sm", log(f64::from(limits.attributes.max_shared_bytes_per_multiprocessor)));
    sink.put(DEVICE, "sm_cycles_per_us", device.cycles_per_us().log2());
    sink.put(DEVICE, "memory_bytes_per_us", device.memory_bytes_per_us().log2());
    sink.put(DEVICE, "l2", f64::from(limits.attributes.l2_cache_bytes).log2());
}

fn kernel(placed: &Placed<'_>, sink: &mut dyn Sink) {
    let kernel = placed.case.kernel.unwrap_or_default();
    sink.put("", "registers", f64::from(kernel.registers) / 64.0);
    sink.put("", "static_shared", log(f64::from(kernel.static_shared_bytes)));
    sink.put("", "local", log(f64::from(kernel.local_bytes)));
    let most = match kernel.max_threads_per_block {
        0 => placed.device.limits.attributes.max_threads_per_block,
        known => known,
    };
    sink.put("", "max_threads", log(f64::from(most)));
}

fn mix(mix: Option<&Mix>, sink: &mut dyn Sink) {
    sink.put("ptx", "known", f64::from(u8::from(mix.is_some())));
    let nothing = Mix::default();
    let mix = mix.unwrap_or(&nothing);
    let all = mix.counts.iter().sum::<u64>() as f64;
    sink.put("ptx", "instructions", log(all));
    for class in Class::ALL {
        let (count, in_loops) = (mix.counts[class as usize] as f64, mix.in_loops[class as usize] as f64);
        sink.put("ptx", class.name(), log(count));
        sink.put("ptx_share", class.name(), count / all.max(1.0));
        sink.put("ptx_in_loops", class.name(), log(in_loops));
    }
    sink.put("ptx", "loops", log(mix.loops as f64));
    sink.put("ptx", "predicated", log(mix.predicated as f64));
    sink.put("ptx", "global_load_bytes", log(mix.global_load_bytes as f64));
    sink.put("ptx", "global_store_bytes", log(mix.global_store_bytes as f64));
    sink.put("ptx", "shared_bytes", log(mix.shared_bytes as f64));
    sink.put("ptx", "local_bytes", log(mix.local_bytes as f64));
    sink.put("ptx", "global_bytes_in_loops", log(mix.global_bytes_in_loops as f64));
}
