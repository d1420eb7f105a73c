//! Counts, the same threads in other blocks, and limits: examples, and any numbers at all.

use cuda_launch::{
    Carveout, DeviceAttributes, Dim3, LaunchConfig, LaunchLimit, LimitExceeded, attribute, compute_capability,
};
use proptest::prelude::*;

/// The limits of a device of compute capability 9.0 on grid and block.
const DEVICE: DeviceAttributes = DeviceAttributes {
    max_threads_per_block: 1024,
    max_block_dim: Dim3::new(1024, 1024, 64),
    max_grid_dim: Dim3::new(i32::MAX as u32, 65_535, 65_535),
    ..DeviceAttributes::UNKNOWN
};

#[test]
fn dimensions_come_from_one_to_three_numbers() {
    assert_eq!(Dim3::from(7), Dim3::new(7, 1, 1));
    assert_eq!(Dim3::from((7, 8)), Dim3::new(7, 8, 1));
    assert_eq!(Dim3::from((7, 8, 9)), Dim3::from([7, 8, 9]));
    assert_eq!(<[u32; 3]>::from(Dim3::new(7, 8, 9)), [7, 8, 9]);
    assert_eq!(<(u32, u32, u32)>::from(Dim3::new(7, 8, 9)), (7, 8, 9));
    assert_eq!((Dim3::default(), Dim3::new(7, 8, 9).to_string()), (Dim3::ONE, "(7, 8, 9)".to_owned()));
}

#[test]
fn counts_saturate() {
    assert_eq!(Dim3::new(2, 3, 4).count(), 24);
    assert_eq!(Dim3::new(u32::MAX, u32::MAX, 1).count(), u64::from(u32::MAX).pow(2));
    assert_eq!(Dim3::new(u32::MAX, u32::MAX, u32::MAX).count(), u64::MAX);
    assert_eq!(Dim3::new(u32::MAX, u32::MAX, 0).count(), 0);
    let launch = LaunchConfig::new((u32::MAX, u32::MAX), 2);
    assert_eq!((launch.blocks(), launch.threads()), (u64::from(u32::MAX).pow(2), u64::MAX));
}

#[test]
fn a_launch_without_clusters_has_one_block_in_each() {
    let launch = LaunchConfig::new(8, 128);
    assert_eq!((launch.cluster, launch.blocks_per_cluster()), (Dim3::ZERO, 1));
    assert_eq!(LaunchConfig { cluster: (2, 4).into(), ..launch }.blocks_per_cluster(), 8);
    assert_eq!(launch.with_dynamic_shared_bytes(64).to_string(), "<<<(8, 1, 1), (128, 1, 1), 64>>>");
}

#[test]
fn another_block_keeps_the_threads_of_each_axis() {
    let launch = LaunchConfig::new((100, 3), 256).with_dynamic_shared_bytes(64);
    let with = |block: Dim3| launch.with_block(block);
    assert_eq!(with(512.into()), Some(LaunchConfig { grid: (50, 3).into(), block: 512.into(), ..launch }));
    let halves = LaunchConfig { grid: (267, 2).into(), block: (96, 2).into(), ..launch };
    assert_eq!(with((96, 2).into()), Some(halves));
    assert_eq!(with(launch.block), Some(launch));
    for empty in [(0, 1, 1), (1, 0, 1), (1, 1, 0)] {
        assert_eq!(with(empty.into()), None, "{empty:?}");
    }
    let most = LaunchConfig::new(u32::MAX, 2);
    assert_eq!(most.with_block(1.into()), None, "a grid of 2³³ blocks");
    assert_eq!(most.with_block(2.into()), Some(most));
}

#[test]
fn another_block_keeps_clusters_whole() {
    let launch = LaunchConfig { cluster: (4, 2).into(), ..LaunchConfig::new((8, 2), 100) };
    assert_eq!(launch.with_block(128.into()).map(|launch| launch.grid), Some((8, 2).into()));
    assert_eq!(launch.with_block(160.into()).map(|launch| launch.grid), Some((8, 2).into()));
    assert_eq!(launch.with_block(200.into()).map(|launch| launch.grid), Some((4, 2).into()));
    let most = LaunchConfig { cluster: 2.into(), ..LaunchConfig::new(u32::MAX, 1) };
    assert_eq!(most.with_block(1.into()), None, "rounded up, it is above the largest number");
}

