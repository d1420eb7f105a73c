//! Devices by name, as their drivers describe them.

use cuda_launch::{DeviceAttributes, Dim3};

/// The H200 (`data/h200/device/attributes.csv`).
pub const H200: DeviceAttributes = DeviceAttributes {
    compute_capability: (9, 0),
    multiprocessors: 132,
    warp_size: 32,
    max_threads_per_block: 1024,
    max_block_dim: Dim3::new(1024, 1024, 64),
    max_grid_dim: Dim3::new(i32::MAX.cast_unsigned(), 65_535, 65_535),
    max_threads_per_multiprocessor: 2048,
    max_blocks_per_multiprocessor: 32,
    max_registers_per_multiprocessor: 65_536,
    max_registers_per_block: 65_536,
    max_shared_bytes_per_multiprocessor: 233_472,
    max_shared_bytes_per_block: 49_152,
    max_shared_bytes_per_block_optin: 232_448,
    reserved_shared_bytes_per_block: 1024,
    clock_khz: 1_980_000,
    memory_clock_khz: 3_201_000,
    memory_bus_bits: 6016,
    l2_cache_bytes: 62_914_560,
};

/// The H100 (SXM): its memory and its L2 alone differ (`data/h100/launches`).
pub const H100: DeviceAttributes = DeviceAttributes {
    memory_clock_khz: 2_619_000,
    memory_bus_bits: 5120,
    l2_cache_bytes: 52_428_800,
    ..H200
};
