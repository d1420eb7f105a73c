//! The number of a kernel's blocks that an SM holds at once.
//!
//! Each resource alone limits the number of blocks; the smallest of these limits is the answer, and
//! the resources whose limit equals it are the *limiters*. Registers are given per warp, in units,
//! from the partition that the warp runs in; shared memory is given per block, in units, out of the
//! carve-out that the SM is configured with.

use crate::limits::DeviceLimits;
use cuda_launch::{Carveout, FunctionAttributes};

/// A resource that stops one more block from fitting on an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Limiter {
    /// Resident warps of an SM.
    Warps,
    /// Resident blocks of an SM.
    Blocks,
    /// Registers of an SM.
    Registers,
    /// Shared memory of an SM.
    SharedMemory,
    /// Barriers of an SM.
    Barriers,
}

impl Limiter {
    /// All of them, in the order in which they are reported.
    pub const ALL: [Self; 5] =
        [Self::Warps, Self::Blocks, Self::Registers, Self::SharedMemory, Self::Barriers];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warps => "warps",
            Self::Blocks => "blocks",
            Self::Registers => "registers",
            Self::SharedMemory => "shared memory",
            Self::Barriers => "barriers",
        }
    }
}

/// Theoretical occupancy of one launch configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Occupancy {
    /// Blocks that an SM holds at once; 0 means that the configuration cannot run.
    pub blocks_per_sm: u32,
    /// Warps of a block.
    pub warps_per_block: u32,
    /// Warps that an SM holds at once.
    pub warps_per_sm: u32,
    /// Warps that an SM could hold.
    pub max_warps_per_sm: u32,
    /// Blocks that each resource alone would admit, in the order of [`Limiter::ALL`]; `None` where
    /// it does not limit.
    pub block_limits: [Option<u32>; 5],
}

impl Occupancy {
    /// Resident warps over the most possible, 0 to 1.
    pub fn fraction(&self) -> f64 {
        f64::from(self.warps_per_sm) / f64::from(self.max_warps_per_sm.max(1))
    }

    /// Blocks that this resource alone would admit; `None` where it does not limit.
    pub fn limit(&self, limiter: Limiter) -> Option<u32> {
        self.block_limits[limiter as usize]
    }

    /// The resources that bind: those whose own limit is the smallest.
    pub fn limiters(&self) -> impl Iterator<Item = Limiter> + '_ {
        Limiter::ALL.into_iter().filter(|&limiter| self.limit(limiter) == Some(self.blocks_per_sm))
    }
}

/// Theoretical occupancy of a kernel: what `cuOccupancyMaxActiveBlocksPerMultiprocessor` answers. A
/// configuration that cannot be launched gets 0 blocks, and the resource that forbids it as its
/// limiter.
///
/// Blocks of more than [`FunctionAttributes::max_threads_per_block`] are refused at launch, but the
/// driver computes an occupancy for them all the same, and so does this; [`crate::what_if`] does
/// not suggest them.
pub fn theoretical(
    limits: &DeviceLimits,
    kernel: &FunctionAttributes,
    threads_per_block: u32,
    dynamic_shared_bytes: u32,
) -> Occupancy {
    let warps_per_block = limits.warps_of(threads_per_block);
    let block_limits = [
        Some(limit_by_warps(limits, threads_per_block)),
        Some(limits.attributes.max_blocks_per_multiprocessor),
        limit_by_registers(limits, kernel, warps_per_block),
        limit_by_shared(limits, kernel, dynamic_shared_bytes),
        limits.barriers_per_sm.and_then(|available| available.checked_div(kernel.barriers)),
    ];
    let blocks_per_sm = block_limits.into_iter().flatten().min().unwrap_or(0);
    Occupancy {
        blocks_per_sm,
        warps_per_block,
        warps_per_sm: blocks_per_sm * warps_per_block,
        max_warps_per_sm: limits.max_warps_per_sm(),
        block_limits,
    }
}

fn limit_by_warps(limits: &DeviceLimits, threads_per_block: u32) -> u32 {
    if threads_per_block == 0 || threads_per_block > limits.attributes.max_threads_per_block {
        return 0;
    }
    limits.max_warps_per_sm() / limits.warps_of(threads_per_block)
}