#[test]
fn the_first_limit_that_is_exceeded_is_named() {
    let exceeded = |grid: [u32; 3], block: [u32; 3]| LaunchConfig::new(grid, block).exceeded_limit(&DEVICE);
    let found = |what, value, limit| Some(LimitExceeded { what, value, limit });
    assert_eq!(exceeded([i32::MAX as u32, 65_535, 65_535], [16, 1, 64]), None);
    assert_eq!(exceeded([1, 0, 1], [1, 1, 1]), found(LaunchLimit::EmptyGrid, 0, 0));
    assert_eq!(exceeded([1, 1, 1], [1, 1, 0]), found(LaunchLimit::EmptyBlock, 0, 0));
    assert_eq!(
        exceeded([1 << 31, 1, 1], [1, 1, 1]),
        found(LaunchLimit::GridDim('x'), 1 << 31, (1 << 31) - 1)
    );
    assert_eq!(exceeded([1, 65_536, 1], [1, 1, 1]), found(LaunchLimit::GridDim('y'), 65_536, 65_535));
    assert_eq!(exceeded([1, 1, 65_536], [1, 1, 1]), found(LaunchLimit::GridDim('z'), 65_536, 65_535));
    assert_eq!(exceeded([1, 1, 1], [32, 33, 1]), found(LaunchLimit::ThreadsPerBlock, 1056, 1024));
    assert_eq!(exceeded([1, 1, 1], [1, 1, 65]), found(LaunchLimit::BlockDim('z'), 65, 64));
    let tall = DeviceAttributes { max_threads_per_block: 4096, ..DEVICE };
    let exceeded = |block: [u32; 3]| LaunchConfig::new(1, block).exceeded_limit(&tall);
    assert_eq!(exceeded([1025, 1, 1]), found(LaunchLimit::BlockDim('x'), 1025, 1024));
    assert_eq!(exceeded([1, 1025, 1]), found(LaunchLimit::BlockDim('y'), 1025, 1024));
}

#[test]
fn a_carveout_is_a_percentage_or_the_default() {
    for (value, carveout) in
        [(-1, Carveout::Default), (0, Carveout::Percent(0)), (100, Carveout::Percent(100))]
    {
        assert_eq!((Carveout::from_attribute(value), carveout.to_attribute()), (carveout, value));
    }
    assert_eq!(Carveout::from_attribute(i32::MIN), Carveout::Default);
    assert_eq!(Carveout::Percent(u32::MAX).to_attribute(), i32::MAX);
}

/// The fields that an attribute replaces, by its number in `cuda.h`.
fn fields(device: &DeviceAttributes) -> [(u32, u32); 21] {
    [
        (1, device.max_threads_per_block),
        (2, device.max_block_dim.x),
        (3, device.max_block_dim.y),
        (4, device.max_block_dim.z),
        (5, device.max_grid_dim.x),
        (6, device.max_grid_dim.y),
        (7, device.max_grid_dim.z),
        (8, device.max_shared_bytes_per_block),
        (10, device.warp_size),
        (12, device.max_registers_per_block),
        (13, device.clock_khz),
        (16, device.multiprocessors),
        (36, device.memory_clock_khz),
        (37, device.memory_bus_bits),
        (38, device.l2_cache_bytes),
        (39, device.max_threads_per_multiprocessor),
        (81, device.max_shared_bytes_per_multiprocessor),
        (82, device.max_registers_per_multiprocessor),
        (97, device.max_shared_bytes_per_block_optin),
        (106, device.max_blocks_per_multiprocessor),
        (111, device.reserved_shared_bytes_per_block),
    ]
}

#[test]
fn each_attribute_replaces_its_field_and_no_other() {
    for (place, &(id, before)) in fields(&DEVICE).iter().enumerate() {
        // One grid's limit is the largest value that there is.
        let value = if before == i32::MAX.cast_unsigned() { before - 7 } else { before + 7 };
        let device = DEVICE.with_pairs(&[(id, value as i32)]);
        let mut expected = fields(&DEVICE);
        expected[place].1 = value;
        assert_eq!(fields(&device), expected, "attribute {id}");
        assert_eq!(device.get(id), Some(value), "attribute {id}");
    }
    assert_eq!(DEVICE.get(9), None, "TOTAL_CONSTANT_MEMORY is not among them");
}

