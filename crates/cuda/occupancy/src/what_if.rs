//! Changes of the configuration: the same calculator, called again.

use crate::calculator::{Occupancy, theoretical};
use crate::limits::DeviceLimits;
use cuda_launch::FunctionAttributes;

/// Occupancy at every block size that is a multiple of the warp size and can be launched,
/// ascending. Dynamic shared memory is held constant: a kernel that needs more of it in larger
/// blocks must be asked about one size at a time.
pub fn block_sizes<'a>(
    limits: &'a DeviceLimits,
    kernel: &'a FunctionAttributes,
    dynamic_shared_bytes: u32,
) -> impl Iterator<Item = (u32, Occupancy)> + 'a {
    let most = match kernel.max_threads_per_block {
        0 => limits.attributes.max_threads_per_block,
        most => most.min(limits.attributes.max_threads_per_block),
    };
    (1..=most / limits.attributes.warp_size)
        .map(move |warps| warps * limits.attributes.warp_size)
        .map(move |threads| (threads, theoretical(limits, kernel, threads, dynamic_shared_bytes)))
        .filter(|(_, occupancy)| occupancy.blocks_per_sm > 0)
}

/// The block size of highest occupancy, and among equals the one nearest to `near` (the smaller of
/// two as near). `None` if no size can run.
pub fn best_block_size(
    limits: &DeviceLimits,
    kernel: &FunctionAttributes,
    dynamic_shared_bytes: u32,
    near: u32,
) -> Option<(u32, Occupancy)> {
    block_sizes(limits, kernel, dynamic_shared_bytes).max_by_key(|&(threads, occupancy)| {
        (occupancy.warps_per_sm, std::cmp::Reverse((threads.abs_diff(near), threads)))
    })
}

/// The most registers of a thread, below what the kernel uses now, with which an SM would hold at
/// least `blocks` blocks. `None` if it holds them already, or if something else stands in the way.
pub fn registers_for(
    limits: &DeviceLimits,
    kernel: &FunctionAttributes,
    threads_per_block: u32,
    dynamic_shared_bytes: u32,
    blocks: u32,
) -> Option<u32> {
    let holds = |registers| {
        let kernel = FunctionAttributes { registers, ..*kernel };
        theoretical(limits, &kernel, threads_per_block, dynamic_shared_bytes).blocks_per_sm >= blocks
    };
    most_below(kernel.registers, holds)
}

/// The most shared memory of a block, static and dynamic together, in bytes and below what it takes
/// now, with which an SM would hold at least `blocks` blocks. `None` if it holds them already, or
/// if something else stands in the way.
pub fn shared_for(
    limits: &DeviceLimits,
    kernel: &FunctionAttributes,
    threads_per_block: u32,
    dynamic_shared_bytes: u32,
    blocks: u32,
) -> Option<u32> {
    let holds = |shared| {
        let kernel =
            FunctionAttributes { static_shared_bytes: shared, max_dynamic_shared_bytes: None, ..*kernel };
        theoretical(limits, &kernel, threads_per_block, 0).blocks_per_sm >= blocks
    };
    most_below(kernel.static_shared_bytes.saturating_add(dynamic_shared_bytes), holds)
}

/// The largest value in `0..now` that holds, if `now` itself does not; what holds, holds for
/// everything smaller.
fn most_below(now: u32, holds: impl Fn(u32) -> bool) -> Option<u32> {
    if holds(now) || !holds(0) {
        return None;
    }
    let (mut good, mut bad) = (0, now);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle) { good = middle } else { bad = middle }
    }
    Some(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hopper() -> DeviceLimits {
        DeviceLimits::of_compute_capability(9, 0).expect("known")
    }

    #[test]
    fn fewer_registers_admit_one_more_block() {
        let kernel = FunctionAttributes { registers: 96, ..Default::default() };
        let ask = |blocks| registers_for(&hopper(), &kernel, 256, 0, blocks);
        assert_eq!(ask(2), None, "two blocks fit already");
        assert_eq!(ask(3), Some(80));
        assert_eq!(ask(8), Some(32));
        assert_eq!(ask(9), None, "2048 threads are all that an SM holds");
    }

    #[test]
    fn fewer_bytes_admit_one_more_block() {
        let kernel = FunctionAttributes { registers: 32, static_shared_bytes: 1024, ..Default::default() };
        let ask = |blocks| shared_for(&hopper(), &kernel, 128, 119 * 1024, blocks);
        assert_eq!(ask(1), None);
        assert_eq!(ask(2), Some(113 * 1024));
    }

    #[test]
    fn the_best_block_size_is_the_nearest_of_the_best() {
        let kernel = FunctionAttributes { registers: 32, ..Default::default() };
        let best = |near| best_block_size(&hopper(), &kernel, 0, near).map(|(threads, _)| threads);
        assert_eq!((best(100), best(32), best(1000)), (Some(128), Some(64), Some(1024)));
        let bounded = FunctionAttributes { max_threads_per_block: 96, ..kernel };
        assert!(block_sizes(&hopper(), &bounded, 0).all(|(threads, _)| threads <= 96));
        let heavy = FunctionAttributes { registers: 255, ..Default::default() };
        let (threads, occupancy) = best_block_size(&hopper(), &heavy, 0, 1024).expect("small blocks run");
        assert_eq!((threads, occupancy.warps_per_sm), (256, 8));
    }

    #[test]
    fn what_is_found_is_the_largest_that_holds() {
        for registers in [33, 64, 97, 128, 168, 255] {
            let kernel = FunctionAttributes { registers, ..Default::default() };
            let now = theoretical(&hopper(), &kernel, 128, 0).blocks_per_sm;
            let Some(fewer) = registers_for(&hopper(), &kernel, 128, 0, now + 1) else {
                continue;
            };
            let at = |registers| {
                let kernel = FunctionAttributes { registers, ..Default::default() };
                theoretical(&hopper(), &kernel, 128, 0).blocks_per_sm
            };
            assert!(at(fewer) > now && at(fewer + 1) == now, "{registers} registers: {fewer}");
        }
    }
}