/// `None` for a kernel that uses no registers.
fn limit_by_registers(
    limits: &DeviceLimits,
    kernel: &FunctionAttributes,
    warps_per_block: u32,
) -> Option<u32> {
    if kernel.registers == 0 || warps_per_block == 0 {
        return None;
    }
    let per_warp = registers_of_warp(limits, kernel.registers);
    // A launch is checked as if its warps were spread evenly over all partitions.
    let checked_warps = u64::from(warps_per_block).next_multiple_of(u64::from(limits.partitions));
    if kernel.registers > limits.max_registers_per_thread
        || per_warp * checked_warps > u64::from(limits.attributes.max_registers_per_block)
    {
        return Some(0);
    }
    let warps_per_partition =
        u64::from(limits.attributes.max_registers_per_multiprocessor / limits.partitions) / per_warp;
    let warps = warps_per_partition * u64::from(limits.partitions);
    Some((warps / u64::from(warps_per_block)) as u32)
}

/// Registers that a warp is given.
fn registers_of_warp(limits: &DeviceLimits, registers: u32) -> u64 {
    (u64::from(registers) * u64::from(limits.attributes.warp_size))
        .next_multiple_of(u64::from(limits.register_unit))
}

/// `None` for a kernel that takes no shared memory on a device that reserves none.
fn limit_by_shared(
    limits: &DeviceLimits,
    kernel: &FunctionAttributes,
    dynamic_shared_bytes: u32,
) -> Option<u32> {
    let per_block = shared_of_block(limits, kernel, dynamic_shared_bytes);
    if per_block == 0 {
        return None;
    }
    if !may_take_shared(limits, kernel, dynamic_shared_bytes) {
        return Some(0);
    }
    let preferred = match kernel.carveout {
        Carveout::Default => u64::from(limits.attributes.max_shared_bytes_per_multiprocessor),
        Carveout::Percent(percent) => {
            let bytes = u64::from(percent.min(100))
                * u64::from(limits.attributes.max_shared_bytes_per_multiprocessor)
                / 100;
            limits.carveout_holding(bytes).unwrap_or(bytes)
        }
    };
    // The preference is a hint: where not even one block would fit, the SM is given what one block
    // needs.
    let available = if preferred >= per_block { Some(preferred) } else { limits.carveout_holding(per_block) };
    Some(available.map_or(0, |bytes| (bytes / per_block) as u32))
}

/// Shared memory that a block is given, bytes: what it uses, and what the driver keeps.
fn shared_of_block(limits: &DeviceLimits, kernel: &FunctionAttributes, dynamic_shared_bytes: u32) -> u64 {
    let used = u64::from(kernel.static_shared_bytes) + u64::from(dynamic_shared_bytes);
    (used + u64::from(limits.attributes.reserved_shared_bytes_per_block))
        .next_multiple_of(u64::from(limits.shared_unit_bytes))
}