#[test]
fn zero_and_negative_values_are_not_believed() {
    let pairs: Vec<_> = fields(&DEVICE).iter().map(|&(id, _)| (id, 5000)).collect();
    let device = DEVICE.with_pairs(&pairs);
    for (id, _) in pairs {
        assert_eq!(device.with_pairs(&[(id, -1)]), device, "attribute {id}");
        // A device may keep no shared memory for itself.
        let expected = match id {
            111 => DeviceAttributes { reserved_shared_bytes_per_block: 0, ..device },
            _ => device,
        };
        assert_eq!(device.with_pairs(&[(id, 0)]), expected, "attribute {id}");
    }
}

#[test]
fn blocks_and_warps_that_no_device_has_are_not_believed() {
    for id in [attribute::MAX_THREADS_PER_BLOCK, attribute::WARP_SIZE] {
        for value in [65_537, i32::MAX] {
            assert_eq!(DEVICE.with_pairs(&[(id, value)]), DEVICE, "attribute {id}");
        }
        assert_eq!(DEVICE.with_pairs(&[(id, 65_536)]).get(id), Some(65_536));
    }
}

#[test]
fn a_compute_capability_has_two_numbers() {
    let (major, minor) = ((75, 9), (76, 0));
    assert_eq!(compute_capability(&[(16, 132), minor, major]), Some((9, 0)));
    assert_eq!((compute_capability(&[major]), compute_capability(&[minor])), (None, None));
    assert_eq!(compute_capability(&[major, (76, -1)]), None);
    let device = DEVICE.with_pairs(&[major, minor]);
    assert_eq!((device.compute_capability, device.get(75), device.get(76)), ((9, 0), Some(9), Some(0)));
    assert_eq!(device.with_pairs(&[(75, 8)]).compute_capability, (9, 0), "half of one replaces nothing");
}

fn dim3() -> impl Strategy<Value = Dim3> {
    let side = || prop_oneof![0..4u32, Just(u32::MAX), any::<u32>()];
    (side(), side(), side()).prop_map(Dim3::from)
}

proptest! {
    #[test]
    fn no_number_makes_anything_panic(
        grid in dim3(),
        block in dim3(),
        cluster in dim3(),
        new_block in dim3(),
        pairs in proptest::collection::vec((0..120u32, any::<i32>()), 0..20),
    ) {
        let launch = LaunchConfig { cluster, ..LaunchConfig::new(grid, block) };
        let exact = |sides: Dim3| sides.to_array().iter().map(|&side| u128::from(side)).product::<u128>();
        prop_assert_eq!(u128::from(launch.blocks()), exact(grid).min(u64::MAX.into()));
        let threads = exact(grid).saturating_mul(exact(block));
        prop_assert_eq!(u128::from(launch.threads()), threads.min(u64::MAX.into()));
        prop_assert!(launch.blocks_per_cluster() >= 1);

        let device = DEVICE.with_pairs(&pairs);
        let exceeds = grid.is_empty()
            || block.is_empty()
            || exact(block) > device.max_threads_per_block.into()
            || (0..3).any(|axis| {
                grid.to_array()[axis] > device.max_grid_dim.to_array()[axis]
                    || block.to_array()[axis] > device.max_block_dim.to_array()[axis]
            });
        prop_assert_eq!(launch.exceeded_limit(&device).is_some(), exceeds);

        if let Some(changed) = launch.with_block(new_block) {
            prop_assert_eq!((changed.block, changed.cluster), (new_block, cluster));
            for axis in 0..3 {
                let side = |sides: Dim3| u64::from(sides.to_array()[axis]);
                let cluster = side(cluster).max(1);
                let (old, new) = (side(grid) * side(block), side(changed.grid));
                prop_assert_eq!(new % cluster, 0);
                prop_assert!(u128::from(new) * u128::from(side(new_block)) >= u128::from(old), "all threads");
                prop_assert!(new == 0 || (new - cluster) * side(new_block) < old, "no cluster too many");
            }
        } else {
            let too_large = (0..3).any(|axis| {
                let side = |sides: Dim3| u64::from(sides.to_array()[axis]);
                let blocks = (side(grid) * side(block)).div_ceil(side(new_block).max(1));
                blocks.next_multiple_of(side(cluster).max(1)) > u32::MAX.into()
            });
            prop_assert!(new_block.is_empty() || too_large);
        }
    }
}