/// Whether a block may take that much. More than `max_shared_bytes_per_block` needs the kernel's
/// consent beforehand, which is seen in its `max_dynamic_shared_bytes`.
fn may_take_shared(limits: &DeviceLimits, kernel: &FunctionAttributes, dynamic_shared_bytes: u32) -> bool {
    let used = u64::from(kernel.static_shared_bytes) + u64::from(dynamic_shared_bytes);
    let consented = kernel.max_dynamic_shared_bytes.unwrap_or(dynamic_shared_bytes);
    let may_use = u64::from(kernel.static_shared_bytes) + u64::from(consented);
    let most = if may_use > u64::from(limits.attributes.max_shared_bytes_per_block) {
        limits.attributes.max_shared_bytes_per_block_optin
    } else {
        limits.attributes.max_shared_bytes_per_block
    };
    dynamic_shared_bytes <= consented && used <= u64::from(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(
        cc: (u32, u32),
        kernel: FunctionAttributes,
        threads: u32,
        dynamic: u32,
        carveout: Carveout,
    ) -> Occupancy {
        let limits = DeviceLimits::of_compute_capability(cc.0, cc.1).expect("known");
        theoretical(&limits, &FunctionAttributes { carveout, ..kernel }, threads, dynamic)
    }

    fn registers(registers: u32) -> FunctionAttributes {
        FunctionAttributes { registers, ..Default::default() }
    }

    fn limiters(occupancy: &Occupancy) -> Vec<Limiter> {
        occupancy.limiters().collect()
    }

    #[test]
    fn registers_are_given_per_partition() {
        // 33 registers become 1280 for a warp: 12 warps of a partition, 48 of an SM, though 65536 /
        // 1280 is 51.
        let occupancy = on((9, 0), registers(33), 32 * 17, 0, Carveout::Default);
        assert_eq!(occupancy.limit(Limiter::Registers), Some(2));
        assert_eq!(on((9, 0), registers(33), 32, 0, Carveout::Default).limit(Limiter::Registers), Some(48));
    }

    #[test]
    fn a_block_is_checked_as_if_spread_over_all_partitions() {
        // 29 warps of 72 registers need 29 * 2304 = 66816 registers, above 65536; 64 registers give
        // 29 * 2048.
        assert_eq!(on((8, 0), registers(72), 29 * 32, 0, Carveout::Default).blocks_per_sm, 0);
        assert_eq!(on((8, 0), registers(64), 29 * 32, 0, Carveout::Default).blocks_per_sm, 1);
    }

    #[test]
    fn small_blocks_bind_on_blocks_and_full_ones_on_warps() {
        let small = on((8, 6), registers(16), 32, 0, Carveout::Default);
        assert_eq!((small.blocks_per_sm, limiters(&small)), (16, vec![Limiter::Blocks]));
        let full = on((8, 6), registers(16), 512, 0, Carveout::Default);
        assert_eq!((full.fraction(), limiters(&full)), (1.0, vec![Limiter::Warps]));
    }

    #[test]
    fn shared_memory_counts_the_reserved_kibibyte_and_the_unit() {
        // 227 KiB is one block; 113 KiB + 1 KiB is exactly half of 228 KiB; one byte more is not.
        let with = |dynamic| on((9, 0), registers(16), 128, dynamic, Carveout::Default).blocks_per_sm;
        assert_eq!((with(227 * 1024), with(113 * 1024), with(113 * 1024 + 1)), (1, 2, 1));
        assert_eq!(with(227 * 1024 + 1), 0);
        // Compute capability 7.5 reserves nothing.
        assert_eq!(on((7, 5), registers(16), 64, 32 * 1024, Carveout::Default).blocks_per_sm, 2);
    }

    #[test]
    fn a_kernel_that_did_not_consent_gets_no_more_than_48_kib() {
        let kernel = FunctionAttributes {
            max_dynamic_shared_bytes: Some(40 * 1024),
            static_shared_bytes: 8 * 1024,
            ..registers(16)
        };
        assert!(on((8, 0), kernel, 128, 40 * 1024, Carveout::Default).blocks_per_sm > 0);
        assert_eq!(on((8, 0), kernel, 128, 40 * 1024 + 1, Carveout::Default).blocks_per_sm, 0);
    }

    #[test]
    fn the_carveout_is_rounded_up_and_yields_to_one_block() {
        let with = |percent, dynamic| {
            on((9, 0), registers(16), 128, dynamic, Carveout::Percent(percent)).blocks_per_sm
        };
        // 25% of 228 KiB is 57 KiB, configured as 64 KiB: seven blocks of 8 + 1 KiB.
        assert_eq!(with(25, 8 * 1024), 7);
        // No preference for shared memory at all: one block gets the smallest configuration that
        // holds it.
        assert_eq!(with(0, 20 * 1024), 1);
        assert_eq!(
            with(100, 20 * 1024),
            on((9, 0), registers(16), 128, 20 * 1024, Carveout::Default).blocks_per_sm
        );
    }

    #[test]
    fn blocks_that_cannot_be_launched_name_the_reason() {
        let occupancy = on((8, 0), registers(16), 1025, 0, Carveout::Default);
        assert_eq!((occupancy.blocks_per_sm, limiters(&occupancy)), (0, vec![Limiter::Warps]));
        assert_eq!(on((8, 0), registers(16), 0, 0, Carveout::Default).blocks_per_sm, 0);
        assert_eq!(on((8, 0), registers(16), u32::MAX, u32::MAX, Carveout::Default).blocks_per_sm, 0);
    }

    #[test]
    fn barriers_bind_from_hopper_on() {
        let kernel = FunctionAttributes { barriers: 16, ..registers(16) };
        assert_eq!(limiters(&on((9, 0), kernel, 128, 0, Carveout::Default)), [Limiter::Barriers]);
        assert_eq!(on((8, 0), kernel, 128, 0, Carveout::Default).limit(Limiter::Barriers), None);
    }
}
